"""Compiled stepping: time limits, autoreset without lost transitions, and environments that can be compiled."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.experimental.functional import FuncEnv

import scopil  # noqa: F401  (registers the ids)
from scopil.envs.as_gym import FunctionalEnv
from scopil.envs.base import ENDLESS
from scopil.envs.gym_env import HostEnv, compile_env, open_env
from scopil.envs.jax_env import RESETS_AT_ONCE, CompiledEnv
from scopil.envs.marble_maze import MarbleMaze
from scopil.errors import EnvError


class Countdown(FuncEnv):
    """The state is (random number, steps left); action 1 ends the episode."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def get_default_params(self, **kwargs):
        return 5

    def initial(self, rng, params=None):
        return jnp.stack([jax.random.uniform(rng), jnp.float32(params)])

    def transition(self, state, action, rng, params=None):
        return state - jnp.array([0.0, 1.0]) * jnp.where(action == 1, state[1], 1.0)

    def observation(self, state, rng, params=None):
        return state

    def reward(self, state, action, next_state, rng, params=None):
        return state[0]

    def terminal(self, state, rng, params=None):
        return state[1] <= 0


def test_advance_never_resets(getkey):
    env = CompiledEnv(Countdown())
    state = env.reset(getkey())
    for left in (4, 3, 2, 1, 0):
        before = state
        state, t = env.advance(state, jnp.int32(0), getkey())
        np.testing.assert_array_equal(t.obs, before.obs)
        np.testing.assert_array_equal(t.next_obs, state.obs)
        assert float(state.obs[1]) == left
        assert bool(t.terminated) == (left == 0)
        assert not t.truncated
        assert float(t.reward) == float(before.obs[0])
    assert int(state.steps) == 5


@pytest.mark.parametrize("marked", [0, 1, RESETS_AT_ONCE + 1])
def test_a_restart_begins_the_marked_episodes_and_no_others(marked, getkey):
    env, count = CompiledEnv(Countdown()), RESETS_AT_ONCE + 3
    state = env.reset_batch(getkey(), count)
    state, _ = env.advance_batch(state, jnp.zeros(count, jnp.int32), getkey())
    which = np.arange(count) < marked
    after = jax.jit(env.restart)(state, jnp.asarray(which), getkey())
    for old, new in zip(jax.tree.leaves(state), jax.tree.leaves(after)):
        np.testing.assert_array_equal(old[~which], new[~which])
    assert after.obs[:, 1].tolist() == [5.0] * marked + [4.0] * (count - marked)
    assert after.steps.tolist() == [0] * marked + [1] * (count - marked)
    assert len(np.unique(after.obs[:, 0])) == count


def test_a_limit_truncates_and_an_ending_at_the_limit_terminates(getkey):
    for limit, expected in ((3, (False, True)), (5, (True, False)), (8, (True, False))):
        env = CompiledEnv(Countdown(), max_episode_steps=limit)
        state = env.reset(getkey())
        ends = []
        for _ in range(min(limit, 5)):
            state, t = env.advance(state, jnp.int32(0), getkey())
            ends.append((bool(t.terminated), bool(t.truncated)))
        assert ends[-1] == expected


@pytest.mark.parametrize("num_envs", [3, 2 * RESETS_AT_ONCE + 8])
def test_every_environment_may_end_at_once(num_envs, getkey):
    env = CompiledEnv(Countdown())
    state = env.reset_batch(getkey(), num_envs)
    new, t, after = jax.jit(env.step_batch)(state, jnp.ones(num_envs, jnp.int32), getkey())
    assert t.terminated.all()
    np.testing.assert_array_equal(t.next_obs[:, 1], np.zeros(num_envs))  # the true successor
    np.testing.assert_array_equal(after.obs, t.next_obs)
    np.testing.assert_array_equal(new.obs[:, 1], np.full(num_envs, 5.0))  # and a new episode
    np.testing.assert_array_equal(new.obs, new.inner)
    np.testing.assert_array_equal(new.steps, np.zeros(num_envs))
    drawn = np.asarray(new.obs[:, 0])
    assert len(set(drawn.tolist())) == num_envs, "two environments were given the same new episode"
    assert not np.isin(drawn, np.asarray(state.obs[:, 0])).any()


def test_an_environment_that_does_not_end_keeps_its_transition(getkey):
    env, num_envs = CompiledEnv(Countdown()), 40
    state = env.reset_batch(getkey(), num_envs)
    action = jnp.asarray(np.arange(num_envs) % 3 == 0, jnp.int32)
    new, t, _ = jax.jit(env.step_batch)(state, action, getkey())
    stays = np.asarray(action) == 0
    np.testing.assert_array_equal(t.terminated, ~stays)
    np.testing.assert_array_equal(np.asarray(new.obs)[stays], np.asarray(t.next_obs)[stays])
    np.testing.assert_array_equal(np.asarray(new.obs)[stays, 0], np.asarray(state.obs)[stays, 0])
    np.testing.assert_array_equal(np.asarray(new.steps), stays.astype(int))


def test_a_batch_steps_as_its_members_do_alone(getkey):
    """Three hundred Marble Maze steps with autoreset: each env's own path, stepped by hand from the same states."""
    env, num_envs, steps = CompiledEnv(MarbleMaze()), 20, 300
    actions = jax.random.randint(getkey(), (steps, num_envs), 0, 9)

    def body(state, row):
        new, t, after = env.step_batch(state, *row)
        return new, (state, t, after, new)

    keys = jax.random.split(getkey(), steps)
    _, (state, t, after, new) = jax.jit(lambda s: jax.lax.scan(body, s, (actions, keys)))(
        env.reset_batch(getkey(), num_envs)
    )
    ended = np.asarray(t.terminated | t.truncated)
    assert ended.sum() > num_envs
    assert np.asarray(t.truncated).any()
    assert np.asarray(t.terminated).any()

    flat = jax.tree.map(lambda x: x.reshape(steps * num_envs, *x.shape[2:]), state)
    alone, t_alone = jax.jit(jax.vmap(env.advance))(
        flat, actions.reshape(-1), jax.random.split(getkey(), steps * num_envs)
    )
    for ours, theirs in zip(jax.tree.leaves((after, t)), jax.tree.leaves((alone, t_alone))):
        np.testing.assert_allclose(ours.reshape(theirs.shape), theirs, rtol=1e-6, atol=2e-5)
    assert (np.asarray(new.steps)[ended] == 0).all()
    assert (np.asarray(new.inner.steps)[ended] == 0).all()
    for kept, was in zip(jax.tree.leaves(new), jax.tree.leaves(after)):
        np.testing.assert_array_equal(np.asarray(kept)[~ended], np.asarray(was)[~ended])


def test_numbers_of_states_enter_one_hot(getkey):
    env = compile_env("tabular/CliffWalking-v0")  # a Box of one integer from 0 to 47
    assert env.observation_space == gym.spaces.Box(0.0, 1.0, (48,), np.float32)
    np.testing.assert_array_equal(env.reset(getkey()).obs, np.eye(48)[36])
    np.testing.assert_array_equal(env.spaces.flatten(np.array([36])), np.eye(48)[36])
    np.testing.assert_array_equal(env.spaces.flatten(np.array([[36], [1]])), np.eye(48)[[36, 1]])
    for bare in (36, np.array([36, 1]), np.arange(48)):
        np.testing.assert_array_equal(env.spaces.flatten(bare), np.eye(48)[bare])
    rows = np.eye(48, dtype=np.float32)[:2]
    np.testing.assert_array_equal(env.spaces.flatten(rows), rows)
    np.testing.assert_array_equal(env.spaces.flatten(rows[0]), rows[0])
    given = env.as_given(np.eye(48, dtype=np.float32)[36])  # as rules see it
    np.testing.assert_array_equal(given, [36])
    assert env.spaces.env_observation.contains(given)
    np.testing.assert_array_equal(env.as_given(given), [36])


def test_a_box_of_one_integer_is_a_discrete_action(getkey):
    """CliffWalking, as Gymnasium describes it: 12 × 4 fields, up, right, down, left, −100 and back for a fall."""
    env = compile_env("tabular/CliffWalking-v0")
    assert env.action_space == gym.spaces.Discrete(4)
    assert env.horizon == ENDLESS
    state, seen = env.reset(getkey()), []
    for action in (0, *[1] * 11):
        state, t = env.advance(state, jnp.int32(action), getkey())
        seen.append(int(t.next_obs.argmax()))
    state, t = env.advance(state, jnp.int32(2), getkey())
    assert [*seen, int(t.next_obs.argmax())] == [24, *range(25, 36), 47]
    assert t.terminated
    assert t.next_obs.dtype == jnp.float32
    state, t = env.advance(env.reset(getkey()), jnp.int32(1), getkey())  # over the edge
    assert (int(t.next_obs.argmax()), float(t.reward), bool(t.terminated)) == (36, -100.0, False)
    env = compile_env(gym.make("tabular/CliffWalking-v0", max_episode_steps=7))
    state, step = env.reset_batch(getkey(), 3), jax.jit(env.step_batch)
    for i in range(8):
        state, t, _ = step(state, jnp.zeros(3, jnp.int32), getkey())  # up, against the wall
        np.testing.assert_array_equal(t.truncated, [i == 6] * 3)


def test_every_form_of_an_env_compiles():
    made = gym.make("scopil/MarbleMaze-Multiple-v0")
    short = gym.make("scopil/MarbleMaze-Multiple-v0", max_episode_steps=50)
    for env in ("scopil/MarbleMaze-Multiple-v0", made, MarbleMaze(), FunctionalEnv(CompiledEnv(MarbleMaze()))):
        assert isinstance(compile_env(env).env, MarbleMaze)
    assert compile_env(short).max_episode_steps == 50
    compiled = CompiledEnv(MarbleMaze())
    assert compile_env(compiled) is compiled
    mine = FunctionalEnv(compiled)  # registered nowhere, so that the wrapper alone tells its limit
    assert compile_env(gym.wrappers.TimeLimit(mine, 5)).time_limit == 5
    assert compile_env(gym.wrappers.TimeLimit(gym.wrappers.TimeLimit(mine, 5), 100)).time_limit == 5
    assert compile_env(gym.wrappers.TimeLimit(short, 20)).time_limit == 20
    assert len(compile_env(made).params.constraints) == 9
    assert compile_env("phys2d/CartPole-v1").max_episode_steps == 500
    assert isinstance(open_env(gym.make_vec("scopil/MarbleMaze-Simple-v0", 2)), CompiledEnv)


def test_an_env_that_is_not_jax_or_would_lose_a_wrapper_is_refused():
    wrapped = gym.wrappers.TransformReward(gym.make("scopil/MarbleMaze-Simple-v0"), lambda r: 2 * float(r))
    for env in ("CartPole-v1", wrapped):
        with pytest.raises(EnvError, match="not written in JAX"):
            compile_env(env)
        assert isinstance(open_env(env), HostEnv)


# --- the true cost, and hooks of an environment --------------------------------------------------------------------


def test_the_true_cost_belongs_to_its_step(getkey):
    env, num_envs = CompiledEnv(MarbleMaze()), 8
    assert env.reports_cost()
    state = env.reset_batch(getkey(), num_envs)
    step = jax.jit(env.step_batch_with_cost)
    info = jax.jit(jax.vmap(lambda s: env.env.state_info(s, env.params)))
    plain = jax.jit(env.step_batch)
    seen = 0.0
    for t in range(60):
        action, key = jnp.full(num_envs, (6, 7, 0, 0)[t % 4], jnp.int32), getkey()
        later, transition, after, cost = step(state, action, key)
        np.testing.assert_array_equal(cost, info(after.inner)["cost"])
        assert (cost.shape, cost.dtype) == ((num_envs,), jnp.float32)
        if t == 0:  # stepping is the same with and without the cost
            for a, b in zip(
                jax.tree.leaves((later, transition)), jax.tree.leaves(plain(state, action, jax.random.clone(key))[:2])
            ):
                np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
        state, seen = later, seen + float(cost.sum())
    assert seen > 0


def test_an_env_without_a_cost_is_refused(getkey):
    class Silent(Countdown):
        def transition_info(self, state, action, next_state, params=None):
            return {"cost_left": state[0]}

    env = CompiledEnv(Silent())
    assert not env.reports_cost()
    with pytest.raises(EnvError, match="reports no cost"):
        env.step_batch_with_cost(env.reset_batch(getkey(), 2), jnp.zeros(2, jnp.int32), getkey())


def test_hooks_are_methods_of_the_func_env():
    maze = CompiledEnv(MarbleMaze())
    for name in ("measures", "draw_episodes", "draw_cost", "initial_at"):
        assert maze.hook(name) == getattr(maze.env, name)
        assert CompiledEnv(Countdown()).hook(name) is None
