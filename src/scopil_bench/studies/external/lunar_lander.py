"""LunarLander with two unwritten rules, demonstrated by Gymnasium's own controller. Needs
`pip install "scopil[box2d]"`.

The controller turns the engines off once a leg touches the ground, and keeps the lander nearly upright. The reward
requires neither.
"""

from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np

from scopil.algos import bc, sac, scopil, scopil_rho
from scopil.data.dataset import Demonstrations
from scopil.data.record import record
from scopil.envs.jax_env import make_env
from scopil_bench.studies.base import Budget, Method, Study, Task
from scopil_bench.summaries import Table

ENV = "LunarLander-v3"
TILT = 0.4  # radians, 23 degrees
LANDED = 200.0  # minimum return of a solved episode; only solved episodes become demonstrations
DEMONSTRATIONS, EPISODES = 1000, 100
# The target entropy is below the default (the paper's value for Marble Maze): random actions tip the lander over.
CONFIG = {"hidden": [64, 64], "replay_size": 300_000, "target_entropy": 0.14}  # nats; the maximum is log 4
# Returns are in the hundreds; in Marble Maze they are about −14. The multiplier starts higher and has a higher
# learning rate in proportion.
SCOPIL_CONFIG = CONFIG | {"multiplier_init": 10.0, "multiplier_lr": 3e-3}


def rules(obs: np.ndarray, action: Any, next_obs: np.ndarray) -> dict[str, Any]:
    """The two rules. obs[6] and obs[7] are the contacts of the legs, obs[4] is the tilt. Action 0: engines off."""
    return {"engine": (obs[6] > 0 or obs[7] > 0) and action != 0, "tilt": abs(next_obs[4]) > TILT}


_DISCRETE = SimpleNamespace(unwrapped=SimpleNamespace(continuous=False))  # the only attribute that the controller reads


def land(obs: np.ndarray) -> int:
    """The action of Gymnasium's controller."""
    from gymnasium.envs.box2d.lunar_lander import heuristic  # needs Box2D, an optional dependency

    return int(heuristic(_DISCRETE, obs))


def demonstrate(episodes: int = DEMONSTRATIONS) -> Demonstrations:
    """The first episodes that the controller solves, counting seeds from 0."""
    env, landed, seed = make_env(ENV), [], 0
    while len(landed) < episodes:
        (episode,) = record(env, land, 1, seed=seed)
        seed += 1
        if episode.total_reward >= LANDED:
            landed.append(episode)
    env.close()
    return Demonstrations(
        episodes=tuple(landed),
        observation_space=gym.spaces.Box(
            -np.inf, np.inf, (8,), np.float32
        ),  # observations exceed the environment's bounds
        action_space=gym.spaces.Discrete(4),
        name="lunar-lander/controller",
        env_id=ENV,
        about={"by": "gymnasium.envs.box2d.lunar_lander.heuristic", "seeds": [0, seed], "return": f">= {LANDED:g}"},
    )


METHODS = ("scopil-rho", "scopil", "sac", "bc")

STUDY = Study(
    name="lunar-lander",
    title="LunarLander with two unwritten rules",
    about=(
        "A lander sets down between two flags. The demonstrator, Gymnasium's own controller, turns the engines off "
        f"once a leg touches the ground and stays within {TILT:g} rad of upright. The reward requires neither, and no "
        "learner is given these rules."
    ),
    tasks={"controller": Task(title="LunarLander", env=ENV, demos=demonstrate, demonstrator=land, rules=rules)},
    tables={"lander": Table("LunarLander", "controller", METHODS, METHODS)},
    budgets={
        "full": Budget(seeds=3, steps=300_000),
        "short": Budget(seeds=1, steps=10_000, eval_every=5_000, checkpoint_every=5_000),
    },
    methods={
        "scopil-rho": Method(algorithm=scopil_rho.ALGORITHM, config={"replay_size": 300_000}),
        "scopil": Method(algorithm=scopil.ALGORITHM, config=SCOPIL_CONFIG),
        "sac": Method(algorithm=sac.ALGORITHM, config=CONFIG),
        "bc": Method(algorithm=bc.ALGORITHM, config={"hidden": [64, 64]}),
    },
    evaluations=("greedy/unseen", "sampled/unseen"),
    episodes=EPISODES,
    glossary=(
        "Violations (engine): steps with an engine on while a leg touches the ground. Violations (tilt): states tilted "
        f"by more than {TILT:g} rad. Both are counted per episode.",
    ),
)
