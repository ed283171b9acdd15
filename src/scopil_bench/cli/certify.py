"""`scopil certify POLICY`: bounds on the shares of episodes that break rules or are novel, as JSON and as a page."""

import hashlib
import json
import math
import secrets
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Annotated, Any

import tyro

from scopil import __version__
from scopil.certify import ASSUMPTIONS, SHIFT_LEVEL, Bound, Certificate, certify
from scopil.cli.options import EnvKwargs, MaxSteps, RulesOption, TrustEnv, call, env_name, option
from scopil.cli.waiting import doing
from scopil.errors import ConfigError
from scopil.files import write_atomically
from scopil.terminal import Console
from scopil.train.run import Run
from scopil.user_code import is_file_name, split_name
from scopil_bench.cli.audit import compared
from scopil_bench.report.page import Grid, Heading, Items, Text, to_html

FORMAT = "scopil certificate 1"
PACKAGES = ("gymnasium", "jax", "numpy", "scipy")
NOT_STATED = (
    "That an episode which is not novel keeps the rules. Novelty is a distance from the demonstrations, not a rule.",
    "That a state from which no rule is broken yet can still be left safely.",
    "Anything about starts, disturbances or equipment that differ from those of these episodes.",
    "That two statements hold together with this confidence: each holds with it on its own.",
)


def main(argv: list[str]) -> int:
    return call(run_certify, "scopil certify", argv)


def run_certify(
    policy: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(help="RUN, policy.safetensors, policy.onnx or FILE.py:FUNCTION", metavar="POLICY"),
    ],
    env: Annotated[
        str | None, option("a Gymnasium id, or FILE.py:CLASS; default: the environment of RUN", "ID")
    ] = None,
    demos: Annotated[str | None, option("a set of demonstrations; default: those of RUN", "SET")] = None,
    episodes: Annotated[int, option("number of episodes from unseen starts", "N")] = 300,
    level: Annotated[float, option("confidence of each statement", "SHARE")] = 0.95,
    rules: RulesOption = None,
    features: Annotated[
        tuple[str, ...],
        option("components that novelty is about, or FILE.py:FUNCTION of your own features; default: all", "NAME"),
    ] = (),
    seed: Annotated[int | None, option("seed of the starts; default: a new one", "S")] = None,
    env_kwargs: EnvKwargs = (),
    max_episode_steps: MaxSteps = None,
    trust_env: TrustEnv = False,
    out: Annotated[
        Path | None,
        option("page to write, .html, with a .json beside it; default: certificate.html beside POLICY", "FILE"),
    ] = None,
) -> int:
    """Play a policy from unseen starts and bound the shares of its episodes that break rules or are novel."""
    where = Path(split_name(policy)[0] if is_file_name(policy) else policy)
    target = out or (where if where.is_dir() else where.parent) / "certificate.html"
    if target.suffix != ".html":
        raise ConfigError(f"--out {target}; want a file name that ends in .html.")
    for file in (target, target.with_suffix(".json")):
        if file.exists():
            raise ConfigError(f"{file} exists; a certificate is not replaced. Name another with --out FILE.html.")
    if not 0.0 < level < 1.0:
        raise ConfigError(f"--level {level:g}; want a confidence between 0 and 1, such as 0.95.")
    seed = secrets.randbits(31) if seed is None else seed
    name = None if env is None else env_name(env, env_kwargs, max_episode_steps)
    played, shown, spaces, env, judges = compared(policy, name, demos, episodes, seed, trust_env, rules)
    console = Console(highlight=False)
    with doing(f"comparing {len(played)} episodes with {len(shown)} demonstrations", console):
        found = certify(played, shown, spaces.columns, level=level, features=features, seed=seed, codec=spaces)
    source = {
        "policy": {"name": policy, "sha256": _digest(where)},
        "demonstrations": {"name": shown.name, "episodes": len(shown), "sha256": shown.digest},
        "rules": None if judges is None else {"name": judges.source, "sha256": judges.digest},
        "environment": env,
        "seed": seed,
        "features": list(features),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"scopil": __version__, "python": python_version()} | {p: version(p) for p in PACKAGES},
    }
    body = as_json(found, source)
    for line in body["statements"]:
        console.print(line, soft_wrap=True)
    write_atomically(
        target.with_suffix(".json"), json.dumps(body, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    )
    write_atomically(target, page(body).encode())
    console.print(f"written: {target} and {target.with_suffix('.json').name}", soft_wrap=True)
    return int(found.refused is not None)


def _digest(where: Path) -> str:
    """SHA-256 of the file that holds the policy."""
    return hashlib.sha256((Run.open(where).newest_policy() if where.is_dir() else where).read_bytes()).hexdigest()


# --- the file ---------------------------------------------------------------------------------------------------------


def as_json(found: Certificate, source: dict[str, Any]) -> dict[str, Any]:
    body = asdict(found)
    return {
        "format": FORMAT,
        "refused": body.pop("refused"),
        "statements": statements(found),
        "assumptions": list(ASSUMPTIONS),
        "not_stated": list(NOT_STATED),
        **body,
        "source": source,
    }


def statements(found: Certificate) -> list[str]:
    """The sentences that the bounds support. Shares are rounded up."""
    if found.refused is not None:
        return [f"No certificate: {found.refused}."]
    sure, said = f"with {_percent(found.level)} confidence, at most", []
    if found.rules is None:
        said.append("Rules: not known. Nothing is stated about violations.")
    else:
        said.append(f"Rules: {sure} {_at_most(found.rules.any)} of episodes from these starts break a rule.")
    if found.novelty is None:
        said.append(f"Novelty: {found.missing['novelty']}. Nothing is stated about novelty.")
    else:
        share = _at_most(found.novelty.share)
        said.append(
            f"Novelty: {sure} {share} of episodes from these starts are more novel than 9 of 10 demonstrated episodes."
        )
    return said


def _at_most(bound: Bound) -> str:
    return f"{math.ceil(bound.bound * 1000 - 1e-9) / 10:g} %"


def _percent(share: float) -> str:
    return f"{100 * share:.6g} %"


# --- the page ---------------------------------------------------------------------------------------------------------


def page(body: dict[str, Any]) -> str:
    """The page of a certificate, from the content of its JSON file."""
    source, blocks = body["source"], [Text(line, lead=True) for line in body["statements"]]
    if body["refused"] is None:
        blocks += [
            Grid(("share of episodes", "observed", "of", "upper bound"), _bounds(body)),
            Heading("Assumptions"),
            Items(body["assumptions"]),
            Heading("Not stated"),
            Items(body["not_stated"]),
        ]
    policy, shown, versions = source["policy"], source["demonstrations"], source["versions"]
    blocks += [
        Heading("Starts"),
        Text(_about_starts(body["starts"])),
        Heading("What was examined"),
        Items(
            [
                f"Policy: {policy['name']}, SHA-256 {policy['sha256']}",
                f"Demonstrations: {shown['name']}, {shown['episodes']} episodes, SHA-256 {shown['sha256']}",
                f"Rules: {_about_rules(body)}",
                f"Environment: {source['environment']}, {body['episodes']} episodes, seed {source['seed']}",
                f"Made: {source['made']}, {', '.join(f'{name} {number}' for name, number in versions.items())}",
            ]
        ),
    ]
    return to_html("Certificate" if body["refused"] is None else "No certificate", blocks)


def _bounds(body: dict[str, Any]) -> list[list[str]]:
    total, rules, novelty = str(body["episodes"]), body["rules"], body["novelty"]

    def row(name: str, share: dict[str, Any] | None, missing: str = "") -> list[str]:
        shown = ("–", missing) if share is None else (str(share["hits"]), f"≤ {_at_most(Bound(**share))}")
        return [name, shown[0], total, shown[1]]

    rows = [row("breaks a rule", None if rules is None else rules["any"], "rules not known")]
    rows += [] if rules is None else [row(f"breaks the rule {name}", share) for name, share in rules["each"].items()]
    novel = "more novel than 9 of 10 demonstrated"
    if novelty is None:
        return [*rows, row(novel, None, "too few demonstrations")]
    above = f"observed: above score {novelty['rank']} of {novelty['held_out']} held-out demonstrations"
    return [*rows, row(f"{novel} ({above})", novelty["share"])]


def _about_starts(starts: dict[str, Any]) -> str:
    played, shown = starts["compared"]
    basis = f"{played} starts of the policy's episodes were compared with {shown} demonstrated starts"
    if starts["p"] > SHIFT_LEVEL:
        return f"{basis}. No difference was found (p = {starts['p']:g}). With few starts, a small one is not found."
    said = []
    for one in starts["components"]:
        if one["p"] <= SHIFT_LEVEL:
            medians = (one["demonstrated"], one["played"])
            more = "" if None in medians else ", median {:.4g} demonstrated, {:.4g} here".format(*medians)
            said.append(f"{one['component']} (p = {one['p']:g}{more})")
    return f"{basis}. They differ: {'; '.join(said)}."


def _about_rules(body: dict[str, Any]) -> str:
    if (rules := body["source"]["rules"]) is not None:
        return f"{rules['name'] or 'of the environment'} (SHA-256 {rules['sha256']})"
    return "not known" if body["rules"] is None else "costs that the environment reports"
