"""The card that lies beside a shipped set, written from the set itself."""

import hashlib

from scopil.demos.dataset import Demonstrations
from scopil.studies.marble_maze.table1 import TABLE_1, Row, measure

_HOW = """{games} games of `{env_id}`, made by scopil's careful player, not by people: a beam search over action
sequences on the true simulator (`scopil.studies.marble_maze.planner`). It keeps {clearance:g} px from every constraint at every step
(a game that starts nearer moves away first), keeps its speed near {speed:g} px per update, and moves the tray no more
than it has to. Starts follow the environment's own distribution{but}.
To make the same set again:

    scopil demos generate {setting} --seed {seed} --out {file}
"""

_PAIRED = """
From each of {pairs} starts there are two games, one left and one right of the circle (games {first} to {last}, left
first; `scopil.studies.marble_maze.sides.passing_side` defines the sides). These starts are the environment's own that lie beyond
the circle, at most {nearby:g} px from its centre, and whose longer way round is at most {detour:g} times the shorter.
The other {singles} games are unpaired: one from an ordinary start, one from the unlawful start.
"""


def card(demos: Demonstrations, data: bytes) -> str:
    """The card of a generated Marble Maze set whose file holds the bytes `data`."""
    about, file = demos.about, demos.name.rpartition("/")[2] + ".npz"
    pairs = about.get("pairs_of_games", [])
    how = _HOW.format(
        games=len(demos),
        env_id=demos.env_id,
        clearance=about["planner"]["clearance"],
        speed=about["planner"]["speed"],
        but=", but for the unlawful ones" + (" and the choice of paired ones (below)" if pairs else ""),
        setting=about["setting"],
        seed=about["seed"],
        file=file,
    )
    if pairs:
        how += _PAIRED.format(
            pairs=len(pairs),
            first=pairs[0][0],
            last=pairs[-1][1],
            **about["paired_starts"],
            singles=len(demos) - 2 * len(pairs),
        )
    return "\n".join(
        [
            f"# {demos.name}\n",
            how,
            "## Figures\n",
            _table(measure(demos), TABLE_1[demos.name]),
            "## Unlawful states\n",
            _unlawful(demos),
            "## File\n",
            f"`{file}`, {len(data)} bytes, sha256\n`{hashlib.sha256(data).hexdigest()}`\n",
            "Licence: MIT, as the package.",
            "",
        ]
    )


def _table(ours: Row, paper: Row) -> str:
    def cell(mean: float, std: float | None) -> str:
        return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"

    lines = [
        "| mean ± std over games | this set | the paper's people (Table 1) |",
        "|---|---|---|",
        f"| state–action pairs | {ours.pairs} | {paper.pairs} |",
    ]
    for what, key in (("reward, normalised", "reward"), ("length, px", "length"), ("steps", "steps")):
        cells = [cell(getattr(row, key), getattr(row, f"{key}_std")) for row in (ours, paper)]
        lines.append(f"| {what} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines) + "\n"


def _unlawful(demos: Demonstrations) -> str:
    starts = demos.about["unlawful_starts"]
    assert demos.starts is not None
    places = "; ".join(f"game {i} at ({x:.1f}, {y:.1f})" for i, (x, y) in zip(starts, demos.starts[starts]))
    only = "state is an initial one" if len(starts) == 1 else "states are initial ones"
    return f"The only unlawful {only}, just inside a circle and left on the first step:\n{places}.\n"
