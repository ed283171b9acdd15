"""`scopil demos`: what each command prints and how it ends, for good and for bad input."""

from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from hosts import Walk, registered
from samples import marble_episodes, small_set
from scopil import record
from scopil.cli import main
from scopil.data import storage
from scopil.data.dataset import Demonstrations, Episode
from scopil.data.minari import from_minari, to_minari
from scopil.envs.gym_env import compile_env
from scopil.eval.episodes import replay
from scopil_bench.cli import demo_checks
from scopil_bench.marble_maze import generate as planner


@pytest.fixture(scope="module")
def marble() -> Demonstrations:
    return marble_episodes()


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(capsys) -> str:
    return capsys.readouterr().out


def refused(argv: list[str], capsys) -> str:
    """The one line on stderr."""
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def test_list_prints_what_is_shipped(capsys, here, monkeypatch):
    monkeypatch.setattr(storage, "LIBRARY", here / "library")
    storage.write(small_set((3, 1, 5), env_id="some/Env-v0"), here / "library" / "maze" / "one-v1.npz")
    assert main(["demos", "list"]) == 0
    assert "maze/one-v1         3      9    3.0  some/Env-v0" in printed(capsys)


def test_show_prints_statistics_and_draws_episodes(capsys, marble, here):
    pytest.importorskip("matplotlib")
    storage.write(marble, "mine.npz")
    assert main(["demos", "show", "mine.npz", "--plot", "out/paths.png"]) == 0
    assert (here / "out" / "paths.png").read_bytes().startswith(b"\x89PNG")
    out = printed(capsys)
    steps = np.array([len(e) for e in marble])
    rewards = np.array([e.rewards.astype(float).sum() for e in marble])
    rows = {line.split("  ")[0]: line.split()[-4:] for line in out.splitlines() if "per episode" in line}
    assert rows["steps per episode"] == [f"{f(steps):.2f}" for f in (np.mean, np.std, np.min, np.max)]
    assert rows["reward per episode"] == [f"{f(rewards):.2f}" for f in (np.mean, np.std, np.min, np.max)]
    assert "violations: " in out


def test_show_counts_violations(capsys, marble):
    """On a level tray the ball rests where it is put: three states in the middle of the circle."""
    first = marble.episodes[0]
    cut = {"observations": first.observations[:3], "actions": np.array([0, 0]), "rewards": first.rewards[:2]}
    resting = replace(first, **cut, start=np.array([-50.0, -60.0]))
    storage.write(replace(marble, episodes=(resting,)), "mine.npz")
    assert main(["demos", "show", "mine.npz"]) == 0
    out = printed(capsys)
    for words in ("circle 3", "horizontal 0", "1 in initial states, 2 later; 3 states visited"):
        assert words in out


def test_show_works_for_sets_of_other_environments(capsys):
    storage.write(small_set((3, 1, 5), name="[weird] name"), "mine.npz")
    assert main(["demos", "show", "mine.npz"]) == 0
    out = printed(capsys)
    assert "[weird] name" in out
    assert "not replayed" in out


def test_generate_writes_what_was_played(capsys, marble, monkeypatch, here):
    asked = []

    def fake(setting, seed, episodes, progress):
        asked.append((setting, seed, episodes))
        for i in range(episodes):
            progress(i + 1, episodes)
        return marble

    monkeypatch.setattr(planner, "generate", fake)
    monkeypatch.setattr(demo_checks, "replay_env", lambda *_: None)  # shown above; compiling takes seconds
    argv = ["demos", "generate", "simple", "--seed", "5", "--episodes", "3", "--out", "deep/er/mine.npz"]
    assert main(argv) == 0
    assert asked == [("simple", 5, 3)]
    assert (here / "deep/er/mine.npz").read_bytes() == storage.to_bytes(marble)
    assert "written: deep/er/mine.npz" in printed(capsys)


def test_check_prints_what_it_found(capsys, marble):
    storage.write(marble, "mine.npz")
    assert main(["demos", "check", "mine.npz"]) == 0
    out = printed(capsys)
    for words in ("checksum matches", f"3 with {marble.pairs} pairs", "3 different ones", "replay       equal"):
        assert words in out
    assert "FAIL" not in out


def test_check_takes_plain_arrays_and_minari(capsys):
    np.savez("plain.npz", observations=np.zeros((2, 4, 3)), actions=np.zeros((2, 3), int))
    assert main(["demos", "check", "plain.npz"]) == 0
    out = printed(capsys)
    assert "plain .npz" in out
    assert "1 episodes are copies of others" in out
    to_minari(small_set(), "set-v0")
    assert main(["demos", "check", "minari:set-v0"]) == 0
    assert "Minari dataset" in printed(capsys)


def test_check_prints_what_was_assumed_and_what_is_odd(capsys):
    rng = np.random.default_rng(0)
    slow = rng.normal(size=(2, 1, 2)) + 0.01 * rng.normal(size=(2, 6, 2)).cumsum(axis=1)
    slow[:, -1] += 3.0  # the next episode's first observation
    obs = np.concatenate([slow, np.full((2, 6, 1), 7.0)], axis=-1)
    actions = rng.uniform(-0.9, 0.9, (2, 6, 2))
    actions[:, :3, 0] = 1.0
    np.savez("plain.npz", observations=obs, actions=actions, notes=np.zeros(1))
    assert main(["demos", "check", "plain.npz"]) == 0
    out = printed(capsys)
    # bounds read off the data: of each column the least and the most
    at = np.mean((actions == actions.min((0, 1))) | (actions == actions.max((0, 1))))
    for words in (
        "warn assumed      not used: notes",
        "the last observation of 2 of 2 episodes is not recorded",
        "1 of 3 never change: obs[2]",
        f"{100 * at:.3g} % of components exactly at a bound",
        "in 2 of 2 episodes the last step",
        "0 of 12 pairs are repeated",
    ):
        assert words in out


@pytest.fixture
def tables(here) -> str:
    """A folder with an episode of Pendulum-v1 as a table."""
    (here / "episodes").mkdir()
    (here / "episodes" / "one.csv").write_text("x,y,speed,action\n1,0,0.5,-2\n0,1,0.5,1.5\n")
    return "episodes"


def test_check_asks_an_environment(capsys, tables):
    assert main(["demos", "check", "episodes", "--env", "Pendulum-v1"]) == 0
    out = printed(capsys)
    assert "tables, no checksum" in out
    assert "ok   environment  fits Pendulum-v1" in out
    assert main(["demos", "check", "episodes", "--env", "CartPole-v1"]) == 2
    out, err = capsys.readouterr()
    assert "FAIL environment  episodes: observation space Box" in out
    assert err == "error: episodes: failed: environment.\n"
    assert "environment 'Nowhere-v0'" in refused(["demos", "check", "episodes", "--env", "Nowhere-v0"], capsys)
    storage.write(small_set(), "mine.npz")  # with spaces of its own
    assert main(["demos", "check", "mine.npz", "--env", "CartPole-v1"]) == 2
    assert "FAIL environment  small: action space Discrete(3)" in printed(capsys)


def test_import_takes_tables(capsys, tables):
    assert main(["demos", "import", "episodes", "--env", "Pendulum-v1", "--out", "mine.npz"]) == 0
    assert "assumed: observations are the columns x, y, speed" in printed(capsys)
    demos = storage.read("mine.npz")
    assert (demos.env_id, demos.action_space) == ("Pendulum-v1", gym.spaces.Box(-2.0, 2.0, (1,)))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda data, middle: data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :], "checksum"),
        (lambda data, _: data[:500], "truncated"),
        (lambda *_: b"hello", "not a zip archive"),  # and no advice to unpickle it
    ],
)
def test_check_names_the_failed_check(harm, message, capsys, here):
    storage.write(small_set(), "mine.npz")
    data = (here / "mine.npz").read_bytes()
    (here / "mine.npz").write_bytes(harm(data, len(data) // 2))
    assert message in refused(["demos", "check", "mine.npz"], capsys)


def changed(demos: Demonstrations, **changes) -> Demonstrations:
    return replace(demos, episodes=(demos.episodes[0], replace(demos.episodes[1], **changes)))


def test_check_finds_what_only_a_replay_shows(capsys, marble):
    other_action = marble.episodes[1].actions.copy()
    other_action[0] = (other_action[0] + 1) % 9
    storage.write(changed(marble, actions=other_action), "mine.npz")
    assert main(["demos", "check", "mine.npz"]) == 2
    out, err = capsys.readouterr()
    assert "FAIL replay       episode 1 differs by" in out
    assert err == "error: mine.npz: failed: replay.\n"
    storage.write(changed(marble, start=np.array([500.0, 0.0])), "mine.npz")
    assert main(["demos", "check", "mine.npz"]) == 2
    assert "is not on the tray" in printed(capsys)


def test_a_replay_is_compared_in_rewards_and_ends_too(marble):
    episodes = replay(compile_env(str(marble.env_id)), marble)
    assert demo_checks.compare(marble, episodes).ok
    worse = marble.episodes[1].rewards.copy()
    worse[3] -= 0.01
    ends = "the end of episode 1 differs"
    for change, message in (
        ({"rewards": worse}, "episode 1 differs by 0.01"),
        ({"terminated": True}, ends),
        ({"truncated": True}, ends),
    ):
        found = demo_checks.compare(changed(marble, **change), episodes)
        assert not found.ok
        assert message in found.text
    short = [episodes[0], replace(episodes[1], actions=episodes[1].actions[:-1])]
    assert "episode 1 ends after 11 steps; the set has 12" in demo_checks.compare(changed(marble), short).text


def test_check_compares_the_set_with_its_own_environment_and_with_another(capsys, marble):
    storage.write(small_set(env_id="scopil/MarbleMaze-Simple-v0"), "mine.npz")
    assert main(["demos", "check", "mine.npz"]) == 2
    assert "FAIL spaces       observation_space Box" in printed(capsys)
    storage.write(marble, "mine.npz")
    main(["demos", "check", "mine.npz", "--env", "scopil/MarbleMaze-TwoModes-v0"])
    assert "warn environment" in (out := printed(capsys))
    assert "was recorded in scopil/MarbleMaze-Simple-v0, not in scopil/MarbleMaze-TwoModes-v0" in out


def test_export_and_import_round_trip(capsys, marble, here):
    storage.write(marble, "mine.npz")
    assert main(["demos", "export", "mine.npz", "--minari", "tests/mine-v0"]) == 0
    assert "tests/mine-v0: 3 episodes" in printed(capsys)
    assert main(["demos", "import", "minari:tests/mine-v0", "--out", "back.npz"]) == 0
    assert (here / "back.npz").read_bytes() == (here / "mine.npz").read_bytes()
    assert "exists" in refused(["demos", "export", "mine.npz", "--minari", "tests/mine-v0"], capsys)
    storage.write(replace(marble, name="newer"), "mine.npz")
    assert main(["demos", "export", "mine.npz", "--minari", "tests/mine-v0", "--overwrite"]) == 0
    assert from_minari("tests/mine-v0").name == "newer"


def test_import_seals_plain_arrays_in_the_spaces_of_their_environment(capsys):
    np.savez("plain.npz", observations=np.zeros((1, 3, 4)), actions=np.zeros((1, 2), int))
    assert main(["demos", "import", "plain.npz", "--out", "a.npz"]) == 0
    assert storage.read("a.npz").action_space == gym.spaces.Discrete(1)  # all that the data shows
    argv = ["demos", "import", "plain.npz", "--env", "CartPole-v1", "--name", "poles", "--out", "b.npz"]
    assert main(argv) == 0
    demos = storage.read("b.npz")
    assert (demos.env_id, demos.name, demos.action_space) == ("CartPole-v1", "poles", gym.spaces.Discrete(2))


NAMED = """
import gymnasium as gym, numpy as np

class Named(gym.Env):
    observation_space = gym.spaces.Dict(z=gym.spaces.Box(-1, 1, (2,), np.float32), a=gym.spaces.Discrete(2))
    action_space = gym.spaces.MultiDiscrete([2, 3])

    def __init__(self, far=1.0):
        self.far = far

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.now = 0
        return self.see(), {}

    def see(self):
        return {"z": np.full(2, self.now / 4 * self.far, np.float32), "a": self.now % 2}

    def step(self, action):
        self.now += 1
        return self.see(), 0.0, self.now == 4, False, {}

class Parts(Named):
    observation_space = gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Discrete(5)])

    def see(self):
        return self.now % 2, self.now

def act(obs):
    return np.array([1, 2])
"""


@pytest.mark.filterwarnings("ignore:.*not within the observation space")
def test_import_takes_sets_of_named_observations_and_joint_choices(capsys, here):
    (here / "named.py").write_text(NAMED)
    for env in ("named.py:Named", "named.py:Named(far=9)", "named.py:Parts"):  # 9: it leaves its bounds
        argv = ["demos", "record", "--env", env, "--policy", "named.py:act", "--episodes", "2", "--out"]
        assert main([*argv, "a.npz"]) == 0
        was = storage.read("a.npz")
        anonymous = replace(was, env_id=None, flattened_from=None)
        for given in (was, anonymous):
            storage.write(given, "b.npz")
            assert main(["demos", "import", "b.npz", "--env", env, "--out", "c.npz"]) == 0
            demos = storage.read("c.npz")
            np.testing.assert_array_equal(demos.observations, was.observations)
            assert (demos.env_id, demos.flattened_from) == (env, was.flattened_from)
            assert demos.action_space == gym.spaces.Discrete(6)
    argv = ["demos", "import", "a.npz", "--env", "CartPole-v1", "--out", "c.npz"]
    assert "observations of Tuple" in refused(argv, capsys)


def test_import_keeps_observations_that_are_numbers_of_states(capsys):
    for env in ("FrozenLake-v1", "tabular/CliffWalking-v0(max_episode_steps=5)"):
        record(env, lambda obs: 1, episodes=1).save("a.npz")
        assert main(["demos", "import", "a.npz", "--env", env, "--out", "b.npz"]) == 0
        assert storage.read("b.npz").observation_space == storage.read("a.npz").observation_space


def test_check_tells_that_pictures_are_too_much_for_alignment(capsys, monkeypatch):
    """Their linear model took gigabytes."""
    monkeypatch.setattr(demo_checks, "_random_play", lambda env: pytest.fail("nothing is played for it"))
    rng = np.random.default_rng(0)
    space = gym.spaces.Box(0, 255, (32, 32, 3), np.uint8)
    one = Episode(observations=rng.integers(256, size=(41, 32, 32, 3)), actions=rng.integers(3, size=40))
    spaces = {"observation_space": space, "action_space": gym.spaces.Discrete(3)}
    Demonstrations(episodes=(one, one), **spaces).save("a.npz")
    Shown = type("Shown", (Walk,), spaces)
    with registered(Shown) as env:
        for more in ([], ["--env", env]):
            assert main(["demos", "check", "a.npz", *more]) == 0
            assert "observations of 3,072 numbers" in printed(capsys)


def test_export_and_import_refuse(capsys, here):
    storage.write(small_set(), "mine.npz")
    before = (here / "mine.npz").read_bytes()
    assert "no demonstrations 'none'" in refused(["demos", "export", "none", "--minari", "a-v0"], capsys)
    assert "want (namespace/)name-v0" in refused(["demos", "export", "mine.npz", "--minari", "a"], capsys)
    for source, env, message in (
        ("minari:none-v0", [], "no Minari dataset 'none-v0'"),
        ("mine.npz", ["--env", "Nowhere-v0"], "environment 'Nowhere-v0'"),
        ("mine.npz", ["--env", "Pendulum-v1"], "shape (4, 4); want (T, 3)"),
    ):
        assert message in refused(["demos", "import", source, *env, "--out", "mine.npz"], capsys)
    assert (here / "mine.npz").read_bytes() == before
