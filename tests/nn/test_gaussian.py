"""The squashed Gaussian: its density, the mass of intervals, and their gradients at the limits of float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from scopil.nn.distributions import (
    EDGE,
    LOG_STD_MAX,
    LOG_STD_MIN,
    Resolved,
    SquashedGaussian,
    log_cell,
    log_slope,
    tail,
)

EPS = 0.05


def gaussian(mean: list[float], log_std: list[float]) -> SquashedGaussian:
    """One row with these moments, by inverting the soft clip of log σ."""
    middle, reach = (LOG_STD_MAX + LOG_STD_MIN) / 2, (LOG_STD_MAX - LOG_STD_MIN) / 2
    raw = [middle + reach * np.arctanh((value - middle) / reach) for value in log_std]
    return SquashedGaussian(jnp.asarray([[*mean, *raw]], jnp.float32))


def density(a: np.ndarray, mu: float, sigma: float) -> np.ndarray:
    """p(a) = N(atanh a; μ, σ²) / (1 − a²)"""
    z = (np.arctanh(a) - mu) / sigma
    return np.exp(-z * z / 2) / (sigma * np.sqrt(2 * np.pi)) / (1 - a * a)


def integral(low: float, high: float, mu: float, sigma: float) -> float:
    """Of the density between two actions, by the midpoint rule in a."""
    edges = np.linspace(low, high, 400_001)
    middle = (edges[1:] + edges[:-1]) / 2
    return float(density(middle, mu, sigma).sum() * (high - low) / 400_000)


# --- the density ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mu", "sigma"), [(0.0, 1.0), (0.7, 0.3), (-1.5, 0.8)])
def test_log_probability_has_the_tanh_correction(mu, sigma):
    noise = jnp.linspace(-2.5, 2.5, 11)[:, None]
    pi = gaussian([mu], [float(np.log(sigma))])
    action, log_prob = jax.vmap(lambda xi: pi.at(xi[None]))(noise)
    a = np.tanh(mu + sigma * np.asarray(noise, np.float64))
    np.testing.assert_allclose(action[:, 0], a, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.exp(log_prob), density(a, mu, sigma), rtol=3e-5)
    assert integral(-1 + 1e-9, 1 - 1e-9, mu, sigma) == pytest.approx(1.0, abs=1e-4)  # it is a density


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_log_probability_at_both_bounds(sign):
    """At u = ±20 the action is ±1 in float32 and 1 − tanh²u is 0; its log is 2 (log 2 − |u|) to rounding."""
    pi = gaussian([sign * 20.0], [0.0])
    action, log_prob = pi.at(jnp.zeros((1, 1)))
    assert float(action[0, 0]) == sign
    assert float(log_prob[0]) == pytest.approx(-0.5 * np.log(2 * np.pi) - 2 * (np.log(2) - 20.0), rel=1e-6)
    slope = jax.jit(jax.grad(log_slope))(jnp.float32(sign * 20.0))
    assert float(slope) == pytest.approx(-2 * sign, rel=1e-6)  # d/du log(1 − tanh²u) = −2 tanh u


NEAR = [0.0, 0.5, -0.9, 0.999, -0.9999, 0.99999, 1 - 2e-6]


@pytest.mark.parametrize(("mu", "sigma"), [(0.0, 1.0), (0.7, 0.3), (-1.5, 0.8), (4.0, 0.5)])
def test_log_density_of_a_given_action_near_the_bounds(mu, sigma):
    """SciPy's normal at atanh a in float64, over the slope 1 − a²: of two components, for any leading axes."""
    a = np.array([[x, -x] for x in NEAR], np.float32)
    wide = a.astype(np.float64)
    want = stats.norm.logpdf(np.arctanh(wide), mu, sigma) - np.log1p(-wide) - np.log1p(wide)
    pi = gaussian([mu, mu], [float(np.log(sigma))] * 2)
    have = jax.jit(jax.vmap(lambda x: pi.log_prob(x[None])[0]))(jnp.asarray(a))
    np.testing.assert_allclose(have, want.sum(1), rtol=1e-5, atol=1e-5)
    action, log_prob = pi.at(jnp.array([[0.3, -0.4]]))
    np.testing.assert_allclose(pi.log_prob(action), log_prob, rtol=1e-4, atol=1e-4)  # where it was drawn


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_action_at_its_bound_is_clipped_and_has_finite_gradients(sign):
    def log_prob(outputs):
        return SquashedGaussian(outputs).log_prob(jnp.array([[sign]]))[0]

    edge = sign * float(np.float32(EDGE))
    want = stats.norm.logpdf(np.arctanh(edge), 0.2, 1.0) - np.log1p(-edge) - np.log1p(edge)
    raw = -1.5 + 3.5 * np.arctanh(1.5 / 3.5)  # bent to log σ = 0
    outputs = jnp.array([[0.2, raw]], jnp.float32)
    assert float(log_prob(outputs)) == pytest.approx(want, rel=1e-5)
    slope = np.asarray(jax.grad(log_prob)(outputs))
    assert np.isfinite(slope).all()
    z = np.arctanh(edge) - 0.2
    np.testing.assert_allclose(slope[0], [z, (z * z - 1) * (1 - (1.5 / 3.5) ** 2)], rtol=1e-4)


def test_its_gradient_is_the_central_difference():
    with jax.enable_x64(True):
        head, xi = jnp.array([[0.4, -1.1, -0.3, 0.6]]), jnp.array([[0.9, -1.7]])

        @jax.jit
        def value(head):
            action, log_prob = SquashedGaussian(head).at(xi)
            return (log_prob + (action * jnp.array([[0.5, -2.0]])).sum(-1)).sum()

        have, h = jax.grad(value)(head), 1e-6
        for i in range(4):
            up, down = (value(head.at[0, i].add(sign * h)) for sign in (1, -1))
            assert float(have[0, i]) == pytest.approx(float(up - down) / (2 * h), rel=1e-7)


def test_log_std_stays_in_its_range_and_never_loses_its_gradient():
    raw = jnp.array([-8.0, -5.0, 0.0, 2.0, 6.0])
    bend = jax.vmap(lambda r: SquashedGaussian(jnp.stack([jnp.zeros_like(r), r])[None]).log_std[0, 0])
    log_std = np.asarray(bend(raw))
    assert (log_std > LOG_STD_MIN).all()
    assert (log_std < LOG_STD_MAX).all()
    assert log_std[2] == pytest.approx(0.0, abs=0.1)  # nearly the identity in the middle
    assert (np.asarray(jax.grad(lambda r: bend(r).sum())(raw)) > 1e-3).all()


# --- the mass of an interval ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [0.0, 0.3, -0.9, 0.93])
@pytest.mark.parametrize(("mu", "sigma"), [(0.0, 1.0), (0.5, 0.2), (-1.0, 2.0)])
def test_mass_is_the_integral_of_the_density(action, mu, sigma):
    pi = gaussian([mu], [float(np.log(sigma))])
    mass = float(jnp.exp(pi.log_mass(jnp.array([[action]]), EPS))[0])
    assert mass == pytest.approx(integral(action - EPS, action + EPS, mu, sigma), rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(("mu", "sigma"), [(0.5, 0.8), (-0.2, 1.5)])
def test_a_cell_at_a_bound_includes_the_tail(sign, mu, sigma):
    pi = gaussian([mu], [float(np.log(sigma))])
    for action in (1.0, 0.97):
        mass = float(jnp.exp(pi.log_mass(jnp.array([[sign * action]]), EPS))[0])
        low, high = sorted((sign * (action - EPS), sign * (1 - 1e-9)))
        assert mass == pytest.approx(integral(low, high, mu, sigma), rel=2e-4)
    sure = gaussian([sign * 8.0], [-2.0]).log_mass(jnp.array([[sign]]), EPS)
    assert float(sure[0]) == pytest.approx(0.0, abs=1e-6)  # saturated like the demonstrated action


def test_cells_that_tile_the_box_have_mass_one():
    centres = jnp.arange(-0.95, 0.96, 0.1)[:, None]
    pi = gaussian([0.4], [-0.3])
    masses = jax.jit(jax.vmap(lambda a: jnp.exp(pi.log_mass(a[None], EPS))[0]))(centres)
    assert float(masses.sum()) == pytest.approx(1.0, abs=1e-5)


def test_components_multiply_and_a_likelihood_is_at_most_one():
    one, two = gaussian([0.3], [-1.0]), gaussian([-2.0], [0.5])
    both = gaussian([0.3, -2.0], [-1.0, 0.5]).log_mass(jnp.array([[0.1, -1.0]]), EPS)
    apart = one.log_mass(jnp.array([[0.1]]), EPS) + two.log_mass(jnp.array([[-1.0]]), EPS)
    np.testing.assert_allclose(both, apart, rtol=1e-6)
    narrow = gaussian([0.1], [-4.9])
    assert float(narrow.at(jnp.zeros((1, 1)))[1][0]) > 3.0  # the density exceeds one,
    assert -1e-5 < float(narrow.log_mass(jnp.tanh(jnp.array([[0.1]])), EPS)[0]) <= 0.0  # the mass does not


def test_entropy_at_a_resolution_is_that_of_the_cells():
    """For cells small beside the policy: −Σ P log P over a tiling of width 2ε."""
    pi, eps = gaussian([0.3], [-0.2]), 0.005
    centres = jnp.arange(-0.995, 0.996, 2 * eps)[:, None]
    log_p = jax.jit(jax.vmap(lambda a: pi.log_mass(a[None], eps)[0]))(centres)
    want = -float((jnp.exp(log_p) * log_p).sum())
    xi = jnp.asarray(special.ndtri((np.arange(20_000) + 0.5) / 20_000), jnp.float32)[:, None, None]
    have = jax.jit(jax.vmap(lambda x: Resolved(pi, x, eps).entropy()[0]))(xi).mean()
    assert float(have) == pytest.approx(want, abs=0.02)


# --- float32 at its ends -------------------------------------------------------------------------------------------


def test_tails_are_exact_to_single_precision():
    x = np.concatenate([np.linspace(0, 40, 2001), np.geomspace(40, 1e6, 50)])
    want = np.log(0.5 * special.erfcx(x / np.sqrt(2)))
    t, p = tail(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(jnp.log(t) + p, want, rtol=1e-6, atol=2e-6)
    x = np.linspace(-6, 100, 3001)
    no, yes = jnp.zeros(x.shape, bool), jnp.ones(x.shape, bool)
    width = jnp.ones(x.shape, jnp.float32)
    above = log_cell(jnp.asarray(x, jnp.float32), width, no, yes)
    below = log_cell(jnp.asarray(-x - 1, jnp.float32), width, yes, no)  # all below −x
    for have in (above, below):  # near certainty a log is as good as float32's 1 − Q
        np.testing.assert_allclose(have, special.log_ndtr(-x), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("width", [0.003, 0.1, 2.0])
def test_intervals_are_exact_everywhere(width):
    low = np.concatenate([np.linspace(-30, 30, 601), [-width / 2]]).astype(np.float32)
    wide = low.astype(np.float64)
    near = np.where(wide + width / 2 < 0, -(wide + width), wide)  # mirrored: all in the upper half
    want = special.log_ndtr(-near) + np.log(-np.expm1(special.log_ndtr(-near - width) - special.log_ndtr(-near)))
    no = jnp.zeros(low.shape, bool)
    have = log_cell(jnp.asarray(low), jnp.full(low.shape, width, jnp.float32), no, no)
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=2e-4)


ACTIONS = [-1.0, -0.999, -0.95, 0.0, 0.5, 0.9499, 0.95, 1.0]


@jax.jit
def nll(head: jax.Array, action: jax.Array) -> jax.Array:
    """Of one action under one row of a network's outputs."""
    return -SquashedGaussian(head[None]).log_mass(action[None, None], EPS)[0]


nlls, slopes = (jax.jit(jax.vmap(f)) for f in (nll, jax.grad(nll)))


def grid(means: list[float], raws: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Every mean with every raw log σ and every action."""
    mean, raw, action = (x.ravel() for x in np.meshgrid(means, raws, ACTIONS))
    return np.stack([mean, raw], axis=-1), action


def test_value_and_gradient_are_finite_everywhere():
    head, action = (jnp.asarray(x, jnp.float32) for x in grid([0.0, 3.0, 1e2, -1e2, 1e6, -1e6], [-50.0, 0.0, 50.0]))
    value, slope = np.asarray(nlls(head, action)), np.asarray(slopes(head, action))
    assert np.isfinite(value).all()
    assert (value >= -1e-6).all()
    assert np.isfinite(slope).all()
    far = (np.abs(head[:, 0]) > 50) & (np.abs(action) < 0.9)
    assert (slope[far, 0] * np.sign(head[far, 0]) > 0).all()  # far away the gradient points back


def true_nll(head: np.ndarray, action: np.ndarray) -> np.ndarray:
    """By SciPy, in float64."""
    mean, std = head[:, 0], np.exp(-1.5 + 3.5 * np.tanh((head[:, 1] + 1.5) / 3.5))
    low, high = action - EPS, action + EPS
    with np.errstate(divide="ignore", invalid="ignore"):
        below = np.where(low <= -EDGE, -np.inf, (np.arctanh(np.maximum(low, -1)) - mean) / std)
        above = np.where(high >= EDGE, np.inf, (np.arctanh(np.minimum(high, 1)) - mean) / std)
    left = below + above < 0
    near, far = np.where(left, -above, below), np.where(left, -below, above)
    log_near, log_far = special.log_ndtr(-near), special.log_ndtr(-far)
    return -(log_near + np.log(-np.expm1(log_far - log_near)))


def test_the_gradient_of_the_mass_is_the_central_difference():
    head, action = grid([-2.0, 0.3, 6.0], [-0.6, 1.0])
    with jax.enable_x64(True):
        have = np.asarray(slopes(jnp.asarray(head), jnp.asarray(action)))
    h = 1e-5
    for i in range(2):
        step = h * np.eye(2)[i]
        want = (true_nll(head + step, action) - true_nll(head - step, action)) / (2 * h)
        np.testing.assert_allclose(have[:, i], want, rtol=1e-6, atol=1e-7)
