"""What a command does while its user waits. Terminals show a live line, other outputs plain lines."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.text import Text

from scopil.terminal import Console
from scopil.train.progress import PAUSE


@contextmanager
def counting(what: str, total: int | None, console: Console | None = None) -> Iterator[Callable[[int], None]]:
    """Show how many of `total` are done. The value is a function that adds to their number."""
    console = console or Console()
    done, printed = 0, time.monotonic()
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)

        def advance(more: int = 1) -> None:
            nonlocal done, printed
            done += more
            bar.advance(task, more)
            if not console.is_terminal and time.monotonic() - printed >= PAUSE:
                printed = time.monotonic()
                console.print(f"{what}: {done:,}{'' if total is None else f' of {total:,}'}", highlight=False)

        yield advance


def doing(what: str, console: Console) -> AbstractContextManager[object]:
    """Show what the command is doing."""
    if console.is_terminal:
        return console.status(Text(f"{what} …"))
    console.print(f"{what} …", highlight=False, soft_wrap=True)
    return nullcontext()
