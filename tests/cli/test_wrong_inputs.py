"""Wrong inputs: one line that says what to do, exit code 2, no traceback."""

import shutil

import numpy as np
import pytest

from runs import untrained_run
from samples import marble_episodes, small_set
from scopil.cli import main

ENV = """
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
"""
RULES = "def high(obs, action, next_obs): return next_obs[99] > 1\n"
EXPERT = "def act(obs): return 7\nnumber = 4\n"


pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Everything that the command lines below name."""
    place = tmp_path_factory.mktemp("wrong")
    for name, text in {
        "here.py": ENV,
        "rules.py": RULES,
        "expert.py": EXPERT,
        "no_rules.py": "x = 1\n",
        "fails.py": "import nothing_of_that_name\n",
        "syntax.py": "def (\n",
        "study.toml": 'env = "CartPole-v1"\nmethods = ["scopil"]\nseedz = 3\n',
        "broken.toml": "env = \n",
        "unknown.toml": 'env = "CartPole-v1"\nmethods = ["scopill"]\n',
    }.items():
        (place / name).write_text(text)
    small_set().save(place / "small.npz")
    marble_episodes(steps=4, episodes=2).save(place / "marble.npz")
    np.save(place / "array.npy", np.zeros(3))
    (place / "pickle.pkl").write_bytes(b"\x80\x04K\x01.")
    (place / "cut.npz").write_bytes((place / "small.npz").read_bytes()[:200])
    np.savez(place / "no_actions.npz", observations=np.zeros((3, 2)))
    np.savez(place / "nan.npz", observations=np.full((4, 4), np.nan), actions=np.zeros(3, int))
    untrained_run(place / "run")
    named = untrained_run(place / "named", rules=None)
    text = (named.folder / "run.json").read_text()
    (named.folder / "run.json").write_text(text.replace('"rules": null', '"rules": "rules.py"'))
    untrained_run(place / "damaged")
    (place / "damaged" / "run.json").write_text("{")
    untrained_run(place / "unfinished").policy_file.unlink()
    (place / "empty").mkdir()
    yield place
    shutil.rmtree(place)


TRAIN = "train sac --out new --hidden 4"
RECORD = "demos record --out new.npz --episodes 1"
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
    ("demos check small.npz --env CartPole-v1 --rules rules.py", "failed: environment"),
    ("demos check small.npz --max-episode-steps 80", "there is no option --max-episode-steps"),
    ("train sac --out new --demos small.npz --rules rules.py", "the environment wants"),
    ("demos check small.npz --rules absent.py", "no file absent.py in"),
    (f"{RECORD} --env here.py:Here --policy absent.py:act", "no file absent.py in"),
    (f"{RECORD} --env here.py:Here --policy expert.py", "want --policy my_expert.py:act"),
    (f"{RECORD} --env here.py:Here --policy expert.py:number", "the expert is a int; want a function act(obs)"),
    (f"{RECORD} --env here.py:Here --policy expert.py:act", "action at step 0 is 7; want one of Discrete(3)"),
    ("demos record --out new.npz --env here.py:Here --policy expert.py:act --episodes 0", "want at least 1"),
    ("demos generate nowhere --out new.npz", "unknown setting 'nowhere'; want one of simple"),
    # rules
    (f"{TRAIN} --rules absent.py", "no file absent.py in"),
    (f"{TRAIN} --rules no_rules.py", "no_rules.py has no rules; want a dict RULES, or functions"),
    (f"{TRAIN} --rules rules.py:low", "rules.py has no 'low'; it has high"),
    ("evaluate run --episodes 1 --rules rules.py", "rule 'high' failed at step 0: IndexError"),
    ("evaluate named --episodes 1", "names the code 'rules.py' as its rules, and your key did not sign it"),
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
]


@pytest.mark.parametrize(("line", "fragment"), WRONG, ids=[line for line, _ in WRONG])
def test_a_wrong_input_is_refused_in_one_line(line, fragment, capsys, folder):
    assert main(line.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1, said
    assert "Traceback" not in said
    assert fragment in said
    metrics = folder / "new" / "metrics.jsonl"
    assert not metrics.exists() or not metrics.read_text()  # nothing is left in the way of the next attempt
