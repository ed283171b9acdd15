"""Is familiarity calibrated? A share p of the states of held-out demonstrations should have a familiarity below p.

taskset -c 0 .venv/bin/python benchmarks/calibration.py [--sets simple simple-simulated] [--steps 300000]

Each quarter of the forty episodes is held out of one run and evaluated by it. Draws docs/images/calibration.png.
"""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"

import argparse
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import scopil
from scopil.envs.naming import IDS
from scopil.files import write_atomically

RESULT = Path(__file__).parent / "results" / "calibration.json"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "calibration.png"
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
PARTS = 4


def asked(name: str, part: int, steps: int) -> list[float]:
    """Familiarity of the states of one quarter of the episodes, for an agent trained on the others."""
    demos = scopil.load_demos(f"marble-maze/{name}-v1")
    order = np.random.default_rng(0).permutation(len(demos)) % PARTS
    kept, held_out = (
        replace(demos, episodes=tuple(e for e, p in zip(demos, order) if (p == part) == out)) for out in (False, True)
    )
    agent = scopil.SCOPILRho(IDS[name.removesuffix("-simulated")], kept, seed=part)
    agent.learn(steps, progress_bar=True)
    return agent.familiarity(np.concatenate([e.observations[1:] for e in held_out])).tolist()


def draw(body: dict[str, Any]) -> bytes:
    import matplotlib.pyplot as plt  # the `report` extra

    figure, axes = plt.subplots(figsize=(4.5, 4.2), layout="constrained")
    axes.plot([0, 1], [0, 1], color="0.75", lw=1, label="as promised")
    for name, rows in body.items():
        states = np.sort(np.concatenate(list(rows["familiarity"].values())))
        axes.plot(states, (np.arange(len(states)) + 1) / len(states), lw=1.6, label=name)
    axes.set(xlabel="familiarity p", ylabel="share of held-out demonstrated states below p", xlim=(0, 1), ylim=(0, 1))
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=150)
    return out.getvalue()


def main(sets: list[str], steps: int) -> None:
    body: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name in sets:
        rows = body.setdefault(name, {"steps": steps, "familiarity": {}})
        for part in range(PARTS):
            if str(part) not in rows["familiarity"]:
                rows["familiarity"][str(part)] = [round(f, 4) for f in asked(name, part, steps)]
                write_atomically(RESULT, json.dumps(body).encode() + b"\n")
        states = np.concatenate(list(rows["familiarity"].values()))
        rows["below"] = {f"{p:g}": float((states < p).mean()) for p in SHARES}
        print(name, {p: round(share, 3) for p, share in rows["below"].items()}, flush=True)
    write_atomically(RESULT, json.dumps(body).encode() + b"\n")
    write_atomically(PICTURE, draw(body))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["simple", "simple-simulated"])
    parser.add_argument("--steps", type=int, default=300_000)
    main(**vars(parser.parse_args()))
