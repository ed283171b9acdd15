"""LapGridWorld (Malik et al. 2021): a ring of 40 cells with coins, where laps should be run forwards.

The reward only counts coins, +3 on arriving at cells 5, 15, 25 and 35, so that stepping back and forth over one coin
has the highest return (294 in 200 steps). The unwritten rule is never to step backwards: forward laps have return 60.
With `enforced`, a backward step has reward −1 and terminates the episode; the return under the rule is measured there.
The study trains ICRL, and PPO without demonstrations.
"""

from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.experimental.functional import FuncEnv
from jaxtyping import Array, Bool, Float, Int

from scopil.algos import icrl, ppo
from scopil.data.dataset import Demonstrations
from scopil.envs.as_gym import FunctionalEnv
from scopil.envs.jax_env import CompiledEnv
from scopil.eval.episodes import Mode, play
from scopil.eval.measures import Measures, average, measure_all
from scopil.eval.starts import unseen_starts
from scopil_bench.studies.base import Budget, FinishedRun, Method, Study, Task
from scopil_bench.summaries import Results, Table

CELLS = 40
COINS = (5, 15, 25, 35)
FORWARD, BACKWARD = 0, 1
MAX_STEPS = 200
OBSERVATIONS = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
ACTIONS = gym.spaces.Discrete(2)


class LapParams(NamedTuple):
    """`enforced`: the first backward step terminates an episode."""

    enforced: bool = False
    max_steps: int = MAX_STEPS


DEFAULT = LapParams()


class LapState(NamedTuple):
    cell: Int[Array, ""]
    steps: Int[Array, ""]
    caught: Bool[Array, ""]  # stepped backwards where the rule is enforced


class LapGridWorld(FuncEnv):
    """Two actions, forward and backward; the observation is cell/20 − 1."""

    observation_space = OBSERVATIONS
    action_space = ACTIONS

    def get_default_params(self, **kwargs: Any) -> LapParams:
        return LapParams(**kwargs)

    def initial(self, rng: Any = None, params: LapParams | None = None) -> LapState:
        return LapState(jnp.int32(0), jnp.int32(0), jnp.array(False))

    def transition(
        self, state: LapState, action: Int[Array, ""], rng: Any = None, params: LapParams | None = None
    ) -> LapState:
        caught = (action == BACKWARD) & (params or DEFAULT).enforced
        move = jnp.where(action == FORWARD, 1, -1)
        return LapState(jnp.where(caught, state.cell, (state.cell + move) % CELLS), state.steps + 1, caught)

    def observation(self, state: LapState, rng: Any = None, params: Any = None) -> Float[Array, "1"]:
        return state.cell[None] / (CELLS / 2) - 1.0

    def reward(
        self, state: LapState, action: Int[Array, ""], next_state: LapState, rng: Any = None, params: Any = None
    ) -> Float[Array, ""]:
        arrived = jnp.any(next_state.cell == jnp.array(COINS))
        return jnp.where(next_state.caught, -1.0, jnp.where(arrived, 3.0, 0.0))

    def terminal(self, state: LapState, rng: Any = None, params: Any = None) -> Bool[Array, ""]:
        return state.caught

    def truncation(self, state: LapState, params: LapParams | None = None) -> Bool[Array, ""]:
        return (state.steps >= (params or DEFAULT).max_steps) & ~state.caught

    def state_info(self, state: LapState, params: Any = None) -> dict[str, Array]:
        return {"cost": jnp.float32(0.0)}

    def transition_info(
        self, state: LapState, action: Int[Array, ""], next_state: LapState, params: Any = None
    ) -> dict[str, Array]:
        return {"cost": (action == BACKWARD) * 1.0}


def forward_laps(episodes: int = 1) -> Demonstrations:
    """Demonstrations of forward laps. The task is deterministic and has one start: all episodes are equal."""
    cells = np.arange(MAX_STEPS + 1) % CELLS
    return Demonstrations.from_arrays(
        [(cells[:, None] / (CELLS / 2) - 1.0).astype(np.float32)] * episodes,
        [np.full(MAX_STEPS, FORWARD)] * episodes,
        [3.0 * np.isin(cells[1:], COINS)] * episodes,
        truncated=[True] * episodes,
        observation_space=OBSERVATIONS,
        action_space=ACTIONS,
        name="lap-grid-world/forward",
    )


# --- the study ---

ENV_ID = "scopil/LapGridWorld-v0"
ENV = f"{__name__}:{ENV_ID}"  # importing this module registers it
EPISODES = 20
RAW = {"normalise_obs": False, "normalise_reward": False, "target_kl": 0.01}
# Raw signals, target KL and rollouts come from the authors' README for this task; the constraint's rate and regulariser
# are the defaults, from the paper's table. One update per forward phase was chosen on seeds from 100: with five, the
# policy still steps backwards for coins.
METHODS = {
    "ppo": Method(algorithm=ppo.ALGORITHM, title="PPO", config=RAW),
    "icrl": Method(
        algorithm=icrl.ALGORITHM,
        title="ICRL",
        config=RAW | {"normalise_cost": False, "rollouts": 20, "forward_steps": 10_240},
    ),
}
ENFORCED = CompiledEnv(LapGridWorld(), LapParams(enforced=True))
_NOMINAL = CompiledEnv(LapGridWorld())


def _make(**options: Any) -> gym.Env:
    return FunctionalEnv(_NOMINAL, options.get("render_mode"))


if ENV_ID not in gym.registry:
    gym.register(ENV_ID, entry_point=_make)


def extra(finished: FinishedRun) -> dict[str, Measures]:
    """Returns where the rule is enforced, and the learned cost of both directions, mean over cells."""
    found: dict[str, Measures] = {"enforced": {}}
    modes: tuple[Mode, ...] = ("sampled", "greedy")
    for mode in modes:
        first = unseen_starts(ENFORCED, EPISODES)
        played = play(ENFORCED, finished.policy, first, jax.random.key(2), mode)
        found["enforced"][mode] = average(measure_all(played, ENFORCED))["reward"]
    if (cost := finished.run.learned_cost()) is not None:
        obs = jnp.arange(CELLS, dtype=jnp.float32)[:, None] / (CELLS / 2) - 1.0
        found["learned cost"] = {
            name: float(cost(obs, jnp.full(CELLS, action)).mean())
            for name, action in (("forward", FORWARD), ("backward", BACKWARD))
        }
    return found


def extra_tables(setting: str, results: Results) -> list[Any]:
    from scopil_bench.report.page import Text  # not needed to make the environment
    from scopil_bench.report.study_tables import Layout, extra_grid

    layout, blocks = Layout({}, _title), []
    for name, text in (
        ("enforced", "Reward where the first backward step ends the episode, for the sampled and the greedy policy."),
        ("learned cost", "The learned cost of a step in each direction, mean over cells."),
    ):
        if (grid := extra_grid(layout, results, setting, name)) is not None:
            blocks += [Text(text), grid]
    return blocks


def _title(method: str) -> Any:
    return METHODS[method].title if method in METHODS else method


STUDY = Study(
    name="lap-grid-world",
    title="LapGridWorld: laps should be run forwards",
    about=(
        "A ring of 40 cells with coins (Malik et al. 2021). Stepping back and forth over one coin has the highest "
        "return, but the demonstrations only run forwards."
    ),
    tasks={"laps": Task(title="LapGridWorld", env=ENV, demos=partial(forward_laps, 20))},
    tables={"laps": Table("LapGridWorld", "laps", ("icrl", "ppo", "bc"), ("icrl", "ppo"))},
    budgets={"full": Budget(seeds=5, steps=50 * 10_240), "short": Budget(seeds=1, steps=20_480)},
    methods=METHODS,
    evaluations=("greedy/unseen", "sampled/unseen"),
    episodes=EPISODES,
    extra=extra,
    extra_tables=extra_tables,
)
