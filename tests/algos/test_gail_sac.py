"""GAIL-SAC: the discriminator against NumPy and a closed form, the reward, and probes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scopil
from probes import demo_steps
from scopil.algos import gail_sac, sac
from scopil.algos.base import Data, Spaces
from scopil.config import build
from scopil.nn.heads import BoxHead, DiscreteHead
from scopil.nn.nets import MLP
from scopil.types import Transition
from toys import LIMIT, REPLAY, toy, toy_demos

ROWS, OBS = 12, 3
HEADS = {"numbered": DiscreteHead(4), "continuous": BoxHead(-2.0 * jnp.ones(2), 2.0 * jnp.ones(2))}
SMALL = {"hidden": (6, 5), "batch_size": ROWS, "demo_batch_size": ROWS, "replay_size": 64}


def forward(layers: list[tuple[np.ndarray, np.ndarray]], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """D and ∇D of rows of x, by hand in float64."""
    h, slope = x, np.tile(np.eye(x.shape[1]), (len(x), 1, 1))
    for i, (w, b) in enumerate(layers):
        h, slope = h @ w.T + b, np.einsum("oi,rix->rox", w, slope)
        if i < len(layers) - 1:
            on = h > 0
            h, slope = h * on, slope * on[:, :, None]
    return h[:, 0], slope[:, 0]


def loss(layers: list[tuple[np.ndarray, np.ndarray]], demo: np.ndarray, own: np.ndarray, between: np.ndarray) -> float:
    softplus = lambda z: np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))  # noqa: E731
    penalty = (np.sqrt((forward(layers, between)[1] ** 2).sum(1) + 1e-12) - 1) ** 2
    return softplus(-forward(layers, demo)[0]).mean() + softplus(forward(layers, own)[0]).mean() + 10 * penalty.mean()


def test_the_discriminators_loss_and_gradient_equal_numpys():
    rng = np.random.default_rng(0)
    demo, own, between = (rng.normal(size=(ROWS, 4)) for _ in range(3))
    with jax.enable_x64(True):
        net = jax.tree.map(lambda x: x.astype(float), MLP((4, 6, 5, 1), jax.random.key(1)))
        d, o, x = (jnp.asarray(rows) for rows in (demo, own, between))
        ours = jax.jit(jax.value_and_grad(lambda n: gail_sac.discriminator_loss(n, d, o, x, 10.0)))
        value, slope = ours(net)
        layers = [(np.array(w), np.array(b)) for w, b in zip(net.weights, net.biases)]
        assert float(value) == pytest.approx(loss(layers, demo, own, between), rel=1e-10)
        for i, (w, b) in enumerate(layers):
            for array, got in ((w, slope.weights[i]), (b, slope.biases[i])):
                for at in np.ndindex(array.shape):
                    middle, ends = array[at], []
                    for step in (1e-6, -1e-6):
                        array[at] = middle + step
                        ends.append(loss(layers, demo, own, between))
                    array[at] = middle
                    assert float(got[at]) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-7)


def given(head: Any, seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)

    def action() -> Any:
        drawn = rng.uniform(-2, 2, (ROWS, 2)) if head.continuous else rng.integers(4, size=ROWS)
        return jnp.asarray(drawn, jnp.float32 if head.continuous else jnp.int32)

    obs, after = (jnp.asarray(rng.normal(size=(ROWS, OBS)), jnp.float32) for _ in range(2))
    never = jnp.zeros(ROWS, bool)
    batch = Transition(obs, action(), jnp.asarray(rng.normal(size=ROWS), jnp.float32), after, never, never)
    return Data(replay=batch, demo_batch=demo_steps(jnp.asarray(rng.normal(size=(ROWS, OBS)), jnp.float32), action()))


@pytest.mark.parametrize("kind", HEADS)
def test_an_update_is_sacs_on_the_charged_reward(kind):
    head = HEADS[kind]
    cfg = build(gail_sac.Config, SMALL | {"imitation": 0.7, "task_reward": 0.3}, head.continuous)
    state, data, key = gail_sac.init(jax.random.key(0), Spaces(OBS, head), cfg), given(head), 5
    new, metrics = jax.jit(gail_sac.update)(state, data, cfg, jax.random.key(key))
    x = gail_sac.pairs(state, data.replay.obs, data.replay.action)  # pyright: ignore[reportOptionalMemberAccess]
    layers = [(np.asarray(w, float), np.asarray(b, float)) for w, b in zip(*vars_of(new.discriminator.params))]
    bonus = -np.log1p(np.exp(-forward(layers, np.asarray(x, float))[0]))
    reward = 0.3 * data.replay.reward + 0.7 * jnp.asarray(bonus, jnp.float32)  # pyright: ignore[reportOptionalMemberAccess]
    charged = data.replay._replace(reward=reward)  # pyright: ignore[reportOptionalMemberAccess]
    want, _ = jax.jit(sac.update)(state.sac, Data(replay=charged), cfg, jax.random.split(jax.random.key(key))[1])
    for a, b in zip(jax.tree.leaves(new.sac), jax.tree.leaves(want)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert float(metrics["discriminator/reward"]) == pytest.approx(bonus.mean(), rel=1e-4)


def vars_of(net: Any) -> tuple[Any, Any]:
    return net.weights, net.biases


def test_without_imitation_it_is_sac():
    head = HEADS["numbered"]
    cfg = build(gail_sac.Config, SMALL | {"imitation": 0.0})
    state, data, key = gail_sac.init(jax.random.key(0), Spaces(OBS, head), cfg), given(head), 5
    new, _ = jax.jit(gail_sac.update)(state, data, cfg, jax.random.key(key))
    want, _ = jax.jit(sac.update)(state.sac, Data(replay=data.replay), cfg, jax.random.split(jax.random.key(key))[1])
    for a, b in zip(jax.tree.leaves(new.sac), jax.tree.leaves(want)):
        np.testing.assert_array_equal(a, b)


def test_the_discriminator_finds_the_log_ratio_of_a_table():
    """One observation, four actions: D(a) = log p_E(a)/p_B(a) without a penalty."""
    cfg = build(gail_sac.Config, SMALL | {"gradient_penalty": 0.0, "discriminator_lr": 3e-3, "hidden": (16,)})
    demo, own = np.repeat(np.arange(4), [6, 3, 2, 1]), np.repeat(np.arange(4), [1, 2, 3, 6])
    here, never = jnp.zeros((ROWS, OBS)), jnp.zeros(ROWS, bool)
    batch = Transition(here, jnp.asarray(own), jnp.zeros(ROWS), here, ~never, never)
    data = Data(replay=batch, demo_batch=demo_steps(here, jnp.asarray(demo)))
    state = gail_sac.init(jax.random.key(0), Spaces(OBS, HEADS["numbered"]), cfg)
    step = lambda i, s: gail_sac.update(s, data, cfg, jax.random.key(0))[0]  # noqa: E731
    state = jax.jit(lambda s: jax.lax.fori_loop(0, 3_000, step, s))(state)
    got = state.discriminator.params(gail_sac.pairs(state, here[:4], jnp.arange(4)))[:, 0]
    np.testing.assert_allclose(got, np.log([6.0, 1.5, 2 / 3, 1 / 6]), atol=0.05)


@pytest.mark.parametrize("continuous", [False, True], ids=["numbered", "continuous"])
def test_it_keeps_the_rule_of_the_demonstrations_and_without_the_discriminator_it_does_not(continuous):
    """The best paid action of the toy breaks a rule; the demonstrations avoid it."""
    settings: Any = REPLAY | {"demo_batch_size": 8, "learning_rate": 0.02, "discount": 0.0, "alpha_lr": 0.0}
    settings |= {"log_alpha_init": -3.0, "discriminator_lr": 0.02, "gradient_penalty": 0.1}
    states = np.array([[1, 0], [1, 1], [-1, 0], [-1, 1]], np.float32)

    env, demos = toy(continuous), toy_demos(continuous)
    lawful, other = (scopil.GAILSAC(env, demos, seed=0, imitation=i, **settings) for i in (30.0, 0.0))
    other._trainer.loop = lawful._trainer.loop  # compiled once
    for agent, breaks_it in ((lawful, False), (other, True)):
        action = np.asarray(agent.learn(2_000).predict(states)[0], float)
        assert ((action > LIMIT) == breaks_it).all()
