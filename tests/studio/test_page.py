"""The files of the page: contrast in light and dark, no inline code, no requests to other servers."""

import json
import re
from itertools import product
from pathlib import Path

import pytest

import scopil_studio
from scopil_bench.report import svg

PAGE = Path(scopil_studio.__file__).parent / "page"
SCHEMES = re.findall(r":root \{(.*?)\}", (PAGE / "studio.css").read_text(), re.DOTALL)
PAIRS = [
    *product(("text", "quiet", "accent", "bad", "good", "warn"), ("ground", "panel", "tint")),
    ("on-accent", "accent"),
]


def luminance(colour: str) -> float:
    """WCAG 2's relative luminance of #rrggbb."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", SCHEMES, ids=["light", "dark"])
@pytest.mark.parametrize(("front", "back"), PAIRS)
def test_text_has_the_contrast_of_aa(scheme, front, back):
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", scheme))
    light, dark = sorted((luminance(colours[front]), luminance(colours[back])), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_methods_have_the_colours_of_reports():
    (text,) = re.findall(r"const FIXED = (\{.*\});", (PAGE / "watch.js").read_text())
    assert json.loads(text) == svg.FIXED


def test_the_page_is_plain_files_without_inline_code():
    for file in PAGE.iterdir():
        text = file.read_text()
        if file.suffix == ".html":
            assert "<script>" not in text
            assert "style=" not in text
            assert "onclick" not in text
        if file.suffix == ".js":
            for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
                assert sink not in text, f"{file.name} uses {sink}"
        assert "http://" not in text.replace("http://www.w3.org/", ""), f"{file.name} asks the network"
        assert "https://" not in text, f"{file.name} asks the network"
