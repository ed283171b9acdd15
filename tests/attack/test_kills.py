"""A few dozen kills during writes; `make attack` makes a thousand (tests/attack/campaign.py)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def killed(kills: int) -> dict:
    """In a process without threads, since it forks."""
    paths = [str(TESTS), *sys.path]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run([sys.executable, "-m", "attack.kills", str(kills)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kills", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_no_finished_write_is_lost(kills):
    found = killed(kills)
    assert len(found) == 7
    for name, row in found.items():
        assert row["faults"] == [], name
        assert row["kills"] == kills
    assert sum(row["amid a write"] for row in found.values()) > kills // 2  # many kills hit a write
