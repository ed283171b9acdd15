"""Each file is read once: demonstrations by training, a policy file by loading; `predict` reads no demonstrations."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import scopil
from samples import marble_episodes
from scopil.cli import main
from scopil.data import storage
from scopil.train.run import Run

ENV = "scopil/MarbleMaze-Simple-v0"
SMALL = {"hidden": (8,), "batch_size": 32, "replay_size": 1200, "demo_batch_size": 8}  # as in test_run.py
OPTIONS = [word for k, v in SMALL.items() for word in (f"--{k}", str(v[0] if isinstance(v, tuple) else v))]
SEEN: list[Counter[str]] = []


def _hook(event: str, args: tuple) -> None:
    if SEEN and event == "open" and isinstance(args[0], str | Path) and "r" in str(args[1] or "r"):
        SEEN[0][Path(args[0]).name] += Path(args[0]).exists()


sys.addaudithook(_hook)  # hooks cannot be removed: this one counts only inside the fixture


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Names of files opened for reading, with counts; "checked" counts checksums of demonstration files."""
    monkeypatch.chdir(tmp_path)
    marble_episodes(steps=12, episodes=3).save("mine.npz")
    unsealed, counts = storage.unsealed, Counter()
    monkeypatch.setattr(storage, "unsealed", lambda data: counts.update(["checked"]) or unsealed(data))
    SEEN.append(counts)
    yield counts
    SEEN.clear()


def demonstrations(counts: Counter[str]) -> dict[str, int]:
    return {name: n for name, n in counts.items() if name.endswith(".npz") or name == "checked"}


ONCE = {"mine.npz": 1, "checked": 1}


def test_training_reads_and_checks_the_demonstrations_once(opened):
    budget = ["--steps", "100", "--eval_every", "50"]
    assert main(["train", "scopil", "--out", "run", "--env", ENV, "--demos", "mine.npz", *budget, *OPTIONS]) == 0
    assert demonstrations(opened) == ONCE
    opened.clear()
    assert main(["resume", "run", "--steps", "200"]) == 0
    assert demonstrations(opened) == {"demos.npz": 1, "checked": 1}
    opened.clear()
    for path in ("run/policy.safetensors", "run"):
        agent = scopil.load(path)
        agent.predict(np.zeros(8, np.float32))
        agent.play(episodes=1)
        assert opened.pop("policy.safetensors") == 1
        assert demonstrations(opened) == {}
    assert agent.demos is not None
    agent.play("demonstrated", 1)
    assert demonstrations(opened) == {"demos.npz": 1, "checked": 1}


def test_an_agent_reads_the_demonstrations_once(opened):
    scopil.SCOPIL(ENV, "mine.npz", **SMALL).learn(50).learn(50)  # pyright: ignore[reportArgumentType]
    assert demonstrations(opened) == ONCE


def test_an_opened_run_keeps_no_demonstrations(opened, tmp_path):
    assert main(["train", "bc", "--out", "run", "--env", ENV, "--demos", "mine.npz", "--steps", "10"]) == 0
    run = Run.open(tmp_path / "run")
    opened.clear()
    assert run.demos() is not run.demos()
    assert run.learner() is not None
    assert demonstrations(opened) == {"demos.npz": 2, "checked": 2}
