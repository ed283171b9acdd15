"""Every Python snippet in the README and the docs runs, each page in one namespace, with small budgets."""

import re
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    p for p in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if "```python" in p.read_text()
]
BUDGET = re.compile(r"(learn|advance)\([\d_]+")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_snippets_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    namespace: dict[str, object] = {}
    for snippet in re.findall(r"^ *```python\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE):
        exec(compile(BUDGET.sub(r"\1(500", dedent(snippet)), str(page), "exec"), namespace)


def test_every_page_is_in_the_contents():
    pages = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    named = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(pages)


def test_links_lead_somewhere():
    pages = [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *(ROOT / "docs").rglob("*.md")]
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
