"""Does familiarity separate lawful from unlawful states? On the states that other policies visit from unseen starts.

.venv/bin/python benchmarks/monitor.py RHO_RUN OTHER_RUN [OTHER_RUN …]

RHO_RUN is a run folder of scopil-rho on Marble Maze, the others are of any algorithm on the same tray. States nearer
than 5 px to a border of the rules are left out.
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import rankdata

import scopil
from scopil.envs.marble_maze.constraints import min_margin
from scopil.files import write_atomically

RESULT = Path(__file__).parent / "results" / "monitor.json"
EPISODES, BORDER = 400, 5.0
SHARES = (0.01, 0.05, 0.1, 0.2)  # of familiarity


def auc(score: np.ndarray, positive: np.ndarray) -> float:
    """The probability that a positive has the higher score (Mann-Whitney)."""
    above = rankdata(score)[positive].sum() - positive.sum() * (positive.sum() + 1) / 2
    return float(above / (positive.sum() * (~positive).sum()))


def main(rho: Path, others: list[Path]) -> None:
    agent = scopil.load(rho)
    rules = agent.env.params.constraints  # pyright: ignore[reportAttributeAccessIssue]
    margin = jax.jit(jax.vmap(lambda position: min_margin(rules, position)))
    rows = {}
    for folder in others:
        played = scopil.load(folder).play("unseen", EPISODES)
        obs = np.concatenate([e.observations for e in played])
        inside = np.asarray(margin(jnp.asarray(np.concatenate([e.info["position"] for e in played]))))
        clear = np.abs(inside) >= BORDER
        familiar, unlawful = agent.familiarity(obs)[clear], inside[clear] < 0
        rows[folder.name] = {
            "states": int(clear.sum()),
            "unlawful": float(unlawful.mean()),
            "auc": auc(-familiar, unlawful),
            **{f"unlawful below {p:g}": float((familiar[unlawful] < p).mean()) for p in SHARES},
            **{f"lawful below {p:g}": float((familiar[~unlawful] < p).mean()) for p in SHARES},
        }
        print(folder.name, {k: round(v, 3) for k, v in rows[folder.name].items()})
    write_atomically(RESULT, json.dumps(rows, indent=1).encode() + b"\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rho", type=Path)
    parser.add_argument("others", type=Path, nargs="+")
    main(**vars(parser.parse_args()))
