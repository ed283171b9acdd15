"""Every kind of file that scopil reads: a valid one, forged content for it, and its reader.

A reader returns a fingerprint of the content, which reveals silent changes.
"""

import hashlib
import io
import json
import os
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from attack import mutations
from runs import untrained_run
from samples import small_set
from scopil.data import storage
from scopil.data.dataset import Demonstrations
from scopil.errors import CheckpointError
from scopil.eval.measures import average
from scopil.loading import load
from scopil.policy import Policy
from scopil.serialization import as_tree, read_note
from scopil.train.checkpoint import Checkpoints
from scopil.train.run import Run
from scopil_bench import results
from scopil_bench.cache import read_episodes, read_evaluation, write_evaluation
from scopil_bench.report.views import evaluation_curves, learner_curves, panels

Change = Callable[[random.Random], bytes]


@dataclass(frozen=True)
class Target:
    """A file under attack."""

    file: Path
    read: Callable[[], Any]
    forged: Change  # invalid content made on purpose
    sealed: bool  # with a checksum: random damage may not change the content


def fingerprint(*arrays: Any) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(repr((np.asarray(array).dtype, np.shape(array))).encode() + np.asarray(array).tobytes())
    return digest.hexdigest()


def of_demos(demos: Demonstrations) -> str:
    """Everything that a learner or a report reads of a set."""
    steps, stats = demos.transitions(), demos.statistics()
    repr(demos)
    kept = [steps.obs, steps.action, steps.next_obs, steps.terminated, np.array(list(stats.values()))]
    kept += [] if steps.reward is None else [steps.reward]
    kept += [] if demos.starts is None else [demos.starts]
    return fingerprint(*kept, np.frombuffer(json.dumps(demos.about).encode(), np.uint8))


def _archive(file: Path, read: Callable[[], Any], arrays: dict[str, np.ndarray], header: Any = None) -> Target:
    """A `.npz`; a header means that it has a checksum."""
    sealed = header is not None
    return Target(file, read, lambda rng: mutations.changed_archive(arrays, header, rng, sealed), sealed)


def demonstrations(folder: Path) -> Target:
    file = folder / "demos.npz"
    storage.write(small_set(env_id="scopil/MarbleMaze-Simple-v0"), file)
    with np.load(file) as archive:
        arrays = {name: archive[name] for name in archive.files if name != "header"}
        header = json.loads(str(archive["header"]))
    return _archive(file, lambda: of_demos(storage.load_demos(str(file))), arrays, header)


def plain_arrays(folder: Path) -> Target:
    file, demos = folder / "plain.npz", small_set()
    arrays = {
        "observations": np.concatenate([e.observations for e in demos]),
        "actions": np.concatenate([e.actions for e in demos]),
        "rewards": np.concatenate([np.asarray(e.rewards) for e in demos]),
        "lengths": np.array([len(e) for e in demos]),
        "terminated": np.array([e.terminated for e in demos]),
    }
    np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
    return _archive(file, lambda: of_demos(storage.load_demos(str(file))), arrays)


def table(folder: Path) -> Target:
    file = folder / "episode.csv"
    rows = ["step,obs_x,obs_y,action,reward", "0,0.5,1.0,1,-1", "1,0.25,2.0,0,-1.5", "2,0.125,4.0,,"]
    file.write_text("\n".join(rows))
    cells = ["", "nan", "1e999", "-1", "true", "9" * 400, "=cmd()", '"', "1,2", "\x00", "٣", "0x10", "inf"]

    def forged(rng: random.Random) -> bytes:
        made = [row.split(",") for row in rows]
        for _ in range(rng.choice([1, 2, 5])):
            row = rng.choice(made)
            row[rng.randrange(len(row))] = rng.choice(cells)
        return "\n".join(",".join(row) for row in made).encode()

    return Target(file, lambda: of_demos(storage.load_demos(str(file))), forged, sealed=False)


def _minari(root: Path, name: str) -> Target:
    import h5py

    from scopil.data.minari import to_minari

    os.environ["MINARI_DATASETS_PATH"] = str(root)
    made = to_minari(small_set(env_id="scopil/MarbleMaze-Simple-v0"), "attack/set-v0")
    file = made / "data" / name
    pristine = file.read_bytes()

    def changed_hdf5(rng: random.Random) -> bytes:
        buffer = io.BytesIO(pristine)
        with h5py.File(buffer, "r+") as opened:
            parts: list[Any] = []
            opened.visititems(lambda _, part: parts.append(part))
            for _ in range(rng.choice([1, 2])):
                part = rng.choice([opened, *parts])
                with suppress(Exception):  # refused by HDF5
                    _change_part(part, rng)
        return buffer.getvalue()

    def forged(rng: random.Random) -> bytes:
        if name.endswith(".json"):
            return mutations.json_text(json.loads(pristine), rng)
        return changed_hdf5(rng)

    def read() -> Any:
        os.environ["MINARI_DATASETS_PATH"] = str(root)
        return of_demos(storage.load_demos("minari:attack/set-v0"))

    return Target(file, read, forged, sealed=False)


def _change_part(part: Any, rng: random.Random) -> None:
    if part.attrs and rng.random() < 0.5:
        value = rng.choice([v for v in mutations.VALUES if v is not None])
        part.attrs[rng.choice(list(part.attrs))] = value
    elif hasattr(part, "shape"):
        name, parent, data = part.name, part.parent, part[()]
        del parent[name]
        kind = rng.randrange(4)
        if kind == 0:
            return
        changed = np.load(io.BytesIO(mutations.changed_array(np.asarray(data), rng)), allow_pickle=False)
        parent[name] = changed if kind < 3 else {"a": 1}
    else:
        del part[rng.choice(list(part))]


def policy(folder: Path) -> Target:
    """`scopil.load` and `Policy.load` of a policy file."""
    made = untrained_run(folder / "policy", hidden=[8])
    pristine = made.policy_file.read_bytes()

    def read() -> Any:
        agent, alone = load(made.policy_file), Policy.load(made.policy_file)
        obs = np.zeros(agent.env.observation_space.shape or (), np.float32)
        return fingerprint(agent.predict(obs)[0], *jax.tree.leaves(jax.tree.map(np.asarray, alone)))

    return Target(made.policy_file, read, lambda rng: mutations.changed_safetensors(pristine, rng), sealed=True)


def checkpoint(folder: Path) -> Target:
    """The only checkpoint of a run."""
    made = untrained_run(folder / "checkpointed", hidden=[8])
    state = made.learner()
    saved = Checkpoints(made.folder / "checkpoints")
    file = saved.save(1, {"learner": state, "env_steps": np.int32(1)}, made.note() | {"env_steps": 1})
    pristine, like = file.read_bytes(), {"learner": state, "env_steps": np.int32(1)}

    def read() -> Any:
        found = saved.read_newest()
        found = found and as_tree(found[1], like, found[0])
        assert isinstance(read_note(file), dict)
        return fingerprint(*jax.tree.leaves(jax.tree.map(np.asarray, found)))

    return Target(file, read, lambda rng: mutations.changed_safetensors(pristine, rng), sealed=True)


def run_json(folder: Path) -> Target:
    """Everything that `scopil evaluate`, `report` and `resume` read of run.json."""
    made = untrained_run(folder / "described", hidden=[8])
    note = json.loads((made.folder / "run.json").read_text())

    def read() -> Any:
        run = Run.open(made.folder)
        env = run.env()
        config = run.spec.build_config(env)
        run.rules()
        return json.dumps([run.note(), str(config), run.newest_policy().name, run.policy()[1]], default=str)

    return Target(made.folder / "run.json", read, lambda rng: mutations.json_text(note, rng), sealed=False)


def metrics(folder: Path) -> Target:
    """metrics.jsonl and the parts of a report made from it."""
    rows = [
        {"env_steps": n, "eval/avoidable": 0.5, "eval/reward": -1.0, "dual/lambda": 2.0, "seconds": float(n),
         "steps_per_second": 5.0} for n in (10, 20, 30)
    ]  # fmt: skip
    made = untrained_run(folder / "measured", rows=rows, hidden=[8])

    def forged(rng: random.Random) -> bytes:
        lines = [json.dumps(row).encode() for row in rows]
        at = rng.randrange(len(lines))
        lines[at] = mutations.json_text(rows[at], rng)
        return b"\n".join(lines) + b"\n" * rng.randrange(2)

    def read() -> Any:
        run = Run.open(made.folder)
        kept = run.metrics.rows()
        run.timing.path.write_bytes(run.metrics.path.read_bytes())
        safe = results.first_safe(kept)
        found = [safe, run.steps_done, results.timing(run, safe)]
        logged = {"a": {"0": kept}}
        curves = [*evaluation_curves(logged), *learner_curves([run.spec.algorithm])]
        found += panels(curves, logged, {"a": run.spec.steps})
        return json.dumps([kept, found], default=str)

    return Target(made.metrics.path, read, forged, sealed=False)


def evaluation(folder: Path) -> Target:
    """evaluation.json as a report reads it."""
    made = _evaluated(folder / "evaluated")
    body = json.loads((made / "evaluation.json").read_text())

    def read() -> Any:
        if (kept := read_evaluation(made)) is None:
            raise CheckpointError("the policy is evaluated again")
        return json.dumps({key: average(each) for key, each in kept["measures"].items()})

    return Target(made / "evaluation.json", read, lambda rng: mutations.json_text(body, rng), sealed=False)


def episodes(folder: Path) -> Target:
    """episodes.npz as a report reads it."""
    made = _evaluated(folder / "drawn")
    with np.load(made / "episodes.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}

    def read() -> Any:
        found = read_episodes(made)
        flat = [e for each in found.values() for e in each]
        return fingerprint(*(array for e in flat for array in (e.observations, e.actions, e.rewards)))

    return _archive(made / "episodes.npz", read, arrays)


def _evaluated(folder: Path) -> Path:
    folder.mkdir(parents=True)
    found = {"env_steps": 5, "measures": {"greedy/unseen": [{"reward": 1.0, "steps": 3.0}]}, "extra": {}}
    write_evaluation(folder, {"policy": "x"}, found, {"greedy/unseen": list(small_set())})
    return folder


TARGETS: dict[str, Callable[[Path], Target]] = {
    "demonstrations (.npz, sealed)": demonstrations,
    "plain arrays (.npz)": plain_arrays,
    "tables (.csv)": table,
    "Minari data (HDF5)": lambda folder: _minari(folder / "hdf5", "main_data.hdf5"),
    "Minari metadata (JSON)": lambda folder: _minari(folder / "metadata", "metadata.json"),
    "policy (safetensors, sealed)": policy,
    "checkpoint (safetensors, sealed)": checkpoint,
    "run.json": run_json,
    "metrics.jsonl": metrics,
    "evaluation.json": evaluation,
    "episodes.npz": episodes,
}
