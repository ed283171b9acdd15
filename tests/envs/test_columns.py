"""Names of the columns of flat observations."""

import json
from collections.abc import Iterator
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

import scopil
from hosts import registered
from scopil import record
from scopil.cli import main
from scopil.envs.spaces import Spaces, column_names
from scopil.errors import DatasetError, EnvError
from scopil_bench.cli.demo_checks import _constants

S = gym.spaces
CART = S.Dict(
    {
        "speed": S.Box(-1, 1, (1,), np.float32),
        "pose": S.Box(-1, 1, (2,), np.float32),
        "gear": S.Discrete(3, start=-1),
        "arm": S.Dict(grip=S.MultiBinary(2), joints=S.Box(-1, 1, (1, 2), np.float64)),
        "buttons": S.MultiDiscrete([2, 3]),
        "pair": S.Tuple((S.Box(0, 1, (), np.float32), S.Discrete(2))),
    }
)


def test_names_are_in_the_order_of_the_flat_row():
    names = column_names(CART)
    assert names[:4] == ["arm.grip[0]", "arm.grip[1]", "arm.joints[0,0]", "arm.joints[0,1]"]
    assert names[-3:] == ["pose[0]", "pose[1]", "speed"]
    assert column_names(S.Dict(b=S.Box(0, 1, (1,)), a=S.Box(0, 1, (1,)))) == ["b", "a"]  # as Gymnasium flattens it
    assert len(names) == len(set(names)) == S.flatdim(CART)
    seen = CART.sample()
    row = dict(zip(names, S.flatten(CART, seen)))
    assert row["speed"] == seen["speed"][0]
    assert [row["pose[0]"], row["pose[1]"]] == list(seen["pose"])
    assert row[f"gear={seen['gear']}"] == 1
    assert row[f"buttons[1]={seen['buttons'][1]}"] == 1
    assert row["pair[0]"] == seen["pair"][0]
    assert row[f"pair[1]={seen['pair'][1]}"] == 1


@pytest.mark.parametrize(
    ("space", "names"),
    [
        (S.Box(0, 1, (2,)), ["obs[0]", "obs[1]"]),
        (S.Box(0, 1, (1,)), ["obs"]),
        (S.Box(0, 255, (1, 1, 3), np.uint8), ["obs[0,0,0]", "obs[0,0,1]", "obs[0,0,2]"]),
        (S.Discrete(2, start=4), ["obs=4", "obs=5"]),
        (S.Tuple((S.Box(0, 1, (2,)), S.Box(0, 1, (1,)))), ["obs[0][0]", "obs[0][1]", "obs[1]"]),
    ],
    ids=["box", "number", "image", "states", "tuple"],
)
def test_names_of_spaces_without_names(space, names):
    assert column_names(space) == names
    assert Spaces("env", space, S.Discrete(2)).columns == names


def test_an_observation_that_is_not_finite_names_its_column():
    spaces = Spaces("env", CART, S.Discrete(2))
    seen = CART.sample() | {"pose": np.array([0, np.nan], np.float32)}
    with pytest.raises(EnvError, match=r"^column pose\[1\] of an observation is nan"):
        spaces.row(seen)


class Cart(gym.Env):
    """Observes a Dict whose names Gymnasium sorts."""

    observation_space = S.Dict({"speed": S.Box(-9, 9, (1,), np.float32), "pose": S.Box(-9, 9, (2,), np.float32)})
    action_space = S.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.np_random.uniform(-1, 1)
        return self._seen(), {}

    def step(self, action):
        self.at += 0.1 * (2 * int(action) - 1)
        return self._seen(), 0.0, False, False, {}

    def _seen(self):
        return {"speed": np.array([self.at], np.float32), "pose": np.array([self.at / 2, 7], np.float32)}


COLUMNS = ["pose[0]", "pose[1]", "speed"]


@pytest.fixture
def cart() -> Iterator[str]:
    with registered(Cart, "test/Cart-v0", max_episode_steps=5) as name:
        yield name


def test_a_check_of_demonstrations_names_the_columns(cart, tmp_path, capsys):
    demos = record(cart, lambda obs: int(obs["speed"][0] < 0), 2)
    demos.save(tmp_path / "own.npz")
    np.savez(
        tmp_path / "rows.npz",
        observations=np.stack([e.observations for e in demos]),
        actions=np.stack([e.actions for e in demos]),
    )
    assert main(["demos", "check", str(tmp_path / "own.npz")]) == 0
    said = capsys.readouterr().out
    assert "columns      in this order: pose[0], pose[1], speed\n" in said
    assert "1 of 3 never change: pose[1]" in said
    assert main(["demos", "check", str(tmp_path / "rows.npz"), "--env", cart]) == 0
    assert "in this order: pose[0], pose[1], speed\n" in capsys.readouterr().out


def test_constant_one_hot_columns_are_said_as_values():
    found = _constants({"gear=-1": 0.0, "mode[0]=0": 0.0, "mode[0]=1": 1.0, "pose[1]": 1.0})
    assert found == ["gear is never -1", "mode[0] is always 1", "pose[1]"]


def test_a_value_out_of_range_names_its_column(cart):
    demos = record(cart, lambda obs: 0, 1)
    first = demos.episodes[0]
    for value, words in ((50.0, "is out of range"), (np.nan, "want finite numbers")):
        rows = first.observations.copy()
        rows[3, 2] = value
        with pytest.raises(DatasetError, match=rf"at index \(3, 2\), speed.*{words}"):
            replace(demos, episodes=(replace(first, observations=rows),))


def test_an_exported_policy_names_its_columns(cart, tmp_path):
    onnx = pytest.importorskip("onnx")
    scopil.SAC(cart, hidden=(8,)).save(tmp_path / "agent.safetensors")
    assert main(["export", str(tmp_path / "agent.safetensors"), "--onnx", str(tmp_path / "p.onnx")]) == 0
    about = {entry.key: entry.value for entry in onnx.load(tmp_path / "p.onnx").metadata_props}
    assert json.loads(about["columns"]) == COLUMNS


def test_a_reset_without_info_is_refused():
    class Old(Cart):
        def reset(self, *, seed=None, options=None):  # pyright: ignore[reportIncompatibleMethodOverride]
            return super().reset(seed=seed)[0]  # a dict of two names, which is not a pair

    with pytest.raises(EnvError, match="reset returned a dict; want a pair"):
        record(Old(), lambda obs: 0, 1)
