"""Continuous SCOPIL on a one-step task with a known solution: reward −k (a − ½)², demonstrated actions elsewhere.

One state, one step, so Q(a) is the reward. SAC's optimum is π(a) ∝ exp(Q(a)/α) on [−1, 1]; for k ≫ α that is a
Gaussian with mean ½ and variance α/2k, entropy ½ log(πeα/k). A constraint that is slack leaves λ = 0 and that optimum;
one that binds holds E_D[−log P_ε] at δ, and the best policy and λ can be searched for numerically (`binding`).
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq, minimize

from compiling import OPTIMISED
from probes import demo_steps
from scopil.algos.base import Data, Spaces
from scopil.config import build
from scopil.nn.heads import BoxHead
from scopil.registry import find
from scopil.types import Transition

K, BEST, ALPHA = 4.0, 0.5, 0.1
EPS = 0.05
UPDATES = 6_000
LOW, HIGH = -3.0, 1.0  # the unit action is (a + 1) / 2


def played(unit: Any) -> Any:
    """A unit action in the environment's box."""
    return 2 * np.asarray(unit) - 1


class Solution(NamedTuple):
    mode: float  # the greedy action, in [−1, 1]
    entropy: float
    nll: float
    lam: float


@pytest.fixture(scope="module")
def solve():
    # So many rows that the estimate of the entropy from one batch has a deviation of 0.02.
    unit = np.tile(np.linspace(-1, 1, 64, dtype=np.float32), 16)[:, None]
    batch = Transition(
        obs=jnp.ones((len(unit), 1)),
        action=jnp.asarray(played(unit)),
        reward=jnp.asarray(-K * (unit[:, 0] - BEST) ** 2),
        next_obs=jnp.ones((len(unit), 1)),
        terminated=jnp.ones(len(unit), bool),
        truncated=jnp.zeros(len(unit), bool),
    )
    programs = {}

    def program(name: str):
        algorithm = find(name)

        def train(cfg, shown):
            demo = demo_steps(jnp.ones((16, 1)), jnp.full((16, 1), shown)) if algorithm.needs_demos else None
            box = BoxHead(jnp.array([LOW]), jnp.array([HIGH]))
            state = algorithm.init(jax.random.key(1), Spaces(1, box), cfg)

            def body(i, carry):
                key = jax.random.fold_in(jax.random.key(2), i)
                return algorithm.update(carry[0], Data(replay=batch, demo_batch=demo), cfg, key)

            state, metrics = jax.lax.fori_loop(1, UPDATES, body, body(0, (state, None)))
            return algorithm.policy(state).act(jnp.ones((1, 1)))[0, 0], metrics

        return jax.jit(train, compiler_options=OPTIMISED)

    def run(name: str, shown: float = 0.0, **changes: Any) -> Solution:
        rates = {"learning_rate": 2e-3, "multiplier_lr": 2e-2, "alpha_lr": 0.0, "log_alpha_init": math.log(ALPHA)}
        known = find(name).config.__dataclass_fields__
        values = {"hidden": (32,), "action_resolution": EPS, "normalise_obs": False} | rates | changes
        cfg = build(find(name).config, {k: v for k, v in values.items() if k in known})
        programs.setdefault(name, program(name))
        mode, m = programs[name](cfg, jnp.float32(played(shown)))
        nothing = jnp.float32(0.0)
        return Solution(
            (float(mode) + 1) / 2,
            float(m["alpha/entropy"]),
            float(m.get("demo/nll", nothing)),
            float(m.get("dual/lambda", nothing)),
        )

    return run


def free() -> Solution:
    """SAC's optimum."""
    return Solution(BEST, 0.5 * math.log(math.pi * math.e * ALPHA / K), 0.0, 0.0)


@pytest.mark.slow
def test_sac_has_the_closed_form(solve):
    got = solve("sac")
    assert got.mode == pytest.approx(free().mode, abs=0.03)
    assert got.entropy == pytest.approx(free().entropy, abs=0.1)


@pytest.mark.slow
def test_an_inactive_constraint_has_no_effect(solve):
    got = solve("scopil", shown=-0.6, slack=200.0)
    assert got.lam == 0.0
    assert got.mode == pytest.approx(free().mode, abs=0.03)
    assert got.entropy == pytest.approx(free().entropy, abs=0.1)


@pytest.mark.parametrize("shown", [-0.6, pytest.param(-1.0, marks=pytest.mark.slow)])
def test_a_tight_constraint_puts_the_policy_at_the_demonstrated_action(shown, solve):
    """Inside the box and at its bound, where a density would be infinite."""
    got = solve("scopil", shown=shown, slack=0.2)
    assert abs(got.mode - shown) < EPS
    assert got.lam > 0.1
    assert math.isfinite(got.nll)


def binding(shown: float, slack: float) -> Solution:
    """The best squashed Gaussian that meets a constraint without entropy with equality: quadrature in u, the least
    Lagrangian by search, λ by its root."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    edges = np.arctanh([shown - EPS, shown + EPS])

    def entropy(mu: float, sigma: float) -> float:
        u = mu + sigma * nodes
        return 0.5 * math.log(2 * math.pi * math.e) + math.log(sigma) + weights @ np.log1p(-(np.tanh(u) ** 2))

    def nll(mu: float, sigma: float) -> float:
        low, high = ((e - mu) / sigma for e in edges)
        mass = 0.5 * (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2)))
        return -math.log(max(mass, 1e-300))

    def best(lam: float) -> tuple[float, float]:
        def lagrangian(x):
            mu, sigma = x[0], math.exp(x[1])
            gain = weights @ (-K * (np.tanh(mu + sigma * nodes) - BEST) ** 2)
            return -gain - ALPHA * entropy(mu, sigma) + lam * nll(mu, sigma)

        mu, log_sigma = minimize(lagrangian, [math.atanh(shown), -1.0], method="Nelder-Mead").x
        return mu, math.exp(log_sigma)

    lam = brentq(lambda lam: nll(*best(lam)) - slack, 1e-3, 2.0, xtol=1e-4)  # pyright: ignore
    mu, sigma = best(lam)  # pyright: ignore
    return Solution(math.tanh(mu), entropy(mu, sigma), slack, lam)  # pyright: ignore


@pytest.mark.slow  # tests/algos/test_bandit.py is the fast test, for discrete actions
@pytest.mark.parametrize("slack", [1.0, 2.0])
def test_a_binding_constraint_without_entropy_is_met_with_equality(slack, solve):
    want = binding(0.2, slack)
    got = solve("s-eic", shown=0.2, slack=slack, multiplier_lr=2e-3, multiplier_init=0.5)
    assert got.nll == pytest.approx(slack, abs=0.15)
    assert got.lam == pytest.approx(want.lam, abs=0.05)
    assert got.mode == pytest.approx(want.mode, abs=0.05)
    assert 0.2 < want.mode < BEST  # between the demonstrated and the best action
