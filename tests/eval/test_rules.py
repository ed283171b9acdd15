"""User-defined rules: their sources, their arguments, and the violations they count."""

import sys

import gymnasium as gym
import numpy as np
import pytest

from hosts import Walk
from scopil.data.dataset import Demonstrations, Episode
from scopil.envs.gym_env import HostEnv, compile_env, open_env
from scopil.errors import ConfigError
from scopil.eval.episodes import measure_demonstrations
from scopil.eval.measures import measure_all
from scopil.eval.rules import Rules, by_own_rules, load_rules, name_of_rules, with_rules

FILE = '''
import numpy as np

LIMIT = 1.0

def far(obs, action, next_obs):
    """Further than one from the middle."""
    return abs(next_obs[0]) > LIMIT

def right(obs, action, next_obs):
    return action == 1

def _helper(obs, action, next_obs): ...
def other(a): ...
'''


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def episode() -> Episode:
    positions = np.array([0.0, 2.0, 0.5, -3.0], np.float32)
    info = {"cost": np.ones(4), "crashed": np.array([1.0, 0, 1, 1]), "position": positions}
    return Episode(
        observations=np.stack([positions, np.arange(4, dtype=np.float32)], 1),
        actions=np.array([1, 0, 0]),
        rewards=np.zeros(3, np.float32),
        info=info,
    )


def test_a_file_of_functions_is_a_set_of_rules(here, episode):
    (here / "a_few_rules.py").write_text(FILE + "distant = far\n")  # one function under two names is one rule
    rules = load_rules("a_few_rules.py")
    assert list(rules.by_name) == ["far", "right"]
    assert rules.about == {"far": "Further than one from the middle"}
    found = measure_all([episode], rules=rules)[0]
    assert (found["violations/far"], found["violations/right"], found["violations"]) == (2, 1, 3)
    assert found["avoidable"] == 3  # the initial state counts as lawful
    for name in ("a_few_rules.py:far", "a_few_rules:far"):
        assert list(load_rules(name).by_name) == ["far"]
        assert load_rules(name).source == name


def test_a_file_may_list_its_rules_with_functions_and_keys_of_info(here, episode):
    (here / "listed_rules.py").write_text(
        FILE + "RULES = {'off the road': far, 'has crashed': 'crashed', 'never': 'cost_never'}\n"
    )
    rules = load_rules("listed_rules.py")
    with pytest.raises(ConfigError, match=r"'never' counts info\['cost_never'\].*they have cost, crashed, position"):
        with_rules([episode], rules)
    known = rules.known_to([episode])
    assert known is not None
    found = measure_all([episode], rules=known)[0]
    assert found["violations/off the road"] == 2
    assert found["violations/has crashed"] == 3  # the initial state reports it too
    assert found["avoidable"] == 4


def test_rules_change_their_digest_when_their_file_changes(here):
    (here / "changing.py").write_text(FILE)
    first = load_rules("changing.py").digest
    assert load_rules("changing.py").digest == first
    (here / "changing.py").write_text(FILE.replace("1.0", "2.0"))
    assert load_rules("changing.py").digest != first
    assert Rules.of({"a": "x"}).digest != Rules.of({"a": "y"}).digest


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("absent.py", None, "no file absent.py in /"),
        ("absent_module:far", None, r"cannot import 'absent_module:far'.*looked in /"),
        ("broken.py", "1/0", "ZeroDivisionError"),
        ("wrong.py", "def (", "SyntaxError"),
        ("none.py", "x = 1", "no rules"),
        ("few.py:other", "def one(obs, action, next_obs): ...", "other"),
        ("odd.py", "RULES = {'a/b': 'cost'}", "a/b"),
        ("number.py", "RULES = {'a': 3}", "rule 'a' is a int"),
        ("text.py:x", "x = 4.5", "float"),
    ],
)
def test_other_objects_are_refused(here, name, text, message):
    if text is not None:
        (here / name.partition(":")[0]).write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_rules(name)


def near(obs, action, next_obs):
    return next_obs[0] < 1


def another(name):
    def rule(obs, action, next_obs):
        return {name: 1} if name else 1

    return rule


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([lambda *_: 0, lambda *_: 1], "several rules"),
        ([near, lambda *_: 1], "several rules"),
        ({"near": near, "": near}, "several rules"),
        ([another(""), another("")], "two rules are called 'rule'"),
        (["crashed", "crashed"], "two rules are called 'crashed'"),
        ({"one": another("far"), "other": another("far")}, "two rules are called 'far'"),
    ],
)
def test_rules_with_equal_names_are_refused(rules, message, episode):
    with pytest.raises(ConfigError, match=message):
        with_rules([episode], rules)


def test_a_file_poses_as_no_package_and_finds_its_neighbours(here):
    (here / "neighbour_of_rules.py").write_text("LIMIT = 5\n")
    (here / "json.py").write_text(
        "from neighbour_of_rules import LIMIT\ndef high(obs, action, next_obs): return next_obs[0] > LIMIT\n"
    )
    import json

    assert list(load_rules("json.py").by_name) == ["high"]
    assert sys.modules["json"] is json
    assert str(here) not in sys.path


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda obs, action, next_obs: obs[7], "failed at step 0: IndexError"),
        (lambda obs, action, next_obs: "yes", "failed at step 0: ValueError"),
        (lambda obs, action, next_obs: np.nan, "'cost' is not a finite number at step 0"),
        ({"far": lambda obs, action, next_obs: np.inf}, "'far' is not a finite number at step 0"),
    ],
)
def test_a_rule_that_fails_says_where(episode, rule, message):
    with pytest.raises(ConfigError, match=message):
        with_rules([episode], rule)


def test_rules_are_found_again_by_name():
    for name in ("my_rules.py", "scopil_bench.studies.external.lunar_lander:rules"):
        assert name_of_rules(name if name.endswith(".py") else Rules.of(name)) == name
    assert name_of_rules(measure_all) == "scopil.eval.measures:measure_all"
    assert name_of_rules(lambda obs, action, next_obs: 0) is None
    assert name_of_rules(None) is None


# --- observations as the environment gives them -------------------------------------------------------------------


class Sparse(Walk):
    """Sets the key only while the rule is broken."""

    def info(self):
        return {"far": True} if abs(self.x) > 3 else {}


def test_a_step_without_the_key_keeps_the_rule_if_random_play_has_the_key():
    kept = Episode(observations=np.zeros((3, 2)), actions=np.zeros(2, int))
    for env in (HostEnv(Sparse(), Sparse), HostEnv(Sparse())):
        assert measure_all([kept], env, {"far away": "far"})[0]["violations/far away"] == 0
        with pytest.raises(ConfigError, match=r"info\['fra'\], which no step has.*they have far. Correct the name"):
            with_rules([kept], {"far away": "fra"}, env)
    with pytest.raises(ConfigError, match="they have none"):
        with_rules([kept], {"far away": "far"})
    assert measure_all([kept], None, Rules({"far away": "far"}, checked=True))[0]["violations"] == 0


class Signs(Walk):
    """Observes by name, and brings its rules."""

    observation_space = gym.spaces.Dict(  # pyright: ignore[reportAssignmentType]
        {"where": gym.spaces.Box(-np.inf, np.inf, (2,), np.float32), "side": gym.spaces.Discrete(2)}
    )
    rules = {  # noqa: RUF012
        "left": lambda obs, action, next_obs: next_obs["side"] == 0,
        "late": lambda obs, action, next_obs: next_obs["where"][1] > 2,
    }

    def see(self):
        return {"where": super().see(), "side": int(self.x > 0)}


def test_rules_see_what_the_environment_shows():
    env = HostEnv(Signs(), Signs)
    rows = np.stack(
        [env.spaces.row({"where": np.array([x, t]), "side": int(x > 0)}) for t, x in enumerate([1, -1, 2, -3])]
    )
    played = Episode(observations=rows, actions=np.zeros(3, int), info={"cost": np.ones(4)})
    judged = by_own_rules(env, [played])
    found = measure_all(judged, env)[0]
    assert (found["violations/left"], found["violations/late"], found["violations"]) == (2, 1, 3)
    own = with_rules([played], {"right": lambda obs, action, next_obs: next_obs["side"]}, env)
    assert measure_all(own)[0]["violations"] == measure_all(own)[0]["violations/right"] == 1


def test_demonstrations_are_judged_by_the_same_rules():
    env = HostEnv(Walk(), Walk)
    shown = Demonstrations.from_arrays(
        [np.array([[0, 0], [2, 1], [3, 2]], np.float32)], [np.array([1, 1])], [np.array([1.0, 2.0])]
    )
    rules = Rules.of({"far": lambda obs, action, next_obs: next_obs[0] > 2.5, "crashed": "crashed"})
    (found,) = measure_demonstrations(shown, env, rules)
    assert found == {
        **{"reward": 3.0, "steps": 2.0, "violations": 1.0, "frequency": 0.5, "avoidable": 1.0},
        **{"violations/far": 1.0, "frequency/far": 0.5},  # `crashed` was not recorded
    }
    (silent,) = measure_demonstrations(Demonstrations.from_arrays([[[0.0], [1.0]]], [[0]]), None)
    assert silent == {"steps": 1.0}


def test_a_rule_sees_state_numbers_and_all_choices_of_an_action():
    """Of demonstrations and of policies alike: one learns from one-hot rows and joint numbers."""
    cliff = compile_env("tabular/CliffWalking-v0")
    far = {"far": lambda obs, action, next_obs: next_obs[0] > 30}
    rows = np.array([[36], [24], [31]])
    for observations in (rows, cliff.spaces.flatten(rows)):
        episode = Episode(observations=observations, actions=np.array([0, 1]))
        assert measure_all([episode], cliff, far)[0]["violations"] == 1

    class Two(gym.Env):
        observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        action_space = gym.spaces.MultiDiscrete([2, 3])

    both = {"both": lambda obs, action, next_obs: action[0] == 1 and action[1] == 2}
    zeros = np.zeros((3, 1), np.float32)
    for actions in (np.array([5, 4]), np.array([[1, 2], [1, 1]])):
        episode = Episode(observations=zeros, actions=actions)
        assert measure_all([episode], open_env(Two()), both)[0]["violations"] == 1


def test_a_rule_may_return_an_array_of_one_number():
    """As `obs["battery"] < 0.5` is if the part has the shape (1,)."""
    low = Episode(observations=np.array([[1.0], [0.4], [0.7]]), actions=np.zeros(2, np.int64))
    (found,) = with_rules([low], {"drained": lambda obs, action, after: after < 0.5})
    assert found.info["cost_drained"].tolist() == [0.0, 1.0, 0.0]
    with pytest.raises(ConfigError, match="want a function of"):
        with_rules([low], {"two": lambda obs, action, after: np.array([after, after])})
