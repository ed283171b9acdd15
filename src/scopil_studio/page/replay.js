// Replay: one clock for several views, each of which can show any of its steps.
import { ask, h } from "./dom.js";
import { Tray, picture } from "./tray.js";

export class Clock {
  constructor(changed, fps = 12) {
    this.views = []; // { length, show(t) }
    this.fps = fps;
    this.slider = h("input", { type: "range", min: 0, max: 0, value: 0, ariaLabel: "Step", oninput: () => { this.stop(); this.to(Number(this.slider.value)); } });
    this.button = h("button", { type: "button", onclick: () => (this.timer ? this.stop() : this.play()) }, "Play");
    this.text = h("span", { className: "quiet" }, "step 0");
    this.node = h("div", { className: "bar" }, this.button, this.slider, this.text);
    this.changed = changed ?? (() => {});
  }

  set(views) {
    this.stop();
    this.views = views;
    this.last = Math.max(0, ...views.map((v) => v.length - 1));
    this.slider.max = this.last;
    this.to(this.last);
  }

  to(t) {
    this.now = t;
    this.slider.value = t;
    this.text.textContent = `step ${t} of ${this.last}`;
    for (const view of this.views) view.show(Math.min(t, view.length - 1));
    this.changed(t);
  }

  play() {
    if (this.now >= this.last) this.to(0);
    this.button.textContent = "Pause";
    this.timer = setInterval(() => (this.now >= this.last ? this.stop() : this.to(this.now + 1)), 1000 / this.fps);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.button.textContent = "Play";
  }
}

const trays = new Map();

// The tray of an environment, or null; requested once.
export async function trayOf(env) {
  if (!trays.has(env)) {
    trays.set(env, ask("tray", { env }).then(async (found) => (found.tray ? { sizes: found.tray, image: await picture(found.blob) } : null)));
    trays.get(env).catch(() => trays.delete(env));
  }
  return trays.get(env);
}

// A path on a tray as a view for a clock.
export function pathView(tray, episode) {
  tray.trail = episode.positions.map((at, i) => ({ at, tilt: episode.tilts[i], broken: episode.broken[i] }));
  return { length: tray.trail.length, show: (t) => tray.paint(1, t) };
}

// Views of the frames in an answer, whose blob holds them one after the other.
export async function frameViews(found) {
  let at = 0;
  return found.policies.map((policy) => {
    const canvas = h("canvas", { width: 600, height: 400 });
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Frames of ${policy.name}`);
    const blobs = policy.sizes.map((size) => found.blob.slice(at, (at += size), "image/jpeg"));
    const length = policy.rewards.length + 1, costs = policy.costs ?? []; // null: no rule is known
    const strip = h("div", { className: "strip", role: "img", ariaLabel: policy.costs ? `${costs.filter((c) => c > 0).length} of ${length} states have a cost` : "Rules not known" },
      blobs.map((_, i) => h("i", { className: costs.slice(i * policy.every, (i + 1) * policy.every).some((c) => c > 0) ? "cost" : "" })));
    let wanted = -1;
    const show = async (t) => {
      const index = Math.min(Math.floor(t / policy.every), blobs.length - 1);
      if (index === wanted) return;
      strip.children[wanted]?.classList.remove("now");
      wanted = index;
      strip.children[index].classList.add("now");
      const image = await createImageBitmap(blobs[index]);
      if (index === wanted) {
        if (canvas.width !== image.width) [canvas.width, canvas.height] = [image.width, image.height];
        canvas.getContext("2d").drawImage(image, 0, 0);
      }
      image.close();
    };
    return { policy, node: h("div", {}, canvas, strip), length, show };
  });
}

// One episode with a clock.
export async function shownEpisode(found, env) {
  const clock = new Clock();
  if (found.positions) {
    const { sizes, image } = await trayOf(env);
    const tray = new Tray(sizes, image, `A path of ${found.positions.length - 1} steps`);
    clock.set([pathView(tray, found)]);
    return h("div", { className: "stage" }, tray.canvas, clock.node);
  }
  const views = await frameViews(found);
  clock.set(views);
  return h("div", {}, views.map((v) => v.node), clock.node);
}
