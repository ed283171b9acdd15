"""The formats in which demonstrations are stored. A new one is one value of `Format`: in a file of ours, or in another
package that publishes it under the entry-point group `scopil.demo_formats`."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points

from scopil.data.dataset import Demonstrations
from scopil.errors import DatasetError


@dataclass(frozen=True, kw_only=True)
class Format:
    """One way of storing demonstrations."""

    name: str
    matches: Callable[[str], bool]  # (source) → whether the source is written so: by its prefix, ending or kind
    read: Callable[[str], Demonstrations]
    about: Callable[[str], str]  # (source) → what `scopil demos check` says of it


@cache
def installed() -> tuple[Format, ...]:
    """Formats of other packages."""
    found = tuple(point.load() for point in entry_points(group="scopil.demo_formats"))
    for wrong in (f for f in found if not isinstance(f, Format)):
        raise DatasetError(
            f"an entry point of scopil.demo_formats is a {type(wrong).__name__}; want a scopil.data.formats.Format."
        )
    return found
