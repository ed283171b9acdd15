"""One whole update equals an independent NumPy implementation with hand-written gradients (reference.soft_numpy)."""

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import as_type, demo_steps, layers
from reference import soft_numpy as ref
from reference.squashed_numpy import slopes
from scopil.algos.base import Data, Spaces
from scopil.config import build
from scopil.nn.heads import DiscreteHead
from scopil.registry import find
from scopil.types import Transition

OBS, ACTIONS, ROWS, PAIRS = 5, 4, 24, 16
COMMON = {
    "hidden": (8, 7),
    "discount": 0.9,
    "learning_rate": 1e-2,
    "alpha_lr": 3e-2,
    "polyak": 0.1,
    "log_alpha_init": -0.7,
    "target_entropy": 0.9,
}
OURS = {"multiplier_init": 0.8, "multiplier_lr": 0.05, "slack": 0.3, "entropy_split": 0.2}
CHANGES: dict[str, dict[str, bool]] = {
    "sac": {"imitates": False},
    "scopil": {},
    "s-dgd": {"dual_ascent": False},
    "s-eic": {"entropy_in_constraint": False},
    "s-dgd-eic": {"dual_ascent": False, "entropy_in_constraint": False},
}


def config(name: str, **changes: Any) -> Any:
    values = COMMON | (OURS if find(name).needs_demos else {}) | changes
    return build(find(name).config, values)


def settings(name: str, cfg: Any) -> ref.Settings:
    s = ref.Settings(cfg.discount, cfg.learning_rate, cfg.alpha_lr, cfg.polyak, cfg.target_entropy, **CHANGES[name])
    if not s.imitates:
        return s
    return replace(s, delta=cfg.slack, beta=cfg.entropy_split, dual_rate=cfg.multiplier_lr)


def data(seed: int) -> tuple[dict[str, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """A batch in which some rows terminate, some are truncated and most go on; and demonstrated pairs."""
    rng = np.random.default_rng(seed)
    batch = {
        "obs": rng.normal(size=(ROWS, OBS)).astype(np.float32),
        "action": rng.integers(ACTIONS, size=ROWS).astype(np.int32),
        "reward": rng.normal(size=ROWS).astype(np.float32),
        "next_obs": rng.normal(size=(ROWS, OBS)).astype(np.float32),
        "terminated": np.arange(ROWS) % 4 == 0,
        "truncated": np.arange(ROWS) % 4 == 1,
    }
    demo = (rng.normal(size=(PAIRS, OBS)).astype(np.float32), rng.integers(ACTIONS, size=PAIRS).astype(np.int32))
    return batch, demo


def twin(state: Any) -> ref.Learner:
    """The NumPy learner with the numbers of a fresh `state`."""
    return ref.Learner(
        actor=layers(state.actor.params),
        critics=[layers(n) for n in state.critics.params],
        targets=[layers(n) for n in state.targets],
        log_alpha=float(state.log_alpha.params),
        lam=float(getattr(state, "multiplier", 0.0)),
    )


def ours(state: Any) -> dict[str, list[Any]]:
    """Every number of a state, in the order of the reference."""

    def both(nets: Any) -> list[Any]:
        return [array for n in nets for array in ref.flat(layers(n))]

    out = {
        "actor": both([state.actor.params]),
        "actor m": both([state.actor.opt.mu]),
        "actor v": both([state.actor.opt.nu]),
        "critics": both(state.critics.params),
        "critics m": both(state.critics.opt.mu),
        "critics v": both(state.critics.opt.nu),
        "targets": both(state.targets),
        "log α": [state.log_alpha.params],
        "log α m": [state.log_alpha.opt.mu],
        "log α v": [state.log_alpha.opt.nu],
        "count": [one.opt.count for one in (state.actor, state.critics, state.log_alpha)],
    }
    return out | ({"λ": [state.multiplier]} if hasattr(state, "multiplier") else {})


def theirs(learner: ref.Learner, imitates: bool) -> dict[str, list[Any]]:
    now, adam = learner.optimised(), learner.adam
    out: dict[str, list[Any]] = {"targets": [a for n in learner.targets for a in ref.flat(n)]}
    for name, key in (("actor", "actor"), ("critics", "critics"), ("log α", "log_alpha")):
        out |= {name: now[key], f"{name} m": adam[key].m, f"{name} v": adam[key].v}
    out["count"] = [adam[key].t for key in ("actor", "critics", "log_alpha")]
    return out | ({"λ": [learner.lam]} if imitates else {})


def agree(state: Any, learner: ref.Learner, imitates: bool, tolerance: float) -> None:
    have, want = ours(state), theirs(learner, imitates)
    assert have.keys() == want.keys()
    for what, arrays in want.items():
        assert len(have[what]) == len(arrays), what
        for mine, array in zip(have[what], arrays):
            np.testing.assert_allclose(np.asarray(mine), array, rtol=tolerance, atol=tolerance, err_msg=what)


def seen(batch: dict[str, np.ndarray], demo: tuple[np.ndarray, np.ndarray] | None, real: Any) -> Data:
    """The data of an update."""
    steps = Transition(*map(jnp.asarray, batch.values()))
    return as_type(Data(replay=steps, demo_batch=None if demo is None else demo_steps(*demo)), real)


@pytest.fixture(scope="module")
def compiled():
    """Each algorithm's update, compiled once."""
    return {name: jax.jit(find(name).update) for name in CHANGES}


@cache
def fresh(name: str) -> Any:
    """Networks at their first values, in single precision."""
    return find(name).init(jax.random.key(3), Spaces(OBS, DiscreteHead(ACTIONS)), config(name))


def follow(
    update: Any, name: str, cfg: Any, real: Any, steps: int, tolerance: float, s: ref.Settings | None = None
) -> list[dict[str, Any]]:
    """Make `steps` updates on both sides, comparing everything after each."""
    s = s or settings(name, cfg)
    state = as_type(fresh(name), real)
    learner, logs = twin(state), []
    for seed in range(steps):
        batch, demo = data(seed)
        state, metrics = update(
            state, seen(batch, demo if s.imitates else None, real), as_type(cfg, real), jax.random.key(seed)
        )
        wide = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in batch.items()}
        log = ref.step(learner, wide, (demo[0].astype(np.float64), demo[1]), s)
        agree(state, learner, s.imitates, tolerance)
        for key, value in log.items():
            np.testing.assert_allclose(float(metrics[key]), value, rtol=tolerance, atol=tolerance, err_msg=key)
        logs.append(log)
    return logs


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize(("bits", "tolerance"), [(32, 1e-5), (64, 1e-11)])
def test_updates_equal_the_reference(name, bits, tolerance, compiled):
    with jax.enable_x64(bits == 64):
        follow(compiled[name], name, config(name), jnp.dtype(f"float{bits}"), steps=3, tolerance=tolerance)


def test_default_target_entropy_and_slack(compiled):
    cfg = config("scopil", target_entropy=None, slack=None)
    with jax.enable_x64(True):
        stated = replace(settings("scopil", config("scopil")), target=0.4 * np.log(ACTIONS), delta=0.0)
        follow(compiled["scopil"], "scopil", cfg, jnp.float64, 1, 1e-11, stated)


def test_the_multiplier_is_projected_to_zero(compiled):
    with jax.enable_x64(True):
        logs = follow(compiled["scopil"], "scopil", config("scopil", slack=50.0), jnp.float64, 2, 1e-11)
    assert logs[0]["dual/lambda"] == 0.0  # 0.8 + 0.05 · (G ≈ −49) lies below
    assert logs[0]["dual/constraint"] < -40


@pytest.mark.parametrize("name", ["s-dgd", "s-eic", "s-dgd-eic", "sac"])
def test_the_comparison_distinguishes_the_ablations_from_scopil(name, compiled):
    with jax.enable_x64(True):
        cfg = config(name)
        state = as_type(fresh(name), jnp.float64)
        batch, demo = data(0)
        shown = demo if name != "sac" else None
        after, _ = compiled[name](state, seen(batch, shown, jnp.float64), as_type(cfg, jnp.float64), jax.random.key(0))
        learner = twin(state)
        ref.step(learner, batch, demo, settings("scopil", config("scopil")))
        with pytest.raises(AssertionError, match=r"actor|λ"):
            agree(after, learner, imitates=name != "sac", tolerance=1e-5)


# --- the hand-written gradients themselves ------------------------------------------------------------------------


def random_net(rng: np.random.Generator) -> ref.Net:
    sizes = (OBS, 6, 5, ACTIONS)
    return [(rng.normal(size=(i, o)) / np.sqrt(i), rng.normal(size=o)) for i, o in pairwise(sizes)]


def same_slopes(grads: ref.Net, differences: list[np.ndarray]) -> None:
    for grad, difference in zip(ref.flat(grads), differences):
        np.testing.assert_allclose(grad, difference, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", CHANGES)
def test_the_policy_gradient_is_the_slope_of_the_lagrangian(name):
    rng = np.random.default_rng(11)
    batch, demo = data(4)
    obs, q, s = (batch["obs"].astype(np.float64), rng.normal(size=(ROWS, ACTIONS)), settings(name, config(name)))
    actor = random_net(rng)
    same_slopes(
        ref.lagrangian_grad(actor, obs, q, demo, 0.7, 1.3, s),
        slopes(lambda n: ref.lagrangian(n, obs, q, demo, 0.7, 1.3, s), actor),
    )


def test_the_critic_and_temperature_gradients_are_slopes():
    rng = np.random.default_rng(12)
    batch, _ = data(5)
    obs, action, y = batch["obs"].astype(np.float64), batch["action"], rng.normal(size=ROWS)
    critic = random_net(rng)
    same_slopes(ref.critic_grad(critic, obs, action, y), slopes(lambda n: ref.critic_loss(n, obs, action, y), critic))
    s = settings("sac", config("sac"))
    at, h, met = -0.7, 1e-6, 1.1
    high, low = (ref.temperature_loss(at + sign * h, met, s) for sign in (1, -1))
    gap = met - s.target
    np.testing.assert_allclose((high - low) / (2 * h), np.exp(at) * gap, rtol=1e-8)
