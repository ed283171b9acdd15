"""Whole updates of SAC, SCOPIL and its ablations equal independent NumPy ones.

Discrete actions: every gradient is written out by hand (reference.soft_numpy). Continuous actions: gradients are
central differences (reference.squashed_numpy), and observations are normalised.
"""

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
from reference import squashed_numpy as squashed
from reference.squashed_numpy import slopes
from scopil.algos.base import Data, Spaces
from scopil.config import build
from scopil.losses.soft import operator
from scopil.nn.heads import BoxHead, DiscreteHead
from scopil.registry import find
from scopil.types import Transition

ACTIONS = 4
LOW, HIGH = np.array([-1.0, 0.0]), np.array([3.0, 0.5])  # neither centred nor of one size
OBS, ROWS, PAIRS = (
    {"discrete": 5, "continuous": 3},
    {"discrete": 24, "continuous": 12},
    {"discrete": 16, "continuous": 10},
)
COMMON = {"discount": 0.9, "learning_rate": 1e-2, "alpha_lr": 3e-2, "polyak": 0.1, "log_alpha_init": -0.7}
OWN = {
    "discrete": {"hidden": (8, 7), "target_entropy": 0.9},
    "continuous": {"hidden": (5,), "target_entropy": -1.6, "normalise_obs": True},
}
IMITATION = {
    "discrete": {"multiplier_init": 0.8, "multiplier_lr": 0.05, "slack": 0.3, "entropy_split": 0.2},
    "continuous": {
        "multiplier_init": 0.8, "multiplier_lr": 0.05, "slack": 0.6, "entropy_split": 0.2, "action_resolution": 0.08
    },
}  # fmt: skip
CHANGES: dict[str, dict[str, bool]] = {
    "sac": {"imitates": False},
    "scopil": {},
    "s-dgd": {"dual_ascent": False},
    "s-eic": {"entropy_in_constraint": False},
    "s-dgd-eic": {"dual_ascent": False, "entropy_in_constraint": False},
}


def config(name: str, kind: str, **changes: Any) -> Any:
    return build(find(name).config, COMMON | OWN[kind] | (IMITATION[kind] if name != "sac" else {}) | changes)


def settings(name: str, cfg: Any) -> squashed.Settings:
    s = squashed.Settings(
        cfg.discount, cfg.learning_rate, cfg.alpha_lr, cfg.polyak, cfg.target_entropy, **CHANGES[name]
    )
    if not s.imitates:
        return s
    return replace(
        s, delta=cfg.slack, beta=cfg.entropy_split, dual_rate=cfg.multiplier_lr, resolution=cfg.action_resolution
    )


def data(seed: int, kind: str) -> tuple[dict[str, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """A batch with terminated and truncated rows, and demonstrated pairs; continuous ones also at the bounds."""
    rng = np.random.default_rng(seed)

    def actions(rows: int) -> np.ndarray:
        if kind == "discrete":
            return rng.integers(ACTIONS, size=rows).astype(np.int32)
        return rng.uniform(LOW, HIGH, (rows, 2)).astype(np.float32)

    def states(rows: int) -> np.ndarray:
        unit = rng.normal(size=(rows, OBS[kind]))
        return (unit if kind == "discrete" else unit * (0.1, 1.0, 30.0) + (5.0, 0.0, -2.0)).astype(np.float32)

    rows = ROWS[kind]
    batch = {
        "obs": states(rows),
        "action": actions(rows),
        "reward": rng.normal(size=rows).astype(np.float32),
        "next_obs": states(rows),
        "terminated": np.arange(rows) % 4 == 0,
        "truncated": np.arange(rows) % 4 == 1,
    }
    demo = states(PAIRS[kind]), actions(PAIRS[kind])
    if kind == "continuous":
        demo[1][:4] = [[-1.0, 0.0], [3.0, 0.5], [-1.0, 0.5], [2.95, 0.001]]
    return batch, demo


def head(kind: str) -> Any:
    if kind == "discrete":
        return DiscreteHead(ACTIONS)
    return BoxHead(jnp.asarray(LOW, jnp.float32), jnp.asarray(HIGH, jnp.float32))


def twin(state: Any, kind: str) -> Any:
    """The NumPy learner with the numbers of a fresh `state`."""
    parts = {
        "actor": layers(state.actor.params),
        "critics": [layers(n) for n in state.critics.params],
        "targets": [layers(n) for n in state.targets],
        "log_alpha": float(state.log_alpha.params),
        "lam": float(getattr(state, "multiplier", 0.0)),
    }
    return ref.Learner(**parts) if kind == "discrete" else squashed.Learner(**parts, low=LOW, high=HIGH)


def agree(state: Any, learner: Any, imitates: bool, tolerance: float) -> None:
    """Every number of a state: networks, Adam's moments and counts, targets, α, λ and statistics."""

    def flat(nets: Any) -> list[Any]:
        return [array for n in nets for array in ref.flat(layers(n))]

    now, adam = learner.optimised(), learner.adam
    pairs = {
        "targets": (flat(state.targets), [a for n in learner.targets for a in ref.flat(n)]),
        "λ": ([state.multiplier] if imitates else [], [learner.lam] if imitates else []),
    }
    for name, one, arrays in (
        ("actor", state.actor, lambda net: flat([net])),
        ("critics", state.critics, flat),
        ("log_alpha", state.log_alpha, lambda number: [number]),
    ):
        pairs[name] = arrays(one.params), now[name]
        pairs[f"{name} m"] = arrays(one.opt.mu), adam[name].m
        pairs[f"{name} v"] = arrays(one.opt.nu), adam[name].v
        pairs[f"{name} count"] = [one.opt.count], [adam[name].t]
    if state.obs_stats is not None:
        pairs["statistics"] = [state.obs_stats.mean, state.obs_stats.var], [*learner.statistics()]
    for what, (have, want) in pairs.items():
        assert len(have) == len(want), what
        for mine, array in zip(have, want):
            np.testing.assert_allclose(np.asarray(mine), array, rtol=tolerance, atol=tolerance, err_msg=what)


@cache
def compiled(name: str) -> Any:
    return jax.jit(find(name).update)


@cache
def fresh(name: str, kind: str) -> Any:
    with jax.enable_x64(False):
        return find(name).init(jax.random.key(3), Spaces(OBS[kind], head(kind)), config(name, kind))


def follow(
    name: str, kind: str, real: Any, steps: int, tolerance: float, s: Any = None, **changes: Any
) -> list[dict[str, Any]]:
    """Makes `steps` updates on both sides and compares everything after each."""
    cfg = config(name, kind, **changes)
    s = s or settings(name, cfg)
    state = as_type(fresh(name, kind), real)
    learner, logs = twin(state, kind), []
    for seed in range(steps):
        batch, demo = data(seed, kind)
        noise = operator(head(kind)).noise(
            jax.random.key(seed), ROWS[kind], PAIRS[kind] if s.imitates else 0, head(kind)
        )
        given = Data(
            replay=Transition(*map(jnp.asarray, batch.values())), demo_batch=demo_steps(*demo) if s.imitates else None
        )
        state, metrics = compiled(name)(state, as_type(given, real), as_type(cfg, real), jax.random.key(seed))
        wide = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in batch.items()}
        pairs: Any = (demo[0].astype(np.float64), demo[1].astype(np.float64) if kind == "continuous" else demo[1])
        if kind == "discrete":
            log = ref.step(learner, wide, pairs, s)
        else:
            drawn: Any = tuple(np.asarray(x, np.float64) for x in noise)
            log = squashed.step(learner, wide, pairs if s.imitates else None, drawn, s)
        agree(state, learner, s.imitates, tolerance)
        for key, value in log.items():
            np.testing.assert_allclose(float(metrics[key]), value, rtol=tolerance, atol=tolerance, err_msg=key)
        logs.append(log)
    return logs


@pytest.mark.parametrize("name", CHANGES)
def test_discrete_updates_equal_the_reference(name):
    with jax.enable_x64(True):
        follow(name, "discrete", jnp.float64, 3, 1e-11)


SLOW = {"s-dgd", "s-dgd-eic"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in CHANGES])
def test_continuous_updates_equal_the_reference(name):
    with jax.enable_x64(True):
        follow(name, "continuous", jnp.float64, 3, 1e-6)


@pytest.mark.parametrize(
    ("name", "kind", "tolerance"),
    [
        ("scopil", "discrete", 1e-5),
        ("scopil", "continuous", 3e-4),
        *(pytest.param(n, "discrete", 1e-5, marks=pytest.mark.slow) for n in CHANGES if n != "scopil"),
    ],
)
def test_updates_in_single_precision_too(name, kind, tolerance):
    follow(name, kind, jnp.float32, 3, tolerance)


TOLERANCES = [("discrete", 1e-11), ("continuous", 1e-6)]
DEFAULTS = {"discrete": {"target": 0.4 * np.log(ACTIONS), "delta": 0.0}, "continuous": {"target": -2.0, "delta": 3.0}}


@pytest.mark.parametrize(("kind", "tolerance"), TOLERANCES)
def test_default_target_entropy_and_slack(kind, tolerance):
    """A share of the largest entropy and 0 for discrete actions; per component for continuous ones."""
    with jax.enable_x64(True):
        stated = replace(settings("scopil", config("scopil", kind)), **DEFAULTS[kind])
        follow("scopil", kind, jnp.float64, 1, tolerance, stated, target_entropy=None, slack=None)


@pytest.mark.parametrize(("kind", "tolerance"), TOLERANCES)
def test_the_multiplier_is_projected_to_zero(kind, tolerance):
    with jax.enable_x64(True):
        logs = follow("scopil", kind, jnp.float64, 1, tolerance, slack=100.0)
    assert logs[0]["dual/lambda"] == 0.0
    assert logs[0]["dual/constraint"] < -50


@pytest.mark.parametrize(
    ("name", "kind"), [("s-dgd", "discrete"), ("s-eic", "discrete"), ("s-dgd-eic", "discrete"), ("s-eic", "continuous")]
)
def test_the_comparison_distinguishes_the_ablations_from_scopil(name, kind):
    with jax.enable_x64(True), pytest.raises(AssertionError, match=r"actor|λ"):
        follow(name, kind, jnp.float64, 1, 1e-5, settings("scopil", config("scopil", kind)))


def test_the_comparison_distinguishes_sac_from_scopil():
    with jax.enable_x64(True):
        state, (batch, demo) = as_type(fresh("sac", "discrete"), jnp.float64), data(0, "discrete")
        given = as_type(Data(replay=Transition(*map(jnp.asarray, batch.values()))), jnp.float64)
        cfg = as_type(config("sac", "discrete"), jnp.float64)
        after, _ = compiled("sac")(state, given, cfg, jax.random.key(0))
        learner = twin(state, "discrete")
        ref.step(learner, batch, demo, settings("scopil", config("scopil", "discrete")))
        with pytest.raises(AssertionError, match="actor"):
            agree(after, learner, imitates=False, tolerance=1e-5)


# --- the hand-written gradients themselves ------------------------------------------------------------------------


def random_net(rng: np.random.Generator) -> ref.Net:
    sizes = (OBS["discrete"], 6, 5, ACTIONS)
    return [(rng.normal(size=(i, o)) / np.sqrt(i), rng.normal(size=o)) for i, o in pairwise(sizes)]


def same_slopes(grads: ref.Net, differences: list[np.ndarray]) -> None:
    for grad, difference in zip(ref.flat(grads), differences):
        np.testing.assert_allclose(grad, difference, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", CHANGES)
def test_the_policy_gradient_is_the_slope_of_the_lagrangian(name):
    rng = np.random.default_rng(11)
    batch, demo = data(4, "discrete")
    obs, q, s = (
        batch["obs"].astype(np.float64),
        rng.normal(size=(ROWS["discrete"], ACTIONS)),
        settings(name, config(name, "discrete")),
    )
    actor = random_net(rng)
    same_slopes(
        ref.lagrangian_grad(actor, obs, q, demo, 0.7, 1.3, s),
        slopes(lambda n: ref.lagrangian(n, obs, q, demo, 0.7, 1.3, s), actor),
    )


def test_the_critic_and_temperature_gradients_are_slopes():
    rng = np.random.default_rng(12)
    batch, _ = data(5, "discrete")
    obs, action, y = batch["obs"].astype(np.float64), batch["action"], rng.normal(size=ROWS["discrete"])
    critic = random_net(rng)
    same_slopes(ref.critic_grad(critic, obs, action, y), slopes(lambda n: ref.critic_loss(n, obs, action, y), critic))
    s = settings("sac", config("sac", "discrete"))
    at, h, met = -0.7, 1e-6, 1.1
    high, low = (ref.temperature_loss(at + sign * h, met, s) for sign in (1, -1))
    gap = met - s.target
    np.testing.assert_allclose((high - low) / (2 * h), np.exp(at) * gap, rtol=1e-8)
