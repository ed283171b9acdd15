"""What runs came to: every finished run played once, and the figures of all of them in files that depend on the
runs alone. Two sets of equal runs give equal bytes; what the clock says goes to another file."""

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from scopil.agents import Agent, load
from scopil.algos import ALGORITHMS
from scopil.envs.functional import BatchEnv, CompiledEnv
from scopil.envs.host import open_env
from scopil.evaluate import protocol, stats
from scopil.evaluate.metrics import Measures, average, measure
from scopil.evaluate.modes import has_pairs, mode_coverage
from scopil.experiments.execute import name, steps_done
from scopil.experiments.paper import Cell
from scopil.files import write_atomically
from scopil.train.run import Run

FORMAT = 1  # of evaluation.json; another number is played again
EVALUATIONS = ("greedy/train", "sampled/train", "greedy/test", "sampled/test")
SAFE = 0.025  # avoidable violations a game: one in forty games
MODES_SEED = 1
DUALS = ("dual/lambda", "alpha/value")


class Result(NamedTuple):
    """One finished run."""

    cell: Cell
    seed: int
    steps: int  # of the environment, as made
    # Steps at the first evaluation in training with at most SAFE avoidable violations a game.
    first_safe: int | None
    peaks: dict[str, float]  # of the duals, in the second half of training
    means: dict[str, Measures]  # by evaluation, over its games
    games: dict[str, int]
    bad_games: dict[str, int]  # with an avoidable violation
    modes: Measures | None  # of sampled play from the paired starts


class Evaluator:
    """Plays finished runs, each once: the games' measures are kept in the run's folder."""

    def __init__(self) -> None:
        self._envs: dict[str, BatchEnv] = {}  # runs on one environment share compiled code

    def result(self, cell: Cell, run: Run) -> Result:
        found = self.evaluation(run)
        games: dict[str, list[Measures]] = found["games"]
        return Result(
            cell=cell,
            seed=run.spec.seed,
            steps=found["env_steps"],
            first_safe=first_safe(run),
            peaks=peaks(run),
            means={key: average(each) for key, each in games.items()},
            games={key: len(each) for key, each in games.items()},
            bad_games={key: sum(m["avoidable"] > 0 for m in each) for key, each in games.items()},
            modes=found["modes"],
        )

    def agent(self, run: Run) -> Agent:
        if run.spec.env not in self._envs:
            self._envs[run.spec.env] = open_env(run.spec.env)
        return load(run.folder, env=self._envs[run.spec.env])

    def evaluation(self, run: Run) -> dict[str, Any]:
        """evaluation.json of a finished run, written when it is missing, damaged or of another policy."""
        file = run.folder / "evaluation.json"
        digest = hashlib.sha256(run.policy_file.read_bytes()).hexdigest()
        try:
            kept = json.loads(file.read_text())
            if (kept["format"], kept["policy"]) == (FORMAT, digest):
                return kept
        except (OSError, ValueError, KeyError, TypeError):
            pass
        agent = self.agent(run)
        made = {
            "format": FORMAT,
            "policy": digest,
            "env_steps": agent.num_timesteps,
            "games": {key: _play(agent, key) for key in EVALUATIONS},
            "modes": _modes(agent),
        }
        write_atomically(file, json.dumps(made).encode() + b"\n")
        return made


def _play(agent: Agent, key: str) -> list[Measures]:
    policy, _, starts = key.partition("/")
    return [measure(game) for game in agent.play(starts, deterministic=policy == "greedy")]


def _modes(agent: Agent) -> Measures | None:
    demos = agent.demos
    if demos is None or not has_pairs(demos) or not isinstance(agent.env, CompiledEnv):
        return None
    play = protocol.player(agent.env, agent.algorithm, "sampled")
    found = mode_coverage(
        agent.env, demos, lambda first: play(agent.learner, first, jax.random.key(MODES_SEED))
    )
    return found.measures()


def first_safe(run: Run) -> int | None:
    for row in run.metrics.rows():
        if row.get("eval/avoidable") is not None and row["eval/avoidable"] <= SAFE:
            return row["env_steps"]
    return None


def peaks(run: Run) -> dict[str, float]:
    late = [row for row in run.metrics.rows() if 2 * row["env_steps"] > run.spec.steps]
    found = {key: [row[key] for row in late if key in row] for key in DUALS}
    return {key: max(values) for key, values in found.items() if values}


def state(run: Run) -> str:
    """Where an unfinished run stands."""
    done = steps_done(run)
    return f"{done:,} of {run.spec.steps:,} steps" if done else "not begun"


class Summary(NamedTuple):
    """A cell's runs under one evaluation."""

    seeds: int
    steps: int  # a run
    measures: dict[str, tuple[float, float]]  # mean ± deviation over seeds
    iqm: float  # of violations a game
    interval: stats.Interval  # 95 %, of the iqm
    p_avoidable: float  # 95 % upper bound on the probability that a game has an avoidable violation
    unsafe: float  # share of seeds with one


def summarise(results: Sequence[Result], evaluation: str) -> Summary:
    means = [r.means[evaluation] for r in results]
    violations = [m["violations"] for m in means]
    return Summary(
        seeds=len(results),
        steps=max(r.steps for r in results),
        measures={key: stats.mean_std([m[key] for m in means]) for key in means[0]},
        iqm=stats.iqm(violations),
        interval=stats.bootstrap_interval([violations]),
        p_avoidable=stats.clopper_pearson_upper(
            sum(r.bad_games[evaluation] for r in results), sum(r.games[evaluation] for r in results)
        ),
        unsafe=stats.unsafe_share([m["avoidable"] for m in means]),
    )


def by_cell(results: Sequence[Result]) -> dict[Cell, list[Result]]:
    groups: dict[Cell, list[Result]] = {}
    for result in sorted(results, key=lambda r: (list(ALGORITHMS).index(r.cell.algorithm), r.seed)):
        groups.setdefault(result.cell, []).append(result)
    return groups


def as_json(budget: str, results: Sequence[Result], missing: Mapping[str, str]) -> dict[str, Any]:
    runs = []
    for r in results:
        row = r._asdict()
        runs.append(row.pop("cell")._asdict() | row)
    order = lambda row: (row["setting"], row["algorithm"], row["seed"])  # noqa: E731
    return {"budget": budget, "runs": sorted(runs, key=order), "missing": dict(sorted(missing.items()))}


def as_csv(results: Sequence[Result]) -> str:
    """A line for each run and evaluation."""
    names = sorted({key for r in results for means in r.means.values() for key in means})
    text = io.StringIO()
    write = csv.writer(text, lineterminator="\n").writerow
    write(["setting", "algorithm", "seed", "env_steps", "policy", "starts", "games", "bad_games", *names])
    for r in sorted(results, key=lambda r: (*r.cell, r.seed)):
        for key in EVALUATIONS:
            means = [r.means[key].get(n, "") for n in names]
            write([*r.cell, r.seed, r.steps, *key.split("/"), r.games[key], r.bad_games[key], *means])
    return text.getvalue()


def save(out: Path, budget: str, results: Sequence[Result], missing: Mapping[str, str]) -> None:
    text = json.dumps(as_json(budget, results, missing), indent=1)
    write_atomically(out / "results.json", text.encode() + b"\n")
    write_atomically(out / "results.csv", as_csv(results).encode())


# --- the clock: in a file of its own ------------------------------------------------------------------------------


class Timing(NamedTuple):
    seconds: float  # of training, compilation included, start-up of Python not
    to_first_safe: float | None  # seconds until then


def timing(run: Run) -> Timing:
    rows, safe = run.timing.rows(), first_safe(run)
    spent = [
        (row["env_steps"], row.get("seconds", row["env_steps"] / row["steps_per_second"])) for row in rows
    ]
    until = [seconds for step, seconds in spent if safe is not None and step >= safe]
    return Timing(spent[-1][1], until[0] if until else None)


def save_timings(out: Path, timings: Mapping[str, Timing]) -> None:
    rows = {key: t._asdict() for key, t in sorted(timings.items())}
    write_atomically(out / "timing.json", json.dumps(rows, indent=1).encode() + b"\n")


def timings(runs: Sequence[Run]) -> dict[str, Timing]:
    return {name(run): timing(run) for run in runs if run.finished}
