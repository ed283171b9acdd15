"""Builds the documentation site: copies docs/, generates the reference, writes the navigation, calls zensical.

    python tools/build_docs.py            # build/docs, build/mkdocs.yml, and the site in build/site
    python tools/build_docs.py --pages    # the pages only, without zensical

A page under docs/algorithms/ needs no entry anywhere. It marks the place of a settings table with
`<!-- settings: NAME … -->`, the names of registered algorithms: the table is that of the first, and the page is the
page of all of them. Rows of tables with a metric in their first cell (`family/name`) explain it on the metrics page.
"""

import ast
import inspect
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest.mock import patch

import scopil
import scopil_bench
from scopil.cli import VERBS
from scopil.cli import main as command
from scopil.config import markdown_table
from scopil.registry import BUILT_IN, registered

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BUILD = ROOT / "build"
REPOSITORY = "https://github.com/scopil/scopil/blob/main"
SETTINGS = re.compile(r"<!-- settings: (\S+)(.*) -->")
METRIC_ROW = re.compile(r"^\| ((?:`[a-z_]+/[\w…]+`(?:, )?)+) \| (.+) \|$", re.MULTILINE)

# The navigation. A pattern stands for every page that it matches, in alphabetical order.
NAVIGATION: dict[str, list[str]] = {
    "Tutorial": ["installation.md", "tutorial.md", "own_task.md"],
    "How-to": [
        "environments.md",
        "demonstrations.md",
        "constraints.md",
        "rules.md",
        "audit.md",
        "certificate.md",
        "own_algorithm.md",
        "studies.md",
        "studio.md",
        "deploy.md",
        "reproduce.md",
    ],
    "Reference": [
        "reference/scopil.md",
        "reference/scopil_bench.md",
        "reference/commands.md",
        "reference/algorithms.md",
        "metrics.md",
        "file_formats.md",
        "marble_maze.md",
        "needle_master.md",
    ],
    "Algorithms": ["algorithms/*.md"],
    "Explanation": ["method.md", "results.md", "faq.md"],
    "Decisions": ["decisions/*.md"],
}


def main(argv: list[str]) -> int:
    write_pages(BUILD / "docs")
    settings = (ROOT / "mkdocs.yml").read_text()
    (BUILD / "mkdocs.yml").write_text(settings + "\n".join(navigation(BUILD / "docs")) + "\n")
    if "--pages" in argv:
        return 0
    zensical = Path(sys.executable).with_name("zensical")
    # --clean: pages of an earlier build would hide broken links.
    return subprocess.call([zensical, "build", "--clean", "--strict", "-f", BUILD / "mkdocs.yml"])


def write_pages(out: Path) -> None:
    """Copy docs/ to `out`, with the generated pages and tables."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(DOCS, out)
    for page in out.rglob("*.md"):
        text = SETTINGS.sub(lambda m: settings_table(m[1]), page.read_text())
        page.write_text(_absolute_links(text, DOCS / page.relative_to(out)))
    (out / "reference").mkdir()
    for name, page in generated().items():
        path = out / name
        path.write_text(path.read_text() + "\n" + page() if path.exists() else page())


def generated() -> dict[str, Callable[[], str]]:
    """Every generated page. metrics.md has a committed beginning."""
    return {
        "reference/scopil.md": lambda: names_page(scopil),
        "reference/scopil_bench.md": lambda: names_page(scopil_bench),
        "reference/commands.md": commands_page,
        "reference/algorithms.md": algorithms_page,
        "metrics.md": metrics_tables,
    }


def navigation(docs: Path) -> Iterator[str]:
    """The lines of `nav` in mkdocs.yml."""
    yield "nav:"
    yield "  - scopil: index.md"
    for section, patterns in NAVIGATION.items():
        yield f"  - {section}:"
        for pattern in patterns:
            pages = sorted(docs.glob(pattern))
            if not pages:
                raise SystemExit(f"tools/build_docs.py: no page matches {pattern} in the navigation's {section}.")
            for page in pages:
                title = page.read_text().split("\n", 1)[0].removeprefix("# ")
                yield f'      - "{title}": {page.relative_to(docs)}'


def _absolute_links(text: str, page: Path) -> str:
    """Links to files outside of docs/ lead to the repository."""

    def target(match: re.Match[str]) -> str:
        link = match[2]
        path = (page.parent / link.split("#")[0]).resolve()
        if link.startswith(("http", "#")) or path.is_relative_to(DOCS):
            return match[0]
        return f"{match[1]}({REPOSITORY}/{path.relative_to(ROOT)}{'#' + link.split('#')[1] if '#' in link else ''})"

    return re.sub(r"(\])\(([^)\s]+)\)", target, text)


# Algorithms, settings, metrics


def settings_table(name: str) -> str:
    return markdown_table(registered()[name].config)


@cache
def page_of() -> dict[str, Path]:
    """The page of every algorithm that a page names by its settings marker."""
    pages = sorted((DOCS / "algorithms").glob("*.md"))
    marked = [(page, match) for page in pages for match in SETTINGS.finditer(page.read_text())]
    return {name: page.relative_to(DOCS) for page, match in marked for name in (match[1], *match[2].split())}


def algorithms_page() -> str:
    classes = {command: name for command, (name, _) in BUILT_IN.items()}
    rows = ["| | command | class | demonstrations | reward | page |", "|---|---|---|---|---|---|"]
    sections = []
    for name, algorithm in registered().items():
        if name not in classes:
            continue  # of another package that is installed here
        page = page_of().get(name)
        link = f"[{page.stem}](../{page})" if page else ""
        demos = "yes" if algorithm.needs_demos else "no"
        reward = "yes" if algorithm.steps_environment else "no"
        rows.append(
            f"| [{algorithm.title}](#{name}) | `{name}` | `scopil.{classes[name]}` | {demos} | {reward} | {link} |"
        )
        sections.append(
            f"## {name}\n\n{algorithm.title}: {_cell(algorithm.summary)}. `scopil train {name}`, "
            f"`scopil.{classes[name]}`; {algorithm.budget:,} steps by default.\n\n{settings_table(name)}"
        )
    return "\n".join(
        [
            "# Algorithms and settings",
            "",
            "Every algorithm takes discrete and continuous actions. Settings are keyword arguments in Python and "
            "options on the command line (`learning_rate=1e-3`, `--learning-rate 1e-3`).",
            "",
            *rows,
            "",
            *sections,
        ]
    )


@cache
def metric_meanings() -> dict[str, str]:
    """The meaning of every metric, from the tables of docs/metrics.md and of the algorithms' pages."""
    pages = [DOCS / "metrics.md", *sorted((DOCS / "algorithms").glob("*.md"))]
    return {name: meaning for page in reversed(pages) for name, meaning in meanings_in(page).items()}


def meanings_in(page: Path) -> dict[str, str]:
    """The metrics that a page explains. A row of several names has as many meanings, or one for all."""
    found: dict[str, str] = {}
    for names, meaning in METRIC_ROW.findall(page.read_text()):
        listed = re.findall(r"`([^`]+)`", names)
        parts = meaning.split("; ") if meaning.count("; ") == len(listed) - 1 else [meaning] * len(listed)
        found |= dict(zip(listed, parts))
    return found


def metrics_tables() -> str:
    """The metrics of single pages, and a table per algorithm: the curves that it declares, with their meaning."""
    out = ["## Of single algorithms", "", "| name | meaning | page |", "|---|---|---|"]
    shared = meanings_in(DOCS / "metrics.md")
    for page in sorted((DOCS / "algorithms").glob("*.md")):
        link = f"[{page.stem}](algorithms/{page.name}#metrics)"
        out += [f"| `{name}` | {said} | {link} |" for name, said in meanings_in(page).items() if name not in shared]
    out += ["", "## Curves by algorithm", "", "Reports and progress lines show these.", ""]
    for name, algorithm in registered().items():
        curves = getattr(algorithm, "curves", ())
        if name not in BUILT_IN or not curves:
            continue
        out += [f"### {algorithm.title}", "", "| metric | title | meaning |", "|---|---|---|"]
        out += [f"| `{c.metric}` | {_cell(c.title)} | {metric_meanings().get(c.metric, '')} |" for c in curves]
        out.append("")
    return "\n".join(out)


# Commands


def commands_page() -> str:
    out = ["# Commands", "", "| command | |", "|---|---|"]
    out += [f"| [`scopil {verb}`](#scopil-{verb}) | {_cell(line)} |" for verb, (_, line) in VERBS.items()]
    out += ["", "`scopil COMMAND --help` prints the same. Exit codes: 0 done, 2 input refused, 130 interrupted.", ""]
    for verb in VERBS:
        out += _command([verb])
    return "\n".join(out)


def _command(words: list[str]) -> Iterator[str]:
    """A section for a command, and one for each of its subcommands. The algorithms of `train` share their options, and
    their settings are on the algorithms' page: the first stands for all."""
    text = help_text(words)
    usage, _, rest = text.partition("\n\n")
    about, _, _ = rest.partition("╭")
    yield from [f"{'##' if len(words) == 1 else '###'} scopil {' '.join(words)}", "", f"    {usage.strip()}", ""]
    yield from [" ".join(about.split()), ""]
    subcommands = []
    for box in re.findall(r"╭─ (.*?) ─*╮\n(.*?)╰", text, re.DOTALL):
        entries = list(_entries(box[1]))
        if box[0] == "subcommands":
            subcommands = [name.removeprefix("• ") for name, _ in entries]
        elif entries:
            yield from [f"| {box[0].removesuffix('s')} | |", "|---|---|"]
            yield from (f"| `{_cell(name)}` | {_cell(meaning)} |" for name, meaning in entries)
            yield ""
    if words == ["train"]:
        yield f"ALGORITHM is one of {', '.join(f'[`{n}`](algorithms.md#{n})' for n in subcommands)}."
        yield "Its settings are further options."
        yield ""
        subcommands = ["sac"]
    for name in subcommands:
        yield from _command([*words, name])


def help_text(words: list[str]) -> str:
    """What `scopil WORDS --help` prints, on lines without end."""
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # in another encoding the boxes are drawn otherwise
    with patch.dict(os.environ, COLUMNS="1000", NO_COLOR="1"), redirect_stdout(said):
        if code := command([*words, "--help"]):
            raise SystemExit(f"tools/build_docs.py: scopil {' '.join(words)} --help ended with {code}.")
    said.seek(0)
    return said.read()


def _entries(box: str) -> Iterator[tuple[str, str]]:
    """Names and meanings in a box of the parser: `│ --name VALUE  meaning │`, or the meaning on the next line."""
    name = meaning = ""
    for line in box.splitlines():
        line = line.strip("│").rstrip().removeprefix(" ")
        if line in ("(required)", "") or line.startswith("-h, --help"):
            continue
        if not line.startswith(" ") or line.startswith("  •"):
            if name:
                yield name, meaning
            name, _, meaning = line.strip().partition("  ")
            meaning = meaning.strip()
        else:
            meaning = f"{meaning} {line.strip()}".strip()
    if name:
        yield name, meaning


# Public names


def names_page(package: Any) -> str:
    """Every name of `package.__all__` with its signature and docstring."""
    docstring = inspect.cleandoc(package.__doc__ or "").split("\n\n")[0]
    out = [f"# {package.__name__}", "", docstring, ""]
    for name in package.__all__:
        out += [f"## {name}", "", *_described(f"{package.__name__}.{name}", getattr(package, name)), ""]
    return "\n".join(out)


def _described(name: str, thing: Any) -> Iterator[str]:
    yield from _signature(name, thing)
    yield from [markdown(thing.__doc__ or ""), ""]
    if not inspect.isclass(thing):
        return
    if any(thing.__name__ == class_name for class_name, _ in BUILT_IN.values()):
        yield "Methods are those of [Agent](#agent)."
        return
    if fields := _fields(thing):
        yield from ["```python", *fields, "```", ""]
    for method, value in vars(thing).items():
        called = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if method.startswith("_") or not getattr(called, "__doc__", None):
            continue
        if isinstance(value, property):
            yield from [
                f"**`{thing.__name__}.{method}`**: {' '.join(inspect.cleandoc(value.__doc__ or '').split())}",
                "",
            ]
        elif callable(called):
            yield from [
                f"**`{thing.__name__}.{method}`**",
                "",
                *_signature(f".{method}", called),
                markdown(called.__doc__ or ""),
                "",
            ]


def _signature(name: str, thing: Any) -> Iterator[str]:
    if inspect.isclass(thing) and (
        is_dataclass(thing) or issubclass(thing, tuple | BaseException) or thing.__init__ is object.__init__
    ):
        return  # their fields are listed
    arguments, returns = _arguments(thing)
    shown = f"{name}({', '.join(arguments)}){returns}"
    if len(shown) > 100:
        shown = f"{name}(\n" + "".join(f"    {one},\n" for one in arguments) + f"){returns}"
    yield from ["```python", shown, "```", ""]


def _arguments(thing: Any) -> tuple[list[str], str]:
    """Arguments and return type as the source has them: it names types by their aliases. The constructors of the
    algorithms have no source, and their settings no annotations."""
    function = inspect.unwrap(thing.__init__ if inspect.isclass(thing) else thing)
    if "__signature__" in vars(thing):
        return list(map(str, inspect.signature(thing).parameters.values())), ""
    node = ast.parse(dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef)
    given = node.args
    listed = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(listed) - len(given.defaults)) + [f" = {ast.unparse(d)}" for d in given.defaults]
    out = [
        ast.unparse(one) + (default or "") for one, default in zip(listed, defaults) if one.arg not in ("self", "cls")
    ]
    if given.vararg or given.kwonlyargs:
        out.append(f"*{ast.unparse(given.vararg)}" if given.vararg else "*")
    for one, default in zip(given.kwonlyargs, given.kw_defaults):
        out.append(ast.unparse(one) + (f" = {ast.unparse(default)}" if default else ""))
    if given.kwarg:
        out.append(f"**{ast.unparse(given.kwarg)}")
    if node.returns is None or inspect.isclass(thing):
        returns = ""
    elif isinstance(node.returns, ast.Constant):  # a type that is written as a string
        returns = f" -> {node.returns.value}"
    else:
        returns = f" -> {ast.unparse(node.returns)}"
    return [one.replace("'", '"') for one in out], returns.replace("'", '"')


def _fields(cls: type) -> list[str]:
    """The lines that declare the fields of a dataclass or NamedTuple, comments included."""
    if not (is_dataclass(cls) or issubclass(cls, tuple)):
        return []
    source = dedent(inspect.getsource(cls))
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    nodes = [node for node in body.body if isinstance(node, ast.AnnAssign)]
    if not nodes:
        return []
    return dedent("\n".join(source.splitlines()[nodes[0].lineno - 1 : nodes[-1].end_lineno])).splitlines()


def markdown(docstring: str) -> str:
    """A docstring as Markdown: sections such as `Args:` become lists."""
    lines: list[str] = []
    listing = False
    for line in inspect.cleandoc(docstring).splitlines():
        if re.fullmatch(r"(Args|Returns|Raises|Yields|Attributes):", line):
            lines += [f"{line[:-1]}:", ""]
            listing = True
        elif listing and (entry := re.match(r"    (\*{0,2}[\w, ]+): (.*)", line)):
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        elif listing and line.startswith("    "):
            lines.append(f"  {line.strip()}")
        else:
            listing = listing and not line
            lines.append(line)
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Text for a table cell."""
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
