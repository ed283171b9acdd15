"""The runs of a study in a folder: planned, created, and found again.

<out>/study.json                         which study and budget the folder holds
<out>/demos/<setting>.npz                demonstrations that the study makes itself
<out>/runs/<setting>/<method>-<seed>/    run folders
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
    """What a folder holds."""

    study: str
    budget: str
    steps: int | None = None  # per run, where they are not the budget's
    source: str | None = None  # the study's file, where it has one

    def words(self) -> str:
        steps = "" if self.steps is None else f" and {self.steps:,} steps"
        return f"study {self.study} with budget {self.budget}{steps}"


def plan(
    study: Study, out: Path, budget: str, wanted: Sequence[Cell], seeds: int, steps: int | None = None
) -> list[tuple[Path, RunSpec]]:
    """Every run. The first seed of all methods comes first, so that a study stopped early has something in each row."""
    made: list[tuple[Path, RunSpec]] = []
    for seed in range(seeds):
        for cell in wanted:
            spec = study.spec(budget, cell, seed, demos_name(study, out, cell.setting))
            made.append((run_folder(out, cell, seed), spec if steps is None else replace(spec, steps=steps)))
    return made


def create(
    study: Study, out: Path, budget: str, wanted: Sequence[Cell], seeds: int, steps: int | None = None
) -> list[Run]:
    """The planned runs, opened or created; refuses a folder that holds another study or budget."""
    note = Note(study.name, budget, steps, study.source)
    if is_study_folder(out) and (there := read_note(out))[:3] != note[:3]:  # its file may be spelt otherwise
        raise ConfigError(f"{out} holds {there.words()}, not {note.words()}: name another folder.")
    settings = list(dict.fromkeys(cell.setting for cell in wanted))
    write_demos(study, out, settings)
    kept = {key: value for key, value in note._asdict().items() if key != "source" or value is not None}
    write_atomically(out / NOTE, json.dumps(kept, indent=1).encode() + b"\n")
    made = []
    for folder, spec in plan(study, out, budget, wanted, seeds, steps):
        with _others_remain(study, folder.parent.name, settings):
            made.append(prepare(folder, spec))
    return made


def write_demos(study: Study, out: Path, settings: Collection[str]) -> None:
    """The demonstrations that the study makes itself, once."""
    for setting in settings:
        demos = study.tasks[setting].demos
        if callable(demos) and not (file := _demos_file(out, setting)).exists():
            with _others_remain(study, setting, settings):
                storage.write(demos(), file)


@contextmanager
def _others_remain(study: Study, setting: str, wanted: Collection[str]) -> Iterator[None]:
    """Where an environment or demonstrations are missing, the other wanted settings can be had without them."""
    try:
        yield
    except (EnvError, DatasetError) as error:
        remain = {*wanted} - {setting}
        others = [name for name, table in study.tables.items() if table.setting in remain]
        if not others:
            raise
        raise type(error)(f"{error} Or leave {setting} out: --only {','.join(others)}") from error


def demos_name(study: Study, out: Path, setting: str) -> str | None:
    demos = study.tasks[setting].demos
    return str(_demos_file(out, setting)) if callable(demos) else demos


def _demos_file(out: Path, setting: str) -> Path:
    return out / "demos" / f"{setting}.npz"


def read_note(out: Path) -> Note:
    try:
        note = Note(**parse_json((out / NOTE).read_bytes()))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{out / NOTE} is damaged: {error}.") from error
    if not is_line(note.study) or not is_line(note.budget) or not isinstance(note.steps, int | None):
        raise ConfigError(f"{out / NOTE} is damaged: {str(note)[:80]}.")
    return note


def _known(study: Study, method: str) -> bool:
    """Whether the study still has it: a method may have been renamed in its file, or its package be gone."""
    try:
        return bool(study.title_of(method))
    except ConfigError:
        return False


def is_study_folder(out: Path) -> bool:
    return (out / NOTE).exists()


def has_runs(out: Path) -> bool:
    """False for a folder whose run folders were removed."""
    return any((out / "runs").glob("*/*/run.json"))


def found(study: Study, out: Path) -> dict[Cell, list[Run]]:
    """Every run in the folder, whichever call created it: cells in the study's order, then others."""
    runs: dict[Cell, list[Run]] = {cell: [] for cell in study.cells()}
    for setting in study.tasks:
        for file in sorted((out / "runs" / setting).glob("*-*/run.json")):
            method, _, seed = file.parent.name.rpartition("-")
            if seed.isdigit() and _known(study, method):
                run = Run.open(file.parent)
                named = study.tasks[setting].env, name_of_rules(study.tasks[setting].rules)
                run.trust_env = (run.spec.env, run.spec.rules) == named
                runs.setdefault(Cell(setting, method), []).append(run)
    return {cell: sorted(each, key=lambda run: run.spec.seed) for cell, each in runs.items() if each}
