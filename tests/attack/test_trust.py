"""Whose code a run folder may run: copies that this user's key signed, and nothing else without --trust-env.

The run's environment and rules are files with a module beside them. Code from others writes a file when it runs.
"""

import json
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import scopil
from runs import untrained_run
from scopil.cli import main
from scopil.errors import ScopilError
from scopil.train.run import Run

HELPERS = "LIMIT = -1.0\n"
ENV = """
import gymnasium as gym
import numpy as np
from cart_helpers import LIMIT

class Cart(gym.Env):
    observation_space = gym.spaces.Box(-2, 2, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.ones(1, np.float32), LIMIT, False, False, {}

    def render(self):
        return np.zeros((8, 8, 3), np.uint8)
"""
RULES = """
from cart_helpers import LIMIT

def fast(obs, action, next_obs):
    return next_obs[0] > LIMIT
"""
STEPS = 3
MAKE = f"cart_env.py:Cart(max_episode_steps={STEPS})"
NAMES = ("cart_env.py", "cart_rules.py", "cart_helpers.py")


def write_code(folder: Path, first: str = "") -> None:
    for name, text in zip(NAMES, (ENV, RULES, HELPERS)):
        (folder / name).write_text(first + text)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Iterator[Path]:
    """A folder with the code and with the run `mine` on it. It is never changed."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        patch.chdir(folder)
        write_code(folder)
        untrained_run(folder / "mine", env=MAKE, rules="cart_rules.py")
    yield folder
    for name in [name for name in sys.modules if name.startswith("cart_")]:
        del sys.modules[name]


@dataclass
class Place:
    """What one user has: a home, a current folder and the run."""

    here: Path
    run: Path
    patch: pytest.MonkeyPatch

    @property
    def ran(self) -> bool:
        return (self.here / "ran").exists()

    def evil(self) -> str:
        """The first line of code that must not run."""
        return f"open({str(self.here / 'ran')!r}, 'w').close()\n"

    def as_user(self, name: str) -> None:
        self.patch.setenv("XDG_CONFIG_HOME", str(self.here / name))

    def change(self, file: str, old: str, new: str) -> None:
        path = self.run / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


@pytest.fixture
def place(made, tmp_path, monkeypatch) -> Place:
    """A copy of the folder, for the user that made the run."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    found = Place(tmp_path, tmp_path / "mine", monkeypatch)
    found.as_user("config")
    return found


def nothing(place: Place) -> None:
    pass


def moved(place: Place) -> None:
    (place.here / "elsewhere (old)").mkdir()
    place.run = place.run.rename(place.here / "elsewhere (old)" / "renamed")
    for name in NAMES:
        (place.here / name).unlink()


def copied_to_another_user(place: Place) -> None:
    place.as_user("another")
    untrained_run(place.here / "theirs", env=MAKE, rules="cart_rules.py")  # this user has a key too


def copied_to_a_user_without_a_key(place: Place) -> None:
    place.as_user("another")


def a_byte_of_the_rules_changed(place: Place) -> None:
    place.change("code/rules/cart_rules.py", "> LIMIT", "< LIMIT")


def a_byte_of_a_module_changed(place: Place) -> None:
    place.change("code/env/cart_helpers.py", "-1.0", "-2.0")


def a_file_missing(place: Place) -> None:
    (place.run / "code/rules/cart_helpers.py").unlink()


def the_original_changed(place: Place) -> None:
    (place.here / "cart_rules.py").write_text(place.evil() + RULES.replace("> LIMIT", "< LIMIT"))


def foreign_with_the_same_names(place: Place) -> None:
    """Made by another user, whose files have the names of this user's files."""
    place.as_user("another")
    write_code(place.here, "# another user's\n")
    place.run = untrained_run(place.here / "theirs", env=MAKE, rules="cart_rules.py").folder
    for name in ("env/cart_env.py", "rules/cart_rules.py"):
        place.change(f"code/{name}", "# another", f"{place.evil()}# another")
    write_code(place.here)
    place.as_user("config")


def own_signature_on_other_code(place: Place) -> None:
    """run.json has this user's signature and the digests of other code."""
    note = json.loads((place.run / "run.json").read_text())
    foreign_with_the_same_names(place)
    other = json.loads((place.run / "run.json").read_text())
    (place.run / "run.json").write_text(json.dumps(other | {"signature": note["signature"]}))


def other_rules_named(place: Place) -> None:
    (place.here / "evil.py").write_text(place.evil() + RULES)
    place.change("run.json", '"rules": "cart_rules.py"', '"rules": "evil.py"')


def code_added(place: Place) -> None:
    """Modules and bytecode beside the copies, which the copies would import first."""
    for name in ("numpy.py", "gymnasium.py", "sitecustomize.py"):
        (place.run / "code" / "env" / name).write_text(place.evil())
    cache = place.run / "code" / "env" / "__pycache__"
    cache.mkdir()
    source = place.here / "evil.py"
    source.write_text(place.evil())
    import py_compile

    tag = sys.implementation.cache_tag
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), str(cache / f"cart_helpers.{tag}.pyc"), invalidation_mode=unchecked)


UNSIGNED = "your key did not sign it"
CASES: list[tuple[Callable[[Place], None], str | None]] = [  # → the refusal; None: the run's rules count
    (nothing, None),
    (moved, None),
    (copied_to_another_user, UNSIGNED),
    (copied_to_a_user_without_a_key, UNSIGNED),
    (a_byte_of_the_rules_changed, "code/rules/cart_rules.py has changed"),
    (a_byte_of_a_module_changed, "code/env/cart_helpers.py has changed"),
    (a_file_missing, "code/rules/cart_helpers.py is missing"),
    (the_original_changed, None),
    (foreign_with_the_same_names, UNSIGNED),
    (own_signature_on_other_code, UNSIGNED),
    (other_rules_named, UNSIGNED),
    (code_added, None),
]


@pytest.mark.parametrize(("case", "refused"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_whose_code_runs(case, refused, place, capsys):
    case(place)
    argv = ["evaluate", str(place.run), "--episodes", "1", "--out", "measured.json"]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        code = main(argv)
        if refused is None:
            assert code == 0
            assert json.loads(Path("measured.json").read_text())["mean"]["violations"] == STEPS
            assert scopil.load(place.run).evaluate(episodes=1)["violations/fast"] == STEPS
        else:
            assert code == 2
            line = capsys.readouterr().err
            assert refused in line
            assert "--trust-env" in line or "missing" in line
            with pytest.raises(ScopilError, match=refused):
                scopil.load(place.run).evaluate(episodes=1)
    assert not place.ran
    assert any("cart_rules.py differs from the copy" in str(w.message) for w in warned) == (
        case is the_original_changed
    )


@pytest.mark.parametrize(
    ("case", "violations"), [(copied_to_another_user, STEPS), (a_byte_of_the_rules_changed, 0), (moved, STEPS)]
)
def test_trust_accepts_the_code_in_the_folder(case, violations, place):
    case(place)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert scopil.load(place.run, trust_env=True).evaluate(episodes=1)["violations"] == violations


@pytest.mark.parametrize("verb", ["report", "render", "resume", "export"])
def test_no_command_runs_foreign_code(verb, place, capsys):
    foreign_with_the_same_names(place)
    extra = {"render": ["--out", "film.gif"], "report": ["--out", "seen"], "export": ["--onnx", "p.onnx"]}
    if verb in ("resume", "export"):  # a finished run needs no environment
        (place.run / "policy.safetensors").rename(place.here / "policy.safetensors")
    assert main([verb, str(place.run), *extra.get(verb, [])]) == 2
    assert not place.ran


def test_every_command_counts_by_the_rules_of_a_run(place, capsys):
    moved(place)
    place.patch.setenv("COLUMNS", "300")
    assert main(["report", str(place.run), "--out", "seen"]) == 0
    assert main(["render", str(place.run), "--out", "film.gif"]) == 0
    assert capsys.readouterr().out.count("Violations (fast)") == 2
    (result,) = json.loads(Path("seen/results.json").read_text())["runs"]
    assert result["means"]["greedy/unseen"]["violations"] == STEPS


def test_a_run_without_rules_has_no_count(place, capsys):
    """Beside a run with rules, and alone: never 0."""
    untrained_run(place.here / "ruleless", env=MAKE)
    assert main(["report", "mine", "ruleless", "--out", "seen"]) == 0
    assert "rules not known: SAC, rules=None, greedy, unseen starts" in " ".join(capsys.readouterr().out.split())
    means = {
        r["method"]: r["means"]["greedy/unseen"] for r in json.loads(Path("seen/results.json").read_text())["runs"]
    }
    assert means["SAC, rules=cart_rules.py"]["violations"] == STEPS
    assert "violations" not in means["SAC, rules=None"]
    for page in ("report.md", "report.html"):
        text = Path("seen", page).read_text()
        assert "rules not known: SAC, rules=None" in text
        assert text.count("rules not known") > 2  # also in the cells of the first table
    (line,) = [
        line
        for line in Path("seen/results.csv").read_text().splitlines()
        if "rules=None" in line and "greedy,unseen" in line
    ]
    assert line.split(",greedy,unseen,")[1].split(",")[1] == ""  # violating episodes
    assert main(["evaluate", "ruleless", "--episodes", "1"]) == 0
    assert main(["render", "ruleless", "--out", "film.gif"]) == 0
    assert capsys.readouterr().out.count("rules not known: SAC") == 2
    assert scopil.load("ruleless").evaluate(episodes=1).keys() == {"reward", "steps"}


@pytest.mark.filterwarnings("ignore:.* differs from the copy")
def test_runs_with_different_rules_are_compared_by_given_ones(place, capsys):
    (place.here / "cart_rules.py").write_text(RULES.replace("> LIMIT", "< LIMIT"))
    untrained_run(place.here / "other", env=MAKE, rules="cart_rules.py", seed=1)
    assert main(["report", "mine", "other", "--out", "seen"]) == 2
    assert "mine and other count violations by different rules" in capsys.readouterr().err
    assert main(["report", "mine", "other", "--out", "seen", "--rules", "cart_rules.py"]) == 0
    found = json.loads(Path("seen/results.json").read_text())["runs"]
    assert [run["means"]["greedy/unseen"]["violations"] for run in found] == [0, 0]


def test_an_extended_run_stays_signed(place):
    Run.open(place.run).extended(2000)
    assert Run.open(place.run).spec.steps == 2000
    assert Run.open(place.run).code.own  # pyright: ignore[reportOptionalMemberAccess]
    assert Run.open(place.run).command("evaluate") == f"scopil evaluate {place.run}"


@pytest.mark.filterwarnings("ignore:.* differs from the copy")
def test_code_of_two_runs_is_kept_apart(place):
    """Equal code is loaded once; a changed module beside the code is another module for the second run."""
    first, again = Run.open(place.run), Run.open(shutil.copytree(place.run, place.here / "again"))
    assert first.env_name() == again.env_name()
    (place.here / "cart_helpers.py").write_text("LIMIT = 1.0\n")
    second = untrained_run(place.here / "second", env=MAKE, rules="cart_rules.py").folder
    found = [scopil.load(path).evaluate(episodes=1) for path in (place.run, second, place.run)]
    assert [m["violations"] for m in found] == [STEPS, 0, STEPS]
    assert [m["reward"] for m in found] == [-STEPS, STEPS, -STEPS]


def test_a_key_that_others_can_read_signs_nothing(place):
    (place.here / "config" / "scopil" / "key").chmod(0o644)
    with pytest.warns(UserWarning, match="others cannot read"):
        assert not Run.open(place.run).code.own  # pyright: ignore[reportOptionalMemberAccess]
