"""Compiled environments follow the conventions of Gymnasium's Env and VectorEnv."""

import warnings

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from scopil.envs.as_gym import FunctionalEnv, FunctionalVectorEnv
from scopil.envs.jax_env import CompiledEnv
from scopil.envs.marble_maze import MarbleMaze
from scopil.envs.naming import IDS
from scopil.errors import EnvError

SIMPLE = "scopil/MarbleMaze-Simple-v0"
RULES = {"simple": {"horizontal", "circle"}, "two-modes": {"horizontal", "circle"}}
RULES["multiple"] = {"horizontal", "vertical", "circle"}


@pytest.fixture(scope="module")
def env():
    return gym.make(SIMPLE).unwrapped


@pytest.mark.parametrize("env_id", IDS.values())
def test_gymnasium_finds_no_fault(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(env_id, render_mode="rgb_array").unwrapped)


@pytest.mark.parametrize(("setting", "env_id"), IDS.items())
def test_info_carries_raw_reward_position_and_costs(setting, env_id):
    made = gym.make(env_id)
    costs = {"cost"} | {f"cost_{rule}" for rule in RULES[setting]}
    obs, info = made.reset(seed=1)
    assert set(info) == {"position"} | costs
    np.testing.assert_allclose(info["position"] / 174.463972, obs[:2], rtol=1e-5)
    obs, reward, _, _, info = made.step(4)
    assert set(info) == {"raw_reward", "position"} | costs
    assert reward == pytest.approx((float(info["raw_reward"]) - 10) / 15, abs=1e-6)


def test_a_seed_repeats_the_episodes_and_no_seed_goes_on(env):
    def episodes(seed):
        first = [env.reset(seed=seed)[0], *(env.step(a)[0] for a in (1, 4, 8))]
        return np.stack([*first, env.reset()[0], env.step(3)[0]])

    np.testing.assert_array_equal(episodes(7), episodes(7))
    assert not np.array_equal(episodes(7)[0], episodes(8)[0])
    assert not np.array_equal(episodes(7)[0], episodes(7)[4]), "an unseeded reset must not replay the seeded one"


def test_an_episode_starts_where_it_is_asked_to(env):
    obs, info = env.reset(seed=0, options={"start": (30.0, -70.0)})
    np.testing.assert_allclose(info["position"], (30, -70), rtol=1e-6)
    np.testing.assert_allclose(obs, [30 / 174.463972, -70 / 174.463972, 0, 0, 0, 0, 0, 0], atol=1e-6)
    assert env.reset(options={"start": (0.0, -165.0)})[1]["cost_horizontal"] == 1.0


def test_a_bad_start_a_bad_action_and_a_step_before_reset_are_refused(env):
    env.reset(seed=0)
    for start in [(999.0, 0.0), (0.0,), (-144.0, -144.0)]:
        with pytest.raises(EnvError, match="start"):
            env.reset(options={"start": start})
    for action in [9, -1, 2.5, [1, 2]]:
        with pytest.raises(EnvError, match="action"):
            env.step(action)
    venv = vector(3)
    venv.reset(seed=0)
    with pytest.raises(EnvError, match="start"):
        venv.reset(options={"start": (999.0, 0.0)})
    for actions in [[0, 1, 9], [0, 1], [0.5, 1.0, 2.0]]:
        with pytest.raises(EnvError, match="action"):
            venv.step(np.array(actions))
    for fresh in (FunctionalEnv(CompiledEnv(MarbleMaze())), vector(2)):
        with pytest.raises(gym.error.ResetNeeded):
            fresh.step(np.zeros(getattr(fresh, "num_envs", ()), int))


def test_results_are_writeable_numpy_copies(env):
    """Read-only arrays break in-place code and make torch warn."""
    kept, info = env.reset(seed=3)
    before = kept.copy()
    obs, reward, terminated, truncated, step_info = env.step(np.int64(5))
    for array in (kept, obs, info["position"], step_info["position"]):
        assert type(array) is np.ndarray
        assert array.flags.writeable
    assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
    np.testing.assert_array_equal(kept, before)
    obs[:] = 9.0
    assert env.observation_space.contains(env.step(5)[0]), "changes by the caller must not reach the state"


class BigNumbers(MarbleMaze):
    """Reports an integer that no float32 can hold."""

    def state_info(self, state, params=None):
        return {"serial": jnp.int32(2**24 + 1) + state.steps, "flag": state.steps > 0, "half": jnp.float16(0.1)}


def test_infos_of_every_dtype_come_through_exactly():
    env = FunctionalEnv(CompiledEnv(BigNumbers()))
    env.reset(seed=0)
    *_, info = env.step(0)
    assert info["serial"] == 2**24 + 2
    assert info["serial"].dtype == np.int32
    assert info["flag"].dtype == bool
    assert info["flag"]
    assert info["half"] == np.float16(0.1)


# --- vector ------------------------------------------------------------------------------------------------------


def vector(num_envs: int = 4, **kwargs) -> FunctionalVectorEnv:
    made = gym.make_vec(SIMPLE, num_envs=num_envs, vectorization_mode="vector_entry_point", **kwargs)
    assert isinstance(made, FunctionalVectorEnv)
    return made


def test_make_vec_gives_batched_spaces_and_numpy():
    venv = vector(4)
    obs, info = venv.reset(seed=0)
    assert venv.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert venv.observation_space.contains(obs)
    assert info["position"].shape == (4, 2)
    assert info["_position"].tolist() == [True] * 4
    obs, reward, terminated, truncated, info = venv.step(venv.action_space.sample())
    assert venv.observation_space.contains(obs)
    assert reward.shape == terminated.shape == truncated.shape == (4,)
    assert reward.dtype == np.float64
    assert terminated.dtype == truncated.dtype == bool
    assert obs.flags.writeable
    assert "final_obs" not in info
    np.testing.assert_array_equal(venv.reset(seed=0)[0], venv.reset(seed=0)[0])


def test_vector_envs_play_as_single_ones_and_keep_their_ends(env):
    """Every transition is repeated by a single env put into the same state, through two autoresets."""
    venv, num_envs = vector(4), 4
    obs, info = venv.reset(seed=2)
    each_alone = jax.jit(jax.vmap(env.compiled.advance))
    rng, ends = np.random.default_rng(2), 0
    for _ in range(450):
        before, actions = venv._state, rng.integers(9, size=num_envs)
        obs, reward, terminated, truncated, info = venv.step(actions)
        ended = terminated | truncated
        ends += ended.sum()
        _, t = each_alone(before, actions, jax.random.split(jax.random.key(0), num_envs))
        np.testing.assert_allclose(reward, t.reward, atol=1e-6)
        np.testing.assert_array_equal(terminated, t.terminated)
        np.testing.assert_array_equal(truncated, t.truncated)
        true_next = np.stack([info["final_obs"][i] if ended[i] else obs[i] for i in range(num_envs)])
        np.testing.assert_allclose(true_next, t.next_obs, rtol=1e-6, atol=1e-6)
        if ended.any():
            check_ends(obs, info, ended, terminated)
        else:
            assert "final_obs" not in info
            assert "final_info" not in info
    assert ends > num_envs


def check_ends(obs: np.ndarray, info: dict, ended: np.ndarray, terminated: np.ndarray) -> None:
    np.testing.assert_array_equal(info["_final_obs"], ended)
    np.testing.assert_array_equal(info["_final_info"], ended)
    for i in np.flatnonzero(ended):
        final = info["final_info"]
        assert final["raw_reward"][i] == (10.0 if terminated[i] else -5.0)
        np.testing.assert_allclose(final["position"][i] / 174.463972, info["final_obs"][i][:2], rtol=1e-5)
        np.testing.assert_array_equal(obs[i, 2:], np.zeros(6))  # at rest: the observation opens a new episode
        np.testing.assert_allclose(info["position"][i] / 174.463972, obs[i, :2], rtol=1e-5)
    for i in np.flatnonzero(~ended):
        assert info["final_obs"][i] is None
        np.testing.assert_allclose(info["position"][i] / 174.463972, obs[i, :2], rtol=1e-5)


def test_infos_have_the_form_of_gymnasiums_own_vector_env():
    """The same keys and masks as SyncVectorEnv, before, at and after an autoreset."""
    theirs = SyncVectorEnv([lambda: gym.make(SIMPLE)] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    ours = vector(3)
    start = {"start": (100.0, 100.0)}

    def form(info: dict) -> dict:
        masks = {k: v.tolist() for k, v in info.items() if k.startswith("_")}
        inner = {k: form(v) for k, v in info.items() if isinstance(v, dict)}
        return masks | inner | {"keys": sorted(info)}

    (obs_a, info_a), (obs_b, info_b) = theirs.reset(seed=1, options=start), ours.reset(seed=1, options=start)
    np.testing.assert_array_equal(obs_a, obs_b)
    assert form(info_a) == form(info_b)
    seen = 0
    for t in range(201):
        action = np.array([0, 7 if t % 8 == 0 else 0, 1 if t < 3 else 0])
        a, b = theirs.step(action), ours.step(action)
        if seen == 0:  # afterwards each draws its own starts
            np.testing.assert_allclose(a[1], b[1], atol=1e-6)
            np.testing.assert_array_equal(a[2], b[2])
            np.testing.assert_array_equal(a[3], b[3])
            assert form(a[4]) == form(b[4])
        seen += int((a[2] | a[3]).any())
        if seen:
            np.testing.assert_array_equal(a[4]["_raw_reward"], ~(a[2] | a[3]))
            np.testing.assert_array_equal(a[4]["_raw_reward"], b[4]["_raw_reward"])
            break
    assert seen


def test_vector_envs_take_a_start_and_a_limit():
    venv = vector(3, max_episode_steps=2)
    _, info = venv.reset(seed=0, options={"start": (10.0, 20.0)})
    np.testing.assert_allclose(info["position"], [[10, 20]] * 3, rtol=1e-6)
    assert not venv.step(np.zeros(3, int))[3].any()
    *_, truncated, info = venv.step(np.zeros(3, int))
    assert truncated.all()
    assert len(np.unique(info["position"][:, 0])) == 3, "the next episodes have random starts"
