"""The contents of the studio's folder: runs with their curves, sets of demonstrations, reports."""

import json
import math
import time
from pathlib import Path
from typing import Any

import gymnasium as gym

from scopil.config import settings as settings_of
from scopil.data import storage
from scopil.data.dataset import Demonstrations
from scopil.errors import ConfigError, ScopilError
from scopil.files import is_locked
from scopil.registry import registered
from scopil.train.run import Run
from scopil_studio import recorder, training_jobs
from scopil_studio.listing import NOT_YET, plain, plain_set, policy_about, set_about, time_limit
from scopil_studio.paths import folders_with, inside, name_of, outside_runs, refuse_outside
from scopil_studio.training_jobs import resume, start, stop  # noqa: F401  (requests)
from scopil_studio.worker import StudioConfig

TAIL = 16 * 1024  # number of bytes at the end of a metrics file that are read for its last rows
RUN_FILES = ("run.json", "versions.json", "metrics.jsonl", ".lock", "demos.npz", "policy.safetensors", "checkpoints")
LARGEST_REPORT = 64 * 2**20
LARGEST_NOTE = 2**22  # bytes of run.json
LISTING = 20.0  # seconds after which the overview reads no more files
EVALUATED = (("eval/reward", "Return of evaluations"), ("eval/violations", "Violations per episode"))


def overview(config: StudioConfig) -> dict[str, Any]:
    """All items that the pages list."""
    algorithms = registered()  # imports them: the time limit of a file is for reading it
    home, until = config.folder, time.monotonic() + LISTING
    return {
        "folder": str(home),
        "runs": [_summary(config, folder, until) for folder in folders_with(home, "run.json")],
        "starting": training_jobs.starting(home),
        "sets": [{"name": name_of(home, path)} | set_about(path, until) for path in outside_runs(home, ".npz")],
        "shipped": [{"name": name} | set_about(path) for name, path in storage.library().items()],
        "policies": [_policy(config, path, until) for path in outside_runs(home, ".safetensors")],
        "reports": [name_of(home, f) or "." for f in folders_with(home, "report.html")],
        "own_envs": config.envs,
        "envs": [*dict.fromkeys([*config.envs, *sorted(gym.registry)])],
        "algorithms": [
            {"name": name, "title": a.title, "about": a.summary, "needs_demos": a.needs_demos, "steps": a.budget}
            for name, a in algorithms.items()
        ],
    }


def run(config: StudioConfig, name: str, since: int = 0) -> dict[str, Any]:
    """A run, the curves that its algorithm defines, and its rows of metrics after the first `since` bytes."""
    folder = inside(config.folder, name)
    opened = open_run(config, folder)
    rows, offset = opened.metrics.tail(since)
    try:
        versions = json.loads((folder / "versions.json").read_text())
    except (OSError, ValueError):
        versions = {}
    curves = [*EVALUATED, *((curve.metric, curve.title) for curve in opened.spec.algorithm.curves)]
    return _summary(config, folder) | {
        "settings": opened.note(),
        "versions": versions,
        "curves": [{"metric": metric, "title": title} for metric, title in curves],
        "rows": rows,
        "offset": offset,
        "again": offset < since,  # the file was replaced: earlier rows are invalid
        "log": training_jobs.log(config.folder, folder),
    }


def settings(config: StudioConfig, algorithm: str) -> dict[str, Any]:
    """The settings of an algorithm, as in `scopil train ALGORITHM --help`."""
    if algorithm not in registered():
        raise ConfigError(f"no algorithm {algorithm[:40]!r}; there are {', '.join(registered())}.")
    found = settings_of(registered()[algorithm].config)
    return {"settings": [{"name": s.name, "default": str(s.default), "about": f"{s.about} {s.range}"} for s in found]}


def episodes(config: StudioConfig, name: str) -> dict[str, Any]:
    """The episodes of a set. There are none if the file does not exist yet."""
    path = set_path(config, name)
    return _listed(name, storage.read(path)) if path.exists() else {"name": name, "episodes": []}


def drop(config: StudioConfig, name: str, mark: str) -> dict[str, Any]:
    """Remove the episode with this mark, and return the remaining episodes of the set."""
    left = recorder.drop(plain_set(inside(config.folder, name)), mark)
    return {"name": name, "episodes": []} if left is None else _listed(name, left)


def report(config: StudioConfig, name: str) -> tuple[dict[str, Any], bytes]:
    """The report of a study or of runs that `scopil report` wrote."""
    folder = config.folder if name == "." else inside(config.folder, name)
    file = refuse_outside(config.folder, folder / "report.html")
    if not file.is_file() or file.stat().st_size > LARGEST_REPORT:
        raise ConfigError(f"{name} has no report.html of at most {LARGEST_REPORT >> 20} MB; scopil report writes one.")
    return {}, file.read_bytes()


def set_path(config: StudioConfig, name: str) -> Path:
    """The file of a shipped set, or of a set in the studio's folder."""
    return storage.library().get(name) or plain_set(inside(config.folder, name))


def open_run(config: StudioConfig, folder: Path) -> Run:
    refuse_outside(config.folder, *(folder / file for file in RUN_FILES))
    for file in ("run.json", "versions.json"):
        plain(folder / file, LARGEST_NOTE)
    return Run.open(folder)


def _summary(config: StudioConfig, folder: Path, until: float = math.inf) -> dict[str, Any]:
    about: dict[str, Any] = {"name": name_of(config.folder, folder)}
    try:
        if time.monotonic() > until:
            raise TimeoutError(NOT_YET)
        with time_limit(folder.name):
            return about | _state(config, folder)
    except (ScopilError, OSError) as error:
        return about | {"state": "damaged", "problem": str(error)}


def _state(config: StudioConfig, folder: Path) -> dict[str, Any]:
    opened = open_run(config, folder)
    spec, last = opened.spec, _last(opened)
    unfinished = "training" if is_locked(folder / ".lock") else "stopped"
    state = "finished" if opened.finished else unfinished
    stoppable = state == "training" and training_jobs.running(config.folder, folder) is not None
    return {
        "title": spec.algorithm.title,
        "env": spec.env,
        "allowed": config.allows(spec.env) or (opened.code is not None and opened.code.own),
        "seed": spec.seed,
        "steps": spec.steps,
        "reward": last.get("eval/reward"),
        "violations": last.get("eval/violations"),
        "episodes": last.get("eval/episodes"),
        "state": state,
        "stoppable": stoppable,
        "done": last.get("env_steps", 0),
        "playable": opened.finished or bool(opened.checkpoints.files()),
        "learns_from_demos": spec.demos is not None and spec.algorithm.needs_demos,
    }


def _last(opened: Run) -> dict[str, Any]:
    """The newest value of every metric."""
    path, merged = opened.metrics.path, {}
    size = path.stat().st_size if path.exists() else 0
    for row in opened.metrics.tail(max(0, size - TAIL))[0]:
        merged |= row
    return merged


def _policy(config: StudioConfig, path: Path, until: float) -> dict[str, Any]:
    """A file written by `agent.save`, with the fields of a run. `env` is None for any other file."""
    note = policy_about(path, until)
    env = note.get("env") if "config" in note else None
    about = {"title": note.get("title"), "seed": note.get("seed"), "done": note.get("env_steps")}
    about |= {"problem": note.get("problem"), "env": env, "allowed": isinstance(env, str) and config.allows(env)}
    return {"name": name_of(config.folder, path)} | about


def _listed(name: str, demos: Demonstrations) -> dict[str, Any]:
    recorded = demos.about.get("recorded", [])
    recorded = [{}] * (len(demos) - len(recorded)) + recorded  # imported episodes come first
    rows = []
    for episode, about in zip(demos, recorded):
        end = "terminated" if episode.terminated else "truncated" if episode.truncated else "cut off"
        reward = None if episode.rewards is None else episode.total_reward
        row = {"mark": recorder.mark_of(episode), "steps": len(episode), "reward": reward, "end": end}
        rows.append(row | {"violations": about.get("violations")})
    return {"name": name, "env": demos.env_id, "episodes": rows}
