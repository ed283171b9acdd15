"""LunarLander with unwritten rules: SCOPIL-ρ, SCOPIL, SAC and cloning beside Gymnasium's own controller.

The controller that comes with the environment has habits that no reward asks for: it rests the engines once a leg is
on the ground, and it hardly tilts. All but SAC are shown its landings, and none is given the rules. Needs
`pip install "scopil[box2d]"`. The study itself is `scopil_bench.studies.external.lunar_lander`.

    python examples/lunar_lander.py [--steps 300000] [--seeds 3] [--out out/lunar_lander]

Stop it at any time; called again it continues. The same as: scopil study lunar-lander
"""

import argparse
from pathlib import Path

import scopil_bench


def main(steps: int, seeds: int, out: Path) -> None:
    scopil_bench.run_study("lunar-lander", out, steps=steps, seeds=seeds)
    print((out / "tables.md").read_text())
    print(f"written: {out}/report.html")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/lunar_lander"))
    main(**vars(parser.parse_args()))
