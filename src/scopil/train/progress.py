"""A live line while training: speed, time left, and the numbers one watches."""

import math
import time

from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from scopil.train.trainer import Report

SHOWN = {
    "episode/return": "return",
    "episode/steps": "steps",
    "dual/lambda": "λ",
    "dual/constraint": "G",
    "alpha/value": "α",
    "alpha/entropy": "H",
    "eval/violations": "viol",
}


class Progress:
    """Use as a context manager and call it with each report."""

    def __init__(self, title: str, done: int, total: int):
        self._bar = RichProgress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            _Speed(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
        )
        self._task = self._bar.add_task(
            title, total=total, completed=done, numbers="compiling …", speed=math.nan
        )
        self._begun, self._first = time.monotonic(), done
        self._numbers: dict[str, float] = {}

    def __call__(self, report: Report) -> None:
        self._numbers |= {k: v for k, v in report.metrics.items() if k in SHOWN and v is not None}
        text = "  ".join(f"{SHOWN[k]} {self._numbers[k]:.3g}" for k in SHOWN if k in self._numbers)
        speed = (report.env_steps - self._first) / (time.monotonic() - self._begun)
        self._bar.update(self._task, completed=report.env_steps, numbers=text, speed=speed)

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()


class _Speed(ProgressColumn):
    def render(self, task) -> Text:
        speed = task.fields["speed"]
        return Text("" if math.isnan(speed) else f"{speed:,.0f} steps/s", style="cyan")
