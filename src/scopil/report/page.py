"""A page of headings, paragraphs, tables and pictures, written as Markdown or as one self-contained HTML file.

Blocks hold plain text. Names in it may come from the files of others, so both writers escape all of it.
"""

import base64
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote


class Heading(NamedTuple):
    text: str
    level: int = 2


class Text(NamedTuple):
    text: str


class Items(NamedTuple):
    lines: Sequence[str]


class Grid(NamedTuple):
    """A table of strings. The first cell of a row is its name; `quiet` rows (published ones) are set apart."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    quiet: frozenset[int] = frozenset()


class Picture(NamedTuple):
    file: Path
    caption: str
    narrow: bool = False  # a third of the page's width


class Command(NamedTuple):
    text: str


Block = Heading | Text | Items | Grid | Picture | Command

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; color: #24292f; background: #fff;
       margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 84rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.35rem; margin: 2.6rem 0 .6rem; padding-bottom: .25rem; border-bottom: 1px solid #d0d7de; }
h3 { font-size: 1.08rem; margin: 1.8rem 0 .4rem; }
p, ul { max-width: 48rem; margin: .5rem 0 .9rem; }
ul { padding-left: 1.3rem; }
.table { overflow-x: auto; margin: .6rem 0 1.2rem; }
table { border-collapse: collapse; font-size: .78rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .42rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #eaeef2; }
th { border-bottom: 2px solid #8c959f; font-weight: 600; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
tr.quiet td { color: #57606a; background: #f6f8fa; }
pre { background: #f6f8fa; padding: .7rem 1rem; overflow-x: auto; border-radius: 6px; font-size: .88rem; }
figure { margin: 1rem 0 1.8rem; }
figure.narrow { display: inline-block; width: 31%; margin-right: 1.5%; vertical-align: top; }
img { max-width: 100%; height: auto; }
figcaption { font-size: .88rem; color: #57606a; max-width: 48rem; }
@media print { body { max-width: none; } .table { overflow: visible; } table { font-size: .6rem; } }
"""


def to_html(title: str, blocks: Sequence[Block]) -> str:
    body = "\n".join(_html(block) for block in blocks)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Text(text):
            return f"<p>{escape(text)}</p>"
        case Items(lines):
            return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"
        case Command(text):
            return f"<pre>{escape(text)}</pre>"
        case Picture(file, caption, narrow):
            data = base64.b64encode(file.read_bytes()).decode()
            image = f'<img alt="{escape(caption)}" src="data:image/png;base64,{data}">'
            kind = ' class="narrow"' if narrow else ""
            return f"<figure{kind}>{image}<figcaption>{escape(caption)}</figcaption></figure>"
        case Grid(head, rows, quiet):
            top = _row("th", head)
            body = "".join(_row("td", row, quiet=i in quiet) for i, row in enumerate(rows))
            return f'<div class="table"><table><thead>{top}</thead><tbody>{body}</tbody></table></div>'


def _row(tag: str, cells: Sequence[str], quiet: bool = False) -> str:
    inner = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
    return f'<tr class="quiet">{inner}</tr>' if quiet else f"<tr>{inner}</tr>"


def to_markdown(title: str, blocks: Sequence[Block], folder: Path) -> str:
    """Pictures are linked as seen from `folder`."""
    return "\n".join([f"# {escape_markdown(title)}\n", *(_markdown(block, folder) for block in blocks)])


def escape_markdown(text: str) -> str:
    """Text on one line that makes no tag, link, picture, code or table cell."""
    return re.sub(r"([\\`|]|\](?=[(\[:]))", r"\\\1", escape(" ".join(text.split()), quote=False))


def _markdown(block: Block, folder: Path) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {escape_markdown(text)}\n"
        case Text(text):
            return f"{escape_markdown(text)}\n"
        case Items(lines):
            return "\n".join(f"- {escape_markdown(line)}" for line in lines) + "\n"
        case Command(text):
            return "\n".join(f"    {line}" for line in text.splitlines()) + "\n"
        case Picture(file, caption, _):
            address = quote(file.relative_to(folder).as_posix(), safe="/=,")
            return f"![{escape_markdown(caption)}]({address})\n"
        case Grid():
            return markdown_grid(block)


def markdown_grid(grid: Grid) -> str:
    lines = ["| " + " | ".join(map(escape_markdown, row)) + " |" for row in (grid.head, *grid.rows)]
    return "\n".join([lines[0], "|---" * len(grid.head) + "|", *lines[1:]]) + "\n"
