"""The report of a task of the user's own: films, success, and a demonstrator that is a program."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from runs import untrained_run
from scopil.cli import main
from scopil.data.record import play_expert
from scopil.envs.gym_env import open_env
from scopil.errors import ConfigError
from scopil.eval.starts import unseen_starts
from scopil_bench import results
from scopil_bench.studies.rules import ENVS
from scopil_bench.studies.study_file import study_from

FILE = '''
import gymnasium as gym, numpy as np

class Line(gym.Env):
    """From a place below 1 to 3, in steps of 1 or, faster, of 2."""
    observation_space = gym.spaces.Box(-9, 9, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"]}
    fails = False
    def __init__(self, render_mode=None, fails=False):
        self.render_mode, self.fails = render_mode, fails
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(0, 1)
        return np.array([self.x], np.float32), {}
    def step(self, action):
        self.x += 1 + action
        return np.array([self.x], np.float32), -1.0, self.x > 3, False, {"is_success": self.x < 4}
    def render(self):
        if self.fails:
            raise RuntimeError("no <screen>")
        frame = np.zeros((300, 600, 3), np.uint8)
        frame[:, : int(100 * self.x)] = 255
        return frame

def act(obs):
    return 0

def fast(obs, action, next_obs):
    return next_obs[0] - obs[0] > 1.5
'''


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("line.py").write_text(FILE)
    yield tmp_path
    for name in [name for name in sys.modules if name.split("@")[0] in ("line", "other")]:
        del sys.modules[name]


def page_of(env: str) -> tuple[str, str]:
    untrained_run(Path("run"), "bc", env=env, rules="line.py:fast", demos="demos.npz", steps=10)
    assert main(["report", "run"]) == 0
    return Path("run/report.html").read_text(), Path("run/report.md").read_text()


def recorded(env: str) -> str:
    argv = ["demos", "record", "--env", env, "--policy", "line.py:act", "--episodes", "3", "--out", "demos.npz"]
    assert main(argv) == 0
    return env


def test_a_single_run_has_a_film_a_conclusion_shares_and_intervals():
    html, text = page_of(recorded("line.py:Line"))
    (film,) = re.findall(r'<source media="\(prefers-reduced-motion: reduce\)".*?data:image/gif;base64,', html)
    assert "data:image/png" in film  # for those who want no motion
    assert "img-src data:" in html
    assert re.search(r"BC (kept|did not keep) the rules.*violations per episode, the demonstrator 0", text)
    head, _, row, apart = [line for line in text.splitlines() if line.startswith("|")][:4]
    assert "Episodes with a violation, unseen starts | Success, unseen starts" in head
    assert "Violating" not in text
    assert len(re.findall(r"\[[^\]]+, [^\]]+\]", row)) == 4  # an interval for each figure
    assert apart.startswith("| line.py:Line | Demonstrator (3 episodes), other starts |  | 0.000 | 0 % |")


def test_an_environment_that_fails_to_render_is_reported_without_pictures():
    html, _ = page_of(recorded("line.py:Line(fails=True)"))
    assert "No pictures of episodes: RuntimeError: no &lt;screen&gt;" in html
    assert "image/gif" not in html


def study(**changes):
    plan = {"env": "line.py:Line", "rules": "line.py:fast", "methods": ["bc"], "demonstrator": "line.py:act"}
    return study_from(plan | changes, name="mine")


def test_a_demonstrator_of_a_study_file_plays_the_unseen_starts():
    made = study(episodes=7)
    found = results.demonstrator_measures(made, "mine")
    (name,) = found  # no demonstrations
    assert name == "Demonstrator, unseen starts"
    assert (found[name]["violations"], found[name]["violating"], found[name]["success"]) == (0.0, 0.0, 1.0)
    env = open_env("line.py:Line")
    starts = unseen_starts(env, 7)
    played = play_expert(env, "line.py:Line", made.tasks["mine"].demonstrator, starts)
    assert len({float(e.observations[0, 0]) for e in played}) == 7
    assert found[name]["reward"] == np.mean([e.total_reward for e in played])


def test_a_demonstrator_plays_the_starts_of_a_compiled_environment_too():
    env = open_env(ENVS["speed"])
    starts, asked = unseen_starts(env, 3), []
    expert = lambda obs: asked.append(obs) or env.action_space.sample()  # noqa: E731
    played = play_expert(env, ENVS["speed"], expert, starts)
    for i, episode in enumerate(played):
        np.testing.assert_array_equal(episode.observations[0], np.asarray(starts.obs[i]))  # pyright: ignore[reportAttributeAccessIssue]
        assert episode.terminated != episode.truncated
        assert episode.info["cost"].shape == (len(episode) + 1,)
    assert (len(played), len(asked)) == (3, sum(map(len, played)))


def test_a_demonstrator_that_is_none_is_refused_before_training():
    with pytest.raises(ConfigError, match=r"line\.py has no 'walk'; it has"):
        study(demonstrator="line.py:walk")
    Path("other.py").write_text("number = 3\n")
    with pytest.raises(ConfigError, match=r"demonstrator = 'other.py:number' is a int; want a function act\(obs\)"):
        study(demonstrator="other.py:number")
