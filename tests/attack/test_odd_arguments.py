"""Invalid numbers are refused in one line; sources without a checksum are identified by their content."""

import numpy as np
import pytest

import scopil
from runs import ENV, untrained_run
from samples import marble_episodes
from scopil.cli import main
from scopil.data import storage
from scopil.errors import ConfigError
from scopil.registry import find
from scopil.train.run import RunSpec
from scopil_bench.runner import prepare

LARGE = str(2**63)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return untrained_run(tmp_path_factory.mktemp("odd") / "run").folder


@pytest.mark.parametrize("seed", [LARGE, str(2**64), "-1"])
@pytest.mark.parametrize("argv", [["evaluate", "RUN"], ["demos", "generate", "simple", "--out", "a.npz"]])
def test_seeds_beyond_63_bits_are_refused_in_one_line(argv, seed, run, capsys):
    argv = [str(run) if word == "RUN" else word for word in argv]
    assert main([*argv, "--seed", seed]) == 2
    err = capsys.readouterr().err
    assert "--seed" in err
    assert err.count("\n") == 1


def test_large_seeds_give_different_starts():
    env = scopil.open_env(ENV)
    first = [scopil.eval.starts.unseen_starts(env, 2, seed) for seed in (1, 2**32 + 1, 2**63 - 1)]
    obs = [np.asarray(one.obs) for one in first]  # type: ignore[union-attr]
    assert not np.array_equal(obs[0], obs[1])
    assert not np.array_equal(obs[1], obs[2])


@pytest.fixture
def source(tmp_path):
    """Plain arrays, as NumPy writes them."""
    demos = marble_episodes(steps=4, episodes=3)

    def write(change: float = 0.0):
        obs = np.concatenate([e.observations for e in demos])
        obs[1, 0] += change
        actions = np.concatenate([e.actions for e in demos])
        np.savez(tmp_path / "plain.npz", observations=obs, actions=actions, lengths=[len(e) for e in demos])
        return str(tmp_path / "plain.npz")

    return write


def test_runs_of_one_plan_learn_from_the_same_demonstrations(source, tmp_path):
    spec = RunSpec(algorithm=find("bc"), env=ENV, demos=source(), config={"hidden": (8,)})
    prepare(tmp_path / "run", spec)
    prepare(tmp_path / "run", spec)
    source(change=1e-3)  # a change of one number
    with pytest.raises(ConfigError, match="has changed"):
        prepare(tmp_path / "run", spec)
    source()
    prepare(tmp_path / "run", spec)
    (tmp_path / "plain.npz").unlink()
    prepare(tmp_path / "run", spec)  # the run has a copy


def test_an_import_records_the_digest_of_its_source(source, tmp_path):
    digests = []
    for change in (0.0, 0.0, 1e-3):
        assert main(["demos", "import", source(change), "--out", str(tmp_path / "sealed.npz")]) == 0
        digests.append(storage.read(tmp_path / "sealed.npz").about["source_sha256"])
    assert digests[0] == digests[1] != digests[2]
