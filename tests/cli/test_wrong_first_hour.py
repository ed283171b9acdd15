"""Wrong inputs of a user's first hour: one line that says what to do, exit code 2, no traceback, no file left."""

import shlex
import shutil
from pathlib import Path

import pytest

from runs import untrained_run
from samples import marble_episodes, small_set
from scopil.cli import main

FILES = {
    "cart.py": """
import gymnasium as gym
import numpy as np

class Cart(gym.Env):
    observation_space = gym.spaces.Dict({"speed": gym.spaces.Box(-1, 1, (1,)), "pose": gym.spaces.Box(-1, 1, (2,))})
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    def reset(self, *, seed=None, options=None):
        return {"speed": np.zeros(1, np.float32), "pose": np.zeros(2, np.float32)}, {}
    def step(self, action):
        return {"speed": np.zeros(1, np.float32), "pose": np.full(2, 0.5, np.float32)}, 0.0, True, False, {}

class Blind(Cart):
    def step(self, action):
        return {"speed": np.full(1, np.nan, np.float32), "pose": np.zeros(2, np.float32)}, 0.0, True, False, {}

class Late(Cart):
    def step(self, action):
        return np.zeros(3), 0.0, True, False, {}

class NoStep(Cart):
    def step(self, action):
        return None

class Shaky(Cart):
    def step(self, action):
        raise KeyError("wheel")

class Poor(Cart):
    def step(self, action):
        return {"speed": np.zeros(1, np.float32), "pose": np.zeros(2, np.float32)}, "much", True, False, {}

number = 3
""",
    "expert.py": """
def act(obs):
    return [0.0, 0.0]
def fails(obs):
    return obs["place"]
def silent(obs):
    return None
def two(obs, info):
    return [0.0, 0.0]
def wild(obs):
    return [7.0, 0.0]
""",
    "rules.py": """
def fast(obs, action, next_obs):
    return next_obs["speed"] > 0.5
def text(obs, action, next_obs):
    return "yes"
def one(obs):
    return False
""",
    "list.toml": 'env = "CartPole-v1"\nmethods = "sac"\n',
    "seeds.toml": 'env = "CartPole-v1"\nmethods = ["sac"]\nseeds = 0\n',
    "empty.toml": "",
    "rules.toml": 'env = "CartPole-v1"\nmethods = ["sac"]\nrules = "absent.py"\n',
    "setting.toml": 'env = "CartPole-v1"\nmethods = ["sac"]\n[overrides]\nhiden = [4]\n',
    "table.csv": "obs_0,obs_1,act\n0,1,left\n",
    "no_rows.csv": "obs_0,act\n",
    "ragged.csv": "obs_0,act\n0,1\n0\n",
    "no_lines.csv": "",
    "note.json": "{}",
    "text.hdf5": "no HDF5",
    "fewer.toml": 'env = "CartPole-v1"\nmethods = ["sac"]\nseeds = -1\n',
    "steps.toml": 'env = "CartPole-v1"\nmethods = ["sac"]\nsteps = "many"\n',
    "shown.toml": 'env = "CartPole-v1"\nmethods = ["sac"]\ndemonstrator = "expert.py"\n',
}
TRAIN = "train sac --out new --hidden 4 --steps 300"
RECORD = "demos record --out new.npz --episodes 1 --policy expert.py:act"
EXPERT = "demos record --out new.npz --episodes 1 --env cart.py:Cart --policy expert.py"
WRONG = [
    # names of Stable-Baselines3 and other habits
    (f"{TRAIN} --buffer-size 5", "Did you mean --replay-size"),
    (f"{TRAIN} --gamma 0.9", "Did you mean --discount"),
    (f"{TRAIN} --tau 0.1", "Did you mean --polyak"),
    ("train ppo --out new --n-steps 5", "Did you mean --rollout-steps"),
    ("train td3 --out new", "no algorithm is called 'td3'; there are scopil"),
    ("train SAC --out new", "Did you mean sac?"),
    # environments that break the interface
    (f"{RECORD} --env cart.py:Blind", "column speed of an observation is nan"),
    (f"{RECORD} --env cart.py:Late", "AssertionError: The obs returned by the `step()` method must be a dict"),
    (f"{RECORD} --env cart.py:NoStep", "Expects step result to be a tuple"),
    (f"{RECORD} --env cart.py:Poor", "could not convert string to float: 'much'"),
    (f"{RECORD} --env cart.py:Shaky", "(cart.py, line 27)"),
    (f"{TRAIN} --env cart.py:number", "want a class or function"),
    (f"{TRAIN} --env .", "environment '.'"),
    (f"{TRAIN} --env cart.py:Cart --env-kwargs =3", "want NAME=VALUE"),
    # settings
    (f"{TRAIN} --learning-rate nan", "--learning-rate"),
    (f"{TRAIN} --replay-size 1e99", "--replay-size"),
    (f"{TRAIN} --num-envs 0", "--num-envs = 0; want at least 1"),
    (f"{TRAIN} --batch-size 1.5", "--batch-size"),
    (f"{TRAIN} --steps 3e9", "--steps"),
    (f"{TRAIN} --checkpoint-every -5", "--checkpoint-every = -5; want at least 1"),
    (f"{TRAIN} --log-every 0", "--log-every = 0; want 1 to"),
    (f"{TRAIN} --verbosity loud", "loud"),
    ("train ppo --out new --batch-size 7 --steps 300", "batch_size"),
    ("train sac --hidden 4 --out table.csv", "table.csv"),
    # demonstrations
    ("train bc --out new --demos expert.py", "a Python file, not demonstrations"),
    ("train bc --out new --demos run/policy.safetensors", "a policy, not demonstrations"),
    ("train bc --out new --demos table.csv", "table.csv"),
    ("train bc --out new --demos run", "run"),
    ("train bc --out new --env cart.py:Cart --demos marble.npz", "the environment wants"),
    ("demos check .", "."),
    ("demos enough small.npz --env CartPole-v1 --sizes a,b", "--sizes a,b; want numbers"),
    ("demos enough small.npz --env CartPole-v1 --sizes 99", "--sizes: 99; want 2 to"),
    ("demos export small.npz --minari name", "name"),
    (f"{EXPERT}:fails", "(expert.py, line 5)"),
    (f"{EXPERT}:silent", "action at step 0 is None"),
    (f"{EXPERT}:two", "TypeError"),
    (f"{EXPERT}:wild", "action at step 0 is [7.0, 0.0]"),
    ("demos record --out empty --env cart.py:Cart --policy expert.py:act", "--out empty is a folder"),
    ("demos generate simple --out new.npz --episodes 0", "want at least 1"),
    ("demos correct run --out new.npz --keys tab=0", "tab gives the control back"),
    ("demos correct run --out new.npz --keys a=99", "action 99; want 0 … 8"),
    ("demos correct small.npz --out new.npz", "small.npz"),
    # rules
    ("demos show small.npz --rules rules.py:one", "rule 'one' failed at step 0"),
    ("demos show small.npz --rules rules.py:text", "rule 'text' failed at step 0"),
    (f"{TRAIN} --env cart.py:Cart --rules cart.py:number", "rules of type int; want a function"),
    # runs, studies, exports, films
    ("resume run --steps 10", "run has 1,000 already"),
    ("resume run --demos marble.npz --steps 2000", "was trained without demonstrations"),
    ("resume small.npz", "small.npz is not a run folder"),
    ("evaluate small.npz", "small.npz"),
    ("evaluate run --policy random", "random"),
    ("evaluate run --seed -1", "seed"),
    ("export run --onnx empty", "empty is a folder"),
    ("export empty --onnx p.onnx", "empty is not a run folder"),
    ("render marble.npz --out film.gif", "Draw the set with --demos marble.npz"),
    ("render run --out film.gif --episodes 0", "want more than 0"),
    ("render --demos marble.npz --episode 9 --out p.png", "has episodes 0 … 1"),
    ("runs run/policy.safetensors", "is not a folder"),
    ("report small.npz", "small.npz"),
    ("study list.toml", "methods"),
    ("study seeds.toml", "seeds"),
    ("study empty.toml", "empty.toml"),
    ("study rules.toml", "absent.py"),
    ("study setting.toml", "Did you mean hidden"),
    ("study paper --budget huge", "huge"),
    ("study paper --workers 0", "--workers = 0; want at least 1"),
    ("tune seeds.toml", "seeds.toml"),
    ("play --out new.npz --env Pendulum-v1 --keys a=1:2", "want 1 numbers"),
    ("studio absent", "absent"),
    ("studio . --port 99999", "port"),
    # names and paths that are almost right
    (f"{TRAIN} --env cart.py:Cart:Cart", "cart.py has no 'Cart:Cart'; it has Cart"),
    (f"{TRAIN} --env cart.py:Cart(3)", "options without a name"),
    (f"{TRAIN} --env https://example.com/env.py:Env", "no file https://example.com/env.py"),
    (f"{TRAIN} --env CartPole-v99", "version `v99`"),
    ("train sac --hidden 4 --out ''", "'' is not a path"),
    ("train bc --out new --demos ''", "demonstrations ''; want a file"),
    ("evaluate ''", "'' is not a path"),
    ("evaluate run --rules small.npz", "cannot import 'small.npz'"),
    ("evaluate cut.safetensors", "no checksum at its end"),
    ("report run --rules rules.py:absent", "rules.py has no 'absent'; it has fast"),
    ("rules absent", "cannot read absent"),
    ("runs run run", "'run' is an extra word"),
    ("studio . --rules absent.py --env CartPole-v1", "no file absent.py"),
    ("studio . --host 0.0.0.0", "want the one address browsers use"),
    # words that are missing or unknown
    ("demos", "Expected one of {list, show"),
    ("demos frobnicate", "'frobnicate' is an extra word or an unknown command"),
    ("demos show", "Missing from scopil demos show: NAME"),
    ("render run", "Missing from scopil render: --out FILE"),
    ("audit", "Missing from scopil audit: --policy"),
    ("reproduce --budget tiny", "no budget 'tiny'; it has paper, short"),
    # files of other kinds
    ("demos show note.json", "a .json file is not read"),
    ("demos show text.hdf5", "text.hdf5 cannot be read"),
    ("demos show no_lines.csv", "want a header and at least one row"),
    ("demos show no_rows.csv", "want a header and at least one row"),
    ("demos show ragged.csv", "row 2: 1 cells for 2 columns"),
    ("demos show utf16.csv", "cannot read utf16.csv"),
    ("study latin.toml", "latin.toml cannot be read"),
    # outputs of another kind: refused before the work
    ("demos show marble.npz --plot plot.xyz", "pictures end in .png"),
    ("demos import small.npz --out new.csv", "demonstrations are written as .npz"),
    ("demos import small.npz --out small.npz/new.npz", "cannot write small.npz/new.npz"),
    (f"{EXPERT}:act --out new.hdf5", "demonstrations are written as .npz"),
    ("play --out new.csv --env CartPole-v1 --keys a=0", "demonstrations are written as .npz"),
    ("evaluate run --out empty", "--out empty is a folder; want a file"),
    ("report run --out table.csv", "--out table.csv is a file; want a folder"),
    ("export run --onnx p.onnx --jax p.onnx", "name the same file p.onnx"),
    # numbers and values
    ("evaluate run --episodes 1e15", "want at least 1 and at most 1,000,000"),
    ("resume run --steps 1e30", "want fewer than 2³¹"),
    ("render --demos marble.npz --episode -1 --out p.gif", "has episodes 0 … 1"),
    ("demos correct run --out new.npz --episodes 0", "--episodes 0; want at least 1"),
    ("demos export small.npz --minari ''", "Minari refuses the id ''"),
    (f"{EXPERT}:act --seed -3", "--seed = -3; want a whole number"),
    ("demos record --out new.npz --env cart.py:Cart --policy cart.py:Cart", "the expert is the class Cart"),
    ("play --out new.npz --env CartPole-v1 --keys a=", "want 0 … 1, as in a=0,d=1"),
    ("tune list.toml --trials 0", "--trials 0; want at least 1"),
    ("study fewer.toml", "seeds = -1; want at least 1"),
    ("study steps.toml", "steps = 'many'; want a whole number"),
    ("study shown.toml", "want demonstrator ="),
]


pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Everything that the command lines name."""
    place = tmp_path_factory.mktemp("wrong")
    for name, text in FILES.items():
        (place / name).write_text(text)
    small_set().save(place / "small.npz")
    marble_episodes(steps=4, episodes=2).save(place / "marble.npz")
    untrained_run(place / "run")
    (place / "cut.safetensors").write_bytes((place / "run" / "policy.safetensors").read_bytes()[:300])
    (place / "utf16.csv").write_bytes("obs_0,act\n0,1\n".encode("utf-16"))
    (place / "latin.toml").write_bytes('env = "Wägelchen"'.encode("latin-1"))
    (place / "empty").mkdir()
    yield place
    shutil.rmtree(place)


@pytest.mark.filterwarnings("ignore:.*WARN:UserWarning")  # of Gymnasium's checker, about the same environments
@pytest.mark.parametrize(("line", "fragment"), WRONG, ids=[line for line, _ in WRONG])
def test_a_wrong_input_is_refused_in_one_line(line, fragment, capsys, folder):
    assert main(shlex.split(line)) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1, said
    assert "Traceback" not in said
    assert fragment in said
    assert not Path("new.npz").exists()
