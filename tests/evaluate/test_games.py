"""Games played by the compiled player are the games one would play by hand."""

from dataclasses import replace as replaced

import gymnasium as gym
import jax
import numpy as np
import pytest

from samples import marble_games, small_set
from scopil.algos import ALGORITHMS
from scopil.algos.base import discrete_spaces
from scopil.demos import store
from scopil.envs.functional import compile_env
from scopil.errors import ConfigError, DatasetError, EnvError
from scopil.evaluate import protocol
from scopil.evaluate.games import first_states, replay
from scopil.evaluate.protocol import fresh_starts, player, starts_from, train_starts

ENV_ID = "scopil/MarbleMaze-Simple-v0"
ENV = compile_env(ENV_ID)
SAC = ALGORITHMS["sac"]
LEARNER = SAC.init(
    jax.random.key(3), discrete_spaces(ENV.observation_space, ENV.action_space), SAC.config(hidden=(8,))
)


def by_hand(start, choose) -> dict[str, list]:
    """The same game through Gymnasium, one step at a time."""
    env = gym.make(ENV_ID)
    obs, info = env.reset(options={"start": start})
    seen = {"obs": [obs], "action": [], "reward": [], "cost": [info["cost"]], "circle": [info["cost_circle"]]}
    ended = False
    while not ended:
        seen["action"].append(choose(obs, len(seen["action"])))
        obs, reward, terminated, truncated, info = env.step(seen["action"][-1])
        for name, value in zip(
            ("obs", "reward", "cost", "circle"), (obs, reward, info["cost"], info["cost_circle"])
        ):
            seen[name].append(value)
        ended = terminated or truncated
    return seen | {"terminated": terminated, "truncated": truncated}


def test_a_greedy_game_is_the_game_played_by_hand():
    starts = np.array([(-100.0, 50.0), (60.0, -120.0)], np.float32)
    games = player(ENV, SAC, "greedy")(LEARNER, first_states(ENV, starts), jax.random.key(0))
    net = SAC.numpy_logits(LEARNER)
    for start, game in zip(starts, games):
        hand = by_hand(start, lambda obs, _: int(net(obs).argmax()))
        np.testing.assert_array_equal(game.actions, hand["action"])
        np.testing.assert_allclose(game.observations, hand["obs"], atol=1e-6)
        np.testing.assert_allclose(game.rewards, hand["reward"], atol=1e-6)
        np.testing.assert_array_equal(game.info["cost"], np.array(hand["cost"]))
        np.testing.assert_array_equal(game.info["cost_circle"], np.array(hand["circle"]))
        assert (game.terminated, game.truncated) == (hand["terminated"], hand["truncated"])
        assert len(game.observations) == game.steps + 1 == len(game.info["position"])


def test_sampled_games_follow_the_seed_and_the_policys_probabilities():
    play = player(ENV, SAC, "sampled")
    first = fresh_starts(ENV, 40)
    games = [play(LEARNER, first, jax.random.key(seed)) for seed in (0, 0, 1)]
    assert [g.actions.tolist() for g in games[0]] == [g.actions.tolist() for g in games[1]]
    assert [g.actions.tolist() for g in games[0]] != [g.actions.tolist() for g in games[2]]
    logits = np.concatenate([SAC.numpy_logits(LEARNER)(g.observations[:-1]) for g in games[0]]).astype(
        np.float64
    )
    actions = np.concatenate([g.actions for g in games[0]])
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    expected, variance = p.sum(axis=0), (p * (1 - p)).sum(axis=0)
    z = (np.bincount(actions, minlength=9) - expected) / np.sqrt(variance)
    assert np.abs(z).max() < 4.0  # of nine near-normal numbers


def test_the_player_is_compiled_once_for_an_environment():
    assert player(ENV, SAC, "greedy") is player(ENV, SAC, "greedy")
    assert player(ENV, SAC, "greedy") is not player(ENV, SAC, "sampled")


def test_a_replayed_demonstration_is_the_demonstration():
    demos = marble_games(steps=9, games=3)
    for game, episode in zip(replay(ENV, demos), demos):
        np.testing.assert_array_equal(game.actions, episode.actions)
        np.testing.assert_allclose(game.observations, episode.observations, atol=1e-6)
        assert not game.terminated or episode.terminated


# --- where games start -------------------------------------------------------------------------------------------


def positions(first) -> np.ndarray:
    return np.asarray(first.inner.position)


def test_train_starts_are_the_demonstrated_ones_and_cycle():
    demos = marble_games(steps=3, games=3)
    np.testing.assert_array_equal(positions(starts_from("train", ENV, demos)), demos.starts)
    np.testing.assert_array_equal(
        positions(starts_from("train", ENV, demos, 5)), np.asarray(demos.starts)[[0, 1, 2, 0, 1]]
    )
    np.testing.assert_array_equal(
        positions(starts_from("train", ENV, demos, 2)), np.asarray(demos.starts)[:2]
    )


def test_test_starts_are_the_same_for_everybody():
    a, b = positions(starts_from("test", ENV, None)), positions(starts_from("test", ENV, None))
    assert a.shape == (40, 2)
    np.testing.assert_array_equal(a, b)
    assert positions(starts_from("test", ENV, None, 7)).shape == (7, 2)


def test_starts_from_files(tmp_path):
    demos = marble_games(steps=3, games=3)
    store.write(demos, tmp_path / "d.npz")
    np.testing.assert_array_equal(positions(starts_from(str(tmp_path / "d.npz"), ENV, None)), demos.starts)
    np.save(tmp_path / "s.npy", np.array([(1.0, 2.0), (3.0, 4.0)]))
    np.testing.assert_array_equal(
        positions(starts_from(str(tmp_path / "s.npy"), ENV, None)), [(1, 2), (3, 4)]
    )


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(2), r"shape \(2,\); want \(games, coordinates\)"),
        (np.zeros((0, 2)), r"shape \(0, 2\)"),
        (np.zeros((3, 3)), "not on the tray"),
        (np.array([(500.0, 0.0)]), "not on the tray"),
        (np.array([("a", "b")]), "not an array of numbers"),
        (np.array([(object(), 1)], dtype=object), "cannot read starts"),  # a pickle, refused
    ],
)
def test_bad_starts_are_refused(array, message, tmp_path):
    np.save(tmp_path / "s.npy", array, allow_pickle=True)
    with pytest.raises(EnvError, match=message):
        starts_from(str(tmp_path / "s.npy"), ENV, None)


def test_broken_start_files_are_refused(tmp_path):
    for name, data in (("empty.npy", b""), ("junk.npy", b"junk")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(EnvError, match=f"cannot read starts from .*{name}"):
            starts_from(str(tmp_path / name), ENV, None)
    with pytest.raises(EnvError, match="No such file"):
        starts_from(str(tmp_path / "none.npy"), ENV, None)
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    with pytest.raises(EnvError, match="not an array of numbers"):
        starts_from(str(tmp_path / "a.npy"), ENV, None)


def test_starts_that_do_not_exist_are_refused():
    with pytest.raises(DatasetError, match="name a file, or use test"):
        starts_from("train", ENV, None)
    without = small_set(episodes=tuple(replaced(e, start=None) for e in small_set()))
    with pytest.raises(DatasetError, match="does not record its starts"):
        train_starts(ENV, without)
    with pytest.raises(DatasetError, match="no demonstrations 'trian'"):
        starts_from("trian", ENV, None)
    with pytest.raises(ConfigError, match="0 games; want at least 1"):
        starts_from("test", ENV, None, 0)


def test_the_shipped_set_of_an_environment():
    assert protocol.demos_for("CartPole-v1") is None
    assert protocol.demos_for(None) is None
    shipped = protocol.demos_for(ENV_ID)
    assert shipped is not None
    assert shipped.env_id == ENV_ID
