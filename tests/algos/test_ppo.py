"""Whole updates of PPO, PPO+DGD and PPO-Lagrangian, of numbered and of continuous actions, equal NumPy ones with
hand-written gradients (reference.ppo_numpy)."""

from dataclasses import replace
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import as_type, demo_steps, layers
from reference import ppo_numpy as ref
from scopil.algos import ppo, ppo_lagrangian
from scopil.algos.base import Data, Spaces, TrueCost
from scopil.nn.heads import BoxHead, DiscreteHead
from scopil.nn.nets import GaussianNet
from scopil.registry import find
from scopil.types import Transition

OBS, STEPS, ENVS, SHOWN, BATCH = 3, 6, 2, 9, 4
ROWS = STEPS * ENVS
LOW, HIGH = np.array([-1.0, 0.0]), np.array([3.0, 0.5])
MEAN, VAR = np.array([1.0, 0.0, -1.0]), np.array([4.0, 0.25, 1.0])
COMMON = {
    "hidden": (5,),
    "num_envs": ENVS,
    "rollout_steps": STEPS,
    "batch_size": BATCH,
    "epochs": 2,
    "discount": 0.9,
    "gae_lambda": 0.8,
    "learning_rate": 0.01,
    "entropy_weight": 0.03,
    "value_weight": 0.7,
    "max_grad_norm": 0.8,
    "clip": 0.02,
    "target_kl": 10.0,
}
OWN: dict[str, dict[str, Any]] = {
    "ppo": {},
    "ppo-dgd": {"multiplier_init": 0.8, "multiplier_lr": 0.05, "slack": 0.6, "demo_batch_size": 5},
    "oracle-ppo-lagrangian": {"multiplier_init": 2.0, "budget": 0.2, "cost_discount": 0.7, "cost_gae_lambda": 0.6},
    "oracle-ppo-pid": {"budget": 0.2, "cost_discount": 0.7, "cost_gae_lambda": 0.6, "smoothing": 0.8},
}
PID = (0.0625, 0.5, 2.0)  # before the update: e, I and ν; exact in float32
KINDS = ("numbered", "continuous")


def config(name: str, **changes: Any) -> Any:
    return find(name).config(**COMMON | OWN[name] | changes)


def settings(name: str, cfg: Any) -> ref.Settings:
    s = ref.Settings(
        cfg.discount,
        cfg.gae_lambda,
        cfg.learning_rate,
        cfg.clip,
        cfg.entropy_weight,
        cfg.value_weight,
        cfg.max_grad_norm,
        cfg.kl_margin * cfg.target_kl,
    )
    if name == "ppo":
        return s
    s = replace(s, dual_rate=getattr(cfg, "multiplier_lr", 0.0))
    if name == "ppo-dgd":
        return replace(s, delta=3.0 if cfg.slack is None else cfg.slack, resolution=cfg.action_resolution)
    return replace(s, cost_gamma=cfg.cost_discount, cost_trace=cfg.cost_gae_lambda, budget=cfg.budget)


def head(kind: str) -> Any:
    if kind == "numbered":
        return DiscreteHead(4)
    return BoxHead(jnp.asarray(LOW, jnp.float32), jnp.asarray(HIGH, jnp.float32))


def unit(action: np.ndarray) -> np.ndarray:
    return 2 * (action - LOW) / (HIGH - LOW) - 1


def actions(rng: np.random.Generator, kind: str, *shape: int) -> np.ndarray:
    if kind == "numbered":
        return rng.integers(4, size=shape).astype(np.int32)
    return rng.uniform(LOW, HIGH, (*shape, 2)).astype(np.float32)


def rollout(kind: str) -> dict[str, np.ndarray]:
    """Terminated and truncated steps, and outliers among the observations."""
    rng = np.random.default_rng(0)
    number = np.arange(ROWS).reshape(STEPS, ENVS)
    obs, next_obs = rng.normal(size=(2, STEPS, ENVS, OBS)).astype(np.float32)
    obs[0, 0, 1] = 100.0
    return {
        "obs": obs,
        "action": actions(rng, kind, STEPS, ENVS),
        "reward": rng.normal(size=(STEPS, ENVS)).astype(np.float32),
        "next_obs": next_obs,
        "terminated": number % 5 == 1,
        "truncated": number % 5 == 4,
        "cost": rng.random((STEPS, ENVS)).astype(np.float32),
    }


def demos(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Of continuous actions some at the bounds of the box."""
    rng = np.random.default_rng(1)
    shown = actions(rng, kind, SHOWN)
    if kind == "continuous":
        shown[:3] = [[-1.0, 0.5], [3.0, 0.25], [2.95, 0.001]]
    return rng.normal(size=(SHOWN, OBS)).astype(np.float32), shown


def begin(name: str, kind: str) -> Any:
    with jax.enable_x64(False):
        return _begin(name, kind)


@cache
def _begin(name: str, kind: str) -> Any:
    state = find(name).init(jax.random.key(3), Spaces(OBS, head(kind)), config(name))
    # A nearly uniform policy has small gradients: a larger last layer makes it less uniform.
    actor = state.nets.params.actor
    mlp = actor.mlp if kind == "continuous" else actor
    mlp = eqx.tree_at(lambda m: m.weights[-1], mlp, 30.0 * mlp.weights[-1])
    actor = GaussianNet(mlp, jnp.array([0.2, -0.6])) if kind == "continuous" else mlp
    nets = state.nets.params._replace(actor=actor)
    numbers = (jnp.asarray(x, jnp.float32) for x in (MEAN, VAR, 30.0))
    stats = type(state.obs_stats)(*numbers)
    if name == "oracle-ppo-pid":
        state = state._replace(multiplier=type(state.multiplier)(*(jnp.float32(x) for x in PID)))
    return state._replace(nets=state.nets._replace(params=nets), obs_stats=stats)


def dual_parameter(name: str, state: Any) -> float | None:
    """x with ν = softplus(x); the reference has no other form of ν."""
    if name == "oracle-ppo-pid":
        return float(np.log(np.expm1(float(state.multiplier.value))))
    return float(state.multiplier.params) if name == "oracle-ppo-lagrangian" else None


def twin(name: str, state: Any) -> ref.Learner:
    nets = state.nets.params
    gaussian = isinstance(nets.actor, GaussianNet)
    return ref.Learner(
        actor=layers(nets.actor.mlp if gaussian else nets.actor),
        log_std=np.asarray(nets.actor.log_std, np.float64) if gaussian else None,
        critics=[layers(n) for n in nets[1:]],
        mean=MEAN,
        var=VAR,
        count=30.0,
        lam=float(state.multiplier) if name == "ppo-dgd" else None,
        x=dual_parameter(name, state),
    )


def schedule(name: str, kind: str, cfg: Any, key: Any) -> list[list[ref.Draw]]:
    """The random numbers of `update`: an order per pass, noise and demonstrations per minibatch."""
    out, components = [], 2 if kind == "continuous" else 1
    for epoch in range(cfg.epochs):
        k_order, k_steps = jax.random.split(jax.random.fold_in(jax.random.clone(key), epoch))
        order = np.asarray(jax.random.permutation(k_order, ROWS)).reshape(-1, BATCH)
        draws = []
        for rows, k in zip(order, jax.random.split(k_steps, len(order))):
            shown = None
            if name == "ppo-dgd":
                k_demo, k = jax.random.split(k)
                shown = np.asarray(jax.random.randint(k_demo, (cfg.demo_batch_size,), 0, SHOWN))
            noise = np.asarray(jax.random.normal(k, (BATCH, components)), np.float64)
            draws.append(ref.Draw(rows, noise, shown))
        out.append(draws)
    return out


@cache
def compiled(name: str) -> Any:
    return jax.jit(find(name).update)


def wide(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in arrays.items()}


def both(name: str, kind: str, real: Any, steps: dict[str, np.ndarray], **changes: Any) -> tuple[Any, ...]:
    """One update by scopil and by the twin: state, metrics, learner, log."""
    cfg, key = config(name, **changes), jax.random.key(7)
    state = as_type(begin(name, kind), real)
    learner = twin(name, state)
    shown = demos(kind) if name == "ppo-dgd" else None
    transition = Transition(*(jnp.asarray(v) for k, v in steps.items() if k != "cost"))
    cost = jnp.asarray(steps["cost"])
    data = Data(
        rollout=transition,
        demos=None if shown is None else demo_steps(*shown),
        true_cost=TrueCost(cost, cost[-1]) if "oracle" in name else None,
    )
    after, metrics = compiled(name)(state, as_type(data, real), as_type(cfg, real), jax.random.clone(key))
    seen = wide(steps)
    pairs = None if shown is None else (shown[0].astype(np.float64), shown[1])
    if kind == "continuous":
        seen["action"] = unit(seen["action"])
        pairs = None if pairs is None else (pairs[0], unit(pairs[1].astype(np.float64)))
    log = ref.update(learner, seen, schedule(name, kind, cfg, key), pairs, settings(name, cfg))
    if name == "oracle-ppo-pid":  # ν in place of the reference's own step of it
        e = 0.8 * PID[0] + 0.2 * (float(seen["cost"].mean()) - 0.2)
        nu = 10.0 * e + max(PID[1] + e, 0.0) + 10.0 * max(e - PID[0], 0.0)
        learner.x, log["dual/lambda"] = None, nu
        np.testing.assert_allclose(after.multiplier, [e, PID[1] + e, nu], rtol=1e-5)
    return after, metrics, learner, log


def agree(state: Any, metrics: Any, learner: ref.Learner, log: dict[str, float], tolerance: float) -> None:
    have, want = twin("", state), learner
    near: Any = {"rtol": tolerance, "atol": tolerance}
    for mine, other in zip(have.arrays(), want.arrays(), strict=True):
        np.testing.assert_allclose(mine, other, err_msg="networks", **near)
    np.testing.assert_allclose(state.obs_stats.mean, learner.mean, err_msg="mean", **near)
    np.testing.assert_allclose(state.obs_stats.var, learner.var, err_msg="variance", **near)
    if learner.lam is not None:
        np.testing.assert_allclose(state.multiplier, learner.lam, err_msg="λ", **near)
    if learner.x is not None:
        np.testing.assert_allclose(state.multiplier.params, learner.x, err_msg="x", **near)
    assert metrics.keys() == log.keys()
    for name, value in log.items():
        digits = max(tolerance, 1e-7) if metrics[name].dtype == jnp.float32 else tolerance
        np.testing.assert_allclose(metrics[name], value, err_msg=name, rtol=digits, atol=digits)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OWN)
def test_in_double_precision_whole_updates_equal_the_hand_written_ones(name, kind):
    """Two passes of three minibatches; a learned deviation, bounds of the box and outliers among the data."""
    steps = rollout(kind)
    if kind == "continuous":
        steps["action"][:3, 0] = [[-1.0, 0.5], [2.9999, 0.0], [3.0, 0.4999]]  # at and near the bounds
    with jax.enable_x64(True):
        done = both(name, kind, jnp.float64, steps)
        # The mass of an interval comes from a fit that is right to 4e-8.
        agree(*done, tolerance=1e-6 if (name, kind) == ("ppo-dgd", "continuous") else 1e-9)
    assert done[3]["policy/clipped"] > 0  # so that the clip is seen


@pytest.mark.parametrize("name", [n if n == "ppo-dgd" else pytest.param(n, marks=pytest.mark.slow) for n in OWN])
def test_in_single_precision_too(name):
    agree(*both(name, "continuous", jnp.float32, rollout("continuous")), tolerance=1e-5)


@pytest.mark.parametrize(("share", "made"), [(0.9, 1.0), (1.1, 2.0)])
def test_a_policy_that_moved_too_far_gets_no_further_pass(share, made):
    """The bound lies a little below or above the first pass's KL."""
    steps, cfg = rollout("continuous"), config("ppo", learning_rate=0.1)
    likeliest = ppo.policy(begin("ppo", "continuous")).act(jnp.asarray(steps["obs"]))
    steps["action"] = np.asarray(likeliest)  # which a moved policy does less often
    with jax.enable_x64(True):
        learner = twin("ppo", as_type(begin("ppo", "continuous"), jnp.float64))
        first = schedule("ppo", "continuous", cfg, jax.random.key(7))[:1]
        kl = ref.update(learner, wide(steps) | {"action": unit(steps["action"])}, first, None, settings("ppo", cfg))[
            "policy/kl"
        ]
        assert kl > 0
        done = both("ppo", "continuous", jnp.float64, steps, learning_rate=0.1, target_kl=share * kl / cfg.kl_margin)
        agree(*done, tolerance=1e-9)
    assert done[3]["policy/epochs"] == made


def test_the_comparison_distinguishes_other_settings():
    with jax.enable_x64(True):
        steps = rollout("continuous")
        after, metrics, _, _ = both("ppo", "continuous", jnp.float64, steps)
        for changes in ({"entropy_weight": 0.0}, {"clip": 0.5}, {"gae_lambda": 0.9}):
            *_, learner, log = both("ppo", "continuous", jnp.float64, steps, **changes)
            with pytest.raises(AssertionError, match="networks"):
                agree(after, metrics, learner, log, tolerance=1e-5)


@pytest.mark.parametrize("max_grad_norm", [0.1, 100.0])
def test_long_gradients_are_scaled_down_and_short_ones_are_not(max_grad_norm):
    with jax.enable_x64(True):
        agree(*both("ppo", "numbered", jnp.float64, rollout("numbered"), max_grad_norm=max_grad_norm), tolerance=1e-9)


def test_the_default_slack_is_per_component():
    with jax.enable_x64(True):
        after, metrics, learner, log = both("ppo-dgd", "continuous", jnp.float64, rollout("continuous"), slack=None)
        agree(after, metrics, learner, log, tolerance=1e-6)


def test_the_multiplier_of_ppo_dgd_is_projected_to_zero():
    changes = {"multiplier_init": 0.01, "multiplier_lr": 1.0, "slack": 50.0}
    with jax.enable_x64(True):
        after, metrics, learner, log = both("ppo-dgd", "numbered", jnp.float64, rollout("numbered"), **changes)
        agree(after, metrics, learner, log, tolerance=1e-9)
    assert log["dual/constraint"] < 0
    assert learner.lam == 0.0


def test_the_multiplier_of_ppo_lagrangian_falls_below_the_budget():
    with jax.enable_x64(True):
        done = both("oracle-ppo-lagrangian", "numbered", jnp.float64, rollout("numbered"), budget=5.0)
        agree(*done, tolerance=1e-9)
    assert done[3]["dual/lambda"] < OWN["oracle-ppo-lagrangian"]["multiplier_init"]


def test_a_known_cost_function_is_the_same_as_the_true_cost():
    def cost(obs, action):
        return jnp.where(action == 1, 1.0, 0.0) + 0.1 * jnp.abs(obs[..., 0])

    name, steps = "oracle-ppo-lagrangian", rollout("numbered")
    cfg, state = config(name), begin(name, "numbered")
    step = Transition(*(jnp.asarray(v) for k, v in steps.items() if k != "cost"))
    costs = cost(step.obs, step.action)
    mine = ppo_lagrangian.under(cost)
    assert "true_cost" not in mine.wants
    assert mine.learned_cost is not None
    np.testing.assert_array_equal(mine.learned_cost(state, step.obs, step.action), costs)
    a = jax.jit(mine.update)(state, Data(rollout=step), cfg, jax.random.key(0))
    b = compiled(name)(state, Data(rollout=step, true_cost=TrueCost(costs, costs[-1])), cfg, jax.random.key(0))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), a, b)


# --- the hand-written gradients themselves -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OWN)
def test_the_hand_written_gradients_are_slopes(name, kind):
    cfg = config(name)
    s = settings(name, cfg)
    learner = twin(name, begin(name, kind))
    steps = wide(rollout(kind))
    shown = demos(kind)
    demo = (learner.see(shown[0].astype(np.float64)), shown[1])
    if kind == "continuous":
        steps["action"] = unit(steps["action"])
        demo = (demo[0], unit(shown[1].astype(np.float64)))
    mini = ref.prepare(learner, steps, s)
    mini["log_prob"] = mini["log_prob"] + np.random.default_rng(5).normal(0, 0.1, ROWS)  # ratios that differ from 1
    noise = np.random.default_rng(6).normal(size=(ROWS, 2))
    pairs = demo if name == "ppo-dgd" else None
    _, grads, log = ref.loss(learner, mini, noise, pairs, s)
    assert 0 < log["policy/clipped"] < 1
    arrays, h = learner.arrays(), 1e-6
    for array, grad in zip(arrays, grads, strict=True):
        for at in np.ndindex(array.shape):
            kept, ends = array[at], []
            for sign in (1, -1):
                array[at] = kept + sign * h
                ends.append(ref.loss(learner, mini, noise, pairs, s)[0])
            array[at] = kept
            np.testing.assert_allclose(grad[at], (ends[0] - ends[1]) / (2 * h), rtol=1e-5, atol=1e-8)


# --- networks ------------------------------------------------------------------------------------------------------


def test_a_fresh_policy_is_nearly_uniform():
    """Orthogonal layers: tests/nn/test_nets.py. The gain of the head is 0.01 for the policy and 1 for the critic."""
    state = ppo.init(jax.random.key(3), Spaces(8, DiscreteHead(4)), ppo.Config(hidden=(16, 16)))
    nets = jax.tree.map(np.asarray, state.nets.params)
    for net, gain in ((nets.actor, 0.01), (nets.critic, 1.0)):
        assert np.linalg.norm(net.weights[-1], ord=2) == pytest.approx(gain, rel=1e-4)
    pi: Any = ppo.policy(state).distribution(jnp.ones((5, 8)))
    np.testing.assert_allclose(pi.probs, 0.25, atol=0.02)


def test_a_fresh_policy_is_nearly_a_standard_normal_and_the_same_everywhere():
    cfg = ppo.Config(hidden=(16,))
    state = ppo.init(jax.random.key(0), Spaces(8, head("continuous")), cfg)
    pi: Any = ppo.policy(state).distribution(jax.random.normal(jax.random.key(1), (20, 8)))
    np.testing.assert_allclose(pi.mean, 0.0, atol=0.1)
    np.testing.assert_array_equal(np.asarray(pi.log_std).std(0), 0.0)
    assert float(jnp.abs(pi.log_std).max()) < 0.1  # the bend is nearly the identity there


def test_statistics_do_not_change_within_a_rollout():
    """What the networks saw while they played is what they learn from: ρ = 1 before the first step."""
    steps = rollout("continuous")
    state, cfg = begin("ppo", "continuous"), config("ppo", learning_rate=0.0)
    step = Transition(*(jnp.asarray(v) for k, v in steps.items() if k != "cost"))
    data = Data(rollout=step)
    after, metrics = compiled("ppo")(state, data, cfg, jax.random.key(0))
    assert float(metrics["policy/kl"]) == pytest.approx(0.0, abs=1e-6)
    assert not np.allclose(after.obs_stats.mean, state.obs_stats.mean)
    pi = ppo.policy(state).distribution(step.obs)
    batch, _ = ppo.prepare(state, ppo.preprocess(state, data), cfg)
    expected = pi.log_prob(state.head.to_learner(step.action))
    np.testing.assert_allclose(batch.log_prob, jnp.ravel(expected), rtol=1e-6)
