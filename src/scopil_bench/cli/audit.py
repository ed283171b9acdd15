"""`scopil audit --policy POLICY --env ID --demos SET`: the unwritten rules that a policy breaks."""

import io
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import gymnasium as gym
import jax
import numpy as np
import tyro

from scopil.audit import LEVEL, NOVEL, Audit, Finding, audit
from scopil.cli.options import EnvKwargs, MaxSteps, TrustEnv, call, env_name, option
from scopil.cli.waiting import counting, doing
from scopil.data.dataset import Demonstrations, Episode
from scopil.data.record import play_expert
from scopil.data.storage import load_demos
from scopil.envs.base import Advance, BatchEnv
from scopil.envs.gym_env import open_env
from scopil.envs.naming import id_in_file
from scopil.envs.spaces import Spaces
from scopil.errors import ConfigError, ScopilError
from scopil.eval.episodes import play_distinct
from scopil.eval.pictures import few_colours, new_figure
from scopil.eval.rules import Rules, by_own_rules, load_rules, own_rules, with_rules
from scopil.eval.starts import unseen_starts
from scopil.explain import FoundRule, explain
from scopil.files import write_atomically
from scopil.loading import load, refuse_other_spaces
from scopil.policy import read_policy
from scopil.terminal import Console
from scopil.train.demo_data import demo_data, flattened
from scopil.user_code import is_file_name, load_object, place_of
from scopil_bench.report.page import Block, Command, Drawn, Fold, Grid, Heading, Items, Text, data_uri, to_html
from scopil_bench.report.rule_maps import FOUND, map_of

WANTED = "want policy.onnx, FILE.py:FUNCTION, a run folder or a .safetensors file"
MAPS = (
    "Orange: novelty. Black points or grey bars: demonstrated steps. Pink: steps of the policy. Blue: the region that "
    "the sentence says is avoided."
)


def main(argv: list[str]) -> None:
    call(run_audit, "scopil audit", argv)


def run_audit(
    policy: Annotated[
        str, tyro.conf.arg(help="policy.onnx, FILE.py:FUNCTION, RUN or policy.safetensors", metavar="POLICY")
    ],
    env: Annotated[
        str | None, option("a Gymnasium id, or FILE.py:CLASS; default: the environment of RUN", "ID")
    ] = None,
    demos: Annotated[str | None, option("a set of demonstrations; default: those of RUN", "SET")] = None,
    episodes: Annotated[int, option("number of episodes from unseen starts", "N")] = 200,
    seed: Annotated[int, option("seed of the unseen starts and of the test", "S")] = 0,
    features: Annotated[
        tuple[str, ...],
        option("components that are compared, or FILE.py:FUNCTION of your own features; default: all", "NAME"),
    ] = (),
    strike: Annotated[tuple[str, ...], option('differences that are no rules: "vx at x"', "NAME")] = (),
    env_kwargs: EnvKwargs = (),
    max_episode_steps: MaxSteps = None,
    trust_env: TrustEnv = False,
    out: Annotated[Path | None, option("also write a page with pictures, .html", "FILE")] = None,
) -> None:
    """Play a policy from unseen starts and compare its episodes with demonstrations. Nothing is trained."""
    if out is not None:
        if out.suffix != ".html" or out.is_dir():
            raise ConfigError(f"--out {out}; want a file name that ends in .html.")
        new_figure()  # raises if matplotlib is missing, before the episodes are played
    name = None if env is None else env_name(env, env_kwargs, max_episode_steps)
    played, shown, spaces, *_ = compared(policy, name, demos, episodes, seed, trust_env)
    console = Console(highlight=False)
    with doing(f"comparing {len(played)} episodes with {len(shown)} demonstrations", console):
        found = audit(played, shown, spaces.columns, features=features, strike=strike, seed=seed, codec=spaces)
    console.print(summary(found, policy), soft_wrap=True)
    rules = [explain(finding.marginal) for finding in found.findings]
    for i, (finding, rule) in enumerate(zip(found.findings, rules, strict=True), 1):
        low, high = finding.interval
        difference = f"difference {finding.gap:.3f}, 95 % interval {low:.3f} to {high:.3f}"
        console.print(f"{i}. {sentence(finding, rule)}; {difference}", soft_wrap=True)
    if out is not None:
        command = shlex.join(["scopil", "audit", *sys.argv[2:]])
        write_atomically(out, page(found, rules, policy, shown.name, command).encode())
        console.print(f"written: {out}")


# --- playing ----------------------------------------------------------------------------------------------------------


class Compared(NamedTuple):
    """Episodes of a policy and demonstrations. Observations are flat rows."""

    played: list[Episode]
    shown: Demonstrations
    spaces: Spaces
    env: str  # name of the environment
    rules: Rules | None  # that the episodes are judged by; None: the costs that the environment reports


def compared(
    policy: str,
    env: str | None,
    demos: str | None,
    episodes: int,
    seed: int = 0,
    trust_env: bool = False,
    rules: str | None = None,
) -> Compared:
    """Play a policy from unseen starts. Its episodes are judged by `rules`, by the rules of its run, or else by those
    of the environment."""
    if episodes < 1:
        raise ConfigError(f"--episodes {episodes}; want at least 1.")
    path, agent = Path(policy), None
    judges = None if rules is None else load_rules(rules)
    if path.is_dir() or (path.suffix == ".safetensors" and "algorithm" in read_policy(path)[1]):
        agent = load(path, env, demos, trust_env=trust_env)
        opened, shown, judges = agent.env, agent.demos, judges or agent.rules_of_run()
        env = env or agent.env_id or opened.name
    elif is_file_name(policy) or (path.suffix in (".onnx", ".safetensors") and path.is_file()):
        given = None if demos is None else load_demos(demos)
        env = env or (None if given is None else id_in_file(given.env_id, str(demos), trust_env))
        if env is None:
            raise ConfigError(f"{policy} does not name its environment; give it with --env ID.")
        opened = open_env(env)
        shown = None if given is None else load_demos(given, opened)
    else:
        raise ConfigError(f"{policy}: no such file; {WANTED}.")
    try:
        if opened.spaces.image is not None:
            raise ConfigError(f"{opened.name}: observations are images; want observations of named numbers.")
        if shown is None:
            raise ConfigError(f"{policy} has no demonstrations; give them with --demos SET.")
        demo_data(shown, opened)  # raises if they do not fit the environment
        with counting("episodes played", episodes) as advance:
            if agent is not None:
                played = agent.play("unseen", episodes, seed=seed, rules=judges, progress=advance)
            else:
                played = _play(policy, opened, env, episodes, seed, advance)
                played = played if judges is None else with_rules(played, judges, opened)
        rows = [_flat(e, opened) for e in played]
        return Compared(rows, flattened(shown, opened), opened.spaces, env, judges or own_rules(opened))
    finally:
        opened.close()


def _flat(episode: Episode, env: BatchEnv) -> Episode:
    if episode.observations.shape[1:] == env.observation_space.shape:
        return episode
    return replace(episode, observations=env.spaces.encode(episode.observations))


def _play(policy: str, env: BatchEnv, name: str, episodes: int, seed: int, advance: Advance) -> list[Episode]:
    starts, path = unseen_starts(env, episodes, seed), Path(policy)
    if path.suffix == ".safetensors":
        alone, _ = read_policy(path)
        refuse_other_spaces(alone, env, path)
        return play_distinct(env, alone, starts, jax.random.key(seed), advance=advance)
    act = _onnx(path, env) if path.suffix == ".onnx" else load_object(policy, "--policy my_policy.py:act")
    try:
        played = play_expert(env, name, act, starts, advance)
    except ScopilError:
        raise
    except Exception as error:  # of the policy
        raise ConfigError(f"{policy}: {place_of(error)}.") from error
    return by_own_rules(env, [_flat(e, env) for e in played])


def _onnx(path: Path, env: BatchEnv) -> Callable[[Any], Any]:
    """The greedy action of an ONNX graph. Its first input is a batch of flat observations; `noise` (docs/deploy.md) is
    0. Its action is the output `action`, or the first output; of a vector of scores, the largest is chosen."""
    try:
        onnxruntime: Any = import_module("onnxruntime")
    except ImportError as error:
        raise ScopilError('ONNX policies need onnxruntime: pip install "scopil[onnx]".') from error
    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no common class of errors
        raise ConfigError(f"{path} is no ONNX graph: {str(error).splitlines()[0]}.") from error
    first, *others = session.get_inputs()
    width, names = first.shape[-1], [out.name for out in session.get_outputs()]
    if isinstance(width, int) and width != env.spaces.size:
        raise ConfigError(f"{path} takes observations of {width} numbers; the environment's have {env.spaces.size}.")
    zeros = {one.name: np.zeros([n if isinstance(n, int) else 1 for n in one.shape], np.float32) for one in others}
    space, output = env.spaces.action, "action" if "action" in names else names[0]

    def act(obs: Any) -> Any:
        row = np.asarray(env.spaces.flatten(obs), np.float32)[None]
        (found,) = session.run([output], {first.name: row} | zeros)
        if isinstance(space, gym.spaces.Discrete):
            scores = np.ravel(found)
            return env.spaces.to_env(int(scores[0] if len(scores) == 1 else space.start + scores.argmax()))
        return env.spaces.to_env(np.ravel(found))

    return act


# --- words ------------------------------------------------------------------------------------------------------------


def summary(found: Audit, policy: str) -> str:
    basis = (
        f"{found.matched} of {found.episodes} episodes start near a demonstrated start; {found.demonstrations} "
        f"demonstrations; {found.candidates} marginals."
    )
    if not found.findings:
        return f"{policy} does not differ from the demonstrations. {basis}"
    count = len(found.findings)
    return f"{policy} differs from the demonstrations in {count} way{'s' * (count > 1)}. {basis}"


def sentence(finding: Finding, rule: FoundRule | None) -> str:
    """The rule that the difference suggests, if there is a simple one, and the evidence."""
    said = f"{finding.name} differs" if rule is None else rule.sentence
    return (
        f"{said}: a novel step in {finding.share:.0%} of the policy's episodes (demonstrations: "
        f"{finding.demo_share:.0%}), {finding.steps:.1%} of its steps ({finding.demo_steps:.1%})"
    )


HEAD = ("features", "difference", "95 % interval", "t", "episodes", "demos")


def _cells(finding: Finding) -> list[str]:
    low, high = finding.interval
    shares = f"{finding.share:.0%}", f"{finding.demo_share:.0%}"
    return [finding.name, f"{finding.gap:.3f}", f"{low:.3f} to {high:.3f}", f"{finding.t:.1f}", *shares]


# --- the page ---------------------------------------------------------------------------------------------------------


def page(found: Audit, rules: Sequence[FoundRule | None], policy: str, demos: str, command: str) -> str:
    blocks: list[Block] = [
        Text("Which unwritten rules does the policy break?", lead=True),
        Text(summary(found, policy)),
    ]
    if found.findings:
        blocks.append(Grid(HEAD, [_cells(f) for f in found.findings]))
    for finding, rule in zip(found.findings, rules, strict=True):
        blocks += [Heading(finding.name), Text(f"{sentence(finding, rule)}."), _picture(finding, rule)]
        if finding.further:
            blocks.append(
                Fold("The same difference in other features", [Grid(HEAD, [_cells(f) for f in finding.further])])
            )
    blocks += [
        Heading("How to read this page"),
        Items(
            [
                MAPS,
                f"Demonstrations: {demos}. Novelty is 0 where the demonstrator is found and 1 where only the policy is "
                f"found. Difference: mean novelty of the policy's episodes minus that of the demonstrations; each is "
                f"scored by tables that have not seen it.",
                f"Episodes, demos: the shares with a novel step, whose novelty exceeds {NOVEL:g}.",
                f"A difference is shown if its t exceeds {found.bar:.1f}. By design, other episodes of the "
                f"demonstrator exceed it in any marginal with probability {LEVEL:.0%}.",
                "A difference need not be a rule: --strike leaves it out. A rule that the demonstrator keeps by "
                "accident, or that is broken in few episodes, cannot be told from chance.",
            ]
        ),
        Command(command),
    ]
    return to_html("Audit", blocks)


def _picture(finding: Finding, rule: FoundRule | None) -> Drawn:
    figure, png = map_of(finding.marginal, {} if rule is None else {FOUND: rule.shape.contains}, own=True), io.BytesIO()
    figure.savefig(png, format="png", dpi=110, metadata={"Software": None})
    image = f'<img alt="{escape(finding.name)}" src="{data_uri(few_colours(png.getvalue()))}">'
    return Drawn(f"<figure>{image}</figure>")
