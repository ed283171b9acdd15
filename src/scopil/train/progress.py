"""Two live lines while training: how far and how fast, and the numbers to watch."""

import time

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from scopil.train.trainer import TrainStatus

SHOWN = {
    "episode/return": "return",
    "episode/steps": "steps",
    "dual/lambda": "λ",
    "dual/constraint": "G",
    "alpha/value": "α",
    "alpha/entropy": "H",
    "eval/violations": "viol",
}


class ProgressLines:
    """Use as a context manager and call it with each status."""

    def __init__(self, title: str, total: int, console: Console | None = None):
        self._title, self._total = title, total
        self._steps = 0
        self._first: tuple[float, int] | None = None  # time and steps at the first call: compiling is over
        self._rate: float | None = None
        self._numbers: dict[str, float] = {}
        self._live = Live(console=console, get_renderable=self._lines, refresh_per_second=4)

    def __call__(self, status: TrainStatus) -> None:
        self._numbers |= {k: v for k, v in status.metrics.items() if k in SHOWN and v == v}
        now, self._steps = time.monotonic(), status.env_steps
        if self._first is None:
            self._first = now, status.env_steps
        elif now > self._first[0]:
            self._rate = (status.env_steps - self._first[1]) / (now - self._first[0])

    def _lines(self) -> Group:
        line = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=self._total, completed=min(self._steps, self._total), width=20)
        line.add_row(Text(self._title, "bold"), bar, f"{self._steps:,}/{self._total:,}", *self._speed())
        numbers = "  ".join(
            f"{name} {self._numbers[k]:.3g}" for k, name in SHOWN.items() if k in self._numbers
        )
        return Group(line, Text(numbers or "compiling …", "dim"))

    def _speed(self) -> tuple[str, str]:
        if not self._rate:
            return "", ""
        left = max(self._total - self._steps, 0) / self._rate
        return (
            f"{self._rate:,.0f} steps/s",
            f"{left // 3600:.0f}:{left // 60 % 60:02.0f}:{left % 60:02.0f} left",
        )

    def __enter__(self) -> "ProgressLines":
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()
        if not self._live.console.is_terminal:  # where rich draws once and leaves the line open
            self._live.console.line()
