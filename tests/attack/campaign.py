"""All mutations and kills, with a table of results: `make attack`.

    python -m attack.campaign --mutations 10000 --kills 1000      half an hour of one core
    python -m attack.campaign --mutations 300 --kills 70          about two minutes: `make attack-short`, as CI runs it

Mutations and kills are drawn from fixed seeds.
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

COMMANDS, WRITERS = process_kills.COMMANDS, kills.WRITERS
# Kills of whole commands in per cent of all kills; the others hit writers, which cost milliseconds.
WHOLE = {"training": 9, "evaluation": 5, "study": 2, "tuning": 2, "report and film": 2, "recording": 5}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=10_000, help="of each kind of file")
    parser.add_argument("--kills", type=int, default=1_000, help="in all, of whole commands and of writers")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # one kind of kills, in a separate process
    options = parser.parse_args()
    if options.only:
        return _kill(options.only, options.kills)
    killed, files = {}, {}
    with tempfile.TemporaryDirectory() as cache:
        for name, wanted in _shares(options.kills).items():
            print(f"{name}: {wanted} kills …", file=sys.stderr, flush=True)
            killed[name] = _kills_of(name, wanted, Path(cache))
    for name, make in TARGETS.items():
        print(f"{name}: {options.mutations} mutations …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as place:
            files[name] = attack(make(Path(place)), options.mutations).row()
    return _report(files, killed)


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
        if name in COMMANDS:
            score = process_kills.campaign(COMMANDS[name](), Path(place), count)
        else:
            score = kills.campaign(WRITERS[name](Path(place) / "w"), Path(place) / "w", count)
    print(json.dumps(score.row()))
    return 0


def _report(files: dict[str, Any], killed: dict[str, Any]) -> int:
    bad = 0
    for row in files.values():
        bad += row["raw error"] + row["hang"] + row["silent change"]
        bad += row["slowest, s"] > SECONDS or row["peak, GB"] > GIGABYTES
    for title, rows in (
        ("file", files),
        ("command killed and resumed", {name: killed[name] for name in COMMANDS}),
        ("writer killed", {name: killed[name] for name in WRITERS}),
    ):
        keys = [key for key in next(iter(rows.values())) if key != "faults"]
        print(f"\n| {title} | " + " | ".join(keys) + " |\n|---" + "|---" * len(keys) + "|")
        for name, row in rows.items():
            print(f"| {name} | " + " | ".join(str(row[key]) for key in keys) + " |")
            bad += row.get("lost or damaged", 0)
    for row in (*files.values(), *killed.values()):
        print("\n".join(row["faults"]), end="\n" if row["faults"] else "")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
