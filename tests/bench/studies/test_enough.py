"""How many demonstrations are enough: which parts are learned from, and the report."""

import json
import signal
from dataclasses import replace

import pytest

from samples import small_set
from scopil.cli import main
from scopil.cli.interrupts import INTERRUPTED
from scopil.data.storage import load_demos
from scopil.errors import ConfigError
from scopil_bench.cli.workers import number_of
from scopil_bench.studies import enough, running


def test_half_as_many_again_and_again():
    assert enough.sizes_for(40) == [5, 10, 20, 40]
    assert enough.sizes_for(7) == [7]


def test_smaller_sets_are_parts_of_larger_ones():
    demos = load_demos("marble-maze/simple-v1")
    made = enough.study(demos, "scopil/MarbleMaze-Simple-v0", [5, 10], 10_000, 1)
    few, more = (kept.demos() for kept in made.tasks.values())  # pyright: ignore[reportCallIssue, reportOptionalCall]
    assert (len(few), len(more)) == (5, 10)
    kept = {e.observations.tobytes() for e in more}
    assert {e.observations.tobytes() for e in few} < kept
    with pytest.raises(ConfigError, match="41"):
        enough.study(demos, "scopil/MarbleMaze-Simple-v0", [5, 41], 10_000, 1)


@pytest.mark.parametrize(("steps", "seeds"), [(10_000, 0), (0, 1), (5_000, 1)])
def test_nothing_to_run_and_nothing_but_clones_are_refused(steps, seeds):
    demos = load_demos("marble-maze/simple-v1")
    with pytest.raises(ConfigError):
        enough.study(demos, "scopil/MarbleMaze-Simple-v0", [5], steps, seeds)


def test_a_folder_is_about_one_set():
    """The name of the study tells sets apart; a folder of another study is refused."""
    demos = load_demos("marble-maze/simple-v1")
    others = (replace(demos, name="renamed"), replace(demos, episodes=demos.episodes[:-1]))
    mine, same, fewer = (enough.study(d, "x", [5], 10_000, 1).name for d in (demos, *others))
    assert mine == same != fewer


WORDS = ["demos", "enough", "marble-maze/simple-v1", "--sizes", "5", "--steps", "6000"]


def test_a_stopped_command_stops_its_workers(tmp_path, monkeypatch):

    def stop(*_):
        assert callable(signal.getsignal(signal.SIGTERM))
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(running, "execute_with_progress", stop)
    assert main([*WORDS, "--out", str(tmp_path)]) == INTERRUPTED


@pytest.mark.slow
def test_the_command_can_be_continued(tmp_path, capsys):
    words = ["demos", "enough", "marble-maze/simple-v1", "--sizes", "5,10", "--steps", "5100", "--out", str(tmp_path)]
    assert not main(words)
    first = json.loads((tmp_path / "results.json").read_text())["runs"]
    assert {(run["setting"], run["method"]) for run in first} == {
        (size, method) for size in ("5", "10") for method in enough.METHODS
    }
    assert "10 demonstrations" in (tmp_path / "report.md").read_text()
    assert not main(words)  # nothing is left to train
    assert json.loads((tmp_path / "results.json").read_text())["runs"] == first
    assert "written: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["small.npz", "--sizes", "2,4"], "none/Missing-v0"),
        (["small.npz", "--sizes", "9"], "--sizes: 9; want 2 to 4"),
        (["one.npz"], "has one demonstration; want at least 2"),
    ],
)
def test_errors_name_options_of_the_command(argv, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_set((3, 3, 3, 3), env_id="none/Missing-v0").save("small.npz")
    small_set((3,)).save("one.npz")
    assert main(["demos", "enough", *argv, "--env", "none/Missing-v0"]) == 2
    assert words in capsys.readouterr().err


def test_workers_are_the_cores():
    assert number_of(None) >= 1
    assert number_of(3) == 3
    with pytest.raises(ConfigError, match="workers = 0"):
        number_of(0)
