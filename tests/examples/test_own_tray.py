"""The example with a tray of one's own, in short: careful games keep its law, and the picture is drawn."""

import importlib.util
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_tray.py"


def test_the_player_keeps_the_law_that_was_drawn(tmp_path):
    spec = importlib.util.spec_from_file_location("own_tray", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    rows = example.main(steps=300, games=3, out=tmp_path)
    assert list(rows) == ["demonstrations", "SCOPIL", "SAC"]
    assert rows["demonstrations"]["violations"] == 0
    assert (tmp_path / "games.png").stat().st_size > 10_000
