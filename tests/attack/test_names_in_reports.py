"""Names from untrusted files appear in reports and in the terminal as text: they add no tag, link or table cell.

Markdown is parsed by markdown-it with raw HTML enabled, as on GitHub.
"""

import io
import json
import re
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from made_results import report_of, result
from runs import untrained_run
from scopil.cli import main
from scopil.errors import CheckpointError
from scopil.eval.tables import markdown_table, print_measures
from scopil.terminal import Console
from scopil.train.run import Run
from scopil_bench.cli.report import _list_of_runs
from scopil_bench.report.page import Grid, Heading, Items, Picture, Text, to_html, to_markdown
from scopil_bench.report.study_page import write
from scopil_bench.results import Evaluator
from scopil_bench.summaries import EVALUATIONS, Cell

NAMES = [
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1))",
    "\\[click](javascript:alert(1))",
    "![p](javascript:alert(1))",
    "[click]: javascript:alert(1)",
    "<javascript:alert(1)>",
    "a | b || c",
    "`code",
    "&lt;script&gt;",
    "two\n\n# lines\n\n<script>alert(1)</script>",
    "--- | ---",
]
render = MarkdownIt("commonmark", {"html": True}).enable("table").render


@pytest.mark.parametrize("name", NAMES)
def test_markup_in_a_name_has_no_effect(name, tmp_path):
    picture = tmp_path / "a b](x).png"
    picture.write_bytes(b"")
    blocks = [Heading(name), Text(name), Items([name]), Grid([name, "b"], [[name, "1"]])]
    pages = {
        "markdown": render(to_markdown(name, [*blocks, Picture(picture, "p")], tmp_path)),
        "html": to_html("x", [*blocks, Picture(picture, "p")]),
    }
    for kind, page in pages.items():
        tags = re.findall(r"<(\w+)", page)
        assert not {"script", "a", "code"} & set(tags), (kind, page)
        assert tags.count("img") == 1, (kind, page)  # the report's own
        assert (tags.count("th"), tags.count("td")) == (2, 2), (kind, page)
        assert page.count("alert(1)") == ("alert" in name) * (5 + (kind == "markdown")), (kind, page)  # as text


@pytest.mark.parametrize("name", NAMES)
def test_tables_of_measures_keep_their_cells(name, tmp_path):
    page = render(markdown_table({name: {"reward": 1.0, f"violations/{name}": 2.0}}))
    assert page.count("<td>") == page.count("<th>") == 3
    assert not re.search("<(img|a|script|code)", page)


def test_a_run_with_markup_in_its_names_is_listed_in_its_cells(tmp_path):
    run = untrained_run(tmp_path / "run")
    note = json.loads((run.folder / "run.json").read_text())
    for name in NAMES:
        if not name.isprintable():
            continue
        changed = note | {"algorithm": name, "title": name, "config": {}}
        (run.folder / "run.json").write_text(json.dumps(changed))
        page = render(to_markdown("Report", [_list_of_runs([Run.open(run.folder)], Evaluator())], tmp_path))
        assert page.count("<td>") == 5
        assert not re.search("<(img|a|script|code)", page)


class Tags(HTMLParser):
    """The tags of a page, each with the names of its attributes, and its links."""

    def __init__(self, page: str):
        super().__init__()
        self.found: list[tuple[str, ...]] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, *sorted(name for name, _ in attrs)))
        self.links += [str(value) for name, value in attrs if name in ("href", "src")]


def test_names_of_foreign_runs_add_no_tag(tmp_path):
    """Runs of another user: the page has the same tags as with plain names, and no address but its own."""
    pages = []
    for name in ("plain", '</script><img src=x onerror="alert(1)">', "[a](javascript:alert(1)) &lt;script&gt;"):
        folder = tmp_path / str(len(pages))
        means = {key: {"reward": 1.0, "violations": 2.0, f"violations/{name}": 2.0} for key in EVALUATIONS}
        cell = Cell(f"task {name}", "sac")
        made = {cell: [result("sac", seed, 1.0, cell=cell, means=means) for seed in (0, 1)]}
        write(folder, report_of(made, missing={f"run {name}": f"state {name}"}))
        texts = (folder / "report.html").read_text(), render((folder / "report.md").read_text())
        pages.append([Tags(text) for text in texts])
    plain, *hostile = pages
    assert len(plain[0].found) > 100
    for page in hostile:
        assert [form.found for form in page] == [form.found for form in plain]
        assert all(link.startswith("#") for form in page for link in form.links)


@pytest.mark.parametrize("key", ["algorithm", "title", "env", "demos", "rules"])
@pytest.mark.parametrize("name", ["\x1b]0;owned\x07", "two\nlines", "\x9b31m", 7, ["a"], {"a": 1}])
def test_a_name_that_is_not_a_line_of_text_is_refused(key, name, tmp_path):
    note = {"format": 3, "algorithm": "sac", "title": "SAC", "env": "x-v0", "config": {}, key: name}
    (tmp_path / "run.json").write_text(json.dumps(note))
    with pytest.raises(CheckpointError, match=key):
        Run.open(tmp_path)


def test_markup_and_escape_sequences_in_names_have_no_effect_in_the_terminal(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path / "\x1b[31mred")]) == 2
    assert "\x1b" not in capsys.readouterr().err
    out = io.StringIO()
    print_measures({"[link=http://x]a[/link]": {"reward": 1.0}}, "[red]t", Console(file=out, width=200))
    assert "[link=http://x]a[/link]" in out.getvalue()
    assert "[red]t" in out.getvalue()
