"""LunarLander with two unwritten rules: SCOPIL-ρ, SCOPIL from a clone, SAC and BC, with demonstrations of Gymnasium's
controller.

The controller stops the engines once a leg is on the ground, and tilts little; the reward asks for neither. No learner
is given the rules. Needs `pip install "scopil[box2d]"`.

    python examples/lunar_lander.py [--steps 300000] [--seeds 3] [--out out/lunar_lander]

It can be stopped and continued. The same as: scopil study external --only lunar-lander
"""

import argparse
from pathlib import Path

import scopil_bench


def main(steps: int, seeds: int, out: Path) -> None:
    scopil_bench.run_study("external", out, only=["lunar-lander"], steps=steps, seeds=seeds)
    print((out / "tables.md").read_text())
    print(f"written: {out}/report.html")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/lunar_lander"))
    main(**vars(parser.parse_args()))
