"""How many demonstrations are enough: which parts are learned from, and what is said of the curve."""

import json
import signal
from dataclasses import replace

import numpy as np
import pytest

from samples import small_set
from scopil.cli import main
from scopil.cli.interrupts import INTERRUPTED
from scopil.data.storage import load_demos
from scopil.errors import ConfigError
from scopil_bench import runner
from scopil_bench.cli.workers import number_of
from scopil_bench.studies import enough
from scopil_bench.studies.enough import Point, sentence


def points(*shares: float) -> list[Point]:
    return [Point(5 * 2**i, "scopil-rho", -10.0, 2 * s, s) for i, s in enumerate(shares)]


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


def test_a_folder_is_about_one_set(tmp_path):
    demos = load_demos("marble-maze/simple-v1")
    enough.keep_set(demos, tmp_path)
    enough.keep_set(replace(demos, name="renamed"), tmp_path)  # the same episodes
    fewer = replace(demos, episodes=demos.episodes[:-1])
    for other in (load_demos("marble-maze/multiple-v1"), fewer):
        with pytest.raises(ConfigError, match="holds a study of"):
            enough.keep_set(other, tmp_path)
    (tmp_path / "set.json").unlink()
    (tmp_path / "study.json").touch()
    with pytest.raises(ConfigError, match="holds another study"):
        enough.keep_set(demos, tmp_path)
    assert not (tmp_path / "set.json").exists()
    (tmp_path / "set.json").write_text("[]")
    with pytest.raises(ConfigError, match="set"):
        enough.keep_set(demos, tmp_path)


WORDS = ["demos", "enough", "marble-maze/simple-v1", "--sizes", "5", "--steps", "6000"]


def test_a_stopped_command_stops_its_workers(tmp_path, monkeypatch):

    def stop(*_):
        assert callable(signal.getsignal(signal.SIGTERM))
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(runner, "execute_with_progress", stop)
    assert main([*WORDS, "--out", str(tmp_path)]) == INTERRUPTED


def test_a_power_law_is_continued():
    """Half as many with twice as many demonstrations: from 16 % over 8 % and 4 % to 2 %."""
    assert "40 would give about 2.0%" in sentence(points(0.16, 0.08, 0.04))


def test_a_flat_curve_says_so():
    assert sentence(points(0.2, 0.1, 0.1, 0.1)).endswith("would change little.")


def test_without_rules_the_sentence_has_rewards():
    bare = [p._replace(violating=None, violations=None) for p in points(0.1, 0.1)]
    assert sentence(bare) == "No rules are known here. Reward from unseen starts: -10 with 5, -10 with 10."


@pytest.mark.slow
def test_the_command_can_be_continued(tmp_path, capsys):
    words = ["demos", "enough", "marble-maze/simple-v1", "--sizes", "5,10", "--steps", "5100", "--out", str(tmp_path)]
    assert not main(words)
    first = json.loads((tmp_path / "enough.json").read_text())
    assert [(p["demonstrations"], p["method"]) for p in first["points"]] == [
        (5, "bc"), (5, "scopil-rho"), (10, "bc"), (10, "scopil-rho"),
    ]  # fmt: skip
    assert all(np.isfinite(p["violating"]) for p in first["points"])
    assert (tmp_path / "enough.png").stat().st_size > 5_000
    assert not main(words)  # nothing is left to train
    assert json.loads((tmp_path / "enough.json").read_text()) == first
    assert "With 10 demonstrations" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["small.npz", "--sizes", "2,4"], "Or leave 2 out: --sizes 4"),
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
