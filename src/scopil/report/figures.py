"""The pictures of a reproduction. One is drawn again only when what it shows has changed."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from scopil.envs.functional import compile_env
from scopil.evaluate.games import replay
from scopil.experiments.paper import Cell, Group
from scopil.experiments.results import Evaluator
from scopil.files import write_atomically
from scopil.report.curves import behaviour_panels, save_curves
from scopil.report.page import Picture
from scopil.report.paths import save_paths
from scopil.report.runs import IN_A_ROW, STARTS, Played, save_trays
from scopil.studies.marble_maze import SETTINGS
from scopil.train.run import Run

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


def demonstrations(gallery: Gallery, setting: str, run: Run) -> Picture:
    """The games of a run's own copy of a setting's demonstrations."""
    caption = f"The demonstrations of {setting}. What is out of bounds is shaded."

    def draw(path: Path) -> None:
        env, demos = compile_env(run.spec.env), run.demos()
        assert demos is not None
        save_paths(path, SETTINGS[setting], replay(env, demos), f"{setting}: demonstrations")

    return gallery.picture(f"demonstrations-{setting}.png", caption, [run.demos_file], draw, narrow=True)


def curves(gallery: Gallery, group: Group, runs: Runs) -> Iterator[Picture]:
    """One picture for each length of training in the group: an axis of eight million steps would hide one."""
    there = [c for a in group.shown if (c := Cell(group.setting, a)) in runs]
    lengths = sorted({run.spec.steps for c in there for run in runs[c]})
    for i, steps in enumerate(lengths):
        mine = [c for c in there if runs[c][0].spec.steps == steps]
        name = f"curves-{group.title.split()[0].lower()}{f'-{i + 1}' if i else ''}.png"
        caption = (
            f"{group.title}: {', '.join(c.title for c in mine)} while training; greedy games from the demonstrated "
            "starts, mean over seeds with a band of one deviation."
        )

        def draw(path: Path, mine=mine) -> None:
            rows = {c.title: [run.metrics.rows() for run in runs[c]] for c in mine}
            save_curves(path, rows, behaviour_panels(rows), group.title)

        yield gallery.picture(name, caption, [run.metrics.path for c in mine for run in runs[c]], draw)


def trays(gallery: Gallery, cell: Cell, runs: Sequence[Run], evaluator: Evaluator) -> Picture:
    """Greedy games of the first four seeds."""
    first = runs[:IN_A_ROW]
    seeds = ", ".join(f"seed {run.spec.seed}" for run in first)

    def draw(path: Path) -> None:
        played = []
        for run in first:
            agent = evaluator.agent(run)
            played.append(
                Played(run, agent.learner, {("greedy", starts): agent.play(starts) for starts in STARTS})
            )
        save_trays(path, f"{cell.title} on {cell.setting}", played)

    caption = (
        f"{cell.title} on {cell.setting}: games of {seeds} from demonstrated (above) and fresh (below) starts."
        " Unlawful states are red crosses."
    )
    return gallery.picture(
        f"games-{cell.setting}-{cell.algorithm}.png", caption, [run.policy_file for run in first], draw
    )
