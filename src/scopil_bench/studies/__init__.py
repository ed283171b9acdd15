"""Studies: each owns everything about one task. `find` looks one up by name."""

from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from scopil.errors import ConfigError

if TYPE_CHECKING:
    from scopil_bench.studies.base import Study

GROUP = "scopil.studies"  # entry points of other packages: name = "module:STUDY"
_OURS = {
    "paper": "scopil_bench.studies.paper.study:STUDY",
    "unseen": "scopil_bench.studies.unseen:STUDY",
    "external": "scopil_bench.studies.external.study:STUDY",
    "half-cheetah-wall": "scopil_bench.studies.external.half_cheetah_study:STUDY",
    "lunar-lander": "scopil_bench.studies.external.lunar_lander:STUDY",
    "lap-grid-world": "scopil_bench.studies.external.lap_grid_study:STUDY",
}


def names() -> list[str]:
    """Every study that can be found, without importing any."""
    return list(dict.fromkeys([*_OURS, *(point.name for point in entry_points(group=GROUP))]))


def find(name: str) -> "Study":
    """A study of ours, of an installed package, or in a file (`my_study.toml`, `my_study.py`): the caller's word, never
    a file's."""
    from scopil_bench.studies.study_file import is_study_file, read_study

    return read_study(name) if is_study_file(name) else find_installed(name)


def find_installed(name: str) -> "Study":
    """A study of ours or of an installed package. No file is read, so that a folder may name it."""
    if name in _OURS:
        module, _, attribute = _OURS[name].partition(":")
        return getattr(import_module(module), attribute)
    for point in entry_points(group=GROUP):
        if point.name == name:
            return _checked(point.load(), point.value)
    raise ConfigError(
        f"no study {name!r}; there are {', '.join(names())}, and files of your own (my_study.toml, my_study.py)."
    )


def registered() -> "dict[str, Study]":
    return {name: find(name) for name in names()}


def _checked(found: Any, source: str) -> "Study":
    from scopil_bench.studies.base import Study

    if not isinstance(found, Study):
        raise ConfigError(f"entry point {source} is a {type(found).__name__}; want a scopil_bench.studies.base.Study.")
    return found
