"""The sweep example runs, and its lanes differ in what they should."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "sweep.py"


@pytest.mark.slow
def test_the_sweep_prints_a_row_for_each_run(capsys):
    spec = importlib.util.spec_from_file_location("sweep", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    sweep = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sweep)
    rows = sweep.main(steps=80)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 1 + len(rows) == 7
    assert {(row["seed"], row["slack"]) for row in rows} == {(i, s) for i in (0, 1) for s in sweep.SLACKS}
    assert all(np.isfinite(list(row.values())).all() for row in rows)
    for seed in (0, 1):  # the more slack, the lower the multiplier
        lams = [row["dual/lambda"] for row in rows if row["seed"] == seed]
        assert lams == sorted(lams, reverse=True)
        assert len(set(lams)) == 3
    assert rows[0]["env/reward"] != rows[3]["env/reward"]
