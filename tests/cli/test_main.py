"""The command: verbs, help, exit codes, and errors of one line."""

import subprocess
import sys

import pytest

import scopil.cli
from scopil.cli import VERBS, main
from scopil.errors import ConfigError
from scopil.xla_flags import XLA_FLAGS


def run(*argv: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "scopil", *argv], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_help_names_every_verb(argv, capsys):
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert all(verb in out and line in out for verb, (_, line) in VERBS.items())


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"scopil {scopil.__version__}\n"


def test_help_imports_nothing_heavy_and_every_command_has_one_thread(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS")
    heavy = ("jax", "matplotlib", "pygame", "minari", "equinox", "optax", "tyro")
    code = "import os, sys; from scopil.cli import main; main(['--help']);"
    code += f"print([m for m in {heavy!r} if m in sys.modules], os.environ['XLA_FLAGS'])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[-1] == f"[] {XLA_FLAGS}"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_refuses_unknown_options(verb, capsys):
    assert main([verb, "--help"]) == 0
    assert f"usage: scopil {verb}" in capsys.readouterr().out
    needed = ["RUN"] if verb in ("resume", "evaluate", "rules", "export", "study", "tune", "certify") else []
    assert main([verb, *needed, "--no-such-option"]) == 2
    assert "no-such-option" in capsys.readouterr().err


class Verb:
    """In place of a verb's module."""

    def __init__(self, result: object):
        self.result = result

    def main(self, argv):
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


@pytest.mark.parametrize(
    ("result", "code", "said"),
    [
        (None, 0, ""),
        (3, 3, ""),
        (ConfigError("two\n  lines"), 2, "error: two lines\n"),
        (PermissionError(13, "Permission denied", "/x"), 2, "error: /x: Permission denied\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (SystemExit(2), 2, ""),
        (SystemExit(None), 0, ""),
    ],
)
def test_exit_codes(result, code, said, monkeypatch, capsys):
    monkeypatch.setattr(scopil.cli, "import_module", lambda name: Verb(result))
    assert main(["demos"]) == code
    assert capsys.readouterr().err == said
    monkeypatch.setattr(scopil.cli, "import_module", lambda name: Verb(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):  # a bug is not hidden
        main(["demos"])


def test_exit_codes_of_the_process(tmp_path):
    good = run("demos", "list")
    assert (good.returncode, good.stderr) == (0, "")
    bad = run("demos", "check", str(tmp_path / "none.npz"))
    assert bad.returncode == 2
    assert bad.stdout == ""
    assert bad.stderr.startswith("error: no demonstrations")
    assert bad.stderr.count("\n") == 1
