"""No escape sequence from a file reaches the terminal."""

import ast
import io
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from rich.table import Table

import scopil
from runs import untrained_run
from samples import marble_episodes
from scopil.cli import main
from scopil.data import storage
from scopil.eval.tables import print_measures
from scopil.terminal import Console, printable

EVIL = "\x1b]0;owned\x07\x1b[2K\x1b[1A\x9b31m\r\u202egnp"
SRC = Path(scopil.__file__).parents[1]


def is_clean(text: str) -> bool:
    return printable(text) == text and "owned" in text


@pytest.mark.parametrize("verb", ["show", "check"])
@pytest.mark.parametrize("field", ["name", "env_id", "about", "key"])
def test_demonstrations(verb, field, tmp_path, capsys):
    made = {
        "name": {"name": EVIL},
        "env_id": {"env_id": EVIL},
        "about": {"about": {"made_by": EVIL, "assumed": [EVIL]}},
        "key": {"about": {EVIL: "owned"}},
    }
    storage.write(replace(marble_episodes(steps=3, episodes=2), **made[field]), tmp_path / "demos.npz")
    main(["demos", verb, str(tmp_path / "demos.npz")])
    said = capsys.readouterr()
    assert printable(said.out + said.err) == said.out + said.err


def test_the_log_of_a_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    run = untrained_run(tmp_path / "run")
    (run.folder / "log.txt").write_text("error: \x1b]0;owned\x07\x1b[1A\n")
    run.policy_file.unlink()
    assert main(["runs", str(tmp_path)]) == 0
    assert is_clean(capsys.readouterr().out)


def test_warnings(monkeypatch, capsys):
    """For example of the versions that versions.json names."""
    monkeypatch.setattr("scopil.cli._run", lambda args, own_process: warnings.warn(EVIL, stacklevel=1) or 0)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main([]) == 0
    assert is_clean(said := capsys.readouterr().err)
    assert said.startswith("warning: ")
    assert len(said.splitlines()) == 1


def test_folders(tmp_path, capsys):
    run = untrained_run(tmp_path / "run")
    folder = run.folder.rename(tmp_path / EVIL)
    assert main(["evaluate", str(folder), "--episodes", "1"]) == 0
    assert is_clean(capsys.readouterr().out)
    assert main(["evaluate", str(folder / "nothing")]) == 2
    assert is_clean(capsys.readouterr().err)


def test_a_console_prints_text_as_it_is():
    """Also with colours: markup in a name makes no link, and the console's own styles remain."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=200, color_system="standard")
    table = Table(title=EVIL)
    table.add_column(f"[link=https://evil]{EVIL}[/link]")
    table.add_row(f"[red]{EVIL}[/] :smile:")
    console.print(table)
    console.print(f"[bold]{EVIL}", style="bold")
    print_measures({f"[link=x]{EVIL}": {"reward": 1.0}}, EVIL, console)
    text = file.getvalue()
    assert "\x1b[1m" in text  # bold
    for sequence in ("\x1b]", "\x1b[2K", "\x1b[1A", "\x9b", "\x07", "\r", "\u202e", "\x1b[31m"):
        assert sequence not in text
    assert text.count("[link=") == 2
    assert ":smile:" in text


def test_all_output_passes_the_terminal_module():
    """Only `scopil.terminal` uses rich's console, and `print` is left for texts that scopil wrote itself."""
    may_print = {"scopil/terminal.py", "scopil/cli/__init__.py", "scopil/cli/interrupts.py", "scopil_studio/command.py"}
    odd = []
    for path in sorted(SRC.glob("scopil*/**/*.py")):
        name = path.relative_to(SRC).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            imports = isinstance(node, ast.ImportFrom) and node.module == "rich.console"
            if imports and any(alias.name == "Console" for alias in node.names):  # pyright: ignore[reportAttributeAccessIssue]
                odd.append(f"{name} imports rich's Console")
            prints = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            if prints and name not in may_print and not any(k.arg == "file" for k in node.keywords):  # pyright: ignore[reportAttributeAccessIssue]
                odd.append(f"{name}:{node.lineno} prints")  # pyright: ignore[reportAttributeAccessIssue]
    assert not odd
