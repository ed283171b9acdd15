"""ICRL and PPO on LapGridWorld (Malik et al. 2021), five seeds each: does ICRL learn the unwritten rule?

.venv/bin/python benchmarks/lap_grid.py [--seeds 5] [--out runs/lap_grid]

Results are written to results/lap_grid.json.

The task is a ring of 40 cells. The reward only counts coins, +3 on arriving at cells 5, 15, 25 and 35, so that stepping
back and forth over one coin has the highest return (294 in 200 steps). The unwritten rule is never to step backwards:
forward laps have return 60. With `enforced`, a backward step has reward −1 and terminates the episode; the return under
the rule is measured there.
"""

import argparse
import shutil
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.experimental.functional import FuncEnv
from jaxtyping import Array, Bool, Float, Int

from scopil.algos import icrl, ppo
from scopil.data.dataset import Demonstrations
from scopil.envs.jax_env import CompiledEnv
from scopil.eval.episodes import Mode, play
from scopil.eval.measures import Measures, average, measure_all
from scopil.eval.starts import unseen_starts
from scopil_bench.report.page import Text
from scopil_bench.report.study_tables import Layout, extra_grid
from scopil_bench.studies.base import Budget, FinishedRun, Method, Study, Task
from scopil_bench.studies.running import run_study
from scopil_bench.summaries import Results, Table

RESULTS = Path(__file__).parent / "results" / "lap_grid.json"
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

ENV = f"{Path(__file__).resolve()}:LapGridWorld"
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
    budgets={"full": Budget(seeds=5, steps=50 * 10_240)},
    methods=METHODS,
    evaluations=("greedy/unseen", "sampled/unseen"),
    episodes=EPISODES,
    extra=extra,
    extra_tables=extra_tables,
)


def main(seeds: int, out: Path, results: Path = RESULTS, steps: int | None = None) -> None:
    run_study(STUDY, out, seeds=seeds, steps=steps)
    shutil.copy(out / "results.json", results)
    print((out / "tables.md").read_text())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/lap_grid"))
    main(**vars(parser.parse_args()))
