"""One whole continuous update equals an independent NumPy one with numerical gradients (reference.squashed_numpy)."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import as_type, demo_steps, layers
from reference import soft_numpy
from reference import squashed_numpy as ref
from scopil.algos.base import Data, Spaces
from scopil.config import build
from scopil.losses.soft import REPARAMETRISED
from scopil.nn.heads import BoxHead
from scopil.registry import find
from scopil.types import Transition

OBS, ROWS, PAIRS = 3, 12, 10
LOW, HIGH = np.array([-1.0, 0.0]), np.array([3.0, 0.5])  # neither centred nor of one size
COMMON = {
    "hidden": (5,),
    "discount": 0.9,
    "learning_rate": 1e-2,
    "alpha_lr": 3e-2,
    "polyak": 0.1,
    "log_alpha_init": -0.7,
    "target_entropy": -1.6,
    "normalise_obs": True,
}
OURS = {"multiplier_init": 0.8, "multiplier_lr": 0.05, "slack": 0.6, "entropy_split": 0.2, "action_resolution": 0.08}
CHANGES: dict[str, dict[str, bool]] = {
    "sac": {"imitates": False},
    "scopil": {},
    "s-dgd": {"dual_ascent": False},
    "s-eic": {"entropy_in_constraint": False},
    "s-dgd-eic": {"dual_ascent": False, "entropy_in_constraint": False},
}


def config(name: str, **changes: Any) -> Any:
    return build(find(name).config, COMMON | (OURS if name != "sac" else {}) | changes)


def settings(name: str, cfg: Any) -> ref.Settings:
    s = ref.Settings(cfg.discount, cfg.learning_rate, cfg.alpha_lr, cfg.polyak, cfg.target_entropy, **CHANGES[name])
    if not s.imitates:
        return s
    return replace(
        s, delta=cfg.slack, beta=cfg.entropy_split, dual_rate=cfg.multiplier_lr, resolution=cfg.action_resolution
    )


def data(seed: int) -> tuple[dict[str, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Rows that terminate, are truncated or go on; demonstrated actions inside the box and at all its bounds."""
    rng = np.random.default_rng(seed)

    def actions(rows: int) -> np.ndarray:
        return rng.uniform(LOW, HIGH, (rows, 2)).astype(np.float32)

    def states(rows: int) -> np.ndarray:
        return (rng.normal(size=(rows, OBS)) * (0.1, 1.0, 30.0) + (5.0, 0.0, -2.0)).astype(np.float32)

    batch = {
        "obs": states(ROWS),
        "action": actions(ROWS),
        "reward": rng.normal(size=ROWS).astype(np.float32),
        "next_obs": states(ROWS),
        "terminated": np.arange(ROWS) % 4 == 0,
        "truncated": np.arange(ROWS) % 4 == 1,
    }
    demo = (states(PAIRS), actions(PAIRS))
    demo[1][:4] = [[-1.0, 0.0], [3.0, 0.5], [-1.0, 0.5], [2.95, 0.001]]
    return batch, demo


def head() -> BoxHead:
    return BoxHead(jnp.asarray(LOW, jnp.float32), jnp.asarray(HIGH, jnp.float32))


def twin(state: Any) -> ref.Learner:
    return ref.Learner(
        actor=layers(state.actor.params),
        critics=[layers(n) for n in state.critics.params],
        targets=[layers(n) for n in state.targets],
        log_alpha=float(state.log_alpha.params),
        lam=float(getattr(state, "multiplier", 0.0)),
        low=LOW,
        high=HIGH,
    )


def agree(state: Any, learner: ref.Learner, imitates: bool, tolerance: float) -> None:
    def both(nets: Any) -> list[Any]:
        return [array for n in nets for array in soft_numpy.flat(layers(n))]

    now, adam = learner.optimised(), learner.adam
    mean, var = learner.statistics()
    pairs = {
        "actor": (both([state.actor.params]), now["actor"]),
        "actor's gradient": (both([state.actor.opt.mu]), adam["actor"].m),
        "critics": (both(state.critics.params), now["critics"]),
        "critics' gradient": (both(state.critics.opt.mu), adam["critics"].m),
        "targets": (both(state.targets), [a for n in learner.targets for a in soft_numpy.flat(n)]),
        "log α": ([state.log_alpha.params], now["log_alpha"]),
        "statistics": ([state.obs_stats.mean, state.obs_stats.var], [mean, var]),
        "λ": ([state.multiplier] if imitates else [], [learner.lam] if imitates else []),
    }
    for what, (have, want) in pairs.items():
        assert len(have) == len(want), what
        for mine, array in zip(have, want):
            np.testing.assert_allclose(np.asarray(mine), array, rtol=tolerance, atol=tolerance, err_msg=what)


@cache
def compiled(name: str) -> Any:
    return jax.jit(find(name).update)


def follow(
    name: str, cfg: Any, real: Any, steps: int, tolerance: float, s: ref.Settings | None = None
) -> list[dict[str, float]]:
    """Make `steps` updates on both sides, comparing everything after each."""
    s = s or settings(name, cfg)
    state = as_type(find(name).init(jax.random.key(3), Spaces(OBS, head()), cfg), real)
    learner, logs = twin(state), []
    for seed in range(steps):
        batch, demo = data(seed)
        noise = REPARAMETRISED.noise(jax.random.key(seed), ROWS, PAIRS if s.imitates else 0, head())
        steps_seen = Transition(*map(jnp.asarray, batch.values()))
        shown = demo_steps(*demo) if s.imitates else None
        state, metrics = compiled(name)(
            state, as_type(Data(replay=steps_seen, demo_batch=shown), real), as_type(cfg, real), jax.random.key(seed)
        )
        wide = {k: v.astype(np.float64) for k, v in batch.items()}
        pairs = (demo[0].astype(np.float64), demo[1].astype(np.float64)) if s.imitates else None
        log = ref.step(learner, wide, pairs, tuple(np.asarray(x, np.float64) for x in noise), s)  # pyright: ignore
        agree(state, learner, s.imitates, tolerance)
        for key, value in log.items():
            np.testing.assert_allclose(float(metrics[key]), value, rtol=tolerance, atol=tolerance, err_msg=key)
        logs.append(log)
    return logs


SLOW = {"s-dgd", "s-dgd-eic"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in CHANGES])
def test_in_double_precision_updates_equal_the_numerical_ones(name):
    with jax.enable_x64(True):
        follow(name, config(name), jnp.float64, steps=3, tolerance=1e-6)


def test_in_single_precision_too():
    follow("scopil", config("scopil"), jnp.float32, steps=3, tolerance=3e-4)


def test_default_target_entropy_and_slack_per_component():
    with jax.enable_x64(True):
        stated = replace(settings("scopil", config("scopil")), target=-2.0, delta=3.0)
        follow("scopil", config("scopil", target_entropy=None, slack=None), jnp.float64, 1, 1e-6, stated)


def test_the_multiplier_is_projected_to_zero():
    with jax.enable_x64(True):
        logs = follow("scopil", config("scopil", slack=100.0), jnp.float64, 1, 1e-6)
    assert logs[0]["dual/lambda"] == 0.0
    assert logs[0]["dual/constraint"] < -50


def test_the_comparison_distinguishes_an_ablation_from_scopil(monkeypatch):
    monkeypatch.setitem(CHANGES, "s-eic", {})
    with jax.enable_x64(True), pytest.raises(AssertionError, match="actor"):
        follow("s-eic", config("s-eic"), jnp.float64, 1, 1e-5)
