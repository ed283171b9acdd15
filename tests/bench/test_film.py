"""Films: each state once, and a line below for each rule, red where it was broken."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from runs import untrained_run
from scopil.cli import main
from scopil.data.dataset import Episode
from scopil.envs.gym_env import open_env
from scopil.errors import EnvError
from scopil_bench import film

HEIGHT, WIDTH = 20, 40


class Drawn(gym.Env):
    """Ten steps; draws its clock as a grey. Every observation and every image is the same array."""

    observation_space = gym.spaces.Box(0.0, 10.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    render_mode = "rgb_array"

    def __init__(self):
        self.clock, self.canvas = np.zeros(1, np.float32), np.zeros((HEIGHT, WIDTH, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock[:] = 0
        return self.clock, {"late": 0.0}

    def step(self, action):
        self.clock += 1
        return self.clock, 1.0, bool(self.clock[0] == 10), False, {"late": float(self.clock[0] > 7)}

    def render(self):
        self.canvas[:] = int(self.clock[0])
        return self.canvas


def played(episodes: int = 1) -> tuple[list[film.Shot], list[Episode]]:
    env = Drawn()
    return film.play(env, open_env(env), lambda obs: 1, range(episodes))


def test_every_state_is_seen_and_recorded():
    shots, episodes = played(2)
    assert [(s.episode, s.step) for s in shots] == [(e, t) for e in (0, 1) for t in range(11)]
    assert all((s.picture == s.step).all() for s in shots)
    assert [len(e) for e in episodes] == [10, 10]
    np.testing.assert_array_equal(episodes[0].info["late"], [0] * 8 + [1] * 3)
    np.testing.assert_array_equal(episodes[1].observations[:, 0], range(11))


def test_a_long_film_shows_every_second_state(monkeypatch):
    monkeypatch.setattr(film, "MOST", 12)
    shots, episodes = played(3)
    assert len(shots) <= 13
    assert len({s.step % 2 for s in shots}) == 1
    assert [len(e) for e in episodes] == [10] * 3


def test_a_broken_rule_is_red_on_its_line_and_around_the_picture():
    shots, (episode,) = played()
    judged = Episode(**{**vars(episode), "info": {"cost_late": episode.info["late"], "cost_never": np.zeros(11)}})
    frames = film.with_time_lines(shots, [judged])
    assert {f.shape for f in frames} == {(HEIGHT + 2 * film.ROW, WIDTH, 3)}
    red = [(f == film.BROKEN).all(-1) for f in frames]
    assert [bool(r[0, 0]) for r in red] == [False] * 8 + [True] * 3  # the edge
    line = [r[HEIGHT + film.ROW // 2] for r in red]
    assert not line[7].any()  # not before it happens
    assert line[8].any()
    assert line[10].sum() > line[8].sum()
    assert not red[10][HEIGHT + film.ROW + film.ROW // 2].any()  # the rule that was kept
    assert np.flatnonzero(line[10]).min() > WIDTH * 0.7
    unruled = film.with_time_lines(shots, [episode])
    assert all(frame is shot.picture for frame, shot in zip(unruled, shots))


@pytest.mark.parametrize("error", [None, NotImplementedError(), gym.error.DependencyNotInstalled("no pygame")])
def test_what_cannot_draw_is_refused_before_it_plays(monkeypatch, error):
    def render(self):
        if error is not None:
            raise error

    monkeypatch.setattr(Drawn, "render", render)
    monkeypatch.setattr(Drawn, "step", lambda self, action: pytest.fail("a step was played"))
    with pytest.raises(EnvError, match=r"NoneType|NotImplementedError|no pygame"):
        played()


def test_a_run_is_watched(tmp_path, capsys, monkeypatch):
    pytest.importorskip("pygame")
    pillow = pytest.importorskip("PIL.Image")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("rules.py").write_text("def left(obs, action, next_obs): return next_obs[0] < 0\n")
    untrained_run(tmp_path / "run", env="CartPole-v1")
    assert main(["render", "run", "--out", "a.gif", "--episodes", "2", "--rules", "rules.py"]) == 0
    out = capsys.readouterr().out
    assert "Violations (left)" in out
    frames = int(out.rpartition("a.gif: ")[2].split()[0])
    with pillow.open("a.gif") as image:
        assert image.n_frames == frames
        assert image.size[1] == 400 + film.ROW
    for argv, message in [
        (["run", "--out", "a.avi"], "ends in .mp4, .gif or .png"),
        (["run", "--out", "a.gif", "--episodes", "0"], "--episodes 0; want more than 0"),
        (["run", "--out", "a.gif", "--demos", "x.npz"], "want one of them"),
        (["none", "--out", "a.gif"], "No such file"),
    ]:
        assert main(["render", *argv]) == 2
        assert message in capsys.readouterr().err
