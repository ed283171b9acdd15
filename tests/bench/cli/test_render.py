"""`scopil render` draws the requested episode."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from samples import marble_episodes, small_set
from scopil.cli import main
from scopil.data import storage
from scopil.data.dataset import Demonstrations


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


def test_render_refuses(capsys, marble, here):
    storage.write(marble, "mine.npz")
    storage.write(small_set(), "other.npz")
    for options, message in (
        (["--demos", "mine.npz", "--out", "a.bmp"], "ends in .mp4, .gif or .png"),
        (["--demos", "mine.npz", "--episode", "3"], "episodes 0 … 2"),
        (["--demos", "mine.npz", "--episode", "-1"], "--episode -1"),
        ([], "give a run"),
        (["runs/x", "--demos", "mine.npz"], "want one of them"),
        (["--demos", "other.npz"], "cannot be drawn"),
    ):
        assert message in refused(["render", "--out", "a.png", *options], capsys)
    assert not list(here.glob("a.*"))
