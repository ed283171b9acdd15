"""The pictures of a study, from run folders. One is drawn again only when what it shows has changed."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scopil.evaluate.offers import Drawing
from scopil.evaluate.stored import EPISODES, read_episodes
from scopil.evaluate.summaries import Cell, Table
from scopil.files import write_atomically
from scopil.report.episode_pictures import save_panels, save_rows
from scopil.report.page import Picture
from scopil.report.run_groups import DRAWN, IN_A_ROW, episode_rows
from scopil.report.study_tables import Layout
from scopil.report.training_curves import behaviour_panels, save_curves
from scopil.train.run import Run

FIRST = "unseen-starts.png"  # the first picture of a report
Runs = Mapping[Cell, Sequence[Run]]  # finished ones


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
        sources: Sequence[Path],
        draw: Callable[[Path], object],
        narrow: bool = False,
    ) -> Picture:
        digest = hashlib.sha256()
        for source in sources:
            digest.update(hashlib.sha256(source.read_bytes()).digest())
        file, now = self.folder / name, digest.hexdigest()
        if not file.exists() or self._drawn.get(name) != now:
            draw(file)
            self._drawn[name] = now
            write_atomically(self._note, json.dumps(self._drawn, indent=1, sort_keys=True).encode() + b"\n")
        return Picture(file, caption, narrow)


def demonstrations(
    gallery: Gallery, setting: str, source: Path, draw: Drawing, episodes: Callable[[], Sequence[Any]]
) -> Picture:
    """Demonstrated episodes from `source`; `episodes` gives them with what the drawing needs."""
    title = f"{setting}: demonstrations"
    return gallery.picture(
        f"demonstrations-{setting}.png",
        f"The demonstrations of {setting}.",
        [source],
        lambda path: save_panels(path, draw, {title: episodes()}),
        narrow=True,
    )


def curves(gallery: Gallery, layout: Layout, table: Table, runs: Runs) -> Iterator[Picture]:
    """One picture for each length of training in the table: an axis of eight million steps would hide one million."""
    there = [c for m in table.shown if (c := Cell(table.setting, m)) in runs]
    lengths = sorted({run.spec.steps for c in there for run in runs[c]})
    for i, steps in enumerate(lengths):
        mine = [c for c in there if runs[c][0].spec.steps == steps]
        name = f"curves-{table.title.split()[0].lower()}{f'-{i + 1}' if i else ''}.png"
        caption = (
            f"{table.title}: {', '.join(layout.title_of(c.method) for c in mine)} during training; greedy episodes, "
            "mean over seeds with a band of one standard deviation."
        )

        def draw(path: Path, mine=mine) -> None:
            rows = {layout.title_of(c.method): [run.metrics.rows() for run in runs[c]] for c in mine}
            save_curves(path, rows, behaviour_panels(rows), table.title)

        yield gallery.picture(name, caption, [run.metrics.path for c in mine for run in runs[c]], draw)


def episodes(
    gallery: Gallery, layout: Layout, cell: Cell, runs: Sequence[Run], draw: Drawing
) -> Picture | None:
    """Greedy episodes of the first seeds; None where none were kept."""
    first = [run for run in runs[:IN_A_ROW] if (run.folder / EPISODES).exists()]
    if not first:
        return None
    seeds = ", ".join(f"seed {run.spec.seed}" for run in first)
    return gallery.picture(
        f"episodes-{cell.setting}-{cell.method}.png",
        f"{layout.cell_title(cell)}: greedy episodes of {seeds} (at most {DRAWN} each), a row per kind of starts.",
        [run.folder / EPISODES for run in first],
        lambda path: save_rows(path, layout.cell_title(cell), draw, episode_rows(first)),
    )


def unseen(gallery: Gallery, caption: str, draw: Drawing, runs: Mapping[str, Run], first: int) -> Picture:
    """The first greedy episodes from unseen starts, a panel per run."""

    def panels(path: Path) -> None:
        save_panels(
            path, draw, {t: read_episodes(r.folder)["greedy/unseen"][:first] for t, r in runs.items()}
        )

    return gallery.picture(FIRST, caption, [run.folder / EPISODES for run in runs.values()], panels)
