"""Every Python snippet in the README and the docs runs, each page in one namespace, with small budgets."""

import csv
import json
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [p for p in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if "```python" in p.read_text()]
BUDGET = re.compile(r"(learn\(|\bsteps=)[\d_]+")


# Each page compiles a learner or two: every day those that newcomers read, the others with the slow tests.
EVERY_DAY = ("README.md", "tutorial.md", "deploy.md")


@pytest.mark.parametrize(
    "page",
    [p if p.name in EVERY_DAY else pytest.param(p, marks=pytest.mark.slow) for p in PAGES],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_snippets_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    namespace: dict[str, object] = {}
    for snippet in re.findall(r"^ *```python\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE):
        exec(compile(BUDGET.sub(r"\g<1>500", dedent(snippet)), str(page), "exec"), namespace)


def test_every_page_is_in_the_contents():
    pages = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    named = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
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
    """Run folders are not kept: the data, the sheet and the timings have to agree by themselves."""
    data = json.loads((ROOT / "results" / "results.json").read_text())
    with (ROOT / "results" / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    named = {f"{row['setting']}/{row['algorithm']}-{row['seed']}" for row in rows}
    assert named
    assert len(named) == len(data["runs"])
    assert set(json.loads((ROOT / "results" / "timing.json").read_text())) == named


def test_formulas_are_typeset_without_a_network():
    """What renders them lies under docs/assets, and every font its style sheet names is there."""
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


def test_tables_of_settings_are_those_of_the_code():
    spec = spec_from_file_location("settings_tables", ROOT / "docs" / "settings_tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = module_from_spec(spec)
    spec.loader.exec_module(tables)
    assert len(tables.pages()) >= 8  # one per algorithm
    old = [page.name for page in tables.pages() if tables.filled(page.read_text()) != page.read_text()]
    assert not old, f"{', '.join(old)}: run `.venv/bin/python docs/settings_tables.py` and commit the result"
