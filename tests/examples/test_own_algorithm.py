"""An algorithm written outside the package lives like ours: trains, resumes, evaluates, exports and is reported."""

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import scopil
from scopil.cli import main
from scopil.train import run as run_module
from scopil.train import trainer

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_algorithm.py"
TINY = {"hidden": [8], "batch_size": 16, "demo_batch_size": 16, "replay_size": 600}


@pytest.fixture(scope="module")
def own():
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("own_algorithm", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["own_algorithm"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["own_algorithm"]


def test_it_is_short_and_imports_public_names_only():
    source = EXAMPLE.read_text()
    assert len(source.splitlines()) < 150
    names = {alias.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import) for alias in node.names}
    froms = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert not [name for name in names | froms if any(part.startswith("_") for part in name.split("."))]
    assert {name for name in names | froms if name.startswith("scopil")} <= {
        "scopil", "scopil.algos.sac", "scopil.config.config", "scopil.config.setting", "scopil.nn.nets.MLP",
        "scopil.nn.gradient.Trainable", "scopil.nn.gradient.gradient_step", "scopil.nn.gradient.trainable",
        "scopil.nn.normalise.normalise",
    }  # fmt: skip


@pytest.fixture(scope="module")
def alone(own: ModuleType, tmp_path_factory) -> Iterator[scopil.Run]:
    """An undisturbed run; all runs here share its loop."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "CHUNK", 200)
        shared: list = []
        honest = run_module.make_loop
        patch.setattr(
            run_module, "make_loop", lambda *a: shared[0] if shared else shared.append(honest(*a)) or shared[0]
        )
        run = scopil.Run.create(tmp_path_factory.mktemp("own") / "alone", spec(own))
        assert run.train()
        yield run


def spec(own: ModuleType) -> scopil.RunSpec:
    return scopil.RunSpec(
        algorithm=own.ALGORITHM,
        env=own.ENV,
        demos=own.DEMOS,
        seed=1,
        steps=800,
        eval_every=800,
        checkpoint_every=200,
        config=TINY,
    )


def test_it_learns_and_logs_its_own_metrics(alone):
    rows = alone.metrics.rows()
    assert [row["env_steps"] for row in rows] == [0, 200, 400, 600, 800]
    assert rows[-1]["discriminator/loss"] < rows[1]["discriminator/loss"]
    assert rows[-1]["discriminator/bonus"] < 0
    assert "eval/violations" in rows[-1]


def test_interrupted_and_resumed_it_ends_in_the_same_bytes(own, alone, tmp_path):
    stopped = scopil.Run.create(tmp_path / "stopped", spec(own))
    while not scopil.Run.open(stopped.folder, own.ALGORITHM).train(lambda status: True):
        assert not stopped.finished
    assert stopped.policy_file.read_bytes() == alone.policy_file.read_bytes()
    assert stopped.metrics.path.read_bytes() == alone.metrics.path.read_bytes()


def test_it_evaluates_and_exports(own, alone, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    agent = scopil.load(alone.folder, algorithm=own.ALGORITHM)
    assert repr(agent) == f"My GAIL on {own.ENV}, 800 steps"
    assert {"reward", "violations", "steps"} <= agent.evaluate("demonstrated", 2).keys()
    assert agent.state.discriminator.params.weights[0].shape == (8, 8 + 9)
    path = agent.policy.to_onnx(tmp_path / "policy.onnx")
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    obs = np.random.default_rng(0).uniform(-1, 1, (50, 8)).astype(np.float32)
    (action,) = session.run(["action"], {"obs": obs, "noise": np.zeros((1, 9), np.float32)})
    np.testing.assert_array_equal(action, agent.predict(obs)[0])


def test_it_is_reported_by_a_program_that_does_not_know_it(alone, tmp_path, capsys):
    """Its name is not registered: the title comes from run.json, the policy from its file."""
    pytest.importorskip("matplotlib")
    loaded = scopil.load(alone.folder)
    assert len(loaded.play(episodes=2)) == 2
    with pytest.raises(scopil.ScopilError, match="my-gail"):
        loaded.learn(100)
    assert main(["report", str(alone.folder), "--out", str(tmp_path)]) == 0
    assert "My GAIL, greedy, demonstrated starts" in (tmp_path / "report.md").read_text()
    assert "<svg" in (tmp_path / "report.html").read_text()
    assert "GAIL" in capsys.readouterr().out  # a narrow terminal breaks the title
