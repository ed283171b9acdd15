"""The page in a real Chromium, opened from a file without a network."""

import json
import shutil

import pytest

from made_results import cell_of, report_of
from scopil_bench import results as kept
from scopil_bench.report.study_page import write
from scopil_bench.report.views import Views
from scopil_bench.summaries import EVALUATIONS

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
HOSTILE = "</script><img src=x onerror=window.harmed=1>\"'"
A4 = 695  # px between margins of 13 mm
# Tables, pictures and text that are wider than a page of this width, without those inside a box that scrolls.
BEYOND = """(width) => [...document.querySelectorAll('table, svg, p, li, figcaption, select')]
  .filter(e => e.checkVisibility() && (!e.closest('.table') || width == 695))
  .filter(e => e.getBoundingClientRect().right > width + 1 || e.getBoundingClientRect().left < -1)
  .map(e => e.tagName + ' ' + e.textContent.slice(0, 40))"""
PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA="


def line(*values: float) -> dict:
    steps = [1000, 2000]
    return {"steps": steps, "mean": list(values), "std": [0.1, 0.1], "seeds": {"0": list(values), "1": list(values)}}


def episodes(rule: str) -> dict:
    """Two episodes; the second breaks a rule at its third state, which lies at (300, 200)."""
    paths = "M10 10l5 5 5 5M100 100l100 50 100 50"
    return {"paths": paths, "broken": [[300, 200, 1, 2, rule]], "episodes": 2, "violations": 0.5}


def views() -> Views:
    methods = {"scopil": line(0.3, 0.02), "sac": line(9.0, 2.0)}
    panel = {"metric": "eval/violations", "title": f"Violations {HOSTILE}", "trained": 2000, "methods": methods}
    runs = {method: {"0": {"unseen": episodes("circle"), "demonstrated": episodes(HOSTILE)}} for method in methods}
    return Views({"simple": [panel]}, trays={"simple": {"background": PIXEL, "corners": [0, 1, 0, 1], "runs": runs}})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    results = cell_of("scopil", [0.0377, 0.0513, 0.0251]) | cell_of("sac", [2.017, 2.113, 1.923])
    results |= cell_of("scopil", [0.1234], setting="two-modes")
    results |= cell_of("oracle-ppo-lagrangian", [0.1], steps=8_192_000)  # the longest title and number of steps
    kept.save(folder, "paper", "paper", kept.all_of(results), {})
    failed = {f"simple/icrl-0{HOSTILE}": HOSTILE}
    write(folder, report_of(results, views=views(), failed=failed))
    return folder


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def page(browser, folder):
    """At 1280 px; any request, console message or error fails the test."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    asked, said = [], []
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.context.set_offline(True)
    opened.goto(f"file://{folder}/report.html")
    yield opened
    assert not [url for url in asked if not url.startswith(("file:", "data:"))]
    assert said == []
    assert opened.evaluate("window.harmed") is None
    opened.close()


def test_every_figure_of_the_results_is_on_the_page(page, folder):
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    shown = page.inner_text("body")
    for run in json.loads((folder / "results.json").read_text())["runs"]:
        for evaluation in EVALUATIONS:
            assert f"{run['means'][evaluation]['violations']:.3f}" in shown
            assert f"{run['means'][evaluation]['reward']:.2f}" in shown
    assert "3 of 10 seeds done" in shown
    assert HOSTILE in shown  # as text


def test_no_table_is_cut_and_nothing_scrolls_sideways(page):
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    cut = "[...document.querySelectorAll('.table')].filter(t => t.scrollWidth > t.clientWidth).map(t => t.innerText)"
    assert page.locator(".table").count() > 5
    assert page.evaluate(cut) == []
    assert page.evaluate("document.documentElement.scrollWidth") == 1280
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate(BEYOND, 390) == []


def test_methods_and_seeds_are_chosen_and_violations_are_named_at_the_pointer(page):
    tray = page.locator(".play").first
    tray.locator("select").nth(0).select_option("sac")
    assert "SAC, seed 0, unseen starts: 2 episodes" in tray.inner_text()
    tray.scroll_into_view_if_needed()
    box = tray.locator("svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 300 / 400, box["y"] + box["height"] * 200 / 400)
    assert tray.locator(".tip").inner_text() == "Violation (circle)\nepisode 2, step 2"
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    assert tray.locator(".tip").is_hidden()

    curves = page.locator(".curves").first
    lines = curves.locator("g[data-method=sac]")
    assert lines.is_visible()
    curves.locator("input[data-method=sac]").uncheck()
    assert lines.is_hidden()
    assert curves.locator(".seed").first.is_hidden()
    curves.locator("input.seeds").check()
    assert curves.locator(".seed").first.is_visible()
    curves.locator("svg").first.hover()
    assert "SCOPIL: " in curves.locator(".tip").inner_text()
    assert "SAC: " not in curves.locator(".tip").inner_text()


def test_a_number_links_to_its_runs_and_a_dot_to_its_run(page):
    runs = page.locator("#runs-0")
    assert runs.is_hidden()  # folded
    page.locator(".overview .cell span a").first.click()
    runs.wait_for(state="visible")
    assert runs.inner_text() == "SCOPIL"
    dot = page.locator(".overview .strip a").first
    assert dot.get_attribute("href") == "#runs-0-0"
    assert "0.038" in page.locator("#runs-0-0").inner_text()


def test_printed_pages_hold_every_table(page):
    assert page.pdf(prefer_css_page_size=True).startswith(b"%PDF")
    page.set_viewport_size({"width": A4, "height": 1000})
    page.emulate_media(media="print")
    assert page.locator(".overview thead").is_visible()  # not the layout of narrow screens
    assert page.locator(".hero svg").first.is_visible()
    tables = page.locator("details.paper .table")
    assert tables.count() > 5
    assert all(tables.nth(i).is_visible() for i in range(tables.count()))  # folded on the screen
    assert page.evaluate("document.documentElement.scrollWidth") == A4
    assert page.evaluate(BEYOND, A4) == []
    assert page.locator("#runs-0").is_hidden()  # lists of single runs are not printed
    for control in ("input", "select", ".tip", ".play .controls"):
        assert not any(found.is_visible() for found in page.locator(control).all())


def test_the_page_follows_dark_mode(page):
    """Text keeps the contrast of 4.5 that the accessibility guidelines ask for."""
    contrast = """() => {
      const part = (v) => v <= .04 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
      const rgb = (c) => c.match(/[\\d.]+/g).slice(0, 3).map((v) => part(v / 255));
      const light = (c) => { const [r, g, b] = rgb(c); return .2126 * r + .7152 * g + .0722 * b; };
      const paper = light(getComputedStyle(document.body).backgroundColor);
      const texts = [...document.querySelectorAll('p, li, th, td, .note, figcaption, summary')];
      const ink = texts.filter((e) => e.checkVisibility()).map((e) => light(getComputedStyle(e).color));
      return [paper, Math.min(...ink.map((i) => (Math.max(i, paper) + .05) / (Math.min(i, paper) + .05)))];
    }"""
    for scheme, dark in (("light", False), ("dark", True)):
        page.emulate_media(color_scheme=scheme)
        paper, worst = page.evaluate(contrast)
        assert (paper < 0.1) == dark
        assert worst >= 4.5
    page.emulate_media(color_scheme="dark", media="print")
    assert page.evaluate(contrast)[0] == 1.0  # printed on white


def test_without_a_script_everything_is_there_once(browser, folder):
    """As the studio shows it."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"file://{folder}/report.html")
    assert page.locator(".hero svg").count() == 2
    assert page.locator(".chart .mean").count() == 2
    assert page.locator(".controls input:visible").count() == 0
    context.close()
