"""Half-cheetah with a wall: SCOPIL-ρ, SCOPIL and BC from the ICRL authors' expert episodes, and SAC.

python benchmarks/half_cheetah.py --data hc_with_pos_expert.npz [--steps 100000] [--seeds 3] [--workers 2]

The data file is not shipped; `scopil_bench.studies.external.half_cheetah` describes it. The benchmark can be stopped
and continued. Results are written to results/half_cheetah.json.
"""

import argparse
import shutil
from pathlib import Path

from scopil_bench.studies.external.half_cheetah import study
from scopil_bench.studies.running import run_study

RESULTS = Path(__file__).parent / "results" / "half_cheetah.json"


def main(data: Path, steps: int, seeds: int, workers: int, out: Path, results: Path = RESULTS) -> None:
    run_study(study(data, steps), out, seeds=seeds, workers=workers)
    shutil.copy(out / "results.json", results)
    print((out / "tables.md").read_text())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/half_cheetah"))
    main(**vars(parser.parse_args()))
