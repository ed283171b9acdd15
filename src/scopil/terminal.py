"""Output to the terminal. Names and texts may come from files, so that control characters in them are shown as `?`:
an escape sequence could hide lines, change the title or write to the clipboard."""

from collections.abc import Iterable
from typing import Any

from rich import console
from rich.segment import Segment


def printable(text: str) -> str:
    """The text with `?` in place of every character that is neither printable nor a line break or tab."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def say(text: str, **options: Any) -> None:
    """`print` for text that may come from a file."""
    print(printable(text), **options)


class Console(console.Console):
    """A rich console that prints text as it is: no markup, no emoji codes, no control characters. Styles are arguments,
    or a `rich.text.Text`."""

    def __init__(self, *, markup: bool = False, **options: Any) -> None:
        super().__init__(markup=markup, emoji=False, **options)

    def render(self, renderable: Any, options: console.ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
