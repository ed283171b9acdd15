"""VICRL: backward phases and the drawn cost against NumPy and SciPy, a closed-form posterior, and a control."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from probes import as_type, layers
from reference import icrl_numpy, squashed_numpy
from reference import soft_numpy as ref
from scopil.algos import ppo_lagrangian, vicrl
from scopil.algos.base import Data, PaddedEpisodes, Spaces
from scopil.nn.heads import BoxHead, DiscreteHead
from scopil.types import Transition

QUICK = {"xla_backend_optimization_level": 0}  # compile time is most of these tests
OBS, ACTIONS, T = 2, 3, 8
HEADS: dict[str, Any] = {"numbered": DiscreteHead(ACTIONS), "continuous": BoxHead(-jnp.ones(2), 3 * jnp.ones(2))}
SIZES: dict[str, Any] = {"hidden": (4,), "constraint_hidden": (5,), "num_envs": 2, "constraint_lr": 0.02}
PRIOR = (0.9, 0.1)


def episodes(seed: int, count: int, kind: str) -> PaddedEpisodes:
    """Episodes of different lengths; the padding holds extreme values, so that a missing mask shows."""
    rng = np.random.default_rng(seed)
    mask = np.arange(T) < rng.integers(3, T + 1, size=(count, 1))
    obs = np.where(mask[..., None], rng.normal(size=(count, T, OBS)), 1e6)
    action = rng.integers(ACTIONS, size=(count, T)).astype(np.int32)
    if kind == "continuous":
        action = np.where(mask[..., None], rng.uniform(-1, 3, (count, T, 2)), 1e3)
    return PaddedEpisodes(jnp.asarray(obs), jnp.asarray(action), jnp.asarray(mask))


# --- the twin: a gamma variate is the quantile function at a fixed probability, gradients are finite differences -----


def parameters(net: ref.Net, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """(α, β), rows of pairs."""
    seen = np.clip((action - 1.0) / 2.0, -1.0, 1.0) if action.ndim > 1 else action  # the box [−1, 3] as [−1, 1]
    return np.log1p(np.exp(ref.forward(net, icrl_numpy.inputs(net, obs, seen))[0])).T + 1e-4


def flat(played: PaddedEpisodes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    obs, action, mask = (np.asarray(leaf) for leaf in played)
    return obs.reshape(-1, OBS), action.reshape(-1, *action.shape[2:]), mask.reshape(-1)


class Draw:
    """Pairs with the probability of each gamma variate, given the variates at some parameters."""

    def __init__(self, net: ref.Net, played: PaddedEpisodes, key: Any):
        obs, action, mask = flat(played)
        here = parameters(net, obs, action)
        shape = (2, *played.mask.shape)
        variates = np.exp(np.asarray(jax.random.loggamma(key, jnp.asarray(here.reshape(shape))))).reshape(2, -1)
        self.obs, self.action, self.mask = obs[mask], action[mask], mask
        self.low, self.high = (f(here, variates)[:, mask] for f in (special.gammainc, special.gammaincc))

    def zeta(self, net: ref.Net) -> np.ndarray:
        a = parameters(net, self.obs, self.action)
        below, above = special.gammaincinv(a, self.low), special.gammainccinv(a, self.high)
        g = np.where(self.low < 0.5, below, above)  # the more precise tail
        return g[0] / g.sum(0)

    def kl(self, net: ref.Net) -> float:
        """∫ q log q/p, without its closed form: moments of log ζ and log(1 − ζ) by SciPy's digamma."""
        a, b = parameters(net, self.obs, self.action)
        log_zeta, log_rest = (special.digamma(x) - special.digamma(a + b) for x in (a, b))
        log_q = (a - 1) * log_zeta + (b - 1) * log_rest - special.betaln(a, b)
        log_p = (PRIOR[0] - 1) * log_zeta + (PRIOR[1] - 1) * log_rest - special.betaln(*PRIOR)
        return float((log_q - log_p).mean())


def loss(net: ref.Net, expert: Draw, own: Draw, rho: float) -> float:
    fit = np.log(own.zeta(net) + 1e-5).mean() - np.log(expert.zeta(net) + 1e-5).mean()
    return float(fit + rho * (expert.kl(net) + own.kl(net)))


@pytest.mark.parametrize("kind", HEADS)
def test_a_backward_phase_equals_numpys(kind, monkeypatch):
    """Two steps: losses, and networks after Adam on gradients through the drawn ζ."""
    monkeypatch.setattr(ref, "EPS", 1e-5)
    cfg = vicrl.Config(**SIZES, backward_iters=2, regulariser=0.3, constraint_lr_decay=0.5)
    with jax.enable_x64(True):
        head = as_type(HEADS[kind], float)
        state = as_type(vicrl.init(jax.random.key(0), Spaces(OBS, head), cfg), float)
        expert, nominal = episodes(1, 4, kind), episodes(2, 6, kind)
        key = jax.random.key(5)
        backward = jax.jit(vicrl.backward, compiler_options=QUICK)
        after, metrics = backward(state, expert, nominal, cfg, jnp.int32(1), jax.random.clone(key))
        net = layers(state.constraint.params)
        zeros = [np.zeros_like(a) for a in ref.flat(net)]
        adam, drawn, value, kl = ref.Adam([*zeros], [*zeros]), (), 0.0, 0.0
        for k in jax.random.split(key, 2):
            k_expert, k_own = jax.random.split(k)
            drawn = Draw(net, expert, k_expert), Draw(net, nominal, k_own)
            value = loss(net, *drawn, 0.3)
            kl = drawn[0].kl(net) + drawn[1].kl(net)
            grads = squashed_numpy.slopes(lambda n, d=drawn: loss(n, *d, 0.3), net)
            net = ref.unflat(adam.step(ref.flat(net), grads, 0.01))
        assert float(metrics["constraint/loss"]) == pytest.approx(value, rel=1e-5)
        assert float(metrics["constraint/prior_kl"]) == pytest.approx(kl, rel=1e-5)
        for a, b in zip(ref.flat(layers(after.constraint.params)), ref.flat(net), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        for name, part in zip(("expert", "nominal"), drawn, strict=True):
            a, b = parameters(net, part.obs, part.action)
            assert float(metrics[f"constraint/{name}_cost"]) == pytest.approx((b / (a + b)).mean(), rel=1e-5)


def test_the_drawn_cost_has_a_beta_distribution(getkey):
    z = vicrl.draw_logit(getkey(), jnp.broadcast_to(jnp.array([[1.5], [0.4]]), (2, 20_000)))
    assert stats.kstest(np.asarray(jax.nn.sigmoid(z)), stats.beta(1.5, 0.4).cdf).pvalue > 1e-3
    assert stats.kstest(np.asarray(jax.nn.sigmoid(z)), stats.beta(1.5, 0.5).cdf).pvalue < 1e-6  # the test can fail


@pytest.mark.parametrize("extreme", [-200.0, 200.0])
def test_extreme_outputs_have_finite_losses_and_gradients(extreme, getkey):
    def value(raw: jax.Array) -> jax.Array:
        both = jax.nn.softplus(raw) + vicrl.FLOOR
        z = vicrl.draw_logit(jax.random.key(0), both)
        return (jax.nn.log_sigmoid(z) + vicrl.prior_kl(both, vicrl.Config())).sum()

    for raw in ([[extreme], [extreme]], [[extreme], [0.0]], [[0.0], [extreme]]):
        assert np.isfinite(jax.value_and_grad(value)(jnp.array(raw))[1]).all()


@pytest.mark.parametrize("kind", HEADS)
def test_an_update_is_ppo_lagrangians_under_the_drawn_cost_and_learns_when_due(kind):
    changes: dict[str, Any] = {"rollout_steps": 4, "batch_size": 8, "epochs": 1, "forward_steps": 16, "rollouts": 3}
    cfg = vicrl.Config(**SIZES | changes, backward_iters=2)
    rng = np.random.default_rng(0)
    obs, after = jnp.asarray(rng.normal(size=(2, 4, 2, OBS)), jnp.float32)
    action: Any = jnp.asarray(rng.integers(ACTIONS, size=(4, 2)), jnp.int32)
    if kind == "continuous":
        action = jnp.asarray(rng.uniform(-1, 3, (4, 2, 2)), jnp.float32)
    no = jnp.zeros((4, 2), bool)
    step = Transition(obs, action, jnp.asarray(rng.normal(size=(4, 2)), jnp.float32), after, no, no)
    real = as_type(episodes(1, 4, kind), jnp.float32)

    def play(policy, key, count):
        return PaddedEpisodes(*(leaf[:count] for leaf in real))

    data = Data(rollout=step, demo_episodes=real, play=play)
    update = jax.jit(lambda state, key: vicrl.update(state, data, cfg, key), compiler_options=QUICK)
    state = vicrl.init(jax.random.key(0), Spaces(OBS, HEADS[kind]), cfg)
    for i in range(2):
        before, key = state, jax.random.key(i)
        k_cost, k_forward, _, _ = jax.random.split(jax.random.clone(key), 4)
        both = parameters(layers(before.constraint.params), *flat(PaddedEpisodes(obs, action, no))[:2])
        variates = jax.random.loggamma(k_cost, jnp.asarray(both.reshape(2, 4, 2), jnp.float32))
        cost = 1 / (1 + np.exp(np.asarray(variates[0] - variates[1], float)))
        state, metrics = update(state, key)
        assert float(metrics["cost/mean"]) == pytest.approx(cost.mean(), rel=1e-4)
        want, _ = ppo_lagrangian.update_under(jnp.asarray(cost, jnp.float32), before, data, cfg, k_forward)
        for a, b in zip(jax.tree.leaves(state.nets.params), jax.tree.leaves(want.nets.params)):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        moved = not np.array_equal(state.constraint.params.weights[0], before.constraint.params.weights[0])
        assert moved == (i == 1)
        assert float(metrics["constraint/phases"]) == i
        assert float(metrics["constraint/all_steps"]) == 2 * i


@pytest.mark.slow
def test_it_learns_the_posterior_of_each_action_and_nothing_from_a_policy_like_the_expert():
    """One state. The shares u and v of an action among experts and policy give α = α₀ + (u − v) / (ρ (u + v)), β = β₀:
    the Beta with the least loss. Where the shares are equal, the prior remains."""
    prior: dict[str, Any] = {"prior_alpha": 2.0, "prior_beta": 1.0, "regulariser": 1.0, "backward_iters": 2_000}
    cfg = vicrl.Config(**SIZES | {"constraint_hidden": (16,), "constraint_lr": 3e-3}, **prior)
    state = vicrl.init(jax.random.key(0), Spaces(OBS, HEADS["numbered"]), cfg)

    def cycling(actions: int) -> PaddedEpisodes:
        action = jnp.broadcast_to(jnp.arange(12) % actions, (32, 12))
        return PaddedEpisodes(jnp.zeros((32, 12, OBS)), action, jnp.ones((32, 12), bool))

    program = jax.jit(lambda own: vicrl.backward(state, cycling(2), own, cfg, jnp.int32(0), jax.random.key(1))[0])

    def costs(actions: int) -> np.ndarray:
        return np.asarray(vicrl.cost(program(cycling(actions)), jnp.zeros((ACTIONS, OBS)), jnp.arange(ACTIONS)))

    alpha = 2.0 + np.array([1 / 5, 1 / 5, -1.0])  # shares ½, ½, 0 and ⅓, ⅓, ⅓
    np.testing.assert_allclose(costs(3), 1 / (alpha + 1), atol=0.05)
    np.testing.assert_allclose(costs(2)[:2], 1 / 3, atol=0.05)  # the control
