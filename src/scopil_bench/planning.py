"""The runs of a study in a folder.

<out>/study.json                      the study and its budget
<out>/demos/<task>.npz                demonstrations that the study makes
<out>/runs/<task>/<method>-<seed>/    run folders
"""

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from scopil.data import storage
from scopil.errors import ConfigError, DatasetError, EnvError
from scopil.eval.rules import name_of_rules
from scopil.files import is_line, parse_json, write_atomically
from scopil.train.run import Run, RunSpec
from scopil_bench.runner import prepare
from scopil_bench.studies.base import Study, run_folder
from scopil_bench.summaries import Cell

NOTE = "study.json"


class Note(NamedTuple):
    """The content of study.json."""

    study: str
    budget: str
    steps: int | None = None  # steps per run; None: those of the budget
    source: str | None = None  # the study's file, if it has one

    def words(self) -> str:
        steps = "" if self.steps is None else f" and {self.steps:,} steps"
        return f"study {self.study} with budget {self.budget}{steps}"


def plan(
    study: Study, out: Path, budget: str, wanted: Sequence[Cell], seeds: int, steps: int | None = None
) -> list[tuple[Path, RunSpec]]:
    """The folder and the spec of every run. All methods run with the first seed before the second, so that a study that
    is stopped early has results in every row."""
    made: list[tuple[Path, RunSpec]] = []
    for seed in range(seeds):
        for cell in wanted:
            spec = study.spec(budget, cell, seed, demos_name(study, out, cell.setting))
            made.append((run_folder(out, cell, seed), spec if steps is None else replace(spec, steps=steps)))
    return made


def create(
    study: Study,
    out: Path,
    budget: str,
    wanted: Sequence[Cell],
    seeds: int,
    steps: int | None = None,
    option: str = "--only",
) -> list[Run]:
    """Open or create the planned runs. A folder that holds another study or budget is refused. `option` is the
    command's option that selects tasks, for error messages."""
    note = Note(study.name, budget, steps, study.source)
    if is_study_folder(out) and (there := read_note(out))[:3] != note[:3]:  # the path of the study's file may differ
        raise ConfigError(f"{out} holds {there.words()}, not {note.words()}: name another folder.")
    tasks = list(dict.fromkeys(cell.setting for cell in wanted))
    write_demos(study, out, tasks, option)
    kept = {key: value for key, value in note._asdict().items() if key != "source" or value is not None}
    write_atomically(out / NOTE, json.dumps(kept, indent=1).encode() + b"\n")
    made = []
    for folder, spec in plan(study, out, budget, wanted, seeds, steps):
        with _others_remain(study, folder.parent.name, tasks, option):
            made.append(prepare(folder, spec))
    return made


def write_demos(study: Study, out: Path, tasks: Collection[str], option: str = "--only") -> None:
    """Write the demonstrations that the study makes, if they do not exist."""
    for task in tasks:
        demos = study.tasks[task].demos
        if callable(demos) and not (file := _demos_file(out, task)).exists():
            with _others_remain(study, task, tasks, option):
                storage.write(demos(), file)


@contextmanager
def _others_remain(study: Study, task: str, wanted: Collection[str], option: str) -> Iterator[None]:
    """If an environment or demonstrations are missing, add the other wanted tasks to the error message."""
    try:
        yield
    except (EnvError, DatasetError) as error:
        remain = {*wanted} - {task}
        others = [name for name, table in study.tables.items() if table.setting in remain]
        if not others:
            raise
        raise type(error)(f"{error} Or leave {task} out: {option} {','.join(others)}") from error


def demos_name(study: Study, out: Path, task: str) -> str | None:
    demos = study.tasks[task].demos
    return str(_demos_file(out, task)) if callable(demos) else demos


def _demos_file(out: Path, task: str) -> Path:
    return out / "demos" / f"{task}.npz"


def read_note(out: Path) -> Note:
    try:
        note = Note(**parse_json((out / NOTE).read_bytes()))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{out / NOTE} is damaged: {error}.") from error
    if not is_line(note.study) or not is_line(note.budget) or not isinstance(note.steps, int | None):
        raise ConfigError(f"{out / NOTE} is damaged: {str(note)[:80]}.")
    return note


def _known(study: Study, method: str) -> bool:
    """Whether the study knows the method: it may have been renamed in the study's file, or its package removed."""
    try:
        return bool(study.title_of(method))
    except ConfigError:
        return False


def is_study_folder(out: Path) -> bool:
    return (out / NOTE).exists()


def has_runs(out: Path) -> bool:
    """Whether the folder has run folders."""
    return any((out / "runs").glob("*/*/run.json"))


def found(study: Study, out: Path) -> dict[Cell, list[Run]]:
    """All runs in the folder, by cell: the study's cells in its order, then other cells."""
    runs: dict[Cell, list[Run]] = {cell: [] for cell in study.cells()}
    for name, task in study.tasks.items():
        for file in sorted((out / "runs" / name).glob("*-*/run.json")):
            method, _, seed = file.parent.name.rpartition("-")
            if seed.isdigit() and _known(study, method):
                run = Run.open(file.parent)
                run.trust_if_named(task.env, name_of_rules(task.rules))
                runs.setdefault(Cell(name, method), []).append(run)
    return {cell: sorted(each, key=lambda run: run.spec.seed) for cell, each in runs.items() if each}
