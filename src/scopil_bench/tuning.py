"""Hyperparameter search with Optuna. Trials are runs in folders, so that a search can be stopped and continued.
Evaluation starts of trials are separate from those of reports.

<out>/tuning/trials.jsonl                  one line that describes the search, then one per trial: its settings and,
                                           when known, its value or failure
<out>/tuning/runs/<trial>/<task>-<seed>/   run folders
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax

from scopil.config import settings
from scopil.errors import ConfigError, ScopilError
from scopil.eval.episodes import play
from scopil.eval.measures import Measures, average, measure_all
from scopil.eval.rules import name_of_rules
from scopil.eval.starts import EPISODES, unseen_starts
from scopil.files import write_atomically
from scopil.terminal import Console
from scopil.train.run import Run
from scopil_bench.planning import demos_name, write_demos
from scopil_bench.results import Evaluator
from scopil_bench.runner import execute_with_progress, prepare
from scopil_bench.studies.base import Study
from scopil_bench.summaries import Cell

TUNING, TRIALS = "tuning", "trials.jsonl"
TUNE_SEED = 20_250_711  # seed of the trials' evaluation starts; reports use seed 0
FIRST_SEED = 1_000  # first seed of the trials' runs; the seeds of the study's runs start at 0
DEFAULT_OBJECTIVE = {"reward": 1.0}
# Part of the message of a DivergedError. It is found in the log, since runs are separate processes.
DIVERGED = "stopped before environment step"


@dataclass(frozen=True, kw_only=True)
class Search:
    """The ranges of a search and its objective."""

    method: str
    settings: Mapping[str, Any]  # name → [low, high], [low, high, "log"], or {"choices": […]}
    objective: Mapping[str, float]  # weights of measures; the sum is maximised
    trials: int = 20
    seeds: int = 1  # runs per trial and task


class Trial(dict):
    """One line of trials.jsonl: `settings`; then `value` and `measures`, or `failed` with the reason."""

    @property
    def done(self) -> bool:
        return self.get("value") is not None

    @property
    def failed(self) -> bool:
        return "failed" in self

    @property
    def over(self) -> bool:
        return self.done or self.failed


def search_from(plan: Mapping[str, Any], study: Study) -> Search:
    """The checked table `tune` of a study file."""
    known = {"method", "settings", "objective", "trials", "seeds"}
    if odd := sorted(set(plan) - known):
        raise ConfigError(f"[tune] has no entry {odd[0]}; there are {', '.join(sorted(known))}.")
    methods = list(study.methods)
    method = plan.get("method", methods[0])
    if method not in methods:
        raise ConfigError(f"[tune] method = {method!r}; the study has {', '.join(methods)}.")
    ranges = plan.get("settings")
    if not isinstance(ranges, Mapping) or not ranges:
        raise ConfigError('[tune.settings] is empty; want ranges, as in learning_rate = [1e-4, 1e-2, "log"].')
    types = {s.name: s.type for s in settings(study.method(method).algorithm.config)}
    for name in ranges:
        if name not in types:
            raise ConfigError(f"[tune.settings] {name}: {method} has no such setting; it has {', '.join(types)}.")
    ranges = {name: _range(name, given, types[name]) for name, given in ranges.items()}
    for count in ("trials", "seeds"):
        if not isinstance(plan.get(count, 1), int) or plan.get(count, 1) < 1:
            raise ConfigError(f"[tune] {count} = {plan[count]!r}; want a whole number of at least 1.")
    objective = plan.get("objective", DEFAULT_OBJECTIVE)
    if not isinstance(objective, Mapping) or not all(isinstance(w, int | float) for w in objective.values()):
        raise ConfigError(f"[tune] objective = {objective!r}; want weights, as in {{reward = 1, violations = -10}}.")
    weights = {measure: float(weight) for measure, weight in objective.items()}
    return Search(**{**plan, "method": method, "settings": ranges, "objective": weights})


def _range(name: str, given: Any, type_: Any) -> Any:
    """A checked range. For a setting of type float, [0, 1] becomes [0.0, 1.0]."""
    if isinstance(given, Mapping) and set(given) == {"choices"} and given["choices"]:
        return given
    numbers = given[:2] if isinstance(given, Sequence) and not isinstance(given, str) else []
    plain = len(numbers) == 2 and all(isinstance(n, int | float) for n in numbers) and numbers[0] < numbers[1]
    if not plain or list(given[2:]) not in ([], ["log"]) or (len(given) == 3 and numbers[0] <= 0):
        forms = '[low, high], [low, high, "log"] with low above 0, or {choices = […]}'
        raise ConfigError(f"[tune.settings] {name} = {given!r}; want {forms}.")
    if type_ is not int:
        return [*map(float, numbers), *given[2:]]
    if any(n % 1 for n in numbers):
        raise ConfigError(f"[tune.settings] {name} = {given!r}; want whole numbers.")
    return [*map(int, numbers), *given[2:]]


def tune(
    study: Study, search: Search, out: Path, *, workers: int = 2, seed: int = 0, console: Console | None = None
) -> list[Trial]:
    """Search until there are `search.trials` trials. Returns all trials, best first and failed ones last."""
    optuna, console = _optuna(), console or Console()
    folder, wanted, (found, trials) = out / TUNING, _described(study, search), _read(out)
    _refuse_other_search(found, wanted, trials, folder)
    write_demos(study, out, study.tasks)
    ranges = {name: _distribution(optuna, given) for name, given in search.settings.items()}
    sampler = optuna.samplers.TPESampler(seed=seed + len(trials))  # so that a continued search draws new settings
    with Evaluator(study) as evaluator:
        while len(trials) < search.trials or not all(t.over for t in trials):
            over = [t for t in trials if t.over]
            asked = optuna.create_study(direction="maximize", sampler=sampler)
            asked.add_trials([_known(optuna, trial, ranges) for trial in over])
            while len(trials) < search.trials and len(trials) - len(over) < workers:
                drawn = asked.ask(ranges).params
                trials.append(Trial(settings={name: _plain(value) for name, value in drawn.items()}))
            _write(folder, wanted, trials)  # before training, so that a continued search finds the open trials
            try:
                _train_and_evaluate(study, search, out, trials, workers, console, evaluator)
            finally:
                _write(folder, wanted, trials)
    if not any(t.done for t in trials):
        raise ScopilError(f"all {len(trials)} trials in {folder} diverged; search other ranges with another --out.")
    return sorted(trials, key=lambda t: -t["value"] if t.done else math.inf)


def read_trials(out: Path) -> list[Trial]:
    return _read(out)[1]


def _read(out: Path) -> tuple[dict[str, Any], list[Trial]]:
    """The description of the search and its trials."""
    file = out / TUNING / TRIALS
    if not file.exists():
        return {}, []
    try:
        rows = [dict(json.loads(line)) for line in file.read_text().splitlines()]
        found = dict(rows.pop(0)["search"]) if rows and "search" in rows[0] else {}
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{file} is damaged: {error}; remove the folder to search again.") from error
    return found, [Trial(row) for row in rows]


def _described(study: Study, search: Search) -> dict[str, Any]:
    """Everything that a trial's value depends on, named as in a study file. The number of trials is left out, so that
    a search can be continued with more."""
    found: dict[str, Any] = {"tune.method": search.method, "tune.seeds": search.seeds}
    found["tune.objective"] = dict(search.objective)
    found |= {f"tune.settings.{name}": given for name, given in search.settings.items()}
    for name, task in study.tasks.items():
        spec = study.spec(next(iter(study.budgets)), Cell(name, search.method), FIRST_SEED, None)
        kept = {
            "algorithm": spec.algorithm.name,
            "env": spec.env,
            "demos": task.demos if isinstance(task.demos, str) else None,  # None: made by the study
            "rules": name_of_rules(task.rules),
            "steps": spec.steps,
            "episodes": study.episodes_of(name),
            # The searched settings are left out, since users may copy the best ones into the study file.
            "config": {key: value for key, value in spec.config.items() if key not in search.settings},
        }
        found |= {f"settings.{name}.{key}": value for key, value in kept.items()}
    return json.loads(json.dumps(found))  # same types as when read from the file


def _refuse_other_search(
    found: Mapping[str, Any], wanted: Mapping[str, Any], trials: Sequence[Trial], folder: Path
) -> None:
    """Raise if the folder holds another search: values are not comparable, and Optuna refuses settings out of range."""
    names = dict.fromkeys([*found, *wanted]) if trials else {}
    if not any(t.over for t in trials):
        names.pop("tune.objective", None)  # no trial has a value yet, so the objective may be corrected
    # Compared as JSON text, in which 0 (an integer range) differs from 0.0 (a range of real numbers).
    was, now = ({n: json.dumps(each.get(n), sort_keys=True) for n in names} for each in (found, wanted))
    if odd := [f"{n} = {was[n]}, not {now[n]}" for n in names if was[n] != now[n]]:
        raise ConfigError(f"{folder} holds a search with {', '.join(odd[:3])}: name another folder with --out.")


def _train_and_evaluate(
    study: Study,
    search: Search,
    out: Path,
    trials: Sequence[Trial],
    workers: int,
    console: Console,
    evaluator: Evaluator,
) -> None:
    """Train and evaluate the open trials. A trial with a diverged run is recorded as failed, since it would diverge
    again. Other failures are raised, since users may be able to fix their cause."""
    runs = {i: _runs(study, search, out, i, trial) for i, trial in enumerate(trials) if not trial.over}
    failed = execute_with_progress([run for mine in runs.values() for run in mine], workers, console)
    for i, mine in runs.items():
        if lines := [line for run in mine if DIVERGED in (line := failed.get(run.folder, ""))]:
            trials[i].update(failed=lines[0])
            console.print(f"trial {i}: diverged  {trials[i]['settings']}", highlight=False)
    if others := {where: line for where, line in failed.items() if DIVERGED not in line}:
        raise ScopilError("; ".join(f"{where} failed: {line}" for where, line in others.items()))
    for i, mine in runs.items():
        if trials[i].failed:
            continue
        measures = average([_evaluate(study, evaluator, task, run) for task, run in zip(_tasks(study, search), mine)])
        if odd := [name for name in search.objective if name not in measures]:
            raise ConfigError(f"[tune] objective: no measure {odd[0]}; there are {', '.join(measures)}.")
        value = sum(weight * measures[name] for name, weight in search.objective.items())
        trials[i].update(value=value, measures=measures)
        console.print(f"trial {i}: {value:.4g}  {trials[i]['settings']}", highlight=False)


def _tasks(study: Study, search: Search) -> list[str]:
    """The tasks of a trial's runs, in order."""
    return [task for task in study.tasks for _ in range(search.seeds)]


def _runs(study: Study, search: Search, out: Path, number: int, trial: Trial) -> list[Run]:
    budget, made = next(iter(study.budgets)), []
    for k, task in enumerate(_tasks(study, search)):
        seed = FIRST_SEED + k % search.seeds
        spec = study.spec(budget, Cell(task, search.method), seed, demos_name(study, out, task))
        spec = replace(spec, config=spec.config | trial["settings"])
        made.append(prepare(out / TUNING / "runs" / f"{number:04d}" / f"{task}-{seed}", spec))
    return made


def _evaluate(study: Study, evaluator: Evaluator, task: str, run: Run) -> Measures:
    """Measures of greedy episodes with the report's rules, from starts that neither training nor reports use."""
    env = evaluator.env(run)
    first = unseen_starts(env, study.episodes_of(task) or EPISODES, TUNE_SEED)
    episodes = play(env, run.policy()[0], first, jax.random.key(TUNE_SEED), "greedy")
    return average(measure_all(episodes, env, evaluator.rules(run, task)))


def _distribution(optuna: Any, given: Any) -> Any:
    if isinstance(given, Mapping):
        return optuna.distributions.CategoricalDistribution([_hashable(choice) for choice in given["choices"]])
    low, high, log = given[0], given[1], len(given) == 3
    whole = isinstance(low, int) and isinstance(high, int)
    kind = optuna.distributions.IntDistribution if whole else optuna.distributions.FloatDistribution
    return kind(low, high, log=log)


def _hashable(choice: Any) -> Any:
    return json.dumps(choice) if isinstance(choice, list) else choice  # Optuna accepts no lists


def _plain(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) and value.startswith("[") else value


def _known(optuna: Any, trial: Trial, ranges: dict[str, Any]) -> Any:
    """A finished trial, as Optuna stores it."""
    params = {name: _hashable(value) for name, value in trial["settings"].items()}
    state = optuna.trial.TrialState.FAIL if trial.failed else optuna.trial.TrialState.COMPLETE
    return optuna.trial.create_trial(params=params, distributions=ranges, state=state, value=trial.get("value"))


def _write(folder: Path, wanted: Mapping[str, Any], trials: Sequence[Trial]) -> None:
    rows = [{"search": wanted}, *trials]
    write_atomically(folder / TRIALS, "".join(json.dumps(row) + "\n" for row in rows).encode())


def _optuna() -> Any:
    try:
        import optuna  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ConfigError('scopil tune needs Optuna: pip install "scopil[tune]"') from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
