"""The PID controller of the multiplier: its response by hand. Whole updates and probes of the oracles that use it:
test_ppo.py, test_sac_lagrangian.py and train/test_learners.py."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scopil.algos import pid_lagrangian, sac_lagrangian
from scopil.algos.pid_lagrangian import SACConfig, control

CFG = SACConfig(gain_proportional=2.0, gain_integral=0.5, gain_derivative=4.0, smoothing=0.75)


def path(excess: list[float], cfg: SACConfig = CFG) -> list[float]:
    """ν after each step."""
    state, out = pid_lagrangian.PID.init(cfg), []
    for one in excess:
        state = jax.jit(control)(state, jnp.float32(one), cfg)
        out.append(float(pid_lagrangian.PID.value(state)))
    return out


def test_the_path_of_the_multiplier_equals_numpys():
    excess = np.random.default_rng(0).normal(0.1, 1.0, 40)
    errors = [0.0]
    for one in excess:
        errors.append(0.75 * errors[-1] + 0.25 * one)
    sums = [0.0]
    for e in errors[1:]:
        sums.append(max(sums[-1] + e, 0.0))
    e, before = np.array(errors[1:]), np.array(errors[:-1])
    wanted = np.maximum(2.0 * e + 0.5 * np.array(sums[1:]) + 4.0 * np.maximum(e - before, 0.0), 0.0)
    assert (wanted == 0).any()
    assert (wanted > 0).any()
    np.testing.assert_allclose(path(list(excess)), wanted, rtol=1e-5, atol=1e-6)


def test_without_other_gains_and_smoothing_it_is_plain_ascent():
    excess = [0.3, 0.2, -0.9, 0.4, 0.1]
    integral = replace(CFG, gain_proportional=0.0, gain_derivative=0.0, smoothing=0.0)
    nu, wanted = jnp.float32(0.0), []
    for one in excess:
        nu = sac_lagrangian.ASCENT.step(nu, jnp.float32(one), sac_lagrangian.Config(multiplier_lr=0.5))
        wanted.append(float(nu))
    np.testing.assert_allclose(path(excess, integral), wanted, rtol=1e-6)


def test_a_satisfied_constraint_lowers_the_multiplier_to_zero_and_stores_no_credit():
    quick = replace(CFG, smoothing=0.0)
    assert path([1.0, -1.0], quick)[-1] == 0.0
    assert path([-1.0] * 50 + [1.0], quick)[-1] == pytest.approx(2.0 + 0.5 + 4.0 * 2)  # e rose from −1 to 1


def test_a_rising_cost_raises_the_multiplier_at_once_and_a_falling_one_does_not():
    quick = replace(CFG, smoothing=0.0, gain_proportional=0.0, gain_integral=0.0)
    assert path([0.5, 0.8, 0.2], quick) == pytest.approx([2.0, 1.2, 0.0])
