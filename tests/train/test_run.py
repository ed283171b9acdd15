"""Run folders: contents, refusals, and equal bytes after interruptions (test_kill.py has the kills)."""

import itertools
import json
import shutil
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import scopil
from samples import marble_episodes
from scopil.algos.base import Algorithm
from scopil.algos.sac import ALGORITHM as SAC
from scopil.algos.scopil import ALGORITHM as SCOPIL
from scopil.algos.scopil_clone import ALGORITHM as CLONE
from scopil.data import storage
from scopil.data.dataset import Demonstrations
from scopil.envs.base import BatchEnv
from scopil.envs.gym_env import compile_env
from scopil.errors import CheckpointError, ConfigError, DatasetError, EnvError
from scopil.files import SEAL_BYTES, seal
from scopil.serialization import read_arrays
from scopil.train import run as run_module
from scopil.train import trainer
from scopil.train.loop import Loop, make_loop
from scopil.train.run import BUDGET, Run, RunSpec

ENV = "scopil/MarbleMaze-Simple-v0"
CONFIG = {"hidden": [8], "batch_size": 32, "replay_size": 1200, "demo_batch_size": 8}  # the replay wraps


@pytest.fixture(scope="module")
def demos() -> Demonstrations:
    return marble_episodes(steps=12, episodes=3)


@pytest.fixture(scope="module", autouse=True)
def quick(demos):
    """Short chunks, and one loop for all runs here, so that they share its compiled program."""
    shared = make_loop(SCOPIL, compile_env(ENV), demos)

    def loop(algorithm: Algorithm, env: BatchEnv, given: Demonstrations | None) -> Loop:
        fits = given is not None and given.observation_space == demos.observation_space
        return shared if algorithm is SCOPIL and fits else make_loop(algorithm, env, given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "CHUNK", 500)
        patch.setattr(run_module, "make_loop", loop)
        yield


def spec(demos: Path | str | None, **changes) -> RunSpec:
    fields = {"steps": 2300, "seed": 3, "eval_every": 1000, "checkpoint_every": 500, "config": CONFIG}
    return RunSpec(**{"algorithm": SCOPIL, "env": ENV, "demos": demos and str(demos), **fields, **changes})


@pytest.fixture(scope="module")
def undisturbed(quick, demos, tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("undisturbed")
    storage.write(demos, folder / "demos.npz")
    run = Run.create(folder / "run", spec(folder / "demos.npz"))
    assert run.train() is True
    return run


@pytest.fixture
def interrupted(undisturbed, tmp_path) -> Run:
    """As if killed between the last checkpoint and the policy."""
    shutil.copytree(undisturbed.folder, tmp_path / "run")
    (tmp_path / "run" / "policy.safetensors").unlink()
    return Run.open(tmp_path / "run")


ENDS = ("policy.safetensors", "metrics.jsonl", "checkpoints/000000002300.ckpt")


def assert_same_end(run: Run, undisturbed: Run, names=(*ENDS, "best.safetensors")) -> None:
    for name in names:
        assert (run.folder / name).read_bytes() == (undisturbed.folder / name).read_bytes(), name


def test_rules_are_logged_and_do_not_change_the_learner(undisturbed, demos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("lies.py").write_text("def lie(obs, action, next_obs): return 1\ndef low(obs, action, next_obs): return 0\n")
    storage.write(demos, tmp_path / "demos.npz")
    run = Run.create(tmp_path / "run", spec(tmp_path / "demos.npz", rules="lies.py"))
    assert run.train()
    learned, same = (read_arrays(r.policy_file)[0] for r in (run, undisturbed))
    assert learned.keys() == same.keys()
    assert all(learned[k].tobytes() == same[k].tobytes() for k in same)
    rows = run.metrics.rows()
    inner = [
        [{k: v for k, v in row.items() if "eval/" not in k and k != "episode/violations"} for row in r.metrics.rows()]
        for r in (run, undisturbed)
    ]
    assert inner[0] == inner[1]
    # A compiled environment cannot apply the rules while learning, and its own costs are not theirs.
    assert not any("episode/violations" in row for row in rows)
    assert all("episode/violations" in row for row in undisturbed.metrics.rows()[1:])
    assert rows[-1]["eval/violations/lie"] == rows[-1]["eval/steps"]
    assert rows[-1]["eval/violations/low"] == 0
    assert "eval/violations/circle" not in rows[-1]
    assert Run.open(run.folder).spec.rules == "lies.py"


def test_files_and_rows_of_a_run(undisturbed):
    names = {p.name for p in undisturbed.folder.iterdir()} - {"tensorboard", ".lock"}
    wanted = "run.json versions.json demos.npz metrics.jsonl timing.jsonl checkpoints"
    assert names == {*wanted.split(), "policy.safetensors", "best.safetensors"}
    assert [int(f.stem) for f in undisturbed.checkpoints.files()] == [2000, 2300]
    rows = undisturbed.metrics.rows()
    assert [r["env_steps"] for r in rows] == [0, 500, 1000, 1500, 2000, 2300]
    assert [r["env_steps"] for r in rows if "eval/reward" in r] == [0, 1000, 2000, 2300]
    assert all(r["eval/episodes"] >= 20 for r in rows if "eval/reward" in r)
    assert [r["env_steps"] for r in undisturbed.timing.rows()] == [500, 1000, 1500, 2000, 2300]
    said = json.loads((undisturbed.folder / "run.json").read_text())
    assert said["config"]["hidden"] == [8]
    assert said["config"]["discount"] == 0.99  # defaults are written out
    assert json.loads((undisturbed.folder / "versions.json").read_text()).keys() >= {"jax", "python", "XLA_FLAGS"}
    assert (said["format"], said["algorithm"], said["title"]) == (run_module.FORMAT, "scopil", "SCOPIL")
    again, env = Run.open(undisturbed.folder), undisturbed.env()
    assert again.spec.algorithm is SCOPIL
    assert again.spec.build_config(env) == undisturbed.spec.build_config(env)
    assert undisturbed.finished


def test_stopping_after_each_chunk_changes_nothing(undisturbed, tmp_path):
    run = Run.create(tmp_path / "run", undisturbed.spec)
    called = []
    while not Run.open(run.folder).train(lambda status: called.append(status.env_steps) or True):
        assert not run.finished
    assert called == [500, 1000, 1500, 2000, 2300]
    assert_same_end(run, undisturbed)


def half_written(run: Run) -> None:
    run.checkpoints.files()[-1].unlink()
    for name in ("metrics.jsonl", "timing.jsonl"):
        with (run.folder / name).open("a") as file:
            file.write('{"env_steps": 2400, "actor/obj')
    (run.folder / "checkpoints" / ".000000002300.ckpt.x1.tmp").write_bytes(b"half")
    (run.folder / ".policy.safetensors.x2.tmp").write_bytes(b"half")


@pytest.mark.parametrize(
    "change", [lambda run: None, lambda run: shutil.rmtree(run.folder / "checkpoints"), half_written]
)
def test_an_interrupted_run_ends_in_the_same_bytes(change, interrupted, undisturbed):
    change(interrupted)
    assert interrupted.train() is True
    assert_same_end(interrupted, undisturbed)
    assert [r["env_steps"] for r in interrupted.timing.rows()] == [500, 1000, 1500, 2000, 2300]
    assert not list(interrupted.folder.rglob("*.tmp"))


def test_a_damaged_newest_checkpoint_is_skipped(interrupted, undisturbed):
    newest = interrupted.checkpoints.files()[-1]
    newest.write_bytes(newest.read_bytes()[:5000])
    called = []
    with pytest.warns(UserWarning, match=r"000000002300\.ckpt.*Falling back"):
        interrupted.train(lambda status: called.append(status.env_steps))
    assert called == [2300]  # from 2000
    assert_same_end(interrupted, undisturbed)


def test_a_run_keeps_its_own_demonstrations(demos, tmp_path):
    storage.write(demos, tmp_path / "mine.npz")
    run = Run.create(tmp_path / "run", spec(tmp_path / "mine.npz"))
    (tmp_path / "mine.npz").unlink()
    (tmp_path / "run").rename(tmp_path / "moved")
    found = Run.open(tmp_path / "moved").demos()
    assert found is not None
    assert found.digest == demos.digest
    assert run.spec.demos == str(tmp_path / "mine.npz")  # where they came from


def test_resuming_with_other_versions_warns(interrupted):
    file = interrupted.folder / "versions.json"
    file.write_text(file.read_text().replace('"numpy": "', '"numpy": "0.'))
    with pytest.warns(UserWarning, match=r"numpy 0\.\d.*, now"):
        interrupted.train()


def test_evaluations_and_rows_at_any_interval_do_not_change_the_learner(undisturbed, tmp_path):
    odd = replace(undisturbed.spec, eval_every=330, checkpoint_every=700, log_every=450)
    run = Run.create(tmp_path / "run", odd)
    assert run.train()
    rows = run.metrics.rows()
    at = sorted({2300, *range(500, 2300, 500), *range(330, 2300, 330), *range(450, 2300, 450), 700, 1400, 2100})
    assert [r["env_steps"] for r in rows] == [0, *at]
    assert [r["env_steps"] for r in rows if "eval/reward" in r] == [*range(0, 2300, 330), 2300]
    assert [int(f.stem) for f in run.checkpoints.files()] == [2100, 2300]
    assert Run.open(run.folder).spec.log_every == 450
    learned = [read_arrays(each.policy_file)[0] for each in (run, undisturbed)]
    assert {k: v.tobytes() for k, v in learned[0].items()} == {k: v.tobytes() for k, v in learned[1].items()}


def test_a_short_run_has_ten_rows(undisturbed, tmp_path):
    run = Run.create(tmp_path / "run", replace(undisturbed.spec, steps=250))
    assert run.train()
    assert [r["env_steps"] for r in run.metrics.rows()] == [0, *range(50, 251, 25)]  # the warm-up has 32


def test_a_finished_run_is_extended(undisturbed, tmp_path):
    run = Run.create(tmp_path / "run", replace(undisturbed.spec, steps=2000))
    assert run.train()
    longer = Run.open(run.folder).extended(2300)
    assert not longer.finished  # a kill from here on leaves an unfinished run
    assert longer.train()
    assert_same_end(Run.open(run.folder), undisturbed, ENDS)
    with pytest.raises(ConfigError, match=r"steps = 2,000; .* has 2,300 already; want at least"):
        longer.extended(2000)
    assert longer.extended(2300).finished


def test_a_stopped_run_may_end_earlier(undisturbed, tmp_path):
    run = Run.create(tmp_path / "run", replace(undisturbed.spec, steps=9000))
    assert not run.train(lambda status: status.env_steps >= 1000)
    with pytest.raises(ConfigError, match=r"has 1,000 already"):
        run.extended(900)
    assert Run.open(run.folder).extended(2300).train()
    assert_same_end(Run.open(run.folder), undisturbed, ENDS)


def test_the_best_policy_is_that_of_the_best_evaluation(undisturbed):
    evaluated = [row for row in undisturbed.metrics.rows() if "eval/reward" in row and row["env_steps"] > 0]
    best = max(evaluated, key=lambda row: (-row["eval/avoidable"], row["eval/reward"]))
    note = read_arrays(undisturbed.best_file)[1]
    assert note["env_steps"] == best["env_steps"]
    assert note["best"]["eval/reward"] == best["eval/reward"]
    assert scopil.load(undisturbed.best_file).num_timesteps == best["env_steps"]


def test_a_run_that_failed_at_its_first_step_may_be_replaced(undisturbed, tmp_path, monkeypatch):
    run = Run.create(tmp_path / "run", undisturbed.spec)
    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "advance", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run.train()
    again = Run.create(tmp_path / "run", replace(undisturbed.spec, algorithm=SAC, demos=None, config={}))
    assert (again.spec.algorithm, again.demos_file.exists()) == (SAC, False)
    with again._locked(), pytest.raises(ConfigError, match="already holds a run"):
        Run.create(tmp_path / "run", undisturbed.spec)


# --- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"demos": None}, DatasetError, "learns from demonstrations"),
        ({"demos": "nowhere.npz"}, DatasetError, "no demonstrations 'nowhere.npz'"),
        ({"env": "Nowhere-v0", "algorithm": SAC, "demos": None}, EnvError, "Nowhere"),
        ({"config": {"depth": 3}}, ConfigError, r"unknown setting depth; known: .*hidden.*learning_rate"),
        ({"config": {"discount": 1.5}}, ConfigError, "discount = 1.5"),
    ],
)
def test_a_spec_that_cannot_be_trained_leaves_no_folder(changes, error, message, undisturbed, tmp_path):
    with pytest.raises(error, match=message):
        Run.create(tmp_path / "run", spec(**{"demos": undisturbed.spec.demos, **changes}))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", -1), ("steps", 0), ("steps", True), ("steps", 2**31), ("eval_every", -1), ("eval_every", True),
        ("checkpoint_every", -1), ("checkpoint_every", True), ("log_every", 0), ("log_every", 501),
    ],
)  # fmt: skip
def test_counts_out_of_range_are_refused(field, value):
    with pytest.raises(ConfigError, match=f"{field} = {value}; want"):
        spec("x", **{field: value})
    assert spec("x", steps=BUDGET).steps == SCOPIL.budget


def test_a_run_of_no_steps_evaluates_and_keeps_the_clone(undisturbed, tmp_path):
    config = CONFIG | {"clone_steps": 20, "slack": 0.2}
    made = Run.create(tmp_path / "run", spec(undisturbed.spec.demos, algorithm=CLONE, steps=0, config=config))
    assert made.train() is True
    assert made.finished
    assert [row["env_steps"] for row in made.metrics.rows()] == [0]
    assert "eval/reward" in made.metrics.rows()[0]
    _, steps = Run.open(tmp_path / "run").policy()
    assert steps == 0


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"format": 3}', '{"format": 3, "algorithm": "sac", "title": "SAC", "env": "x", "depth": 1}', '{"al'],
)
def test_a_damaged_run_file_is_named(text, tmp_path):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"run\.json is damaged"):
        Run.open(tmp_path)


OLD = {"algorithm": "sac", "env": ENV, "demos": None, "seed": 0, "steps": 100, "config": {"lambda_init": 1.0}}


@pytest.mark.parametrize("note", [OLD, OLD | {"format": 2}, OLD | {"format": 99}])
def test_a_run_folder_of_another_format_is_refused(note, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(note))
    (tmp_path / "policy.ckpt").write_bytes(b"of the former layout")
    with pytest.raises(CheckpointError, match=r"other versions cannot be read; train again\.$"):
        Run.open(tmp_path)


def test_a_policy_file_of_another_format_is_refused(undisturbed, tmp_path):
    body = undisturbed.policy_file.read_bytes()[:-SEAL_BYTES]
    old = body.replace(b"scopil-tree-2", b"scopil-tree-1")
    assert old != body
    (tmp_path / "policy.ckpt").write_bytes(old + seal(old))
    for read in (scopil.load, scopil.Policy.load, read_arrays):
        with pytest.raises(CheckpointError, match="scopil-tree-1"):
            read(tmp_path / "policy.ckpt")


def test_a_run_of_an_algorithm_that_is_not_installed(undisturbed, tmp_path):
    shutil.copytree(undisturbed.folder, tmp_path / "run")
    (tmp_path / "run" / "policy.safetensors").unlink()
    file = tmp_path / "run" / "run.json"
    file.write_text(file.read_text().replace('"scopil"', '"far-away"').replace('"SCOPIL"', '"Far Away"'))
    run = Run.open(tmp_path / "run")  # to be read …
    assert (run.spec.algorithm.name, run.spec.algorithm.title) == ("far-away", "Far Away")
    assert run.note() == json.loads(file.read_text())
    with pytest.raises(ConfigError, match="far-away"):
        run.train()  # … and not to be trained
    with pytest.raises(CheckpointError, match="is a run of far-away, not of sac"):
        Run.open(tmp_path / "run", SAC)
    theirs = replace(SCOPIL, name="far-away", title="Far Away")
    assert Run.open(tmp_path / "run", theirs).spec.algorithm is theirs


def test_the_newest_policy_is_the_final_one_or_a_checkpoint(undisturbed, interrupted, tmp_path):
    assert undisturbed.newest_policy().name == "policy.safetensors"
    newest = interrupted.newest_policy()
    assert newest.name == "000000002300.ckpt"
    newest.write_bytes(b"")
    with pytest.warns(UserWarning, match="Falling back"):
        assert interrupted.newest_policy().name == "000000002000.ckpt"
    shutil.rmtree(interrupted.folder / "checkpoints")
    with pytest.raises(CheckpointError, match="no policy and no checkpoint yet"):
        interrupted.newest_policy()


def test_a_clock_that_goes_back_or_stands_still_changes_nothing(undisturbed, tmp_path, monkeypatch):
    backwards = itertools.count(2_000_000_000, -3600)
    monkeypatch.setattr(time, "time", lambda: float(next(backwards)))
    monkeypatch.setattr(time, "monotonic", lambda: 1.0)
    run = Run.create(tmp_path / "run", undisturbed.spec)
    assert not run.train(lambda status: status.env_steps >= 1000)
    assert Run.open(run.folder).train()
    assert_same_end(run, undisturbed)
    assert [row["seconds"] for row in run.timing.rows()] == [0.0] * 5


def test_a_copy_of_a_folder_in_training_continues_to_the_same_policy(undisturbed, tmp_path):
    """The rows between the copy of the log and that of the checkpoint are in neither."""
    run, stop, copies = Run.create(tmp_path / "run", undisturbed.spec), threading.Event(), []

    def copy() -> None:
        while not stop.is_set():
            copies.append(tmp_path / f"copy-{len(copies)}")
            with suppress(shutil.Error):  # a checkpoint was replaced meanwhile
                shutil.copytree(run.folder, copies[-1])

    copier = threading.Thread(target=copy)
    copier.start()
    try:
        run.train(lambda status: time.sleep(0.02))
    finally:
        stop.set()
        copier.join()
    begun = [Run.open(folder) for folder in copies if (folder / "run.json").exists()]
    assert [found for found in begun if not found.finished]
    for found in begun[:: max(1, len(begun) // 4)]:
        assert found.train()
        assert_same_end(found, undisturbed, ("policy.safetensors", "checkpoints/000000002300.ckpt"))
        rows = undisturbed.metrics.rows()
        assert [row for row in rows if row in found.metrics.rows()] == found.metrics.rows()
