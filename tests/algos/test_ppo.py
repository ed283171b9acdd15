"""One minibatch of PPO, PPO+DGD and PPO-Lagrangian equals NumPy with numerical gradients (reference.ppo_numpy).

Whole updates, and continuous actions: test_ppo_update.py."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import demo_steps
from reference import ppo_numpy as ref
from scopil.algos import ppo, ppo_lagrangian
from scopil.algos.base import Data, Spaces, TrueCost
from scopil.nn.heads import DiscreteHead
from scopil.registry import find
from scopil.types import Transition

QUICK = {"xla_backend_optimization_level": 0}  # compile time is most of these tests
OBS, ACTIONS, STEPS, ENVS = 3, 4, 6, 2
COMMON = {
    "hidden": (5,),
    "num_envs": ENVS,
    "rollout_steps": STEPS,
    "batch_size": STEPS * ENVS,  # one minibatch
    "epochs": 1,
    "discount": 0.9,
    "gae_lambda": 0.8,
    "learning_rate": 0.01,
    "entropy_weight": 0.03,
    "value_weight": 0.7,
    "max_grad_norm": 0.4,
    "clip": 0.1,
}


MEAN, VAR = np.array([0.3, -0.2, 0.1]), np.array([4.0, 0.25, 1.0])  # of earlier observations


def rollout(costs: bool = False) -> Data:
    """Made up, with endings of both kinds."""
    rng = np.random.default_rng(0)
    obs, next_obs, *_ = jnp.asarray(rng.normal(size=(4, STEPS, ENVS, OBS)), jnp.float32)
    terminated = rng.random((STEPS, ENVS)) < 0.2
    truncated = (rng.random((STEPS, ENVS)) < 0.3) & ~terminated
    assert terminated.any()
    assert truncated.any()
    step = Transition(
        obs,
        jnp.asarray(rng.integers(ACTIONS, size=(STEPS, ENVS)), jnp.int32),
        jnp.asarray(rng.normal(size=(STEPS, ENVS)), jnp.float32),
        next_obs,
        jnp.asarray(terminated),
        jnp.asarray(truncated),
    )
    cost = jnp.asarray(rng.random((STEPS, ENVS)), jnp.float32)
    return Data(rollout=step, true_cost=TrueCost(cost, cost[-1]) if costs else None)


def normalised(obs: Any) -> np.ndarray:
    return (np.asarray(obs, np.float64) - MEAN) / np.sqrt(VAR + 1e-8)


def layers(net: Any) -> ref.Net:
    return [(np.asarray(w, np.float64).T, np.asarray(b, np.float64)) for w, b in zip(net.weights, net.biases)]


def begin(name: str, **changes: Any) -> tuple[Any, Any]:
    cfg = find(name).config(**COMMON | changes)
    state = fresh(name, cfg, Spaces(OBS, DiscreteHead(ACTIONS)))
    # A policy that is sure of nothing has small gradients everywhere: make it take sides.
    head = lambda nets: nets.actor.weights[-1]  # noqa: E731
    nets = eqx.tree_at(head, state.nets.params, 30.0 * head(state.nets.params))
    stats = state.obs_stats._replace(mean=jnp.asarray(MEAN, jnp.float32), var=jnp.asarray(VAR, jnp.float32))
    return state._replace(nets=state.nets._replace(params=nets), obs_stats=stats), cfg


def fresh(name: str, cfg: Any, spaces: Spaces) -> Any:
    return find(name).init(jax.random.key(3), spaces, cfg)


def batch_of(data: Data, nets: dict[str, ref.Net], cfg: Any) -> dict[str, np.ndarray]:
    """Scaled signals, advantages, targets and π_old in NumPy, flattened."""
    t = jax.tree.map(np.asarray, data.rollout)
    ended = t.terminated | t.truncated
    seen, next_seen = normalised(t.obs), normalised(t.next_obs)
    out = {"seen": seen, "action": t.action}
    signals = {"": ("critic", t.reward, cfg.discount, cfg.gae_lambda)}
    if data.true_cost is not None:
        signals["cost_"] = ("cost_critic", data.true_cost.batch, cfg.cost_discount, cfg.cost_gae_lambda)
    for prefix, (critic, signal, gamma, lam) in signals.items():
        value, next_value = (ref.forward(nets[critic], x)[..., 0] for x in (seen, next_seen))
        scaled = ref.scaled(np.asarray(signal, np.float64), ended, gamma)
        out[prefix + "advantage"] = ref.advantages(scaled, value, next_value, t.terminated, t.truncated, gamma, lam)
        out[prefix + "target"] = out[prefix + "advantage"] + value
    log_pi = ref.log_softmax(ref.forward(nets["actor"], seen))
    out["log_prob"] = np.take_along_axis(log_pi, t.action[..., None], -1)[..., 0]
    out.setdefault("cost_advantage", np.zeros_like(out["advantage"]))
    return {k: v.reshape(STEPS * ENVS, *v.shape[2:]) for k, v in out.items()}


def parts(state: Any) -> dict[str, ref.Net]:
    return {k: layers(v) for k, v in state.nets.params._asdict().items()}


def ppo_loss(nets: list[ref.Net], batch: dict[str, np.ndarray], cfg: Any, nu: float | None = None) -> float:
    terms = ref.policy_terms(nets[0], batch, cfg.clip)
    value = ref.value_loss(nets[1], batch["seen"], batch["target"])
    policy = -terms["objective"]
    if nu is not None:
        value += ref.value_loss(nets[2], batch["seen"], batch["cost_target"])
        policy = (policy + nu * terms["harm"]) / (1 + nu)
    return policy - cfg.entropy_weight * terms["entropy"] + cfg.value_weight * value


def same(state: Any, wanted: list[ref.Net]) -> None:
    got, _ = ref.flatten(list(parts(state).values()))
    want, _ = ref.flatten(wanted)
    np.testing.assert_allclose(got, want, atol=2e-5)


def jitted(name: str) -> Any:
    return jax.jit(find(name).update, compiler_options=QUICK)


@pytest.mark.parametrize("max_grad_norm", [0.4, 100.0])
def test_ppo(max_grad_norm):
    state, cfg = begin("ppo", max_grad_norm=max_grad_norm)
    before = parts(state)
    batch = batch_of(rollout(), before, cfg)
    after, metrics = jitted("ppo")(state, rollout(), cfg, jax.random.key(0))
    loss = partial(ppo_loss, batch=batch, cfg=cfg)
    same(after, ref.adam_step(loss, list(before.values()), cfg.learning_rate, max_grad_norm))
    terms = ref.policy_terms(before["actor"], batch, cfg.clip)
    for name in ("objective", "entropy", "kl"):
        np.testing.assert_allclose(metrics[f"policy/{name}"], terms[name], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        metrics["critic/loss"], ref.value_loss(before["critic"], batch["seen"], batch["target"]), rtol=1e-4
    )


def test_ppo_dgd():
    """One demonstrated pair, so that every draw of demonstrations is the same."""
    state, cfg = begin("ppo-dgd", multiplier_init=0.8, multiplier_lr=0.05, slack=0.3, demo_batch_size=7)
    obs, action = np.array([[0.5, -1.0, 2.0]]), np.array([2])
    seen = normalised(obs)
    before = parts(state)
    batch = batch_of(rollout(), before, cfg)
    data = rollout()._replace(demos=demo_steps(obs.astype(np.float32), action.astype(np.int32)))
    after, metrics = jitted("ppo-dgd")(state, data, cfg, jax.random.key(0))

    def lagrangian(nets):
        return ppo_loss(nets, batch, cfg) + 0.8 * (ref.demo_nll(nets[0], seen, action) - 0.3)

    wanted = ref.adam_step(lagrangian, list(before.values()), cfg.learning_rate, cfg.max_grad_norm)
    same(after, wanted)
    g = ref.demo_nll(wanted[0], seen, action) - 0.3
    np.testing.assert_allclose(metrics["dual/constraint"], g, rtol=1e-4)
    np.testing.assert_allclose(after.multiplier, 0.8 + 0.05 * g, rtol=1e-5)


def test_a_kept_constraint_lets_the_multiplier_fall_to_zero_and_no_further():
    state, cfg = begin("ppo-dgd", multiplier_init=0.01, multiplier_lr=1.0, slack=50.0, demo_batch_size=4)
    data = rollout()._replace(demos=demo_steps(jnp.zeros((3, OBS)), jnp.zeros(3, jnp.int32)))
    after, metrics = jitted("ppo-dgd")(state, data, cfg, jax.random.key(0))
    assert float(metrics["dual/constraint"]) < 0
    assert float(after.multiplier) == 0.0


def test_ppo_lagrangian_with_the_true_cost():
    name = "oracle-ppo-lagrangian"
    state, cfg = begin(name, multiplier_init=2.0, multiplier_lr=0.1, budget=0.2, cost_discount=0.7, cost_gae_lambda=0.6)
    before, data = parts(state), rollout(costs=True)
    after, metrics = jitted(name)(state, data, cfg, jax.random.key(0))
    assert data.true_cost is not None
    mean_cost = np.mean(data.true_cost.batch)
    loss = partial(ppo_loss, batch=batch_of(data, before, cfg), cfg=cfg, nu=2.0)
    same(after, ref.adam_step(loss, list(before.values()), cfg.learning_rate, cfg.max_grad_norm))
    # ν = softplus(x) after the first Adam step of rate 0.1 uphill: mean cost is above the budget
    np.testing.assert_allclose(metrics["cost/mean"], mean_cost, rtol=1e-6)
    assert mean_cost > 0.2
    x = np.log(np.expm1(2.0)) + 0.1
    np.testing.assert_allclose(metrics["dual/lambda"], np.log1p(np.exp(x)), rtol=1e-5)


def test_the_multiplier_falls_when_the_budget_is_not_used():
    name = "oracle-ppo-lagrangian"
    state, cfg = begin(name, multiplier_init=2.0, budget=5.0)
    _, metrics = jitted(name)(state, rollout(costs=True), cfg, jax.random.key(0))
    np.testing.assert_allclose(metrics["dual/lambda"], np.log1p(np.exp(np.log(np.expm1(2.0)) - 0.1)), rtol=1e-5)


def test_a_cost_function_of_ones_own_is_the_same_as_the_true_cost():
    name = "oracle-ppo-lagrangian"
    state, cfg = begin(name)

    def cost(obs, action):
        return jnp.where(action == 1, 1.0, 0.0) + 0.1 * jnp.abs(obs[..., 0])

    data = rollout()
    assert data.rollout is not None
    costs = cost(data.rollout.obs, data.rollout.action)
    mine = ppo_lagrangian.under(cost)
    assert "true_cost" not in mine.wants
    assert mine.learned_cost is not None
    np.testing.assert_array_equal(mine.learned_cost(state, data.rollout.obs, data.rollout.action), costs)
    a = jax.jit(mine.update, compiler_options=QUICK)(state, data, cfg, jax.random.key(0))
    b = jitted(name)(state, data._replace(true_cost=TrueCost(costs, costs[-1])), cfg, jax.random.key(0))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), a, b)


def test_fresh_networks_are_orthogonal_and_policies_nearly_uniform():
    cfg = ppo.Config(hidden=(16, 16))
    state = fresh("ppo", cfg, Spaces(8, DiscreteHead(4)))
    nets = jax.tree.map(np.asarray, state.nets.params)
    for net, gain in ((nets.actor, 0.01), (nets.critic, 1.0)):
        for w, wanted in zip(net.weights, (2**0.5, 2**0.5, gain)):
            short = min(w.shape)
            gram = w @ w.T if w.shape[0] == short else w.T @ w
            np.testing.assert_allclose(gram, wanted**2 * np.eye(short), atol=1e-5)
        assert not any(np.any(b) for b in net.biases)
    pi: Any = ppo.policy(state).distribution(jnp.ones((5, 8)))
    np.testing.assert_allclose(pi.probs, 0.25, atol=0.02)
