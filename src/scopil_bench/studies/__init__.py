"""Studies and their registry: `find` returns a study by name or from a file."""

from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from scopil.errors import ConfigError

if TYPE_CHECKING:
    from scopil_bench.studies.base import Study

GROUP = "scopil.studies"  # entry points of other packages: name = "module:STUDY"
_OURS = {
    "paper": "scopil_bench.studies.paper.study:STUDY",
    "unseen": "scopil_bench.studies.unseen:STUDY",
    "rules": "scopil_bench.studies.rules.study:STUDY",
    "external": "scopil_bench.studies.external.study:STUDY",
    "needle-master": "scopil_bench.studies.needle_master.study:STUDY",
    "field": "scopil_bench.studies.field:STUDY",
}


def names() -> list[str]:
    """Every registered study. No study is imported."""
    return list(dict.fromkeys([*_OURS, *(point.name for point in entry_points(group=GROUP))]))


def find(name: str) -> "Study":
    """A study that is built in, in an installed package, or in a file (`my_study.toml`, `my_study.py`). A file may run
    code, so `name` must come from the caller, never from a file."""
    from scopil_bench.studies.study_file import is_study_file, read_study

    return read_study(name) if is_study_file(name) else find_installed(name)


def find_installed(name: str) -> "Study":
    """A study that is built in or in an installed package. No file is read, so a run folder may supply the name."""
    if name in _OURS:
        module, _, attribute = _OURS[name].partition(":")
        return getattr(import_module(module), attribute)
    for point in entry_points(group=GROUP):
        if point.name == name:
            from scopil_bench.studies.base import Study

            if not isinstance(found := point.load(), Study):
                raise ConfigError(f"entry point {point.value} is a {type(found).__name__}; want a scopil_bench.Study.")
            return found
    raise ConfigError(f"no study {name!r}; there are {', '.join(names())}, and files (my_study.toml, my_study.py).")
