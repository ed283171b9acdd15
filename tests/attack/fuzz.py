"""Mutated files read in one process, and the outcome of each.

A mutated file must be refused with a ScopilError, or read. Reading it may not raise anything else, take longer than ten
seconds or two gigabytes, execute anything, or, if the file has a checksum, give other content.
"""

import random
import resource
import signal
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attack.mutations import DEEP, bomb, damaged, resealed
from attack.targets import TARGETS, Target
from scopil.errors import ScopilError
from scopil.files import seal

SECONDS = 10.0
GIGABYTES = 2.0


class TookTooLong(BaseException):
    """Not an Exception, so that no reader catches it."""


@dataclass
class Score:
    """Outcomes of the mutations of one kind of file."""

    counts: Counter = field(default_factory=Counter)
    slowest: float = 0.0
    faults: list[str] = field(default_factory=list)  # the first few

    @property
    def bad(self) -> int:
        return sum(self.counts[kind] for kind in ("raw error", "hang", "silent change"))

    def row(self) -> dict[str, Any]:
        keys = ("mutations", "refused", "read", "read as other content", "raw error", "hang", "silent change")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        size = {"slowest, s": round(self.slowest, 2), "peak, GB": round(peak, 2)}
        return {key: self.counts[key] for key in keys} | size | {"faults": self.faults}


def attack(target: Target, mutations: int, seed: int = 0) -> Score:
    """A mutation depends only on the seed and its number. Even numbers are random damage, odd ones forged content."""
    warnings.simplefilter("ignore")
    score, pristine = Score(), target.file.read_bytes()
    expected = target.read()
    for number in range(mutations):
        rng = random.Random(f"{seed}/{target.file.name}/{number}")
        random_damage = number % 2 == 0
        data = damaged(pristine, rng) if random_damage else target.forged(rng)
        target.file.write_bytes(data)
        outcome, took = judged(target, expected, random_damage, score, number)
        score.counts["mutations"] += 1
        score.counts[outcome] += 1
        score.slowest = max(score.slowest, took)
    target.file.write_bytes(pristine)
    assert target.read() == expected, "the attack changed more than its file"
    return score


def judged(target: Target, expected: Any, random_damage: bool, score: Score, number: int) -> tuple[str, float]:
    def too_long(*_: Any) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    begun = time.monotonic()
    try:
        found = target.read()
    except ScopilError:
        outcome = "refused"
    except TookTooLong:
        outcome = "hang"
    except BaseException as error:
        outcome = "raw error"
        if len(score.faults) < 40:
            frames = traceback.extract_tb(error.__traceback__)
            near = ([f for f in frames if "/scopil/" in f.filename] or frames)[-1]
            place = f"{Path(near.filename).name}:{near.lineno}"
            score.faults.append(f"{number}: {type(error).__name__} at {place}: {str(error)[:100]}")
    else:
        outcome = "read" if found == expected else "read as other content"
        if outcome != "read" and random_damage and target.sealed:
            outcome = "silent change"
    finally:
        took = time.monotonic() - begun
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return outcome, took


def judged_bombs(folder: Path, megabytes: int = 1000) -> Counter:
    """Small files that need much memory or time."""
    import h5py

    counts: Counter = Counter()
    for name, data in (
        ("plain arrays (.npz)", bomb("observations", megabytes)),
        ("demonstrations (.npz, sealed)", bomb("observations", megabytes)),
        ("episodes.npz", bomb("x:steps", megabytes)),
        ("run.json", DEEP.encode()),
        ("metrics.jsonl", DEEP.encode() + b"\n{}"),
        ("evaluation.json", DEEP.encode()),
        ("policy (safetensors, sealed)", resealed((2**63).to_bytes(8, "little") + seal())),
        ("Minari metadata (JSON)", b'{"total_episodes": 2147483648}'),
    ):
        target = TARGETS[name](folder)
        target.file.write_bytes(data)
        counts[judged(target, None, False, Score(), 0)[0]] += 1
    target = TARGETS["Minari data (HDF5)"](folder / "large")
    with h5py.File(target.file, "r+") as opened:
        del opened["episode_0/rewards"]
        opened.create_dataset("episode_0/rewards", (10**12,), "f8", chunks=(1000,))
    counts[judged(target, None, False, Score(), 0)[0]] += 1
    return counts
