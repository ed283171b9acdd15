"""SCOPIL's speed and that of its peers: `python benchmarks/speed.py`, after `python benchmarks/speed.py --setup` once.

Every contender is a process on the same core with one thread. They take turns, round by round, so that other load
affects all equally. Ratios are of the best rounds in processor time, which equals wall time on an idle machine; both
are kept.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from peers.protocol import ACTIONS, BATCH, OBS
from rich.console import Console
from rich.table import Table

from scopil.files import write_atomically

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results" / "speed.json"
OWN = Path(sys.executable)
VENVS = {
    ".venv-torch": ["torch==2.13.0", "gymnasium", "numpy"],  # exact: a range pulls gigabytes of CUDA
    ".venv-rejax": ["rejax", "gymnax==0.0.9", "six"],
}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass
class Contender:
    """One process that answers `run N`. Seconds are per iteration."""

    name: str
    script: str
    iterations: int  # a round: about a second
    venv: str | None = None
    args: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def python(self) -> Path:
        return OWN if self.venv is None else ROOT / self.venv / "bin" / "python"

    def start(self, core: int) -> "Contender":
        all_cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {core})  # inherited by the child
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [self.python, HERE / "peers" / self.script, *self.args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | ONE_THREAD,
        )
        os.sched_setaffinity(0, all_cores)
        assert self.process.stdout is not None
        word, _, facts = self.process.stdout.readline().partition(" ")
        if word != "ready":
            raise SystemExit(f"{self.name} did not start: run {self.python} {HERE / 'peers' / self.script}")
        self.facts = json.loads(facts) | {"start_seconds": time.perf_counter() - began}
        return self

    def send(self) -> None:
        assert self.process.stdin is not None
        print(f"run {self.iterations}", file=self.process.stdin, flush=True)

    def hear(self) -> None:
        assert self.process.stdout is not None
        answer = json.loads(self.process.stdout.readline())
        self.wall.append(answer["wall"] / self.iterations)
        self.cpu.append(answer["cpu"] / self.iterations)
        self.facts["peak_rss_mib"] = answer["peak_rss_mib"]

    def stop(self) -> None:
        self.process.communicate()

    def summary(self) -> dict[str, Any]:
        return self.facts | {
            "iterations_per_round": self.iterations,
            "best_us": 1e6 * min(self.wall),
            "median_us": 1e6 * median(self.wall),
            "best_cpu_us": 1e6 * min(self.cpu),
        }


def contenders() -> list[Contender]:
    return [
        Contender("scopil", "ours.py", 2000),
        Contender("torch SCOPIL", "torch_scopil.py", 200, ".venv-torch"),
        Contender("rejax SAC", "rejax_sac.py", 500, ".venv-rejax", ("16384",)),
        Contender("rejax SAC, replay 10⁶", "rejax_sac.py", 50, ".venv-rejax", ("1000000",)),
        Contender("BLAS products alone", "blas.py", 2000),
    ]


# --- measurements -------------------------------------------------------------------------------------------------


def race(entered: list[Contender], rounds: int, core: int, say: Console) -> dict[str, dict[str, Any]]:
    racing = []
    for contender in entered:
        if not contender.python.exists():
            say.print(f"{contender.name}: no {contender.venv}; make it with --setup")
            continue
        racing.append(contender.start(core))
        say.print(f"{contender.name}: ready after {contender.facts['start_seconds']:.1f} s")
    for _ in range(rounds):
        for contender in racing:
            contender.send()
            contender.hear()
    for contender in racing:
        contender.stop()
    return {c.name: c.summary() for c in racing}


def two_processes(rounds: int) -> dict[str, float]:
    """Two runs on two cores at once, compared with each alone."""
    pair = [Contender(f"core {core}", "ours.py", 2000).start(core) for core in sorted(os.sched_getaffinity(0))[:2]]
    for _ in range(rounds):
        for one in pair:  # alone
            one.send()
            one.hear()
        for one in pair:  # together
            one.send()
        for one in pair:
            one.hear()
    for one in pair:
        one.stop()
    alone = max(min(one.wall[0::2]) for one in pair)
    together = min(max(times) for times in zip(*(one.wall[1::2] for one in pair)))
    return {"alone_us": 1e6 * alone, "together_us": 1e6 * together, "ratio": together / alone}


def help_seconds(rounds: int) -> float:
    command = [OWN, "-m", "scopil", "--help"]
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return min(times)


def torch_agrees(updates: int = 5) -> float | None:
    """The largest difference between scopil's weights and the PyTorch contender's after the same updates."""
    python = ROOT / ".venv-torch" / "bin" / "python"
    if not python.exists():
        return None
    import jax

    from scopil.algos.base import Data, Spaces
    from scopil.algos.scopil import Config, init, update
    from scopil.config import build
    from scopil.data.dataset import DemoTransitions
    from scopil.nn.heads import DiscreteHead
    from scopil.types import Transition

    rng = np.random.default_rng(0)
    shape = (updates, BATCH)
    batch = {
        "obs": rng.uniform(-1, 1, (*shape, OBS)).astype(np.float32),
        "action": rng.integers(ACTIONS, size=shape),
        "reward": rng.uniform(-1, 0, shape).astype(np.float32),
        "next_obs": rng.uniform(-1, 1, (*shape, OBS)).astype(np.float32),
        "terminated": (rng.uniform(size=shape) < 0.1).astype(np.float32),
        "demo_obs": rng.uniform(-1, 1, (*shape, OBS)).astype(np.float32),
        "demo_action": rng.integers(ACTIONS, size=shape),
    }
    cfg = build(Config, {})  # what the PyTorch contender is
    state = init(jax.random.key(0), Spaces(OBS, DiscreteHead(ACTIONS)), cfg)
    step = jax.jit(update)
    before = _weights(state)
    for i in range(updates):
        b = {name: values[i] for name, values in batch.items()}
        ended = b["terminated"] > 0
        seen = Transition(b["obs"], b["action"].astype(np.int32), b["reward"], b["next_obs"], ended, ended & False)
        shown = b["demo_obs"], b["demo_action"].astype(np.int32), b["demo_obs"]
        demo = DemoTransitions(*shown, np.zeros(BATCH, np.int32), None, ended)
        state, _ = step(state, Data(replay=seen, demo_batch=demo), cfg, jax.random.key(i))
    ours = _weights(state) | {"log_alpha": state.log_alpha.params, "lambda": state.multiplier}

    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "given.npz"), Path(folder, "made.npz")
        np.savez(given, **before, **{f"batch/{name}": values for name, values in batch.items()})
        subprocess.run([python, HERE / "peers" / "torch_scopil.py", "check", given, made], check=True)
        theirs = dict(np.load(made))
    return max(float(np.abs(np.asarray(ours[name]) - theirs[name]).max()) for name in theirs)


def _weights(state: Any) -> dict[str, Any]:
    nets = {"actor": state.actor.params, "q1": state.critics.params[0], "q2": state.critics.params[1]}
    nets |= {"t1": state.targets[0], "t2": state.targets[1]}
    return {
        f"{name}/{letter}{i}": np.array(value)
        for name, net in nets.items()
        for letter, values in (("w", net.weights), ("b", net.biases))
        for i, value in enumerate(values)
    }


# --- the report -----------------------------------------------------------------------------------------------------


def verdicts(race: dict[str, dict[str, Any]], rest: dict[str, Any]) -> list[tuple[str, float, str, bool]]:
    """(what, measured, wanted, met)"""
    ours = race["scopil"]
    rows = []
    for peer, wanted in (("torch SCOPIL", 15.0), ("rejax SAC", 3.0), ("rejax SAC, replay 10⁶", 3.0)):
        if peer in race:
            ratio = race[peer]["best_cpu_us"] / ours["best_cpu_us"]
            rows.append((f"times faster than {peer}", ratio, f"≥ {wanted:g}", ratio >= wanted))
    limits = [
        ("times the BLAS products alone", ours["best_cpu_us"] / race["BLAS products alone"]["best_cpu_us"], 2.0),
        ("start to first gradient step, s", ours["start_seconds"], 10.0),
        ("start to first gradient step, CPU s", ours["start_cpu_seconds"], 10.0),
        ("scopil --help, s", rest["help_seconds"], 1.0),
        ("peak memory, MiB", ours["peak_rss_mib"], 1024.0),
    ]
    if rest["two_processes"] is not None:
        limits.append(("two processes / one", rest["two_processes"]["ratio"], 1.15))
    if rest["torch_difference"] is not None:
        limits.append(("largest weight difference to torch", rest["torch_difference"], 1e-4))
    return rows + [(what, value, f"≤ {limit:g}", value <= limit) for what, value, limit in limits]


def show(results: dict[str, Any], say: Console) -> None:
    table = Table("one step + one update", "best µs", "median µs", "best CPU µs", "wall ratio", "CPU ratio")
    ours = results["race"]["scopil"]
    for name, row in results["race"].items():
        figures = (f"{row[key]:.0f}" for key in ("best_us", "median_us", "best_cpu_us"))
        ratios = (f"{row[key] / ours[key]:.2f} ×" for key in ("best_us", "best_cpu_us"))
        table.add_row(name, *figures, *ratios)
    say.print(table)
    table = Table("figure", "measured", "wanted", "")
    for what, value, wanted, met in results["verdicts"]:
        table.add_row(what, f"{value:.3g}", wanted, "met" if met else "[bold red]missed[/]")
    say.print(table)


def setup(venvs: dict[str, list[str]]) -> None:
    for venv, packages in venvs.items():
        python = ROOT / venv / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", ROOT / venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)


def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--setup", action="store_true", help="make the peers' venvs and stop")
    cli.add_argument("--check", action="store_true", help="compare the PyTorch contender's arithmetic and stop")
    cli.add_argument("--rounds", type=int, default=15, help="turns of every contender")
    cli.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core all share")
    cli.add_argument("--out", type=Path, default=RESULTS, help="where the JSON goes")
    args = cli.parse_args()
    say = Console()
    if args.setup:
        return setup(VENVS)
    difference = torch_agrees()
    say.print(f"largest weight difference between scopil and torch SCOPIL: {difference}")
    if args.check:
        raise SystemExit(difference is None or difference > 1e-4)
    load = os.getloadavg()[0]
    results: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_at_start": load,
        "quiet": load < 0.5,
        "torch_difference": difference,
        "race": race(contenders(), args.rounds, args.core, say),
        "two_processes": two_processes(max(3, args.rounds // 3)) if len(os.sched_getaffinity(0)) > 1 else None,
        "help_seconds": help_seconds(3),
    }
    results["verdicts"] = verdicts(results["race"], results)
    args.out.parent.mkdir(exist_ok=True)
    write_atomically(args.out, json.dumps(results, indent=1, ensure_ascii=False).encode() + b"\n")
    show(results, say)
    if not results["quiet"]:
        say.print(f"measured under load ({load:.1f} at the start): trust processor time, not the wall's.")


if __name__ == "__main__":
    main()
