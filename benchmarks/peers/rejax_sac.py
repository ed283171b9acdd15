"""rejax's discrete SAC at the same sizes, on Marble Maze written as a gymnax environment.

SAC, not SCOPIL: no demonstrations, so two forward and one backward pass of the policy less than ours. Only its
training iterations are compiled and timed: no evaluation. The size of its replay is an argument because its time grows
with it (we suspect a copy of the buffer in its `lax.cond`, but have not looked): speed.py takes a small one and ours.
"""

import os
import sys

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

from functools import partial
from importlib.metadata import version

import jax
import jax.numpy as jnp
from flax import struct
from gymnax.environments import environment, spaces
from protocol import ACTIONS, BATCH, HIDDEN, OBS, serve
from rejax import SAC

CELL = 43.615993
REACH = 4 * CELL
HOLE = -144.0
TURNS = jnp.array([(x, y) for x in (0, 1, -1) for y in (0, 1, -1)])


@struct.dataclass
class State(environment.EnvState):
    ball: jax.Array
    speed: jax.Array
    tilt: jax.Array
    turning: jax.Array
    time: int


@struct.dataclass
class Params(environment.EnvParams):
    max_steps_in_episode: int = 200


class Marble(environment.Environment):
    """Starts are uniform over the whole tray: gymnax draws one at every step, and a rejection loop would be slow."""

    @property
    def default_params(self) -> Params:
        return Params()

    def reset_env(self, key, params):
        still = jnp.zeros(2, jnp.int32)
        ball = jax.random.uniform(key, (2,), minval=-REACH, maxval=REACH)
        state = State(ball=ball, speed=jnp.zeros(2), tilt=still, turning=still, time=0)
        return self.get_obs(state), state

    def step_env(self, key, state, action, params):
        turn, moved = TURNS[action], state
        for _ in range(5):
            tilt = jnp.clip(moved.tilt + turn, -5, 5)
            speed = moved.speed + 0.015 * jnp.stack([-tilt[1], tilt[0]])
            hits = jnp.abs(moved.ball + speed) > REACH
            speed = jnp.where(hits, jnp.where(jnp.abs(speed) < 0.1, 0.0, -0.3 * speed), speed)
            after = moved.replace(
                ball=moved.ball + speed, speed=speed, tilt=tilt, turning=jnp.where(jnp.abs(tilt) == 5, 0, turn)
            )
            fallen = self._away(moved) <= CELL / 3
            moved = jax.tree.map(lambda old, new, fallen=fallen: jnp.where(fallen, old, new), moved, after)
        state = moved.replace(time=state.time + 1)
        away = self._away(state)
        won, late = away <= CELL / 3, state.time >= params.max_steps_in_episode
        raw = jnp.where(won, 10.0, jnp.where(late, -5.0, -away / jnp.hypot(REACH - HOLE, REACH - HOLE)))
        return self.get_obs(state), state, (raw - 10.0) / 15.0, won | late, {}

    def _away(self, state):
        return jnp.sqrt(jnp.sum((state.ball - HOLE) ** 2))

    def get_obs(self, state, params=None, key=None):
        speed = jnp.clip(state.speed / 6.0, -1.0, 1.0)
        return jnp.concatenate([state.ball / REACH, speed, state.tilt / 5, state.turning * 1.0])

    @property
    def num_actions(self) -> int:
        return ACTIONS

    def action_space(self, params=None):
        return spaces.Discrete(ACTIONS)

    def observation_space(self, params):
        return spaces.Box(-1.0, 1.0, (OBS,), jnp.float32)

    def state_space(self, params):
        raise NotImplementedError


def main(replay: int) -> None:
    algo = SAC.create(
        env=Marble(),
        agent_kwargs={"hidden_layer_sizes": HIDDEN},
        num_envs=1,
        num_epochs=1,
        batch_size=BATCH,
        buffer_size=replay,
        fill_buffer=BATCH,
        learning_rate=3e-4,
    )

    @partial(jax.jit, donate_argnums=0)
    def iterate(state, count):
        return jax.lax.fori_loop(0, count, lambda _, s: algo.train_iteration(s), state)

    state = jax.jit(algo.init_state)(jax.random.PRNGKey(0))

    def run(count: int) -> None:
        nonlocal state
        state = jax.block_until_ready(iterate(state, jnp.int32(count)))

    run(BATCH + 1)  # fills its buffer; from here on every iteration learns
    serve(run, rejax=version("rejax"), gymnax=version("gymnax"), jax=jax.__version__, replay=replay)


if __name__ == "__main__":
    main(int(sys.argv[1]))
