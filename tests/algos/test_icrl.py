"""ICRL's backward phase: its first step, its stops, and what it learns."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scopil.algos.onpolicy import Trajectories

from reference import icrl_numpy as ref
from reference import ppo_numpy
from scopil.algos import icrl
from scopil.algos.base import Spaces

QUICK = {"xla_backend_optimization_level": 0}  # compile time is most of these tests
OBS, ACTIONS = 2, 3
CONFIG = {"hidden": (4,), "constraint_hidden": (5,), "num_envs": 2, "constraint_lr": 0.02}


@pytest.fixture(scope="module")
def learn():
    """`learn(changes, outer)`: one backward phase from one and the same beginning."""
    init = jax.jit(icrl.init, static_argnums=1, compiler_options=QUICK)
    step = jax.jit(icrl.backward, compiler_options=QUICK)
    cfg = icrl.Config(**CONFIG)
    state = init(jax.random.key(0), Spaces(OBS, ACTIONS), cfg)

    def run(
        outer: int = 0,
        expert: Trajectories | None = None,
        nominal: Trajectories | None = None,
        **changes: Any,
    ):
        played = expert or EXPERT, nominal or NOMINAL
        return state, *step(state, *played, icrl.Config(**CONFIG | changes), jnp.int32(outer))

    return run


def games(seed: int, count: int, actions: tuple[int, ...]) -> Trajectories:
    """Games of different lengths; what lies behind a game's end is not to be looked at."""
    rng = np.random.default_rng(seed)
    mask = np.arange(8) < rng.integers(3, 9, size=(count, 1))
    obs = np.where(mask[..., None], rng.normal(size=(count, 8, OBS)), 1e6)
    action = np.where(mask, rng.choice(actions, size=(count, 8)), 2)
    return Trajectories(jnp.asarray(obs, jnp.float32), jnp.asarray(action, jnp.int32), jnp.asarray(mask))


EXPERT, NOMINAL = games(1, 4, (0, 1)), games(2, 6, (0, 1, 2))


def layers(state: icrl.State) -> list[tuple[np.ndarray, np.ndarray]]:
    net = state.constraint.params
    return [(np.asarray(w, np.float64).T, np.asarray(b, np.float64)) for w, b in zip(net.weights, net.biases)]


def zetas(net, played: Trajectories) -> list[np.ndarray]:
    rows = zip(*(np.asarray(leaf) for leaf in played))
    return [ref.zeta(net, obs[mask].astype(np.float64), action[mask]) for obs, action, mask in rows]


def test_the_first_step_equals_numpy(learn):
    """Weights are 1 and the bounds cannot bind, so one step is always made."""
    state, after, metrics = learn(max_forward_kl=0.0, max_reverse_kl=0.0, backward_iters=1, regulariser=0.3)

    def loss(nets):
        return ref.loss(zetas(nets[0], EXPERT), zetas(nets[0], NOMINAL), np.ones(6), 0.3)

    wanted = ppo_numpy.adam_step(loss, [layers(state)], 0.02, max_norm=np.inf)
    np.testing.assert_allclose(ppo_numpy.flatten([layers(after)])[0], ppo_numpy.flatten(wanted)[0], atol=2e-5)
    np.testing.assert_allclose(metrics["constraint/loss"], loss([layers(state)]), rtol=1e-4)
    p = ref.products(zetas(wanted[0], NOMINAL), zetas(layers(state), NOMINAL))
    np.testing.assert_allclose(metrics["constraint/forward_kl"], ref.kl_forward(p), rtol=1e-2, atol=1e-5)
    np.testing.assert_allclose(metrics["constraint/reverse_kl"], ref.kl_reverse(p), rtol=1e-2, atol=1e-5)
    for name, played in (("expert", EXPERT), ("nominal", NOMINAL)):
        cost = 1 - np.concatenate(zetas(wanted[0], played)).mean()
        np.testing.assert_allclose(metrics[f"constraint/{name}_cost"], cost, rtol=1e-4)


def test_the_rate_decays_with_outer_iterations(learn):
    moved = {}
    for outer in (0, 3):
        state, after, _ = learn(outer, constraint_lr_decay=0.5, backward_iters=1)
        moved[outer] = ppo_numpy.flatten([layers(after)])[0] - ppo_numpy.flatten([layers(state)])[0]
    np.testing.assert_allclose(moved[3], moved[0] / 8, atol=1e-6)


@pytest.mark.parametrize("bound", ["max_forward_kl", "max_reverse_kl"])
def test_a_bound_stops_after_the_step_that_oversteps_it(learn, bound):
    free = {"max_forward_kl": np.inf, "max_reverse_kl": np.inf, "constraint_lr": 0.1}
    name = bound.replace("max_", "constraint/")
    path = [float(learn(**free, backward_iters=n)[2][name]) for n in (1, 2, 3, 4, 5, 6)]
    limit = path[3] - 1e-4 * abs(path[3])
    first = next(n for n, kl in enumerate(path, 1) if kl > limit)
    metrics = learn(**free | {bound: limit}, backward_iters=6)[2]
    assert float(metrics["constraint/steps"]) == first < 6
    assert float(metrics[name]) == pytest.approx(path[first - 1])  # not rolled back
    assert float(learn(**free, backward_iters=6)[2]["constraint/steps"]) == 6


def test_it_finds_the_action_that_experts_avoid(learn):
    """Experts alternate between two actions, the policy between three, all in one state."""

    def cycling(like: Trajectories, actions: int) -> Trajectories:
        action = jnp.broadcast_to(jnp.arange(8) % actions, like.mask.shape)
        return Trajectories(jnp.zeros_like(like.obs), action, jnp.ones_like(like.mask))

    free = {"max_forward_kl": np.inf, "max_reverse_kl": np.inf, "backward_iters": 400}
    _, after, metrics = learn(expert=cycling(EXPERT, 2), nominal=cycling(NOMINAL, 3), regulariser=0.1, **free)
    costs = np.asarray(icrl.cost(after, jnp.zeros((ACTIONS, OBS)), jnp.arange(ACTIONS)))
    assert costs[2] > 0.9
    assert costs[:2].max() < 0.1
    np.testing.assert_allclose(metrics["constraint/expert_cost"], costs[:2].mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["constraint/nominal_cost"], costs @ [3 / 8, 3 / 8, 2 / 8], rtol=1e-4)
