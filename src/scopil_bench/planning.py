"""The runs of a study in a folder.

<out>/study.json                      the study and its budget
<out>/demos/<task>.npz                demonstrations that the study makes
<out>/runs/<task>/<method>-<seed>/    run folders
"""

import hashlib
import inspect
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from scopil.config import code_in
from scopil.data import storage
from scopil.envs.naming import OWN_CODE, split_options
from scopil.errors import ConfigError
from scopil.eval.rules import name_of_rules
from scopil.files import is_line, parse_json, write_atomically
from scopil.signing import is_signed, sign
from scopil.train.run import Run, RunSpec
from scopil.user_code import is_file_name, local_files
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
    files: Mapping[str, str] = {}  # SHA-256 of the study's file and of the code that it names, by path
    signature: str | None = None  # of these, by the user's key

    def signed(self) -> dict[str, Any]:
        return {"study": self.study, "source": self.source, "files": self.files}

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
    study: Study, out: Path, budget: str, wanted: Sequence[Cell], seeds: int, steps: int | None = None
) -> list[Run]:
    """Open or create the planned runs. A folder that holds another study or budget is refused."""
    note = Note(study.name, budget, steps, study.source, _files(study))
    if is_study_folder(out) and (there := read_note(out))[:3] != note[:3]:  # the path of the study's file may differ
        raise ConfigError(f"{out} holds {there.words()}, not {note.words()}: name another folder.")
    write_demos(study, out, dict.fromkeys(cell.setting for cell in wanted))
    note = note._replace(signature=sign(note.signed()))
    coded = ("source", "files", "signature")  # only a study in a file has these
    kept = {key: value for key, value in note._asdict().items() if key not in coded or study.source is not None}
    write_atomically(out / NOTE, json.dumps(kept, indent=1).encode() + b"\n")
    return [prepare(folder, spec) for folder, spec in plan(study, out, budget, wanted, seeds, steps)]


def write_demos(study: Study, out: Path, tasks: Iterable[str]) -> None:
    """Write the demonstrations that the study makes, if they do not exist."""
    for task in tasks:
        demos = study.tasks[task].demos
        if callable(demos) and not (file := _demos_file(out, task)).exists():
            storage.write(demos(), file)


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
    lines = [note.study, note.budget, *([] if note.source is None else [note.source])]
    if not isinstance(note.files, dict) or not isinstance(note.steps, int | None):
        raise ConfigError(f"{out / NOTE} is damaged: {str(note)[:80]}.")
    if not all(map(is_line, [*lines, *note.files, *note.files.values()])):
        raise ConfigError(f"{out / NOTE} is damaged: {str(note)[:80]}.")
    return note


def refuse_foreign(out: Path, note: Note) -> None:
    """Raise unless this user's key signed the study's file and code, and they are unchanged."""
    again = f"scopil study {note.source} --out {out} reports it; so does --trust-env, if you trust the file"
    if not is_signed(note.signed(), note.signature):
        raise ConfigError(f"{out} holds a study of the file {note.source}, and your key did not sign it: {again}.")
    for file, digest in note.files.items():
        if not Path(file).is_file() or _digest(Path(file)) != digest:
            raise ConfigError(f"{file} has changed or is missing since {out} was made: {again}.")


def _files(study: Study) -> dict[str, str]:
    """The digests of a study's file and of the user's code that it names."""
    if study.source is None:
        return {}
    found = {Path(study.source).absolute()}
    own = [name for method in study.methods.values() if (name := code_in(method.config))]
    found |= {file for name in own for file in local_files(name).values()}
    for task in study.tasks.values():
        names = [split_options(task.env)[0], name_of_rules(task.rules)]
        used = [getattr(used, "func", used) for used in (task.rules, task.demos, task.demonstrator)]
        names += [file for one in used if (file := _source_of(one))]
        names = [name for name in names if name and (":" in name or is_file_name(name)) and name not in OWN_CODE]
        found |= {file for name in names for file in local_files(name).values()}
    if is_file_name(study.source):
        found |= set(local_files(study.source).values())
    installed = Path(__file__).parents[1]
    own = [file for file in found if file.is_file() and not file.is_relative_to(installed)]
    return {os.path.relpath(file): _digest(file) for file in sorted(own)}


def _source_of(used: Any) -> str | None:
    """The file of a function, or of the class of another callable object."""
    if not callable(used):
        return None
    try:
        return inspect.getsourcefile(used if inspect.isfunction(used) else type(used))
    except TypeError:  # built-in
        return None


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _known(study: Study, method: str) -> bool:
    """Whether the study knows the method: it may have been renamed in the study's file, or its package removed."""
    try:
        return bool(study.title_of(method))
    except ConfigError:
        return False


def is_study_folder(out: Path) -> bool:
    return (out / NOTE).exists()


def found(study: Study, out: Path) -> dict[Cell, list[Run]]:
    """All runs in the folder, by cell: the study's cells in its order, then other cells."""
    runs: dict[Cell, list[Run]] = {cell: [] for cell in study.cells()}
    for name, task in study.tasks.items():
        for file in sorted((out / "runs" / name).glob("*-*/run.json")):
            method, _, seed = file.parent.name.rpartition("-")
            if seed.isdigit() and _known(study, method):
                run = Run.open(file.parent)
                run.trust_if_named(task.env, name_of_rules(task.rules), code_in(study.method(method).config))
                runs.setdefault(Cell(name, method), []).append(run)
    return {cell: sorted(each, key=lambda run: run.spec.seed) for cell, each in runs.items() if each}
