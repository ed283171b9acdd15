"""Progress of training: steps, speed and a few metrics. Terminals show two live lines, other outputs plain lines."""

import time

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from scopil.algos.base import Algorithm
from scopil.terminal import Console
from scopil.train.trainer import TrainStatus

SHOWN = {
    "episode/return": "return",  # of training episodes
    "episode/steps": "steps",
    "eval/violations": "eval viol",
    "eval/episodes": "eval episodes",
}  # for every algorithm
PAUSE = 10.0  # seconds between two plain lines; each evaluation also prints a line


class ProgressLines:
    """A context manager. Call it with each `TrainStatus`. It shows the algorithm's title and the curves that have a
    short label. `total`: environment steps at the end of training; `every_metric`: print each row of metrics."""

    def __init__(self, algorithm: Algorithm, total: int, console: Console | None = None, *, every_metric: bool = False):
        self._title, self._total = algorithm.title, total
        self._labels = SHOWN | {curve.metric: curve.short for curve in algorithm.curves if curve.short}
        self._console, self._every_metric = console or Console(), every_metric
        self.steps, self._doing = 0, "compiling"
        self._printed: float | None = None  # time of the last plain line
        self._first: tuple[float, int] | None = None  # time and steps at the first call, after compilation
        self._rate: float | None = None
        self._numbers: dict[str, float] = {}
        live = Live(console=self._console, get_renderable=self._lines, refresh_per_second=4)
        self._live = live if self._console.is_terminal else None

    def __call__(self, status: TrainStatus) -> None:
        self._numbers |= {k: v for k, v in status.metrics.items() if k in self._labels and v == v}
        now, self.steps = time.monotonic(), status.env_steps
        if self._first is None:
            self._first = now, status.env_steps
        elif now > self._first[0]:
            self._rate = (status.env_steps - self._first[1]) / (now - self._first[0])
        if self._every_metric:
            row = "  ".join(f"{name} {value:.4g}" for name, value in status.metrics.items())
            self._console.print(row, highlight=False, soft_wrap=True)
        if self._live is None:
            evaluated = any(name.startswith("eval/") for name in status.metrics)
            self._plain(now, at_once=evaluated or self.steps >= self._total)

    def doing(self, what: str) -> None:
        """Say what happens before the first chunk."""
        self._doing = what
        if self._live is None:
            self._console.print(f"{self._title}  {what} …", highlight=False, soft_wrap=True)

    def moved(self, steps: int) -> None:
        """Update the number of steps between two calls."""
        self.steps = steps
        if self._live is None:
            self._plain(time.monotonic())

    def _plain(self, now: float, at_once: bool = False) -> None:
        if not at_once and self._printed is not None and now - self._printed < PAUSE:
            return
        self._printed = now
        words = [self._title, f"{self.steps:,}/{self._total:,} steps", *filter(None, self._speed())]
        self._console.print("  ".join([*words, self._shown()]), highlight=False, soft_wrap=True)

    def _shown(self) -> str:
        return "  ".join(f"{name} {self._numbers[k]:.3g}" for k, name in self._labels.items() if k in self._numbers)

    def _lines(self) -> Group:
        line = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=self._total, completed=min(self.steps, self._total), width=20)
        line.add_row(Text(self._title, "bold"), bar, f"{self.steps:,}/{self._total:,}", *self._speed())
        return Group(line, Text(self._shown() or f"{self._doing} …", "dim"))

    def _speed(self) -> tuple[str, str]:
        if not self._rate:
            return "", ""
        left = max(self._total - self.steps, 0) / self._rate
        return (f"{self._rate:,.0f} steps/s", f"{left // 3600:.0f}:{left // 60 % 60:02.0f}:{left % 60:02.0f} left")

    def __enter__(self) -> "ProgressLines":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()
