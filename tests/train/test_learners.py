"""Every learner solves a task with a known answer, with discrete and continuous actions, and resumes bit for bit.

The action with the highest reward breaks a rule (toys.py). Learners from reward alone take it; those that imitate, or
that know or infer the cost, avoid it. Agents and runs of one algorithm share a loop, so that it is compiled once.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scopil
from scopil import agent as agent_module
from scopil.agent import Agent
from scopil.algos import ppo_lagrangian
from scopil.algos.base import Algorithm
from scopil.envs.jax_env import CompiledEnv
from scopil.train import run as run_module
from scopil.train import trainer
from scopil.train.loop import make_loop
from scopil.train.run import Run, RunSpec
from toys import (
    INVERSE,
    LIMIT,
    REPLAY,
    ROLLOUT,
    SHOWN_ACTION,
    SHOWN_ARM,
    TABLES,
    Drive,
    Throttle,
    drive_demos,
    registered_toy,
    toy,
    toy_demos,
)  # fmt: skip

# before and after the actor is trained; a constraint enters after some stops
BOTH_PHASES = TABLES | {
    "clone_steps": 10, "critics_first": 100, "refresh_every": 50, "enter_every": 1, "enter_level": 1e6,
}  # fmt: skip
SHIELDED = {"shield": "learning", "shield_first": 80}
STATES = np.array([[1, 0], [1, 1], [-1, 0], [-1, 1]], np.float32)
FAST: dict[str, Any] = {"learning_rate": 0.02, "discount": 0.0}  # one step is all there is to look ahead
OFF = REPLAY | FAST | {"log_alpha_init": -3.0, "alpha_lr": 0.0}
ON = ROLLOUT | FAST | {"gae_lambda": 0.0, "target_kl": math.inf}
IMITATION = {"demo_batch_size": 8, "multiplier_init": 3.0}
PRICE = {"multiplier_init": 5.0, "cost_discount": 0.0}
ON_PRICE = ON | PRICE | {"cost_gae_lambda": 0.0}

REWARD = {scopil.SAC: (OFF, 400), scopil.PPO: (ON, 1500)}
IMITATORS = {
    scopil.SCOPIL: (OFF | IMITATION, 400),
    scopil.SCOPILRho: (OFF | IMITATION | {"occupancy_init": 0.1, "refresh_every": 200}, 3000),
    scopil.SCOPILClone: (OFF | IMITATION | {"critics_first": 0, "clone_steps": 100, "average_over": 100}, 400),
    scopil.SDGD: (OFF | IMITATION, 400),
    scopil.SEiC: (OFF | IMITATION, 400),
    scopil.SDGDEiC: (OFF | IMITATION, 400),
    scopil.PPODGD: (ON | IMITATION, 1500),
    scopil.BC: ({"hidden": (8,), "demo_batch_size": 8, "learning_rate": 0.02}, 300),
}
CAREFUL = {
    scopil.OracleSACLagrangian: (OFF | PRICE, 600),
    scopil.OraclePPOLagrangian: (ON_PRICE, 2000),
    scopil.OracleSACPID: (OFF | {"cost_discount": 0.0, "gain_integral": 0.05, "smoothing": 0.9}, 600),
    scopil.OraclePPOPID: (ON | {"cost_discount": 0.0, "cost_gae_lambda": 0.0, "smoothing": 0.5}, 2000),
    scopil.ICRL: (ON_PRICE | INVERSE | {"constraint_lr": 0.05}, 3000),
    scopil.VICRL: (ON_PRICE | INVERSE | {"constraint_lr": 0.05}, 3000),
}
NUMBERED = pytest.param(False, id="numbered", marks=pytest.mark.slow)
CONTINUOUS = pytest.param(True, id="continuous")
both_kinds = pytest.mark.parametrize("continuous", [NUMBERED, CONTINUOUS])
ABLATIONS = {scopil.SDGD, scopil.SEiC}  # S-DGD-EiC has both their parts


@pytest.fixture(scope="module", autouse=True)
def envs():
    """The toys by kind of actions, one whose states depend on the actions, and one loop for each algorithm on each."""
    made = {False: toy(False), True: toy(True), "drive": CompiledEnv(Drive(), max_episode_steps=2)}
    loops: dict[tuple[Algorithm, Any], Any] = {}

    def shared(algorithm, env, demos):
        which = next(key for key, value in made.items() if value is env)
        return loops.setdefault((algorithm, which), make_loop(algorithm, env, demos))

    with pytest.MonkeyPatch.context() as patch:
        for module in (agent_module, run_module):
            patch.setattr(module, "make_loop", shared)
        yield made


def actions(agent: Agent) -> np.ndarray:
    """The greedy action in each of the four states."""
    return np.asarray(agent.predict(STATES)[0]).reshape(len(STATES))


def learned(cls: Any, env: CompiledEnv, config: dict[str, Any], steps: int) -> Agent:
    continuous = isinstance(env.env, Throttle)
    demos = toy_demos(continuous) if cls.algorithm.needs_demos else None
    return cls(env, demos, seed=0, **config).learn(steps)


@both_kinds
@pytest.mark.parametrize("cls", REWARD)
@pytest.mark.slow
def test_learners_from_reward_alone_break_the_rule(cls, continuous, envs):
    agent = learned(cls, envs[continuous], *REWARD[cls])
    assert (actions(agent) > 2.0 if continuous else actions(agent) == 2).all()
    assert agent.evaluate(episodes=4)["violations"] == 2


@both_kinds
@pytest.mark.parametrize("cls", [pytest.param(c, marks=pytest.mark.slow) if c in ABLATIONS else c for c in IMITATORS])
@pytest.mark.slow
def test_imitators_take_the_demonstrated_action(cls, continuous, envs):
    agent = learned(cls, envs[continuous], *IMITATORS[cls])
    if continuous:
        np.testing.assert_allclose(actions(agent), SHOWN_ACTION, atol=0.3)
    else:
        np.testing.assert_array_equal(actions(agent), SHOWN_ARM)


@both_kinds
@pytest.mark.parametrize("cls", CAREFUL)
@pytest.mark.slow
def test_learners_with_a_cost_avoid_it(cls, continuous, envs):
    agent = learned(cls, envs[continuous], *CAREFUL[cls])
    assert (actions(agent) <= LIMIT).all()


@both_kinds
def test_a_custom_cost(continuous, envs):
    """`ppo_lagrangian.under(cost)` through `Agent`: nothing is registered under its name."""

    def cost(obs, action):
        return (action[..., 0] > LIMIT if continuous else action == 2).astype("float32")

    algorithm = ppo_lagrangian.under(cost)
    config, steps = CAREFUL[scopil.OraclePPOLagrangian]
    agent = scopil.Agent(algorithm, envs[continuous], seed=0, **config).learn(steps)  # pyright: ignore[reportArgumentType]
    assert (actions(agent) <= LIMIT).all()
    assert repr(agent).startswith("PPO-Lagrangian on ")
    assert agent.num_timesteps >= steps


# --- resuming ----------------------------------------------------------------------------------------------------

CHUNK, STEPS = 64, 320  # the replay wraps
KINDS_OF_LOOP = {
    "replay, newest step and demonstrations": scopil.SCOPILRho,
    "replay and true cost": scopil.OracleSACLagrangian,
    "rollouts and demonstrations": scopil.PPODGD,
    "rollouts, demonstrated and own episodes": scopil.ICRL,
    "demonstrations alone": scopil.BC,
}


def files(folder: Path) -> dict[str, bytes]:
    kept = ("policy.safetensors", "metrics.jsonl", *(f"checkpoints/{n:012d}.ckpt" for n in (256, 320)))
    return {name: (folder / name).read_bytes() for name in kept}


@pytest.mark.filterwarnings("ignore:step .*more novel than the clone")  # after 256 steps it may be
@pytest.mark.parametrize("cls", KINDS_OF_LOOP.values(), ids=KINDS_OF_LOOP)
def test_stopping_after_each_chunk_changes_no_byte(cls, envs, tmp_path, monkeypatch):
    """With continuous actions; test_run.py has SCOPIL with discrete ones, test_kill.py kills processes."""
    monkeypatch.setattr(trainer, "CHUNK", CHUNK)
    rho = cls is scopil.SCOPILRho
    (drive_demos() if rho else toy_demos(continuous=True)).save(tmp_path / "demos.npz")
    algorithm, called = cls.algorithm, []
    with registered_toy(envs["drive" if rho else True], "test/Toy-v0") as env_id:
        spec = RunSpec(
            algorithm=algorithm,
            env=env_id,
            demos=str(tmp_path / "demos.npz") if algorithm.needs_demos else None,
            seed=3,
            steps=STEPS,
            eval_every=2 * CHUNK,
            checkpoint_every=CHUNK,
            config=(REWARD | IMITATORS | CAREFUL)[cls][0] | (BOTH_PHASES | SHIELDED if rho else {}),
        )
        alone = Run.create(tmp_path / "alone", spec)
        assert alone.train()
        stopped = Run.create(tmp_path / "stopped", spec)
        while not Run.open(stopped.folder).train(lambda status: called.append(status.env_steps) or True):
            assert not stopped.finished
    assert called == [64, 128, 192, 256, 320]
    assert files(stopped.folder) == files(alone.folder)
    rows = alone.metrics.rows()
    assert [row["env_steps"] for row in rows if "eval/reward" in row] == [0, 128, 256, 320]
    if cls is scopil.ICRL:
        assert rows[-1]["constraint/phases"] == 2
    if rho:  # constraints entered between two stops
        assert len({row["occupancy/constraints"] for row in rows if "occupancy/constraints" in row}) > 1
        limits = [row["shield/limit"] for row in rows if "shield/limit" in row]
        assert limits[0] > limits[-1]  # the shield was used from some stop on
        assert Run.open(stopped.folder).spec.config["shield"] == "learning"
