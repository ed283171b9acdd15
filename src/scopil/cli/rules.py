"""`scopil rules RUN`: the rules that a run has learned, in words and as a file of rules."""

from pathlib import Path
from typing import Annotated, Any

import tyro

from scopil.agent import OTHER_STARTS
from scopil.cli.options import TrustEnv, call, option
from scopil.data.dataset import Episode
from scopil.errors import ConfigError
from scopil.explain import FoundRule, rules_file
from scopil.files import write_atomically
from scopil.loading import load
from scopil.terminal import say
from scopil.train.run import Run
from scopil.user_code import Named, local_files, split_name

EPISODES = 200  # of the policy beside


def main(argv: list[str]) -> None:
    call(rules, "scopil rules", argv)


def rules(
    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(help="a run folder or a saved agent", metavar="RUN")],
    beside: Annotated[
        Path | None, option("a run or agent that breaks the rules, such as SAC's: its episodes are evidence", "RUN")
    ] = None,
    contrast: Annotated[
        int | None, option("train SAC for so many steps in the run's environment, a simulation, as --beside", "STEPS")
    ] = None,
    out: Annotated[Path | None, option("a Python file of these rules to write, for --rules", "FILE")] = None,
    trust_env: TrustEnv = False,
) -> None:
    """Print the rules that a run has learned from its demonstrations (see docs/rules.md)."""
    if beside is not None and contrast is not None:
        raise ConfigError("--beside and --contrast; want one of them: each gives the episodes of the other policy.")
    if contrast is not None and contrast < 1:
        raise ConfigError(f"--contrast {contrast}; want at least 1 step, such as 50000.")
    agent = load(run, trust_env=trust_env)
    played = []
    if contrast is not None:
        say(f"trains SAC on the reward alone for {contrast:,} steps")
        played = agent.reward_seeking(contrast, EPISODES)
    elif beside is not None:
        other = load(beside, trust_env=trust_env)
        played = other.play("unseen", EPISODES, deterministic=False, seed=OTHER_STARTS)
        other.env.close()
    found = _found(agent, played)
    for rule in found:
        say(f"{rule.sentence} ({rule.evidence})")
    if beside is not None:
        say(f"Only the constraints of {run} are explained. scopil audit --policy {beside} compares all features.")
    if not found:
        say("no rule found: no region that the demonstrations avoid and that was entered often enough to be evidence")
        if not played:
            say("A careful learner enters few such regions. In a simulation, --contrast 50000 gives more evidence.")
    elif out is not None:
        own = [name for name in getattr(agent.config, "features", ()) if isinstance(name, Named)]
        if own and any(axis.module for rule in found for axis in rule.marginal.axes):
            _copy_features(own[0], agent.run, out.parent)
        write_atomically(out, rules_file(found).encode())
        say(f"written: {out}; read it and remove what is no rule before you use it")


def found_rules(run: str | Path, *, trust_env: bool = False) -> list[FoundRule]:
    """The rules behind the constraints of a run or saved agent, largest multiplier first."""
    return _found(load(run, trust_env=trust_env))


def _found(agent: Any, beside: list[Episode] | None = None) -> list[FoundRule]:
    found = agent.rules(beside or [])
    agent.env.close()
    return found


def _copy_features(name: Named, run: Run | None, folder: Path) -> None:
    """Copy the files of own features, which the rules import, beside the file of rules."""
    if run is not None and run.code is not None:
        texts = run.code.texts("features", name, run.trust_env)
    else:
        texts = {key: file.read_bytes() for key, file in local_files(name).items()}
    for key, text in texts.items():
        file = folder / (f"{name.module}.py" if key == Path(split_name(name)[0]).name else key)
        if file.exists() and file.read_bytes() != text:
            raise ConfigError(f"{file} differs from the features of the run; want another folder for --out.")
        write_atomically(file, text)
