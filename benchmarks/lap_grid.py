"""ICRL and PPO on LapGridWorld, five seeds each: does ICRL learn the unwritten rule?

.venv/bin/python benchmarks/lap_grid.py [--seeds 5] [--out runs/lap_grid]

Results are written to results/lap_grid.json.
"""

import argparse
import shutil
from pathlib import Path

from scopil_bench.studies.running import run_study

RESULTS = Path(__file__).parent / "results" / "lap_grid.json"


def main(seeds: int, out: Path, results: Path = RESULTS, steps: int | None = None) -> None:
    run_study("lap-grid-world", out, seeds=seeds, steps=steps)
    shutil.copy(out / "results.json", results)
    print((out / "tables.md").read_text())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/lap_grid"))
    main(**vars(parser.parse_args()))
