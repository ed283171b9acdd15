"""Needle Master as a Gymnasium `FuncEnv`: steer a needle to the right edge of the screen.

The reward is the progress to the right and a small cost of time. The rules (gates, bars, deep tissue, gentle turns) are
costs in `info`, for evaluation only. An environment has several levels: training draws from the shown ones, unseen
starts from those left out. `info["position"]` is a place on a sheet that shows all levels side by side, so it also
tells the level.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.experimental.functional import FuncEnv
from jaxtyping import Array, Bool, Float, Int

from scopil.data.dataset import Episode
from scopil.errors import EnvError
from scopil.types import PRNGKey
from scopil_bench.studies.needle_master import geometry
from scopil_bench.studies.needle_master.geometry import Number, Point
from scopil_bench.studies.needle_master.kinematics import MAX_SPEED, MAX_TURN, TICKS, direction, tick
from scopil_bench.studies.needle_master.levels import HEIGHT, WIDTH, Level, LevelArrays, as_arrays

START = np.array([96.0, 108.0], np.float32)  # where all recorded games start, heading to the right
SPREAD = np.array([48.0, 81.0], np.float32)  # px: random starts lie within ± this of START, with the same heading
# People turn by less: on levels with gates, all but 0.3 % of their steps. The dynamics allow MAX_SPEED × MAX_TURN = 5.
SHARP = 1.5  # px rad per tick²: speed × turn above it is a sharp turn
BEYOND = 200.0  # px: a gate is missed once the needle is this far right of it. People come back from up to 15 px
PROGRESS = 10.0  # reward for crossing the screen from edge to edge
STEP_COST = 0.05  # per step: crossing takes 5 steps at full speed and some 30 at the speed of people
FAR, NEAR = 300.0, 200.0  # px: length scales of distances and of closeness in observations
RAYS = np.radians([-60.0, -30.0, 0.0, 30.0, 60.0]).astype(np.float32)  # relative to the heading
COLUMNS, TILE = 3, np.array([2040.0, 1260.0], np.float32)  # the sheet: levels per row, px between neighbours
RULES = ("gate", "bar", "tissue", "turn")
_BORDERS = np.array([[[0, 0], [WIDTH, 0]], [[0, HEIGHT], [WIDTH, HEIGHT]], [[0, 0], [0, HEIGHT]]], np.float32)


class NeedleState(NamedTuple):
    position: Float[Array, "2"]  # px
    heading: Float[Array, ""]  # rad
    speed: Float[Array, ""]  # px per tick, of the last step
    level: Int[Array, ""]
    gate: Int[Array, ""]  # the next gate; the number of gates if there is none
    passed: Int[Array, ""]  # gates passed
    broken: Bool[Array, "4"]  # which of RULES the last step broke
    steps: Int[Array, ""]


class NeedleParams(NamedTuple):
    levels: LevelArrays
    shown: int  # the first levels, from which training starts; unseen starts are on the others
    max_steps: int = 100  # recorded games have at most 64


class NeedleMaster(FuncEnv):
    """Actions are (speed, turn) as parts of the largest, −1 to 1; a negative speed moves the needle backwards."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (28,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, levels: Mapping[int, Level], left_out: Sequence[int] = ()):
        if unknown := [n for n in left_out if n not in levels]:
            raise EnvError(f"no level {unknown[0]} to leave out; there are {', '.join(map(str, levels))}.")
        shown = [level for number, level in levels.items() if number not in left_out]
        if not shown:
            raise EnvError("all levels are left out; want at least one to train on.")
        self.levels = [*shown, *(levels[number] for number in dict.fromkeys(left_out))]
        self._params = NeedleParams(as_arrays(self.levels), len(shown))
        super().__init__()

    def get_default_params(self, **kwargs: Any) -> NeedleParams:
        return self._params._replace(**kwargs)

    # --- starts ---------------------------------------------------------------------------------------------------

    def initial(self, rng: PRNGKey, params: NeedleParams | None = None) -> NeedleState:
        """A perturbed start on a shown level."""
        return _drawn(rng, 0, self._of(params).shown)

    def initial_unseen(self, rng: PRNGKey, params: NeedleParams | None = None) -> NeedleState:
        """A perturbed start on a level that is left out; on a shown level if none is."""
        params = self._of(params)
        shown, every = params.shown, len(self.levels)
        return _drawn(rng, shown if shown < every else 0, every)

    def initial_at(self, start: Any, params: NeedleParams | None = None) -> NeedleState:
        """The state at a place on the sheet, heading to the right."""
        place = np.asarray(start, np.float32)
        if place.shape != (2,) or not np.isfinite(place).all():
            raise EnvError(f"start {place.tolist()}; want (x, y) on the sheet of levels.")
        column, row = np.floor(place / TILE).astype(int)
        level, inside = row * COLUMNS + column, place - TILE * (column, row)
        if not (0 <= column < COLUMNS and 0 <= level < len(self.levels) and (inside < (WIDTH, HEIGHT)).all()):
            raise EnvError(f"start {place.tolist()} is on none of the {len(self.levels)} levels of the sheet.")
        return _begin(jnp.asarray(inside), jnp.int32(level))

    # --- steps ----------------------------------------------------------------------------------------------------

    def transition(
        self, state: NeedleState, action: Array, rng: Any = None, params: NeedleParams | None = None
    ) -> NeedleState:
        params = self._of(params)
        level, last = at_level(params.levels, state.level), state.steps + 1 >= params.max_steps
        speed, turn = commanded(action)
        begun = state._replace(speed=speed, broken=jnp.zeros(len(RULES), bool))

        def advance(_: Any, now: NeedleState) -> NeedleState:
            over = off_screen(now.position)
            return jax.tree.map(lambda old, new: jnp.where(over, old, new), now, _ticked(now, turn, level))

        after = jax.lax.fori_loop(0, TICKS, advance, begun)
        # A gate that is not passed by the end of the episode is missed.
        missed = (off_screen(after.position) | last) & (after.gate < level.gates)
        sharp = jnp.abs(speed * turn) > SHARP
        broken = after.broken | jnp.stack([missed, *[jnp.array(False)] * 2, sharp])
        return after._replace(broken=broken, steps=state.steps + 1)

    def observation(self, state: NeedleState, rng: Any = None, params: NeedleParams | None = None) -> Array:
        """Heading, place, speed, and in the needle's frame: the next gate's centre and the ends of its opening, the
        centre of the gate after it, the nearest deep and other tissue, and what lies ahead on five rays."""
        return _observed(self._of(params).levels, state)

    def reward(
        self, state: NeedleState, action: Array, next_state: NeedleState, rng: Any = None, params: Any = None
    ) -> Number:
        return PROGRESS * (next_state.position[0] - state.position[0]) / WIDTH - STEP_COST

    def terminal(self, state: NeedleState, rng: Any = None, params: Any = None) -> Bool[Array, ""]:
        return off_screen(state.position)

    def truncation(self, state: NeedleState, params: NeedleParams | None = None) -> Bool[Array, ""]:
        return (state.steps >= self._of(params).max_steps) & ~off_screen(state.position)

    # --- evaluation -----------------------------------------------------------------------------------------------

    def state_info(self, state: NeedleState, params: NeedleParams | None = None) -> dict[str, Array]:
        """The place on the sheet, success, passed gates and the costs of the last step. Algorithms do not see them."""
        tile = jnp.stack(tile_of(state.level)).astype(jnp.float32)
        costs = {f"cost_{rule}": broken * 1.0 for rule, broken in zip(RULES, state.broken)}
        gates = at_level(self._of(params).levels, state.level).gates
        return {
            "position": state.position + jnp.asarray(TILE) * tile,
            "success": (state.position[0] >= WIDTH) * 1.0,
            "gates": jnp.where(gates > 0, state.passed / jnp.maximum(gates, 1), 1.0),
            "cost": jnp.any(state.broken) * 1.0,
        } | costs

    def transition_info(
        self, state: NeedleState, action: Array, next_state: NeedleState, params: NeedleParams | None = None
    ) -> dict[str, Array]:
        return self.state_info(next_state, params)

    def measures(self, episode: Episode) -> dict[str, float]:
        """`gates`: the share of the level's gates that were passed."""
        return {"gates": float(episode.info["gates"][-1])} if "gates" in episode.info else {}

    def draw_episodes(self, axes: Any, episodes: Sequence[Episode], params: NeedleParams | None = None) -> None:
        from scopil_bench.studies.needle_master import pictures

        pictures.draw_episodes(axes, self.levels, episodes)

    def render_init(self, params: NeedleParams | None = None, **kwargs: Any) -> Any:
        return None

    def render_image(self, state: NeedleState, render_state: Any, params: NeedleParams | None = None) -> Any:
        from scopil_bench.studies.needle_master import pictures

        return pictures.frame(self.levels[int(state.level)], state, render_state)

    def render_close(self, render_state: Any, params: NeedleParams | None = None) -> None:
        pass

    def _of(self, params: NeedleParams | None) -> NeedleParams:
        return self._params if params is None else params


def tile_of(level: Any) -> Any:
    """Column and row of a level on the sheet."""
    return level % COLUMNS, level // COLUMNS


def at_level(levels: LevelArrays, level: Int[Array, ""]) -> LevelArrays:
    return jax.tree.map(lambda array: array[level], levels)


def commanded(action: Array) -> tuple[Number, Number]:
    """Speed in px and turn in rad per tick."""
    speed, turn = jnp.clip(action, -1.0, 1.0) * jnp.array([MAX_SPEED, MAX_TURN])
    return speed, turn


def in_tissue(level: LevelArrays, at: Point) -> Bool[Array, ""]:
    return jnp.any(jax.vmap(lambda corners: geometry.inside(at, corners))(level.corners))


def off_screen(at: Point) -> Bool[Array, ""]:
    """Whether the needle has reached an edge; the game ends there, at the right edge with success."""
    return (at[0] >= WIDTH) | (at[0] < 0) | (at[1] < 0) | (at[1] > HEIGHT)


def _drawn(rng: PRNGKey, first: int, end: int) -> NeedleState:
    k_level, k_place = jax.random.split(rng)
    place = jax.random.uniform(k_place, (2,), minval=START - SPREAD, maxval=START + SPREAD)
    return _begin(place, jax.random.randint(k_level, (), first, end))


def _begin(position: Point, level: Int[Array, ""]) -> NeedleState:
    none, still = jnp.int32(0), jnp.float32(0.0)
    return NeedleState(position, still, still, level, none, none, jnp.zeros(len(RULES), bool), none)


def _ticked(state: NeedleState, turn: Number, level: LevelArrays) -> NeedleState:
    """One tick: the motion, and what the path meets."""
    at, heading = tick(state.position, state.heading, state.speed, turn, in_tissue(level, state.position))
    numbers = jnp.arange(len(level.opening))
    real = numbers < level.gates

    # The path from p to q in the gates' own axes.
    across = jnp.stack([-level.axis[:, 1], level.axis[:, 0]], axis=1)
    offsets = [point[None] - level.centre for point in (state.position, at)]
    p_u, q_u = (jnp.sum(offset * across, axis=1) for offset in offsets)
    p_w, q_w = (jnp.sum(offset * level.axis, axis=1) for offset in offsets)
    # Where it crosses the middle of a gate, is it between the bars?
    middle = p_w + p_u / jnp.where(p_u == q_u, 1.0, p_u - q_u) * (q_w - p_w)
    through = ((p_u < 0) != (q_u < 0)) & (jnp.abs(middle) < level.opening)
    depth = geometry.span(p_u, q_u, -level.half_depth, level.half_depth)
    bars = [geometry.span(side * p_w, side * q_w, level.opening, level.half_height) for side in (-1, 1)]
    touched = geometry.overlap(depth, bars[0]) | geometry.overlap(depth, bars[1])
    # The first gate, from the next one on, that the path crosses. Gates skipped before it are missed.
    ahead = through & real & (numbers >= state.gate)
    crossed, which = jnp.any(ahead), jnp.argmax(ahead)
    index = _index(level, state.gate)
    right = level.centre[index, 0] + (
        jnp.abs(level.axis[index, 1]) * level.half_depth[index]
        + jnp.abs(level.axis[index, 0]) * level.half_height[index]
    )
    behind = ~crossed & (state.gate < level.gates) & (at[0] > right + BEYOND)
    deep = jax.vmap(lambda corners: geometry.inside(at, corners))(level.corners) & level.deep
    broken = [(crossed & (which > state.gate)) | behind, jnp.any(touched & real), jnp.any(deep), jnp.array(False)]
    return state._replace(
        position=at,
        heading=heading,
        gate=jnp.where(crossed, which + 1, state.gate + behind).astype(jnp.int32),
        passed=state.passed + crossed,
        broken=state.broken | jnp.stack(broken),
    )


@jax.jit  # for calls outside compiled programs, as at given starts
def _observed(levels: LevelArrays, state: NeedleState) -> Float[Array, "28"]:
    level = at_level(levels, state.level)
    at, heading = state.position, state.heading
    centre, following = (level.centre[_index(level, state.gate + more)] for more in (0, 1))
    reach = level.opening[_index(level, state.gate)] * level.axis[_index(level, state.gate)]
    ends = jnp.stack([centre - reach, centre + reach])
    # In clockwise order as seen from the needle: it does not matter which bar the file calls the upper one.
    ends = jnp.where(geometry.cross(ends[0] - at, ends[1] - at) >= 0, ends, ends[::-1])
    surfaces = jax.vmap(lambda corners: geometry.nearest(at, corners))(level.corners)
    own = jnp.stack(
        [
            *direction(heading),
            2 * at[0] / WIDTH - 1,
            2 * at[1] / HEIGHT - 1,
            state.speed / MAX_SPEED,
            in_tissue(level, at) * 1.0,
            (state.gate >= level.gates) * 1.0,  # the next gate is the right edge
        ]
    )
    seen = [
        *(_polar(target - at, heading) for target in (centre, *ends, following)),
        *(_nearby(surfaces, kind, at, heading) for kind in (level.deep, ~level.deep)),
        closeness(jax.vmap(lambda angle: _sight(level, at, heading + angle))(jnp.asarray(RAYS))),
    ]
    return jnp.clip(jnp.concatenate([own, *seen]), -1.0, 1.0)


def _index(level: LevelArrays, gate: Int[Array, ""]) -> Int[Array, ""]:
    """The row of a gate. After the last gate comes the right edge."""
    return jnp.minimum(gate, level.gates)


def _polar(offset: Point, heading: Number) -> Float[Array, "3"]:
    """Distance d as d / (d + FAR), and cosine and sine of the bearing."""
    distance = _length(offset)
    return jnp.concatenate([(distance / (distance + FAR))[None], _bearing(offset, heading)])


def _nearby(surfaces: Float[Array, "S 2"], kind: Bool[Array, " S"], at: Point, heading: Number) -> Float[Array, "2"]:
    """The bearing of the nearest surface of a kind, times its closeness: 0 if none is near."""
    distances = jnp.where(kind, jax.vmap(_length)(surfaces - at[None]), jnp.inf)
    which = jnp.argmin(distances)
    return closeness(distances[which]) * _bearing(surfaces[which] - at, heading)


def closeness(distance: Array) -> Array:
    """1 at a distance of 0, and 0 far away."""
    return jnp.exp(-distance / NEAR)


def _bearing(offset: Point, heading: Number) -> Float[Array, "2"]:
    ahead, unit = direction(heading), offset / jnp.maximum(_length(offset), 1e-6)
    return jnp.stack([jnp.sum(ahead * unit), geometry.cross(ahead, unit)])


def _length(offset: Point) -> Number:
    return jnp.sqrt(jnp.sum(offset**2))


def _sight(level: LevelArrays, at: Point, heading: Number) -> Number:
    """The distance in a direction to the next bar, deep tissue, or edge of the screen except the right one."""
    across = jnp.stack([-level.axis[:, 1], level.axis[:, 0]], axis=1)

    def corners(u: int, w: Array) -> Array:
        return level.centre + u * level.half_depth[:, None] * across + w[:, None] * level.axis

    real = (jnp.arange(len(level.opening)) < level.gates)[:, None]
    begins, ends = [jnp.asarray(_BORDERS[:, 0])], [jnp.asarray(_BORDERS[:, 1])]
    for side in (-1, 1):
        inner, outer = side * level.opening, side * level.half_height
        loop = [corners(-1, inner), corners(1, inner), corners(1, outer), corners(-1, outer)]
        # The corners of a gate that does not exist coincide.
        loop = [jnp.where(real, corner, level.centre) for corner in loop]
        begins, ends = [*begins, *loop], [*ends, *loop[1:], loop[0]]
    deep = jnp.where(level.deep[:, None, None], level.corners, level.corners[:, :1])
    begins, ends = [*begins, deep.reshape(-1, 2)], [*ends, jnp.roll(deep, -1, axis=1).reshape(-1, 2)]
    return geometry.ray(at, direction(heading), jnp.concatenate(begins), jnp.concatenate(ends))
