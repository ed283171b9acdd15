"""NaN and infinity stop training, the error names the cause, and no checkpoint has them."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import SMALL, Endless, mostly_one
from scopil.algos.sac import ALGORITHM as SAC
from scopil.algos.scopil import ALGORITHM as SCOPIL
from scopil.config import build
from scopil.envs.as_gym import FunctionalEnv
from scopil.envs.jax_env import CompiledEnv
from scopil.errors import DivergedError
from scopil.serialization import load_tree
from scopil.train.demo_data import DemoData
from scopil.train.loop import Loop
from scopil.train.run import Run, RunSpec
from scopil.train.trainer import Trainer, TrainStatus

AT = 7_000  # the step of the endless episode whose reward is not a number


class Poisoned(Endless):
    """Reward ±1, drawn at the start; NaN at step `AT`."""

    def reward(self, state, action, next_state, rng, params=None):
        return jnp.where(next_state.clock == AT, jnp.nan, state.sign)


@pytest.fixture(scope="module")
def loop():
    return Loop(SCOPIL, CompiledEnv(Poisoned()), DemoData(mostly_one(), None, None))  # pyright: ignore[reportArgumentType]


@pytest.fixture
def trainer(loop):
    return Trainer(loop, build(SCOPIL.config, {"demo_batch_size": 4} | SMALL), seed=0)


def stops(trainer: Trainer, match: str, until: int = 2_000) -> None:
    called: list[TrainStatus] = []
    with pytest.raises(DivergedError, match=match):
        trainer.advance(until, called.append)
    assert called == []  # no observer was called, so nothing was saved


@pytest.mark.slow
def test_a_healthy_run_goes_on(trainer):
    called: list[TrainStatus] = []
    trainer.advance(AT - 1, called.append)
    assert [r.env_steps for r in called] == [5_000, AT - 1]
    with pytest.raises(DivergedError, match=f"before environment step {AT}: .*reward that is not finite"):
        trainer.advance(AT)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_not_finite(value, trainer):
    env = trainer.state.env
    inner = env.inner._replace(sign=jnp.full_like(env.inner.sign, value))
    trainer.state = trainer.state._replace(env=env._replace(inner=inner))
    stops(trainer, "the environment returned a reward that is not finite")


class Blinding(Endless):
    """An observation within a chunk, not at its end, is NaN."""

    def observation(self, state, rng, params=None):
        return jnp.where(state.clock == 700, jnp.nan, jnp.ones(1))


def test_an_observation_that_is_not_finite():
    cfg = SAC.config(**SMALL | {"replay_size": 4096})
    trainer = Trainer(Loop(SAC, CompiledEnv(Blinding())), cfg, seed=0)
    stops(trainer, "the environment returned an observation that is not finite", until=800)


def spoiled(learner: Any, part: str) -> Any:
    if part == "multiplier":
        return learner._replace(multiplier=jnp.float32(jnp.inf))
    if part == "nu":  # no metric shows it: an infinite second moment makes steps of size zero
        opt = learner.log_alpha.opt._replace(nu=jnp.float32(jnp.inf))
        return learner._replace(log_alpha=learner.log_alpha._replace(opt=opt))
    net = getattr(learner, part)
    return learner._replace(**{part: net._replace(params=jax.tree.map(lambda leaf: leaf * jnp.nan, net.params))})


@pytest.mark.parametrize(
    ("part", "named"),
    [("actor", ""), ("critics", ""), ("log_alpha", ""), ("multiplier", "dual/lambda"), ("nu", r"\.log_alpha\.opt\.nu")],
)
def test_a_learner_that_is_not_finite(part, named, trainer):
    trainer.state = trainer.state._replace(learner=spoiled(trainer.state.learner, part))
    stops(trainer, f"{named}.* became NaN or infinite")


def test_a_rate_far_too_high(trainer):
    trainer.cfg = replace(trainer.cfg, learning_rate=1e25)
    stops(trainer, r"became NaN or infinite.*lower the learning rate")


@pytest.fixture
def env_id():
    name = "probe/Poisoned-v0"
    gym.register(name, entry_point=lambda **_: FunctionalEnv(CompiledEnv(Poisoned())))
    yield name
    del gym.registry[name]


def test_a_run_keeps_its_last_good_checkpoint(env_id, tmp_path):
    spec = RunSpec(algorithm=SAC, env=env_id, steps=20_000, checkpoint_every=5_000, config=dict(SMALL))
    run = Run.create(tmp_path / "run", spec)
    good: dict[int, Any] = {}

    def keep(status: TrainStatus) -> None:
        good[status.env_steps] = jax.device_get(status.state.learner)

    with pytest.raises(DivergedError, match="reward that is not finite"):
        run.train(keep)
    assert list(good) == [5_000]

    again = Run.open(tmp_path / "run")
    assert not again.finished
    assert [row["env_steps"] for row in again.metrics.rows()] == [0, 5_000]
    (path,) = again.checkpoints.files()
    assert again.newest_policy() == path
    like = jax.eval_shape(Loop(SAC, again.env()).init, jax.random.key(0), spec.build_config(again.env()))
    state, _ = load_tree(path, like)
    assert int(state.env_steps) == 5_000
    for saved, seen in zip(jax.tree.leaves(state.learner), jax.tree.leaves(good[5_000])):
        np.testing.assert_array_equal(saved, seen)
        assert np.isfinite(saved).all()
