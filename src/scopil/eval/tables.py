"""Tables of measures, for the terminal and for Markdown."""

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rich.measure import Measurement
from rich.table import Table

from scopil.eval.measures import COUNTS, Measures, is_never, label, never, violating_words
from scopil.terminal import Console

RULES_NOT_KNOWN = "rules not known"
NEVER = "0 (≤ p): no violation was seen; with 95 % confidence, at most the share p of episodes has one."
Value = float | tuple[float, float] | str
_BOUNDLESS = Console(width=10_000)


def columns(rows: Mapping[str, Mapping[str, Value]]) -> list[str]:
    """All measures in order: reward, each rule, sums over rules, all others."""
    seen = list(dict.fromkeys(name for row in rows.values() for name in row))
    rules = sorted({name.partition("/")[2] for name in seen if name.startswith("violations/")})
    wanted = ["reward"]
    for rule in rules:
        wanted += [f"violations/{rule}", f"frequency/{rule}"]
    if len(rules) != 1:  # with one rule, the sum equals that rule
        wanted += ["violations", "frequency"]
    wanted += ["avoidable"]
    hidden = {"violations", "frequency"}
    return [n for n in wanted if n in seen] + [n for n in seen if n not in wanted and n not in hidden]


def missing(name: str) -> str:
    """The cell of a measure without a value. Violations that were not counted are no zero."""
    return RULES_NOT_KNOWN if name in COUNTS else "–"


def rules_not_known(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """A sentence about the rows whose violations were not counted; empty if there are none."""
    names = [name for name, row in rows.items() if "violations" not in row]
    return f"{RULES_NOT_KNOWN}: {'; '.join(names)}. --rules FILE counts violations." if names else ""


def with_bounds(row: Mapping[str, Value], episodes: int) -> dict[str, Value]:
    """The means over so many episodes, where each count that is 0 in all of them becomes its bound in words."""
    means = {name: value[0] if isinstance(value, tuple) else value for name, value in row.items()}
    return {k: never(episodes) if is_never(k, means[k]) else value for k, value in row.items()}


def cell(name: str, value: Value | None) -> str:
    if value is None:
        return missing(name)
    if isinstance(value, str):
        return value
    digits = 4 if name.startswith("frequency") else 3 if name.startswith(("violations", "avoidable")) else 2
    if isinstance(value, tuple) and math.isnan(value[1]):  # a single episode has no interval
        value = value[0]
    if isinstance(value, tuple):
        return f"{value[0]:.{digits}f}±{value[1]:.{digits}f}"
    return f"{value:.{digits}f}"


def print_measures(
    rows: Mapping[str, Mapping[str, Value]], title: str | None = None, console: Console | None = None
) -> None:
    """Print one row per policy or, if the table is too wide for the terminal, one row per measure or headings of
    several lines. `rows` maps row names to measures: numbers, (mean, deviation) or words of `with_bounds`."""
    console = console or Console()
    forms = [measures_table(rows, title, *how) for how in ((False, False), (True, False), (False, True), (True, True))]
    needs = [Measurement.get(_BOUNDLESS, _BOUNDLESS.options, table).maximum for table in forms]
    chosen = next((i for i, need in enumerate(needs) if need <= console.width), needs.index(min(needs)))
    width = max(console.width, needs[chosen])  # wrapped lines are better than truncated columns
    Console(file=console.file, width=width, force_terminal=console.is_terminal).print(forms[chosen])
    if any(isinstance(value, str) for row in rows.values() for value in row.values()):
        console.print(NEVER, highlight=False, soft_wrap=True)


def print_margins(measures: Sequence[Measures], console: Console) -> None:
    """Print what ± means in a row of `with_margin`, and how many episodes have a violation."""
    if len(measures) < 2:
        return
    for line in ("± is half of the 95 % interval of the mean over these episodes.", violating_words(measures)):
        if line:
            console.print(line, highlight=False, soft_wrap=True)


def measures_table(
    rows: Mapping[str, Mapping[str, Value]], title: str | None = None, tall: bool = False, narrow: bool = False
) -> Table:
    """One row per policy, or per measure if `tall`. `narrow`: one line per word of a heading."""
    cells = measures_grid(rows)
    if tall:
        cells = [list(column) for column in zip(*cells)]
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for i, head in enumerate(cells[0]):
        head = head.replace(" ", "\n") if narrow else head
        table.add_column(head, justify="right" if i else "left", no_wrap=True)
    for line in cells[1:]:
        table.add_row(*line)
    return table


def markdown_table(rows: Mapping[str, Mapping[str, Value]]) -> str:
    """The table of `print_measures` as Markdown."""
    lines = ["| " + " | ".join(map(escape_markdown, line)) + " |" for line in measures_grid(rows)]
    return "\n".join([lines[0], "|---" * (lines[0].count(" | ") + 1) + "|", *lines[1:]]) + "\n"


def measures_grid(rows: Mapping[str, Mapping[str, Value]]) -> list[list[str]]:
    """The header, then one line per row."""
    names = columns(rows)
    lines = [[row_name, *(cell(name, row.get(name)) for name in names)] for row_name, row in rows.items()]
    return [["", *map(label, names)], *lines]


def per_episode(measures: Sequence[Measures]) -> dict[str, Measures]:
    return {f"episode {i}": m for i, m in enumerate(measures)}


def escape_markdown(text: str) -> str:
    """The text on one line, escaped so that Markdown reads no tag, link, image, code or table cell in it."""
    return re.sub(r"([\\`|]|\](?=[(\[:]))", r"\\\1", escape(" ".join(text.split()), quote=False))
