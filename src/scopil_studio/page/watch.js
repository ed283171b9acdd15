// Runs and their curves during training; starts, stops and resumes runs.
import { ask, count, field, fill, h, options, say, short, showErrors } from "./dom.js";
import { chart } from "./chart.js";

const EVERY = 2000; // ms between two requests
const COLOURS = 6;

export async function open(main, overview) {
  const watch = new Watch(overview);
  fill(main,
    h("h1", {}, "Watch"),
    h("p", { className: "lead" }, "Runs in this folder, with their curves during training. Select up to six to compare their curves."),
    watch.table, watch.charts, watch.detail, starting(overview, () => watch.refresh()));
  const intact = overview.runs.filter((r) => r.state !== "damaged");
  const first = intact.find((r) => r.state === "training") ?? intact.at(-1); // selected together with runs of the same environment
  for (const run of intact.filter((r) => r.env === first.env).slice(-4)) watch.chosen.set(run.name, { rows: [], offset: 0 });
  await watch.refresh(overview);
  const timer = setInterval(() => watch.refresh().catch((error) => say(error.message, true)), EVERY);
  return () => clearInterval(timer);
}

class Watch {
  constructor() {
    this.chosen = new Map(); // name → { rows, offset, … }
    this.table = h("section", { className: "panel", ariaLabel: "Runs" });
    this.charts = h("section", { ariaLabel: "Curves" });
    this.detail = h("section", { className: "panel", hidden: true, ariaLabel: "One run" });
  }

  async refresh(overview) {
    if (this.busy) return;
    this.busy = true;
    try {
      const now = overview ?? (await ask("overview"));
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
      news ||= !kept.title || found.rows.length > 0 || found.again;
      const rows = found.again ? found.rows : [...kept.rows, ...found.rows];
      this.chosen.set(name, { ...found, rows });
    }
    if (news || this.chosen.size !== this.drawn) this.draw();
    this.drawn = this.chosen.size;
    if (this.open && this.chosen.has(this.open)) this.about(this.open, this.chosen.get(this.open));
  }

  list(now) {
    const focus = document.activeElement?.id;
    const rows = now.runs.map((run) => this.row(run));
    fill(this.table,
      h("h2", {}, count(now.runs.length, "run")),
      now.starting.map((job) => h("details", { open: !job.alive }, h("summary", { className: job.alive ? "" : "bad" }, `${job.name}: ${job.alive ? "starting …" : "failed to start"}`), h("pre", {}, job.log))),
      rows.length
        ? h("div", { className: "scroll" }, h("table", {},
          h("thead", {}, h("tr", {}, h("th", { className: "text", scope: "col" }, "Run"), h("th", { className: "text", scope: "col" }, "State"),
            ["Algorithm", "Environment", "Seed", "Steps", "Return", "Violations"].map((t) => h("th", { scope: "col" }, t)), h("th", {}, ""))),
          h("tbody", {}, rows)))
        : h("p", { className: "quiet" }, "There are no runs yet. Start one below, or with scopil train."));
    if (focus) document.getElementById(focus)?.focus();
  }

  row(run) {
    const box = h("input", { type: "checkbox", id: `run ${run.name}`, checked: this.chosen.has(run.name), disabled: run.state === "damaged",
      onchange: showErrors(async () => {
        if (!box.checked) this.chosen.delete(run.name);
        else if (this.chosen.size >= COLOURS) return (box.checked = false), say(`At most ${COLOURS} runs at once.`, true);
        else this.chosen.set(run.name, { rows: [], offset: 0 });
        this.draw();
        await this.refresh();
      }) });
    const place = [...this.chosen.keys()].indexOf(run.name);
    const name = h("label", { className: "choice" }, box, place >= 0 ? h("span", { className: `swatch s${place % COLOURS}` }) : null, run.name);
    const state = h("span", { className: `state ${run.state}` }, run.state);
    if (run.state === "damaged") return h("tr", {}, h("td", { className: "text wrap" }, name), h("td", { className: "text" }, state), h("td", { className: "text wrap bad", colSpan: 7 }, run.problem));
    const act = (request, text) => h("button", { type: "button", className: "small", id: `${request} ${run.name}`, ariaLabel: `${text} ${run.name}`,
      onclick: showErrors(async () => { await ask(request, { name: run.name }); say(`${text}: ${run.name}`); await this.refresh(); }) }, text);
    return h("tr", {}, h("td", { className: "text wrap" }, name), h("td", { className: "text" }, state), h("td", {}, run.title), h("td", {}, run.env), h("td", {}, run.seed),
      h("td", {}, `${run.done.toLocaleString("en")} / ${run.steps.toLocaleString("en")}`), h("td", {}, short(run.reward)),
      h("td", { className: run.violations ? "bad" : "" }, short(run.violations)),
      h("td", {}, run.stoppable ? act("stop", "Stop") : run.state === "stopped" ? act("resume", "Resume") : null, " ",
        h("button", { type: "button", className: "small", id: `about ${run.name}`, ariaLabel: `About ${run.name}`,
          onclick: showErrors(async () => { this.open = run.name; this.about(run.name, await ask("run", { name: run.name })); this.detail.scrollIntoView(); }) }, "About")));
  }

  draw() {
    const runs = [...this.chosen];
    const of = (metric) => runs.map(([name, run], i) => ({ name, colour: i % COLOURS, points: run.rows.filter((row) => typeof row[metric] === "number").map((row) => [row.env_steps, row[metric]]) }));
    const logged = [...new Set(runs.flatMap(([, run]) => run.rows.flatMap((row) => Object.keys(row))))].sort();
    const rules = logged.filter((m) => m.startsWith("eval/violations/"));
    const byRule = rules.length > 1 ? rules.map((rule) => [rule, `Violations per episode: ${rule.slice(16)}`]) : [];
    const titles = new Map(runs.flatMap(([, run]) => run.curves.flatMap((c) => [[c.metric, c.title], ...(c.metric === "eval/violations" ? byRule : [])])));
    this.further ??= "episode/return";
    const pick = h("select", { ariaLabel: "Further metric", onchange: () => { this.further = pick.value; this.draw(); } }, options(logged.filter((m) => m !== "env_steps").map((m) => [m, m]), this.further));
    fill(this.charts, runs.length ? h("div", { className: "charts" },
      [...titles].map(([metric, title]) => chart(title, of(metric), metric.startsWith("eval/violations"))),
      logged.length ? h("div", {}, chart(this.further, of(this.further)), field("Further metric", pick)) : null) : null);
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
      h("div", { className: "fields" }, field("Algorithm", algorithm), field("Environment", env), field("Demonstrations", demos), field("Steps", steps, null, true), field("Seed", seed, null, true), field("Run folder", name)),
      about, h("details", {}, h("summary", {}, "Settings"), settings),
      h("div", { className: "bar" }, h("button", { className: "first" }, "Start"))));
}
