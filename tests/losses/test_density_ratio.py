"""The classifiers of SCOPIL-ρ against NumPy and closed forms, and the calibration of their thresholds."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from compiling import OPTIMISED
from probes import as_type
from reference import density_ratio_numpy as ref
from scopil.algos import scopil_rho
from scopil.losses import density_ratio

OBS, WIDTH, FOLDS, DEMOS, ANYWHERE = 3, 6, 4, 12, 5


def step_config(quantile: Any, rate: Any) -> Any:
    return scopil_rho.Config(quantile=quantile, classifier_lr=rate)


def made(real: Any = jnp.float32) -> density_ratio.DensityRatio:
    fresh = density_ratio.new_density_ratio(jax.random.key(3), OBS, WIDTH, FOLDS)
    fresh = fresh._replace(
        threshold=jnp.array([0.1, -0.2, 0.0, 0.3]),
        mean=jnp.array([0.5, -1.0, 0.0]),
        scale=jnp.array([2.0, 0.0, 0.7]),  # the second component is not used
        blur=jnp.array([0.3, 0.0, 0.1]),
        way=jnp.array([0.0, 0.0, -1.0]),  # the third drifts downwards until −0.5
        cut=jnp.array([0.0, 0.0, 0.5]),
    )
    return as_type(fresh, real)


def nets(of: density_ratio.DensityRatio) -> list[ref.Net]:
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), of.nets.params)
    w1, b1 = p.w1.reshape(FOLDS, WIDTH, OBS), p.b1.reshape(FOLDS, WIDTH)
    return [[w1[k], b1[k], p.w2[k], p.b2[k], p.w3[k, 0], p.b3[k, 0]] for k in range(FOLDS)]


def twin(of: density_ratio.DensityRatio) -> ref.DensityRatio:
    names = "threshold", "mean", "scale", "blur", "way", "cut"
    parts: dict[str, Any] = {name: np.array(getattr(of, name), np.float64) for name in names}
    return ref.DensityRatio(nets(of), **parts)


def follow(real: Any, tolerance: float) -> None:
    """Three steps of both, compared after each."""
    ours, theirs, step = made(real), twin(made(real)), jax.jit(density_ratio.ratio_step)
    for number in range(3):
        rng = np.random.default_rng(number)
        demo, own = rng.normal(size=(DEMOS, OBS)), rng.normal(1.0, size=(DEMOS, OBS))
        anywhere = rng.normal(2.0, size=(ANYWHERE, OBS))
        fold = rng.integers(FOLDS - 1, size=DEMOS)  # of the last fold nothing is held out
        drawn = jax.random.normal(jax.random.key(number), (OBS, 2 * DEMOS + ANYWHERE), real)
        noise = np.split(np.asarray(drawn, np.float64).T, [DEMOS, 2 * DEMOS])
        ours = step(
            ours,
            jnp.asarray(demo, real),
            jnp.asarray(fold),
            jnp.asarray(own, real),
            jnp.asarray(anywhere, real),
            step_config(0.9, 0.02),
            jax.random.key(number),
        )
        loss, demo_cost = theirs.step(demo, fold, own, anywhere, noise, 0.9, 0.02)
        for k in range(FOLDS):
            for got, want in zip(nets(ours)[k], theirs.nets[k]):
                np.testing.assert_allclose(got, want, atol=tolerance, rtol=tolerance)
        np.testing.assert_allclose(ours.threshold, theirs.threshold, atol=tolerance)
        np.testing.assert_allclose(density_ratio.cost(ours, jnp.asarray(own, real)), theirs.cost(own), atol=tolerance)
        assert float(ours.loss) == pytest.approx(loss, abs=tolerance)
        assert float(ours.demo_cost) == pytest.approx(demo_cost, abs=tolerance)


@pytest.mark.parametrize(("bits", "tolerance"), [(32, 1e-5), (64, 1e-10)])
def test_three_steps_equal_the_reference(bits, tolerance):
    with jax.enable_x64(bits == 64):
        follow(jnp.dtype(f"float{bits}"), tolerance)


def test_an_unused_component_has_no_effect():
    obs = np.random.default_rng(0).normal(size=(5, OBS)).astype(np.float32)
    other = obs.copy()
    other[:, 1] += 100.0
    costs = [density_ratio.cost(made(), jnp.asarray(x)) for x in (obs, other)]
    np.testing.assert_array_equal(costs[0], costs[1])


def test_the_logit_of_two_gaussians_is_that_of_their_blurred_densities():
    """Demonstrated N(0, 1), the learner's N(1, 1), blur ½: p and q are N(0, 1.25) and N(1, 1.25), and a tenth of their
    mean is the background of both."""
    fresh = density_ratio.new_density_ratio(jax.random.key(0), 1, 16, FOLDS)
    one = jnp.ones(1)
    state = fresh._replace(scale=one, blur=0.5 * one)
    rows, steps = 256, 3_000

    def step(carry: Any, number: Any) -> tuple[Any, None]:
        k_demo, k_own, k_noise = jax.random.split(jax.random.fold_in(jax.random.key(1), number), 3)
        demo, own = jax.random.normal(k_demo, (rows, 1)), 1.0 + jax.random.normal(k_own, (rows, 1))
        rate = 3e-3 * (1.0 - number / steps)
        fold, anywhere = jnp.arange(rows) % FOLDS, jnp.concatenate([demo[:32], own[:32]])
        return density_ratio.ratio_step(carry, demo, fold, own, anywhere, step_config(0.9, rate), k_noise), None

    run = jax.jit(lambda s: jax.lax.scan(step, s, jnp.arange(steps))[0], compiler_options=OPTIMISED)
    state = run(state)
    x = jnp.linspace(-1.5, 2.5, 9)[None]
    got = density_ratio.logits(state.nets.params, x).mean(0)

    def logit(x: Any) -> Any:
        demo, own = (norm.pdf(x, mean, 1.25**0.5) for mean in (0.0, 1.0))
        return np.log((own + 0.05 * (demo + own)) / (demo + 0.05 * (demo + own)))

    want = logit(np.asarray(x[0]))
    assert float(jnp.abs(got - want).max()) < 0.05 * float(jnp.abs(want).max()) + 0.03
    # and τ is the 0.9 quantile of the held-out logits
    np.testing.assert_allclose(state.threshold, logit(norm.ppf(0.9)), atol=0.1)


def test_thresholds_converge_to_the_quantile():
    f = jnp.asarray(np.random.default_rng(0).normal(size=(2, 4_000)))
    held_out = jnp.stack([jnp.arange(4_000) < 2_000, jnp.arange(4_000) >= 2_000])

    def move(_: Any, threshold: Any) -> Any:
        return density_ratio.pinball_step(threshold, f, held_out, 0.9, 0.01)

    got = jax.lax.fori_loop(0, 5_000, move, jnp.zeros(2))
    for k, rows in enumerate((f[0, :2_000], f[1, 2_000:])):
        assert float((rows > got[k]).mean()) == pytest.approx(0.1, abs=0.01)


def test_a_threshold_without_held_out_states_stays():
    f, nothing = jnp.ones((1, 5)), jnp.zeros((1, 5), bool)
    assert float(density_ratio.pinball_step(jnp.array([0.3]), f, nothing, 0.9, 0.01)[0]) == pytest.approx(0.3)


def test_familiarity_is_the_share_of_held_out_states_at_least_as_novel():
    state, rng = made(), np.random.default_rng(5)
    demo, obs = (rng.normal(size=(rows, OBS)).astype(np.float32) for rows in (40, 9))
    fold = np.arange(40) % (FOLDS - 1)  # the last classifier has nothing to be compared with
    theirs = twin(state)
    shown, asked = theirs.logits(demo), theirs.logits(obs)
    want = np.mean([[(shown[k, fold == k] >= f).mean() for f in asked[k]] for k in range(FOLDS - 1)], axis=0)
    monitor = density_ratio.monitor(state, jnp.asarray(demo), jnp.asarray(fold))
    got = density_ratio.familiarity(monitor, jnp.asarray(obs))
    np.testing.assert_allclose(got, want, atol=1e-6)
    assert 0 < want.min() < want.max() <= 1


def test_familiarity_is_calibrated_on_further_states_of_the_demonstrator():
    """It is uniform over the demonstrator's states: a share p of them is less familiar than p."""
    state, rng = made(), np.random.default_rng(6)
    demo, more = (rng.normal(size=(4_000, OBS)).astype(np.float32) for _ in range(2))
    fold = jnp.arange(4_000) % FOLDS
    monitor = density_ratio.monitor(state, jnp.asarray(demo), fold)
    got = np.asarray(density_ratio.familiarity(monitor, jnp.asarray(more)))
    for p in (0.25, 0.5, 0.75):
        single = [np.asarray((shares < p).mean()) for shares in single_shares(state, demo, np.asarray(fold), more)]
        np.testing.assert_allclose(single, p, atol=0.05)
    assert got.mean() == pytest.approx(0.5, abs=0.03)


def single_shares(state: density_ratio.DensityRatio, demo: Any, fold: Any, obs: Any) -> list[np.ndarray]:
    """Of each classifier by itself."""
    theirs = twin(state)
    shown, asked = theirs.logits(demo), theirs.logits(obs)
    return [1.0 - np.searchsorted(np.sort(shown[k, fold == k]), asked[k]) / (fold == k).sum() for k in range(FOLDS)]
