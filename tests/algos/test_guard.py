"""The critics behind the shield against NumPy in float64, and probes with known answers: a hole, and no good action."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compiling import OPTIMISED
from probes import Endless, as_type, demo_steps, layers
from reference import soft_numpy as ref
from reference import squashed_numpy as squashed
from scopil.algos import guard, sac, scopil_rho
from scopil.algos.base import Data, Spaces
from scopil.config import build
from scopil.envs.jax_env import CompiledEnv
from scopil.losses.soft import operator
from scopil.nn.heads import BoxHead, DiscreteHead
from scopil.nn.nets import network
from scopil.nn.normalise import new_stats, update_stats
from scopil.policy import Policy
from scopil.types import Transition

ROWS, SHOWN = 24, 16
HEADS: dict[str, Any] = {
    "discrete": DiscreteHead(4),
    "continuous": BoxHead(jnp.array([-1.0, 0.0]), jnp.array([3.0, 0.5])),
}
CFG = build(scopil_rho.Config, {"hidden": (8,), "learning_rate": 1e-2, "polyak": 0.1, "shield_discount": 0.8})
kinds = pytest.mark.parametrize("kind", HEADS)


class Given(NamedTuple):
    """What `sac.preprocess` reads of a learner."""

    actor: Any
    obs_stats: Any
    head: Any


def made(kind: str, seed: int = 0) -> tuple[guard.Guard, Given, Data, Any, Any]:
    """A guard, a learner, a batch with its novelty, and demonstrated steps."""
    rng, head = np.random.default_rng(seed), HEADS[kind]

    def states(rows: int) -> Any:
        return jnp.asarray(rng.normal(size=(rows, 3)) * (0.1, 1.0, 30.0) + (5.0, 0.0, -2.0), jnp.float32)

    def actions(rows: int) -> Any:
        if kind == "discrete":
            return jnp.asarray(rng.integers(4, size=rows), jnp.int32)
        return jnp.asarray(rng.uniform((-1.0, 0.0), (3.0, 0.5), (rows, 2)), jnp.float32)

    spaces = Spaces(3, head, None, ("x", "y", "z"))
    g = guard.new_guard(jax.random.key(seed), spaces, CFG.hidden)
    further = guard.new_guard(jax.random.key(seed + 1), spaces, CFG.hidden)
    g = g._replace(targets=further.critics.params, limit=jnp.float32(0.2))  # not those that follow from the critics
    demos = demo_steps(states(SHOWN), actions(SHOWN))
    stats = update_stats(new_stats((3,)), demos.obs)
    actor = network((3, *CFG.hidden, head.num_outputs), jax.random.key(seed + 2))
    over = jnp.arange(ROWS) % 4 == 0
    batch = Transition(states(ROWS), actions(ROWS), jnp.zeros(ROWS), states(ROWS), over, ~over)
    return g, Given(actor, stats, head), Data(replay=batch), jnp.asarray(rng.uniform(size=ROWS), jnp.float32), demos


def wide(x: Any) -> np.ndarray:
    return np.asarray(x, np.float64)


def seen(stats: Any, obs: Any) -> np.ndarray:
    return np.clip((wide(obs) - wide(stats.mean)) / np.sqrt(wide(stats.var) + 1e-8), -10, 10)


def unit(head: Any, action: Any) -> np.ndarray:
    return np.asarray(action) if head is HEADS["discrete"] else 2 * (wide(action) - (-1, 0)) / np.array([4.0, 0.5]) - 1


def q_all(nets: list[Any], x: np.ndarray) -> np.ndarray:
    """max_x Q_x of every output, (B, A)."""
    return np.maximum(*(ref.forward(net, x)[0] for net in nets))


def q_taken(nets: list[Any], x: np.ndarray, action: np.ndarray) -> np.ndarray:
    """max_x Q_x(s, a)"""
    if action.ndim == 1:
        return q_all(nets, x)[np.arange(len(x)), action]
    return q_all(nets, np.concatenate([x, action], axis=1))[:, 0]


@kinds
def test_a_step_of_the_critics_equals_the_reference(kind):
    with jax.enable_x64(True):
        g, learner, data, novelty, _ = as_type(made(kind), jnp.float64)
        key = jax.random.key(4)
        x = sac.preprocess(learner, data, key, learn_stats=False)
        cfg = as_type(CFG, jnp.float64)
        step = jax.jit(lambda g: guard.step(g, learner.actor, x, novelty, cfg))
        got, metrics = g, {}
        critics, targets = ([layers(net) for net in nets] for nets in (g.critics.params, g.targets))
        params = [a for net in critics for a in ref.flat(net)]
        adam = ref.Adam([np.zeros_like(a) for a in params], [np.zeros_like(a) for a in params])
        batch = data.replay
        assert batch is not None
        s, then = (seen(learner.obs_stats, o) for o in (batch.obs, batch.next_obs))
        action = unit(HEADS[kind], batch.action)
        noise: Any = None if x.noise.after is None else wide(x.noise.after)
        for _ in range(3):
            got, metrics = step(got)
            if kind == "discrete":
                pi, q = np.exp(ref.log_softmax(ref.forward(layers(learner.actor), then)[0])), q_all(targets, then)
                after = []
                for p, row in zip(pi, q):
                    kept = [a for a in range(4) if row[a] <= 0.2] or [int(np.argmin(row))]
                    after.append(sum(p[a] * row[a] for a in kept) / sum(p[a] for a in kept))
                assert 0 < (q <= 0.2).sum() < q.size
                assert (q.min(1) > 0.2).any()  # somewhere every action is above the limit
            else:
                after = q_taken(targets, then, squashed.sampled(layers(learner.actor), then, noise)[0])
            y = wide(novelty) + 0.8 * (1.0 - np.asarray(batch.terminated)) * np.array(after)
            inputs, column = (s, action) if kind == "discrete" else (np.hstack([s, action]), np.zeros(ROWS, int))
            loss = sum(ref.critic_loss(net, inputs, column, y) for net in critics)
            grads = [a for net in critics for a in ref.flat(ref.critic_grad(net, inputs, column, y))]
            params = adam.step([a for net in critics for a in ref.flat(net)], grads, 1e-2)
            half = len(params) // 2
            critics = [ref.unflat(params[:half]), ref.unflat(params[half:])]
            targets = ref.tracked(targets, critics, 0.1)
            assert float(metrics["shield/loss"]) == pytest.approx(loss, rel=1e-9)
        for nets, want in ((got.critics.params, critics), (got.targets, targets)):
            for net, other in zip(nets, want):
                for a, b in zip(ref.flat(layers(net)), ref.flat(other)):
                    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
        assert float(got.limit) == float(g.limit)


@kinds
def test_the_limit_is_a_quantile_over_demonstrated_steps(kind):
    g, learner, _, _, demos = made(kind)
    got = guard.calibrated(g, demos, learner.obs_stats, HEADS[kind], 0.7)
    s, action = seen(learner.obs_stats, demos.obs), unit(HEADS[kind], demos.action)
    q = q_taken([layers(net) for net in g.targets], s, action)
    assert float(got.limit) == pytest.approx(np.quantile(q, 0.7), abs=1e-5)
    assert guard.shield(got).limit is got.limit
    assert guard.shield(got).critics is got.targets


@kinds
def test_the_share_of_actions_that_the_shield_replaces(kind):
    g, learner, data, _, _ = made(kind)
    batch, key, head = data.replay, jax.random.key(5), HEADS[kind]
    assert batch is not None
    got = guard.blocked(g, learner._replace(actor=SimpleNamespace(params=learner.actor)), batch.obs, key)
    s, critics = seen(learner.obs_stats, batch.obs), [layers(net) for net in g.targets]
    if kind == "discrete":
        pi, q = np.exp(ref.log_softmax(ref.forward(layers(learner.actor), s)[0])), q_all(critics, s)
        kept = (q <= 0.2) | (q == q.min(1, keepdims=True))
        want = 1 - (pi * kept).sum(1)
    else:
        noise = operator(head).noise(jax.random.key(5), ROWS, 0, head).now
        want = q_taken(critics, s, squashed.sampled(layers(learner.actor), s, wide(noise))[0]) > 0.2
    assert 0.05 < want.mean() < 0.95
    assert float(got) == pytest.approx(want.mean(), abs=1e-5)


@kinds
def test_where_every_action_is_bad_the_least_bad_one_is_taken(kind):
    g, learner, data, _, demos = made(kind)
    g = g._replace(limit=jnp.float32(-1e3))

    @jax.jit
    def step(g: guard.Guard, key: Any) -> Any:
        x = sac.preprocess(learner, data, key, learn_stats=False)
        return guard.step(g, learner.actor, x, jnp.ones(ROWS), CFG)

    for number in range(3):
        g, metrics = step(g, jax.random.key(number))
        assert all(np.isfinite(value) for value in metrics.values())
    policy = Policy(learner.obs_stats, learner.actor, learner.head, guard.shield(g))
    for seed in (None, 0):
        key, again = (None if seed is None else jax.random.key(seed) for _ in range(2))
        action = np.asarray(policy.act(demos.obs, key))
        assert np.isfinite(action).all()
        s, nets = seen(learner.obs_stats, demos.obs), [layers(net) for net in g.targets]
        if kind == "discrete":
            np.testing.assert_array_equal(action, q_all(nets, s).argmin(1))
        else:  # at least as good as the policy's own
            alone = np.asarray(Policy(learner.obs_stats, learner.actor, learner.head).act(demos.obs, again))
            mine, own = (q_taken(nets, s, unit(learner.head, a)) for a in (action, alone))
            assert (mine <= own + 1e-5).all()
            assert (mine < own - 1e-3).any()
    limited = guard.calibrated(g, demos, learner.obs_stats, learner.head, 0.98)
    assert np.isfinite(limited.limit)


# --- a hole on the short way ------------------------------------------------------------------------------------------

WIDTH, HOLE = 4, (2, 0)
MOVES = jnp.array([[1, 0], [-1, 0], [0, 1], [0, -1]])  # right, left, up, down


class Place(NamedTuple):
    at: Any  # (x, y): WIDTH + 1 by 2 cells
    clock: Any


class Corridor(Endless):
    """From (0, 0) to x = 4, in two lanes. The lower one has a hole in its middle: it costs, and the way goes on."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(4)

    def initial(self, rng, params=None) -> Any:
        return Place(jnp.zeros(2, jnp.int32), jnp.int32(0))

    def transition(self, state, action, rng, params=None):
        return Place(jnp.clip(state.at + MOVES[action], 0, jnp.array([WIDTH, 1])), state.clock + 1)

    def observation(self, state, rng, params=None):
        return state.at.astype(jnp.float32)

    def terminal(self, state, rng, params=None):
        return state.at[0] == WIDTH


def in_hole(obs: Any) -> Any:
    return (obs[..., 0] == HOLE[0]) & (obs[..., 1] == HOLE[1])


def test_behind_the_shield_the_hole_is_not_entered_and_the_goal_is_reached():
    """The policy prefers the way to the right. The table of novelty is given: 1 in the hole."""
    head, cfg = DiscreteHead(4), build(scopil_rho.Config, {"learning_rate": 3e-3, "polyak": 0.05})
    spaces = Spaces(2, head, None, ("x", "y"))
    cells = jnp.stack(jnp.meshgrid(jnp.arange(WIDTH), jnp.arange(2), indexing="ij"), -1).reshape(-1, 2)
    here, action = jnp.repeat(cells, 4, axis=0), jnp.tile(jnp.arange(4), len(cells))
    then = jnp.clip(here + MOVES[action], 0, jnp.array([[WIDTH, 1]]))
    over = then[:, 0] == WIDTH
    obs, after = here.astype(jnp.float32), then.astype(jnp.float32)
    data = Data(replay=Transition(obs, action, jnp.zeros(len(obs)), after, over, jnp.zeros(len(obs), bool)))
    up_and_right = jnp.array([[0.0, 0.0], *([x, 1.0] for x in range(WIDTH))])
    demos = demo_steps(up_and_right, jnp.array([2, *[0] * WIDTH]))
    right = jnp.array([2.0, 0.0, 0.0, 0.0])
    actor = jax.tree.map(lambda leaf: right if leaf.ndim == 1 else 0 * leaf, network((2, 4), jax.random.key(0)))
    learner = Given(actor, None, head)

    def train(number: Any, g: Any) -> Any:
        x = sac.preprocess(learner, data, jax.random.key(0), learn_stats=False)
        g = guard.step(g, actor, x, in_hole(after).astype(jnp.float32), cfg)[0]
        limited = guard.calibrated(g, demos, None, head, cfg.shield_quantile)
        return jax.tree.map(lambda new, old: jnp.where(number % 100 == 99, new, old), limited, g)

    first = guard.new_guard(jax.random.key(100), spaces, cfg.hidden)
    g = jax.jit(lambda g: jax.lax.fori_loop(0, 4_000, train, g), compiler_options=OPTIMISED)(first)
    env = CompiledEnv(Corridor(), max_episode_steps=60)
    found = {}
    for name, shield in {"none": None, "shield": guard.shield(g)}.items():
        starts = env.reset_batch(jax.random.key(101), 64)
        episodes = env.play(Policy(None, actor, head, shield), starts, jax.random.key(102), "sampled")
        entered = sum(bool(in_hole(e.observations).any()) for e in episodes)
        found[name] = entered, sum(bool(e.terminated) for e in episodes)
    assert found["none"][0] > 40
    assert found["shield"][0] == 0
    assert found["shield"][1] > 60
