"""`scopil render` draws the requested episode."""

from itertools import islice
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from samples import marble_episodes, small_set
from scopil.cli import main
from scopil.data import storage
from scopil.data.dataset import Demonstrations
from scopil.envs.naming import IDS
from scopil_bench.cli.render import random_episode


@pytest.fixture(scope="module")
def marble() -> Demonstrations:
    return marble_episodes(steps=4)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(argv: list[str], capsys) -> str:
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def test_a_demonstrated_episode_is_drawn_state_by_state(here, marble, capsys):
    storage.write(marble, "mine.npz")
    assert main(["render", "--demos", "mine.npz", "--episode", "1", "--out", "pics/episode.png"]) == 0
    assert capsys.readouterr().out == "pics/episode.png: 4 steps\n"
    episode = marble.episodes[1]
    env = gym.make(str(marble.env_id), render_mode="rgb_array")
    env.reset(options={"start": episode.start})
    for action in episode.actions:
        env.step(action)
    pillow = pytest.importorskip("PIL.Image")
    np.testing.assert_array_equal(pillow.open(here / "pics/episode.png").convert("RGB"), env.render())
    assert main(["render", "--demos", "mine.npz", "--out", "episode.gif"]) == 0
    with pillow.open(here / "episode.gif") as image:
        assert image.n_frames == 5


def test_a_random_episode_repeats_from_its_seed():
    pytest.importorskip("pygame")
    a, b, c = (list(islice(random_episode("CartPole-v1", seed), 6)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a[0], c[0])
    assert not np.array_equal(a[0], a[-1])


def test_a_random_episode_is_played_to_its_end(here, monkeypatch, capsys):
    monkeypatch.setitem(IDS, "simple", "CartPole-v1")  # quicker to draw
    pytest.importorskip("pygame")
    assert main(["render", "--random", "--out", "a.png"]) == 0
    env = gym.make("CartPole-v1")
    env.reset(seed=0)
    env.action_space.seed(0)
    steps = 1
    while not env.step(env.action_space.sample())[2]:
        steps += 1
    assert capsys.readouterr().out == f"a.png: {steps} steps\n"


def test_render_refuses(capsys, marble, here):
    storage.write(marble, "mine.npz")
    storage.write(small_set(), "other.npz")
    for options, message in (
        (["--random", "--out", "a.bmp"], "ends in .mp4, .gif or .png"),
        (["--demos", "mine.npz", "--episode", "3"], "episodes 0 … 2"),
        (["--demos", "mine.npz", "--episode", "-1"], "--episode -1"),
        (["--random", "--setting", "easy"], "'easy'"),
        (["--setting", "easy"], "'easy'"),
        (["--demos", "mine.npz", "--random"], "remove --random and --setting"),
        (["--demos", "other.npz"], "cannot be drawn"),
    ):
        assert message in refused(["render", "--out", "a.png", *options], capsys)
    assert not list(here.glob("a.*"))
