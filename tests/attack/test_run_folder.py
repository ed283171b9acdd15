"""Untrusted run folders: nothing outside the folder is written or removed, and no pipe is read."""

import os
import shutil
from pathlib import Path

import pytest

from runs import untrained_run
from scopil.cli import main
from scopil.errors import CheckpointError
from scopil.train.run import Run
from scopil_bench import ray_cluster

LINKS = [".lock", "metrics.jsonl", "log.txt", "demos.npz", "checkpoints", "tensorboard", "checkpoints/1.ckpt"]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return untrained_run(tmp_path_factory.mktemp("made") / "run").folder


@pytest.fixture
def folder(made, tmp_path) -> Path:
    return shutil.copytree(made, tmp_path / "run", ignore=lambda *_: ["policy.safetensors"])


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("kind", ["file", "folder", "nowhere"])
def test_a_link_in_a_run_folder_is_refused(name, kind, folder, tmp_path, capsys):
    target = tmp_path / "precious"
    if kind == "folder":
        target.mkdir()
        (target / "000000000001.ckpt").write_text("precious")
        (target / ".half.tmp").write_text("precious")
    elif kind == "file":
        target.write_text("precious")
    before = sorted((p, p.is_file() and p.read_text()) for p in [target, *target.rglob("*")])
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).unlink(missing_ok=True)
    os.symlink(target, folder / name)
    assert main(["train", "--resume", str(folder)]) == 2
    assert f"{folder / name} is a link" in capsys.readouterr().err
    assert sorted((p, p.is_file() and p.read_text()) for p in [target, *target.rglob("*")]) == before


def test_a_link_that_appears_later_and_a_pipe_are_refused_but_the_folder_may_be_a_link(folder, tmp_path):
    os.symlink(folder, tmp_path / "short-name")
    run = Run.open(tmp_path / "short-name")
    os.symlink(tmp_path, folder / "checkpoints")
    with pytest.raises(CheckpointError, match="is a link"):
        run.train()
    assert not list(folder.glob(".lock"))
    (folder / "checkpoints").unlink()
    os.mkfifo(folder / "demos.npz")  # reading it would wait for ever
    with pytest.raises(CheckpointError, match="neither"):
        Run.open(folder)


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "checkpoints/../../escaped"])
def test_a_cluster_node_writes_only_into_the_run_folder(name, folder):
    with pytest.raises(CheckpointError, match="escaped"):
        ray_cluster._write(folder, {name: b"x"}, [name])
    assert not (folder.parent / "escaped").exists()
