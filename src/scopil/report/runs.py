"""Several runs seen together: which belong in one group, how they play, and where their games went."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scopil.agents import Agent, load
from scopil.algos import ALGORITHMS
from scopil.envs.functional import BatchEnv, CompiledEnv
from scopil.envs.host import open_env
from scopil.errors import DatasetError
from scopil.evaluate.games import Game
from scopil.evaluate.metrics import Measures, average, mean_and_std, measure
from scopil.report.constraint_map import save_constraint_maps
from scopil.report.curves import new_figure, save_figure
from scopil.report.paths import draw_paths
from scopil.report.tables import Value
from scopil.studies.marble_maze import MarbleParams
from scopil.train.run import Run

STARTS = ("train", "test")
POLICIES = ("greedy", "sampled")
IN_A_ROW = 4  # as many seeds as the paper's figure shows


def grouped(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs that differ in nothing but their seed, under the algorithm's name. Settings are added to the name where one
    algorithm was run with several; the budget is one of them: a mean over two budgets would mean nothing."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(_name(run, runs), []).append(run)
    return {name: sorted(group, key=lambda run: run.spec.seed) for name, group in groups.items()}


def _name(run: Run, runs: Sequence[Run]) -> str:
    mine = _settings(run)
    peers = [_settings(r) for r in runs if r.spec.algorithm == run.spec.algorithm]
    odd = [f"{k}={v}" for k, v in mine.items() if any(peer.get(k) != v for peer in peers)]
    title = ALGORITHMS[run.spec.algorithm].title
    return title if not odd else f"{title}, {', '.join(odd)}"


def _settings(run: Run) -> dict[str, Any]:
    return run.note()["config"] | {"demos": run.spec.demos, "steps": run.spec.steps}


@dataclass
class Played:
    """One run's newest learner and its games by policy and starts; starts that do not exist are left out."""

    run: Run
    learner: Any
    games: dict[tuple[str, str], list[Game]] = field(default_factory=dict)

    def measures(self) -> dict[tuple[str, str], Measures]:
        return {key: average([measure(g) for g in games]) for key, games in self.games.items()}


def play_all(runs: Sequence[Run], tell: Callable[[], None] = lambda: None) -> Iterator[Played]:
    """Greedy and sampled games from train and test starts. Runs on one environment share compiled code."""
    envs: dict[str, BatchEnv] = {}
    for run in runs:
        if run.spec.env not in envs:
            envs[run.spec.env] = open_env(run.spec.env)
        agent = load(run.folder, env=envs[run.spec.env])
        yield Played(run, agent.learner, _games(agent))
        tell()


def _games(agent: Agent) -> dict[tuple[str, str], list[Game]]:
    games = {}
    for starts in STARTS:
        for policy in POLICIES:
            try:
                games[policy, starts] = agent.play(starts, deterministic=policy == "greedy")
            except DatasetError:  # nobody demonstrated: there are no train starts
                break
    return games


def evaluation_rows(groups: Mapping[str, Sequence[Played]]) -> dict[str, Mapping[str, Value]]:
    """A row for each group, policy and starts: the mean over its seeds, ± their deviation where there are several."""
    rows: dict[str, Mapping[str, Value]] = {}
    for name, group in groups.items():
        measured = [played.measures() for played in group]
        for key in measured[0]:
            each = [m[key] for m in measured if key in m]
            rows[f"{name}, {key[0]}, {key[1]} starts"] = each[0] if len(each) == 1 else mean_and_std(each)
    return rows


def save_trays(path: Path, title: str, group: Sequence[Played]) -> bool:
    """Greedy games of the first seeds side by side, train starts above test starts. Says whether there was anything
    to draw: only Marble Maze has a tray."""
    shown = group[:IN_A_ROW]
    params = _tray(shown[0].run)
    if params is None:
        return False
    rows = [s for s in STARTS if all(("greedy", s) in played.games for played in shown)]
    figure = new_figure(figsize=(2.7 * len(shown) + 0.4, 2.9 * len(rows) + 0.5))
    axes = figure.subplots(len(rows), len(shown), squeeze=False)
    for i, starts in enumerate(rows):
        axes[i, 0].set_ylabel(f"{starts} starts", fontsize=9)
        for j, played in enumerate(shown):
            games = played.games["greedy", starts]
            draw_paths(axes[i, j], params, games)
            bad = average([measure(g) for g in games])["violations"]
            axes[i, j].set_title(f"seed {played.run.spec.seed}: {bad:.3g} violations a game", fontsize=8)
    figure.suptitle(f"{title}, greedy", fontsize=11, fontweight="bold")
    save_figure(path, figure)
    return True


def _tray(run: Run) -> MarbleParams | None:
    env = run.env()
    return env.params if isinstance(env, CompiledEnv) and isinstance(env.params, MarbleParams) else None


def save_beliefs(path: Path, group: Sequence[Played]) -> bool:
    """Where the first seeds believe the law runs. Says whether there was anything to draw: only ICRL has beliefs,
    and only Marble Maze a tray."""
    shown = group[:IN_A_ROW]
    params = _tray(shown[0].run)
    if params is None or not hasattr(shown[0].learner, "constraint"):
        return False
    save_constraint_maps(path, params, {f"seed {played.run.spec.seed}": played.learner for played in shown})
    return True
