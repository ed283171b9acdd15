"""The constraint network's loss, weights and KLs against plain NumPy, and at lengths where products overflow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import layers
from reference import icrl_numpy as ref
from scopil.losses import constraint_net as cn

LENGTHS = (3, 7, 5, 1)
OBS, ACTIONS = 4, 3


def episodes(seed: int, lengths=LENGTHS):
    rng = np.random.default_rng(seed)
    return [(rng.normal(0, 15, (n, OBS)).astype(np.float32), rng.integers(ACTIONS, size=n)) for n in lengths]


def pad(rows, longest: int):
    return jnp.asarray(np.stack([np.resize(r, (longest, *r.shape[1:])) for r in rows]))


def padded(trajectories):
    """Arrays and mask; the padding repeats real rows, so that a missing mask shows."""
    longest = max(len(a) for _, a in trajectories) + 2
    mask = jnp.asarray(np.stack([np.arange(longest) < len(a) for _, a in trajectories]))
    return pad([o for o, _ in trajectories], longest), pad([a for _, a in trajectories], longest), mask


@pytest.fixture(scope="module")
def nets():
    """Old and new, a little apart in every weight."""
    old = cn.constraint_net(OBS, ACTIONS, (6, 5), jax.random.key(0))
    rng = np.random.default_rng(3)
    new = jax.tree.map(lambda x: x + jnp.asarray(rng.normal(0, 0.05, x.shape), x.dtype), old)
    return old, new


def test_cost_of_a_pair(nets):
    _, (obs, action), *_ = episodes(0)
    assert np.abs(obs).max() > 20  # so that the clip is seen
    z = cn.logit(nets[0], jnp.asarray(obs), jnp.asarray(action))
    zeta = ref.zeta(layers(nets[0]), obs.astype(np.float64), action)
    np.testing.assert_allclose(cn.cost(z), 1 - zeta, rtol=1e-4)
    np.testing.assert_allclose(cn.log_zeta(z), np.log(zeta + 1e-5), rtol=1e-4, atol=1e-6)


def test_continuous_actions_are_inputs_of_the_network(nets):
    rng = np.random.default_rng(4)
    obs, action = rng.normal(0, 15, (2, 7, OBS)).astype(np.float32), rng.normal(0, 2, (2, 7, ACTIONS))
    z = cn.logit(nets[0], jnp.asarray(obs), jnp.asarray(action, jnp.float32))
    wide = (obs.astype(np.float64).reshape(-1, OBS), action.astype(np.float32).astype(np.float64).reshape(-1, ACTIONS))
    zeta = ref.zeta(layers(nets[0]), *wide).reshape(2, 7)
    np.testing.assert_allclose(cn.cost(z), 1 - zeta, rtol=1e-4)


def test_the_cost_depends_on_the_action(nets):
    """The published code drops the columns of the action if there are as many observations."""
    obs = jnp.zeros((ACTIONS, OBS))
    costs = cn.cost(cn.logit(nets[0], obs, jnp.arange(ACTIONS)))
    assert len(set(np.asarray(costs).tolist())) == ACTIONS


def test_loss_weights_and_kls_equal_the_reference(nets):
    old, new = nets
    expert, nominal = episodes(1, (4, 6)), episodes(2)
    e_obs, e_act, e_mask = padded(expert)
    n_obs, n_act, n_mask = padded(nominal)
    z_old, z_new = cn.logit(old, n_obs, n_act), cn.logit(new, n_obs, n_act)
    log_ratio = cn.log_ratios(z_new, z_old, n_mask)
    w = cn.importance_weights(log_ratio)
    got = cn.loss(cn.logit(new, e_obs, e_act), e_mask, z_new, n_mask, w, 0.5)

    def zetas(net, trajectories):
        return [ref.zeta(layers(net), o.astype(np.float64), a) for o, a in trajectories]

    p = ref.products(zetas(new, nominal), zetas(old, nominal))
    assert p.std() > 0.01  # weights that differ
    np.testing.assert_allclose(np.exp(log_ratio), p, rtol=1e-3)
    np.testing.assert_allclose(w, ref.weights(p), rtol=1e-3)
    np.testing.assert_allclose(cn.forward_kl(log_ratio), ref.kl_forward(p), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(cn.reverse_kl(log_ratio), ref.kl_reverse(p), rtol=1e-2, atol=1e-5)
    wanted = ref.loss(zetas(new, expert), zetas(new, nominal), ref.weights(p), 0.5)
    np.testing.assert_allclose(got, wanted, rtol=1e-4)


def test_float64_agrees_to_many_digits():
    """The formulas without float32's rounding: only the e in the authors' weights is left out on both sides."""
    rng = np.random.default_rng(0)
    z_old, z_new = rng.normal(0, 2, (2, 5, 9))
    with jax.enable_x64(True):
        log_ratio = cn.log_ratios(jnp.asarray(z_new), jnp.asarray(z_old), jnp.ones((5, 9), bool))
        p = ref.products(list(ref.sigmoid(z_new)), list(ref.sigmoid(z_old)))
        np.testing.assert_allclose(cn.importance_weights(log_ratio), ref.weights(p), rtol=1e-10)
        np.testing.assert_allclose(cn.forward_kl(log_ratio), ref.kl_forward(p), rtol=1e-10)
        np.testing.assert_allclose(cn.reverse_kl(log_ratio), ref.kl_reverse(p), rtol=1e-10)


def test_the_weights_carry_no_gradient():
    z = jnp.array([[0.3, -0.2], [0.1, 0.4]])
    mask = jnp.ones((2, 2), bool)

    def loss(z, w):
        return cn.loss(z, mask, z, mask, w, 0.1)

    through = jax.jit(jax.grad(lambda z: loss(z, cn.importance_weights(cn.log_ratios(z, 0 * z, mask)))))(z)
    weights = jax.jit(lambda z: cn.importance_weights(cn.log_ratios(z, 0 * z, mask)))(z)
    constant = jax.jit(jax.grad(loss))(z, weights)
    np.testing.assert_allclose(through, constant, rtol=1e-6)


@pytest.mark.parametrize(("z_new", "spread"), [(4.0, 0.3), (-4.0, 0.005)])
def test_long_episodes_stay_finite_where_the_product_does_not(z_new, spread):
    """T = 400 in float32: 1.96⁴⁰⁰ overflows, 0.036⁴⁰⁰ underflows, and both poison the authors' weights."""
    steps, count = 400, 6
    rng = np.random.default_rng(0)
    z = (z_new + spread * rng.normal(size=(count, 1)) + 0.05 * rng.normal(size=(count, steps))).astype(np.float32)
    with np.errstate(all="ignore"):
        naive = ref.products(list(ref.sigmoid(z)), list(ref.sigmoid(0 * z)))
        assert naive.dtype == np.float32
        assert not np.isfinite(ref.weights(naive)).all()

    mask = jnp.ones(z.shape, bool)
    log_ratio = cn.log_ratios(jnp.asarray(z), jnp.zeros(z.shape), mask)
    w = cn.importance_weights(log_ratio)
    log_p = np.log((ref.sigmoid(z.astype(np.float64)) + 1e-5) / (0.5 + 1e-5)).sum(1)
    share = np.exp(log_p - log_p.max()) / np.exp(log_p - log_p.max()).sum()
    np.testing.assert_allclose(w, count * share, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(cn.forward_kl(log_ratio), -log_p.mean(), rtol=1e-5)
    np.testing.assert_allclose(cn.reverse_kl(log_ratio), share @ log_p - log_p.mean(), rtol=1e-3)

    def loss(z):
        return cn.loss(z, mask, z, mask, cn.importance_weights(cn.log_ratios(z, 0 * z, mask)), 0.5)

    assert np.isfinite(jax.jit(jax.grad(loss))(jnp.asarray(z))).all()


def test_certainty_is_finite():
    z = jnp.array([-200.0, 0.0, 200.0])
    np.testing.assert_allclose(cn.log_zeta(z), [np.log(1e-5), np.log(0.5 + 1e-5), np.log1p(1e-5)], atol=1e-6)
    assert np.isfinite(jax.grad(lambda z: cn.log_zeta(z).sum())(z)).all()
