"""Names from untrusted files appear in reports and in the terminal as text: they add no tag, link or table cell.

Markdown is parsed by markdown-it with raw HTML enabled, as on GitHub.
"""

import io
import json
import re

import pytest
from markdown_it import MarkdownIt

from runs import untrained_run
from scopil.cli import main
from scopil.errors import CheckpointError
from scopil.eval.tables import markdown_table, print_measures
from scopil.terminal import Console
from scopil.train.run import Run
from scopil_bench.cli.report import _list_of_runs
from scopil_bench.report.page import Grid, Heading, Items, Picture, Text, to_html, to_markdown
from scopil_bench.results import Evaluator

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
