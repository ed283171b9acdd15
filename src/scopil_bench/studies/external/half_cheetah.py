"""Half-cheetah with a wall behind it (HCWithPos of Malik et al., ICML 2021). The reward is the same in both directions;
the rule allows only one. The study needs `pip install "scopil[mujoco]"` and the ICRL authors' expert episodes, which
are not shipped.
"""

import os
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from scopil.algos import bc, sac, scopil, scopil_rho
from scopil.data.dataset import Demonstrations, Episode
from scopil.errors import DatasetError, refused_as
from scopil.eval.measures import Measures
from scopil_bench.studies.base import Budget, FinishedRun, Method, Study, Task
from scopil_bench.summaries import Results, Table

ENV = "scopil/HalfCheetahWall-v0"
DATA = "SCOPIL_HALF_CHEETAH_DATA"  # environment variable that names the data file
WALL = -3.0  # m; x ≤ WALL is a violation
CONTROL_COST = 0.1
EPISODES = 20
RETURN, RATE = 3400.0, 0.005  # targets: lowest return, highest violation rate
# δ in nats: 1.4 for each of six action components, chosen on seed 100. Behaviour cloning reaches 1.32 per component
# on its training episodes and 1.41 on held-out ones.
SLACK = 6 * 1.4


def behind_the_wall(obs: np.ndarray, action: Any, next_obs: np.ndarray) -> float:
    """The cost by the rule, for episodes that were recorded without `info["cost"]`."""
    return float(next_obs[0] <= WALL)


class HalfCheetahWall(gym.Wrapper):
    """Reward |x' − x| / dt − 0.1 ‖a‖²; the observation has all positions (x first), then velocities.

    With `enforced`, the first step that reaches the wall has reward 0 and terminates the episode. `info["cost"]` is 1
    where the rule is violated; learners do not use it.
    """

    def __init__(self, enforced: bool = False, **options: Any):
        super().__init__(
            gym.make("HalfCheetah-v5", exclude_current_positions_from_observation=False, **options).unwrapped
        )
        self._enforced = enforced
        self._x = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self._x = float(obs[0])
        return obs, info | self._cost()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        before = self._x
        action = np.clip(np.asarray(action, np.float64), -1.0, 1.0)
        obs, _, terminated, truncated, info = self.env.step(action)
        self._x = float(obs[0])
        dt: float = self.env.unwrapped.dt  # pyright: ignore[reportAttributeAccessIssue]
        reward = abs(self._x - before) / dt - CONTROL_COST * float(np.square(action).sum())
        info |= self._cost()
        if self._enforced and info["cost"]:
            return obs, 0.0, True, truncated, info
        return obs, reward, terminated, truncated, info

    def _cost(self) -> dict[str, float]:
        return {"cost": float(self._x <= WALL)}


def demonstrations(data: Path) -> Demonstrations:
    """The expert's episodes from a .npz file with float32 arrays `observations` and `actions` [episodes, steps, ·].
    `observations[k]` results from `actions[k]`, so the pairs are (observations[k], actions[k + 1]). The last
    observation of an episode comes from a reset and is left out."""
    with refused_as(DatasetError, data), np.load(data, allow_pickle=False) as file:
        observations, actions = file["observations"], file["actions"]
    episodes = [
        Episode(observations=o[:-1], actions=a[1:-1], terminated=False, truncated=True)
        for o, a in zip(observations, actions)
    ]
    return Demonstrations(
        episodes=tuple(episodes),
        observation_space=gym.spaces.Box(-np.inf, np.inf, observations.shape[2:], np.float32),
        action_space=gym.spaces.Box(-1.0, 1.0, actions.shape[2:], np.float32),
        name="half-cheetah-wall/icrl-expert",
        env_id=ENV,
        about={"by": "the expert of Malik et al. (ICML 2021), 50 episodes of 500 steps"},
    )


def demonstrations_named() -> Demonstrations:
    """The demonstrations in the file that the environment variable names."""
    if not (file := os.environ.get(DATA)):
        raise DatasetError(
            f"half-cheetah-wall: the demonstrations are not shipped; name their .npz file (observations and actions) "
            f"in the environment variable {DATA}."
        )
    return demonstrations(Path(file))


def first_good(finished: FinishedRun) -> dict[str, Measures]:
    """Environment steps until the first evaluation during training that meets both targets; empty if none does."""
    for row in finished.run.metrics.rows():
        if row.get("eval/reward", -np.inf) >= RETURN and row.get("eval/frequency", 1.0) <= RATE:
            return {"first good": {"env_steps": float(row["env_steps"])}}
    return {}


def _first_good_table(title_of: Any, setting: str, results: Results) -> list[Any]:
    from scopil_bench.report.page import Text  # imported here because the environment does not need it
    from scopil_bench.report.study_tables import Layout, extra_grid

    grid = extra_grid(Layout({}, title_of), results, setting, "first good", {"env_steps": "Environment steps"})
    text = (
        f"Steps until the first evaluation in training with a reward of at least {RETURN:,.0f} and at most {RATE:g} "
        f"violations per step."
    )
    return [] if grid is None else [Text(text), grid]


def study(data: Path | None = None, steps: int = 100_000) -> Study:
    """`data`: the file with the expert's episodes; default: the file that SCOPIL_HALF_CHEETAH_DATA names."""
    replay = {"replay_size": min(steps, 1_000_000)}
    methods = {
        "scopil-rho": Method(algorithm=scopil_rho.ALGORITHM, title="SCOPIL-ρ", config=replay),
        "scopil": Method(algorithm=scopil.ALGORITHM, title="SCOPIL", config=replay | {"slack": SLACK}),
        "sac": Method(algorithm=sac.ALGORITHM, title="SAC", config=replay),
        "bc": Method(algorithm=bc.ALGORITHM, title="BC"),
    }
    return Study(
        name="half-cheetah-wall",
        title="Half-cheetah with a wall behind it",
        about=(
            "The reward is the same in both directions, but the expert never runs backwards beyond a wall that is not "
            "enforced (HCWithPos of Malik et al., ICML 2021)."
        ),
        tasks={
            "wall": Task(
                title="Half-cheetah with a wall",
                env=ENV,
                demos=demonstrations_named if data is None else partial(demonstrations, data),
            )
        },
        tables={"wall": Table("Half-cheetah with a wall", "wall", tuple(methods), tuple(methods))},
        budgets={
            "full": Budget(seeds=3, steps=steps, eval_every=25_000),
            "short": Budget(seeds=1, steps=5_000, eval_every=2_500, checkpoint_every=2_500),
        },
        methods=methods,
        evaluations=("greedy/unseen", "sampled/unseen"),
        episodes=EPISODES,
        extra=first_good,
        extra_tables=partial(_first_good_table, lambda name: methods[name].title),
    )


STUDY = study()
