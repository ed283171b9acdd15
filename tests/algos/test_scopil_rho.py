"""SCOPIL-ρ: its update, a dual with a known optimum, and the preparation from demonstrations."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compiling import OPTIMISED
from probes import demo_steps
from scopil.algos import scopil_clone, scopil_rho
from scopil.algos.base import Data, Spaces
from scopil.buffers import matched_states
from scopil.buffers.replay import uniform_indices
from scopil.config import build
from scopil.data.dataset import DemoStarts
from scopil.errors import ConfigError
from scopil.losses import density_ratio
from scopil.nn.heads import DiscreteHead
from scopil.types import Transition

SPACES = Spaces(2, DiscreteHead(3))
SMALL = {
    "hidden": (8,),
    "batch_size": 16,
    "demo_batch_size": 12,
    "classifier_batch_size": 8,
    "classifier_width": 4,
    "num_envs": 2,
}


FOLDS = scopil_rho.Config().folds


def config(**changes: Any) -> scopil_rho.Config:
    quick = {"slack": 0.2, "critics_first": 0, "clone_steps": 1, "replay_size": 64}
    return build(scopil_rho.Config, SMALL | quick | changes)


def steps(rows: int, seed: int) -> Transition:
    rng = np.random.default_rng(seed)
    obs, next_obs = (jnp.asarray(rng.normal(size=(rows, 2)), jnp.float32) for _ in range(2))
    never = jnp.zeros(rows, bool)
    return Transition(obs, jnp.asarray(rng.integers(3, size=rows)), -jnp.ones(rows), next_obs, never, never)


def shown(rows: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    obs = jnp.asarray(rng.normal(size=(rows, 2)), jnp.float32)
    return demo_steps(obs, jnp.asarray(rng.integers(3, size=rows)))._replace(
        group=jnp.arange(rows, dtype=jnp.int32), next_obs=obs + 0.1
    )


STARTS = DemoStarts(jnp.zeros((3, 2)), jnp.arange(3))


def data(seed: int = 0) -> Any:
    return Data(
        replay=steps(16, seed),
        newest=steps(2, seed + 1),
        began=jnp.ones(2, bool),
        demo_batch=shown(12, seed + 2),
        demo_starts=STARTS,
    )


def begun(cfg: scopil_rho.Config) -> scopil_rho.State:
    fresh = jax.jit(partial(scopil_rho.init, spaces=SPACES, cfg=cfg))(jax.random.key(0))
    units = {"scale": jnp.ones(2), "blur": 0.2 * jnp.ones(2), "threshold": -0.3 * jnp.ones(FOLDS)}
    own = matched_states.begin_with(fresh.own, steps(30, 9).next_obs, jnp.ones(30, bool), jnp.float32(jnp.inf))
    return fresh._replace(ratio=fresh.ratio._replace(**units), own=own)


@pytest.fixture(scope="module")
def update() -> Any:
    return jax.jit(scopil_rho.update)


@pytest.mark.parametrize("end_cost", [0.0, 99.0])
def test_an_update_is_that_of_scopil_clone_on_rewards_less_the_cost(end_cost, update):
    cfg = config(occupancy_init=2.0)
    state, given = begun(cfg)._replace(end_cost=jnp.float32(end_cost)), data()
    batch = given.replay._replace(terminated=jnp.arange(16) < 3)
    new, metrics = update(state, given._replace(replay=batch), cfg, jax.random.key(7))
    k_scopil = jax.random.split(jax.random.key(7), 4)[3]
    novelty = density_ratio.cost(new.ratio, batch.next_obs)
    assert 0 < float(novelty.mean()) < 1
    charged = batch._replace(reward=batch.reward - 2.0 * (novelty + end_cost * batch.terminated))
    want, _ = jax.jit(scopil_clone.update)(state.learner, given._replace(replay=charged), cfg, k_scopil)
    for a, b in zip(jax.tree.leaves(new.learner), jax.tree.leaves(want)):
        np.testing.assert_allclose(a, b, rtol=1e-4 if end_cost else 1e-5, atol=1e-6)
    assert float(metrics["occupancy/replay_cost"]) == pytest.approx(float(novelty.mean()), rel=1e-5)


def test_classifiers_learn_from_matched_states_at_every_fourth_update(update):
    cfg, moved = config(classifier_batch_size=12), []
    state = begun(cfg)
    for number in range(5):
        new, _ = update(state, data(number), cfg, jax.random.key(number))
        moved.append(bool((new.ratio.nets.params.w1 != state.ratio.nets.params.w1).any()))
        if number == 0:
            _, k_pick, k_ratio, _ = jax.random.split(jax.random.key(number), 4)
            given, own = data(0), new.own
            (index,) = uniform_indices(k_pick, (12, own.kept))
            want = density_ratio.ratio_step(
                state.ratio, given.demo_batch.next_obs, jnp.arange(12) % FOLDS, own.states[index],
                given.replay.next_obs[:3], cfg, k_ratio,
            )  # fmt: skip
            np.testing.assert_allclose(new.ratio.nets.params.w1, want.nets.params.w1, rtol=1e-5)
        state = new
    assert moved == [True, False, False, False, True]


def test_unmatched_episodes_change_neither_mu_nor_the_kept_states(update):
    cfg = config(occupancy_init=1.0, occupancy_lr=0.5)
    state = begun(cfg)
    state = state._replace(own=state.own._replace(reach=jnp.float32(0.0)))  # no start is so near
    new, metrics = update(state, data(), cfg, jax.random.key(7))
    assert float(new.occupancy) == 1.0
    assert float(metrics["occupancy/matched"]) == 0.0
    np.testing.assert_array_equal(new.own.states, state.own.states)


def test_mu_follows_the_newest_steps_and_is_projected_to_zero(update):
    cfg = config(occupancy_init=1.0, occupancy_lr=0.5, occupancy_share=0.25)
    new, metrics = update(begun(cfg), data(), cfg, jax.random.key(7))
    own = density_ratio.cost(new.ratio, data().newest.next_obs).mean()
    gap = float(own) - 0.25 * float(metrics["occupancy/demo_cost"])
    assert float(new.occupancy) == pytest.approx(1.0 + 0.5 * gap, rel=1e-5)
    cfg = config(occupancy_init=0.01, occupancy_lr=100.0, occupancy_share=50.0)
    assert float(update(begun(cfg), data(), cfg, jax.random.key(7))[0].occupancy) == 0.0
    cfg = config(occupancy_init=3.0, occupancy_lr=0.0)
    assert float(update(begun(cfg), data(), cfg, jax.random.key(7))[0].occupancy) == 3.0


def test_the_policy_is_an_average_and_the_newest_actor_collects_data(update):
    cfg = config(average_over=3)
    state, actors = begun(cfg), []
    for number in range(5):
        state, _ = update(state, data(number), cfg, jax.random.key(number))
        actors.append(np.asarray(state.learner.actor.params.weights[0], np.float64))
    mean = np.mean(actors[:3], axis=0)
    for actor in actors[3:]:
        mean = mean + (actor - mean) / 3
    policy: Any
    acting: Any
    policy, acting = (of(state).network for of in (scopil_rho.policy, scopil_rho.behaviour))
    np.testing.assert_allclose(policy.weights[0], mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(acting.weights[0], actors[-1], rtol=1e-6)


@pytest.mark.parametrize(("ends", "episodes"), [(False, 1), (False, 10), (True, 10)])
def test_termination_is_penalised_if_no_demonstration_terminates(ends, episodes):
    cfg, demos = config(), walk()
    demos = demos._replace(
        terminated=jnp.zeros(400, bool).at[399].set(ends), episode=jnp.repeat(jnp.arange(episodes), 400 // episodes)
    )
    made = scopil_rho.prepare(begun(cfg), given(demos), cfg, jax.random.key(0))
    wanted = 0.0 if ends else sum(0.99**t for t in range(1, 400 // episodes + 1))
    assert float(made.end_cost) == pytest.approx(wanted, rel=1e-4)


def test_the_unit_of_lambda_is_the_return_of_demonstrated_episodes():
    cfg, demos = config(), walk()
    rng = np.random.default_rng(0)
    reward, episode = rng.normal(size=400) + 3.0, np.sort(rng.integers(7, size=400))
    demos = demos._replace(reward=jnp.asarray(reward, jnp.float32), episode=jnp.asarray(episode))
    made = scopil_rho.prepare(begun(cfg), given(demos), cfg, jax.random.key(0))
    runs = [reward[episode == e] for e in np.unique(episode)]
    unit = np.mean([abs(sum(r * 0.99**t for t, r in enumerate(run))) for run in runs]) / cfg.return_unit
    assert float(made.learner.unit) == pytest.approx(unit, rel=1e-4)
    assert float(made.learner.multiplier) == pytest.approx(1.05 * unit, rel=1e-4)
    for silent in (None, jnp.zeros(400)):  # not recorded, or nothing to earn
        made = scopil_rho.prepare(begun(cfg), given(demos._replace(reward=silent)), cfg, jax.random.key(0))
        assert float(made.learner.unit) == 1.0


def walk(rows: int = 400) -> Any:
    """Component 0 is a random walk, component 1 is noise."""
    rng = np.random.default_rng(0)
    drift = np.cumsum(rng.normal(size=rows + 1)) * 0.1
    path = jnp.asarray(np.stack([drift, rng.normal(size=rows + 1)], axis=1), jnp.float32)
    made = demo_steps(path[:-1], jnp.zeros(rows, jnp.int32))
    return made._replace(next_obs=path[1:], group=jnp.arange(rows, dtype=jnp.int32) // 20)


def given(demos: Any) -> Data:
    return Data(demos=demos, demo_starts=DemoStarts(demos.obs[::20], demos.group[::20]))


def way(episodes: int = 10, length: int = 40) -> Any:
    """Component 0 drifts one way, faster in each further episode; component 1 is noise."""
    rows, rng = np.arange(length + 1), np.random.default_rng(0)
    paths = [np.stack([-(10 + e) * rows / length, rng.normal(size=length + 1)], axis=1) for e in range(episodes)]
    obs, after = (np.concatenate([p[part] for p in paths]) for part in (slice(0, -1), slice(1, None)))
    number = jnp.repeat(jnp.arange(episodes), length)
    made = demo_steps(jnp.asarray(obs, jnp.float32), jnp.zeros(len(obs), jnp.int32))
    return made._replace(next_obs=jnp.asarray(after, jnp.float32), episode=number, group=number)


def test_states_beyond_the_end_of_truncated_demonstrations_cost_nothing():
    cfg, demos = config(), way()
    made = scopil_rho.prepare(begun(cfg), given(demos), cfg, jax.random.key(0)).ratio
    assert made.way.tolist() == [-1.0, 0.0]
    ends = -np.quantile([10 + e for e in range(10)], 0.1)  # nine of ten episodes passed it
    x = jnp.array([[ends + 0.1, 0.0], [ends - 0.1, 0.0], [30.0, 0.0]])  # before, beyond, and the other way
    assert density_ratio.known(made, density_ratio.features(made, x)).tolist() == [True, False, True]
    novel = made._replace(threshold=jnp.full(FOLDS, -100.0))
    assert density_ratio.cost(novel, x).tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("case", ["rests at a goal", "random walk and a single step", "terminates"])
def test_components_without_drift_at_a_time_limit_have_no_cut(case):
    cfg, demos = config(), way()
    if case == "rests at a goal":
        row = jnp.arange(400) % 40
        there = -10.0 * jnp.minimum(jnp.stack([row, row + 1]) / 20.0, 1.0)  # half of the time at −10
        demos = demos._replace(obs=demos.obs.at[:, 0].set(there[0]), next_obs=demos.next_obs.at[:, 0].set(there[1]))
    elif case == "terminates":
        demos = demos._replace(terminated=demos.episode != jnp.append(demos.episode[1:], -1))
    else:
        single = jax.tree.map(lambda x: x[:1], walk())._replace(episode=jnp.array([20]), group=jnp.array([20]))
        demos = jax.tree.map(lambda *x: jnp.concatenate(x), walk()._replace(episode=walk().group), single)
    made = scopil_rho.prepare(begun(cfg), given(demos), cfg, jax.random.key(0)).ratio
    assert made.way.tolist() == [0.0, 0.0]
    assert bool(density_ratio.known(made, jnp.array([[-50.0, 50.0], [0.0, 0.0]])).all())


def test_the_slow_component_is_used_and_blurred_by_one_step():
    cfg, demos = config(), walk()
    made = scopil_rho.prepare(begun(cfg), given(demos), cfg, jax.random.key(0)).ratio
    change = np.sqrt(np.mean((np.asarray(demos.next_obs) - np.asarray(demos.obs)) ** 2, axis=0))
    deviation = np.asarray(demos.next_obs).std(0)
    assert np.asarray(made.scale)[1] == 0
    np.testing.assert_allclose(made.scale[0], 1 / deviation[0], rtol=1e-4)
    np.testing.assert_allclose(made.blur[0], change[0] / deviation[0], rtol=1e-4)


def test_features_by_number():
    cfg = config(features=(1,), blur=2.0)
    made = scopil_rho.prepare(begun(cfg), given(walk()), cfg, jax.random.key(0)).ratio
    assert np.asarray(made.scale)[0] == 0
    assert np.asarray(made.scale)[1] > 0
    assert float(made.blur[1]) == pytest.approx(2 * 2**0.5, rel=0.1)  # two independent draws differ by √2 deviations


def test_a_constant_component_is_not_used_unless_named():
    still = walk()
    still = still._replace(obs=still.obs.at[:, 0].set(1.0), next_obs=still.next_obs.at[:, 0].set(1.0))
    cfg = config()
    made = scopil_rho.prepare(begun(cfg), given(still), cfg, jax.random.key(0)).ratio
    assert np.asarray(made.scale).tolist()[0] == 0
    assert np.isfinite(np.asarray(made.blur)).all()
    cfg = config(features=(0,))  # unless it is named: a flag that the demonstrator never sets
    named = scopil_rho.prepare(begun(cfg), given(still), cfg, jax.random.key(0)).ratio
    seen = density_ratio.features(named, jnp.array([[1.0, 0.0], [0.0, 0.0]])).T
    assert float(jnp.abs(seen[0] - seen[1]).max()) == pytest.approx(1.0)


def test_a_component_that_is_fixed_within_episodes_is_not_used():
    """For example a goal: it is the slowest component, and does not distinguish states of an episode."""
    fixed = walk()
    goal = jnp.asarray(fixed.group, jnp.float32)
    fixed = fixed._replace(obs=fixed.obs.at[:, 1].set(goal), next_obs=fixed.next_obs.at[:, 1].set(goal))
    cfg = config()
    made = scopil_rho.prepare(begun(cfg), given(fixed), cfg, jax.random.key(0)).ratio
    assert made.scale[0] > 0
    assert made.scale[1] == 0


def test_unknown_features_and_large_batches_are_refused():
    with pytest.raises(ConfigError, match="features"):
        scopil_rho.init(jax.random.key(0), SPACES, config(features=(0, 2)))
    with pytest.raises(ConfigError, match="classifier_batch_size"):
        config(classifier_batch_size=13)


def known_ratio() -> density_ratio.DensityRatio:
    """Classifiers with f = 2 where the first component is 1, f = 0 where it is 0, τ = ½."""
    blank = jax.tree.map(jnp.zeros_like, begun(config()).ratio)
    nets = blank.nets.params
    width = nets.b2.shape[1]
    nets = nets._replace(
        w1=nets.w1.at[::width, 0].set(1.0), w2=nets.w2.at[:, 0, 0].set(1.0), w3=nets.w3.at[:, 0, 0].set(2.0)
    )
    return blank._replace(nets=blank.nets._replace(params=nets), threshold=jnp.full(FOLDS, 0.5), scale=jnp.ones(2))


def test_the_dual_reaches_the_known_optimum_of_a_two_state_problem():
    """One action pays 1 and leads to a novel state (c = 1), the other pays 0 and leads to a familiar one (c = 0). A
    soft policy of temperature t = 2(1 − β)α takes the first with p = σ((1 − μ)/t). A fifth of the held-out demonstrated
    states is novel, so that with κ = 1 the constraint p ≤ 0.2 holds with equality at μ* = 1 − t log(p/(1 − p))."""
    alpha, beta, share = 0.3, 0.25, 0.2
    cfg = config(
        multiplier_init=0.0, multiplier_lr=0.0, log_alpha_init=float(np.log(alpha)), alpha_lr=0.0,
        classifier_lr=0.0, quantile=1 - share, occupancy_init=0.0, occupancy_lr=2e-3, occupancy_share=1.0,
        learning_rate=3e-3, num_envs=8, batch_size=20, demo_batch_size=20, classifier_batch_size=20, entropy_split=beta,
    )  # fmt: skip
    spaces = Spaces(2, DiscreteHead(2))

    def world(action: Any) -> Transition:
        """The step of an action; it terminates."""
        novel = (action == 0).astype(jnp.float32)
        here, over = jnp.zeros((len(action), 2)), jnp.ones(len(action), bool)
        return Transition(here, action, novel, here.at[:, 0].set(novel), over, ~over)

    rows = jnp.arange(20)
    demos = demo_steps(jnp.zeros((20, 2)), jnp.zeros(20, jnp.int32))._replace(
        group=rows,
        next_obs=jnp.zeros((20, 2)).at[:4, 0].set(1.0),  # one of each fold
    )

    def step(number: Any, state: Any) -> Any:
        k_act, k_learn = jax.random.split(jax.random.fold_in(jax.random.key(1), number))
        newest = world(scopil_rho.behaviour(state).act(jnp.zeros((8, 2)), k_act))
        began = jnp.ones(8, bool)
        given = Data(replay=world(rows % 2), newest=newest, began=began, demo_batch=demos, demo_starts=STARTS)
        return scopil_rho.update(state, given, cfg, k_learn)[0]

    state = scopil_rho.init(jax.random.key(0), spaces, cfg)._replace(ratio=known_ratio())
    state = state._replace(
        own=matched_states.begin_with(state.own, demos.next_obs, jnp.ones(len(demos.obs), bool), jnp.float32(jnp.inf))
    )
    run = jax.jit(lambda s: jax.lax.fori_loop(0, 20_000, step, s), compiler_options=OPTIMISED)
    state = run(state)
    pi: Any = scopil_rho.behaviour(state).distribution(jnp.zeros((1, 2)))
    taken = pi.probs[0, 0]
    assert float(taken) == pytest.approx(share, abs=0.04)
    temperature = 2 * (1 - beta) * alpha
    assert float(state.occupancy) == pytest.approx(1 - temperature * np.log(share / (1 - share)), abs=0.15)
