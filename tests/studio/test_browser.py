"""The studio in Chromium, driven by key presses and clicks."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from runs import untrained_run
from scopil.cli import main
from scopil.data import storage
from scopil.loading import load
from scopil_studio.command import _redirect

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
MINUTE = 60_000  # ms
PATIENCE = 3 * MINUTE  # a loaded machine compiles slowly
# Controls without a name for screen readers.
NAMELESS = """[...document.querySelectorAll("input, select, button")]
  .filter((e) => !e.ariaLabel && !e.labels?.length && !e.textContent.trim()).length"""
HOSTILE = "<img src=x onerror=window.harmed=1>"


class Studio:
    """A server process on a folder."""

    def __init__(self, folder: Path, *options: str):
        command = [sys.executable, "-m", "scopil", "studio", str(folder), "--port", "0", "--no-browser", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        with self.process.stdout as output:
            _, address, _ = output.readline(), output.readline(), output.readline()
        self.address = address.strip()
        self.folder = folder

    def kill(self):
        self.process.kill()
        self.process.wait()

    def left_behind(self) -> list[str]:
        """Processes with the folder in their command line."""
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = file.read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(self.folder) in words:
                found.append(words)
        return found


@pytest.fixture
def studio(tmp_path):
    made = Studio(tmp_path)
    yield made
    made.kill()
    for note in (tmp_path / ".studio").glob("*.json"):  # training processes outlive their studio
        with contextlib.suppress(ProcessLookupError):
            os.kill(json.loads(note.read_text())["pid"], signal.SIGKILL)


@pytest.fixture
def page():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        opened = browser.new_page()
        opened.set_default_timeout(PATIENCE)
        opened.faults = []
        opened.on("pageerror", lambda error: opened.faults.append(str(error)))
        yield opened
        browser.close()


def begin(page):
    page.get_by_role("button", name="Begin").click()
    page.locator(".stage[data-n]").wait_for()


def buttons_are_above_the_fold(page, *more: str):
    """At 1440 × 900 px."""
    for name in ("Undo", "Keep", "Discard", "Stop", *more):
        box = page.get_by_role("button", name=name).bounding_box()
        assert box["y"] + box["height"] <= 900, name
    assert page.evaluate("scrollY") == 0


def shown_step(page, step: int):
    page.wait_for_function("n => document.querySelector('.stage').dataset.step === String(n)", arg=step)


def play(page, keys: list[str], already: int = 0):
    for key in keys:
        page.keyboard.press(key)
    shown_step(page, already + len(keys))


SEED = 213  # two starts near the hole; the keys below reach it
FIRST, SECOND = list("ccaaccxx"), list("zzxxss")
ACTIONS = {"c": 8, "a": 1, "x": 6}


def test_episodes_kept_survive_reloads_and_a_killed_server(studio, page):
    rows = [{"env_steps": n, "eval/reward": 1.0, "occupancy/mu": 0.5 * n} for n in (1, 2)]
    untrained_run(studio.folder / HOSTILE, "scopil-rho", demos="marble-maze/simple-v1", rows=rows)
    with _redirect(studio.folder, studio.address) as file:
        page.goto(file.as_uri())
        page.get_by_label("Seed").wait_for()
    assert "token" not in page.url
    assert page.context.cookies() == []
    page.get_by_label("Seed").fill(str(SEED))
    page.set_viewport_size({"width": 1440, "height": 900})
    begin(page)
    assert page.evaluate(NAMELESS) == 0
    buttons_are_above_the_fold(page)
    play(page, [*FIRST[:2], "ArrowUp"])
    page.keyboard.press("u")
    shown_step(page, 2)
    assert page.get_by_role("button", name="Keep").is_disabled()
    play(page, FIRST[2:], already=2)
    page.get_by_text("The episode has ended after 8 steps").wait_for()
    page.keyboard.press("Enter")
    page.get_by_text("Kept: 1 episode").wait_for()
    play(page, SECOND)
    page.get_by_text("The episode has ended after 6 steps").wait_for()
    page.keyboard.press("Backspace")  # discarded
    shown_step(page, 0)
    play(page, ["q", "w"])
    page.reload()  # in the middle of an episode
    begin(page)
    page.get_by_text("1 episode, 8 steps").first.wait_for()
    play(page, ["d", "x", "e"])
    page.evaluate("location.hash = '#/watch'")
    page.get_by_text(HOSTILE).first.wait_for()  # as text
    assert page.evaluate("window.harmed") is None
    page.get_by_role("img", name=re.compile(r"^Multipliers Σ μ.*: 1 at step 2$")).wait_for()  # a curve of the algorithm
    assert page.evaluate(NAMELESS) == 0
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390  # no page wider than a phone
    assert page.faults == []
    studio.process.send_signal(signal.SIGKILL)
    studio.process.wait()
    file = studio.folder / "demos" / "marblemaze-simple.npz"
    (episode,) = storage.read(file)
    assert episode.actions.tolist() == [ACTIONS[key] for key in FIRST]
    assert main(["demos", "check", str(file)]) == 0
    for _ in range(200):  # workers end when their server is gone
        if not studio.left_behind():
            break
        time.sleep(0.1)
    assert studio.left_behind() == []


CART = f"{Path(__file__).parent / 'cart_env.py'}:WarehouseCart(max_episode_steps=12)"
LONG = "warehouse-" + "with-a-very-long-name-of-an-experiment-" * 3
GAMEPAD = (
    """window.pad = { axes: [0, 0], buttons: [{ pressed: false }] }; navigator.getGamepads = () => [null, window.pad]"""
)


@pytest.fixture
def cart_studio(tmp_path):
    """Two seeds of two methods on the cart."""
    for seed in (0, 2):
        for algorithm, level in (("sac", 10.0), ("ppo", 20.0)):
            rows = [{"env_steps": n, "eval/reward": level + seed, "eval/violations": 8.0 - n} for n in (0, 4, 8)]
            rows[-1]["eval/episodes"] = 20.0
            run = tmp_path / LONG / f"{algorithm}-{seed}"
            untrained_run(run, algorithm, seed=seed, env=CART, rows=rows)
    made = Studio(tmp_path, "--env", CART)
    yield made
    made.kill()


def press_pad(page, axes, pressed):
    page.evaluate("([axes, pressed]) => Object.assign(pad, { axes, buttons: [{ pressed }] })", [axes, pressed])


def test_a_cart_is_recorded_by_touch_and_gamepad_and_its_runs_are_watched(cart_studio, page):
    page.add_init_script(GAMEPAD)
    page.goto(cart_studio.address)
    page.get_by_label("Environment", exact=True).wait_for()
    assert page.get_by_label("Environment", exact=True).input_value() == CART  # of --env
    file = page.get_by_label("Into the file", exact=True)
    assert file.input_value() == "demos/warehousecart.npz"
    file.fill("../a.npz")
    page.get_by_role("button", name="Begin").click()
    page.get_by_text("not a valid name").wait_for()
    assert file.input_value() == "../a.npz"  # the form is as it was
    assert file.is_visible()
    file.fill("demos/cart.npz")
    begin(page)
    stage = page.locator(".stage")
    box = stage.locator("canvas").bounding_box()
    touch = {"pointerType": "touch", "bubbles": True, "clientX": box["x"] + box["width"], "clientY": box["y"]}
    for step in (1, 2):
        stage.dispatch_event("pointerdown", touch)
        stage.dispatch_event("pointerup", touch)
        shown_step(page, step)
    for step, axes in ((3, [-1, 0.5]), (4, [0, 0])):  # the stick is released
        press_pad(page, axes, True)
        shown_step(page, step)
        press_pad(page, axes, False)
        page.wait_for_timeout(60)  # a few frames, in which the page sees the button
    for step in range(5, 13):
        page.keyboard.press("Space")
        shown_step(page, step)
    page.keyboard.press("Enter")
    page.get_by_text("Kept: 1 episode").wait_for()
    (episode,) = storage.read(cart_studio.folder / "demos" / "cart.npz")
    np.testing.assert_allclose(episode.actions[:4], [[1, 1], [1, 1], [-1, -0.5], [0, 0]], atol=0.01)

    for width, height in ((390, 844), (1440, 900)):
        page.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            for name in ("record", "watch", "compare", "read"):
                page.evaluate(f"location.hash = '#/{name}'")
                page.wait_for_function("t => document.title.startsWith(t)", arg=name.capitalize())
                page.locator("main h1").wait_for()
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)

    page.evaluate("location.hash = '#/watch'")
    reward = "svg[aria-label^='Return of evaluations']"
    page.get_by_role("img", name=re.compile(r"SAC.*: 11 at step 8; .*|PPO.*: 21 at step 8")).first.wait_for()  # means
    assert page.locator(f"{reward} polygon.f2, {reward} polygon.f4").count() == 2  # SAC and PPO
    assert page.locator(f"{reward} polyline.thin").count() == 4
    assert page.get_by_role("cell", name="0 (≤ 14 %)").count() == 4  # no violation in 20 episodes
    assert page.get_by_role("cell", name="0 (≤ 7.2 %)").count() == 2  # in those of two seeds
    page.get_by_label("Logarithmic values").check()
    page.get_by_label("Mean over seeds").uncheck()
    assert page.locator(f"{reward} polygon").count() == 0
    assert page.locator(f"{reward} polyline").count() == 4
    page.get_by_label("Filter").fill("ppo-2")
    page.get_by_text("1 of 4 runs").wait_for()
    assert page.get_by_role("checkbox", name="ppo-2").is_checked()
    assert page.faults == []


def test_compare_opens_on_an_environment_that_it_may_play_and_a_policy_is_corrected(tmp_path, page):
    note = untrained_run(tmp_path / "a", env=CART).folder / "run.json"
    note.write_text(re.sub('"signature": ".*"', '"signature": null', note.read_text()))  # as if made by another user
    untrained_run(tmp_path / "b", env="MountainCar-v0")
    studio = Studio(tmp_path)
    try:
        page.goto(f"{studio.address}")
        page.get_by_role("button", name="Begin").wait_for()
        page.evaluate("location.hash = '#/compare'")
        page.get_by_role("button", name="Play").wait_for()
        assert page.get_by_label("Environment", exact=True).input_value() == "MountainCar-v0"
        page.get_by_role("button", name="Play").first.click()
        page.get_by_text("rules not known").wait_for()
        page.set_viewport_size({"width": 390, "height": 844})
        page.get_by_label("Environment", exact=True).select_option(CART)
        page.get_by_text(f'scopil studio --env "{CART}"').wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390

        page.set_viewport_size({"width": 1440, "height": 900})
        page.evaluate("location.hash = '#/record?policy=b'")
        page.get_by_text("you correct it").first.wait_for(state="attached")
        players = page.get_by_label("Who plays").locator("option").all_inner_texts()
        assert players == ["you", "b (SAC); you correct it"]  # not the run of another user
        assert page.get_by_label("Keys").input_value() == "left=0,down=1,right=2"
        begin(page)
        page.wait_for_function("n => Number(document.querySelector('.stage').dataset.step) > n", arg=2)  # it plays
        keep = page.get_by_role("button", name="Keep")
        assert keep.is_disabled()
        page.keyboard.press("ArrowRight")
        page.get_by_text("You play, 1 step corrected").wait_for()
        page.keyboard.press("ArrowLeft")
        page.get_by_text("You play, 2 steps corrected").wait_for()
        page.keyboard.press("Tab")
        page.get_by_text("The policy plays, 2 steps corrected").wait_for()
        buttons_are_above_the_fold(page, "Give back")
        keep.click()
        page.get_by_text("This policy has not learned from demonstrations").wait_for()
        (episode,) = storage.read(tmp_path / "demos" / "b-corrected.npz")
        assert episode.actions.tolist() == [2, 0]
        assert page.faults == []
    finally:
        studio.kill()


@pytest.mark.slow  # it trains
def test_record_train_watch_and_compare(studio, page):
    for name, algorithm in (("mazes/sac", "sac"), ("mazes/bc", "bc")):
        demos = "marble-maze/simple-v1" if algorithm == "bc" else None
        untrained_run(studio.folder / name, algorithm, demos=demos, steps=1)
    page.goto(studio.address)
    page.get_by_label("Environment", exact=True).select_option("other")
    page.get_by_label("Into the file", exact=True).fill("demos/pole.npz")
    begin(page)
    for kept in (1, 2, 3):
        for i in range(200):
            page.keyboard.press(("ArrowLeft", "ArrowRight")[i % 2])
            if not page.get_by_role("button", name="Keep").is_disabled():
                break
        page.keyboard.press("Enter")
        page.get_by_text(f"{kept} episode").first.wait_for()
    assert len(storage.read(studio.folder / "demos" / "pole.npz")) == 3
    page.get_by_role("button", name="Replay").first.click()
    page.get_by_role("slider", name="Step").wait_for()

    page.evaluate("location.hash = '#/watch'")
    page.get_by_text("Start a run").click()
    page.get_by_label("Algorithm", exact=True).select_option("scopil")
    page.get_by_label("Environment", exact=True).fill("CartPole-v1")
    page.get_by_label("Environment", exact=True).blur()
    page.get_by_label("Demonstrations", exact=True).select_option("demos/pole.npz")
    page.get_by_label("Steps", exact=True).fill("30000")
    page.get_by_label("Run folder", exact=True).fill("runs/pole")
    page.get_by_text("Settings", exact=True).click()
    page.get_by_label("hidden", exact=True).fill("8")
    page.get_by_label("batch_size", exact=True).fill("16")
    page.get_by_role("button", name="Start").click()
    page.get_by_role("checkbox", name="runs/pole").check()
    lengths, line = ([], "[...document.querySelectorAll('polyline')].filter(l => l.textContent === 'runs/pole')")
    for points in (2, 3):  # the curve grows
        page.wait_for_function(f"n => {line}.some(l => l.points.numberOfItems >= n)", arg=points, timeout=5 * MINUTE)
        lengths.append((studio.folder / "runs" / "pole" / "metrics.jsonl").stat().st_size)
    assert lengths == sorted(lengths)
    page.get_by_role("button", name="Stop runs/pole").click()
    page.get_by_role("button", name="Resume runs/pole").wait_for()
    run = json.loads((studio.folder / "runs" / "pole" / "run.json").read_text())
    assert (run["algorithm"], run["env"]) == ("scopil", "CartPole-v1")
    assert run["config"]["hidden"] == [8]
    assert run["demos"].endswith("demos/pole.npz")

    page.evaluate("location.hash = '#/record?policy=mazes/bc'")
    begin(page)
    page.keyboard.press("d")
    page.get_by_text("You play, 1 step corrected").wait_for()
    page.set_viewport_size({"width": 1440, "height": 900})
    buttons_are_above_the_fold(page, "Give back")
    page.keyboard.press("Enter")
    page.get_by_text("Kept: 41 episodes").wait_for()
    buttons_are_above_the_fold(page, "Give back")
    page.get_by_label("Learn from them until step").fill("3")
    page.get_by_role("button", name="Learn").click()
    page.get_by_text("mazes/bc learns from demos/mazes-bc-corrected.npz").wait_for()
    page.evaluate("location.hash = '#/watch'")
    page.get_by_text("3 / 3").wait_for()  # finished

    page.evaluate("location.hash = '#/compare'")
    page.get_by_label("Environment", exact=True).select_option("scopil/MarbleMaze-Simple-v0")
    tray = page.locator(".stage canvas")
    tray.wait_for()
    box = tray.bounding_box()
    tray.click(position={"x": box["width"] * 0.62, "y": box["height"] * 0.3})
    page.locator("article[data-policy]").nth(1).wait_for()
    panels = page.locator("article[data-policy]")
    for i in range(2):
        shown = np.array(json.loads(panels.nth(i).get_attribute("data-positions")))
        agent = load(studio.folder / panels.nth(i).get_attribute("data-policy"))
        (played,) = agent.play(shown[:1].astype(np.float32))
        np.testing.assert_array_equal(shown.astype(np.float32), played.info["position"])
    page.get_by_role("button", name="Play").click()
    page.get_by_text(re.compile(r"step [1-9]\d* of")).wait_for()
    assert page.faults == []
    assert os.path.exists(studio.folder / "runs" / "pole" / "checkpoints")
