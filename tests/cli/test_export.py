"""`scopil export`: files from a run folder, and one line for what cannot be exported."""

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

from dataclasses import replace

import numpy as np
import pytest

import scopil
from runs import untrained_run
from scopil.cli import main
from scopil.registry import find

ort = pytest.importorskip("onnxruntime")


def test_a_run_becomes_files(tmp_path, capsys):
    run = untrained_run(tmp_path / "run", "sac", seed=3)
    onnx, program = tmp_path / "out" / "policy.onnx", tmp_path / "out" / "policy.jaxexport"
    assert main(["export", str(run.folder), "--onnx", str(onnx), "--jax", str(program)]) == 0
    assert f"written: {onnx}" in capsys.readouterr().out
    assert program.exists()
    session = ort.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    obs = np.random.default_rng(0).uniform(-1, 1, (20, 8)).astype(np.float32)
    (action,) = session.run(["action"], {"obs": obs, "noise": np.zeros((1, 9), np.float32)})
    np.testing.assert_array_equal(action, scopil.load(run.folder).predict(obs)[0])
    said = session.get_modelmeta().custom_metadata_map
    assert (said["algorithm"], said["env_id"], said["seed"]) == ("sac", "scopil/MarbleMaze-Simple-v0", "3")


def test_a_run_of_an_algorithm_that_is_not_installed_is_exported(tmp_path):
    theirs = replace(find("sac"), name="far-away", title="Far Away")
    run = untrained_run(tmp_path / "run", theirs)
    assert main(["export", str(run.folder), "--onnx", str(tmp_path / "policy.onnx")]) == 0
    session = ort.InferenceSession(tmp_path / "policy.onnx", providers=["CPUExecutionProvider"])
    assert session.get_modelmeta().custom_metadata_map["algorithm"] == "far-away"


def test_refusals(tmp_path, capsys):
    for argv, message in (
        ([str(tmp_path)], "nothing to write; give --onnx"),
        ([str(tmp_path), "--onnx", "x.onnx"], "is not a run folder"),
    ):
        assert main(["export", *argv]) == 2
        err = capsys.readouterr().err
        assert message in err
        assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_another_ending_is_written_with_a_warning(tmp_path, capsys):
    run = untrained_run(tmp_path / "run", "sac")
    assert main(["export", str(run.folder), "--onnx", str(tmp_path / "p.txt")]) == 0
    assert "does not end in .onnx" in capsys.readouterr().err
    assert (tmp_path / "p.txt").exists()
