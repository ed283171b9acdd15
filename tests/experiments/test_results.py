"""A finished run is played once; figures depend on runs alone."""

import json
from pathlib import Path

import pytest

import scopil
from made_results import cell_of, result
from scopil.experiments import results
from scopil.experiments.execute import prepare
from scopil.experiments.paper import BUDGETS, Cell
from scopil.train.run import Run

pytestmark = pytest.mark.slow  # trains and plays runs

CELL = Cell("two-modes", "scopil")


def untrained(folder: Path, cell: Cell = CELL, seed: int = 0) -> Run:
    """A run that has come to its end without a step."""
    run = prepare(folder, BUDGETS["short"].spec(cell, seed))
    agent = scopil.SCOPIL(run.spec.env, run.demos(), seed=seed, **run.spec.config)
    agent.save(run.policy_file)
    return run


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> tuple[Run, results.Result]:
    run = untrained(tmp_path_factory.mktemp("runs") / "scopil-0")
    return run, results.Evaluator().result(CELL, run)


def test_everything_is_measured(played):
    _, found = played
    assert set(found.means) == set(results.EVALUATIONS)
    assert set(found.games.values()) == {40}
    for key, means in found.means.items():
        assert found.bad_games[key] <= 40
        assert (found.bad_games[key] > 0) == (means["avoidable"] > 0)
        assert means["violations"] == pytest.approx(
            means["violations/horizontal"] + means["violations/circle"]
        )
    assert found.modes is not None
    assert 0 <= found.modes["lawful"] <= 1
    assert found.steps == 0


def test_it_is_played_once(played, monkeypatch):
    run, found = played

    def refuse(*_, **__):
        raise AssertionError("played again")

    monkeypatch.setattr(results, "_play", refuse)
    assert results.Evaluator().result(CELL, run) == found
    file = run.folder / "evaluation.json"
    whole = file.read_bytes()
    for spoilt in (whole[:100], b"[]", whole.replace(b'"policy": "', b'"policy": "0')):
        file.write_bytes(spoilt)
        with pytest.raises(AssertionError, match="played again"):
            results.Evaluator().result(CELL, run)
    file.write_bytes(whole)


def test_files_do_not_depend_on_the_order_of_runs(tmp_path):
    runs = [*cell_of("scopil", [0.025, 0.1])[Cell("simple", "scopil")], result("sac", 0, 2.0)]
    for folder, order in (("a", runs), ("b", runs[::-1])):
        missing = dict([("z", "not begun"), ("y", "3 of 5 steps")][:: 1 if folder == "a" else -1])
        results.save(tmp_path / folder, "paper", order, missing)
    for name in ("results.json", "results.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    kept = json.loads((tmp_path / "a" / "results.json").read_text())
    assert [(r["algorithm"], r["seed"]) for r in kept["runs"]] == [("sac", 0), ("scopil", 0), ("scopil", 1)]
    head, *lines = (tmp_path / "a" / "results.csv").read_text().splitlines()
    assert head.startswith("setting,algorithm,seed,env_steps,policy,starts,games,bad_games,avoidable,")
    assert len(lines) == 3 * 4
    assert len(set(head.split(","))) == len(head.split(","))


def test_a_summary_by_hand():
    runs = cell_of("scopil", [0.025, 0.025, 0.025, 0.425])[Cell("simple", "scopil")]
    found = results.summarise(runs, "greedy/train")
    assert found.measures["violations"] == pytest.approx((0.125, 0.4 * 3**0.5 / 4))
    assert found.iqm == pytest.approx(0.025)
    assert found.unsafe == 0.25
    assert found.p_avoidable == pytest.approx(0.0293, abs=1e-4)  # 1 bad game of 160
    assert found.interval[0] == pytest.approx(0.025)
    assert found.interval[1] > 0.1


def test_the_clock_and_the_first_safe_evaluation(tmp_path):
    run = prepare(tmp_path / "scopil-0", BUDGETS["short"].spec(CELL, 0))
    assert results.state(run) == "not begun"
    for step, avoidable in ((100, 3.0), (200, None), (300, 0.02), (400, 1.0)):
        run.metrics.append({"env_steps": step} | ({} if avoidable is None else {"eval/avoidable": avoidable}))
        run.timing.append({"env_steps": step, "steps_per_second": 1.0, "seconds": step / 10})
    assert results.first_safe(run) == 300
    assert results.timing(run) == results.Timing(40.0, 30.0)
    assert results.state(run) == "400 of 10,000 steps"


def test_the_peaks_of_the_duals_are_those_of_the_second_half(tmp_path):
    run = prepare(tmp_path / "scopil-0", BUDGETS["short"].spec(CELL, 0))
    for step, lam in ((1_000, 900.0), (5_000, 50.0), (6_000, 2.0), (8_000, 4.0), (10_000, 3.0)):
        run.metrics.append({"env_steps": step, "dual/lambda": lam})
    assert results.peaks(run) == {"dual/lambda": 4.0}
