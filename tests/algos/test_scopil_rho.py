"""SCOPIL-ρ: its update, the preparation from demonstrations, multipliers, constraints that enter and leave, a known
optimum of the dual, and the scale of the reward."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compiling import OPTIMISED
from probes import demo_steps
from reference import marginals_numpy as ref
from scopil.algos import guard, occupancy, sac, scopil_clone, scopil_rho
from scopil.algos.base import Data, Spaces
from scopil.algos.learned_constraints import learned_cost
from scopil.config import build
from scopil.data.dataset import DemoStarts
from scopil.errors import ConfigError
from scopil.losses.features import features_of, singles
from scopil.losses.marginals import CELLS, HIGH, LOW, Sample, Tables
from scopil.nn.heads import BoxHead, DiscreteHead
from scopil.types import Transition

NAMES = ("x", "y", "v")
SPACES = Spaces(3, DiscreteHead(3), None, NAMES)
SMALL = {  # whole numbers are constants of a compiled program: tests share them
    "hidden": (8,), "batch_size": 16, "demo_batch_size": 12, "num_envs": 2, "slack": 0.2, "critics_first": 0,
    "clone_steps": 1, "replay_size": 64, "most_categories": 0, "slots": 3, "recent": 600, "matched_capacity": 1_200,
    "average_over": 3, "settle": 70, "refresh_every": 100, "enter_every": 1, "patience": 3,
}  # fmt: skip
update, observe, leave = (jax.jit(f) for f in (scopil_rho.update, scopil_rho.observe, occupancy.leave))
LENGTH = 20


def config(**changes: Any) -> scopil_rho.Config:
    return build(scopil_rho.Config, SMALL | changes)


@cache
def paths(episodes: int, seed: int, top: float = 1.0) -> Any:
    """Episodes of 20 steps, as transitions: (x, y) goes along a circle from a random place on, v is uniform in
    [0, top], actions are uniform, the reward is v."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, (episodes, 1)) + 0.1 * np.arange(LENGTH + 1)[None]
    away = rng.uniform(0.5, 1.0, (episodes, LENGTH + 1))
    v = rng.uniform(0, top, angle.shape)
    states = np.stack([away * np.cos(angle), away * np.sin(angle), v], axis=-1)
    obs, after = (jnp.asarray(x.reshape(-1, 3), jnp.float32) for x in (states[:, :-1], states[:, 1:]))
    number = jnp.repeat(jnp.arange(episodes), LENGTH)
    action = jnp.asarray(rng.integers(3, size=len(obs)), jnp.int32)
    return demo_steps(obs, action)._replace(
        next_obs=after, episode=number, group=number, reward=after[:, 2], terminated=jnp.arange(len(obs)) % LENGTH == 19
    )


def given(demos: Any) -> Data:
    first = np.unique(np.asarray(demos.episode), return_index=True)[1]
    return Data(demos=demos, demo_starts=DemoStarts(demos.obs[first], demos.group[first]))


def fresh(cfg: scopil_rho.Config, spaces: Spaces = SPACES) -> scopil_rho.State:
    return jax.jit(partial(scopil_rho.init, spaces=spaces, cfg=cfg))(jax.random.key(0))


def prepare(state: scopil_rho.State, data: Data, cfg: scopil_rho.Config) -> scopil_rho.State:
    return scopil_rho.prepare(state, data, cfg, jax.random.key(1))


DEMOS = paths(30, 0)


@pytest.fixture(scope="module")
def begun() -> scopil_rho.State:
    """Prepared from `DEMOS`."""
    return prepare(fresh(config()), given(DEMOS), config())


def steps(rows: int, seed: int) -> Transition:
    x = jax.tree.map(lambda leaf: leaf[:rows], paths(30, seed))
    return Transition(x.obs, x.action, -jnp.ones(rows), x.next_obs, jnp.zeros(rows, bool), jnp.zeros(rows, bool))


@cache
def batches(seed: int = 0) -> Data:
    return given(DEMOS)._replace(
        replay=steps(16, seed),
        newest=steps(2, seed + 1),
        began=jnp.ones(2, bool),
        demo_batch=jax.tree.map(lambda leaf: leaf[:12], paths(30, seed + 2)),
    )


def at_update(state: scopil_rho.State, number: int) -> scopil_rho.State:
    return state._replace(learner=state.learner._replace(updates=jnp.int32(number)))


# --- the update -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("end_cost", "shield"), [(0.0, "learning"), (99.0, "always"), (0.0, "off")])
def test_an_update_is_that_of_scopil_clone_on_rewards_less_the_price(end_cost, shield, begun):
    """With a charge for the distance from the clone in familiar states. The critics behind the shield learn the novelty
    with weights 1 and ½: the first constraint is older. Without a shield there are no such critics."""
    cfg = config(shield=shield, anchor=0.7)
    rng = np.random.default_rng(0)
    slots = begun.slots._replace(
        kind=jnp.array([1, 0, -1]),
        table=jnp.asarray(rng.uniform(size=(3, CELLS)), jnp.float32).at[2].set(0.0),
        mu=jnp.array([2.0, 3.0, 0.0]),
        budget=jnp.array([0.1, 0.2, 0.0]),
        age=jnp.array([5, 2, 9]),
    )
    state = at_update(
        begun._replace(end_cost=jnp.asarray(end_cost, np.float32), unit=jnp.asarray(4.0, np.float32), slots=slots), 1
    )
    state = state._replace(guard=state.guard._replace(limit=jnp.float32(-1.0)))
    other = jax.tree.map(lambda w: 1.5 * w, state.learner.actor.params)
    state = state._replace(learner=state.learner._replace(actor=state.learner.actor._replace(params=other)))
    data = batches()
    batch = data.replay
    assert batch is not None
    batch = batch._replace(terminated=jnp.arange(16) < 3)
    new, metrics = update(state, data._replace(replay=batch), cfg, jax.random.key(7))
    c = np.asarray(scopil_rho.novelty_of(state, batch))
    assert c[:, :2].min() > 0
    refund = min(2.0 * 0.1 + 3.0 * 0.2, 0.9 * cfg.step_reward)
    r = np.asarray(batch.reward) / 4 - 2.0 * c[:, 0] - 3.0 * c[:, 1] + refund
    r -= end_cost * max(3.0, cfg.occupancy_init) * np.asarray(batch.terminated)
    charged = batch._replace(reward=jnp.asarray(r, jnp.float32))
    _, k_learner, k_guard = jax.random.split(jax.random.key(7), 3)

    def wanted(learner: Any) -> Any:
        x = sac.preprocess(learner, data._replace(replay=batch), k_guard, learn_stats=False)
        watched, _ = guard.step(
            state.guard, learner.actor.params, x, jnp.minimum(jnp.asarray(c[:, 0] + 0.5 * c[:, 1]), 1.0), cfg
        )

        def beyond(actor: Any, x: Any) -> Any:
            mine, theirs = (jax.nn.log_softmax(net.columns(x.s), 0) for net in (actor, state.anchor))
            away = (jnp.exp(mine) * (mine - theirs)).sum(0) * (1 - np.minimum(c.sum(1), 1))
            return 0.7 * away.mean()

        now, _ = scopil_clone.update(learner, data._replace(replay=charged), cfg, k_learner, beyond)
        return now, state.guard if shield == "off" else watched

    want, watched = jax.jit(wanted)(state.learner)
    for a, b in zip(jax.tree.leaves(new.guard), jax.tree.leaves(watched)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert ("shield/limit" in metrics) == (shield != "off")
    for a, b in zip(jax.tree.leaves(new.learner), jax.tree.leaves(want)):
        np.testing.assert_allclose(a, b, rtol=1e-4 if end_cost else 1e-5, atol=1e-6)
    assert float(metrics["occupancy/mu"]) == 5.0


def test_the_deployed_policy_gets_its_shield_after_some_steps(begun):
    for updates, limit in ((0, guard.UNLIMITED), (49_999, guard.UNLIMITED), (50_000, 0.3), (10**6, 0.3)):
        state = begun._replace(
            learner=begun.learner._replace(updates=jnp.int32(updates)),
            guard=begun.guard._replace(limit=jnp.float32(0.3)),
        )
        deployed, acting = (of(state).shield for of in (scopil_rho.policy, scopil_rho.behaviour))
        assert deployed is not None
        assert acting is not None
        assert float(deployed.limit) == pytest.approx(limit)
        assert float(acting.limit) == pytest.approx(0.3)


def test_the_policy_is_an_average_and_the_newest_actor_collects_data(begun):
    cfg, state, actors = config(), begun, []
    state = at_update(state, 0)
    for number in range(5):
        state, _ = update(state, batches(number), cfg, jax.random.key(number))
        actors.append(np.asarray(state.learner.actor.params.weights[0], np.float64))
    mean = np.mean(actors[:3], axis=0)
    for actor in actors[3:]:
        mean = mean + (actor - mean) / 3
    policy, acting = (of(state).network for of in (scopil_rho.policy, scopil_rho.behaviour))
    np.testing.assert_allclose(policy.weights[0], mean, rtol=1e-4, atol=1e-6)  # pyright: ignore
    np.testing.assert_allclose(acting.weights[0], actors[-1], rtol=1e-6)  # pyright: ignore


# --- the newest steps -------------------------------------------------------------------------------------------------


def observed(state: scopil_rho.State, obs: list[float], began: list[bool], ends: list[bool], reward: float) -> Any:
    """One step of two environments at these values of all components."""
    rows = jnp.repeat(jnp.asarray(obs)[:, None], 3, axis=1)
    over, no = jnp.asarray(ends), jnp.zeros(2, bool)
    step = Transition(rows, jnp.zeros(2, jnp.int32), jnp.full(2, reward), rows + 1, over, no)
    starts = DemoStarts(jnp.array([[0.0] * 3, [1.0] * 3]), jnp.arange(2))
    return observe(state, Data(newest=step, began=jnp.asarray(began), demo_starts=starts))


def test_the_start_of_an_episode_decides_for_all_its_steps(begun):
    state = begun._replace(start_scale=jnp.ones(3), reach=jnp.asarray(0.2, np.float32))
    state = observed(at_update(state, 5), [0.1, 5.0], [True, True], [False, False], 1.0)
    assert state.newest.playing.tolist() == [True, False]
    state = observed(at_update(state, 6), [9.0, 1.1], [False, False], [True, True], 2.0)  # near a start: too late
    state = observed(at_update(state, 7), [3.0, 1.1], [True, True], [False, False], 4.0)  # both begin anew
    assert state.newest.playing.tolist() == [False, True]
    new = state.newest
    assert new.matched[:6].tolist() == [True, False, True, False, False, True]
    assert new.number[:6].tolist() == [1, 2, 1, 2, 3, 4]
    assert new.returns[1:5].tolist() == [3.0, 3.0, 0.0, 0.0]
    assert new.ended[1:5].tolist() == [6, 6, -1, -1]
    assert new.rows.obs[:7, 0].tolist() == pytest.approx([0.1, 5.0, 9.0, 1.1, 3.0, 1.1, 0.0])
    assert (int(new.steps), int(new.begun)) == (6, 4)


def test_an_episode_is_stopped_after_too_many_novel_steps_in_a_row(begun):
    """The table of the first constraint is 1 for x > 0.5 of the state that a step leads to, 0 elsewhere."""
    f, one = begun.features, begun.slots
    grid = one.grid._replace(
        feature=one.grid.feature.at[0].set(jnp.array([0, f.none, f.none])),
        low=one.grid.low.at[0].set(jnp.array([0.5 - 384, -0.5, -0.5])),
        width=jnp.ones((3, 3)),
        bins=one.grid.bins.at[0].set(jnp.array([768, 1, 1])),
    )
    table = jnp.zeros((3, CELLS)).at[0, 384:768].set(1.0)
    state = begun._replace(slots=one._replace(kind=jnp.array([0, -1, -1]), grid=grid, table=table))
    state = state._replace(start_scale=jnp.ones(3), reach=jnp.asarray(0.2, np.float32), patience=jnp.int32(3))
    novel, familiar = 0.0, -9.0  # `observed` adds 1
    state = observed(at_update(state, 1), [novel, novel], [True, True], [False, False], 1.0)
    state = observed(at_update(state, 2), [novel, familiar], [False, False], [False, False], 1.0)
    assert state.newest.novel.tolist() == [2, 0]
    assert scopil_rho.stops(state).tolist() == [False, False]
    state = observed(at_update(state, 3), [novel, novel], [False, False], [False, False], 1.0)
    assert scopil_rho.stops(state).tolist() == [True, False]
    new = state.newest
    assert (new.stopped[1:3].tolist(), new.ended[1:3].tolist(), float(new.returns[1])) == ([True, False], [3, -1], 3.0)
    state = observed(at_update(state, 4), [novel, novel], [True, False], [False, False], 1.0)  # as the loop does
    assert state.newest.novel.tolist() == [1, 2]
    assert state.newest.number[6:8].tolist() == [3, 2]
    assert not scopil_rho.stops(state).any()


@pytest.mark.parametrize("quantile", [0.0, 0.5, 0.95, 1.0])
def test_novel_steps_in_a_row_equal_a_loop(quantile):
    rng = np.random.default_rng(0)
    episode = np.repeat([0, 1, 4, 5, 7], [30, 1, 25, 40, 24])  # numbers may be missing
    demo, use = np.asarray(rng.uniform(size=(120, 3)), np.float32), rng.random(120) < 0.9
    demo[:, 2] = 1.0  # of an empty slot
    longest: dict[int, int] = {}
    run = 0
    for i in range(120):
        new = i == 0 or episode[i] != episode[i - 1]
        run = (0 if new else run) + 1 if use[i] and max(demo[i, :2]) >= 0.5 else 0
        longest[int(episode[i])] = max(longest.get(int(episode[i]), 0), run)
    slots = occupancy.no_slots(3)._replace(kind=jnp.array([1, 0, -1]))
    shown = Sample(jnp.zeros((120, 1)), jnp.asarray(use))
    whole, number = jnp.zeros(120, jnp.int32), jnp.asarray(episode, jnp.int32)
    seen = occupancy.Seen(shown, whole, number, shown, shown, whole, shown.use, shown.use, shown.use, shown)
    got = occupancy.novel_in_a_row(slots, Tables(jnp.zeros((3, 4, 1)), jnp.asarray(demo)), seen, quantile)
    assert int(got) == 1 + int(np.ceil(ref.quantile([float(x) for x in longest.values()], quantile)))


def test_an_episode_whose_start_is_unknown_is_not_matched(begun):
    """The first one after a warm-up, for example, even where it passes a demonstrated start."""
    state = begun._replace(start_scale=jnp.ones(3), reach=jnp.asarray(0.2, np.float32))
    state = observed(state, [0.0, 1.0], [False, False], [False, False], 1.0)
    assert not state.newest.matched.any()


def test_states_beyond_the_cut_are_not_matched(begun):
    state = begun._replace(start_scale=jnp.ones(3), reach=jnp.asarray(0.2, np.float32))
    state = state._replace(way=jnp.array([1.0, 0.0, 0.0]), cut=jnp.array([1.5, 0.0, 0.0]))
    state = observed(state, [0.0, 1.0], [True, True], [False, False], 1.0)
    assert state.newest.playing.tolist() == [True, True]
    assert state.newest.matched[:2].tolist() == [True, False]


@pytest.mark.parametrize(("grad_steps", "wanted"), [(1, 8), (2, 4)])
def test_every_step_is_observed_once(grad_steps, wanted, begun):
    cfg, state = config(grad_steps=grad_steps), begun
    for number in range(8):  # gradient steps
        seed = number // grad_steps
        data = batches()._replace(newest=steps(2, seed))
        state, _ = update(at_update(state, number + 8), data, cfg, jax.random.key(number))
    assert int(state.newest.steps) == int(state.newest.begun) == 2 * wanted
    for seed in range(wanted):
        np.testing.assert_array_equal(state.newest.rows.obs[2 * seed : 2 * seed + 2], steps(2, seed).obs)


def test_kept_transitions_are_a_uniform_sample(begun):
    """A ring of 600 transitions is offered ten times to a reservoir of 100."""
    rows = jax.tree.map(lambda leaf: leaf[:100], begun.kept)
    taken = jnp.ones(600, bool)

    def run(key: Any) -> Any:
        def offer(number: Any, carry: Any) -> Any:
            kept, offered = carry
            obs = jnp.full((600, 3), number, jnp.float32)
            state = begun._replace(kept=kept, offered=offered)
            state = state._replace(newest=begun.newest._replace(rows=begun.newest.rows._replace(obs=obs)))
            state = scopil_rho.keep(state, taken, jax.random.fold_in(key, number))
            return state.kept, state.offered

        return jax.lax.fori_loop(0, 10, offer, (rows, jnp.int32(0)))

    kept, offered = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), 40))
    assert offered.tolist() == [6_000] * 40
    share = np.bincount(np.asarray(kept.obs[..., 0], int).ravel(), minlength=10) / 4_000
    np.testing.assert_allclose(share, 0.1, atol=4 * (0.09 / 4_000) ** 0.5)


# --- the preparation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ends", "episodes"), [(False, 1), (False, 10), (True, 10)])
def test_termination_is_penalised_if_no_demonstration_terminates(ends, episodes):
    cfg = config()
    demos = DEMOS._replace(
        terminated=jnp.zeros(600, bool).at[599].set(ends), episode=jnp.repeat(jnp.arange(episodes), 600 // episodes)
    )
    made = prepare(fresh(cfg), given(demos), cfg)
    wanted = 0.0 if ends else sum(0.99**t for t in range(1, 600 // episodes + 1))
    assert float(made.end_cost) == pytest.approx(wanted, rel=1e-4)


def test_the_unit_is_the_mean_absolute_reward_of_a_demonstrated_step():
    cfg, rng = config(good=0.25), np.random.default_rng(0)
    reward = np.asarray(rng.normal(size=600), np.float32)  # the returns nearly cancel
    made = prepare(fresh(cfg), given(DEMOS._replace(reward=jnp.asarray(reward))), cfg)
    assert float(made.unit) == pytest.approx(np.abs(reward).mean() / 0.65, rel=1e-5)
    returns = reward.reshape(30, 20).sum(1, dtype=np.float64)
    assert float(made.enough) == pytest.approx(ref.quantile(list(returns), 0.25), rel=1e-4)
    for silent in (None, jnp.zeros(600)):  # not recorded, or nothing to earn
        made = prepare(fresh(cfg), given(DEMOS._replace(reward=silent)), cfg)
        assert float(made.unit) == 1.0
        assert float(made.enough) <= 0


def drifting(case: str, seed: int) -> list[np.ndarray]:
    """The states of episodes of unequal length; component 0 drifts in one direction unless the case says otherwise."""
    rng, made = np.random.default_rng(seed), []
    for e in range(9):
        steps = 20 + 3 * e
        x = -(10 + e) * np.arange(steps + 1) / steps + 0.1 * rng.normal(size=steps + 1)
        if case == "rests at a goal":
            x = np.maximum(2 * x, -(10 + e))
        if case == "random walk":
            x = np.cumsum(rng.normal(size=steps + 1))
        made.append(
            np.asarray(np.stack([x, rng.normal(size=steps + 1), 0.5 * np.arange(steps + 1)], axis=1), np.float32)
        )
    return made if case != "a single step" else [*made, made[0][:2]]


@pytest.mark.parametrize("case", ["drifts", "rests at a goal", "random walk", "a single step", "terminates"])
def test_the_cut_of_drifting_components_equals_the_reference(case):
    made = drifting(case, 0)
    number = np.concatenate([np.full(len(p) - 1, e) for e, p in enumerate(made)])
    obs, after = (np.concatenate([p[part] for p in made]) for part in (slice(0, -1), slice(1, None)))
    demos = demo_steps(jnp.asarray(obs), jnp.zeros(len(obs), jnp.int32))._replace(
        next_obs=jnp.asarray(after),
        episode=jnp.asarray(number),
        terminated=jnp.asarray(np.append(np.diff(number) > 0, True) & (case == "terminates")),
    )
    way, cut = jax.jit(scopil_rho.cut_off)(demos, 0.9, 0.1)
    want = ref.cut_off(made, case == "terminates", 0.9, 0.1)
    np.testing.assert_allclose(np.stack([way, cut], axis=1), want, rtol=1e-5, atol=1e-5)
    assert (want[0][0], want[2][0]) == {
        "drifts": (-1, 1), "rests at a goal": (0, 1), "random walk": (0, 1), "a single step": (-1, 1),
        "terminates": (0, 0),
    }[case]  # fmt: skip


def test_states_beyond_the_end_of_truncated_demonstrations_cost_nothing(begun):
    state = begun._replace(
        way=jnp.array([-1.0, 0.0, 0.0]), cut=jnp.array([11.0, 0.0, 0.0]),
        slots=begun.slots._replace(kind=jnp.zeros(3, jnp.int32), table=jnp.ones((3, CELLS))),
    )  # fmt: skip
    x = jnp.zeros((3, 3)).at[:, 0].set(jnp.array([-10.9, -11.1, 30.0]))  # before, beyond, and the other way
    rows = scopil_rho.Rows(x, jnp.zeros(3, jnp.int32), x)
    assert scopil_rho.novelty_of(state, rows)[:, 0].tolist() == [1.0, 0.0, 1.0]


def first(demos: Any, **changes: Any) -> str | None:
    """The first constraint."""
    cfg = config(**changes)
    made = prepare(fresh(cfg), given(demos), cfg)
    assert made.slots.kind[1:].tolist() == [-1, -1]
    if int(made.slots.kind[0]) < 0:
        return None
    assert int(made.slots.kind[0]) == 1
    assert float(made.slots.mu[0]) == scopil_rho.Config().occupancy_init
    return " ".join(made.features.label(int(i)) for i in made.slots.grid.feature[0, :2])


def test_the_first_constraint_is_on_the_two_slowest_components():
    assert first(DEMOS) == "x y"
    jumps = DEMOS._replace(
        obs=DEMOS.obs.at[:, 1].set(DEMOS.obs[::-1, 1]), next_obs=DEMOS.next_obs.at[:, 1].set(-DEMOS.obs[::-1, 1])
    )
    assert first(jumps) == "x v"
    assert first(DEMOS, features=("y", "v")) == "y v"
    twice = DEMOS._replace(  # y is the distance from x = 2
        obs=DEMOS.obs.at[:, 1].set(2.0 - DEMOS.obs[:, 0]),
        next_obs=DEMOS.next_obs.at[:, 1].set(2.0 - DEMOS.next_obs[:, 0]),
    )
    assert first(twice) == "x v"


@pytest.mark.parametrize("case", ["constant", "fixed within episodes", "few values"])
def test_components_that_do_not_say_where_are_not_in_the_first_constraint(case):
    goal = {
        "constant": jnp.ones((600, 2)),
        "fixed within episodes": jnp.tile(DEMOS.episode[:, None].astype(jnp.float32), 2),
        "few values": jnp.stack([DEMOS.episode % 2, (DEMOS.episode + 1) % 2], axis=1).astype(jnp.float32),
    }[case]
    demos = DEMOS._replace(obs=DEMOS.obs.at[:, 0].set(goal[:, 0]), next_obs=DEMOS.next_obs.at[:, 0].set(goal[:, 1]))
    assert first(demos) == "y v"


@pytest.mark.parametrize("changes", [{"features": ("v",)}, {"strike": ("y at x",)}, {"strike": ("x at y",)}])
def test_without_two_components_nothing_is_in_at_first(changes):
    assert first(DEMOS, **changes) is None


# --- names ------------------------------------------------------------------------------------------------------------


def test_no_allowed_novelty_at_all_is_refused():
    with pytest.raises(ConfigError, match="occupancy_share = 0"):
        config(occupancy_share=0.0)


def test_unknown_features_are_refused():
    with pytest.raises(ConfigError, match="features = speed; the observation has x, y, v"):
        scopil_rho.init(jax.random.key(0), SPACES, config(features=("x", "speed")))
    with pytest.raises(ConfigError, match="features = 3;"):
        scopil_rho.init(jax.random.key(0), SPACES, config(features=("3",)))


@pytest.mark.parametrize("name", ["speed", "v at speed", "x, y, speed", "", "x at y, v, action"])
def test_unknown_struck_constraints_are_refused(name):
    with pytest.raises(ConfigError, match="strike"):
        scopil_rho.init(jax.random.key(0), SPACES, config(strike=(name,)))


COLUMNS = ("pose[0]", "pose[1]", "flag", "vx", "vy", "gear")
STRIKES = {
    "vx": {"vx"},
    "pose[1] at pose[0]": {"pose[0] pose[1]", "pose[1] pose[0]"},
    "pose[0] at pose[1]": {"pose[0] pose[1]", "pose[1] pose[0]"},
    "|pose| at vx": {"vx |pose|", "|pose| vx"},
    "action": {"action"},
    "action at vx": {"vx action"},
    "pose[0] at |pose|, flag": {"pose[0] |pose| flag"},
    "gear": {"gear"},
}


NUMBERED = tuple(f"obs[{i}]" for i in range(4))
MORE = {"obs[1] at |obs[0], obs[1]|, obs[2]": {"obs[1] |obs[0], obs[1]| obs[2]"}}


@pytest.mark.parametrize("name", [*STRIKES, *MORE])
def test_a_struck_constraint_may_not_enter(name):
    f = features_of(COLUMNS if name in STRIKES else NUMBERED, 0)
    among, categories = jnp.arange(f.states, dtype=jnp.int32), jnp.array([2], jnp.int32)
    struck = set()
    for kind in occupancy.KINDS:
        feature = occupancy.marginals_of(f, among, categories, kind, config())
        for row in np.asarray(feature)[np.asarray(occupancy.is_struck(f, feature, (name,)))]:
            struck.add(" ".join(f.label(int(i)) for i in row if i != f.none))
    assert struck == (STRIKES | MORE)[name]


def test_what_no_candidate_is_made_of_may_be_struck():
    """A component that is not among the features, and a continuous action."""
    f = features_of(("x", "y", "v"), 2, ("x", "y"))
    feature = singles(f)
    assert not occupancy.is_struck(f, feature, ("v", "action")).any()
    assert occupancy.is_struck(f, feature, ("v", "x")).tolist() == [True, False]


# --- constraints that enter and leave ---------------------------------------------------------------------------------

refresh = jax.jit(scopil_rho.refresh)
# A limit that depends on a feature has no advantage: the limit of one feature enters.
MOVES = {"good": 0.0, "progress": 1.0, "limit_gain": 1.0}


def played(state: scopil_rho.State, now: Any, before: Any, number: int, every: int = 100) -> scopil_rho.State:
    """The state at refresh `number`: the newest episodes are `now`, the kept ones `before`."""

    def rows(x: Any) -> scopil_rho.Rows:
        return scopil_rho.Rows(x.obs, x.action, x.next_obs)

    state, size = at_update(state, number * every), len(state.newest.number)
    new = state.newest._replace(
        rows=rows(now),
        number=now.episode,
        matched=jnp.ones(size, bool),
        returns=jnp.full_like(state.newest.returns, 1e6),  # of the same type: programs are compiled for types
        ended=jnp.full_like(state.newest.ended, number * every),
        steps=jnp.int32(size),
    )
    return state._replace(newest=new, kept=rows(before), offered=jnp.int32(len(before.obs)))


def names(state: scopil_rho.State) -> list[str]:
    """The constraints that are in."""
    f = state.features
    return [
        " ".join(f.label(int(i)) for i in row if int(i) != f.none)
        for row, kind in zip(np.asarray(state.slots.grid.feature), np.asarray(state.slots.kind), strict=True)
        if kind >= 0
    ]


def ready(demos: Any, **changes: Any) -> tuple[scopil_rho.State, scopil_rho.Config]:
    """The first constraint has stopped to improve, so that others may enter."""
    cfg = config(**(MOVES | changes))
    state = prepare(fresh(cfg), given(demos), cfg)
    return state._replace(slots=state.slots._replace(stale=jnp.full_like(state.slots.stale, cfg.patience))), cfg


def after_refreshes(
    state: Any, cfg: Any, demos: Any, own: Any, count: int, since: int = 1, kept: Any = None
) -> scopil_rho.State:
    """`own(episodes, seed)` plays the learner's episodes, and those that are kept unless `kept` does."""
    for number in range(since, since + count):
        state = played(state, own(30, 100 + number), (kept or own)(60, 1_000 + number), number)
        state = refresh(state, given(demos), cfg, jax.random.key(number))
    return state


@pytest.fixture(scope="module")
def limited() -> Any:
    """A learner that is faster than the demonstrator, after one refresh: the speed limit is in."""
    state, cfg = ready(DEMOS, margin=0.26)  # with ¼ the smallest value lies on an edge, and rounding decides its bin
    return after_refreshes(state, cfg, DEMOS, partial(paths, top=1.5), 1), cfg


def test_a_speed_limit_enters(limited):
    state, cfg = limited
    assert names(state) == ["x y", "v"]
    s = state.slots
    assert s.kind.tolist() == [1, 0, -1]
    assert (float(s.mu[1]), int(s.age[1])) == (cfg.occupancy_init, 0)
    x = jnp.zeros((4, 3)).at[:, 2].set(jnp.array([0.5, 0.9, 1.1, 1.4]))
    c = scopil_rho.novelty_of(state, scopil_rho.Rows(x, jnp.zeros(4, jnp.int32), x))[:, 1]
    assert (np.asarray(c) > 0.5).tolist() == [False, False, True, True]
    assert not state.candidates.evidence.any()  # it was about another policy


def test_only_the_critics_learn_for_some_steps_after_an_entry(limited):
    """Actor, λ and average stay; a refresh without an entry changes nothing."""
    before, cfg = ready(DEMOS, margin=0.26)
    for top, enters in ((1.5, True), (0.9, False)):  # a speed limit enters, or nothing does
        state = after_refreshes(before, cfg, DEMOS, partial(paths, top=top), 1)
        assert (len(names(state)) > 1) == enters
        now = int(state.learner.updates)
        assert int(state.learner.critics_until) == (now + 70 if enters else cfg.critics_first)
        if enters:
            for steps, moves in ((69, False), (70, True)):
                held = at_update(state, now + steps)
                new, _ = update(held, batches(), cfg, jax.random.key(0))
                for part in ("actor", "multiplier", "average", "averaged"):
                    pair = (jax.tree.leaves(getattr(s.learner, part)) for s in (held, new))
                    assert any((a != b).any() for a, b in zip(*pair)) == moves, part
                assert any((a != b).any() for a, b in zip(*(jax.tree.leaves(s.learner.critics) for s in (held, new))))


def test_without_a_shield_no_episode_is_stopped():
    """The learner leaves the demonstrated circle."""

    def outside(episodes: int, seed: int) -> Any:
        x = paths(episodes, seed)
        return x._replace(obs=3 * x.obs, next_obs=3 * x.next_obs)

    for shield in ("off", "learning"):
        state, cfg = ready(DEMOS, shield=shield)
        state = after_refreshes(state, cfg, DEMOS, outside, 1)
        assert (int(state.patience) < LENGTH) == (shield == "learning")


def test_nothing_enters_while_the_first_constraint_improves():
    """The learner leaves the demonstrated square, less and less, and is too fast."""

    def outside(number: int) -> Any:
        far = jnp.array([[1.0 + 0.8 / number, 1.0, 1.0]])
        return lambda episodes, seed: (x := paths(episodes, seed, top=1.5))._replace(
            obs=x.obs * far, next_obs=x.next_obs * far
        )

    state, cfg = ready(DEMOS, progress=0.02)
    for number in range(1, 5):
        state = after_refreshes(state, cfg, DEMOS, outside(number), 1, number)
        s = state.slots
        assert names(state) == ["x y"]
        assert float(s.own[0]) > float(s.budget[0]) / cfg.occupancy_share  # not met
        assert int(s.stale[0]) < cfg.patience
    for number in range(5, 25):  # it improves no longer
        state = after_refreshes(state, cfg, DEMOS, outside(4), 1, number)
        if len(names(state)) > 1:
            break
    assert len(names(state)) == 2


def test_without_a_difference_nothing_enters_but_rarely():
    """The level is 0.002 for each of about twenty candidates. Demonstrations may lack some values by chance."""
    entered = []
    for seed in range(100, 106):
        demos = paths(30, seed)
        state, cfg = ready(demos, strike=("x at y",), memory=0.0)
        entered += names(after_refreshes(state, cfg, demos, lambda e, s, seed=seed: paths(e, s + 7919 * seed), 1))
    assert len(entered) <= 1


def test_an_action_that_is_not_taken_in_some_states_enters():
    def careful(episodes: int, seed: int, lawful: bool = True) -> Any:
        x = paths(episodes, seed)
        return x._replace(action=jnp.where((x.obs[:, 0] > 0.2) & lawful, x.action % 2, x.action))

    demos = careful(30, 0)
    state, cfg = ready(demos, strike=("x at y",))
    state = after_refreshes(state, cfg, demos, partial(careful, lawful=False), 2)
    assert "x action" in names(state)
    at = names(state).index("x action")
    obs = jnp.zeros((3, 3)).at[:, 0].set(jnp.array([0.6, 0.6, -0.6]))
    rows = scopil_rho.Rows(obs, jnp.array([2, 1, 2]), jnp.zeros((3, 3)))
    c = np.asarray(scopil_rho.novelty_of(state, rows))[:, at]
    assert (c > 0.5).tolist() == [True, False, False]


def test_a_region_that_a_flag_forbids_enters():
    def flagged(episodes: int, seed: int, lawful: bool = True) -> Any:
        """(x, y) is anywhere in the square, v is a flag. While it is set, the demonstrator keeps out of a quarter."""
        x, rng = paths(episodes, seed), np.random.default_rng(seed)
        place, flag = rng.uniform(-1, 1, (len(x.obs), 2)), np.arange(len(x.obs)) // LENGTH % 2
        place[lawful & (place > 0).all(1) & (flag > 0), 0] *= -1
        after = jnp.asarray(np.concatenate([place, flag[:, None]], axis=1), jnp.float32)
        return x._replace(obs=-after, next_obs=after)

    demos = flagged(60, 0)
    state, cfg = ready(demos, strike=("x at y",), most_categories=1)
    state = after_refreshes(state, cfg, demos, partial(flagged, lawful=False), 3)
    assert names(state) == ["x y v"]
    x = jnp.array([[0.5, 0.5, 1.0], [0.5, 0.5, 0.0], [-0.5, 0.5, 1.0]])
    c = scopil_rho.novelty_of(state, scopil_rho.Rows(x, jnp.zeros(3, jnp.int32), x))[:, 0]
    assert (np.asarray(c) > 0.5).tolist() == [True, False, False]


def test_a_struck_limit_does_not_enter():
    state, cfg = ready(DEMOS, strike=("v", "x at v", "v at y", "action at v"))
    state = after_refreshes(state, cfg, DEMOS, partial(paths, top=1.5), 2)
    assert names(state) == ["x y"]


@pytest.mark.parametrize("why", ["returns", "unmatched", "few episodes", "critics first", "stopped"])
def test_only_good_matched_episodes_are_tested(why):
    state, cfg = ready(DEMOS, critics_first=10_000 if why == "critics first" else 0)
    fast = partial(paths, top=1.5)
    state = played(state, fast(30, 1), fast(60, 2), 1)
    new = state.newest
    if why == "returns":
        state = state._replace(newest=new._replace(returns=jnp.full_like(new.returns, -1e6)))
    if why == "unmatched":
        state = state._replace(newest=new._replace(matched=jnp.zeros(600, bool)))
    if why == "stopped":
        state = state._replace(newest=new._replace(stopped=jnp.ones(600, bool)))
    if why == "few episodes":
        state = state._replace(newest=new._replace(ended=jnp.where(jnp.arange(600) < 4, new.ended, -1)))
    assert names(refresh(state, given(DEMOS), cfg, jax.random.key(0))) == ["x y"]


def test_the_multiplier_and_the_budget_equal_the_reference(limited):
    state, cfg = limited
    state = state._replace(slots=state.slots._replace(mu=state.slots.mu.at[1].set(5.0)))
    fast = partial(paths, top=1.5)
    now, before = fast(30, 7), fast(60, 8)
    old, new = state.slots, refresh(played(state, now, before, 2), given(DEMOS), cfg, jax.random.key(0)).slots
    f, held = state.features, np.asarray(DEMOS.group) % cfg.folds
    sides = [np.asarray(f(x.obs, x.action, x.next_obs, state.values)) for x in (DEMOS, now, before)]
    everything = [(side, np.ones(len(side), bool)) for side in sides]
    grid, wanted, budgets = jax.tree.map(np.asarray, state.slots.grid), [], []
    for j, shape in ((0, (96, 96)), (1, (768,))):
        axes = [
            ref.Axis(int(grid.feature[j, i]), float(grid.low[j, i]), float(grid.width[j, i]), bins, grid.blur[j, i])
            for i, bins in enumerate(shape)
        ]
        limited_axis = 0 if grid.limit[j] else None
        sides_of = everything[0], held, everything[2], everything[1]
        want = ref.table(axes, *sides_of, cfg.folds, 0.7, 0.1, limited_axis, cfg.tail, "high")
        assert int(grid.limit[j]) == (HIGH if j == 1 else 0)
        np.testing.assert_allclose(new.table[j, : want.novelty.size], want.novelty.ravel(), atol=1e-5)
        budget = (cfg.limit_share if grid.limit[j] else cfg.occupancy_share) * want.demo.mean()
        # the newest refresh_every · num_envs steps count
        found = float(np.mean([want.novelty[ref.cell(row, axes)] for row in sides[1][-200:]]))
        own = found if old.age[j] == 0 else 0.7 * float(old.own[j]) + 0.3 * found
        assert float(new.budget[j]) == pytest.approx(budget, abs=1e-5)
        assert float(new.own[j]) == pytest.approx(own, abs=1e-5)
        rates = cfg.occupancy_lr, cfg.occupancy_fall
        older = 1 + int((old.age[:2] > old.age[j]).sum())
        wanted.append(ref.dual_step(float(old.mu[j]), own, budget, rates, cfg.occupancy_most / older))
        budgets.append(budget)
    np.testing.assert_allclose(new.mu[:2], wanted, atol=1e-4)
    assert wanted[1] > 5.0


@pytest.mark.parametrize("full", [True, False])
def test_a_constraint_that_does_not_bind_leaves_if_all_slots_are_filled(full, begun):
    """It may come back. The first stays."""
    cfg = config()
    s = begun.slots._replace(
        kind=jnp.array([1, 0, 0 if full else -1]), mu=jnp.array([0.0, 0.0, 1.0]), idle=jnp.array([99, cfg.patience, 0])
    )
    new, c = leave(s, begun.candidates, begun.features, begun.ranges, jnp.int32(40), cfg)
    assert new.kind.tolist() == [1, -1 if full else 0, 0 if full else -1]
    assert (int(c.failed), int(c.wait)) == (0, 0)
    assert c.allowed.all()


def test_a_constraint_that_cannot_be_met_leaves_for_good_and_the_wait_doubles():
    fast = partial(paths, top=1.5)  # no price slows it down
    state, cfg = ready(DEMOS, margin=0.26, slots=2)
    state = after_refreshes(state, cfg, DEMOS, fast, 1)
    assert names(state) == ["x y", "v"]
    state = after_refreshes(state, cfg, DEMOS, fast, cfg.patience, 2)
    assert names(state) == ["x y"]
    c = state.candidates
    number = 1 + cfg.patience
    assert (int(c.failed), int(c.wait)) == (1, number + 2 * cfg.patience)
    assert np.flatnonzero(~c.allowed).tolist() == [2]
    # nothing enters before the wait is over; afterwards another constraint, not the same
    state = after_refreshes(state, cfg, DEMOS, fast, 2 * cfg.patience - 1, number + 1)
    assert names(state) == ["x y"]
    number += 2 * cfg.patience
    state = after_refreshes(state, cfg, DEMOS, fast, 1, number)
    entered = names(state)
    assert len(entered) == 2
    assert entered[1] != "v"
    state = after_refreshes(state, cfg, DEMOS, fast, cfg.patience, number + 1)
    assert names(state) == ["x y"]
    c, number = state.candidates, number + cfg.patience
    assert (int(c.failed), int(c.wait)) == (2, number + 4 * cfg.patience)


def leaving(own: list[float], others: float, age: int, f: Any, cfg: Any, fresh: Any) -> Any:
    """The constraints x y (older), v and y, after `age` refreshes of v; y is younger. All are met."""
    singles_of = singles(f)
    grid = fresh.slots.grid._replace(
        feature=jnp.stack([jnp.array([0, 1, f.none]), singles_of[2], singles_of[1]]).astype(jnp.int32),
        limit=jnp.array([0, HIGH, LOW]),
    )
    s = fresh.slots._replace(
        kind=jnp.array([1, 0, 0]),
        grid=grid,
        mu=jnp.ones(3),
        own=jnp.array(own),
        least=jnp.array(own),
        budget=jnp.full(3, 10.0),
        others=jnp.array([0.0, others, 0.0]),
        age=jnp.array([age + 5, age, 0]),
    )
    return leave(s, fresh.candidates, f, fresh.ranges, jnp.int32(40), cfg)


@pytest.mark.parametrize(
    ("older", "age", "leaves"),
    [(0.34, 3, True), (0.31, 3, False), (0.34, 2, False), (0.05, 3, False)],
    ids=["worse", "within the factor", "too early", "better"],
)
def test_a_constraint_that_makes_older_ones_worse_leaves_for_good(older, age, leaves):
    """The older one had 0.2 at entry; harm = 1.5 and 0.02 allow 0.32. The novelty of a younger one does not count."""
    cfg = config(**MOVES)
    state = fresh(cfg)
    s, c = leaving([older, 0.1, 9.0], 0.2, age, state.features, cfg, state)
    assert s.kind.tolist() == [1, -1 if leaves else 0, 0]
    assert s.mu.tolist() == [1.0, 0.0 if leaves else 1.0, 1.0]
    assert np.flatnonzero(~c.allowed).tolist() == ([2] if leaves else [])
    assert (int(c.failed), int(c.wait)) == ((1, 40 + 2 * cfg.patience) if leaves else (0, 0))


def test_transitions_of_another_policy_take_the_place_of_the_learners(limited):
    state, cfg = limited
    fast = paths(40, 9, top=2.0)
    own, beside = scopil_rho.learned(state, DEMOS, cfg), scopil_rho.learned(state, DEMOS, cfg, fast)
    assert [m.name for m in own] == [m.name for m in beside]
    mine, theirs = (next(m for m in found if m.name == "v") for found in (own, beside))
    assert mine.whose != theirs.whose
    assert len(theirs.own) == len(fast.obs)
    np.testing.assert_allclose(theirs.own[:, 0], fast.next_obs[:, 2])
    assert theirs.novelty[-1] == 1.0  # the demonstrations have v ≤ 1
    assert (theirs.novelty != mine.novelty).any()


@pytest.mark.parametrize(("ages", "rank"), [((0, 1), 1), ((1, 0), 2)])
def test_multipliers_stop_at_the_largest_one_of_their_rank(ages, rank, limited):
    state, cfg = limited
    mu, age = jnp.array([4.0, cfg.occupancy_most / rank - 0.01, 0.0]), jnp.array([*ages, 0])
    state = state._replace(slots=state.slots._replace(mu=mu, age=age))
    state = after_refreshes(state, cfg, DEMOS, partial(paths, top=1.5), 1, 2)
    assert float(state.slots.mu[1]) == cfg.occupancy_most / rank


def test_a_multiplier_falls_more_slowly_than_it_rises(begun):
    """For the same relative distance from the budget, by a tenth."""
    cfg, changes = config(), []
    seen = scopil_rho.compared(begun, DEMOS, cfg)
    seen = seen._replace(latest=jnp.ones_like(seen.latest))
    for own in (0.02, 0.0):
        slots = begun.slots._replace(kind=jnp.array([1, -1, -1]), mu=jnp.array([5.0, 0.0, 0.0]))
        t = Tables(jnp.full((3, cfg.folds, CELLS), own), jnp.full((len(DEMOS.obs), 3), 0.02))
        new = occupancy.ascend(slots, t, seen, jnp.bool_(True), cfg)
        changes.append((float(new.mu[0]) - 5.0, ref.dual_step(5.0, own, 0.01, (1.0, 0.1), 20.0) - 5.0))
    for found, wanted in changes:
        assert found == pytest.approx(wanted, abs=1e-4)
    assert changes[0][0] > 3 * -changes[1][0] > 0


@pytest.mark.parametrize(("refund", "paid"), [(100.0, 1.3), (0.9, 0.585), (0.01, 0.0065)])
def test_the_refund_is_at_most_a_share_of_what_a_demonstrated_step_earns(refund, paid, begun):
    """Σ μ b = 2 · 0.2 + 3 · 0.3 = 1.3, and a demonstrated step earns 0.65. Nothing is novel, so that the price is
    minus the refund."""
    cfg = config(refund=refund, shield="off")
    slots = begun.slots._replace(
        kind=jnp.array([1, 0, -1]), mu=jnp.array([2.0, 3.0, 0.0]), budget=jnp.array([0.2, 0.3, 0.0])
    )
    _, metrics = update(at_update(begun._replace(slots=slots), 1), batches(), cfg, jax.random.key(0))
    assert float(metrics["occupancy/price"]) == pytest.approx(-paid, rel=1e-5)


@pytest.mark.parametrize(
    ("own", "stale", "enters"),
    [(0.04, 0, True), (0.08, 0, True), (0.2, 2, False), (0.2, 3, True)],
    ids=["met", "as the demonstrations", "not met", "… and no better for long"],
)
def test_a_constraint_enters_once_those_that_are_in_no_longer_improve(own, stale, enters, begun):
    """b = 0.05, held-out demonstrations have 0.1, and patience is 3."""
    cfg = config()
    blank = jnp.zeros(cfg.slots)
    s = begun.slots._replace(own=blank.at[0].set(own), budget=blank.at[0].set(0.05))
    s = s._replace(stale=s.stale.at[0].set(stale))
    assert bool(occupancy.ready(s, begun.candidates, jnp.int32(3), cfg)) == enters
    waiting = begun.candidates._replace(wait=jnp.int32(4))
    assert not bool(occupancy.ready(s, waiting, jnp.int32(3), cfg))


def test_pairs_are_made_of_the_features_that_differ_most():
    """With more features than `pair_features`."""
    cfg = config(pair_features=2)
    begun = fresh(cfg)
    f, c, ranges = begun.features, begun.candidates, begun.ranges
    assert c.among.tolist() == [0, 1]
    # x, y, v and the action: beyond the largest values, then below the smallest
    evidence = jnp.ones_like(c.evidence).at[:8].set(jnp.array([0.5, 1.0, 5.0, 0.5, 0.5, 3.0, 0.5, 9.0]))
    new = occupancy.with_other_features(f, c._replace(evidence=evidence), ranges, cfg)
    assert new.among.tolist() == [1, 2]
    assert np.flatnonzero(new.evidence).tolist() == list(range(8))
    assert occupancy.with_other_features(f, new._replace(evidence=evidence), ranges, cfg).evidence.all()


def test_a_pair_that_was_given_up_stays_out_beside_other_features():
    cfg = config(pair_features=3)
    begun = fresh(cfg, Spaces(4, DiscreteHead(3), None, ("x", "y", "v", "w")))
    f, c, ranges = begun.features, begun.candidates, begun.ranges

    def those(c: occupancy.Candidates, which: Any) -> set[tuple[int, ...]]:
        grid, kind = occupancy.all_of(f, c, ranges, cfg)
        every = zip(grid.feature.tolist(), kind.tolist(), grid.limit.tolist())
        return {(*row[:2], k, end) for (row, k, end), wanted in zip(every, which) if wanted}

    grid, kind = occupancy.all_of(f, c, ranges, cfg)
    two = (grid.feature[:, :2] == jnp.array([[1, 2]])).all(1)
    given_up = two & ((kind == occupancy.PAIR) | (grid.limit == LOW))
    evidence = c.evidence.at[:4].set(jnp.array([0.0, 1.0, 5.0, 2.0]))
    new = occupancy.with_other_features(f, c._replace(evidence=evidence, allowed=~given_up), ranges, cfg)
    assert new.among.tolist() == [1, 2, 3]
    assert those(new, ~new.allowed) == those(c, given_up) == {(1, 2, 1, 0), (1, 2, 2, LOW)}


def test_what_is_compared_is_newer_than_the_last_test(begun):
    """An episode that ended at the last test was part of it, and with two gradient steps per step fewer are new."""
    state = played(begun, paths(30, 1), paths(60, 2), 3)
    ended = jnp.where(jnp.arange(600) < 10, 200, jnp.where(jnp.arange(600) < 20, 201, 300))
    state = state._replace(newest=state.newest._replace(ended=ended))
    for grad_steps in (1, 2):
        seen = scopil_rho.compared(state, DEMOS, config(**MOVES, grad_steps=grad_steps))
        assert np.unique(seen.number[~seen.fresh]).tolist() == list(range(10))
        assert int(seen.latest.sum()) == 200 // grad_steps


# --- a known optimum --------------------------------------------------------------------------------------------------


def test_the_dual_reaches_the_known_optimum_of_a_two_state_problem(monkeypatch):
    """One action pays u and leads to a novel state (c = 1), the other pays 0 and leads to a familiar one (c = 0). A
    soft policy of temperature t = 2(1 − β)α takes the first with p = σ((1 − μ)/t): the price cancels the advantage at
    μ = 1. A fifth of the held-out demonstrated states is novel, so that with κ = 1 the constraint p ≤ 0.2 holds with
    equality at μ* = 1 − t log(p/(1 − p))."""
    alpha, beta, share, unit = 0.3, 0.25, 0.2, 5.0
    cfg = config(
        anchor=0.0, multiplier_init=0.0, multiplier_lr=0.0, log_alpha_init=float(np.log(alpha)), alpha_lr=0.0,
        entropy_split=beta,
        occupancy_init=0.0, occupancy_lr=0.02, occupancy_share=1.0, refresh_every=25, learning_rate=3e-3, num_envs=8,
        recent=200, slots=1, matched_capacity=100, shield="off",
    )  # fmt: skip
    spaces = Spaces(2, DiscreteHead(2), None, ("x", "y"))

    def world(action: Any) -> Transition:
        """The step of an action; it terminates."""
        novel = (action == 0).astype(jnp.float32)
        here, over = jnp.zeros((len(action), 2)), jnp.ones(len(action), bool)
        return Transition(here, action, unit * novel, here.at[:, 0].set(novel), over, ~over)

    rows = jnp.arange(20)
    demos = demo_steps(jnp.zeros((20, 2)), jnp.zeros(20, jnp.int32))._replace(
        group=rows, next_obs=jnp.zeros((20, 2)).at[:4, 0].set(1.0)
    )
    state = fresh(cfg, spaces)
    grid = state.slots.grid._replace(  # bins of width 1 around 0, 1, …, of x alone
        feature=jnp.array([[0, state.features.none, state.features.none]]),
        low=jnp.full((1, 3), -0.5),
        bins=jnp.array([[768, 1, 1]]),
    )
    known = jnp.zeros((1, cfg.folds, CELLS)).at[:, :, 1].set(1.0)
    demo = demos.next_obs[:, :1]
    monkeypatch.setattr(occupancy, "slot_tables", lambda *_: Tables(known, demo))
    monkeypatch.setattr(occupancy, "enter", lambda s, c, *_: (s, c, jnp.bool_(False)))
    state = state._replace(
        slots=state.slots._replace(kind=jnp.zeros(1, jnp.int32), grid=grid),
        unit=jnp.asarray(unit, np.float32),
        reach=jnp.asarray(1.0, np.float32),
    )

    def step(number: Any, state: Any) -> Any:
        k_act, k_learn = jax.random.split(jax.random.fold_in(jax.random.key(1), number))
        data = Data(
            replay=world(rows % 2),
            newest=world(scopil_rho.behaviour(state).act(jnp.zeros((8, 2)), k_act)),
            began=jnp.ones(8, bool),
            demo_batch=demos,
            demos=demos,
            demo_starts=DemoStarts(jnp.zeros((3, 2)), jnp.arange(3)),
        )
        return scopil_rho.update(state, data, cfg, k_learn)[0]

    run = jax.jit(lambda s: jax.lax.fori_loop(0, 20_000, step, s), compiler_options=OPTIMISED)
    state = run(state)
    pi: Any = scopil_rho.behaviour(state).distribution(jnp.zeros((1, 2)))
    assert float(pi.probs[0, 0]) == pytest.approx(share, abs=0.04)
    temperature = 2 * (1 - beta) * alpha
    assert float(state.slots.mu[0]) == pytest.approx(1 - temperature * np.log(share / (1 - share)), abs=0.15)


# --- the scale of the reward, kinds of spaces -------------------------------------------------------------------------


def test_the_scale_of_the_reward_changes_nothing():
    """Not a bit, if the factor is a power of two: about 1 000 and 0.001."""
    ends = []
    for factor in (1.0, 2.0**10, 2.0**-10):
        demos = DEMOS._replace(reward=factor * DEMOS.reward)
        state, cfg = ready(demos)
        state = played(state, paths(30, 1, top=1.5), paths(60, 2, top=1.5), 1)
        for number in range(99, 120):  # a refresh, and steps with its tables
            data = batches(number % 5)._replace(demos=demos)
            batch = data.replay
            assert batch is not None
            data = data._replace(replay=batch._replace(reward=factor * batch.next_obs[:, 2]))
            state, _ = update(state, data, cfg, jax.random.key(number))
        assert names(state) == ["x y", "v"]
        ends.append(state)
    for factor, other in zip((2.0**10, 2.0**-10), ends[1:], strict=True):
        assert float(other.unit) == factor * float(ends[0].unit)
        for part in ("learner", "slots", "candidates", "kept"):
            for one, same in zip(*(jax.tree.leaves(getattr(x, part)) for x in (ends[0], other)), strict=True):
                np.testing.assert_array_equal(one, same, err_msg=part)


@pytest.mark.parametrize("size", [0, 200], ids=["images", "200 components"])
def test_large_observations(size):
    """With a continuous action. An image has no features; of many features, pairs are made of a few."""
    image = None if size else (16, 16, 1)
    columns = tuple(f"obs[{i}]" for i in range(size)) if size else ()
    spaces = Spaces(size or 256, BoxHead(-jnp.ones(2), jnp.ones(2)), image, columns)
    cfg = config(pair_features=4, normalise_obs=bool(size))
    rng = np.random.default_rng(0)
    width = spaces.obs_dim

    def rows(count: int) -> Any:
        obs, after = (jnp.asarray(rng.uniform(size=(count, width)), jnp.float32) for _ in range(2))
        a = jnp.asarray(rng.uniform(-1, 1, (count, 2)), jnp.float32)
        return demo_steps(obs, a)._replace(
            next_obs=after, episode=jnp.arange(count) // 5, group=jnp.arange(count) // 5, reward=jnp.ones(count)
        )

    def step(x: Any) -> Transition:
        return Transition(
            x.obs, x.action, x.reward, x.next_obs, jnp.ones(len(x.obs), bool), jnp.zeros(len(x.obs), bool)
        )

    demos = rows(40)
    # As the training loop does: one program, instead of one for each operation on these shapes.
    state = jax.jit(partial(prepare, data=given(demos), cfg=cfg))(fresh(cfg, spaces))
    data = given(demos)._replace(
        replay=step(rows(16)), newest=step(rows(2)), began=jnp.ones(2, bool), demo_batch=rows(12)
    )
    state, _ = update(state, data, cfg, jax.random.key(1))  # refreshes the tables
    state, metrics = update(state, data, cfg, jax.random.key(2))
    assert all(np.isfinite(x) for x in metrics.values())
    assert (int(state.slots.kind[0]) == 1) == (size > 0)
    assert len(state.candidates.among) == (4 if size else 0)
    assert learned_cost(state, demos.obs, demos.action).shape == (40,)
    assert scopil_rho.monitor(state, demos, cfg).ratio.shape[0] == (1 if size else 0)
