"""A run folder, interrupted in every way short of a kill (test_kill.py does those), ends as if it had not been."""

import json
import shutil
from pathlib import Path

import pytest

from samples import marble_games, small_set
from scopil.algos import ALGORITHMS
from scopil.demos import store
from scopil.envs.functional import compile_env
from scopil.errors import CheckpointError, ConfigError, DatasetError, EnvError, ScopilError
from scopil.train import run as run_module
from scopil.train import trainer
from scopil.train.loops import make_loop
from scopil.train.run import Run, RunSpec

ENV = "scopil/MarbleMaze-Simple-v0"
CONFIG = {"hidden": [8], "batch_size": 32, "replay_size": 1200, "demo_batch_size": 8}  # the replay wraps
DEMOS = marble_games(steps=12, games=3)
LOOP = make_loop(ALGORITHMS["scopil"], compile_env(ENV), DEMOS)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Short stretches, and one loop for all runs here, so that they share its compiled program."""
    monkeypatch.setattr(trainer, "STRETCH", 500)
    monkeypatch.setattr(
        run_module,
        "make_loop",
        lambda algorithm, env, demos: LOOP if demos else make_loop(algorithm, env, demos),
    )


def spec(demos: Path | str | None, **changes) -> RunSpec:
    fields = {"steps": 2300, "seed": 3, "eval_every": 1000, "checkpoint_every": 500, "config": CONFIG}
    return RunSpec(**{"algorithm": "scopil", "env": ENV, "demos": demos and str(demos), **fields, **changes})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("undisturbed")
    store.write(DEMOS, folder / "demos.npz")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "STRETCH", 500)
        patch.setattr(run_module, "make_loop", lambda *_: LOOP)
        run = Run.create(folder / "run", spec(folder / "demos.npz"))
        assert run.train() is True
    return run


@pytest.fixture
def interrupted(undisturbed, tmp_path) -> Run:
    """As if killed between the last checkpoint and the policy."""
    shutil.copytree(undisturbed.folder, tmp_path / "run")
    (tmp_path / "run" / "policy.ckpt").unlink()
    return Run.open(tmp_path / "run")


def assert_same_end(run: Run, undisturbed: Run) -> None:
    for name in ("policy.ckpt", "metrics.jsonl", "checkpoints/000000002300.ckpt"):
        assert (run.folder / name).read_bytes() == (undisturbed.folder / name).read_bytes(), name


def test_a_run_leaves_what_it_promises(undisturbed):
    names = {p.name for p in undisturbed.folder.iterdir()} - {"tensorboard", ".lock"}
    assert names == {
        "run.json", "versions.json", "demos.npz", "metrics.jsonl", "timing.jsonl", "checkpoints", "policy.ckpt",
    }  # fmt: skip
    assert [int(f.stem) for f in undisturbed.checkpoints.files()] == [2000, 2300]
    rows = undisturbed.metrics.rows()
    assert [r["env_steps"] for r in rows] == [500, 1000, 1500, 2000, 2300]
    assert [r["env_steps"] for r in rows if "eval/reward" in r] == [1000, 2000, 2300]
    assert [r["env_steps"] for r in undisturbed.timing.rows()] == [500, 1000, 1500, 2000, 2300]
    said = json.loads((undisturbed.folder / "run.json").read_text())
    assert said["config"]["hidden"] == [8]
    assert said["config"]["discount"] == 0.99  # defaults are written out
    assert json.loads((undisturbed.folder / "versions.json").read_text()).keys() >= {
        "jax",
        "python",
        "XLA_FLAGS",
    }
    assert Run.open(undisturbed.folder).spec.build_config() == undisturbed.spec.build_config()
    assert undisturbed.finished


def test_the_same_spec_gives_the_same_bytes(undisturbed, tmp_path):
    again = Run.create(tmp_path / "again", undisturbed.spec)
    again.train()
    assert_same_end(again, undisturbed)
    other = Run.create(tmp_path / "other", spec(undisturbed.spec.demos, seed=4))
    other.train()
    assert other.metrics.rows()[-1] != undisturbed.metrics.rows()[-1]  # the seed is not ignored


def test_stopping_after_each_stretch_changes_nothing(undisturbed, tmp_path):
    run = Run.create(tmp_path / "run", undisturbed.spec)
    heard = []
    while not Run.open(run.folder).train(lambda report: heard.append(report.env_steps) or True):
        assert not run.finished
    assert heard == [500, 1000, 1500, 2000, 2300]
    assert_same_end(run, undisturbed)


def test_death_before_the_policy_is_written(interrupted, undisturbed):
    assert interrupted.train() is True
    assert_same_end(interrupted, undisturbed)


@pytest.mark.parametrize(
    "spoil",
    [lambda d: d[: len(d) // 2], lambda d: d[:5000] + bytes([d[5000] ^ 64]) + d[5001:], lambda d: b""],
)
def test_a_damaged_newest_checkpoint_costs_time_not_exactness(spoil, interrupted, undisturbed):
    newest = interrupted.checkpoints.files()[-1]
    newest.write_bytes(spoil(newest.read_bytes()))
    heard = []
    with pytest.warns(UserWarning, match=r"000000002300\.ckpt.*Falling back to the checkpoint before it"):
        interrupted.train(lambda report: heard.append(report.env_steps))
    assert heard == [2300]  # from 2000
    assert_same_end(interrupted, undisturbed)


def test_without_its_checkpoints_a_run_begins_again(interrupted, undisturbed):
    shutil.rmtree(interrupted.folder / "checkpoints")
    interrupted.train()
    assert_same_end(interrupted, undisturbed)


def test_half_a_line_and_half_a_checkpoint_are_swept_away(interrupted, undisturbed):
    interrupted.checkpoints.files()[-1].unlink()
    for name in ("metrics.jsonl", "timing.jsonl"):
        with (interrupted.folder / name).open("a") as file:
            file.write('{"env_steps": 2400, "actor/obj')
    (interrupted.folder / "checkpoints" / ".000000002300.ckpt.x1.tmp").write_bytes(b"half")
    (interrupted.folder / ".policy.ckpt.x2.tmp").write_bytes(b"half")
    interrupted.train()
    assert_same_end(interrupted, undisturbed)
    assert [r["env_steps"] for r in interrupted.timing.rows()] == [500, 1000, 1500, 2000, 2300]
    assert not list(interrupted.folder.rglob("*.tmp"))


def test_a_run_keeps_its_own_demonstrations(undisturbed, tmp_path):
    store.write(DEMOS, tmp_path / "mine.npz")
    run = Run.create(tmp_path / "run", spec(tmp_path / "mine.npz"))
    (tmp_path / "mine.npz").unlink()
    (tmp_path / "run").rename(tmp_path / "moved")
    found = Run.open(tmp_path / "moved").demos()
    assert found is not None
    assert (found.observations.tobytes(), found.actions.tobytes()) == (
        DEMOS.observations.tobytes(),
        DEMOS.actions.tobytes(),
    )
    assert run.spec.demos == str(tmp_path / "mine.npz")  # where they came from


def test_two_processes_are_one_too_many(interrupted):
    with interrupted._locked(), pytest.raises(ConfigError, match="is being trained by another process"):
        Run.open(interrupted.folder).train()


def test_other_versions_are_told(interrupted):
    file = interrupted.folder / "versions.json"
    file.write_text(file.read_text().replace('"numpy": "', '"numpy": "0.'))
    with pytest.warns(UserWarning, match=r"begun with numpy 0\.\d.*, now .*may not end exactly"):
        interrupted.train()


# --- refusals ------------------------------------------------------------------------------------------------------


def test_a_folder_with_a_run_is_not_written_over(undisturbed):
    with pytest.raises(ConfigError, match="already holds a run: continue it with --resume"):
        Run.create(undisturbed.folder, undisturbed.spec)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"demos": None}, DatasetError, "learns from demonstrations"),
        ({"demos": "nowhere.npz"}, DatasetError, "no demonstrations 'nowhere.npz'"),
        ({"env": "Nowhere-v0", "algorithm": "sac", "demos": None}, EnvError, "Nowhere"),
        ({"config": {"depth": 3}}, ConfigError, r"scopil has no depth; it has .*hidden.*learning_rate"),
        ({"config": {"discount": 1.5}}, ConfigError, "discount = 1.5"),
    ],
)
def test_what_cannot_be_trained_leaves_no_folder(changes, error, message, undisturbed, tmp_path):
    with pytest.raises(error, match=message):
        Run.create(tmp_path / "run", spec(**{"demos": undisturbed.spec.demos, **changes}))
    assert not (tmp_path / "run").exists()


def test_demonstrations_of_something_else_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "make_loop", make_loop)
    store.write(small_set(), tmp_path / "other.npz")
    with pytest.raises(DatasetError, match="the environment wants Box"):
        Run.create(tmp_path / "run", spec(tmp_path / "other.npz"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("field", ["steps", "eval_every", "checkpoint_every"])
def test_counts_below_one_are_refused(field):
    with pytest.raises(ConfigError, match=f"{field} = 0; want at least 1"):
        spec("x", **{field: 0})


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"algorithm": "sac", "env": "x", "depth": 1}', '{"algorithm": 1']
)
def test_a_damaged_run_file_is_named(text, tmp_path):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"run\.json is damaged"):
        Run.open(tmp_path)


def test_no_run_here(tmp_path):
    with pytest.raises(CheckpointError, match="is not a run folder"):
        Run.open(tmp_path)
    (tmp_path / "run.json").write_text('{"algorithm": "sax", "env": "x"}')
    with pytest.raises(ScopilError, match="no algorithm 'sax'"):
        Run.open(tmp_path)


def test_a_policy_is_looked_for_where_it_should_be(undisturbed, interrupted, tmp_path):
    assert undisturbed.newest_policy().name == "policy.ckpt"
    newest = interrupted.newest_policy()
    assert newest.name == "000000002300.ckpt"
    newest.write_bytes(b"")
    with pytest.warns(UserWarning, match="Falling back"):
        assert interrupted.newest_policy().name == "000000002000.ckpt"
    shutil.rmtree(interrupted.folder / "checkpoints")
    with pytest.raises(CheckpointError, match="no policy and no checkpoint yet"):
        interrupted.newest_policy()
