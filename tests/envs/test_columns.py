"""Names of the columns of flat observations."""

import gymnasium as gym
import numpy as np
import pytest

from scopil.envs.spaces import Spaces, column_names
from scopil.errors import EnvError

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
