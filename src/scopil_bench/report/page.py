"""A page of headings, paragraphs, tables and pictures, written as Markdown or as one self-contained HTML file.

Blocks hold plain text. The text may contain names from untrusted files, so both writers escape all text. The page
loads no external resources. Its content security policy allows only its own script, by digest.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from scopil.eval.tables import escape_markdown

HERE = Path(__file__).parent


class Heading(NamedTuple):
    text: str
    level: int = 2
    id: str = ""


class Text(NamedTuple):
    text: str
    lead: bool = False  # the question at the top of the page


class Items(NamedTuple):
    lines: Sequence[str]


class Link(NamedTuple):
    """Text with a link to `#id` on the page, or to a file or folder, relative to the page."""

    text: str
    to: str


class Grid(NamedTuple):
    """A table. The first cell of a row is the row's name. `quiet` rows, such as published results, are grey."""

    head: Sequence[str]
    rows: Sequence[Sequence[str | Link]]
    quiet: frozenset[int] = frozenset()
    ids: Mapping[int, str] = {}  # row index → HTML id


class Picture(NamedTuple):
    """A PNG file, embedded in HTML and linked in Markdown."""

    file: Path
    caption: str


class Command(NamedTuple):
    text: str


class Drawn(NamedTuple):
    """HTML (`svg`, `summary`) in which all names are already escaped."""

    html: str
    markdown: Sequence["Block"] = ()  # replaces the HTML in Markdown


class Fold(NamedTuple):
    """Collapsible details. Printed pages show the details if `paper` is true and omit them otherwise."""

    summary: str
    blocks: Sequence["Block"]
    paper: bool = True


class Beside(NamedTuple):
    """Two columns. Narrow screens show the second column below the first."""

    left: Sequence["Block"]
    right: Sequence["Block"]


Block = Heading | Text | Items | Grid | Picture | Command | Drawn | Fold | Beside


def to_html(title: str, blocks: Sequence[Block], data: Mapping[str, Any] | None = None) -> str:
    """The page as HTML. The page's script reads `data`; if `data` is None, the page has no script."""
    style = (HERE / "page.css").read_text()
    script = "" if data is None else (HERE / "page.js").read_text()
    policy = f"default-src 'none'; img-src data:; style-src {_digest(style)}"
    tail = ""
    if data is not None:
        policy += f"; script-src {_digest(script)}"
        kept = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
        tail = f'<script type="application/json" id="data">{kept}</script>\n<script>{script}</script>\n'
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
        f"<style>{style}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n{_all_html(blocks)}\n{tail}</body>\n"
        f"</html>\n"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _all_html(blocks: Sequence[Block]) -> str:
    return "\n".join(_html(block) for block in blocks)


def _html(block: Block) -> str:
    match block:
        case Heading(text, level, name):
            return f"<h{level}{_id(name)}>{escape(text)}</h{level}>"
        case Text(text, lead):
            return f'<p class="lead">{escape(text)}</p>' if lead else f"<p>{escape(text)}</p>"
        case Items(lines):
            return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"
        case Command(text):
            return f"<pre>{escape(text)}</pre>"
        case Picture(file, caption):
            image = f'<img alt="{escape(caption)}" src="{data_uri(file.read_bytes())}">'
            return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"
        case Drawn(html):
            return html
        case Fold(summary, inner, paper):
            kind = ' class="paper"' if paper else ""
            head = f"<summary>{escape(summary)}</summary>"
            return f"<details{kind}>{head}\n{_all_html(inner)}\n</details>"
        case Beside(left, right):
            return f'<div class="beside"><div>{_all_html(left)}</div><div>{_all_html(right)}</div></div>'
        case Grid(head, rows, quiet, ids):
            top = _row("th", head)
            body = "".join(_row("td", row, i in quiet, ids.get(i, "")) for i, row in enumerate(rows))
            return f'<div class="table"><table><thead>{top}</thead><tbody>{body}</tbody></table></div>'


def _row(tag: str, cells: Sequence[str | Link], quiet: bool = False, name: str = "") -> str:
    inner = "".join(f"<{tag}>{_cell_html(cell)}</{tag}>" for cell in cells)
    kind = ' class="quiet"' if quiet else ""
    return f"<tr{_id(name)}{kind}>{inner}</tr>"


def _cell_html(cell: str | Link) -> str:
    """A cell as HTML. A line may break before ±, for tables that are too wide."""
    text = escape(cell.text if isinstance(cell, Link) else cell).replace("±", "<wbr>±")
    return anchor(cell.to, text) if isinstance(cell, Link) else text


def _id(name: str) -> str:
    return f' id="{escape(name)}"' if name else ""


def anchor(to: str, inner: str) -> str:
    """A link around escaped HTML."""
    return f'<a href="{escape(address(to))}">{inner}</a>'


def address(to: str) -> str:
    """A quoted address. Browsers cannot read a name in it as a scheme or host: `javascript:` becomes a file name."""
    return f"#{quote(to[1:])}" if to.startswith("#") else quote(to.lstrip("/"), safe="/=,")


def data_uri(image: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


def to_markdown(title: str, blocks: Sequence[Block], folder: Path) -> str:
    """The page as Markdown. Links to pictures are relative to `folder`."""
    return "\n".join([f"# {escape_markdown(title)}\n", *(_markdown(block, folder) for block in blocks)])


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
        case Picture(file, caption):
            return f"![{escape_markdown(caption)}]({address(file.relative_to(folder).as_posix())})\n"
        case Grid(head, rows):
            lines = ["| " + " | ".join(map(_cell_markdown, row)) + " |" for row in (head, *rows)]
            return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]]) + "\n"
        case Drawn(_, inner):
            return "\n".join(_markdown(block, folder) for block in inner)
        case Beside(left, right):
            return "\n".join(_markdown(inner, folder) for inner in (*right, *left))
        case Fold(summary, inner):
            return "\n".join([f"**{escape_markdown(summary)}**\n", *(_markdown(b, folder) for b in inner)])


def _cell_markdown(cell: str | Link) -> str:
    if isinstance(cell, str):
        return escape_markdown(cell)
    if cell.to.startswith("#"):  # Markdown pages have no ids
        return escape_markdown(cell.text)
    text = escape_markdown(cell.text.replace("]", ")"))  # a bracket would end the link text
    return f"[{text}]({address(cell.to)})"
