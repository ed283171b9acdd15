"""Fills the tables of settings in docs/algorithms from the algorithms' configs:

    python docs/settings_tables.py

A page marks the place with `<!-- settings: NAME -->` and `<!-- end settings -->`, NAME being a registered algorithm.
"""

import re
from pathlib import Path

from scopil.config import markdown_table
from scopil.registry import find

DOCS = Path(__file__).parent
PLACE = re.compile(r"(<!-- settings: (\S+) -->\n).*?(<!-- end settings -->)", re.DOTALL)


def filled(text: str) -> str:
    """A page with its tables as the code has them now."""
    return PLACE.sub(lambda m: f"{m[1]}\n{table(m[2])}\n{m[3]}", text)


def table(name: str) -> str:
    return markdown_table(find(name).config)


def pages() -> list[Path]:
    return [page for page in sorted(DOCS.rglob("*.md")) if PLACE.search(page.read_text())]


if __name__ == "__main__":
    for page in pages():
        page.write_text(filled(page.read_text()))
