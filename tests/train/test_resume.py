"""Every kind of learner, stopped after each stretch and opened again, ends in the bytes of an undisturbed run."""

from pathlib import Path

import pytest

from scopil.algos import find
from scopil.envs.functional import CompiledEnv
from scopil.train import run as run_module
from scopil.train import trainer
from scopil.train.loop import make_loop
from scopil.train.run import Run, RunSpec
from toys import INVERSE, REPLAY, ROLLOUT, registered_toy, toy, toy_demos

STRETCH, STEPS = 64, 320  # the replay wraps
CASES = {
    "scopil, continuous": ("scopil", True, REPLAY | {"demo_batch_size": 8}),
    "sac oracle": ("oracle-sac-lagrangian", False, REPLAY),
    "ppo+dgd, continuous": ("ppo-dgd", True, ROLLOUT | {"demo_batch_size": 8}),
    "icrl": ("icrl", False, ROLLOUT | INVERSE),
    "bc": ("bc", False, {"hidden": (8,), "demo_batch_size": 8}),
}


@pytest.fixture(params=CASES)
def spec(request, tmp_path, monkeypatch):
    """What to train; the runs of a case share one compiled loop, as processes share the compilation cache."""
    name, continuous, config = CASES[request.param]
    env, demos, algorithm = toy(continuous), toy_demos(continuous), find(name)
    loop = make_loop(algorithm, env, demos)
    monkeypatch.setattr(trainer, "STRETCH", STRETCH)
    monkeypatch.setattr(run_module, "make_loop", lambda *_: loop)
    demos.save(tmp_path / "demos.npz")
    with registered_toy(env, "test/Toy-v0") as env_id:
        yield RunSpec(
            algorithm=algorithm,
            env=env_id,
            demos=str(tmp_path / "demos.npz") if algorithm.needs_demos else None,
            seed=3,
            steps=STEPS,
            eval_every=2 * STRETCH,
            checkpoint_every=STRETCH,
            config=config,
        )


def files(folder: Path) -> dict[str, bytes]:
    kept = ("policy.safetensors", "metrics.jsonl", *(f"checkpoints/{n:012d}.ckpt" for n in (256, 320)))
    return {name: (folder / name).read_bytes() for name in kept}


def test_stopping_after_each_stretch_changes_no_byte(spec, tmp_path):
    alone = Run.create(tmp_path / "alone", spec)
    assert isinstance(alone.env(), CompiledEnv)
    assert alone.train()
    stopped, called = Run.create(tmp_path / "stopped", spec), []
    while not Run.open(stopped.folder).train(lambda status: called.append(status.env_steps) or True):
        assert not stopped.finished
    assert called == [64, 128, 192, 256, 320]
    assert files(stopped.folder) == files(alone.folder)
    rows = alone.metrics.rows()
    assert [row["env_steps"] for row in rows if "eval/reward" in row] == [128, 256, 320]
    if spec.algorithm.name == "icrl":
        assert rows[-1]["constraint/phases"] == 2
