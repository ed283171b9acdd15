"""All mutations and kills, with a table of results: `make attack`. It can be stopped and resumed at any time.

    python -m attack.campaign --mutations 10000 --kills 1000      half an hour of one core
    python -m attack.campaign --mutations 300 --kills 70          about two minutes: `make attack-short`, as CI runs it

Mutations and kills are drawn from fixed seeds. Results so far are kept in the JSON file --out; without it the campaign
starts from the beginning.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from attack import kills, process_kills
from attack.fuzz import GIGABYTES, SECONDS, attack
from attack.targets import TARGETS
from scopil.files import write_atomically

COMMANDS, WRITERS = process_kills.COMMANDS, kills.WRITERS
ROUND = 250  # mutations of one kind between two writes of the results
# Kills of whole commands in per cent of all kills; the others hit writers, which cost milliseconds.
WHOLE = {"training": 9, "evaluation": 5, "study": 2, "recording": 5}
COUNTS = ("mutations", "refused", "read", "read as other content", "raw error", "hang", "silent change")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=10_000, help="of each kind of file")
    parser.add_argument("--kills", type=int, default=1_000, help="in all, of whole commands and of writers")
    parser.add_argument("--out", type=Path, help="JSON file of results, resumed if it exists")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # one kind of kills, in a separate process
    options = parser.parse_args()
    if options.only:
        return _kill(options.only, options.kills)
    found: dict[str, Any] = {"files": {}, "kills": {}}
    if options.out is not None and options.out.exists():
        found = json.loads(options.out.read_text())
    with tempfile.TemporaryDirectory() as cache:
        for name, wanted in _shares(options.kills).items():
            if found["kills"].get(name, {}).get("kills", 0) < wanted:
                print(f"{name}: {wanted} kills …", file=sys.stderr, flush=True)
                found["kills"][name] = _kills_of(name, wanted, Path(cache))
                _note(found, options.out)
    while any(found["files"].get(name, {}).get("mutations", 0) < options.mutations for name in TARGETS):
        for name in TARGETS:
            _round(found["files"], name, options.mutations)
            _note(found, options.out)
        done = min(row["mutations"] for row in found["files"].values())
        print(f"{done} of {options.mutations} mutations of each kind of file", file=sys.stderr, flush=True)
    return _report(found)


def _round(files: dict[str, Any], name: str, wanted: int) -> None:
    before = files.get(name, dict.fromkeys(COUNTS, 0) | {"slowest_seconds": 0.0, "faults": []})
    count = min(ROUND, wanted - before["mutations"])
    if count <= 0:
        return
    with tempfile.TemporaryDirectory() as place:
        score = attack(TARGETS[name](Path(place)), count, first=before["mutations"])
    row = score.row()
    files[name] = {key: before[key] + row[key] for key in COUNTS} | {
        "slowest_seconds": max(before["slowest_seconds"], row["slowest_seconds"]),
        "peak_gigabytes": max(before.get("peak_gigabytes", 0.0), row["peak_gigabytes"]),
        "faults": (before["faults"] + score.faults)[:20],
    }


def _shares(kills: int) -> dict[str, int]:
    """Kills of each kind."""
    whole = {name: -(-kills * part // 100) for name, part in WHOLE.items()}
    each = -(-(kills - sum(whole.values())) // len(WRITERS))
    return whole | dict.fromkeys(WRITERS, each)


def _kills_of(name: str, count: int, cache: Path) -> dict[str, Any]:
    """In a process without threads, since it forks."""
    command = [sys.executable, "-m", "attack.campaign", "--only", name, "--kills", str(count)]
    env = os.environ | process_kills.environment(cache)
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def _kill(name: str, count: int) -> int:
    with tempfile.TemporaryDirectory() as place:
        score: Any
        if name in COMMANDS:
            score = process_kills.campaign(COMMANDS[name](), Path(place), count)
        else:
            score = kills.campaign(WRITERS[name](Path(place) / "w"), Path(place) / "w", count)
    print(json.dumps(score.row() | {"faults": score.faults}))
    return 0


def _note(found: dict[str, Any], out: Path | None) -> None:
    if out is not None:
        write_atomically(out, json.dumps(found, indent=1).encode() + b"\n")


def _report(found: dict[str, Any]) -> int:
    head = ("file", *COUNTS, "slowest, s", "peak, GB")
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    bad = 0
    for name, row in found["files"].items():
        cells = [name, *(row[key] for key in COUNTS), row["slowest_seconds"], row["peak_gigabytes"]]
        print("| " + " | ".join(map(str, cells)) + " |")
        bad += row["raw error"] + row["hang"] + row["silent change"]
        bad += row["slowest_seconds"] > SECONDS or row["peak_gigabytes"] > GIGABYTES
    for title, kinds in (("command killed and resumed", COMMANDS), ("writer killed", WRITERS)):
        rows = {name: row for name, row in found["kills"].items() if name in kinds}
        keys = [key for key in next(iter(rows.values()), {}) if key != "faults"]
        print(f"\n| {title} | " + " | ".join(keys) + " |\n|---" + "|---" * len(keys) + "|")
        for name, row in rows.items():
            print(f"| {name} | " + " | ".join(str(row[key]) for key in keys) + " |")
            bad += row["lost or damaged"]
    for row in (*found["files"].values(), *found["kills"].values()):
        print("\n".join(row["faults"]), end="\n" if row["faults"] else "")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
