"""Cloning: the clone, its softening, δ, and the hesitation filter."""

from functools import partial
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compiling import OPTIMISED
from probes import demo_steps
from scopil.algos import cloning, scopil_clone
from scopil.algos.base import Data, Spaces
from scopil.config import build
from scopil.data.dataset import Demonstrations, DemoTransitions
from scopil.losses import constraints
from scopil.losses.soft import operator
from scopil.nn.distributions import Categorical, SquashedGaussian
from scopil.nn.gradient import trainable
from scopil.nn.heads import BoxHead, DiscreteHead, Head
from scopil.nn.nets import MLP
from scopil.types import Transition

STATES, HIDDEN = 6, (16,)
HEAD = DiscreteHead(4)
BOX = BoxHead(-jnp.ones(2), jnp.ones(2))


def pairs(action: Any, head: Head, seed: int = 0, rows: int = 1_200) -> cloning.Pairs:
    """Pairs of one of six states, one-hot, and an action by `action(rng, state)`."""
    rng = np.random.default_rng(seed)
    state = rng.integers(STATES, size=rows)
    actions = np.stack([action(rng, s) for s in state])
    obs = jnp.asarray(np.eye(STATES)[state], jnp.float32)
    return cloning.Pairs(obs, jnp.asarray(actions), head, 0.05, 128)


def actor(head: Head) -> Any:
    return trainable(MLP((STATES, *HIDDEN, head.num_outputs), jax.random.key(1)))


def noisy(rng: np.random.Generator, state: int) -> np.int32:
    """The state's own action, or with probability ½ any of four."""
    return np.int32(rng.integers(4) if rng.random() < 0.5 else state % 4)


def certain(rng: np.random.Generator, state: int) -> np.int32:
    return np.int32(state % 4)


@pytest.fixture(scope="module")
def learned() -> dict[str, Any]:
    """Pairs and their clone for each demonstrator."""

    @partial(jax.jit, compiler_options=OPTIMISED)
    def make(obs: Any, action: Any) -> cloning.Clone:
        shown = cloning.Pairs(obs, action, HEAD, 0.05, 128)
        return cloning.clone(actor(HEAD), shown, cloning.Config(), jax.random.key(2))

    shown = {name: pairs(act, HEAD) for name, act in {"noisy": noisy, "certain": certain}.items()}
    return {name: (one, make(one.obs, one.action)) for name, one in shown.items()}


def test_a_clone_takes_the_demonstrated_actions(learned):
    shown, made = learned["certain"]
    assert (np.asarray(made.actor.params(shown.obs)).argmax(1) == np.asarray(shown.action)).all()


def test_delta_is_the_entropy_of_the_demonstrator(learned):
    p = np.array([0.625, 0.125, 0.125, 0.125])
    assert float(learned["noisy"][1].nll) == pytest.approx(-(p * np.log(p)).sum(), abs=0.05)
    assert float(learned["certain"][1].nll) < 0.02


@pytest.mark.parametrize(("head", "target"), [(HEAD, 0.4), (BOX, -1.5)])
def test_softening_sets_the_entropy_and_keeps_the_greedy_actions(head, target):
    rng = np.random.default_rng(0)
    shown = pairs(certain, head) if not head.continuous else None
    if shown is None:
        obs = jnp.asarray(rng.normal(size=(300, STATES)), jnp.float32)
        shown = cloning.Pairs(obs, jnp.zeros((300, 2)), head, 0.05, 128)
    before = actor(head)
    soft = jax.jit(lambda k: cloning.soften(before, shown, target, cloning.Config(), k))(jax.random.key(0))
    after = soft.actor.params
    assert float(soft.entropy) == pytest.approx(target)
    op = operator(head)
    noise = op.noise(jax.random.key(9), len(shown.obs), 0, head).now
    entropy = op.distribution(after, op.states(shown.obs), noise).entropy().mean()
    assert float(entropy) == pytest.approx(target, abs=0.01 if not head.continuous else 0.2)  # a sampled estimate
    modes = [head(net(shown.obs)).mode() for net in (before.params, after)]
    np.testing.assert_allclose(modes[0], modes[1], atol=1e-6)


def test_a_clone_at_the_bounds_is_not_widened():
    """Its largest entropy is below the target: bisection alone would return the widest policy."""
    obs = jnp.asarray(np.random.default_rng(0).normal(size=(300, STATES)), jnp.float32)
    shown = cloning.Pairs(obs, jnp.ones((300, 2)), BOX, 0.05, 128)
    before = actor(BOX)
    at_bounds = eqx.tree_at(lambda net: net.biases[-1], before.params, jnp.array([6.0, 6.0, -1.0, -1.0]))
    soft = jax.jit(lambda k: cloning.soften(trainable(at_bounds), shown, -2.0, cloning.Config(), k))(jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, soft.actor.params, at_bounds)
    pi = SquashedGaussian(at_bounds(obs))
    u = np.asarray(pi.mean) + np.exp(np.asarray(pi.log_std)) * np.random.default_rng(1).normal(size=(300, 2))
    normal = 0.5 * np.log(2 * np.pi * np.e) + np.asarray(pi.log_std)
    entropy = (normal + np.log1p(-(np.tanh(u) ** 2))).sum(1).mean()  # of the action: E log |da/du| added
    assert entropy < -10
    assert float(soft.entropy) == pytest.approx(entropy, abs=0.3)


def test_within_budget_has_the_value_of_the_nll_and_the_gradient_of_the_constraint():
    logits, action = jnp.array([[1.0, -0.5, 0.2], [0.3, 0.1, -2.0]]), jnp.array([2, 0])

    def budgeted(z: Any) -> Any:
        return constraints.within_budget(constraints.entropic_constraint, Categorical(z), action, 0.7, 0.25)

    def plain(z: Any) -> Any:
        return constraints.entropic_constraint(Categorical(z), action, 0.7, 0.0).mean()

    log_probs = np.asarray(logits) - np.log(np.exp(np.asarray(logits)).sum(1, keepdims=True))
    nll = -log_probs[[0, 1], [2, 0]].mean()
    assert float(budgeted(logits)) == pytest.approx(nll - 0.25, rel=1e-5)
    np.testing.assert_allclose(jax.grad(budgeted)(logits), jax.grad(plain)(logits), rtol=1e-5)


def test_the_policy_stays_the_clone_while_only_critics_learn():
    """Far from the demonstrations too: the statistics of observations are fixed."""
    cfg = build(scopil_clone.Config, {"hidden": (8,), "batch_size": 16, "demo_batch_size": 16, "replay_size": 64})
    obs = jax.random.normal(jax.random.key(0), (64, 2))
    demos = demo_steps(obs, (obs[:, 0] > 0).astype(jnp.int32))
    state = scopil_clone.init(jax.random.key(1), Spaces(2, DiscreteHead(2)), cfg)
    state = jax.jit(lambda s: scopil_clone.prepare(s, Data(demos=demos), cfg, jax.random.key(2)))(state)
    clone = scopil_clone.policy(state).distribution(obs)
    assert (clone.mode() == demos.action).mean() > 0.95

    def far_away(number: Any, state: Any) -> Any:
        key = jax.random.fold_in(jax.random.key(3), number)
        there, never = 50.0 + 30.0 * jax.random.normal(key, (16, 2)), jnp.zeros(16, bool)
        batch = Transition(there, jnp.zeros(16, jnp.int32), jnp.ones(16), there, never, never)
        shown = jax.tree.map(lambda leaf: leaf[:16], demos)
        return scopil_clone.update(state, Data(replay=batch, demo_batch=shown), cfg, key)[0]

    state = jax.jit(lambda s: jax.lax.fori_loop(0, 50, far_away, s))(state)
    still = scopil_clone.policy(state).distribution(obs)
    shown = demos.action
    np.testing.assert_allclose(still.log_prob(shown), clone.log_prob(shown), rtol=1e-4, atol=1e-4)


def steps_of(*episodes: tuple[list[float], list[int]]) -> DemoTransitions:
    """Episodes as (observations, actions)."""
    obs = [np.array(o, np.float32)[:, None] for o, _ in episodes]
    actions = [np.array(a) for _, a in episodes]
    return Demonstrations.from_arrays(obs, actions, action_space=gym.spaces.Discrete(3)).transitions()


def test_hesitation_is_another_action_in_an_observation_that_does_not_change():
    late_start = [5.0, 5.0, 5.0, 6.0, 7.0], [0, 0, 1, 1]
    red_light = [2.0, 2.0, 2.0, 3.0, 4.0], [0, 0, 0, 1]  # the same action until the observation changes
    in_between = [1.0, 2.0, 2.0, 3.0], [1, 2, 1]
    at_the_end = [1.0, 2.0, 2.0, 2.0], [1, 0, 2]  # no later action changes the observation
    kept = cloning.deliberate(steps_of(late_start, red_light, in_between, at_the_end))
    assert (~kept).tolist() == [
        *[True, True, False, False],
        *[False, False, False, False],
        *[False, True, False],
        *[False, False, False],
    ]
    assert cloning.deliberate(steps_of(([1.0, 1.0], [0]), ([1.0, 2.0], [1]))).all()  # two episodes, not one
