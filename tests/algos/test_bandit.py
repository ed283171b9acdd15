"""SCOPIL on a two-armed bandit with a closed-form solution: the reward prefers arm 0, the demonstrator arm 1.

One state, one step, so Q(a) is the reward. With p = π(demonstrated arm), entropy H(p), fixed α, and d = q₀ − q₁:

    L(p, λ) = −[2(1−β)α H(p) − d p] + λ G(p) + const,     G(p) = −log p − w H(p) − δ,
    H'(p) = log((1−p)/p),                                 G'(p) = −1/p − w H'(p)

with w = 2βα (SCOPIL, S-DGD) or 0 (S-EiC). A binding constraint means G(p) = 0 and, from ∂L/∂p = 0,
λ* = [2(1−β)α H'(p) − d] / G'(p); for w = 0, β = ½ this is p = e^(−δ), λ* = p [α log(p/(1−p)) + d]. A slack constraint
means λ* = 0 and p = σ(−d / 2(1−β)α). A held λ₀ leaves only ∂L/∂p = 0, one equation in p.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from probes import demo_steps
from scopil.algos.base import Data, Spaces
from scopil.config import build
from scopil.nn.heads import DiscreteHead
from scopil.registry import find
from scopil.types import Transition

ALPHA, REWARDS = 0.2, (1.0, 0.0)
EDGE = REWARDS[0] - REWARDS[1]
LAMBDA = 1.05


class Solution(NamedTuple):
    p: float  # π(demonstrated arm)
    lam: float


# --- closed forms --------------------------------------------------------------------------------------------------


def root(f: Callable[[float], float], low: float, high: float) -> float:
    return float(brentq(f, low, high))  # pyright: ignore[reportArgumentType]


def entropy_slope(p: float) -> float:
    return math.log((1 - p) / p)


def constraint(p: float, weight: float, slack: float) -> float:
    return -math.log(p) - weight * (-p * math.log(p) - (1 - p) * math.log(1 - p)) - slack


def constraint_slope(p: float, weight: float) -> float:
    return -1 / p - weight * entropy_slope(p)


def binding(slack: float, beta: float, weight: float) -> Solution:
    # G falls on this interval: from ½, where it is positive, to where its slope vanishes or p = 1.
    end = root(lambda p: constraint_slope(p, weight), 0.5, 1 - 1e-12) if weight else 1 - 1e-12
    p = root(lambda p: constraint(p, weight, slack), 0.5, end)
    return Solution(p, (2 * (1 - beta) * ALPHA * entropy_slope(p) - EDGE) / constraint_slope(p, weight))


def held(lam: float, beta: float, weight: float) -> Solution:
    def slope(p: float) -> float:
        return -2 * (1 - beta) * ALPHA * entropy_slope(p) + EDGE + lam * constraint_slope(p, weight)

    return Solution(root(slope, 1e-6, 1 - 1e-9), lam)


# --- training ----------------------------------------------------------------------------------------------------


def sharp(**changes: Any) -> dict[str, Any]:
    """Settings for a problem with three unknowns; α is fixed."""
    rates = {"learning_rate": 3e-3, "multiplier_lr": 5e-2, "alpha_lr": 0.0, "log_alpha_init": math.log(ALPHA)}
    return {"hidden": (4,), "multiplier_init": LAMBDA} | rates | changes


@pytest.fixture(scope="module")
def solve() -> Callable[..., Solution]:
    """Trains an algorithm on the bandit until it has converged."""
    batch = Transition(
        obs=jnp.ones((8, 1)),
        action=jnp.arange(8) % 2,
        reward=jnp.asarray(REWARDS)[jnp.arange(8) % 2],
        next_obs=jnp.ones((8, 1)),
        terminated=jnp.ones(8, bool),
        truncated=jnp.zeros(8, bool),
    )
    data = Data(replay=batch, demo_batch=demo_steps(jnp.ones((4, 1)), jnp.ones(4, jnp.int32)))
    programs = {}
    spaces = Spaces(1, DiscreteHead(2))
    begin = jax.jit(lambda init, cfg: init(jax.random.key(1), spaces, cfg), static_argnums=0)

    def program(name: str):
        def train(state, cfg):
            given = data if find(name).needs_demos else data._replace(demo_batch=None)

            def improve(_: Any, state: Any) -> Any:
                return find(name).update(state, given, cfg, jax.random.key(0))[0]

            state = jax.lax.fori_loop(0, 20_000, improve, state)
            pi: Any = find(name).policy(state).distribution(jnp.ones((1, 1)))
            q = jnp.minimum(*(critic(jnp.ones((1, 1)))[0] for critic in state.critics.params))
            return pi.probs[0, 1], getattr(state, "multiplier", jnp.float32(0.0)), q

        return jax.jit(train)

    def run(name: str, **changes: Any) -> Solution:
        programs.setdefault(name, program(name))
        values = {k: v for k, v in sharp(**changes).items() if hasattr(find(name).config, k)}
        cfg = build(find(name).config, values)
        state = begin(find(name).init, cfg)
        p, lam, q = programs[name](state, cfg)
        np.testing.assert_allclose(q, REWARDS, atol=1e-3)  # the critics have converged
        return Solution(float(p), float(lam))

    return run


def test_a_binding_constraint_without_entropy_has_the_closed_form(solve):
    """S-EiC at β = ½: p = e^(−δ), λ* = p [α log(p/(1−p)) + q₀ − q₁]."""
    slack = 0.5
    p = math.exp(-slack)
    lam = p * (ALPHA * math.log(p / (1 - p)) + EDGE)
    got = solve("s-eic", slack=slack)
    assert got.p == pytest.approx(p, abs=1e-3)
    assert got.lam == pytest.approx(lam, abs=1e-2)
    assert binding(slack, 0.5, 0.0) == pytest.approx((p, lam))  # the general form agrees


@pytest.mark.parametrize(("beta", "slack"), [(0.5, 0.3), (0.2, 0.4), (1.0, 0.3), (0.0, 0.5)])
def test_a_binding_constraint_with_entropy_has_its_root(beta, slack, solve):
    weight = 2 * beta * ALPHA
    want, got = binding(slack, beta, weight), solve("scopil", slack=slack, entropy_split=beta)
    assert want.lam > 0.1
    assert got.p == pytest.approx(want.p, abs=1e-3)
    assert got.lam == pytest.approx(want.lam, abs=1e-2)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_slack_from_the_data_is_reached_without_entropy_in_the_constraint_and_may_not_be_with_it(beta, solve):
    """−log p ≤ δ. With w = 2βα = ½ a growing λ leads to the least −log p − w H(p) instead, which is above δ = 0.05."""
    alpha, budget = 0.5, 0.05
    learner = {"critics_first": 0, "average_over": 1, "log_alpha_init": math.log(alpha)}
    got = solve("scopil-clone", slack=budget, entropy_split=beta, **learner)
    if beta == 0:
        p = math.exp(-budget)
        assert got.p == pytest.approx(p, abs=1e-3)
        assert got.lam == pytest.approx(p * (2 * alpha * math.log(p / (1 - p)) + EDGE), abs=0.05)
    else:
        least = root(lambda p: constraint_slope(p, 2 * beta * alpha), 0.5, 1 - 1e-12)
        assert -math.log(least) > 2 * budget
        assert got.p == pytest.approx(least, abs=0.01)
        assert got.lam > 30  # and rises further


@pytest.mark.parametrize("name", ["scopil", "s-eic"])
@pytest.mark.parametrize("beta", [0.5, 0.25])
def test_an_inactive_constraint_has_no_effect(name, beta, solve):
    got = solve(name, slack=8.0, entropy_split=beta)
    assert got.lam == 0.0
    assert got.p == pytest.approx(1 / (1 + math.exp(EDGE / (2 * (1 - beta) * ALPHA))), abs=1e-3)


@pytest.mark.parametrize(("name", "weight"), [("s-dgd", ALPHA), ("s-dgd-eic", 0.0)])
def test_a_held_multiplier_stays_and_the_policy_balances_it(name, weight, solve):
    got = solve(name, slack=0.5)
    assert got.lam == np.float32(LAMBDA)
    assert got.p == pytest.approx(held(LAMBDA, 0.5, weight).p, abs=1e-3)
    assert abs(got.p - binding(0.5, 0.5, weight).p) > 0.05  # not the solution of the constraint


def test_an_infeasible_constraint_drives_the_multiplier_up(solve):
    """δ < 0 without entropy requires a likelihood above one: λ rises at rate −δ or more, without end."""
    got = solve("s-eic", slack=-0.1)
    assert got.lam > LAMBDA + 20_000 * 5e-2 * 0.1
    assert got.p > 0.99


def test_sac_follows_the_reward(solve):
    assert solve("sac").p == pytest.approx(1 / (1 + math.exp(EDGE / ALPHA)), abs=1e-3)
