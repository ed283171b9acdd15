"""A study in a file: what it means, and what is refused before anything is trained."""

from pathlib import Path

import pytest

from scopil.cli import main
from scopil.errors import ConfigError
from scopil_bench import planning, studies
from scopil_bench.studies.study_file import read_study, study_from

PLAN = {"env": "CartPole-v1", "methods": ["sac", "bc"], "seeds": 2, "steps": 500}
RULES = 'def left(obs, action, next_obs):\n    """The cart is left."""\n    return next_obs[0] < 0\n'


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_becomes_settings_methods_and_runs(here):
    (here / "my_rules.py").write_text(RULES)
    (here / "mine.toml").write_text("""
        seeds = 2
        steps = 1_000
        [settings.cart]
        env = "CartPole-v1"
        demos = "shown.npz"
        rules = "my_rules.py"
        title = "The cart"
        [settings.lander]
        env = "LunarLander-v3(max_episode_steps=300)"
        [methods.bc]
        [methods.narrow]
        algorithm = "sac"
        title = "SAC, narrow"
        hidden = [4]
        discount = 0.5
        [overrides]
        hidden = [8, 8]
    """)
    study = studies.find("mine.toml")
    assert (study.name, study.title, study.source) == ("mine", "mine", "mine.toml")
    assert (study.tables["cart"].title, study.tables["lander"].title) == ("The cart", "lander")
    assert [c.method for c in study.cells(["cart"])] == ["bc", "narrow"]
    assert study.title_of("narrow") == "SAC, narrow"
    assert study.glossary == ["left: The cart is left."]
    planned = planning.plan(study, Path("out"), "full", study.cells(), 2)
    assert len(planned) == 2 * 2 * 2
    folder, spec = planned[1]
    assert folder == Path("out/runs/cart/narrow-0")
    assert (spec.env, spec.demos, spec.rules) == ("CartPole-v1", "shown.npz", "my_rules.py")
    assert (spec.steps, spec.config) == (1000, {"hidden": [4], "discount": 0.5})
    assert planned[0][1].config == {"hidden": [8, 8]}


def test_a_python_file_holds_the_same(here):
    (here / "plain.py").write_text(f"STUDY = {PLAN!r}\n")
    assert read_study("plain.py").budgets["full"].seeds == 2
    (here / "whole.py").write_text("from scopil_bench.studies.external.study import STUDY\n")
    assert (read_study("whole.py").name, read_study("whole.py").source) == ("external", "whole.py")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seds": 3}, "Did you mean seeds?"),
        ({"seeds": "3"}, "seeds = '3'"),
        ({"seeds": True}, "seeds = True"),
        ({"steps": 0}, "steps = 0"),
        ({"env": None}, "env"),
        ({"methods": []}, "methods"),
        ({"methods": ["sca"]}, "Did you mean sac?"),
        ({"methods": {"sac": {"lr": 1}}}, r"\[methods.sac\] .* lr"),
        ({"methods": {"sac": {"discount": 2.0}}}, r"\[methods.sac\] discount = 2"),
        ({"methods": {"a/b": {"algorithm": "sac"}}}, "a/b"),
        ({"overrides": {"slack": 1.0}}, r"\[overrides\] slack"),
        ({"settings": {"x": {"env": "a"}}}, "env and"),
        ({"evaluations": ["greedy"]}, "evaluations = "),
        ({"rules": "none.py"}, "none.py"),
    ],
)
def test_a_mistake_is_named(changes, message):
    with pytest.raises(ConfigError, match=message):
        study_from(PLAN | changes, name="mine")


def test_what_is_not_a_study_is_refused_in_one_line(here, capsys):
    (here / "broken.toml").write_text("seeds = \n")
    (here / "empty.py").write_text("")
    (here / "plain.toml").write_text('env = "CartPole-v1"\nmethods = ["sac"]\n')
    for argv, message in [
        (["study", "none.toml"], "none.toml"),
        (["study", "broken.toml"], "Invalid value"),
        (["study", "empty.py"], "STUDY"),
        (["study", "mine"], "my_study.toml"),
        (["study", "plain.toml", "--seeds", "0"], "--seeds 0"),
        (["tune", "plain.toml"], "tune"),
        (["tune", "paper"], "file"),
    ]:
        assert main(argv) == 2
        err = capsys.readouterr().err
        assert message in err
        assert err.count("\n") == 1
    assert not (here / "out").exists()


def test_reproduce_is_the_papers_study(monkeypatch):
    asked = []
    monkeypatch.setattr("scopil_bench.cli.study.call", lambda verb, prog, argv: asked.append(argv) or 0)
    main(["reproduce", "--seeds", "2"])
    assert asked == [["paper", "--seeds", "2"]]


def test_a_folder_does_not_choose_the_file_that_is_read(here, capsys):
    (here / "out" / "runs" / "task" / "sac-0").mkdir(parents=True)
    (here / "out" / "runs" / "task" / "sac-0" / "run.json").write_text("{}")
    (here / "out" / "study.json").write_text('{"study": "x", "budget": "full", "source": "evil.py"}')
    (here / "evil.py").write_text("raise SystemError('ran')\n")
    assert main(["report", "out"]) == 2
    assert "scopil study evil.py --out out reports it" in capsys.readouterr().err


def test_a_study_made_here_is_read_without_trust(here, monkeypatch):
    """Unless its file, or code that it names, has changed, or another user made the folder."""
    (here / "limits.py").write_text("LEFT = 0\n")
    (here / "my_rules.py").write_text("import limits\n" + RULES)
    (here / "mine.toml").write_text('env = "CartPole-v1"\nrules = "my_rules.py"\nmethods = ["sac"]\nsteps = 500\n')
    planning.create(study := read_study("mine.toml"), here / "out", "full", study.cells(), 1)
    note = planning.read_note(here / "out")
    planning.refuse_foreign(here / "out", note)
    for file in ("mine.toml", "my_rules.py", "limits.py"):
        kept = (here / file).read_text()
        (here / file).write_text(kept + "\n")
        with pytest.raises(ConfigError, match=f"{file} has changed"):
            planning.refuse_foreign(here / "out", note)
        (here / file).write_text(kept)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here / "another"))
    with pytest.raises(ConfigError, match="your key did not sign it"):
        planning.refuse_foreign(here / "out", note)


def test_a_changed_environment_is_no_part_of_the_same_study(here):
    made = "import gymnasium as gym\ndef make(**options): return gym.make('CartPole-v1', **options).unwrapped\n"
    (here / "own.py").write_text(made)
    study = study_from(PLAN | {"env": "own.py:make", "methods": ["sac"], "seeds": 1})
    planning.create(study, here / "out", "full", study.cells(), 1)
    planning.create(study, here / "out", "full", study.cells(), 1)
    (here / "own.py").write_text(made + "\n")
    with pytest.raises(ConfigError, match=r"own\.py:make has changed"):
        planning.create(study, here / "out", "full", study.cells(), 1)
