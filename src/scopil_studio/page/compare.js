// Policies side by side: from a chosen start on a tray, from a seed in other environments.
import { ask, count, faulty, field, fill, h, options, say, save, short, showErrors, violations } from "./dom.js";
import { Clock, frameViews, pathView, trayOf } from "./replay.js";
import { Tray } from "./tray.js";

const MOST = 4;
const ORDER = [4, 3, 5, 1, 0, 2, 7, 6, 8]; // cell of the 3 × 3 grid (row by row) of actions 0 … 8: none/up/down × none/left/right

export async function open(main, overview) {
  const playable = [...overview.runs.filter((r) => r.playable), ...overview.policies.filter((p) => p.env)];
  if (!playable.length) {
    fill(main, h("h1", {}, "Compare"), h("p", { className: "lead" }, "There is no trained policy in this folder yet. Start a run on the page ", h("a", { href: "#/watch" }, "Watch"), "."));
    return;
  }
  const compare = new Compare(main, overview, playable);
  await compare.choose();
  return () => compare.clock.stop();
}

class Compare {
  constructor(main, overview, playable) {
    this.playable = playable;
    this.clock = new Clock((t) => this.details?.forEach((show) => show(t)));
    this.start = [60, 120];
    const envs = [...new Set(playable.map((r) => r.env))], allowed = new Set(playable.filter((r) => r.allowed).map((r) => r.env));
    this.env = h("select", { onchange: showErrors(() => this.choose()) }, options(envs.map((e) => [e, e]), envs.find((e) => allowed.has(e)) ?? envs[0]));
    this.allowed = allowed;
    this.demos = h("select", {});
    this.demosField = field("Demonstrations", this.demos);
    this.policies = h("fieldset", {});
    this.sets = [...overview.sets.filter((s) => !s.problem), ...overview.shipped];
    this.where = h("section", { className: "panel", ariaLabel: "Start" });
    this.results = h("section", { ariaLabel: "Episodes" });
    fill(main, h("h1", {}, "Compare"),
      h("p", { className: "lead" }, "Each policy plays from the start you choose, step by step, with violations in red. Demonstrations that start nearby are shown too."),
      h("form", { className: "panel", onsubmit: (event) => event.preventDefault() }, h("div", { className: "fields" }, field("Environment", this.env), this.demosField, this.policies)),
      h("div", { className: "two" }, this.where, this.results), faulty(overview.policies));
  }

  async choose() {
    const env = this.env.value;
    this.clock.stop();
    fill(this.results);
    fill(this.demos, options([["", "the policies' own demonstrations"], ...this.sets.filter((s) => s.env === env).map((s) => [s.name, s.name])], ""));
    const runs = this.playable.filter((r) => r.env === env);
    const first = runs.filter((run, i) => runs.findIndex((other) => other.title === run.title) === i).slice(0, 2); // of two methods
    this.boxes = runs.map((run) => h("input", { type: "checkbox", value: run.name, checked: first.includes(run), onchange: (event) => {
      if (this.names().length > MOST) (event.target.checked = false), say(`At most ${MOST} policies at once.`, true);
      else this.overlays();
    } }));
    fill(this.policies, h("legend", {}, `Policies, up to ${MOST}`), runs.map((run, i) => h("label", { className: "choice" }, this.boxes[i], `${run.name} (${run.title}, seed ${run.seed}, ${short(run.done)} steps)`)));
    if (!this.allowed.has(env)) {
      fill(this.where, h("h2", {}, "This environment is not open"), h("p", {}, "Its code is in a file or module that this studio was not told to trust. To play it, start the studio with"),
        h("pre", {}, `scopil studio --env "${env}"`));
      return;
    }
    say("Opening …");
    const tray = await trayOf(env);
    say("");
    this.demosField.hidden = !tray;
    if (tray) this.onTray(tray);
    else this.bySeed();
  }

  names() {
    return this.boxes.filter((b) => b.checked).map((b) => b.value);
  }

  // --- on a tray ---------------------------------------------------------------------------------------------------

  onTray({ sizes, image }) {
    const tray = (this.tray = new Tray(sizes, image, ""));
    const x = h("input", { type: "number", step: 1, name: "x" }), y = h("input", { type: "number", step: 1, name: "y" });
    const move = (to) => {
      this.start = to.map((a) => Math.max(-sizes.reach, Math.min(sizes.reach, a)));
      [x.value, y.value] = this.start.map((a) => Math.round(a));
      tray.marker = this.start;
      tray.label = `The tray with the start at ${x.value}, ${y.value} px. Arrow keys move it, Enter plays.`;
      tray.paint();
    };
    for (const input of [x, y]) input.addEventListener("change", () => move([Number(x.value), Number(y.value)]));
    const stage = h("div", { className: "stage", tabIndex: 0, role: "application", ariaLabel: "Choose a start: click, or arrow keys and Enter",
      onclick: showErrors((event) => { move(tray.place(event)); return this.roll(); }),
      onkeydown: showErrors((event) => {
        const by = { ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[event.key];
        if (by) event.preventDefault(), move(this.start.map((a, i) => a + by[i] * (event.shiftKey ? 1 : 10)));
        if (event.key === "Enter") return event.preventDefault(), this.roll();
      }) }, tray.canvas);
    this.over = h("select", { onchange: showErrors(() => this.map()) });
    this.overNote = h("p", { className: "quiet" });
    fill(this.where, h("h2", {}, "Choose a start"), stage,
      h("div", { className: "fields" }, field("x, px", x, null, "short"), field("y, px", y, null, "short"), h("button", { type: "button", className: "first", onclick: showErrors(() => this.roll()) }, "Show episodes"), field("Map", this.over)),
      this.overNote, this.downloads());
    this.overlays();
    move(this.start);
    fill(this.results, h("p", { className: "quiet" }, "Choose policies and a start to see their episodes side by side."));
  }

  overlays() {
    if (!this.over) return;
    fill(this.over, options([["", "none"], ...this.names().map((n) => [n, `violations of ${n} by start`])], ""));
    this.map();
  }

  async map() {
    const mine = (this.mapping = {});
    this.tray.under = null;
    this.overNote.textContent = "";
    this.tray.paint();
    if (this.over.value) await this.startsMap(this.over.value, mine);
  }

  async startsMap(policy, mine) {
    const seen = [];
    this.tray.under = (context) => seen.forEach(([[x, y], violations, reached, cell]) => {
      context.fillStyle = violations > 0 ? `rgba(206, 32, 48, ${Math.min(0.8, 0.3 + violations / 20)})` : reached ? "rgba(29, 107, 58, 0.45)" : "rgba(122, 77, 0, 0.5)";
      context.fillRect(x - cell / 2, y - cell / 2, cell, cell);
    });
    for (let part = 0, parts = 1; part < parts && this.mapping === mine; part++) {
      const found = await ask("starts_map", { env: this.env.value, policy, part });
      if (this.mapping !== mine) return;
      parts = found.parts;
      found.starts.forEach((start, i) => seen.push([start, found.violations[i], found.reached[i], found.cell]));
      const broken = seen.filter((s) => s[1] > 0).length;
      this.overNote.textContent = `${seen.length} starts played (${part + 1} of ${parts} parts): ${policy} has violations from ${broken} of them (red) and none from ${seen.length - broken} (green; brown: out of time).`;
      this.tray.paint();
    }
  }

  async roll() {
    const policies = this.names();
    if (!policies.length) throw new Error("Choose a policy first.");
    say("Playing … The first time takes longer, since programs are compiled.");
    const found = await ask("roll", { env: this.env.value, policies, start: this.start, demos: this.demos.value });
    say("");
    const { sizes, image } = await trayOf(this.env.value);
    const panels = found.policies.map((episode) => this.panel(episode, new Tray(sizes, image, `${episode.title} from ${this.start.map(Math.round)}`)));
    const near = new Tray(sizes, image, `${found.near.length} demonstrations that start nearby`);
    near.paths = found.near.map((e) => e.positions);
    near.marker = this.start;
    near.paint();
    this.details = panels.map((p) => p.detail);
    fill(this.results, this.clock.node, h("div", { className: "panels" }, panels.map((p) => p.node),
      h("article", { className: "panel" }, h("h2", {}, "Demonstrations nearby"), near.canvas, h("p", { className: "quiet" }, found.near.length ? found.near.map((e) => e.title).join(", ") : "none"))));
    this.clock.set(panels.map((p) => p.view));
    this.rolled = found;
  }

  panel(episode, tray) {
    const m = episode.measures, view = pathView(tray, episode);
    const cells = Array.from({ length: 9 }, () => [h("i", {}), h("b", {})]);
    const familiar = h("meter", { min: 0, max: 1, low: 0.1, optimum: 1 }), familiarText = h("span", { className: "quiet" });
    const detail = (t) => {
      const at = Math.min(t, episode.actions.length - 1);
      episode.chances?.[at].forEach((p, action) => {
        const [bar, text] = cells[ORDER[action]];
        bar.style.height = `${100 * p}%`;
        text.textContent = p >= 0.005 ? Math.round(100 * p) : "";
      });
      if (episode.familiarity) (familiar.value = episode.familiarity[at]), (familiarText.textContent = ` familiarity ${episode.familiarity[at].toFixed(2)}`);
    };
    const node = h("article", { className: "panel" }, h("h2", {}, episode.title, " ", h("small", { className: "quiet" }, episode.name)), tray.canvas,
      h("p", {}, `${count(m.steps, "step")}, return ${short(m.reward)}, `, violations(m.violations)),
      episode.unknown ? h("p", { className: "quiet" }, episode.unknown) : null,
      h("div", { className: "detail" },
        episode.chances ? h("div", { className: "chances", role: "img", ariaLabel: "Probabilities of the nine actions in per cent; the centre is no tilt" }, cells.map((c) => h("span", {}, c))) : null,
        episode.familiarity ? h("label", {}, familiar, familiarText) : h("span", { className: "quiet" }, episode.unfamiliar)));
    node.dataset.policy = episode.name;
    node.dataset.positions = JSON.stringify(episode.positions); // for tests
    return { node, view, detail };
  }

  // --- other environments ----------------------------------------------------------------------------------------------

  bySeed() {
    this.over = this.tray = this.rolled = null;
    const seed = (this.seed = h("input", { type: "number", min: 0, value: 0, step: 1 }));
    fill(this.where, h("h2", {}, "Choose a seed"), h("div", { className: "fields" }, field("Seed", seed, "the same for all policies", "short"),
      h("button", { type: "button", className: "first", onclick: showErrors(() => this.frames()) }, "Play")), this.downloads());
  }

  async frames() {
    const policies = this.names();
    if (!policies.length) throw new Error("Choose a policy first.");
    say("Playing …");
    const views = await frameViews(await ask("frames", { env: this.env.value, policies, seed: Number(this.seed.value) }));
    say("");
    this.details = null;
    fill(this.results, this.clock.node, h("div", { className: "panels" }, views.map((view) => {
      const sum = view.policy.rewards.reduce((a, b) => a + b, 0);
      return h("article", { className: "panel" }, h("h2", {}, view.policy.name), view.node, h("p", {}, `${count(view.policy.rewards.length, "step")}, return ${short(sum)}, `, violations(view.policy.violations)), view.policy.unknown ? h("p", { className: "quiet" }, view.policy.unknown) : null);
    })));
    this.clock.set(views);
  }

  downloads() {
    const get = (kind) => h("button", { type: "button", className: "small", onclick: showErrors(async () => {
      say(`Writing ${kind} …`);
      const start = this.tray ? this.start : null;
      const found = await ask("download", { kind, env: this.env.value, policies: this.names(), start, seed: Number(this.seed?.value ?? 0) });
      save(found.blob, `compare.${kind}`);
      say("");
    }) }, kind);
    return h("div", { className: "bar" }, h("span", { className: "quiet" }, "Download:"), get("mp4"), get("gif"), get("npz"));
  }
}
