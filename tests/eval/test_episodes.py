"""Compiled episodes equal episodes that Gymnasium plays step by step, from the given starts."""

from dataclasses import replace as replaced
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.experimental.functional import FuncEnv

from samples import marble_episodes, small_set
from scopil.algos import sac
from scopil.algos.base import spaces_of
from scopil.data import storage
from scopil.data.record import record
from scopil.envs.as_gym import FunctionalEnv, FunctionalVectorEnv
from scopil.envs.gym_env import compile_env
from scopil.envs.jax_env import CompiledEnv
from scopil.envs.naming import IDS
from scopil.errors import ConfigError, DatasetError, EnvError
from scopil.eval.episodes import play, play_distinct, replay
from scopil.eval.starts import demonstrated_starts, demos_for, starts_from, unseen_starts, watched_from, watched_starts
from scopil.policy import Policy
from toys import toy, toy_demos

ENV_ID = "scopil/MarbleMaze-Simple-v0"


@pytest.fixture(scope="module")
def env() -> CompiledEnv:
    return compile_env(ENV_ID)


@pytest.fixture(scope="module")
def policy(env) -> Policy:
    spaces = spaces_of(env.observation_space, env.action_space)
    return sac.policy(sac.init(jax.random.key(3), spaces, sac.Config(hidden=(8,))))


def by_hand(start, choose) -> dict[str, Any]:
    """The same episode through Gymnasium, one step at a time."""
    env = gym.make(ENV_ID)
    obs, info = env.reset(options={"start": start})
    seen = {"obs": [obs], "action": [], "reward": [], "cost": [info["cost"]], "circle": [info["cost_circle"]]}
    terminated = truncated = False
    while not (terminated or truncated):
        seen["action"].append(choose(obs, len(seen["action"])))
        obs, reward, terminated, truncated, info = env.step(seen["action"][-1])
        for name, value in zip(("obs", "reward", "cost", "circle"), (obs, reward, info["cost"], info["cost_circle"])):
            seen[name].append(value)
    return dict(seen) | {"terminated": terminated, "truncated": truncated}


def test_a_greedy_episode_is_the_one_played_by_hand(env, policy):
    starts = np.array([(-100.0, 50.0), (60.0, -120.0)], np.float32)
    episodes = play(env, policy, env.starts_at(starts), jax.random.key(0))
    net = policy.network.in_numpy()
    for start, episode in zip(starts, episodes):
        hand = by_hand(start, lambda obs, _: int(net(obs).argmax()))
        np.testing.assert_array_equal(episode.actions, hand["action"])
        np.testing.assert_allclose(episode.observations, hand["obs"], atol=1e-6)
        np.testing.assert_allclose(np.asarray(episode.rewards), hand["reward"], atol=1e-6)
        np.testing.assert_array_equal(episode.info["cost"], np.array(hand["cost"]))
        np.testing.assert_array_equal(episode.info["cost_circle"], np.array(hand["circle"]))
        assert (episode.terminated, episode.truncated) == (hand["terminated"], hand["truncated"])
        assert len(episode.observations) == len(episode) + 1 == len(episode.info["position"])


def test_sampled_episodes_follow_the_seed_and_the_policys_probabilities(env, policy):
    first = unseen_starts(env, 40)
    played = [play(env, policy, first, jax.random.key(seed), "sampled") for seed in (0, 0, 1)]
    assert [e.actions.tolist() for e in played[0]] == [e.actions.tolist() for e in played[1]]
    assert [e.actions.tolist() for e in played[0]] != [e.actions.tolist() for e in played[2]]
    net = policy.network.in_numpy()
    logits = np.concatenate([net(e.observations[:-1]) for e in played[0]]).astype(np.float64)
    actions = np.concatenate([e.actions for e in played[0]])
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    expected, variance = p.sum(axis=0), (p * (1 - p)).sum(axis=0)
    z = (np.bincount(actions, minlength=9) - expected) / np.sqrt(variance)
    assert np.abs(z).max() < 4.0  # of nine near-normal numbers


def test_unseen_starts_are_compiled_once_for_an_environment(env, caplog):
    """Marble Maze draws its starts in a loop, which is compiled at every call outside of a program."""
    first = unseen_starts(env, 3)
    with jax.log_compiles():
        again, other = unseen_starts(env, 3), unseen_starts(env, 3, seed=1)
    compiled = [r.getMessage() for r in caplog.records if r.getMessage().startswith("Compiling jit")]
    assert not [line for line in compiled if "while" in line or "reset_batch" in line]
    np.testing.assert_array_equal(first.obs, again.obs)  # type: ignore[union-attr]
    assert not np.array_equal(first.obs, other.obs)  # type: ignore[union-attr]


def test_a_replayed_demonstration_is_the_demonstration(env):
    demos = marble_episodes(steps=9, episodes=3)
    for played, shown in zip(replay(env, demos), demos):
        np.testing.assert_array_equal(played.actions, shown.actions)
        np.testing.assert_allclose(played.observations, shown.observations, atol=1e-6)
        assert not played.terminated or shown.terminated


# --- where episodes start ----------------------------------------------------------------------------------------


def positions(first) -> np.ndarray:
    return np.asarray(first.inner.position)


def test_starts_of_demonstrations_and_of_files(env, tmp_path):
    demos = marble_episodes(steps=3, episodes=3)
    starts = np.asarray(demos.starts)
    for episodes, index in ((None, [0, 1, 2]), (5, [0, 1, 2, 0, 1]), (2, [0, 1])):
        found = positions(starts_from("demonstrated", env, demos, episodes))
        np.testing.assert_array_equal(found, starts[index])
    storage.write(demos, tmp_path / "d.npz")
    np.testing.assert_array_equal(positions(starts_from(str(tmp_path / "d.npz"), env, None)), demos.starts)
    np.save(tmp_path / "s.npy", np.array([(1.0, 2.0), (3.0, 4.0)]))
    np.testing.assert_array_equal(positions(starts_from(str(tmp_path / "s.npy"), env, None)), [(1, 2), (3, 4)])


def test_unseen_starts_depend_on_the_seed_alone_and_are_not_those_of_training(env):
    a, b = positions(starts_from("unseen", env)), positions(starts_from("unseen", env))
    assert a.shape == (40, 2)
    np.testing.assert_array_equal(a, b)
    assert positions(starts_from("unseen", env, None, 7)).shape == (7, 2)
    moved = [positions(starts_from("unseen", env, seed=seed)) for seed in (1, 2)]
    assert all(len(np.unique(np.concatenate([a, other]), axis=0)) == 80 for other in moved)
    assert not np.array_equal(moved[0], moved[1])
    watched = positions(watched_starts(env, None))
    assert not (watched[:, None] == a[None]).all(-1).any()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(2), r"shape \(2,\); want \(episodes, coordinates\)"),
        (np.zeros((0, 2)), r"shape \(0, 2\)"),
        (np.zeros((3, 3)), "not on the tray"),
        (np.array([(500.0, 0.0)]), "not on the tray"),
        (np.array([("a", "b")]), "not an array of numbers"),
        (np.array([(object(), 1)], dtype=object), "cannot read starts"),  # a pickle, refused
    ],
)
def test_bad_starts_are_refused(array, message, env, tmp_path):
    np.save(tmp_path / "s.npy", array, allow_pickle=True)
    with pytest.raises(EnvError, match=message):
        starts_from(str(tmp_path / "s.npy"), env, None)


def test_broken_start_files_are_refused(env, tmp_path):
    (tmp_path / "empty.npy").touch()
    (tmp_path / "junk.npy").write_bytes(b"junk")
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    (tmp_path / "a.npz").rename(tmp_path / "archive.npy")
    for name in ("empty.npy", "junk.npy", "archive.npy", "none.npy"):
        with pytest.raises(EnvError, match=name):
            starts_from(str(tmp_path / name), env, None)


def test_starts_that_do_not_exist_are_refused(env):
    with pytest.raises(DatasetError, match="use unseen starts or a file"):
        starts_from("demonstrated", env)
    without = small_set(episodes=tuple(replaced(e, start=None) for e in small_set()))
    with pytest.raises(DatasetError, match="does not record its starts"):
        demonstrated_starts(env, without)
    with pytest.raises(DatasetError, match="no demonstrations 'unsen'"):
        starts_from("unsen", env)
    with pytest.raises(ConfigError, match="0 episodes; want at least 1"):
        starts_from("unseen", env, None, 0)


def test_the_shipped_set_of_an_environment():
    assert demos_for("CartPole-v1") is None
    assert demos_for(None) is None
    shipped = demos_for(ENV_ID)
    assert shipped is not None
    assert shipped.env_id == ENV_ID
    for setting, env_id in IDS.items():  # the planner's, not the simulated players'
        assert demos_for(env_id).name == f"marble-maze/{setting}-v1"  # type: ignore[union-attr]


BARE = {  # none of the methods takes params
    "observation_space": gym.spaces.Box(0, 9, (1,), np.float32),
    "action_space": gym.spaces.Discrete(2),
    "initial": lambda self, rng: jnp.int32(0),
    "transition": lambda self, state, action, rng: state + 1,
    "observation": lambda self, state, rng: jnp.float32(state)[None],
    "reward": lambda self, state, action, next_state, rng: jnp.float32(state),
    "terminal": lambda self, state, rng: jnp.array(False),
    "truncation": lambda self, state: state >= 3,
    "state_info": lambda self, state: {"place": state},
    "transition_info": lambda self, state, action, next_state: {"place": next_state},
    "render_init": lambda self: None,
    "render_image": lambda self, state, render_state: (render_state, np.full((2, 2, 3), state, np.uint8)),
}


def test_an_environment_without_params_is_played_recorded_and_drawn():
    bare = CompiledEnv(type("Env", (FuncEnv,), BARE)(), max_episode_steps=5)
    spaces = spaces_of(bare.observation_space, bare.action_space)
    policy = sac.policy(sac.init(jax.random.key(0), spaces, sac.Config(hidden=(8,))))
    played = play(bare, policy, unseen_starts(bare, 1), jax.random.key(0))
    recorded = record(bare.env, lambda obs: 0, 1)
    for episode in (*played, *recorded):
        assert (len(episode), episode.truncated) == (3, True)
        np.testing.assert_array_equal(episode.info["place"], range(4))
    drawn = FunctionalEnv(bare, "rgb_array")
    drawn.reset(seed=0)
    drawn.step(0)
    assert np.unique(drawn.render()) == [1]  # pyright: ignore[reportCallIssue, reportArgumentType]
    group = FunctionalVectorEnv(bare, 2)
    group.reset(seed=0)
    np.testing.assert_array_equal(group.step(np.zeros(2, int))[4]["place"], [1, 1])


@pytest.mark.parametrize(("starts", "wanted"), [("aabaabaab", 3), ("aaaa", 1), ("abcd", 4), ("abcab", 3), ("abac", 4)])
def test_a_greedy_policy_plays_repeated_starts_once(starts, wanted, env, policy):
    """A start that was demonstrated twice counts twice, as in the means of demonstrations."""
    first = env.starts_at([(ord(letter) - ord("a"), 100.0) for letter in starts])
    assert len(play_distinct(env, policy, first, jax.random.key(0))) == wanted
    assert len(play_distinct(env, policy, first, jax.random.key(0), "sampled")) == len(starts)


def test_recorded_starts_are_of_no_use_where_an_environment_cannot_start_there():
    env, shown = toy(continuous=False), toy_demos(continuous=False)
    placed = replaced(shown, episodes=tuple(replaced(e, start=np.zeros(2)) for e in shown.episodes))
    assert placed.starts is not None
    assert watched_from(env, placed) == "unseen"
    watched_starts(env, placed)
    with pytest.raises(DatasetError, match="cannot start at a demonstrated state; use unseen starts"):
        starts_from("demonstrated", env, placed)
