"""Evaluations of finished runs, and the files that store the results.

results.json, results.csv    one entry per run; equal runs give equal bytes
timing.json                  wall-clock times, which differ between equal runs
"""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from scopil.data import storage
from scopil.data.dataset import Demonstrations
from scopil.data.record import play_expert
from scopil.envs.base import BatchEnv
from scopil.envs.gym_env import open_env
from scopil.errors import CheckpointError, ConfigError, DatasetError, EnvError, refused_as
from scopil.eval.episodes import measure_demonstrations, play_distinct
from scopil.eval.measures import COUNTS, Measures, average, measure_all, with_margin
from scopil.eval.rules import Rules, by_own_rules, own_rules
from scopil.eval.starts import EPISODES, demos_for, starts_from, unseen_starts
from scopil.files import write_atomically
from scopil.policy import Policy
from scopil.train.run import Run
from scopil_bench.cache import read_evaluation, write_evaluation
from scopil_bench.runner import name
from scopil_bench.studies.base import FinishedRun, Study
from scopil_bench.summaries import EVALUATIONS, MARGINS, SAFE, Cell, Result, Results, Timing, counted

FORMAT = 3  # format version of results.json

Rows = Sequence[Mapping[str, Any]]  # rows of a run's metrics.jsonl
Runs = Mapping[Cell, Sequence[Run]]


class Evaluator(AbstractContextManager):
    """Evaluates runs and reads their folders, each file once.

    An evaluation is stored in the run's folder (`scopil_bench.cache`). It is repeated only if the file is missing or
    damaged, or if the policy, the rules or the study's protocol changed. Without a study, the evaluator makes those of
    the four standard evaluations that the environment and demonstrations allow. `rules` replace the runs' rules."""

    def __init__(self, study: Study | None = None, rules: Rules | None = None) -> None:
        self._study, self._rules = study, rules
        self._envs: dict[str, BatchEnv] = {}  # runs on one environment share compiled code
        self._rows: dict[Path, Rows] = {}
        self._demos: dict[Path, Demonstrations | None] = {}

    def __exit__(self, *_: object) -> None:
        for env in self._envs.values():
            env.close()

    def env(self, run: Run) -> BatchEnv:
        if (name := run.env_name()) not in self._envs:
            self._envs[name] = run.env()
        return self._envs[name]

    def rules(self, run: Run, setting: str | None = None) -> Rules | None:
        """The rules for counting violations: the first of the caller's, study's, run's and environment's rules."""
        if self._rules is not None:
            return self._rules
        given = None if self._study is None or setting is None else self._study.tasks[setting].rules
        return Rules.of(given) if given is not None else run.rules() or own_rules(self.env(run))

    def rows(self, run: Run, setting: str | None = None) -> Rows:
        """The run's metrics; without violations, if they were counted by other rules than today's."""
        if run.folder not in self._rows:
            rows = run.metrics.rows()
            if self._rules_changed(run, setting):
                rows = [{name: value for name, value in row.items() if not _counts(name)} for row in rows]
            self._rows[run.folder] = rows
        return self._rows[run.folder]

    def _rules_changed(self, run: Run, setting: str | None) -> bool:
        """Whether the rules of today differ from those with which the run was trained, as far as these may be read."""
        now = self.rules(run, setting)
        try:
            then = run.rules()
        except (ConfigError, EnvError):
            return False
        return now is not None and then is not None and now.digest != then.digest

    def demonstrator(self, setting: str) -> Any:
        """The program that demonstrates a study's task; None if there is none."""
        return None if self._study is None else self._study.tasks[setting].demonstrator

    def demos(self, run: Run) -> Demonstrations | None:
        if run.folder not in self._demos:
            self._demos[run.folder] = run.demos()
        return self._demos[run.folder]

    def result(self, cell: Cell, run: Run) -> Result:
        found, rows = self.evaluation(run, cell.setting), self.rows(run, cell.setting)
        measures: dict[str, list[Measures]] = found["measures"]
        return Result(
            cell=cell,
            seed=run.spec.seed,
            steps=found["env_steps"],
            first_safe=first_safe(rows),
            means={key: average(each) for key, each in measures.items()},
            episodes={key: len(each) for key, each in measures.items()},
            violating={key: sum(m.get("avoidable", 0) > 0 for m in each) for key, each in measures.items()},
            extra=found["extra"],
            margins={key: _margins(each) for key, each in measures.items() if len(each) > 1},
        )

    def evaluation(self, run: Run, setting: str | None = None) -> dict[str, Any]:
        """The evaluation of a run's newest policy: read from the run's folder, or else made now."""
        study, rules = self._study, self.rules(run, setting)
        made_from = {
            "policy": hashlib.sha256(run.newest_policy().read_bytes()).hexdigest(),
            "study": None if study is None else study.name,
            "episodes": None if study is None or setting is None else study.episodes_of(setting),
            "evaluations": list(EVALUATIONS if study is None else study.evaluations),
            "rules": None if rules is None else rules.digest,
        }
        # Without a study, an evaluation made for a study is reused if its policy and rules are the same.
        keys = made_from if study is not None else ("policy", "rules")
        kept = read_evaluation(run.folder)
        if kept is not None and all(kept["made_from"].get(key) == made_from[key] for key in keys):
            return kept
        return self._evaluate(run, made_from, rules)

    def _evaluate(self, run: Run, made_from: Mapping[str, Any], rules: Rules | None) -> dict[str, Any]:
        env, study = self.env(run), self._study
        policy, env_steps = run.policy()
        demos = self.demos(run) or demos_for(run.spec.env)
        measures, pictured = {}, {}
        for key in made_from["evaluations"]:
            if (episodes := _play(env, policy, key, demos, made_from["episodes"])) is not None:
                measures[key] = measure_all(episodes, env, rules)
                if key.startswith("greedy/") and env.drawing() is not None:
                    pictured[key] = episodes
        extra = study.extra(FinishedRun(run, env, demos, policy)) if study is not None and study.extra else {}
        found = {"env_steps": env_steps, "measures": measures, "extra": extra}
        return write_evaluation(run.folder, made_from, found, pictured)


def _margins(each: Sequence[Measures]) -> Measures:
    return {name: margin for name, (_, margin) in with_margin(each).items() if name in MARGINS and margin == margin}


def _play(
    env: BatchEnv, policy: Policy, key: str, demos: Demonstrations | None, episodes: int | None
) -> list[Any] | None:
    """Episodes of one evaluation; None if it needs demonstrated starts and there are none. A deterministic episode is
    played once, because copies would make the bounds on violations too tight."""
    mode, _, which = key.partition("/")
    try:
        first = starts_from(which, env, demos, episodes)
    except DatasetError:
        return None
    return play_distinct(env, policy, first, jax.random.key(0), "greedy" if mode == "greedy" else "sampled")


def finished(runs: Runs) -> dict[Cell, list[Run]]:
    """Cells with their finished runs. Cells without finished runs are omitted."""
    return {cell: done for cell, each in runs.items() if (done := [run for run in each if run.finished])}


def evaluate_runs(
    evaluator: Evaluator, runs: Runs, advance: Callable[[], None] = lambda: None
) -> dict[Cell, list[Result]]:
    """Results of all runs. `advance` is called after each run."""
    results: dict[Cell, list[Result]] = {}
    rules: dict[Cell, str | None] = {}
    for cell, mine in runs.items():
        for run in mine:
            results.setdefault(cell, []).append(evaluator.result(cell, run))
            found = evaluator.rules(run, cell.setting)
            rules[cell] = None if found is None else found.digest
            advance()
    return counted(results, rules)


def demonstrator_measures(study: Study, setting: str) -> dict[str, Measures]:
    """Means over the demonstrations and, if there is a scripted expert, over its episodes from unseen starts; and the
    task's further references. The setting's rules define the violations of the first two."""
    kept, rows = study.tasks[setting], {}
    env = open_env(kept.env)
    try:
        if kept.demos is not None:
            demos = storage.load_demos(kept.demos() if callable(kept.demos) else kept.demos, env)
            rules = None if kept.rules is None else Rules.of(kept.rules)
            rows[f"Demonstrator ({len(demos)} episodes)"] = reference(measure_demonstrations(demos, env, rules))
        if kept.demonstrator is not None:
            starts = unseen_starts(env, study.episodes_of(setting) or EPISODES)
            played = by_own_rules(env, play_expert(env, kept.env, kept.demonstrator, starts))
            rows["Demonstrator, unseen starts"] = reference(measure_all(played, env, kept.rules))
        return rows | dict(kept.references() if kept.references else {})
    finally:
        env.close()


def reference(measures: Sequence[Measures]) -> Measures:
    """The means of a demonstrator's row, with the share of its episodes that have an avoidable violation."""
    found = average(measures)
    counted = {"violating": float(np.mean([m.get("avoidable", 0) > 0 for m in measures]))}
    return found | (counted if "violations" in found else {})


def _counts(metric: str) -> bool:
    """Whether a metric is a count of violations."""
    return metric.partition("/")[2].partition("/")[0] in COUNTS


def first_safe(rows: Rows) -> int | None:
    """Steps at the evaluation after step 0 from which on all have at most SAFE avoidable violations per episode; None
    if the last one has more, or if violations were not logged."""
    evaluated = [row for row in rows if row["env_steps"] and any(key.startswith("eval/") for key in row)]
    if not any("eval/avoidable" in row for row in evaluated):
        return None
    # A rule without a logged value was not broken.
    found = None
    for row in reversed(evaluated):
        avoidable = row.get("eval/avoidable", 0.0)
        if avoidable is None or avoidable > SAFE:
            break
        found = row["env_steps"]
    return found


def state(run: Run) -> str:
    """Progress of an unfinished run."""
    done = run.steps_done
    return f"{done:,} of {run.spec.steps:,} steps" if done else "not started"


# --- results.json and results.csv ---------------------------------------------------------------------------------


def save(out: Path, study: str, budget: str, results: Iterable[Result], missing: Mapping[str, str]) -> None:
    """Write both files. `missing` maps the names of unfinished runs to their progress."""
    ordered = sorted(results, key=lambda r: (*r.cell, r.seed))
    runs = [r.cell._asdict() | {key: value for key, value in r._asdict().items() if key != "cell"} for r in ordered]
    body = {"format": FORMAT, "study": study, "budget": budget, "runs": runs}
    body["unfinished"] = dict(sorted(missing.items()))
    write_atomically(out / "results.json", json.dumps(body, indent=1).encode() + b"\n")
    write_atomically(out / "results.csv", as_csv(ordered).encode())


def as_csv(results: Sequence[Result]) -> str:
    """One line per run and evaluation."""
    names = sorted({key for r in results for means in r.means.values() for key in means})
    text = io.StringIO()
    write = csv.writer(text, lineterminator="\n").writerow
    write(["setting", "method", "seed", "env_steps", "policy", "starts", "episodes", "violating", *names])
    for r in results:
        for key, means in r.means.items():
            policy, _, starts = key.partition("/")
            values = [means.get(n, "") for n in names]
            violating = r.violating[key] if "violations" in means else ""  # empty: rules not known
            write([*r.cell, r.seed, r.steps, policy, starts, r.episodes[key], violating, *values])
    return text.getvalue()


def all_of(results: Results) -> list[Result]:
    return [result for each in results.values() for result in each]


# --- timing.json ---------------------------------------------------------------------------------------------------


def timing(run: Run, safe: int | None) -> Timing:
    """Wall-clock times of a run that was first safe after `safe` steps."""
    rows = run.timing.rows()
    with refused_as(CheckpointError, run.timing.path):
        spent = [(row["env_steps"], float(row["seconds"])) for row in rows]
        until = [seconds for step, seconds in spent if safe is not None and step >= safe]
        return Timing(spent[-1][1], until[0] if until else None)


def save_timings(out: Path, runs: Runs, results: Results) -> dict[str, Timing]:
    """Write and return the times by run name. `results` has the results of `runs` in the same order."""
    pairs = [(run, result) for cell, each in runs.items() for run, result in zip(each, results[cell])]
    found = {name(run): timing(run, result.first_safe) for run, result in pairs if run.timing.path.exists()}
    rows = {key: t._asdict() for key, t in sorted(found.items())}
    write_atomically(out / "timing.json", json.dumps(rows, indent=1).encode() + b"\n")
    return found
