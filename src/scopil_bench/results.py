"""What runs achieved: every finished run is played once into its folder, and the figures of all of them go to files
that depend on the runs alone. Two sets of equal runs give equal bytes; wall-clock times go to a file of their own."""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from scopil.data import storage
from scopil.data.dataset import Demonstrations, Episode
from scopil.data.record import record
from scopil.envs.base import BatchEnv
from scopil.envs.gym_env import open_env
from scopil.envs.jax_env import make_env
from scopil.errors import CheckpointError, ConfigError, DatasetError, refused_as
from scopil.eval.demonstrator import measure_demonstrations
from scopil.eval.env_hooks import drawing
from scopil.eval.episodes import play_distinct
from scopil.eval.measures import Measures, average, measure_all
from scopil.eval.rules import Rules, own_rules
from scopil.eval.starts import Seeds, demos_for, starts_from, unseen_starts
from scopil.files import is_line, parse_json, write_atomically
from scopil.policy import Policy
from scopil.train.run import Run
from scopil_bench.cache import read_evaluation, write_evaluation
from scopil_bench.runner import name
from scopil_bench.studies.base import FinishedRun, Study
from scopil_bench.summaries import EVALUATIONS, SAFE, Cell, Result, Results, Timing, counted

FORMAT = 2  # of results.json
DUALS = ("dual/lambda", "alpha/value")


class Evaluator:
    """Plays runs, each once: what was played is kept in the run's folder (`scopil_bench.cache`).

    Without a study a run is played under the four usual evaluations, as far as they are possible.
    """

    def __init__(self, study: Study | None = None, rules: Rules | None = None) -> None:
        self._study, self._rules = study, rules  # rules: in place of the runs' own
        self._envs: dict[str, BatchEnv] = {}  # runs on one environment share compiled code

    def env(self, run: Run) -> BatchEnv:
        if run.spec.env not in self._envs:
            self._envs[run.spec.env] = run.env()
        return self._envs[run.spec.env]

    def rules(self, run: Run, setting: str | None = None) -> Rules | None:
        """What violations are counted by: the caller's rules, the study's, the run's, or the environment's."""
        if self._rules is not None:
            return self._rules
        given = None if self._study is None or setting is None else self._study.tasks[setting].rules
        return Rules.of(given) if given is not None else run.rules() or own_rules(self.env(run))

    def close(self) -> None:
        for env in self._envs.values():
            env.close()

    def result(self, cell: Cell, run: Run) -> Result:
        found = self.evaluation(run, cell.setting)
        measures: dict[str, list[Measures]] = found["measures"]
        return Result(
            cell=cell,
            seed=run.spec.seed,
            steps=found["env_steps"],
            first_safe=first_safe(run),
            peaks=peaks(run),
            means={key: average(each) for key, each in measures.items()},
            episodes={key: len(each) for key, each in measures.items()},
            violating={key: sum(m.get("avoidable", 0) > 0 for m in each) for key, each in measures.items()},
            extra=found["extra"],
            made_from=run.digest,
        )

    def evaluation(self, run: Run, setting: str | None = None) -> dict[str, Any]:
        """The evaluation of a run's newest policy, made when it is missing, damaged or of another policy."""
        file, study = run.newest_policy(), self._study
        rules = self.rules(run, setting)
        made_from = {
            "policy": hashlib.sha256(file.read_bytes()).hexdigest(),
            "study": None if study is None else study.name,
            "episodes": None if study is None or setting is None else study.episodes_of(setting),
            "evaluations": list(EVALUATIONS if study is None else study.evaluations),
            "rules": None if rules is None else rules.digest,
        }
        kept = read_evaluation(run.folder, made_from)
        if kept is None and study is None:  # an evaluation made for a study serves as well
            kept = read_evaluation(run.folder)
            same = kept is not None and all(kept["made_from"].get(k) == made_from[k] for k in ("policy", "rules"))
            kept = kept if same else None
        return kept or self._evaluate(run, made_from, rules)

    def _evaluate(self, run: Run, made_from: Mapping[str, Any], rules: Rules | None) -> dict[str, Any]:
        env, study = self.env(run), self._study
        policy, env_steps = run.policy()
        demos = run.demos() or demos_for(run.spec.env)
        keys = EVALUATIONS if study is None else study.evaluations
        measures, pictured = {}, {}
        for key in keys:
            episodes = _play(env, policy, key, demos, made_from["episodes"])
            if episodes is None:
                continue
            measures[key] = measure_all(episodes, env, rules)
            if key.startswith("greedy/") and drawing(env) is not None:
                pictured[key] = episodes
        extra: dict[str, Measures] = {}
        if study is not None and study.extra is not None:
            extra = study.extra(FinishedRun(run, env, demos, policy))
        found = {"env_steps": env_steps, "measures": measures, "extra": extra}
        return write_evaluation(run.folder, made_from, found, pictured)


def _play(
    env: BatchEnv, policy: Policy, key: str, demos: Demonstrations | None, episodes: int | None
) -> list[Any] | None:
    """None where there are no demonstrated starts. Copies of one episode are no evidence: each is played once."""
    mode, _, which = key.partition("/")
    try:
        first = starts_from(which, env, demos, episodes)
    except DatasetError:
        return None
    return play_distinct(env, "greedy" if mode == "greedy" else "sampled", policy, first, jax.random.key(0))


def evaluate_study(
    study: Study, runs: Mapping[Cell, Sequence[Run]], advance: Callable[[], None] = lambda: None
) -> dict[Cell, list[Result]]:
    """The results of all finished runs."""
    evaluator = Evaluator(study)
    results: dict[Cell, list[Result]] = {}
    try:
        for cell, mine in runs.items():
            for run in mine:
                if run.finished:
                    results.setdefault(cell, []).append(evaluator.result(cell, run))
                    advance()
    finally:
        evaluator.close()
    return counted(results)


def demonstrator_measures(study: Study, setting: str) -> dict[str, Measures]:
    """Means of the demonstrations, and of the demonstrator from the starts of the policies, by the setting's rules."""
    kept, rows = study.tasks[setting], {}
    env = open_env(kept.env)
    try:
        if kept.demos is not None:
            demos = storage.load_demos(kept.demos() if callable(kept.demos) else kept.demos, env)
            rules = None if kept.rules is None else Rules.of(kept.rules)
            rows[f"Demonstrator ({len(demos)} episodes)"] = average(measure_demonstrations(demos, env, rules))
        if kept.demonstrator is not None:
            played = _from_unseen_starts(kept.env, kept.demonstrator, study.episodes_of(setting) or 40)
            rows["Demonstrator, unseen starts"] = average(measure_all(played, env, kept.rules))
        return rows
    finally:
        env.close()


def _from_unseen_starts(name: str, choose: Callable[[Any], Any], episodes: int) -> list[Episode]:
    env = make_env(name)
    try:
        starts = unseen_starts(open_env(env), episodes)
        if not isinstance(starts, Seeds):
            raise ConfigError(f"{name}: a demonstrator plays from starts that seeds make; these are states.")
        return [record(env, choose, 1, seed=int(seed)).episodes[0] for seed in starts.seeds]
    finally:
        env.close()


def first_safe(run: Run) -> int | None:
    """Steps at the first evaluation in training with at most SAFE avoidable violations per episode."""
    rows = [row for row in run.metrics.rows() if any(key.startswith("eval/") for key in row)]
    if not any("eval/avoidable" in row for row in rows):
        return None  # nothing is counted here
    for row in rows:
        avoidable = row.get("eval/avoidable", 0.0)  # a rule that is not reported was not broken
        if avoidable is not None and avoidable <= SAFE:
            return row["env_steps"]
    return None


def peaks(run: Run) -> dict[str, float]:
    late = [row for row in run.metrics.rows() if 2 * row["env_steps"] > run.spec.steps]
    found = {key: [row[key] for row in late if row.get(key) is not None] for key in DUALS}
    return {key: max(values) for key, values in found.items() if values}


def state(run: Run) -> str:
    """How far an unfinished run has come."""
    done = run.steps_done
    return f"{done:,} of {run.spec.steps:,} steps" if done else "not started"


# --- results.json and results.csv ---------------------------------------------------------------------------------


def as_json(study: str, budget: str, results: Iterable[Result], missing: Mapping[str, str]) -> dict[str, Any]:
    runs = []
    for r in results:
        row = r._asdict()
        runs.append(row.pop("cell")._asdict() | row)
    order = lambda row: (row["setting"], row["method"], row["seed"])  # noqa: E731
    body = {"format": FORMAT, "study": study, "budget": budget, "runs": sorted(runs, key=order)}
    return body | {"unfinished": dict(sorted(missing.items()))}


def as_csv(results: Sequence[Result]) -> str:
    """One line per run and evaluation."""
    names = sorted({key for r in results for means in r.means.values() for key in means})
    text = io.StringIO()
    write = csv.writer(text, lineterminator="\n").writerow
    write(["setting", "method", "seed", "env_steps", "policy", "starts", "episodes", "violating", *names])
    for r in sorted(results, key=lambda r: (*r.cell, r.seed)):
        for key, means in r.means.items():
            policy, _, starts = key.partition("/")
            values = [means.get(n, "") for n in names]
            write([*r.cell, r.seed, r.steps, policy, starts, r.episodes[key], r.violating[key], *values])
    return text.getvalue()


def save(out: Path, study: str, budget: str, results: Sequence[Result], missing: Mapping[str, str]) -> None:
    text = json.dumps(as_json(study, budget, results, missing), indent=1)
    write_atomically(out / "results.json", text.encode() + b"\n")
    write_atomically(out / "results.csv", as_csv(results).encode())


class Loaded(NamedTuple):
    """A results.json: no run folder is needed to report it."""

    study: str
    budget: str
    results: dict[Cell, list[Result]]
    missing: dict[str, str]


def load(out: Path) -> Loaded:
    with refused_as(ConfigError, out / "results.json"):
        body = parse_json((out / "results.json").read_bytes())
        if "format" not in body:
            body = _first_format(body)
        results: dict[Cell, list[Result]] = {}
        for run in body["runs"]:
            result = Result(cell=Cell(run.pop("setting"), run.pop("method")), **run)
            _refuse_malformed(result)
            results.setdefault(result.cell, []).append(result)
        missing = {str(run): str(state) for run, state in body["unfinished"].items()}
        return Loaded(str(body["study"]), str(body["budget"]), results, missing)


def earlier(out: Path, study: str, budget: str) -> dict[Cell, list[Result]]:
    """What the folder's results.json has of this study and budget: the runs themselves may be gone. A file of before
    format 2 was made by another program, whose runs do not stand for this one's."""
    file = out / "results.json"
    if not file.exists():
        return {}
    with refused_as(ConfigError, file):
        if parse_json(file.read_bytes()).get("format") != FORMAT:
            return {}
    found = load(out)
    return found.results if (found.study, found.budget) == (study, budget) else {}


def joined(played: Results, before: Results, order: Sequence[Cell]) -> dict[Cell, list[Result]]:
    """Results of the runs that are there, and of those that were before."""
    everything: dict[Cell, list[Result]] = {}
    for cell in dict.fromkeys([*order, *played, *before]):
        mine = {r.seed: r for r in (*before.get(cell, ()), *played.get(cell, ()))}
        if mine:
            everything[cell] = [mine[seed] for seed in sorted(mine)]
    return counted(everything)


def _refuse_malformed(result: Result) -> None:
    """Names are text, counts are whole, everything else is numbers by name."""
    if not all(map(is_line, result.cell)) or type(result.seed) is not int or type(result.steps) is not int:
        raise ValueError(f"a run {result.cell} with seed {result.seed} and {result.steps} steps")
    if not is_line(result.made_from) and result.made_from != "":
        raise ValueError(f"made_from = {result.made_from!r}")
    if result.first_safe is not None and type(result.first_safe) is not int:
        raise ValueError(f"first_safe = {result.first_safe!r}")
    for numbers in (result.peaks, *result.means.values(), result.episodes, result.violating):
        if not all(isinstance(value, int | float) for value in numbers.values()):
            raise ValueError(f"{numbers}; want numbers by name")
    if not result.means.keys() == result.episodes.keys() == result.violating.keys():
        raise ValueError("not the same evaluations in means, episodes and violating")


def _first_format(body: dict[str, Any]) -> dict[str, Any]:
    """The committed figures were written before format 2, with other names for starts, episodes and modes."""

    def renamed(by_key: dict[str, Any]) -> dict[str, Any]:
        return {k.replace("/train", "/demonstrated").replace("/test", "/unseen"): v for k, v in by_key.items()}

    runs = []
    for r in body["runs"]:
        counts = {"episodes": renamed(r["games"]), "violating": renamed(r["bad_games"])}
        extra = {} if r["modes"] is None else {"modes": r["modes"]}
        kept = {key: r[key] for key in ("setting", "seed", "steps", "first_safe", "peaks")}
        runs.append(kept | counts | {"method": r["algorithm"], "means": renamed(r["means"]), "extra": extra})
    return {"study": "paper", "budget": body["budget"], "runs": runs, "unfinished": body["missing"]}


def all_of(results: Results) -> list[Result]:
    return [result for each in results.values() for result in each]


# --- wall-clock: in a file of its own -----------------------------------------------------------------------------


def timing(run: Run) -> Timing:
    rows, safe = run.timing.rows(), first_safe(run)
    with refused_as(CheckpointError, run.timing.path):
        spent = [(row["env_steps"], float(row["seconds"])) for row in rows]
        until = [seconds for step, seconds in spent if safe is not None and step >= safe]
        return Timing(spent[-1][1], until[0] if until else None)


def load_timings(out: Path) -> dict[str, Timing]:
    """What `save_timings` wrote; empty without such a file."""
    if not (out / "timing.json").exists():
        return {}
    with refused_as(ConfigError, out / "timing.json"):
        rows = parse_json((out / "timing.json").read_bytes())
        return {key: Timing(**row) for key, row in rows.items()}


def timings(runs: Iterable[Run]) -> dict[str, Timing]:
    return {name(run): timing(run) for run in runs if run.finished and run.timing.path.exists()}


def save_timings(out: Path, timings: Mapping[str, Timing]) -> None:
    rows = {key: t._asdict() for key, t in sorted(timings.items())}
    write_atomically(out / "timing.json", json.dumps(rows, indent=1).encode() + b"\n")
