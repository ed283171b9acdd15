"""The careful planner: a beam search over action sequences on the true simulator.

It pays for every step, for speed above a comfortable one, for coming near a constraint, and for moving the tray; it
never comes nearer to a constraint than its clearance. All of this depends on the state alone, so that it acts alike in
similar states. The search is deterministic.
"""

from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from scopil.envs.marble_maze import physics
from scopil.envs.marble_maze.constraints import Constraint
from scopil.envs.marble_maze.physics import ACTIONS, MAX_TICKS, MarbleState
from scopil.envs.marble_maze.settings import MarbleParams
from scopil.errors import ScopilError
from scopil_bench.marble_maze.route import Route, find_route, look_up

ACCELERATION = 0.06  # px per update², what a tilt that takes time to build up gives on average
CELL_POSITION, CELL_VELOCITY = 2.0, 0.15  # states this close (px, px per update) at equal tilt count as one
TABLE_BITS = 18  # of the table in which such states find each other
PATIENCE = 1.0  # in steps: search on until the best open plan looks this much worse than the best finished


@dataclass(frozen=True, kw_only=True)
class Care:
    """How careful the planner is. Costs are in steps: 1 is the price of one more step."""

    clearance: float | Array  # px to every constraint at every step; an episode that starts nearer moves away first
    speed: float | Array  # px per update it is comfortable with
    comfort: float | Array  # px; nearer to a constraint than this costs
    near_cost: float | Array = 2.0  # per step on a constraint's rim, falling as a square to 0 at `comfort`
    speed_cost: float | Array = 8.0  # per step at twice the comfortable speed, growing as a square
    tilt_cost: float | Array = 0.02  # per step and axis that stands tilted
    turn_cost: float | Array = 0.2  # per axis that goes from level to full tilt or back
    graze_cost: float | Array = 2.0  # for falling in over the very rim, growing as a square from 0 through the middle
    beam: int = 3000
    max_steps: int = 120

    def about(self) -> dict[str, Any]:
        return asdict(self)


# Numbers are data and sizes are structure: planners of different care share one compiled search.
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
    route: Route


class _Beam(NamedTuple):
    state: MarbleState  # (W, …)
    paid: Float[Array, " W"]  # ∞ where the slot is empty
    guess: Float[Array, " W"]  # paid + expected cost to the hole
    level: Int[Array, ""]
    parent: Int[Array, "T W"]
    action: Int[Array, "T W"]
    best: Float[Array, ""]  # the cheapest finished plan: cost, its last parent, action and level
    best_parent: Int[Array, ""]
    best_action: Int[Array, ""]
    best_level: Int[Array, ""]


def make_planner(params: MarbleParams, care: Care, extra: tuple[Constraint, ...] = ()) -> TrayPlanner:
    """`extra` are constraints of the planner alone, to make it take one way and not another."""
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
    """Every plan in the beam, one action longer; keep the most promising that differ."""
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
    """The `width` lowest guesses, at most one from each cell of state space."""
    # The tilt needs no rounding: between steps it is −5, 0 or 5 on either axis.
    parts = (jnp.floor(state.position / CELL_POSITION), jnp.round(state.velocity / CELL_VELOCITY), state.tilt)
    cell = jnp.zeros(len(guess), jnp.int32)
    for part in parts:
        for axis in (0, 1):
            cell = cell * 199 + part[:, axis].astype(jnp.int32)  # a hash: it may overflow
    # Cells share a table (a scatter is quicker than a sort); two that collide now and then do no harm.
    slot = cell.astype(jnp.uint32) * jnp.uint32(2654435769) >> (32 - TABLE_BITS)
    lowest = jnp.full(2**TABLE_BITS, jnp.inf).at[slot].min(guess)[slot]
    index = jnp.where(guess == lowest, jnp.arange(len(guess)), len(guess))
    winner = jnp.full(2**TABLE_BITS, len(guess)).at[slot].min(index)[slot]
    return jax.lax.top_k(-jnp.where(winner == jnp.arange(len(guess)), guess, jnp.inf), width)[1]


def _try(
    planner: TrayPlanner, state: MarbleState, paid: Float[Array, ""], action: Int[Array, ""]
) -> tuple[MarbleState, Float[Array, ""], Float[Array, ""], Bool[Array, ""]]:
    """One action: the state after it, the cost so far (∞ when not allowed), the guess, and whether the ball fell."""
    care = planner.care
    after = physics.step(state, action, planner.hole)
    away = margins(planner.constraints, after.position)
    allowed = jnp.all(away >= jnp.clip(margins(planner.constraints, state.position), 0.0, care.clearance))
    # At full tilt, pressing on and letting go do the same. Press on: one name for one thing.
    turn = jnp.asarray(ACTIONS)[action]
    allowed &= ~jnp.any((jnp.abs(state.tilt) == MAX_TICKS) & (turn == 0))

    fallen = physics.in_hole(after.position, planner.hole)
    speed = jnp.sqrt(jnp.sum(after.velocity**2))
    left = physics.hole_distance(state.position, planner.hole) - physics.HOLE_RADIUS
    # The last step is paid for only until the ball falls, so that no plan hurries to save a whole step.
    share = jnp.where(fallen, jnp.clip(left / (physics.UPDATES_PER_STEP * speed + 1e-6), 0.0, 1.0), 1.0)
    step_cost = 1.0 + _nearness(care, away) + care.speed_cost * jnp.maximum(speed / care.speed - 1.0, 0.0) ** 2
    tilted = jnp.sum(jnp.abs(after.tilt)) / MAX_TICKS
    turned = jnp.sum(jnp.abs(after.tilt - state.tilt)) / MAX_TICKS
    paid = paid + share * step_cost + care.tilt_cost * tilted + care.turn_cost * turned
    paid += jnp.where(fallen, care.graze_cost * _miss(after, planner.hole) ** 2, 0.0)
    paid = jnp.where(allowed, paid, jnp.inf)
    return after, paid, paid + _to_go(planner, after), fallen


def _to_go(planner: TrayPlanner, state: MarbleState) -> Float[Array, ""]:
    """Steps to the hole, (D + |v − u|² / 2a) / |u|: at cruising velocity u, and what is lost until u is reached."""
    distance = look_up(planner.route.distance, state.position)
    ahead = -look_up(planner.route.slope, state.position)
    cruise = planner.care.speed
    lost = jnp.sum((state.velocity - cruise * ahead) ** 2) / (2 * ACCELERATION)
    return (distance + lost) / (cruise * physics.UPDATES_PER_STEP)


def _miss(state: MarbleState, hole: Float[Array, "2"]) -> Float[Array, ""]:
    """How far from the hole's centre the ball's line of motion runs, as a share of the hole's radius."""
    to_hole, v = hole - state.position, state.velocity
    across = jnp.abs(to_hole[0] * v[1] - to_hole[1] * v[0])
    return across / (jnp.sqrt(jnp.sum(v**2)) + 1e-6) / physics.HOLE_RADIUS


def margins(constraints: tuple[Constraint, ...], position: Float[Array, "2"]) -> Float[Array, " C"]:
    """Signed distances in px to every constraint, negative inside."""
    return jnp.stack([jnp.asarray(c.margin(position)) for c in constraints])


def _nearness(care: Care, away: Float[Array, " C"]) -> Float[Array, ""]:
    return care.near_cost * jnp.sum(jnp.clip(1.0 - away / care.comfort, 0.0, 1.0) ** 2)
