"""A Python environment inside the compiled loop behaves as when it is stepped by hand."""

import _thread
import signal
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from hosts import LIMIT, Walk, gives, raises, registered
from scopil.envs.base import ENDLESS
from scopil.envs.gym_env import HostEnv, open_env
from scopil.envs.gym_vector import numbers_of
from scopil.envs.spaces import Spaces
from scopil.errors import EnvError


def either(obs, key):
    return jax.random.randint(key, obs.shape[:1], 0, 2)


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def play(env, num_envs: int, steps: int, act, step_batch, key):
    def step(state, key):
        k_act, k_step = jax.random.split(key)
        row = getattr(env, step_batch)(state, act(state.obs, k_act), k_step)
        return row[0], row

    k_reset, k_run = jax.random.split(key)
    first = env.reset_batch(k_reset, num_envs)
    return first, jax.lax.scan(step, first, jax.random.split(k_run, steps))[1]


def roll(env, num_envs: int, steps: int, seed: int = 0, act=either, step_batch="step_batch"):
    """(first state, rows of (state, transition, after)), in one compiled program."""
    out = jax.device_get(play(env, num_envs, steps, act, step_batch, jax.random.key(seed)))
    env.refuse_faults()
    return out


def check_ends(first, rows) -> None:
    """Every transition has its true successor, every state to act from belongs to a running episode."""
    later, t, after = rows
    ended = t.terminated | t.truncated
    x, clock = t.next_obs[..., 0], t.next_obs[..., 1]
    np.testing.assert_array_equal(t.terminated, np.abs(x) > 4)
    np.testing.assert_array_equal(t.truncated, (clock >= LIMIT) & ~t.terminated)
    np.testing.assert_array_equal(after.obs, t.next_obs)
    np.testing.assert_array_equal(after.steps, clock)
    np.testing.assert_array_equal(later.obs[~ended], t.next_obs[~ended])
    np.testing.assert_array_equal(later.obs[ended][:, 1], 0)
    np.testing.assert_array_equal(later.steps, np.where(ended, 0, after.steps))
    np.testing.assert_array_equal(t.obs[1:], later.obs[:-1])
    np.testing.assert_array_equal(t.obs[0], first.obs)
    np.testing.assert_allclose(t.reward, -np.abs(x), rtol=1e-6)
    assert t.terminated.any()
    assert t.truncated.any()
    assert len(np.unique(later.obs[ended][:, 0])) == ended.sum()  # every episode has a start of its own


def test_the_loop_sees_what_the_environment_did():
    walk = Walk()
    first, rows = roll(HostEnv(walk), 1, 60)
    check_ends(first, rows)
    later, t, _ = rows
    seen = [first.obs[0]]
    for i in range(len(t.reward)):
        seen.append(t.next_obs[i, 0])
        if t.terminated[i, 0] or t.truncated[i, 0]:
            seen.append(later.obs[i, 0])
    np.testing.assert_array_equal(seen, [obs for *_, obs in walk.log])
    assert [a for what, a, _ in walk.log if what == "step"] == t.action[:, 0].tolist()


@pytest.fixture
def walk_id():
    with registered(max_episode_steps=LIMIT) as name:
        yield name


def test_the_same_key_plays_the_same(walk_id):
    assert (open_env(walk_id).horizon, HostEnv(Walk()).horizon) == (LIMIT, ENDLESS)
    runs = [roll(open_env(walk_id), 3, 50, seed) for seed in (4, 4, 5)]
    one, same = (jax.tree.leaves((first.obs, later.obs, later.steps, t)) for first, (later, t, _) in runs[:2])
    for a, b in zip(one, same):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(runs[0][0].obs, runs[2][0].obs)
    assert len(np.unique(runs[0][0].obs[:, 0])) == 3
    check_ends(*runs[0])


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("copy", [True, False])
def test_a_vector_environment_in_any_autoreset_mode(mode, copy):
    vector = SyncVectorEnv([Walk] * 3, autoreset_mode=mode, copy=copy)
    first, rows = roll(open_env(vector), 3, 50)
    check_ends(first, rows)
    if mode is not AutoresetMode.SAME_STEP:  # which begins episodes itself, from seeds of its own
        alone = roll(HostEnv(Walk(), Walk), 3, 50)
        for a, b in zip(jax.tree.leaves((first.obs, rows[1])), jax.tree.leaves((alone[0].obs, alone[1][1]))):
            np.testing.assert_array_equal(a, b)


KINDS = {
    "serial": lambda: HostEnv(Walk(), Walk),
    "vector": lambda: open_env(SyncVectorEnv([Walk] * 3)),
    "vector, disabled": lambda: open_env(SyncVectorEnv([Walk] * 3, autoreset_mode=AutoresetMode.DISABLED)),
}


@partial(jax.jit, static_argnums=0)
def stopped(env, which, key):
    """Three steps of three environments, a restart of those that `which` marks, three more steps."""
    keys = jax.random.split(key, 8)
    state, rows = env.reset_batch(keys[0], 3), []
    for i in range(6):
        if i == 3:
            state = env.restart(state, which, keys[7])
        # left and right in turn. It depends on the observation, so that the calls are made in this order.
        state, transition, _ = env.step_batch(state, (state.obs[:, 1] % 2).astype(jnp.int32), keys[i + 1])
        rows.append((transition, state))
    return rows


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_restart_the_marked_environments_are_new_and_the_others_go_on(kind):
    which = np.array([False, True, False])
    played = []
    for marked in (which, np.zeros(3, bool)):
        env = KINDS[kind]()
        played.append(jax.device_get(stopped(env, jnp.asarray(marked), jax.random.key(0))))
        env.refuse_faults()
    new, alone = played
    for i, ((t, state), (u, other)) in enumerate(zip(new, alone)):
        for a, b in zip(jax.tree.leaves((t, state.obs, state.steps)), jax.tree.leaves((u, other.obs, other.steps))):
            np.testing.assert_array_equal(a[~which], b[~which])
        assert (t.obs[1].tolist() == u.obs[1].tolist()) == (i < 3)
    assert new[3][0].obs[1, 1] == 0  # the clock of the new episode
    assert [row[1].steps[1] for row in new[3:]] == [1, 2, 3]


def test_a_reset_that_fails_in_a_restart_is_the_usual_error():
    class Once(Walk):
        def reset(self, **options):
            if self.made:
                raise OSError("no power")
            return super().reset(**options)

    for make in (lambda: HostEnv(Once(), Once), lambda: open_env(SyncVectorEnv([Once] * 3))):
        env: Any = make()
        jax.block_until_ready(stopped(env, jnp.array([False, True, False]), jax.random.key(0)))
        with pytest.raises(EnvError, match="OSError: no power"):
            env.refuse_faults()


def test_a_restart_of_a_stale_state_is_refused():
    env = HostEnv(Walk())
    state, _ = (jax.jit(lambda key: env.reset_batch(key, 1))(jax.random.key(i)) for i in range(2))
    jax.block_until_ready(jax.jit(env.restart)(state, jnp.ones(1, bool), jax.random.key(2)))
    with pytest.raises(EnvError, match="reset between two steps"):
        env.refuse_faults()


@pytest.mark.parametrize(("mode", "shared"), [("NEXT_STEP", True), ("SAME_STEP", False)])
def test_an_asynchronous_vector_environment(mode, shared):
    vector = AsyncVectorEnv([Walk] * 2, shared_memory=shared, autoreset_mode=AutoresetMode[mode], context="spawn")
    try:
        check_ends(*roll(open_env(vector), 2, 50))
    finally:
        vector.close()


def test_vector_environments_that_cannot_be_used():
    # NEXT_STEP is its default. Workers clear their flag `autoreset` at a reset only where memory is shared.
    twice = AsyncVectorEnv([Walk], shared_memory=False, context="spawn")
    try:
        with pytest.raises(EnvError, match="shared_memory=True"):
            roll(open_env(twice), 1, 1)
    finally:
        twice.close()
    whole = gym.make_vec("CartPole-v1", 3, vectorization_mode="vector_entry_point")
    with pytest.raises(EnvError, match=r"step 0 .*resets all its environments"):  # before training
        roll(open_env(whole), 3, 60)
    unknown = SyncVectorEnv([Walk])
    unknown.metadata = {}
    with pytest.raises(EnvError, match="autoreset_mode"):
        roll(open_env(unknown), 1, 1)
    with pytest.raises(EnvError, match=r"num_envs=2.*rollouts=2"):  # ICRL has `rollouts`
        roll(open_env(SyncVectorEnv([Walk] * 2)), 3, 1)


class Spy(Walk):
    """Keeps the actions it gets, and observes what it was made with."""

    def __init__(self, observation_space, seen, action_space=Walk.action_space):
        super().__init__()
        self.observation_space, self.seen, self.action_space = observation_space, seen, action_space
        self.taken = []

    def see(self):
        return self.seen

    def step(self, action):
        self.taken.append(action)
        return self.seen, 0.0, False, False, {}


S = gym.spaces
SPACES = [
    (S.Box(-1, 1, (2, 3)), np.arange(6.0).reshape(2, 3) / 6, np.arange(6) / 6),
    (S.Box(0, 255, (2,), np.uint8), np.array([3, 255], np.uint8), [3, 255]),
    (S.Discrete(4, start=-1), 1, [0, 0, 1, 0]),
    (S.MultiDiscrete([2, 3]), np.array([1, 0]), [0, 1, 1, 0, 0]),
    (S.MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
    (S.Tuple((S.Discrete(2), S.Box(-9, 9, (1,)))), (1, np.array([5.0])), [0, 1, 5]),
    (S.Dict({"b": S.Discrete(2), "a": S.Box(-9, 9, (1,))}), {"a": np.array([5.0]), "b": 0}, [5, 1, 0]),
]


@pytest.mark.parametrize(("space", "seen", "want"), SPACES, ids=lambda v: type(v).__name__)
def test_observations_become_one_row(space, seen, want):
    env = HostEnv(Spy(space, seen))
    first, (later, t, _) = roll(env, 1, 2)
    for row in (first.obs[0], later.obs[1, 0], t.next_obs[0, 0], env.spaces.flatten(seen)):
        np.testing.assert_allclose(row, want, rtol=1e-6)
        assert row.dtype == np.float32
    assert env.observation_space == S.flatten_space(space) or env.observation_space.shape == (len(want),)
    assert env.observation_space.contains(first.obs[0])
    first, (_, t, _) = roll(open_env(SyncVectorEnv([lambda: Spy(space, seen)] * 2)), 2, 1)
    np.testing.assert_allclose([first.obs, t.next_obs[0]], [[want] * 2] * 2, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_real_actions_pass_as_they_are_and_discrete_ones_as_the_environment_counts(dtype):
    spy = Spy(Walk.observation_space, np.zeros(2), S.Discrete(2, start=-1))
    _, (_, t, _) = roll(HostEnv(spy), 1, 20)
    assert set(spy.taken) == {-1, 0}
    np.testing.assert_array_equal(t.action[:, 0], np.array(spy.taken) + 1)
    spy = Spy(Walk.observation_space, np.zeros(2), S.Box(-1, 1, (2,), dtype))
    values = jnp.array([[0.1, -7.5]])  # values beyond the bounds are not clipped
    roll(HostEnv(spy), 1, 1, act=lambda obs, key: values)
    (action,) = spy.taken
    assert action.dtype == dtype
    np.testing.assert_array_equal(action, np.array([0.1, -7.5], np.float32).astype(dtype))


@pytest.mark.parametrize(
    ("spaces", "match"),
    [
        ((S.Sequence(S.Discrete(2)), S.Discrete(2)), "no fixed size"),
        ((Walk.observation_space, S.Tuple([S.Discrete(2)])), "action space Tuple"),
        ((Walk.observation_space, S.Box(0, 3, (2,), np.int32)), "Box of floats"),
    ],
)
def test_spaces_that_cannot_be_learned_in_are_refused(spaces, match):
    with pytest.raises(EnvError, match=match):
        HostEnv(Spy(spaces[0], None, spaces[1]))


@pytest.mark.parametrize(
    ("fault", "match"),
    [
        (raises(5), r"step 5 after reset\(seed=\d+\): ZeroDivisionError: the motor fell off\.$"),
        (gives(3, obs=np.array([0.0, np.nan])), r"step 3 after .*obs\[1\] of an observation is nan"),
        (gives(3, obs=np.array([-np.inf, 0.0])), r"obs\[0\] of an observation is -inf"),
        (gives(3, reward=np.inf), "step 3 after .* a reward of inf"),
        (gives(3, reward=None), "TypeError"),
        (gives(3, obs=np.zeros(3)), r"an observation of shape \(3,\); want its space's \(2,\)"),
        (gives(3, obs="left"), "ValueError: could not convert"),
    ],
    ids=["raises", "nan", "inf", "reward", "no-reward", "shape", "text"],
)
def test_a_fault_says_where_it_was_and_what(fault, match):
    walk = Walk(fault)
    env = HostEnv(walk)
    with pytest.raises(EnvError, match=match) as caught:
        roll(env, 1, 8)
    assert caught.value.__cause__ is not None
    assert len(walk.log) < 9  # nothing was played after it
    roll(env, 1, 8)  # and it may be tried again


def test_a_fault_in_a_reset_and_in_one_of_many():
    def broken(self, **_):
        raise OSError("no power")

    with pytest.raises(EnvError, match=r"reset\(seed=\d+\): OSError: no power"):
        roll(HostEnv(type("Broken", (Walk,), {"reset": broken})()), 1, 1)
    walks = iter([Walk(), Walk(raises(2)), Walk()])
    with pytest.raises(EnvError, match="environment 1 of 3, step 2 after"):
        roll(open_env(lambda: next(walks)), 3, 4)
    with pytest.raises(EnvError, match="2 together: ZeroDivisionError: the motor fell off"):
        roll(open_env(SyncVectorEnv([Walk, lambda: Walk(raises(2))])), 2, 4)

    def interrupt(walk):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        roll(HostEnv(Walk(interrupt)), 1, 3)


def test_wrappers_are_kept_and_copied(walk_id):
    env = gym.wrappers.TransformReward(gym.make(walk_id), lambda reward: float(reward) + 100.0)
    _, (_, t, _) = roll(open_env(env), 3, 5)
    np.testing.assert_allclose(t.reward, 100.0 - np.abs(t.next_obs[..., 0]), rtol=1e-6)


class Unwritten(gym.Wrapper):
    """A wrapper whose arguments are not recorded."""


@pytest.mark.parametrize("make", [Walk, lambda: Unwritten(gym.make("test/Walk-v0"))])
def test_an_environment_that_cannot_be_copied(make, walk_id):
    env = open_env(make())
    with pytest.raises(EnvError, match=r"give .* function that makes one"):
        roll(env, 3, 1)
    check_ends(*roll(open_env(make), 3, 50))


def test_other_objects_are_refused():
    for nonsense, match in [(3, "int is not an environment"), (lambda: 3, "made a int; want a gymnasium")]:
        with pytest.raises(EnvError, match=match):
            open_env(nonsense)
    with pytest.raises(EnvError, match=r"'NoSuch-v0'"):
        open_env("NoSuch-v0")


def test_a_state_is_stale_after_another_reset_and_not_after_copies_played():
    env = HostEnv(Walk())
    state, again = (jax.jit(lambda key: env.reset_batch(key, 1))(jax.random.key(0)) for _ in range(2))
    assert env.stale(state)
    assert not env.stale(again)
    assert HostEnv(Walk()).stale(again)
    env.envs_to_play(5)  # there is no other to play on
    assert env.stale(again)
    walk = Walk()
    env = HostEnv(walk, Walk)
    state = jax.jit(lambda key: env.reset_batch(key, 1))(jax.random.key(0))
    env.envs_to_play(3).reset(np.arange(3))
    assert env.reports_cost()
    assert len(walk.log) == 1
    assert not env.stale(state)


def test_a_stored_program_serves_every_environment_of_the_same_spaces():
    """A compiled step contains nothing of one process or of one environment, so JAX can keep it in its cache."""
    texts = []
    for env in (HostEnv(Walk()), HostEnv(Walk())):
        state = env.reset_batch(jax.random.key(0), 1)
        lowered = (
            jax.jit(env.step_batch).lower(state, jnp.zeros(1, jnp.int32), jax.random.key(1)),
            jax.jit(env.restart).lower(state, jnp.ones(1, bool), jax.random.key(1)),
        )
        texts.append([program.as_text() for program in lowered])
    assert texts[0] == texts[1]


@pytest.fixture
def heard() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt. A process that a shell starts in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_an_interrupt_between_two_calls_is_raised_after_the_program():
    """Python raises it when the next call begins, before any code of the call could catch it."""

    class Interrupting(Walk):
        def step(self, action):
            if self.made == 0:
                threading.Timer(0.05, _thread.interrupt_main).start()
            return super().step(action)

    env = HostEnv(Interrupting())

    @jax.jit
    def step_twice(state):
        later, *_ = env.step_batch(state, jnp.zeros(1, jnp.int32), jax.random.key(1))
        busy = jax.lax.fori_loop(0, 3 * 10**7, lambda i, x: jnp.sin(x + i), later.obs[0, 0])  # takes 0.3 s
        action = (busy > 2).astype(jnp.int32)[None]
        return env.step_batch(later, action, jax.random.key(2))[0]

    state = env.reset_batch(jax.random.key(0), 1)
    with pytest.raises(KeyboardInterrupt), env.watched():
        jax.block_until_ready(step_twice(state))
    assert env.stale(state)
    with env.watched():  # usable again
        env.reset_batch(jax.random.key(0), 1)


def test_only_copies_are_closed():
    closed = []

    class Closing(Walk):
        def close(self):
            closed.append(self)

    mine = Closing()
    env = HostEnv(mine, Closing)
    roll(env, 3, 1)
    env.close()
    assert len(closed) == 2
    assert mine not in closed
    roll(env, 3, 1)  # opens again what it needs


class Endless(Walk):
    def step(self, action):
        return *super().step(action)[:2], False, False, {}


def test_an_episode_without_an_end_gives_one_warning(monkeypatch):
    monkeypatch.setattr("scopil.envs.base.ENDLESS", 20)
    env = HostEnv(Endless(), Endless)
    roll(env, 2, 19)
    with pytest.warns(UserWarning, match="no time limit") as caught:
        roll(env, 2, 45)
    assert len(caught) == 1
    roll(env, 3, 45)  # warned already
    roll(HostEnv(Walk(), Walk), 2, 45)  # its episodes end


@pytest.mark.parametrize("wrap", [lambda obs: obs, lambda obs: {"a": obs}])
def test_a_kept_observation_does_not_change_with_the_environment(wrap):
    space = wrap(Walk.observation_space)
    spaces = Spaces("env", S.Dict(space) if isinstance(space, dict) else space, Walk.action_space)
    seen = np.zeros(2, np.float32)
    kept = spaces.flatten(wrap(seen))
    seen += 1
    np.testing.assert_array_equal(kept, [0, 0])


# --- the true cost, and hooks of an environment --------------------------------------------------------------------


roll_with_cost = partial(roll, step_batch="step_batch_with_cost")

MADE = {
    "copies": lambda: HostEnv(Walk(), Walk),
    "the only one": lambda: HostEnv(Walk()),
    **{
        f"vector {mode.name}": lambda mode=mode: open_env(SyncVectorEnv([Walk] * 3, autoreset_mode=mode))
        for mode in AutoresetMode
    },
}


@pytest.mark.parametrize("made", MADE)
def test_the_true_cost_belongs_to_its_step(made):
    env = MADE[made]()
    assert env.reports_cost()
    first, (*rows, cost) = roll_with_cost(env, 1 if made == "the only one" else 3, 150)
    check_ends(first, rows)  # stepping is the same with and without the cost
    assert cost.dtype == np.float32
    np.testing.assert_array_equal(cost, rows[1].next_obs[..., 0] > 1)
    assert 0 < cost.mean() < 1
    ended = rows[1].terminated | rows[1].truncated
    assert cost[ended].any(), "the cost of an episode's last step too"


def test_a_missing_cost_is_refused_and_an_absent_one_is_0():
    class Silent(Walk):
        def info(self):
            return {"cost_left": 0.0}

    class Sometimes(Walk):
        def info(self):
            return {"cost": 1.0} if self.clock < 5 else {}

    silent = HostEnv(Silent(), Silent)
    assert not silent.reports_cost()
    with pytest.raises(EnvError, match="reports no cost"):
        roll_with_cost(silent, 2, 3)
    _, (_, t, _, cost) = roll_with_cost(HostEnv(Sometimes(), Sometimes), 2, 30)
    np.testing.assert_array_equal(cost, t.next_obs[..., 1] < 5)


class Offering(gym.Wrapper):
    def measures(self, episode):
        return {"x": 1.0}


def test_hooks_are_found_through_wrappers_and_vectors():
    wrapped = Offering(gym.wrappers.TimeLimit(Walk(), 5))
    for env in (
        HostEnv(wrapped),
        HostEnv(gym.wrappers.OrderEnforcing(wrapped)),
        open_env(SyncVectorEnv([lambda: wrapped])),
    ):
        measures = env.hook("measures")
        assert measures is not None
        assert measures(None) == {"x": 1.0}
        assert env.hook("draw_episodes") is None
        assert env.params is None


def test_a_cost_may_be_an_array_of_one_number():
    info = {"cost": np.array([1.0]), "cost_far": np.float32(0.5), "both": np.ones(2), "word": "x"}
    assert numbers_of(info) == {"cost": 1.0, "cost_far": 0.5}


def test_actions_stay_within_bounds_of_double_precision():
    """0.1 in single precision is above 0.1 in double precision."""
    space = S.Box(-0.1, 0.1, (2,), np.float64)
    spaces = Spaces("env", S.Box(-1.0, 1.0, (1,), np.float32), space)
    for action in (spaces.from_policy(np.full((1, 2), 0.1, np.float32))[0], spaces.to_env(np.full(2, 0.1, np.float32))):
        assert space.contains(action)
        np.testing.assert_allclose(action, 0.1)
