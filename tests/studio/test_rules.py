"""Violations on the pages: by the rules of a run, or by --rules for the environment of --env; else not known."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from runs import untrained_run
from scopil.cli import main
from scopil.errors import EnvError
from scopil.loading import load
from scopil_studio import comparing, training_jobs, watching
from scopil_studio.worker import StudioConfig

HERE, STEPS = Path(__file__).parent, 6
CART, RULES = f"cart_env.py:WarehouseCart(max_episode_steps={STEPS})", "cart_rules.py"
STRICT = "def any_step(obs, action, next_obs): return True\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the cart's code, a run with rules, one without and one on another environment."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        for name in ("cart_env.py", RULES):
            shutil.copy(HERE / name, home / name)
        (home / "strict.py").write_text(STRICT)
        untrained_run(home / "ruled", env=CART, rules="strict.py")
        untrained_run(home / "ruleless", env=CART)
        untrained_run(home / "pole", env="CartPole-v1")
    return home


@pytest.fixture
def home(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(config: StudioConfig, env: str, *policies: str) -> list[dict]:
    return comparing.frames(config, env, list(policies), 0)[0]["policies"]


def test_a_run_brings_its_rules_and_its_environment(home):
    """Without --env and --rules, and without the original files."""
    for name in ("cart_env.py", RULES, "strict.py"):
        (home / name).unlink()
    config = StudioConfig(home)
    ruled, ruleless = shown(config, CART, "ruled", "ruleless")
    assert ruled["violations"] == sum(ruled["costs"]) == load("ruled").evaluate(episodes=1)["violations"] == STEPS
    assert ruleless["violations"] is ruleless["costs"] is None
    assert comparing.tray(config, CART) == {"tray": None}
    assert {run["name"]: run["allowed"] for run in watching.overview(config)["runs"]} == dict.fromkeys(
        ("pole", "ruled", "ruleless"), True
    )


def test_rules_of_the_caller_are_for_the_environments_of_the_caller(home, monkeypatch):
    """They replace the rules of runs there. Another environment's page is not broken by them."""
    config = StudioConfig(home, (CART,), RULES)
    first, second = shown(config, CART, "ruled", "ruleless")
    assert first["violations"] < 2 * STEPS
    assert second["violations"] is not None
    (pole,) = shown(config, "CartPole-v1", "pole")
    assert pole["violations"] is None
    assert pole["unknown"] == ""
    begun = []
    monkeypatch.setattr(training_jobs, "_begin", lambda home, folder, words: begun.append(words))
    for env in (CART, "CartPole-v1"):
        training_jobs.start(config, f"new-{len(begun)}", "sac", env)
    assert [f"--rules={RULES}" in words for words in begun] == [True, False]


def test_a_rule_that_fails_is_not_known(home):
    (home / "faulty.py").write_text("def far(obs, action, next_obs): return next_obs[7] > 1\n")
    (found,) = shown(StudioConfig(home, (CART,), "faulty.py"), CART, "ruled")
    assert found["violations"] is found["costs"] is None
    assert "rule 'far' failed" in found["unknown"]


def test_a_foreign_run_plays_no_code(home, monkeypatch):
    """Neither its own nor, under the name that the caller gave, other code than the caller's."""
    evil = f"open({str(home / 'ran')!r}, 'w').close()\n"
    for file in ("env/cart_env.py", "rules/strict.py"):
        copy = home / "ruled" / "code" / file
        copy.write_text(evil + copy.read_text())
    note = json.loads((home / "ruled" / "run.json").read_text())
    (home / "ruled" / "run.json").write_text(json.dumps(note | {"signature": "0" * 64}))
    shutil.rmtree(home / "ruleless")
    with pytest.raises(EnvError, match="--env"):
        shown(StudioConfig(home), CART, "ruled")
    with pytest.raises(EnvError, match="--env"):
        comparing.tray(StudioConfig(home), CART)
    (found,) = shown(StudioConfig(home, (CART,)), CART, "ruled")
    assert found["violations"] is None
    assert "your key did not sign it" in found["unknown"]
    (found,) = shown(StudioConfig(home, (CART,), "strict.py"), CART, "ruled")
    assert found["violations"] == STEPS
    begun = []
    monkeypatch.setattr(training_jobs, "_begin", lambda home, folder, words: begun.append(words))
    (home / "ruled" / "policy.safetensors").unlink()
    training_jobs.resume(StudioConfig(home, (CART,), "strict.py"), "ruled")
    assert "--trust-env" not in begun[0]
    assert not (home / "ran").exists()


def test_a_tray_with_foreign_rules_has_no_figure(home):
    """The tray reports costs, but the run names other rules."""
    maze = "scopil/MarbleMaze-Simple-v0"
    untrained_run(home / "maze", rules="strict.py")
    args = {"env": maze, "policies": ["maze"], "start": [60.0, 120.0]}
    (own,) = comparing.roll(StudioConfig(home), **args)["policies"]
    assert own["measures"]["violations/any_step"] == len(own["actions"])
    note = json.loads((home / "maze" / "run.json").read_text())
    (home / "maze" / "run.json").write_text(json.dumps(note | {"signature": "0" * 64}))
    (foreign,) = comparing.roll(replace(StudioConfig(home), envs=("x",)), **args)["policies"]
    assert "violations" not in foreign["measures"]
    assert not any(foreign["broken"])
    assert "your key did not sign it" in foreign["unknown"]


def test_rules_need_their_environment(home, capsys):
    assert main(["studio", ".", "--rules", RULES, "--no-browser"]) == 2
    assert f"--rules {RULES} without --env" in capsys.readouterr().err
