"""Wrong inputs: one line that says what to do, exit code 2, no traceback, no file left."""

import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from runs import untrained_run
from samples import marble_episodes, small_set
from scopil.cli import main

FILES = {
    "here.py": """
import gymnasium as gym
import numpy as np

class Here(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gym.spaces.Discrete(3)
    def __init__(self, size=1): ...
    def reset(self, *, seed=None, options=None):
        return np.zeros(4, np.float32), {}
    def step(self, action):
        return np.zeros(4, np.float32), 0.0, True, False, {}

class Many(Here):
    action_space = gym.spaces.MultiDiscrete([10, 10, 10])

class Pixels(Here):
    observation_space = gym.spaces.Box(0, 255, (400, 400, 3), np.uint8)

class Lists(Here):
    observation_space = gym.spaces.Sequence(gym.spaces.Discrete(2))

class Endless(Here):
    action_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

class Broken(Here):
    def reset(self, *, seed=None, options=None):
        raise RuntimeError("the motor fell off")

def nothing():
    return None
""",
    "high.py": "def high(obs, action, next_obs): return next_obs[99] > 1\n",
    "seven.py": "def act(obs): return 7\nnumber = 4\n",
    "no_rules.py": "x = 1\n",
    "fails.py": "import nothing_of_that_name\n",
    "syntax.py": "def (\n",
    "study.toml": 'env = "CartPole-v1"\nmethods = ["scopil"]\nseedz = 3\n',
    "broken.toml": "env = \n",
    "unknown.toml": 'env = "CartPole-v1"\nmethods = ["scopill"]\n',
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
PLAYED = "demos record --out new.npz --episodes 1 --env here.py:Here --policy"
EXPERT = "demos record --out new.npz --episodes 1 --env cart.py:Cart --policy expert.py"
WRONG = [
    # commands and options
    ("trian sac", "unknown command 'trian'; want one of train"),
    ("train sacc --out new", "Did you mean sac"),
    ("train", "Expected one of {scopil, scopil-rho,"),
    ("train sac", "Missing from scopil train sac: --out RUN the run folder"),
    (f"{TRAIN} --lr 0.1", "Did you mean --learning-rate"),
    (f"{TRAIN} --num-env 1", "there is no option --num-env. Did you mean --num-envs?"),
    (f"{TRAIN} --zzz 1", "there is no option --zzz"),
    ("train sac extra --out new", "'extra'"),
    (f"{TRAIN} --steps many", "--steps: 'many' is not a whole number"),
    ("train --resume run --steps 5", "--steps = 5; run has 1,000 already; want at least"),
    (f"{TRAIN} --steps 0", "--steps = 0; want at least 1"),
    (f"{TRAIN} --novel-budget 5/100", "sac stops no novel episodes; want scopil-rho"),
    (f"{TRAIN} --eval-every 0", "--eval-every = 0; want at least 1"),
    (f"{TRAIN} --seed -1", "--seed = -1; want a whole number"),
    (f"{TRAIN} --discount 2", "--discount = 2; want"),
    (f"{TRAIN} --hidden 0", "hidden"),
    ("train scopil-rho --out new --shield nonsense", "--shield'. Expected one of ('off', 'learning', 'always')"),
    ("train --resume", "a run folder (required)"),
    ("train --resume absent", "absent is not a run folder"),
    ("train --resume damaged", "damaged/run.json is damaged"),
    ("train sac --out run --hidden 4", "run already holds a run: continue it"),
    # environments
    (f"{TRAIN} --env Nowhere-v0", "environment 'Nowhere-v0'"),
    (f"{TRAIN} --env absent.py:Here", "no file absent.py in"),
    (f"{TRAIN} --env here.py", "names a file and no environment in it; want --env my_env.py:MyEnv"),
    (f"{TRAIN} --env here.py:Absent", "here.py has no 'Absent'; it has Here"),
    (f"{TRAIN} --env absent:Here-v0", "looked in"),
    (f"{TRAIN} --env fails.py:X", "nothing_of_that_name"),
    (f"{TRAIN} --env syntax.py:X", "fails when it is imported: SyntaxError"),
    (f"{TRAIN} --env here.py:nothing", "want a class or function that makes a gymnasium.Env"),
    (f"{TRAIN} --env here.py:Here --env-kwargs colour=3", "unexpected keyword argument 'colour'"),
    (f"{TRAIN} --env here.py:Here --env-kwargs 5", "--env-kwargs 5; want NAME=VALUE"),
    (f"{TRAIN} --env here.py:Here --max-episode-steps 0", "--max-episode-steps 0; want at least 1"),
    (f"{TRAIN} --env here.py:Here(size=", "brackets that do not close; want options as in"),
    (f"{TRAIN} --env here.py:Many", "1,000 joint choices; want at most 256. Wrap the environment"),
    (f"{TRAIN} --env here.py:Pixels", "GB; lower --replay-size to"),
    (f"{TRAIN} --env here.py:Lists", "has no fixed size; want Box"),
    (f"{TRAIN} --env here.py:Endless", "want finite bounds"),
    (f"{TRAIN} --env here.py:Broken", "the motor fell off"),
    # demonstrations
    ("train scopil --out new", "learns from demonstrations"),
    ("train scopil --out new --demos absent.npz", "no demonstrations 'absent.npz'"),
    ("train scopil --out new --demos array.npy", "a .npy file holds one array"),
    ("train scopil --out new --demos pickle.pkl", "a pickle runs code when it is opened and is never read"),
    ("train scopil --out new --demos cut.npz", "probably truncated or damaged"),
    ("train scopil --out new --demos no_actions.npz", "no array 'actions'"),
    ("train scopil --out new --demos nan.npz", "nan at index"),
    ("train scopil --out new --demos small.npz", "the environment wants"),
    ("train scopil --out new --demos minari:none-v0", "no Minari dataset 'none-v0'"),
    ("demos show absent", "no demonstrations 'absent'"),
    ("demos check small.npz --env CartPole-v1", "failed: environment"),
    ("demos check small.npz --env CartPole-v1 --rules high.py", "failed: environment"),
    ("demos check small.npz --max-episode-steps 80", "there is no option --max-episode-steps"),
    ("train sac --out new --demos small.npz --rules high.py", "the environment wants"),
    ("demos check small.npz --rules absent.py", "no file absent.py in"),
    (f"{PLAYED} absent.py:act", "no file absent.py in"),
    (f"{PLAYED} seven.py", "want --policy my_expert.py:act"),
    (f"{PLAYED} seven.py:number", "the expert is a int; want a function act(obs)"),
    (f"{PLAYED} seven.py:act", "action at step 0 is 7; want one of Discrete(3)"),
    ("demos record --out new.npz --env here.py:Here --policy seven.py:act --episodes 0", "want at least 1"),
    ("demos generate nowhere --out new.npz", "unknown setting 'nowhere'; want one of simple"),
    # rules
    (f"{TRAIN} --rules absent.py", "no file absent.py in"),
    (f"{TRAIN} --rules no_rules.py", "no_rules.py has no rules; want a dict RULES, or functions"),
    (f"{TRAIN} --rules high.py:low", "high.py has no 'low'; it has high"),
    ("evaluate run --episodes 1 --rules high.py", "rule 'high' failed at step 0: IndexError"),
    ("evaluate named --episodes 1", "names the code 'high.py' as its rules, and your key did not sign it"),
    # runs, studies, pictures, exports
    ("evaluate absent", "absent"),
    ("evaluate unfinished", "no policy and no checkpoint yet; train it first"),
    ("evaluate run --episodes 0", "want at least 1"),
    ("evaluate run --starts absent.npy", "absent.npy"),
    ("report", "want at least one: scopil report RUN"),
    ("report unfinished", "train it first"),
    ("export run", "give --onnx policy.onnx, --jax policy.jaxexport, or both"),
    ("render run --out film.avi", "want a name that ends in .mp4, .gif or .png"),
    ("study absent.toml", "absent.toml"),
    ("study study.toml", "seedz"),
    ("study broken.toml", "broken.toml"),
    ("study unknown.toml", "scopill"),
    ("play --out new.npz --env CartPole-v1", "no --keys for actions"),
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
    ("demos generate simple --out new.npz --episodes 0", "--episodes 0; want at least 1"),
    ("demos generate simple --out empty", "--out empty is a folder"),
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Everything that the command lines name."""
    place = tmp_path_factory.mktemp("wrong")
    for name, text in FILES.items():
        (place / name).write_text(text)
    small_set().save(place / "small.npz")
    marble_episodes(steps=4, episodes=2).save(place / "marble.npz")
    np.save(place / "array.npy", np.zeros(3))
    (place / "pickle.pkl").write_bytes(b"\x80\x04K\x01.")
    (place / "cut.npz").write_bytes((place / "small.npz").read_bytes()[:200])
    np.savez(place / "no_actions.npz", observations=np.zeros((3, 2)))
    np.savez(place / "nan.npz", observations=np.full((4, 4), np.nan), actions=np.zeros(3, int))
    (place / "utf16.csv").write_bytes("obs_0,act\n0,1\n".encode("utf-16"))
    (place / "latin.toml").write_bytes('env = "Wägelchen"'.encode("latin-1"))
    untrained_run(place / "run")
    (place / "cut.safetensors").write_bytes((place / "run" / "policy.safetensors").read_bytes()[:300])
    for name in ("named", "damaged", "unfinished"):
        shutil.copytree(place / "run", place / name)
    text = (place / "named" / "run.json").read_text()
    (place / "named" / "run.json").write_text(text.replace('"rules": null', '"rules": "high.py"'))
    (place / "damaged" / "run.json").write_text("{")
    (place / "unfinished" / "policy.safetensors").unlink()
    (place / "empty").mkdir()
    yield place
    shutil.rmtree(place)


@pytest.fixture
def here(folder, monkeypatch):
    """In the folder. What a line made there, and the modules that it imported from there, are removed."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder / "minari"))
    before = set(sys.modules)
    yield
    shutil.rmtree("new", ignore_errors=True)
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == folder:
            del sys.modules[name]


@pytest.mark.usefixtures("here")
@pytest.mark.filterwarnings("ignore:.*WARN:UserWarning")  # of Gymnasium's checker, about the same environments
@pytest.mark.parametrize(("line", "fragment"), WRONG, ids=[line for line, _ in WRONG])
def test_a_wrong_input_is_refused_in_one_line(line, fragment, capsys):
    assert main(shlex.split(line)) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1, said
    assert "Traceback" not in said
    assert fragment in said
    assert not Path("new.npz").exists()
    metrics = Path("new", "metrics.jsonl")
    assert not metrics.exists() or not metrics.read_text()  # nothing is left in the way of the next attempt
