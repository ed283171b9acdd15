// Runs and their curves during training; starts, stops and resumes runs.
import { ask, count, field, fill, h, options, say, short, showErrors } from "./dom.js";
import { chart } from "./chart.js";

const EVERY = 2000; // ms between two requests
const COLOURS = 7; // methods at once
const FIXED = { "SCOPIL-ρ": 0, "SCOPIL": 1, "SAC": 2, "BC": 3, "PPO": 4, "GAIL-SAC": 5, "ICRL": 6 }; // as in reports
const MOST = 24; // runs at once
const MANY = 12; // runs in a folder, above which groups are closed at first
const method = (run) => `${run.title} · ${run.env}`;
const states = (runs) => [...new Set(runs.map((r) => r.state))].flatMap((state, i) => [i ? " " : "", h("span", { className: `state ${state}` }, `${runs.filter((r) => r.state === state).length} ${state}`)]);
const mean = (values) => (values.length && values.every((v) => typeof v === "number") ? values.reduce((a, b) => a + b) / values.length : null);
// Violations per episode. 0 in n episodes has the exact one-sided upper bound, with 95 % confidence, of episodes with one.
const rate = (mean, n) => (mean === 0 && n ? `0 (≤ ${+(100 * (1 - 0.05 ** (1 / n))).toPrecision(2)} %)` : short(mean));

export async function open(main, overview) {
  const watch = new Watch(overview);
  fill(main,
    h("h1", {}, "Watch"),
    h("p", { className: "lead" }, "Runs in this folder, with their curves during training. Runs of one method that differ in the seed are a group: the thick line is their mean, the band goes from the lowest to the highest. 0 (≤ p): no violation was seen; with 95 % confidence, at most the share p of episodes has one."),
    watch.table, watch.controls, watch.charts, watch.detail, starting(overview, () => watch.refresh()));
  const intact = overview.runs.filter((r) => r.state !== "damaged");
  const first = intact.find((r) => r.state === "training") ?? intact.at(-1); // selected together with runs of the same environment
  for (const run of intact.filter((r) => r.env === first.env)) watch.choose(run);
  await watch.refresh(overview);
  const timer = setInterval(() => watch.refresh().catch((error) => say(error.message, true)), EVERY);
  return () => clearInterval(timer);
}

class Watch {
  constructor() {
    this.chosen = new Map(); // name → { rows, offset, title, env, … }
    this.folds = new Map(); // group → whether its runs are hidden, if that was chosen
    this.filter = h("input", { type: "text", autocomplete: "off", spellcheck: false, placeholder: "name, method, environment or state", oninput: () => this.list(this.now) });
    this.grouped = h("input", { type: "checkbox", checked: true, onchange: () => this.draw() });
    this.logX = h("input", { type: "checkbox", onchange: () => this.draw() });
    this.logY = h("input", { type: "checkbox", onchange: () => this.draw() });
    this.head = h("h2", {});
    this.body = h("div", {});
    this.table = h("section", { className: "panel", ariaLabel: "Runs" }, h("div", { className: "fields" }, this.head, field("Filter", this.filter)), this.body);
    this.legend = h("p", { className: "legend" });
    this.controls = h("div", { className: "panel bar" }, this.legend,
      [[this.grouped, "Mean over seeds"], [this.logX, "Logarithmic steps"], [this.logY, "Logarithmic values"]].map(([box, text]) => h("label", { className: "choice" }, box, text)));
    this.charts = h("section", { ariaLabel: "Curves" });
    this.detail = h("section", { className: "panel", hidden: true, ariaLabel: "One run" });
  }

  // Adds a run to the curves. Returns whether there is a place for it.
  choose(run) {
    const methods = new Set([...this.chosen.values()].map(method)).add(method(run));
    if (this.chosen.size >= MOST || methods.size > COLOURS) return false;
    this.chosen.set(run.name, { rows: [], offset: 0, title: run.title, env: run.env, curves: [] });
    return true;
  }

  async refresh(overview) {
    if (this.busy) return;
    this.busy = true;
    try {
      const now = (this.now = overview ?? (await ask("overview")));
      const shown = JSON.stringify([now.runs, now.starting, [...this.chosen.keys()]]);
      if (shown !== this.shown) this.list(now);
      this.shown = shown;
      await this.follow();
    } finally {
      this.busy = false;
    }
  }

  async follow() {
    let news = false;
    for (const [name, kept] of this.chosen) {
      let found;
      try {
        found = await ask("run", { name, since: kept.offset });
      } catch (error) {
        this.chosen.delete(name); // removed or damaged; the others stay
        say(`${name}: ${error.message}`, true);
        continue;
      }
      news ||= !kept.settings || found.rows.length > 0 || found.again;
      const rows = found.again ? found.rows : [...kept.rows, ...found.rows];
      this.chosen.set(name, { ...found, rows });
    }
    if (news || this.chosen.size !== this.drawn) this.draw();
    this.drawn = this.chosen.size;
    if (this.open && this.chosen.has(this.open)) this.about(this.open, this.chosen.get(this.open));
  }

  list(now) {
    const focus = document.activeElement?.id, wanted = this.filter.value.toLowerCase().split(/\s+/);
    const runs = now.runs.filter((run) => wanted.every((word) => `${run.name} ${run.title} ${run.env} ${run.state}`.toLowerCase().includes(word)));
    const groups = new Map();
    for (const run of runs) {
      const name = run.state === "damaged" ? run.name : method(run);
      groups.set(name, [...(groups.get(name) ?? []), run]);
    }
    this.head.textContent = runs.length === now.runs.length ? count(runs.length, "run") : `${runs.length} of ${count(now.runs.length, "run")}`;
    fill(this.body,
      now.starting.map((job) => h("details", { open: !job.alive }, h("summary", { className: job.alive ? "" : "bad" }, `${job.name}: ${job.alive ? "starting …" : "failed to start"}`), h("pre", {}, job.log))),
      runs.length
        ? h("div", { className: "scroll" }, h("table", {},
          h("thead", {}, h("tr", {}, h("th", { className: "text", scope: "col" }, "Run"), h("th", { className: "text", scope: "col" }, "State"),
            ["Algorithm", "Environment", "Seed", "Steps", "Return", "Violations"].map((t) => h("th", { scope: "col" }, t)), h("th", {}, ""))),
          [...groups].map(([name, group]) => this.group(name, group))))
        : h("p", { className: "quiet" }, now.runs.length ? "No run has these words." : "There are no runs yet. Start one below, or with scopil train."));
    if (focus) document.getElementById(focus)?.focus();
  }

  group(name, runs) {
    if (runs.length === 1) return h("tbody", {}, this.row(runs[0]));
    const closed = this.folds.get(name) ?? (this.now.runs.length > MANY && !runs.some((r) => r.state === "training")), open = runs.filter((r) => this.chosen.has(r.name));
    const box = h("input", { type: "checkbox", id: `group ${name}`, checked: open.length === runs.length, ariaLabel: `All runs of ${name}`,
      onchange: () => this.change(runs, box.checked) });
    box.indeterminate = open.length > 0 && open.length < runs.length;
    const fold = h("button", { type: "button", className: "small", id: `fold ${name}`, ariaExpanded: String(!closed), ariaLabel: `Runs of ${name}`, onclick: () => {
      this.folds.set(name, !closed);
      this.list(this.now);
    } }, closed ? "Show" : "Hide");
    const broken = mean(runs.map((r) => r.violations));
    return h("tbody", {}, h("tr", { className: "group" },
      h("td", { className: "text wrap" }, h("label", { className: "choice" }, box, this.swatch(open[0]), `${runs[0].title}, ${count(runs.length, "run")}`)), h("td", { className: "text" }, states(runs)), h("td", {}, runs[0].title), h("td", { className: "env" }, runs[0].env),
      h("td", {}, "mean"), h("td", {}), h("td", {}, short(mean(runs.map((r) => r.reward)))), h("td", { className: broken ? "bad" : "" }, rate(broken, runs.reduce((n, r) => n + r.episodes, 0))), h("td", {}, fold)),
      closed ? [] : runs.map((run) => this.row(run)));
  }

  async change(runs, chosen) {
    const left = runs.filter((run) => (chosen ? !this.chosen.has(run.name) && !this.choose(run) : !this.chosen.delete(run.name)));
    say(chosen && left.length ? `At most ${COLOURS} methods and ${MOST} runs at once.` : "", true);
    this.list(this.now);
    await showErrors(() => this.follow())();
    this.draw();
  }

  // The colours of methods, or of runs if they are not grouped.
  colours() {
    if (!this.grouped.checked) return new Map([...this.chosen.keys()].map((name, i) => [name, i % COLOURS]));
    const found = new Map(), names = new Map([...this.chosen.values()].map((run) => [method(run), FIXED[run.title]]));
    const free = [...Array(COLOURS).keys()].filter((i) => ![...names.values()].includes(i));
    for (const [name, wanted] of names) {
      const taken = wanted === undefined || [...found.values()].includes(wanted); // by the same method on another environment
      found.set(name, taken ? (free.shift() ?? 0) : wanted);
    }
    return found;
  }

  swatch(run) {
    const colour = run && this.chosen.has(run.name) ? this.colours().get(this.grouped.checked ? method(run) : run.name) : undefined;
    return colour === undefined ? null : h("span", { className: `swatch s${colour}` });
  }

  row(run) {
    const box = h("input", { type: "checkbox", id: `run ${run.name}`, checked: this.chosen.has(run.name), disabled: run.state === "damaged",
      onchange: () => this.change([run], box.checked) });
    const name = h("label", { className: "choice" }, box, this.swatch(run), run.name);
    const state = h("span", { className: `state ${run.state}` }, run.state);
    if (run.state === "damaged") return h("tr", {}, h("td", { className: "text wrap" }, name), h("td", { className: "text" }, state), h("td", { className: "text wrap bad", colSpan: 7 }, run.problem));
    const act = (request, text) => h("button", { type: "button", className: "small", id: `${request} ${run.name}`, ariaLabel: `${text} ${run.name}`,
      onclick: showErrors(async () => { await ask(request, { name: run.name }); say(`${text}: ${run.name}`); await this.refresh(); }) }, text);
    return h("tr", {}, h("td", { className: "text wrap" }, name), h("td", { className: "text" }, state), h("td", {}, run.title), h("td", { className: "env" }, run.env), h("td", {}, run.seed),
      h("td", {}, `${run.done.toLocaleString("en")} / ${run.steps.toLocaleString("en")}`), h("td", {}, short(run.reward)),
      h("td", { className: run.violations ? "bad" : "" }, rate(run.violations, run.episodes)),
      h("td", {}, run.stoppable ? act("stop", "Stop") : run.state === "stopped" ? act("resume", "Resume") : null, " ",
        run.playable && run.allowed ? h("a", { href: `#/record?policy=${encodeURIComponent(run.name)}`, ariaLabel: `Correct ${run.name}` }, "Correct") : null, " ",
        h("button", { type: "button", className: "small", id: `about ${run.name}`, ariaLabel: `About ${run.name}`,
          onclick: showErrors(async () => { this.open = run.name; this.about(run.name, await ask("run", { name: run.name })); this.detail.scrollIntoView(); }) }, "About")));
  }

  draw() {
    const runs = [...this.chosen], colours = this.colours(), grouped = this.grouped.checked;
    const of = (metric) => [...colours].map(([name, colour]) => ({ name, colour, curves: runs.filter(([run, about]) => (grouped ? method(about) : run) === name)
      .map(([run, about]) => ({ name: run, points: about.rows.filter((row) => typeof row[metric] === "number").map((row) => [row.env_steps, row[metric]]) })) }));
    const axes = { logX: this.logX.checked, logY: this.logY.checked };
    const seeds = (name) => (grouped ? ` (${count(runs.filter(([, about]) => method(about) === name).length, "run")})` : "");
    this.controls.hidden = !runs.length;
    fill(this.legend, [...colours].map(([name, colour]) => h("span", {}, h("span", { className: `swatch s${colour}` }), name, seeds(name))));
    const logged = [...new Set(runs.flatMap(([, run]) => run.rows.flatMap((row) => Object.keys(row))))].sort();
    const rules = logged.filter((m) => m.startsWith("eval/violations/"));
    const byRule = rules.length > 1 ? rules.map((rule) => [rule, `Violations per episode: ${rule.slice(16)}`]) : [];
    const titles = new Map(runs.flatMap(([, run]) => run.curves.flatMap((c) => [[c.metric, c.title], ...(c.metric === "eval/violations" ? byRule : [])])));
    this.further ??= "episode/return";
    const pick = h("select", { ariaLabel: "Further metric", onchange: () => { this.further = pick.value; this.draw(); } }, options(logged.filter((m) => m !== "env_steps").map((m) => [m, m]), this.further));
    fill(this.charts, runs.length ? h("div", { className: "charts" },
      [...titles].filter(([metric]) => logged.includes(metric) || metric === "eval/reward").map(([metric, title]) => chart(title, of(metric), { ...axes, fromZero: metric.startsWith("eval/violations") })),
      logged.length ? h("div", {}, chart(this.further, of(this.further), axes), field("Further metric", pick)) : null) : null);
  }

  about(name, run) {
    const pairs = (object) => h("dl", { className: "pairs" }, Object.entries(object).flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, typeof v === "object" && v !== null ? JSON.stringify(v) : String(v))]));
    const { config, ...rest } = run.settings;
    const shown = JSON.stringify([name, run.log, run.state]);
    if (shown === this.aboutShown) return;
    this.aboutShown = shown;
    this.detail.hidden = false;
    fill(this.detail, h("h2", {}, name), h("div", { className: "charts" },
      h("div", {}, h("h2", {}, "Run"), pairs(rest)), h("div", {}, h("h2", {}, "Settings"), pairs(config)), h("div", {}, h("h2", {}, "Versions"), pairs(run.versions))),
      run.log ? h("details", {}, h("summary", {}, "Printed output"), h("pre", {}, run.log)) : null);
  }
}

function starting(overview, started) {
  const algorithm = h("select", {}, options(overview.algorithms.map((a) => [a.name, a.title]), "scopil-rho"));
  const env = h("input", { type: "text", value: "scopil/MarbleMaze-Simple-v0", autocomplete: "off", spellcheck: false });
  env.setAttribute("list", "watched-envs");
  const sets = () => [["", "none"], ...[...overview.sets.filter((s) => !s.problem), ...overview.shipped].filter((s) => s.env === env.value).map((s) => [s.name, `${s.name} (${count(s.episodes, "episode")})`])];
  const demos = h("select", {});
  const steps = h("input", { type: "number", min: 1, value: 100000, step: 1 }), seed = h("input", { type: "number", min: 0, value: 0, step: 1 });
  const name = h("input", { type: "text", value: "", autocomplete: "off", spellcheck: false });
  const about = h("p", { className: "quiet" });
  const settings = h("div", { className: "fields" });
  const update = () => {
    const chosen = overview.algorithms.find((a) => a.name === algorithm.value);
    about.textContent = chosen.about + (chosen.needs_demos ? "; needs demonstrations" : "");
    fill(demos, options(sets(), chosen.needs_demos ? sets()[1]?.[0] : ""));
    const taken = new Set([...overview.runs, ...overview.starting].map((r) => r.name));
    for (let i = 0; !name.value || taken.has(name.value); i++) name.value = `runs/${chosen.name}-${i}`;
  };
  const fresh = showErrors(async () => {
    name.value = "";
    update();
    const found = await ask("settings", { algorithm: algorithm.value });
    fill(settings, found.settings.map((s) => field(s.name, h("input", { type: "text", name: s.name, placeholder: s.default, autocomplete: "off" }), s.about)));
  });
  algorithm.addEventListener("change", fresh);
  env.addEventListener("change", update);
  fresh();
  return h("details", { className: "panel", open: overview.runs.length === 0 }, h("summary", {}, "Start a run"),
    h("form", { onsubmit: showErrors(async (event) => {
      event.preventDefault();
      const given = Object.fromEntries([...settings.querySelectorAll("input")].filter((i) => i.value.trim()).map((i) => [i.name, i.value.trim()]));
      await ask("start", { name: name.value, algorithm: algorithm.value, env: env.value, demos: demos.value, steps: Number(steps.value), seed: Number(seed.value), options: given });
      say(`Starting ${name.value}: it continues after this page is closed.`);
      name.value = "";
      await started();
    }) },
      h("datalist", { id: "watched-envs" }, overview.envs.map((id) => h("option", { value: id }))),
      h("div", { className: "fields" }, field("Algorithm", algorithm), field("Environment", env), field("Demonstrations", demos), field("Steps", steps, null, "short"), field("Seed", seed, null, "short"), field("Run folder", name)),
      about, h("details", {}, h("summary", {}, "Settings"), settings),
      h("div", { className: "bar" }, h("button", { className: "first" }, "Start"))));
}
