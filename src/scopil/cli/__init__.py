"""The command line: a table of commands. A command's module is imported only when it is called, so that help is fast.

A command is a function `main(argv) -> int | None` that raises `ScopilError` for invalid input.
"""

import gc
import os
import re
import signal
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module

from scopil.xla_flags import XLA_FLAGS

# All commands use these options, so that evaluation and training give identical results.
os.environ.setdefault("XLA_FLAGS", XLA_FLAGS)

from scopil import __version__
from scopil.cli.interrupts import INTERRUPTED, heard, leave
from scopil.errors import ConfigError, ScopilError

VERBS: dict[str, tuple[str, str]] = {
    "train": ("scopil.cli.train", "Train a policy into a run folder, or continue one"),
    "resume": ("scopil.cli.train:resume_main", "Continue a run, or extend a finished one"),
    "runs": ("scopil.cli.runs", "List the runs in a folder, with state, reward and violations"),
    "evaluate": ("scopil.cli.evaluate", "Play a trained policy and count violations"),
    "audit": ("scopil_bench.cli.audit", "Find the unwritten rules that a policy breaks, by demonstrations"),
    "certify": ("scopil_bench.cli.certify", "Bound the share of episodes that break rules or are novel"),
    "rules": ("scopil.cli.rules", "Print the rules that a run has learned, in words"),
    "report": ("scopil_bench.cli.report", "Draw training curves and trajectories of runs"),
    "export": ("scopil.cli.export", "Write a policy as ONNX or for jax.export, to run without scopil"),
    "tune": ("scopil_bench.cli.tune", "Search settings of a study's method (Optuna)"),
    "study": ("scopil_bench.cli.study", "Train, evaluate and report a study: a built-in one or a file"),
    "reproduce": ("scopil_bench.cli.study:reproduce_main", "Run the paper's experiments: scopil study paper"),
    "demos": ("scopil_bench.cli.demos", "List, inspect, generate, check and convert demonstrations"),
    "play": ("scopil_studio.play", "Play episodes by keyboard and record them as demonstrations"),
    "studio": ("scopil_studio.command", "Record, watch and compare in the browser"),
    "render": ("scopil_bench.cli.render", "Draw episodes of a run or of demonstrations as a film"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Returns 0 if done, 1 if `certify` refuses, 2 for invalid input (one line on stderr), 130 if
    interrupted."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        with heard((signal.SIGINT,), leave), warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: _say_error(f"warning: {message}")
            return _run(args, own_process=argv is None)
    except ConfigError as error:
        return _refuse(_with_flag(error))
    except ScopilError as error:
        return _refuse(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{where}{error.strerror or error}")
    except (MemoryError, RuntimeError, ValueError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):  # JAX's message
            raise
        return _refuse("out of memory; saved files are whole. Lower the sizes or counts in the settings.")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as stop:  # tyro has printed help or an error
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)


def _run(args: list[str], own_process: bool) -> int:
    if not args or args[0] in ("-h", "--help"):
        _help()
        return 0
    verb, *rest = args
    if verb == "--version":
        print(f"scopil {__version__}")
        return 0
    if verb not in VERBS:
        raise ScopilError(f"unknown command {verb!r}; want one of {', '.join(VERBS)} (see scopil --help).")
    module, _, function = VERBS[verb][0].partition(":")
    command = getattr(import_module(module), function or "main")
    if own_process:
        gc.freeze()  # otherwise Python searches all modules for garbage when it exits, which takes 0.4 s
    return command(rest) or 0


def _with_flag(error: ConfigError) -> str:
    """The error message with the name of the setting replaced by the command-line option."""
    if error.setting is None:
        return str(error)
    return re.sub(rf"\b{error.setting}\b", f"--{error.setting.replace('_', '-')}", str(error))


def _refuse(message: str) -> int:
    _say_error(f"error: {message}")
    return 2


def _say_error(message: str) -> None:
    from scopil.terminal import say

    say(" ".join(message.split()), file=sys.stderr)


def _help() -> None:
    from rich.table import Table

    from scopil.terminal import Console

    console = Console(highlight=False, markup=True)
    console.print("[bold]scopil[/bold]: learn policies that solve a task and keep the demonstrator's unwritten rules\n")
    console.print("usage: scopil [bold]COMMAND[/bold] …      scopil COMMAND --help for more\n", soft_wrap=True)
    table = Table.grid(padding=(0, 3))
    for verb, (_, line) in VERBS.items():
        table.add_row(f"  [bold cyan]{verb}[/bold cyan]", line)
    table.add_row("", "")
    table.add_row("  [bold]--version[/bold]", "Print the version")
    console.print(table)
