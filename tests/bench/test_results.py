"""A finished run is evaluated once; the files of results depend on the runs alone."""

import json
from pathlib import Path

import numpy as np
import pytest

import scopil
from made_results import cell_of, result
from samples import marble_episodes
from scopil.data.dataset import Episode
from scopil.eval.rules import Rules
from scopil.train.run import Run
from scopil_bench import planning, results
from scopil_bench.cache import EVALUATION, read_episodes, write_evaluation
from scopil_bench.runner import prepare
from scopil_bench.studies.paper.study import STUDY
from scopil_bench.summaries import EVALUATIONS, Cell, Timing, summarise

CELL = Cell("two-modes", "scopil")
MODES = ("greedy", "sampled")
COMMITTED = Path(__file__).parents[2] / "results"


def created(folder: Path) -> Run:
    return prepare(folder, STUDY.spec("short", CELL, 0, "marble-maze/two-modes-v1"))


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> tuple[Run, results.Result]:
    """A run that ended without a step, and its result."""
    run = created(tmp_path_factory.mktemp("runs") / "scopil-0")
    agent = scopil.SCOPIL(run.spec.env, run.demos(), seed=0, **run.spec.config)
    agent.save(run.policy_file)
    return run, results.Evaluator(STUDY).result(CELL, run)


@pytest.mark.slow
def test_everything_is_measured_and_episodes_are_kept_for_pictures(played):
    run, found = played
    assert set(found.means) == set(EVALUATIONS)
    assert set(found.episodes.values()) == {40}
    for key, means in found.means.items():
        assert found.violating[key] <= 40
        assert (found.violating[key] > 0) == (means["avoidable"] > 0)
        assert means["violations"] == pytest.approx(means["violations/horizontal"] + means["violations/circle"])
    assert 0 <= found.extra["modes"]["lawful"] <= 1
    assert found.steps == 0
    kept = read_episodes(run.folder)
    assert list(kept) == ["greedy/demonstrated", "greedy/unseen"]
    for key, episodes in kept.items():
        assert np.mean([len(e) for e in episodes]) == found.means[key]["steps"]
        broken = [e.info["cost_circle"].sum() + e.info["cost_horizontal"].sum() for e in episodes]
        assert np.mean(broken) == pytest.approx(found.means[key]["violations"])
        assert all(len(e.info["position"]) == len(e.observations) == len(e) + 1 for e in episodes)


@pytest.mark.slow
def test_it_is_played_once(played, monkeypatch):
    run, found = played
    monkeypatch.setattr(results, "_play", lambda *_: pytest.fail("played again"))
    assert results.Evaluator(STUDY).result(CELL, run) == found
    assert results.Evaluator().evaluation(run)["measures"]  # what a study has played serves others too
    file = run.folder / EVALUATION
    whole = file.read_bytes()
    for spoilt in (whole[:100], b"[]", whole.replace(b'"policy": "', b'"policy": "0')):
        file.write_bytes(spoilt)
        with pytest.raises(pytest.fail.Exception, match="played again"):
            results.Evaluator(STUDY).result(CELL, run)
    file.write_bytes(whole)


def test_files_do_not_depend_on_the_order_of_runs(tmp_path):
    runs = [*cell_of("scopil", [0.025, 0.1])[Cell("simple", "scopil")], result("sac", 0, 2.0)]
    for folder, order in (("a", runs), ("b", runs[::-1])):
        missing = dict([("z", "not started"), ("y", "3 of 5 steps")][:: 1 if folder == "a" else -1])
        results.save(tmp_path / folder, "paper", "short", order, missing)
    for name in ("results.json", "results.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    kept = json.loads((tmp_path / "a" / "results.json").read_text())
    assert [(r["method"], r["seed"]) for r in kept["runs"]] == [("sac", 0), ("scopil", 0), ("scopil", 1)]
    head, *lines = (tmp_path / "a" / "results.csv").read_text().splitlines()
    assert head.startswith("setting,method,seed,env_steps,policy,starts,episodes,violating,avoidable,")
    assert len(lines) == 3 * 4
    assert len(set(head.split(","))) == len(head.split(","))


def test_committed_results_are_within_their_expected_ranges():
    """They were made with version 0.1; the fields that a `Result` no longer has are left out."""
    kept = json.loads((COMMITTED / "results.json").read_text())
    assert (kept["study"], kept["budget"]) == ("paper", "paper")
    found: dict[Cell, list[results.Result]] = {}
    for run in kept["runs"]:
        fields = {key: value for key, value in run.items() if key in results.Result._fields}
        cell = Cell(run["setting"], run["method"])
        found.setdefault(cell, []).append(results.Result(cell=cell, **fields))
    assert set(found) <= set(STUDY.cells())
    assert STUDY.expectations is not None
    judged = [v for v in STUDY.expectations("paper", found)[0] if v.value is not None]
    assert judged
    assert all(v.holds for v in judged)


def test_a_summary_by_hand():
    runs = cell_of("scopil", [0.025, 0.025, 0.025, 0.425])[Cell("simple", "scopil")]
    found = summarise(runs, "greedy/demonstrated")
    assert found.measures["violations"] == pytest.approx((0.125, 0.4 * 3**0.5 / 4))
    assert found.iqm == pytest.approx(0.025)
    assert found.unsafe == 0.25
    assert found.p_avoidable == pytest.approx(0.0293, abs=1e-4)  # 1 bad episode of 160
    assert found.interval is not None
    assert found.interval[0] == pytest.approx(0.025)
    assert found.interval[1] > 0.1


def test_the_clock_and_the_first_safe_evaluation(tmp_path):
    run = created(tmp_path / "scopil-0")
    assert results.state(run) == "not started"
    for step in (100, 200, 300, 400):
        run.timing.append({"env_steps": step, "steps_per_second": 1.0, "seconds": step / 10})
    rows = [{"env_steps": 100, "eval/avoidable": 3.0}, {"env_steps": 200}]
    assert results.first_safe(rows) is None
    rows += [{"env_steps": 300, "eval/avoidable": 0.02}, {"env_steps": 400, "eval/avoidable": 0.0}]
    assert results.first_safe(rows) == 300
    assert results.first_safe([*rows, {"env_steps": 500, "eval/avoidable": 8.6}]) is None  # it did not stay
    assert results.timing(run, 300) == Timing(40.0, 30.0)
    assert results.state(run) == "400 of 10,000 steps"


def test_counts_by_other_rules_are_not_mixed_with_those_of_today(tmp_path, monkeypatch):
    run = created(tmp_path / "scopil-0")
    counts = {"eval/violations": 1.0, "eval/violations/x": 1.0, "eval/avoidable": 0.0, "episode/violations": 2.0}
    run.metrics.append({"env_steps": 100, "eval/reward": 3.0} | counts)
    then, now = (Rules.of({"x": lambda obs, action, after: 0, name: "key"}) for name in ("then", "now"))
    monkeypatch.setattr(run, "rules", lambda: then)
    for rules, rest in ((then, counts), (now, {})):
        with results.Evaluator(rules=rules) as evaluator:
            assert evaluator.rows(run) == [{"env_steps": 100, "eval/reward": 3.0} | rest]


def test_a_greedy_policy_plays_no_start_twice_for_the_count():
    """Copies of one episode would make the bound on violations too good to be true."""
    demos = marble_episodes(steps=3, episodes=2)
    agent = scopil.SCOPIL("scopil/MarbleMaze-Simple-v0", demos, seed=0)
    counts = {mode: results._play(agent.env, agent.policy, f"{mode}/demonstrated", agent.demos, 6) for mode in MODES}
    assert {mode: len(each or ()) for mode, each in counts.items()} == {"greedy": 2, "sampled": 6}


def test_runs_of_a_method_that_the_study_no_longer_has_are_left_alone(tmp_path):
    for method in ("scopil", "of-before"):
        created(tmp_path / "runs" / "two-modes" / f"{method}-0")
    assert list(planning.found(STUDY, tmp_path)) == [CELL]


def episode(steps: int, **info: np.ndarray) -> Episode:
    return Episode(observations=np.zeros((steps + 1, 2)), actions=np.zeros(steps), info=info)


def test_an_episode_need_not_report_what_another_does(tmp_path):
    """A rule that names its costs itself says nothing of those that an episode did not break."""
    far, low, places = np.array([0.0, 1, 1]), np.array([1, 0], np.int8), np.ones((3, 2), np.float32)
    given = [episode(2, cost_far=far, position=places), episode(1, cost_low=low), episode(3)]
    write_evaluation(tmp_path, {}, {"measures": {}, "extra": {}}, {"greedy/unseen": given})
    first, second, third = (e.info for e in read_episodes(tmp_path)["greedy/unseen"])
    assert list(first) == list(second) == list(third) == ["cost_far", "position", "cost_low"]
    np.testing.assert_array_equal(first["cost_far"], far)
    np.testing.assert_array_equal(first["position"], places)
    np.testing.assert_array_equal(first["cost_low"], [0, 0, 0])
    np.testing.assert_array_equal(second["cost_low"], low)
    np.testing.assert_array_equal(third["position"], np.zeros((4, 2)))
    assert (third["position"].dtype, third["cost_low"].dtype) == (np.float32, np.int8)
