"""The pictures of a study, from run folders. One is drawn again only when what it shows has changed, and kept when the
runs it shows are gone."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scopil.eval.env_hooks import Drawing
from scopil.eval.pictures import save_panels, save_rows
from scopil.files import write_atomically
from scopil.train.run import Run
from scopil_bench.cache import EPISODES, read_episodes
from scopil_bench.report.page import Picture
from scopil_bench.report.run_groups import DRAWN, IN_A_ROW, episode_rows
from scopil_bench.report.study_tables import Layout
from scopil_bench.report.training_curves import save_curves
from scopil_bench.report.views import View, rows_of
from scopil_bench.summaries import Cell

FIRST = "unseen-starts.png"  # the first picture of a report


class Gallery:
    """A folder of pictures with a note of what each was drawn from."""

    def __init__(self, folder: Path):
        self.folder, self._note = folder, folder / "drawn.json"
        try:
            self._drawn: dict[str, str] = json.loads(self._note.read_text())
        except (OSError, ValueError):
            self._drawn = {}

    def picture(
        self,
        name: str,
        caption: str,
        sources: Sequence[Path | bytes],
        draw: Callable[[Path], object],
        narrow: bool = False,
    ) -> Picture:
        digest = hashlib.sha256()
        for source in sources:
            data = source if isinstance(source, bytes) else source.read_bytes()
            digest.update(hashlib.sha256(data).digest())
        file, now = self.folder / name, digest.hexdigest()
        if not file.exists() or self._drawn.get(name) != now:
            draw(file)
            self._drawn[name] = now
            write_atomically(self._note, json.dumps(self._drawn, indent=1, sort_keys=True).encode() + b"\n")
        return Picture(file, caption, narrow)

    def kept(self, name: str, caption: str, narrow: bool = False) -> Picture | None:
        """A picture of before, of runs that are gone; None where there is none."""
        file = self.folder / name
        return Picture(file, caption, narrow) if file.exists() else None


class Shown(NamedTuple):
    """A setting's demonstrations: where they lie, and episodes of them with what the drawing needs."""

    source: Path
    draw: Drawing
    episodes: Callable[[], Sequence[Any]]


def demonstrations(gallery: Gallery, setting: str, shown: Shown | None) -> Picture | None:
    """Demonstrated episodes; without them, the picture of before."""
    name, caption = f"demonstrations-{setting}.png", f"The demonstrations of {setting}."
    if shown is None:
        return gallery.kept(name, caption, narrow=True)
    panels = lambda: {f"{setting}: demonstrations": shown.episodes()}  # noqa: E731
    return gallery.picture(
        name, caption, [shown.source], lambda path: save_panels(path, shown.draw, panels()), narrow=True
    )


def curves(gallery: Gallery, layout: Layout, key: str, panels: Sequence[View]) -> Iterator[Picture]:
    """The panels of `views.curves` for the table of this key. One picture for each length of training: an axis of eight
    million steps would hide one million."""
    table = layout.tables[key]
    mine = [p for p in panels if any(m in p["methods"] for m in table.shown)]
    stem = "-".join(dict.fromkeys(["curves", table.setting, key]))
    for i, trained in enumerate(sorted({panel["trained"] for panel in mine})):
        here = [panel for panel in mine if panel["trained"] == trained]
        there = [m for m in table.shown if any(m in panel["methods"] for panel in here)]
        caption = (
            f"{table.title}: {', '.join(map(layout.title_of, there))} during training; greedy episodes, "
            "mean over seeds with a band of one standard deviation."
        )
        groups = {layout.title_of(method): rows_of(here, method) for method in there}
        both = [(panel["metric"], panel["title"]) for panel in here]
        rows = [both[k : k + 2] for k in range(0, len(both), 2)]
        yield gallery.picture(
            f"{stem}{f'-{i + 1}' if i else ''}.png",
            caption,
            [json.dumps([groups, rows, table.title]).encode()],
            lambda path, groups=groups, rows=rows: save_curves(path, groups, rows, table.title),
        )


def episodes(
    gallery: Gallery, layout: Layout, cell: Cell, seeds: Sequence[int], runs: Sequence[Run], draw: Drawing | None
) -> Picture | None:
    """Greedy episodes of the first of these seeds; where the run of one is gone, the picture of before, if there is
    one."""
    name, title = f"episodes-{cell.setting}-{cell.method}.png", layout.cell_title(cell)
    there = [run for run in runs if (run.folder / EPISODES).exists()]
    first, wanted = there[:IN_A_ROW], sorted(seeds)[:IN_A_ROW]
    before = gallery.kept(name, f"{title}: greedy episodes, a row per kind of starts.")
    if draw is None or not first or (before and [run.spec.seed for run in first] != wanted):
        return before
    named = ", ".join(f"seed {run.spec.seed}" for run in first)
    return gallery.picture(
        name,
        f"{title}: greedy episodes of {named} (at most {DRAWN} each), a row per kind of starts.",
        [run.folder / EPISODES for run in first],
        lambda path: save_rows(path, title, draw, episode_rows(first)),
    )


def unseen(gallery: Gallery, caption: str, draw: Drawing, runs: Mapping[str, Run], first: int) -> Picture:
    """The first greedy episodes from unseen starts, a panel per run."""

    def panels(path: Path) -> None:
        save_panels(path, draw, {t: read_episodes(r.folder)["greedy/unseen"][:first] for t, r in runs.items()})

    return gallery.picture(FIRST, caption, [run.folder / EPISODES for run in runs.values()], panels)
