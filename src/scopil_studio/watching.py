"""What lies in the studio's folder: runs with their curves, sets of demonstrations, reports."""

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import gymnasium as gym

from scopil.config import settings as settings_of
from scopil.data import editing, storage
from scopil.data.dataset import Demonstrations, describe_space
from scopil.errors import ConfigError, ScopilError
from scopil.files import is_locked
from scopil.registry import registered
from scopil.serialization import read_note
from scopil.train.run import Run
from scopil_studio import training_jobs
from scopil_studio.places import holders, inside, name_of, policies, refuse_outside, sets
from scopil_studio.worker import Setting

LAST = 16 * 1024  # bytes of a metrics file that hold its last rows
RUN_FILES = ("run.json", "versions.json", "metrics.jsonl", ".lock", "demos.npz", "policy.safetensors", "checkpoints")
LARGEST_REPORT = 64 * 2**20


def overview(setting: Setting) -> dict[str, Any]:
    """Everything that the pages list."""
    home = setting.folder
    return {
        "folder": str(home),
        "runs": [_summary(setting, folder) for folder in holders(home, "run.json")],
        "starting": training_jobs.starting(home),
        "sets": [_set(home, path) for path in sets(home)],
        "shipped": [_about_set(name, path) for name, path in storage.library().items()],
        "policies": [_policy(home, path) for path in policies(home)],
        "reports": [name_of(home, folder) or "." for folder in holders(home, "report.html")],
        "envs": [*setting.envs, *sorted(gym.registry)],
        "algorithms": [
            {"name": name, "title": a.title, "about": a.summary, "needs_demos": a.needs_demos, "steps": a.budget}
            for name, a in registered().items()
        ],
    }


def run(setting: Setting, name: str, since: int = 0) -> dict[str, Any]:
    """A run, with the rows of its metrics behind `since` bytes."""
    folder = inside(setting.folder, name)
    opened = _open(setting, folder)
    rows, offset = opened.metrics.tail(since)
    try:
        versions = json.loads((folder / "versions.json").read_text())
    except (OSError, ValueError):
        versions = {}
    about = _summary(setting, folder)
    return about | {
        "settings": opened.note(),
        "versions": versions,
        "rows": rows,
        "offset": offset,
        "again": offset < since,  # the file is another than before: forget the old rows
        "log": training_jobs.log(setting.folder, folder),
    }


def settings(setting: Setting, algorithm: str) -> dict[str, Any]:
    """The settings of an algorithm, as `scopil train ALGORITHM --help` has them."""
    if algorithm not in registered():
        raise ConfigError(f"no algorithm {algorithm[:40]!r}; there are {', '.join(registered())}.")
    found = settings_of(registered()[algorithm].config)
    return {"settings": [{"name": s.name, "default": str(s.default), "about": f"{s.about} {s.range}"} for s in found]}


def episodes(setting: Setting, name: str) -> dict[str, Any]:
    """The episodes of a set, with their notes. A file that is about to be recorded into has none."""
    path = set_path(setting, name)
    return _listed(name, storage.read(path)) if path.exists() else {"name": name, "episodes": []}


def note(setting: Setting, name: str, mark: str, text: str) -> dict[str, Any]:
    return _listed(name, editing.annotate(inside(setting.folder, name), mark, text))


def drop(setting: Setting, name: str, mark: str) -> dict[str, Any]:
    left = editing.drop(inside(setting.folder, name), mark)
    return {"name": name, "episodes": []} if left is None else _listed(name, left)


def report(setting: Setting, name: str) -> tuple[dict[str, Any], bytes]:
    """The report of a study or of runs, as `scopil report` has written it."""
    folder = setting.folder if name == "." else inside(setting.folder, name)
    file = refuse_outside(setting.folder, folder / "report.html")
    if not file.is_file() or file.stat().st_size > LARGEST_REPORT:
        raise ConfigError(f"{name} has no report.html of at most {LARGEST_REPORT >> 20} MB; scopil report writes one.")
    return {}, file.read_bytes()


def set_path(setting: Setting, name: str) -> Path:
    """A shipped set, or a file of the folder."""
    return storage.library().get(name) or inside(setting.folder, name)


def _open(setting: Setting, folder: Path) -> Run:
    refuse_outside(setting.folder, *(folder / file for file in RUN_FILES))
    return Run.open(folder)


def _summary(setting: Setting, folder: Path) -> dict[str, Any]:
    about: dict[str, Any] = {"name": name_of(setting.folder, folder)}
    try:
        opened = _open(setting, folder)
        spec, last = opened.spec, _last(opened)
        unfinished = "training" if is_locked(folder / ".lock") else "stopped"
        state = "finished" if opened.finished else unfinished
        return about | {
            "state": state,
            "ours": state == "training" and training_jobs.running(setting.folder, folder) is not None,
            "algorithm": spec.algorithm.name,
            "title": spec.algorithm.title,
            "env": spec.env,
            "seed": spec.seed,
            "steps": spec.steps,
            "done": last.get("env_steps", 0),
            "reward": last.get("eval/reward"),
            "violations": last.get("eval/violations"),
            "playable": opened.finished or opened.checkpoints.newest() is not None,
        }
    except (ScopilError, OSError) as error:
        return about | {"state": "damaged", "problem": str(error)}


def _last(opened: Run) -> dict[str, Any]:
    """The last row, and the last evaluation."""
    try:
        size = opened.metrics.path.stat().st_size
    except OSError:
        return {}
    merged: dict[str, Any] = {}
    for row in opened.metrics.tail(max(0, size - LAST))[0]:
        merged |= row
    return merged


def _policy(home: Path, path: Path) -> dict[str, Any]:
    """A file of `agent.save`, described as a run is; one of something else has no environment."""
    try:
        note = read_note(path)
    except (ScopilError, OSError):
        note = {}
    about = {"title": note.get("title"), "seed": note.get("seed"), "done": note.get("env_steps")}
    return {"name": name_of(home, path), "env": note.get("env") if "config" in note else None} | about


def _set(home: Path, path: Path) -> dict[str, Any]:
    return _about_set(name_of(home, path), path)


def _about_set(name: str, path: Path) -> dict[str, Any]:
    try:
        state = path.stat()
        return {"name": name} | _counts(path, state.st_mtime_ns, state.st_size)
    except (ScopilError, OSError) as error:
        return {"name": name, "problem": str(error)}


@lru_cache(maxsize=512)
def _counts(path: Path, changed: int, size: int) -> dict[str, Any]:
    """Read once for every state of the file."""
    demos = storage.read(path)
    return {"env": demos.env_id, "episodes": len(demos), "steps": demos.pairs}


def _listed(name: str, demos: Demonstrations) -> dict[str, Any]:
    notes, recorded = editing.notes_of(demos), demos.about.get("recorded", [])
    before = len(demos) - len(recorded)
    rows = []
    for i, episode in enumerate(demos):
        mark = editing.mark_of(episode)
        kept = recorded[i - before] if i >= before else {}
        rows.append(
            {
                "mark": mark,
                "steps": len(episode),
                "reward": None if episode.rewards is None else episode.total_reward,
                "end": "terminated" if episode.terminated else "truncated" if episode.truncated else "cut off",
                "violations": kept.get("violations"),
                "note": str(notes.get(mark, "")),
            }
        )
    actions = describe_space(demos.action_space)
    return {"name": name, "env": demos.env_id, "actions": actions, "episodes": rows}


VERBS: dict[str, Callable[..., Any]] = {
    "overview": overview,
    "run": run,
    "settings": settings,
    "episodes": episodes,
    "note": note,
    "drop": drop,
    "report": report,
    "start": training_jobs.start,
    "stop": training_jobs.stop,
    "resume": training_jobs.resume,
}
