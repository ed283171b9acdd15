"""`scopil play` passes its options on, and refuses bad input before it opens a window."""

from pathlib import Path

import pytest

from scopil.cli import main
from scopil_studio import keyboard


@pytest.fixture
def played(monkeypatch) -> list:
    """The calls of `keyboard.play`; no window is opened."""
    calls = []

    def fake(env, out, **options):
        calls.append((env.spec.id, env.render_mode, out, options))

    monkeypatch.setattr(keyboard, "play", fake)
    return calls


def test_play_passes_its_options_on_for_any_environment(played, capsys):
    assert main(["play", "--setting", "multiple", "--live", "--episodes", "2", "--seed", "9", "--out", "my.npz"]) == 0
    ((env_id, mode, out, options),) = played
    assert (env_id, mode, out) == ("scopil/MarbleMaze-Multiple-v0", "rgb_array", Path("my.npz"))
    assert (options["live"], options["episodes"], options["seed"]) == (True, 2, 9)
    assert capsys.readouterr().out == "no episode kept\n"
    played.clear()
    assert main(["play", "--env", "CartPole-v1", "--keys", "a=0,d=1", "--out", "my.npz"]) == 0
    ((env_id, _, _, options),) = played
    assert env_id == "CartPole-v1"
    assert options["keys"].actions == {frozenset("a"): 0, frozenset("d"): 1}
    assert options["live"] is False


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--setting", "easy"], "unknown setting 'easy'; want one of simple, multiple, two-modes"),
        (["--episodes", "0"], "--episodes 0; want at least 1"),
        (["--env", "CartPole-v1"], "no --keys for actions of 0 … 1"),
        (["--env", "CartPole-v1", "--setting", "simple", "--keys", "a=0"], "give only one"),
        (["--env", "CartPole-v1", "--keys", "a=7"], "action 7; want 0 … 1"),
        (["--env", "CartPole-v1", "--keys", "nonsense"], "key=action"),
        (["--env", "Pendulum-v1", "--keys", "a=0:1"], "want 1 numbers, as in d=1"),
        (["--env", "Pendulum-v1", "--keys", "a=9"], "action 9; want 1 numbers of Box"),
        (["--env", "Pendulum-v1"], "no --keys for actions of 1 numbers"),
        (["--env", "Nowhere-v0", "--keys", "a=0"], "environment 'Nowhere-v0'"),
    ],
)
def test_play_refuses(argv, message, played, capsys):
    assert main(["play", *argv, "--out", "my.npz"]) == 2
    assert message in capsys.readouterr().err
    assert played == []
