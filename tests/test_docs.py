"""Every Python snippet in the README and the docs runs, each page in one namespace, with small budgets."""

import csv
import json
import re
from pathlib import Path
from textwrap import dedent

import pytest

import build_docs
import scopil
import scopil_bench
from scopil.cli import VERBS
from scopil.config import settings
from scopil.registry import BUILT_IN, find, registered
from scopil.train import run
from toys import TABLES

ROOT = Path(__file__).parents[1]
PAGES = [p for p in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if "```python" in p.read_text()]
BUDGET = re.compile(r"(learn\(|\bsteps=)[\d_]+")

# Each page compiles a learner or two. The pages for newcomers run with the fast tests, the others with the slow ones.
FAST_PAGES = ("README.md", "tutorial.md", "deploy.md")


@pytest.mark.parametrize(
    "page",
    [p if p.name in FAST_PAGES else pytest.param(p, marks=pytest.mark.slow) for p in PAGES],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_snippets_run(page, tmp_path, monkeypatch):
    init, small = scopil.SCOPILRho.__init__, {"clone_steps": 20} | TABLES
    monkeypatch.setattr(scopil.SCOPILRho, "__init__", lambda self, *args, **given: init(self, *args, **small | given))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    namespace: dict[str, object] = {}
    for snippet in re.findall(r"^ *```python\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE):
        exec(compile(BUDGET.sub(r"\g<1>500", dedent(snippet)), str(page), "exec"), namespace)


def test_every_page_is_in_the_navigation(tmp_path):
    build_docs.write_pages(tmp_path / "docs")
    pages = {str(p.relative_to(tmp_path / "docs")) for p in (tmp_path / "docs").rglob("*.md")}
    named = [line.rsplit(": ", 1)[1] for line in build_docs.navigation(tmp_path / "docs") if line.endswith(".md")]
    assert sorted(named) == sorted(pages)


def test_links_lead_somewhere():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    pages += [ROOT / "benchmarks" / "README.md", ROOT / "results" / "README.md", ROOT / "results" / "report.md"]
    links = [(p, t) for p in pages for t in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", p.read_text())]
    broken = [f"{p.name} → {t}" for p, t in links if not t.startswith("http") and not (p.parent / t).exists()]
    assert not broken, "\n".join(broken)


def test_the_papers_tables_are_quoted_as_the_runs_left_them():
    found = (ROOT / "results" / "tables.md").read_text().splitlines()
    quoted = re.findall(
        r"^\|.* on (?:simple|multiple|two-modes) \|.*$", (ROOT / "docs" / "results.md").read_text(), re.M
    )
    assert len(quoted) >= 9  # methods and settings
    assert not [line for line in quoted if line not in found]


def test_kept_results_name_the_same_runs():
    """Run folders are not kept: data, sheet and timings must agree."""
    data = json.loads((ROOT / "results" / "results.json").read_text())
    with (ROOT / "results" / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    named = {f"{row['setting']}/{row['method']}-{row['seed']}" for row in rows}
    assert named
    assert len(named) == len(data["runs"])
    assert set(json.loads((ROOT / "results" / "timing.json").read_text())) == named


def test_formulas_are_typeset_without_a_network():
    """The renderer and every font that its style sheet names lie under docs/assets."""
    settings = (ROOT / "mkdocs.yml").read_text()
    named = re.findall(r"assets/[\w./]+", settings)
    assert len(named) == 4
    assert not [name for name in named if not (ROOT / "docs" / name).is_file()]
    katex = ROOT / "docs" / "assets" / "katex"
    fonts = re.findall(r"url\(([^)]+)\)", (katex / "katex.min.css").read_text())
    assert fonts
    assert not [font for font in fonts if not (katex / font).is_file()]
    assert (katex / "LICENSE").is_file()
    assert not re.search(r"https?://", settings)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.stem)
def test_formulas_are_closed_and_leave_table_cells_whole(page):
    text = re.sub(r"^ *```.*?^ *```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert text.count("$$") % 2 == 0
    rest = re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL)
    assert rest.count("$") % 2 == 0
    rows = [line for line in rest.splitlines() if line.startswith("|")]
    assert not [row for row in rows if any("|" in formula for formula in re.findall(r"\$([^$]*)\$", row))]


def test_reference_has_every_public_name():
    for package in (scopil, scopil_bench):
        page = build_docs.names_page(package)
        headings = re.findall(r"^## (\w+)$", page, re.MULTILINE)
        assert sorted(headings) == sorted(package.__all__)


def test_reference_has_every_algorithm_with_its_settings():
    page = build_docs.algorithms_page()
    for name, (class_name, _) in BUILT_IN.items():
        assert f"| `{name}` | `scopil.{class_name}` |" in page
        section = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
        assert not [s.name for s in settings(find(name).config) if f"| `{s.name}` |" not in section]
    assert not BUILT_IN.keys() - build_docs.page_of().keys()  # each has a page


def test_reference_has_every_command_and_option():
    page = build_docs.commands_page()
    assert sorted(re.findall(r"^## scopil (\w+)$", page, re.MULTILINE)) == sorted(VERBS)
    for line in ("### scopil demos check", "| `--trust-env` |", "| `--eval-every INT` |", "| `STUDY` |"):
        assert line in page


def test_every_metric_has_a_meaning():
    """Names of metrics are the strings `family/name` in the sources of the algorithms and of the training loop."""
    sources = [*(ROOT / "src/scopil/algos").glob("*.py"), ROOT / "src/scopil/train/loop.py"]
    logged = {name for path in sources for name in re.findall(r'"([a-z_]+/[a-z_]+)"', path.read_text())}
    shown = {curve.metric for algorithm in registered().values() for curve in algorithm.curves}
    known = build_docs.metric_meanings()
    assert len(logged) > 20
    assert not sorted((logged | shown) - known.keys())


def test_file_formats_name_the_files_of_a_run():
    page = (ROOT / "docs" / "file_formats.md").read_text()
    files = re.findall(r"^([\w./]+) {2,}", run.__doc__ or "", re.MULTILINE)
    assert len(files) >= 8
    assert not [name for name in files if f"`{name}`" not in page]
