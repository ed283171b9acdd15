"""Latency of one action on one core, with and without a shield: `Policy.in_numpy` and ONNX Runtime.

taskset -c 0 .venv/bin/python benchmarks/latency.py [--calls 20000] [--hidden 64 64]

Networks are random; the time does not depend on their values. Processor time is that of the calling thread, so other
load on the machine changes it little; wall time includes waiting for the core.
"""

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnxruntime

from scopil.files import write_atomically
from scopil.policy import Policy, _blank

RESULT = Path(__file__).parent / "results" / "latency.json"
OBS, ACTIONS, BOX = 8, 9, 2  # numbers of an observation, discrete actions, components of a continuous action
WARM = 200  # calls before the measured ones


def policies(hidden: list[int]) -> dict[str, Policy]:
    form = {"activation": "relu", "fixed_std": False, "normalises": True}
    critic = {"sizes": [OBS, *hidden, ACTIONS], "activation": "relu"}
    discrete = form | {"sizes": [OBS, *hidden, ACTIONS], "start": 0, "shield": critic}
    critic = {"sizes": [OBS + BOX, *hidden, 1], "activation": "relu"}
    continuous = form | {"sizes": [OBS, *hidden, 2 * BOX], "shield": critic}
    kinds = {f"{ACTIONS} discrete actions": discrete, f"{BOX} continuous components": continuous}
    return {name: _blank(kind, jax.random.key(0)) for name, kind in kinds.items()}


def in_onnx(policy: Policy, folder: str) -> Callable[[np.ndarray], Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = policy.to_onnx(Path(folder) / "policy.onnx")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    noise = np.zeros((1, policy.head.num_actions), np.float32)
    return lambda obs: session.run(["action"], {"obs": obs[None], "noise": noise})


def measured(act: Callable[[np.ndarray], Any], calls: int) -> dict[str, float]:
    rows = np.random.default_rng(0).normal(size=(calls + WARM, OBS)).astype(np.float32)
    wall, processor = np.zeros(calls), np.zeros(calls)
    for i, obs in enumerate(rows, -WARM):
        begin, begin_processor = time.perf_counter_ns(), time.thread_time_ns()
        act(obs)
        if i >= 0:
            processor[i] = time.thread_time_ns() - begin_processor
            wall[i] = time.perf_counter_ns() - begin
    times = {"wall": wall, "processor": processor}
    return {
        f"{name}_p{level}_us": round(float(np.percentile(spent, level)) / 1e3, 1)
        for name, spent in times.items()
        for level in (50, 99)
    }


def main(calls: int, hidden: list[int]) -> None:
    body: dict[str, Any] = {"calls": calls, "hidden": hidden, "load_at_start": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as folder:
        for kind, shielded in policies(hidden).items():
            for name, policy in (("without shield", shielded.unshielded()), ("with shield", shielded)):
                numpy = policy.in_numpy()
                for form, act in (("NumPy", lambda o, f=numpy: f(o, None)), ("ONNX", in_onnx(policy, folder))):
                    row = body[f"{form}, {kind}, {name}"] = measured(act, calls)
                    print(f"{form}, {kind}, {name}:", ", ".join(f"{key} {value:g}" for key, value in row.items()))
    write_atomically(RESULT, json.dumps(body, indent=1).encode() + b"\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 64])
    args = parser.parse_args()
    main(args.calls, args.hidden)
