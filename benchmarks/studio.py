"""The studio: time of the first load and from key press to drawn frame, eight pages at once, and memory.

.venv/bin/python benchmarks/studio.py [load] [latency] [pages] [memory]

Needs Chromium and playwright. Pages run in one headless browser on the same machine, software rendering.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import websockets
from playwright.sync_api import sync_playwright

from scopil.data import storage
from scopil.files import write_atomically

RESULT = Path(__file__).parent / "results" / "studio.json"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
LOADS, PRESSES, PAGES, SECONDS, EPISODES = 10, 200, 8, 60, 1000

# A key goes down and up in the page; the time is taken in the frame that draws the state after it.
PRESS = """async (key) => {
  const stage = document.querySelector(".stage"), before = Number(stage.dataset.step), since = performance.now();
  const drawn = new Promise((done) => {
    const eyes = new MutationObserver(() => {
      if (Number(stage.dataset.step) === before) return;
      eyes.disconnect();
      done(performance.now() - since);
    });
    eyes.observe(stage, { attributes: true });
  });
  stage.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const took = await Promise.race([drawn, new Promise((done) => setTimeout(() => done(null), 2000))]);
  stage.dispatchEvent(new KeyboardEvent("keyup", { key, bubbles: true }));
  return took;
}"""
# Milliseconds from the start of the navigation: the first paint, and the frame that shows the form to record.
FORM = """() => new Promise((done) => {
  const look = () => [...document.querySelectorAll("main button")].some((b) => b.textContent === "Begin")
    ? requestAnimationFrame(() => setTimeout(() => done({
        "first paint": performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? performance.now(),
        form: performance.now() })))
    : requestAnimationFrame(look);
  look();
})"""
# A player with a key every 60 ms that keeps every episode and counts the kept ones.
PLAYER = """(keys) => {
  const stage = document.querySelector(".stage");
  const keep = [...document.querySelectorAll("button")].find((b) => b.textContent.startsWith("Keep"));
  const send = (kind, key) => stage.dispatchEvent(new KeyboardEvent(kind, { key, bubbles: true }));
  const tap = (key) => (send("keydown", key), send("keyup", key));
  window.kept = 0;
  let asked = false, i = 0;
  window.player = setInterval(() => {
    if (asked && stage.dataset.step === "0") { window.kept += 1; asked = false; }
    else if (!asked && !keep.disabled) { asked = true; tap("Enter"); }
    else if (!asked && !window.stopped) tap(keys[i++ % keys.length]);
  }, 60);
}"""


class Studio:
    def __init__(self, folder: str):
        command = [sys.executable, "-m", "scopil", "studio", folder, "--port", "0", "--no-browser"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline() for _ in range(3)]
        self.address = lines[1].strip()

    def __enter__(self) -> "Studio":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def workers(self) -> list[int]:
        return [
            int(pid) for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        ]

    def memory(self) -> dict[str, float]:
        """MB of the server and of its workers."""
        return {"server": _rss(self.process.pid), "workers": sum(map(_rss, self.workers()))}

    def processor_seconds(self) -> float:
        """Of the workers, since their start."""
        ticks = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for pid in self.workers()]
        return sum(int(n) for pair in ticks for n in pair) / os.sysconf("SC_CLK_TCK")


def _rss(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) / 1024 if found else 0.0


def begin(page, address: str, file: str, env: str | None = None, seed: int = 0) -> None:
    page.set_default_timeout(180_000)
    page.goto(address)
    page.get_by_role("button", name="Begin").wait_for()
    if env is not None:
        page.get_by_label("Environment", exact=True).select_option("other")
    page.get_by_label("Into the file", exact=True).fill(file)
    page.get_by_label("Seed", exact=True).fill(str(seed))
    page.get_by_role("button", name="Begin").click()
    page.locator(".stage[data-n]").wait_for()


def load(driver) -> dict[str, Any]:
    """The first page of a new server in a new browser, then the same page again. The server's processes import JAX
    meanwhile: `processor` is the time that these take, which other load on the machine does not change."""
    times: dict[str, list[float]] = {}
    for _ in range(LOADS):
        with tempfile.TemporaryDirectory() as folder, Studio(folder) as studio:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            page = browser.new_page()
            page.goto(studio.address, wait_until="commit")
            first = page.evaluate(FORM) | {"processor": 1000 * studio.processor_seconds()}
            page.reload(wait_until="commit")
            again = {f"{name}, again": took for name, took in page.evaluate(FORM).items()}
            for name, took in (first | again).items():
                times.setdefault(name, []).append(took)
            browser.close()
    found = {name: {"median": round(float(np.median(t))), "worst": round(max(t))} for name, t in times.items()}
    print(found)
    return found | {"load average": os.getloadavg()[0]}


def latency(browser) -> dict[str, dict[str, float]]:
    found = {}
    for name, env, keys in (
        ("Marble Maze", None, ["ArrowUp", "q"]),
        ("CartPole-v1", "CartPole-v1", ["ArrowLeft", "ArrowRight"]),
    ):
        with tempfile.TemporaryDirectory() as folder, Studio(folder) as studio:
            page = browser.new_page()
            begin(page, studio.address, "a.npz", env)
            times = []
            while len(times) < PRESSES:
                took = page.evaluate(PRESS, keys[len(times) % 2])
                if took is None:  # the episode is over
                    page.keyboard.press("Backspace")
                    page.wait_for_function("() => document.querySelector('.stage').dataset.step === '0'")
                else:
                    times.append(took)
            page.close()
        found[name] = {f"p{q}": round(float(np.percentile(times, q)), 1) for q in (50, 95, 99)}
        print(name, found[name])
    return found


def pages(browser) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as folder, Studio(folder) as studio:
        opened = []
        for i in range(PAGES):
            page = browser.new_context().new_page()
            maze = i % 2 == 0
            begin(page, studio.address, "maze.npz" if maze else "pole.npz", None if maze else "CartPole-v1", 1000 * i)
            opened.append((page, ["ArrowUp", "q", "x", "ArrowLeft", "d"] if maze else ["ArrowLeft", "ArrowRight"]))
        for page, keys in opened:
            page.evaluate(PLAYER, keys)
        time.sleep(SECONDS)
        for page, _ in opened:
            page.evaluate("window.stopped = true")
        time.sleep(3)
        kept = sum(page.evaluate("window.kept") for page, _ in opened)
        memory = studio.memory()
        files = sum(len(storage.read(Path(folder, f))) for f in ("maze.npz", "pole.npz") if Path(folder, f).exists())
    found = {"pages": PAGES, "seconds": SECONDS, "kept in pages": kept, "kept in files": files}
    print(found, memory)
    return found | {f"MB, {who}": round(mb) for who, mb in memory.items()}


async def memory() -> dict[str, dict[str, float]]:
    """A thousand kept episodes by one client, over the socket."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, Studio(folder) as studio:
        base, token = studio.address.split("/#token=")
        key = httpx2.post(f"{base}/enter", headers={"x-scopil-token": token, "origin": base}).text
        async with websockets.connect(
            base.replace("http", "ws") + "/play", subprotocols=["scopil", key], origin=base
        ) as socket:
            args = {"env": "CartPole-v1", "file": "a.npz", "keys": "a=0,d=1"}
            await socket.send(json.dumps({"do": "begin", "args": args}))
            state, kept, n = {}, 0, 0
            while kept < EPISODES:
                said = await socket.recv()
                if isinstance(said, bytes):
                    continue
                state = json.loads(said)
                if state["kind"] != "state" or state["n"] < n:
                    continue
                if state["kept"] > kept:
                    kept = state["kept"]
                    if kept in (EPISODES // 10, EPISODES // 2, EPISODES):
                        found[str(kept)] = {who: round(mb, 1) for who, mb in studio.memory().items()}
                        print(kept, found[str(kept)])
                key = "return" if state["over"] else "a"
                n += 2
                await socket.send(json.dumps({"key": key, "down": True, "n": n - 1}))
                await socket.send(json.dumps({"key": key, "down": False, "n": n}))
        assert len(storage.read(Path(folder, "a.npz"))) == EPISODES
    return found


def main(parts: list[str]) -> None:
    found = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    with sync_playwright() as driver:
        if "load" in parts:
            found["first load, ms"] = load(driver)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        if "latency" in parts:
            found["key press to drawn frame, ms"] = latency(browser)
        if "pages" in parts:
            found["pages at once"] = pages(browser)
        browser.close()
    if "memory" in parts:
        found["MB after kept episodes"] = asyncio.run(memory())
    found["cores"], found["load"] = os.cpu_count(), [round(x, 1) for x in os.getloadavg()]
    write_atomically(RESULT, json.dumps(found, indent=2).encode() + b"\n")


if __name__ == "__main__":
    known = ["load", "latency", "pages", "memory"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*known, []], default=known)
    main(parser.parse_args().parts)
