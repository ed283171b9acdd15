"""`scopil rules RUN`: the rules that a run has learned, in words and as a file of rules."""

from pathlib import Path
from typing import Annotated

import tyro

from scopil.cli.options import TrustEnv, call, option
from scopil.explain import FoundRule, rules_file
from scopil.files import write_atomically
from scopil.loading import load
from scopil.terminal import say


def main(argv: list[str]) -> None:
    call(rules, "scopil rules", argv)


def rules(
    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(help="a run folder or a saved agent", metavar="RUN")],
    out: Annotated[Path | None, option("a Python file of these rules to write, for --rules", "FILE")] = None,
    trust_env: TrustEnv = False,
) -> None:
    """Print the rules that a run has learned from its demonstrations (see docs/rules.md)."""
    found = found_rules(run, trust_env=trust_env)
    for rule in found:
        say(f"{rule.sentence} ({rule.evidence})")
    if not found:
        say("nothing bound: no region that the demonstrations avoid and the learner entered")
    elif out is not None:
        write_atomically(out, rules_file(found).encode())
        say(f"written: {out}; read it and remove what is no rule before you use it")


def found_rules(run: str | Path, *, trust_env: bool = False) -> list[FoundRule]:
    """The rules behind the constraints of a run or saved agent, largest multiplier first."""
    agent = load(run, trust_env=trust_env)
    found = agent.rules()
    agent.env.close()
    return found
