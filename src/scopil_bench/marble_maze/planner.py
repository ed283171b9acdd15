"""A planner for Marble Maze that keeps away from constraints: a beam search over action sequences in the simulator.

The cost of a plan is a sum over its steps. Each step costs 1, plus terms for speed above `Care.speed`, for distance to
a constraint below `Care.comfort`, and for tilting the tray. Plans keep a distance of `Care.clearance` to every
constraint. Costs depend only on states, so similar states lead to similar actions. The search is deterministic. Its
estimate of the remaining cost uses the length of the shortest path around the constraints (`find_route`).
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from scopil.envs.marble_maze import physics
from scopil.envs.marble_maze.constraints import Circle, Constraint, MarbleParams
from scopil.envs.marble_maze.physics import ACTIONS, HOLE_RADIUS, MAX_TICKS, REACH, MarbleState
from scopil.errors import ScopilError

ACCELERATION = 0.06  # px per update², averaged over the time that the tray takes to tilt
CELL_POSITION, CELL_VELOCITY = 2.0, 0.15  # px, px per update: cell size; the search keeps one state per cell and tilt
TABLE_BITS = 18  # the hash table of these cells has 2^18 entries
PATIENCE = 1.0  # the search ends when every open plan's estimate exceeds the best finished plan's cost by this
SPACING = 4.0  # px between the grid points of a route
SWEEPS = 2000  # maximum number; the loop ends early if a sweep changes nothing
SIDES = ("left", "right")
HALF_ANGLE = np.pi / 9  # rad, of a `Wedge`; the ball cannot cross it in one step


@dataclass(frozen=True, kw_only=True)
class Care:
    """Preferences of a planner. Costs are in steps: 1 is the cost of one more step."""

    clearance: float | Array  # minimum px to every constraint; a ball that starts nearer may only move away
    speed: float | Array  # px per update; only higher speeds have a cost
    comfort: float | Array  # px to a constraint; only smaller distances have a cost
    near_cost: float | Array = 2.0  # per step on a constraint's rim; falls quadratically to 0 at `comfort`
    speed_cost: float | Array = 8.0  # per step at twice `speed`; grows quadratically from 0 at `speed`
    tilt_cost: float | Array = 0.02  # per step and tilted axis
    turn_cost: float | Array = 0.2  # per axis that moves from level to full tilt or back
    graze_cost: float | Array = 2.0  # if the last motion only grazes the rim; falls quadratically to 0 at the centre
    beam: int = 3000
    max_steps: int = 120


# Only the sizes are static, so planners with other preferences share one compiled search.
jax.tree_util.register_dataclass(
    Care,
    data_fields=[f.name for f in fields(Care) if f.name not in ("beam", "max_steps")],
    meta_fields=["beam", "max_steps"],
)


class TrayPlanner(NamedTuple):
    """A planner for one tray."""

    care: Care
    constraints: tuple[Constraint, ...]
    hole: Float[Array, "2"]
    route: "Route"


class _Beam(NamedTuple):
    state: MarbleState  # (W, …)
    paid: Float[Array, " W"]  # ∞ where the slot is empty
    guess: Float[Array, " W"]  # paid + estimated cost to the hole
    level: Int[Array, ""]
    parent: Int[Array, "T W"]
    action: Int[Array, "T W"]
    best: Float[Array, ""]  # cost of the cheapest finished plan; then its last parent, action and level
    best_parent: Int[Array, ""]
    best_action: Int[Array, ""]
    best_level: Int[Array, ""]


def make_planner(params: MarbleParams, care: Care, extra: tuple[Constraint, ...] = ()) -> TrayPlanner:
    """A planner for the tray `params`. The environment does not have the constraints in `extra`."""
    constraints = (*params.constraints, *extra)

    def weight(position: Float[Array, "2"]) -> Float[Array, ""]:
        away = margins(constraints, position)
        forbidden = jnp.any(away < 0) * 100.0 + jnp.any(away < care.clearance) * 5.0
        return 1.0 + _nearness(care, away) + forbidden

    return TrayPlanner(care, constraints, jnp.array(params.hole), find_route(weight, params.hole))


def plan(planner: TrayPlanner, start: MarbleState) -> np.ndarray:
    """The actions of a whole episode from `start` to the hole."""
    care = planner.care
    found = jax.device_get(_search(planner, start))
    if not np.isfinite(found.best):
        x, y = np.asarray(start.position)
        raise ScopilError(
            f"no way to the hole from ({x:.1f}, {y:.1f}) within {care.max_steps} steps at clearance "
            f"{care.clearance} px; lower the clearance or move the constraints apart."
        )
    actions, slot = [int(found.best_action)], int(found.best_parent)
    for level in range(int(found.best_level) - 1, -1, -1):
        actions.append(int(found.action[level, slot]))
        slot = int(found.parent[level, slot])
    return np.array(actions[::-1])


@jax.jit
def _search(planner: TrayPlanner, start: MarbleState) -> _Beam:
    width, levels = planner.care.beam, planner.care.max_steps
    state = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (width, *leaf.shape)), start)
    paid = jnp.full(width, jnp.inf).at[0].set(0.0)
    trail = jnp.zeros((levels, width), jnp.int32)
    zero = jnp.int32(0)
    beam = _Beam(state, paid, paid, zero, trail, trail, jnp.array(jnp.inf), zero, zero, zero)

    def hopeful(beam: _Beam) -> Bool[Array, ""]:
        return (beam.level < levels) & (beam.guess.min() < beam.best + PATIENCE)

    return jax.lax.while_loop(hopeful, partial(_deepen, planner), beam)


def _deepen(planner: TrayPlanner, beam: _Beam) -> _Beam:
    """Extend every plan in the beam by every action and keep the plans with the lowest estimates, one per cell."""
    width, actions = planner.care.beam, jnp.arange(len(ACTIONS))
    over_actions = jax.vmap(partial(_try, planner), in_axes=(None, None, 0))
    state, paid, guess, fallen = jax.vmap(over_actions, in_axes=(0, 0, None))(beam.state, beam.paid, actions)
    state, paid, guess, fallen = jax.tree.map(
        lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (state, paid, guess, fallen)
    )

    done = jnp.where(fallen, paid, jnp.inf)
    first = jnp.argmin(done)
    better = done[first] < beam.best
    best, parent, action, level = (
        jnp.where(better, new, old)
        for new, old in (
            (done[first], beam.best),
            (first // len(ACTIONS), beam.best_parent),
            (first % len(ACTIONS), beam.best_action),
            (beam.level, beam.best_level),
        )
    )

    kept = _most_promising(state, jnp.where(fallen, jnp.inf, guess), width)
    open_guess = jnp.where(fallen, jnp.inf, guess)[kept]
    return _Beam(
        state=jax.tree.map(lambda leaf: leaf[kept], state),
        paid=jnp.where(jnp.isfinite(open_guess), paid[kept], jnp.inf),
        guess=open_guess,
        level=beam.level + 1,
        parent=beam.parent.at[beam.level].set((kept // len(ACTIONS)).astype(jnp.int32)),
        action=beam.action.at[beam.level].set((kept % len(ACTIONS)).astype(jnp.int32)),
        best=best,
        best_parent=parent.astype(jnp.int32),
        best_action=action.astype(jnp.int32),
        best_level=level,
    )


def _most_promising(state: MarbleState, guess: Float[Array, " M"], width: int) -> Int[Array, " W"]:
    """Indices of the `width` lowest guesses, with at most one from each cell of the state space."""
    # The tilt needs no rounding: between steps it is −5, 0 or 5 on each axis.
    parts = (jnp.floor(state.position / CELL_POSITION), jnp.round(state.velocity / CELL_VELOCITY), state.tilt)
    cell = jnp.zeros(len(guess), jnp.int32)
    for part in parts:
        for axis in (0, 1):
            cell = cell * 199 + part[:, axis].astype(jnp.int32)  # the hash may overflow
    # A scatter into a hash table is faster than a sort. A collision is rare and drops one candidate.
    slot = cell.astype(jnp.uint32) * jnp.uint32(2654435769) >> (32 - TABLE_BITS)
    lowest = jnp.full(2**TABLE_BITS, jnp.inf).at[slot].min(guess)[slot]
    index = jnp.where(guess == lowest, jnp.arange(len(guess)), len(guess))
    winner = jnp.full(2**TABLE_BITS, len(guess)).at[slot].min(index)[slot]
    return jax.lax.top_k(-jnp.where(winner == jnp.arange(len(guess)), guess, jnp.inf), width)[1]


def _try(
    planner: TrayPlanner, state: MarbleState, paid: Float[Array, ""], action: Int[Array, ""]
) -> tuple[MarbleState, Float[Array, ""], Float[Array, ""], Bool[Array, ""]]:
    """Apply one action. Returns the next state, the cost so far (∞ if not allowed), the guess, and if the ball fell."""
    care = planner.care
    after = physics.step(state, action, planner.hole)
    away = margins(planner.constraints, after.position)
    allowed = jnp.all(away >= jnp.clip(margins(planner.constraints, state.position), 0.0, care.clearance))
    # At full tilt, holding and releasing the key have the same effect. Only holding is allowed: actions are unique.
    turn = jnp.asarray(ACTIONS)[action]
    allowed &= ~jnp.any((jnp.abs(state.tilt) == MAX_TICKS) & (turn == 0))

    fallen = physics.in_hole(after.position, planner.hole)
    speed = jnp.sqrt(jnp.sum(after.velocity**2))
    left = physics.hole_distance(state.position, planner.hole) - HOLE_RADIUS
    # The last step costs only the fraction before the ball falls. A full step would reward slightly faster plans.
    share = jnp.where(fallen, jnp.clip(left / (physics.UPDATES_PER_STEP * speed + 1e-6), 0.0, 1.0), 1.0)
    step_cost = 1.0 + _nearness(care, away) + care.speed_cost * jnp.maximum(speed / care.speed - 1.0, 0.0) ** 2
    tilted = jnp.sum(jnp.abs(after.tilt)) / MAX_TICKS
    turned = jnp.sum(jnp.abs(after.tilt - state.tilt)) / MAX_TICKS
    paid = paid + share * step_cost + care.tilt_cost * tilted + care.turn_cost * turned
    paid += jnp.where(fallen, care.graze_cost * _miss(after, planner.hole) ** 2, 0.0)
    paid = jnp.where(allowed, paid, jnp.inf)
    return after, paid, paid + _to_go(planner, after), fallen


def _to_go(planner: TrayPlanner, state: MarbleState) -> Float[Array, ""]:
    """Estimated steps to the hole, (D + |v − u|² / 2a) / |u|, where |v − u|² / 2a accounts for reaching velocity u."""
    distance = look_up(planner.route.distance, state.position)
    ahead = -look_up(planner.route.slope, state.position)
    cruise = planner.care.speed
    lost = jnp.sum((state.velocity - cruise * ahead) ** 2) / (2 * ACCELERATION)
    return (distance + lost) / (cruise * physics.UPDATES_PER_STEP)


def _miss(state: MarbleState, hole: Float[Array, "2"]) -> Float[Array, ""]:
    """Distance of the ball's line of motion from the hole's centre, as a fraction of the hole's radius."""
    to_hole, v = hole - state.position, state.velocity
    across = jnp.abs(to_hole[0] * v[1] - to_hole[1] * v[0])
    return across / (jnp.sqrt(jnp.sum(v**2)) + 1e-6) / HOLE_RADIUS


def margins(constraints: tuple[Constraint, ...], position: Float[Array, "2"]) -> Float[Array, " C"]:
    """Signed distances in px to every constraint, negative inside."""
    return jnp.stack([jnp.asarray(c.margin(position)) for c in constraints])


def _nearness(care: Care, away: Float[Array, " C"]) -> Float[Array, ""]:
    return care.near_cost * jnp.sum(jnp.clip(1.0 - away / care.comfort, 0.0, 1.0) ** 2)


# --- distance to the hole ---


class Route(NamedTuple):
    """Distance D to the hole and its normalised gradient on a grid over the tray."""

    distance: Float[Array, "n n"]  # weighted px; the first index is x
    slope: Float[Array, "n n 2"]  # ∇D / |∇D|


def find_route(weight: Callable[[Float[Array, "2"]], Float[Array, ""]], hole: tuple[float, float]) -> Route:
    """Solve the eikonal equation |∇D| = w on a grid over the tray, by Jacobi sweeps of the upwind scheme. The weight w
    is 1 far from constraints and larger near them, so the shortest path keeps away from constraints."""
    axis = np.linspace(-REACH, REACH, int(np.ceil(2 * REACH / SPACING)) + 1)
    x, y = np.meshgrid(axis, axis, indexing="ij")
    points = jnp.asarray(np.stack([x, y], -1), jnp.float32)
    w = np.asarray(jax.jit(jax.vmap(jax.vmap(weight)))(points), np.float64)
    spacing = axis[1] - axis[0]
    away = np.hypot(x - hole[0], y - hole[1])
    near = away <= HOLE_RADIUS
    distance = np.where(near, away, np.inf)
    for _ in range(SWEEPS):
        wide = np.pad(distance, 1, constant_values=np.inf)
        a = np.minimum(wide[:-2, 1:-1], wide[2:, 1:-1])
        b = np.minimum(wide[1:-1, :-2], wide[1:-1, 2:])
        new = np.where(near, distance, np.minimum(distance, _upwind(a, b, w * spacing)))
        if np.array_equal(new, distance):
            break
        distance = new
    slope = np.stack([np.gradient(distance, spacing, axis=k) for k in (0, 1)], -1)
    slope /= np.maximum(np.linalg.norm(slope, axis=-1, keepdims=True), 1e-6)
    return Route(jnp.asarray(distance, jnp.float32), jnp.asarray(slope, jnp.float32))


def _upwind(a: np.ndarray, b: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Solve for D: (D−a)₊² + (D−b)₊² = step², with the smaller neighbours a (along x) and b (along y)."""
    low, high = np.minimum(a, b), np.maximum(a, b)
    gap = np.where(np.isfinite(high), high, 0.0) - np.where(np.isfinite(low), low, 0.0)
    both = np.isfinite(high) & (gap < step)
    root = np.sqrt(np.maximum(2 * step**2 - gap**2, 0.0))
    return np.where(both, (np.where(both, low + high, 0.0) + root) / 2, low + step)


def look_up(table: Float[Array, "n n *rest"], position: Float[Array, "2"]) -> Float[Array, "*rest"]:
    """Bilinear interpolation of a grid table."""
    last = table.shape[0] - 1
    at = (position + REACH) * (last / (2 * REACH))
    i, j = jnp.clip(at.astype(jnp.int32), 0, last - 1)
    s, t = at - jnp.stack([i, j])
    below = (1 - t) * table[i, j] + t * table[i, j + 1]
    above = (1 - t) * table[i + 1, j] + t * table[i + 1, j + 1]
    return (1 - s) * below + s * above


# --- sides of a circle ---


def passing_side(positions: np.ndarray, circle: Circle, hole: tuple[float, float]) -> str:
    """The side of the circle on which an episode with positions (T+1, 2) in px passes it.

    θ_t is the angle of the ball about the circle's centre, and each Δθ lies in [−π, π). The episode passes left if
    it turns counter-clockwise from start to hole (Σ Δθ > 0), otherwise right. If the hole is to the lower left of
    the circle, left is the circle's upper-left side and right is its lower-right side.
    """
    path = np.vstack([np.asarray(positions, np.float64), hole])
    theta = np.arctan2(path[:, 1] - float(circle.y), path[:, 0] - float(circle.x))
    turn = (np.diff(theta) + np.pi) % (2 * np.pi) - np.pi
    return "left" if turn.sum() > 0 else "right"


class Wedge(Constraint):
    """Forbids an infinite wedge. Only the planner uses this constraint, to close one side of a circle."""

    rule: ClassVar[str] = "wedge"
    x: float | Array  # apex
    y: float | Array
    direction: float | Array  # of the wedge's axis, rad
    half_angle: float | Array = HALF_ANGLE  # rad, below π/2

    def margin(self, position: Float[Array, "2"]) -> Float[Array, ""]:
        dx, dy = position[0] - self.x, position[1] - self.y
        along = dx * jnp.cos(self.direction) + dy * jnp.sin(self.direction)
        across = jnp.abs(dy * jnp.cos(self.direction) - dx * jnp.sin(self.direction))
        flank = across * jnp.cos(self.half_angle) - along * jnp.sin(self.half_angle)
        behind = along * jnp.cos(self.half_angle) + across * jnp.sin(self.half_angle) < 0
        return jnp.where(behind, jnp.hypot(dx, dy), flank)


def closed_to(side: str, circle: Circle, hole: tuple[float, float]) -> Wedge:
    """A wedge that leaves only `side` open. Its axis is perpendicular to the line from the circle to the hole."""
    to_hole = np.arctan2(hole[1] - float(circle.y), hole[0] - float(circle.x))
    return Wedge(circle.x, circle.y, float(to_hole + (np.pi / 2 if side == "left" else -np.pi / 2)))
