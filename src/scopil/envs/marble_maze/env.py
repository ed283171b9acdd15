"""Marble Maze as a Gymnasium `FuncEnv`: pure functions of (state, action, key, params)."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.experimental.functional import FuncEnv
from jaxtyping import Array, Bool, Float, Int

from scopil.data.dataset import Episode
from scopil.envs.marble_maze import physics, render
from scopil.envs.marble_maze.constraints import SETTINGS, SIMPLE, MarbleParams, costs, min_margin
from scopil.envs.marble_maze.physics import REACH, MarbleState
from scopil.errors import EnvError
from scopil.types import PRNGKey

Params = MarbleParams | None  # None: the parameters given to the constructor
Action = Int[Array, ""]
MAX_SPEED = 6.0  # px per update; only observations are clipped to it
MAX_REWARD, TIMEOUT_REWARD = 10.0, -5.0


class MarbleMaze(FuncEnv):
    """Tilt the tray until the ball drops into the hole, as fast as possible. The reward depends on the time-out, so the
    state includes the elapsed time."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (8,), np.float32)
    action_space = gym.spaces.Discrete(len(physics.ACTIONS))

    def __init__(self, params: MarbleParams = SIMPLE):
        if not any(params is known for known in SETTINGS.values()):
            _refuse_without_start(params)
        self._params = params
        super().__init__()

    def get_default_params(self, **kwargs: Any) -> MarbleParams:
        return self._params._replace(**kwargs)

    def initial(self, rng: PRNGKey, params: Params = None) -> MarbleState:
        """The ball at rest on a level tray. Its position is uniform over allowed positions far enough from the hole."""
        params = self._of(params)

        def draw(carry):
            key, _ = carry
            key, k_position = jax.random.split(key)
            return key, jax.random.uniform(k_position, (2,), minval=-REACH, maxval=REACH)

        def unfit(carry):
            position = carry[1]
            near = physics.hole_distance(position, jnp.array(params.hole)) < params.start_distance
            return near | (min_margin(params.constraints, position) < 0)

        _, position = jax.lax.while_loop(unfit, draw, draw((rng, None)))
        return at_rest(position)

    def initial_at(self, start: Any, params: Params = None) -> MarbleState:
        """The initial state at a given (x, y), allowed or not."""
        start = np.asarray(start, np.float32)
        if start.shape != (2,) or not np.all(np.abs(start) <= np.float32(REACH)):
            raise EnvError(f"start {start.tolist()} is not on the tray: want (x, y) within ±{REACH:.3f} px.")
        if physics.in_hole(jnp.asarray(start), jnp.array(self._of(params).hole)):
            raise EnvError(f"start {start.tolist()} is already in the hole; move it further away.")
        return at_rest(jnp.asarray(start))

    def transition(self, state: MarbleState, action: Action, rng: Any = None, params: Params = None) -> MarbleState:
        return physics.step(state, action, jnp.array(self._of(params).hole))

    def observation(self, state: MarbleState, rng: Any = None, params: Params = None) -> Float[Array, "8"]:
        """[b_x, b_y, v_x, v_y, r_x, r_y, rv_x, rv_y], each min–max normalised to [−1, 1]."""
        velocity = jnp.clip(state.velocity / MAX_SPEED, -1.0, 1.0)
        tilt = state.tilt / physics.MAX_TICKS
        return jnp.concatenate([state.position / REACH, velocity, tilt, state.tilt_velocity * 1.0])

    def raw_reward(self, next_state: MarbleState, params: Params = None) -> Float[Array, ""]:
        """+10 in the hole, −5 on time-out, otherwise minus the distance to the hole divided by the largest distance."""
        hole = jnp.array(self._of(params).hole)
        farthest = jnp.sqrt(jnp.sum((REACH + jnp.abs(hole)) ** 2))
        away = -physics.hole_distance(next_state.position, hole) / farthest
        late = jnp.where(self.truncation(next_state, params), TIMEOUT_REWARD, away)
        return jnp.where(self.terminal(next_state, params=params), MAX_REWARD, late)

    def reward(
        self, state: MarbleState, action: Action, next_state: MarbleState, rng: Any = None, params: Params = None
    ) -> Float[Array, ""]:
        """The raw reward, min–max normalised to [−1, 0]."""
        return (self.raw_reward(next_state, params) - MAX_REWARD) / (MAX_REWARD - TIMEOUT_REWARD)

    def terminal(self, state: MarbleState, rng: Any = None, params: Params = None) -> Bool[Array, ""]:
        return physics.in_hole(state.position, jnp.array(self._of(params).hole))

    def truncation(self, state: MarbleState, params: Params = None) -> Bool[Array, ""]:
        return (state.steps >= self._of(params).max_steps) & ~self.terminal(state, params=params)

    def state_info(self, state: MarbleState, params: Params = None) -> dict[str, Array]:
        """Position in px and the costs of this state, for evaluation only. Algorithms do not see them."""
        return {"position": state.position} | costs(self._of(params).constraints, state.position)

    def transition_info(
        self, state: MarbleState, action: Action, next_state: MarbleState, params: Params = None
    ) -> dict[str, Array]:
        return {"raw_reward": self.raw_reward(next_state, params)} | self.state_info(next_state, params)

    def measures(self, episode: Episode) -> dict[str, float]:
        """`length`: length of the ball's path in px. `reached`: 1.0 if the ball fell into the hole."""
        return {"length": path_length(episode), "reached": float(episode.terminated)}

    def draw_episodes(self, axes: Any, episodes: Sequence[Episode], params: Params = None) -> None:
        from scopil.envs.marble_maze import plots

        plots.draw_episodes(axes, episodes=episodes, params=self._of(params))

    def draw_cost(self, axes: Any, cost_fn: Callable[[Any, Any], Any], params: Params = None) -> Any:
        from scopil.envs.marble_maze import plots

        return plots.draw_grid(axes, plots.cost_grid(cost_fn, self._of(params)), self._of(params))

    def render_init(self, params: Params = None, size: int = render.SIZE, **kwargs: Any) -> render.RenderState:
        return render.begin(self._of(params), size)

    def render_image(
        self, state: MarbleState, render_state: render.RenderState, params: Params = None
    ) -> tuple[render.RenderState, np.ndarray]:
        return render.frame(state, render_state)

    def render_close(self, render_state: render.RenderState, params: Params = None) -> None:
        pass

    def _of(self, params: Params) -> MarbleParams:
        return self._params if params is None else params


def at_rest(position: Float[Array, "2"]) -> MarbleState:
    still = jnp.zeros(2, jnp.int32)
    return MarbleState(position, jnp.zeros(2, jnp.float32), still, still, jnp.int32(0))


def path_length(episode: Episode) -> float:
    """Length in px of the ball's path in an episode."""
    seen = episode.info.get("position", episode.observations[:, :2].astype(np.float64) * REACH)
    moves = np.diff(np.asarray(seen, np.float64), axis=0)
    return float(np.sqrt((moves**2).sum(axis=-1)).sum())


def _refuse_without_start(params: MarbleParams) -> None:
    """Raise EnvError if no point of a 4 px grid is an allowed start, because `initial` would never return."""
    line = np.arange(-REACH, REACH, 4.0, dtype=np.float32)
    positions = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    margins = jax.jit(jax.vmap(lambda p: min_margin(params.constraints, p)))(positions)
    far = np.hypot(*(positions - np.asarray(params.hole, np.float32)).T) >= params.start_distance
    if not np.any(far & (np.asarray(margins) >= 0)):
        far_enough = f"at least {params.start_distance:g} px from the hole"
        raise EnvError(f"no allowed start {far_enough}; make the constraints smaller, or lower start_distance.")
