// Recording: the environment, the recorder and the meaning of keys are on the server.
import { ask, count, faulty, field, fill, h, key, options, say, short, showErrors } from "./dom.js";
import { Tray, picture } from "./tray.js";

const MAZES = [
  ["scopil/MarbleMaze-Simple-v0", "Marble Maze, simple"],
  ["scopil/MarbleMaze-Multiple-v0", "Marble Maze, multiple constraints"],
  ["scopil/MarbleMaze-TwoModes-v0", "Marble Maze, two modes"],
];
const OTHER = "other";
const KNOWN_KEYS = { "CartPole-v1": "left=0,right=1", "MountainCar-v0": "left=0,down=1,right=2", "Acrobot-v1": "left=0,down=1,right=2",
  "LunarLander-v3": "down=0,left=3,up=2,right=1", "FrozenLake-v1": "left=0,down=1,right=2,up=3", "CliffWalking-v1": "up=0,right=1,down=2,left=3" };
// key names of pygame, as in `scopil play`
const NAMES = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right", " ": "space", Enter: "return", Backspace: "backspace",
  Tab: "tab", Escape: "escape" };
const CONTROLS = [["u", "Undo", "U"], ["r", "Same start", "R"], ["return", "Keep", "Enter"], ["backspace", "Discard", "⌫"]];
const MAZE_PAD = [["q", "↖"], ["w", "↑"], ["e", "↗"], ["a", "←"], ["s", "·"], ["d", "→"], ["z", "↙"], ["x", "↓"], ["c", "↘"]];

const keyName = (event) => (event.location === 3 && /^\d$/.test(event.key) ? `[${event.key}]` : (NAMES[event.key] ?? event.key.toLowerCase()));

export async function open(main, overview) {
  const stage = h("section", { className: "panel", hidden: true, ariaLabel: "Play" });
  const list = h("section", { className: "panel", ariaLabel: "Episodes" });
  const episodes = new Episodes(list);
  const player = new Player(stage, episodes);
  const lead = h("p", { className: "lead" }, "Demonstrate the task by playing it. Each episode is saved when you keep it; closing the page loses at most the current episode.");
  const begin = (wanted, run, begun) => player.begin(wanted, run, () => { begun(); lead.hidden = true; }); // makes space for the stage
  const setup = form(overview, begin, (file) => episodes.show(file));
  fill(main,
    h("h1", {}, "Record"),
    lead,
    h("div", { className: "two" }, h("div", {}, setup, stage), h("div", {}, list, faulty(overview.sets))));
  return () => player.end();
}

// A file for an environment: an existing one with its episodes, else a new name.
function fileFor(env, sets, policy) {
  const known = sets.find((set) => set.env === env && !set.problem);
  if (known && !policy) return known.name;
  const name = policy ? `${policy.replace(/\.safetensors$/, "").replace(/[^a-zA-Z0-9]+/g, "-")}-corrected` : env.replace(/\(.*/s, "").split(/[/:]/).at(-1).replace(/-v\d+$/, "").replace(/[^a-zA-Z0-9]+/g, "-").toLowerCase() || "mine";
  const taken = new Set(sets.map((set) => set.name));
  let file = `demos/${name}.npz`;
  for (let i = 2; taken.has(file); i++) file = `demos/${name}-${i}.npz`;
  return file;
}

function form(overview, begin, fileChanged) {
  const policies = [...overview.runs.filter((r) => r.playable), ...overview.policies].filter((p) => p.env && p.allowed);
  const wanted = new URLSearchParams(location.hash.split("?")[1]).get("policy");
  const player = h("select", { name: "player" }, options([["", "you"], ...policies.map((p) => [p.name, `${p.name} (${p.title}); you correct it`])], wanted ?? ""));
  const corrected = () => policies.find((p) => p.name === player.value);
  const own = overview.own_envs.filter((env) => !MAZES.some(([id]) => id === env));
  const maze = h("select", { name: "maze" }, options([...own.map((env) => [env, env]), ...MAZES, [OTHER, "another environment"]], own[0] ?? MAZES[0][0]));
  const env = h("input", { type: "text", name: "env", value: "CartPole-v1", autocomplete: "off", spellcheck: false });
  env.setAttribute("list", "envs");
  const chosen = () => corrected()?.env ?? (maze.value === OTHER ? env.value : maze.value);
  const keys = h("input", { type: "text", name: "keys", autocomplete: "off", spellcheck: false });
  const file = h("input", { type: "text", name: "file", value: fileFor(chosen(), overview.sets), autocomplete: "off", spellcheck: false });
  file.setAttribute("list", "files");
  const seed = h("input", { type: "number", name: "seed", value: 0, min: 0, step: 1 });
  const freeze = h("input", { type: "radio", name: "mode", checked: true }), live = h("input", { type: "radio", name: "mode" });
  const mazeField = field("Environment", maze, null, "long");
  const envField = field("Environment's id", env, "any registered environment with rgb_array");
  const keysField = field("Keys", keys, "key=action, also up+left=4");
  let written = false; // the file's name was written by hand and stays
  const update = () => {
    mazeField.hidden = Boolean(player.value);
    envField.hidden = mazeField.hidden || maze.value !== OTHER;
    const tray = MAZES.some(([id]) => id === chosen());
    keysField.querySelector("small").textContent = tray ? "empty: arrows, two for a diagonal" : "key=action, also up+left=4; empty for continuous actions";
    keys.value = tray ? "" : (KNOWN_KEYS[chosen()] ?? "");
    if (written) return;
    file.value = fileFor(chosen(), overview.sets, player.value);
    fileChanged(file.value);
  };
  player.addEventListener("change", update);
  maze.addEventListener("change", update);
  env.addEventListener("change", update);
  file.addEventListener("change", () => {
    written = file.value !== "";
    fileChanged(file.value);
  });
  const summary = h("summary", {}, "What to record");
  const node = h("details", { className: "panel", open: true }, summary, h("form", {
    onsubmit: (event) => {
      event.preventDefault();
      const wanted = { env: chosen(), file: file.value, keys: keys.value, live: live.checked, seed: Number(seed.value), policy: player.value };
      begin(wanted, corrected(), () => {
        node.open = false;
        const what = maze.value === OTHER ? env.value : maze.selectedOptions[0].text;
        summary.textContent = `${player.value ? `Corrections of ${player.value}` : what} → ${wanted.file}`;
      });
    } },
    h("datalist", { id: "envs" }, overview.envs.map((id) => h("option", { value: id }))),
    h("datalist", { id: "files" }, overview.sets.filter((set) => !set.problem).map((set) => h("option", { value: set.name }))),
    h("div", { className: "fields" },
      policies.length ? field("Who plays", player, null, "long") : null, mazeField, envField, keysField,
      field("Into the file", file, "continued if it exists"), field("Seed", seed, null, "short"),
      h("fieldset", {}, h("legend", {}, "Time"),
        h("label", { className: "choice" }, freeze, "Freeze: one step per key"),
        h("label", { className: "choice" }, live, "Live: real time"))),
    h("div", { className: "bar" }, h("button", { className: "first" }, "Begin"))));
  update();
  return node;
}

class Player {
  constructor(stage, episodes) {
    this.stage = stage;
    this.episodes = episodes;
    this.sent = 0;
    this.axes = [0, 0];
    this.poll = this.poll.bind(this);
  }

  begin(wanted, run, onBegun) {
    this.end();
    this.run = run; // that is corrected
    this.onBegun = onBegun;
    say("Starting the environment …");
    const socket = (this.socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/play`, ["scopil", key()]));
    socket.binaryType = "blob";
    socket.onopen = () => socket.send(JSON.stringify({ do: "begin", args: wanted }));
    socket.onmessage = showErrors((event) => this.receive(event.data));
    socket.onclose = () => {
      if (this.socket !== socket) return;
      this.socket = null;
      this.buttons?.forEach((b) => (b.disabled = true));
      if (!this.endReason) say("The connection to the studio has ended. Kept episodes are saved. Press Begin to continue.", true);
    };
    this.endReason = "";
  }

  end() {
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    cancelAnimationFrame(this.polling);
  }

  async receive(data) {
    if (data instanceof Blob) return this.picture(data);
    const message = JSON.parse(data);
    if (message.kind === "begun") this.begun(message);
    else if (message.kind === "state") this.state(message);
    else if (message.kind === "refused") say(message.message, true);
    else if (message.kind === "ended") say((this.endReason = `${message.message} Kept episodes are saved. Press Begin to continue.`), true);
  }

  begun(about) {
    say("");
    this.onBegun();
    this.about = about;
    this.tray = null;
    this.kept = null;
    this.early = [];
    this.view = h("div", { className: about.tray ? `stage ${about.policy ? "low" : ""}` : "stage wide", tabIndex: 0, role: "application",
      ariaLabel: "The environment. It receives keys while it has the focus.",
      onkeydown: (event) => this.key(event, true), onkeyup: (event) => this.key(event, false), onblur: () => this.releaseKeys(),
      onpointermove: (event) => this.point(event), onpointerdown: (event) => this.point(event, true), onpointerup: () => this.press("space", false) });
    this.numbers = Object.fromEntries(["Episode", "Step", "Violations", "Kept"].map((name) => [name, h("dd", {}, "0")]));
    const controls = about.policy ? [...CONTROLS, ["tab", "Give back", "Tab"]] : CONTROLS;
    this.buttons = controls.map(([key, text, shown]) =>
      h("button", { type: "button", onclick: () => { this.tap(key); this.view.focus(); } }, text, " ", h("kbd", {}, shown)));
    this.hint = h("p", { className: "quiet" });
    this.next = h("div", {});
    fill(this.stage,
      h("dl", { className: "hud" }, Object.entries(this.numbers).map(([name, dd]) => h("div", {}, h("dt", {}, name), dd))),
      this.view, this.pad(about), this.hint,
      h("div", { className: "bar" }, this.buttons, h("button", { type: "button", onclick: () => { this.end(); this.stage.hidden = true; say("Stopped."); } }, "Stop")), this.next);
    this.stage.hidden = false;
    if (!about.tray) this.frame();
    if (about.pointer) this.poll();
    this.stage.scrollIntoView({ block: "nearest" });
    this.view.focus({ preventScroll: true });
  }

  frame() {
    this.canvas = h("canvas", { width: 600, height: 400 });
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `Frames of ${this.about.env}`);
    fill(this.view, this.canvas);
  }

  async picture(blob) {
    const image = await picture(blob);
    if (this.about.tray && !this.tray) {
      this.tray = new Tray(this.about.tray, image, "The tray from above");
      fill(this.view, this.tray.canvas);
      this.stage.scrollIntoView({ block: "nearest" });
      for (const state of this.early.splice(0)) this.state(state);
      return;
    }
    const { n, step } = this.last;
    requestAnimationFrame(() => {
      if (this.canvas.width !== image.width) [this.canvas.width, this.canvas.height] = [image.width, image.height];
      this.canvas.getContext("2d").drawImage(image, 0, 0);
      image.close();
      this.drawn(n, step);
    });
  }

  state(state) {
    if (this.about.tray && !this.tray) return this.early.push(state);
    this.last = state;
    const { numbers } = this;
    numbers.Episode.textContent = state.kept + 1;
    numbers.Step.textContent = state.step;
    numbers.Violations.textContent = state.violations ?? "not known";
    numbers.Violations.className = state.violations ? "bad" : "";
    numbers.Kept.textContent = `${count(state.kept, "episode")}, ${count(state.kept_steps, "step")}${[state.violations, state.kept_violations].includes(null) ? "" : `, ${count(state.kept_violations, "violation")}`}`;
    const [undo, restart, keep, discard, giveBack] = this.buttons, correcting = Boolean(this.about.policy);
    undo.disabled = this.about.live || state.step === 0 || (correcting && !state.person);
    restart.disabled = state.step === 0;
    keep.disabled = correcting ? !state.corrected : !state.over;
    discard.disabled = !correcting && !state.over;
    keep.className = state.over && !keep.disabled ? "first" : "";
    if (correcting) giveBack.disabled = !state.person || state.over;
    this.hint.textContent = this.text(state);
    if (state.message) say(state.message, true);
    if (this.tray) {
      if (state.step === 0) this.tray.forget();
      this.tray.label = `The tray: ball at ${state.position.map(Math.round).join(", ")} px${state.broken ? ", out of bounds" : ""}, step ${state.step}`;
      this.tray.put(state.step, { at: state.position, tilt: state.tilt, broken: state.broken }, this.about.live ? this.about.period : 0.07);
      this.tray.draw(() => this.drawn(state.n, state.step));
    }
    if (this.kept !== null && state.kept !== this.kept) {
      say(`Kept: ${count(state.kept, "episode")} in ${this.about.file}.`);
      this.episodes.show(this.about.file);
      if (this.about.policy) this.learnOn();
    }
    this.kept = state.kept;
  }

  // What the corrected run does with the corrections.
  learnOn() {
    const { run } = this, file = this.about.file;
    if (!run.learns_from_demos) return fill(this.next, h("p", { className: "quiet" }, "This policy has not learned from demonstrations. Start a run with this file on the page ", h("a", { href: "#/watch" }, "Watch"), "."));
    const steps = h("input", { type: "number", min: run.done + 1, value: run.done + Math.max(1, Math.round(run.steps / 2)), step: 1 });
    return fill(this.next, h("form", { className: "fields", onsubmit: showErrors(async (event) => {
      event.preventDefault();
      await ask("resume", { name: run.name, demos: file, steps: Number(steps.value) });
      say(`${run.name} learns from ${file}. The page Watch shows it.`);
    }) }, field("Learn from them until step", steps), h("button", {}, "Learn")));
  }

  drawn(n, step) {
    this.view.dataset.n = n; // read by tests and benchmarks: the state that has been drawn
    this.view.dataset.step = step;
  }

  text(state) {
    if (!this.about.policy) return this.play(state);
    const steps = `${count(state.corrected, "step")} corrected.`;
    if (state.over) return `The episode has ended after ${count(state.step, "step")}, ${steps} Keep the corrections, or discard them for another start.`;
    return state.person ? `You play, ${steps} Tab gives back.` : `The policy plays, ${steps} ${this.about.pointer ? "Space, a press or the gamepad's first button takes" : "A key of an action takes"} over.`;
  }

  play(state) {
    if (state.over) return `${state.terminated ? "The episode has ended" : "Out of time"} after ${count(state.step, "step")}: keep it, or discard it for another start.`;
    const waiting = this.about.live && !state.running;
    if (this.about.pointer) return `Point with mouse, finger or stick. ${waiting || !this.about.live ? `Space, a press or the gamepad's first button ${waiting ? "begins" : "plays a step"}.` : ""}`;
    if (waiting) return "Press a key to begin.";
    return this.about.tray ? "Arrow keys tilt the tray, two for a diagonal; Space keeps the tilt." : this.about.keys.map((k) => `${k.keys.join("+")}: action ${k.action}`).join("   ");
  }

  pad(about) {
    if (about.pointer) return null;
    const maze = about.tray && about.keys.some((k) => k.keys.length === 1 && k.keys[0] === "q");
    const shown = maze ? MAZE_PAD : about.keys.filter((k) => k.keys.length === 1).slice(0, 24).map((k) => [k.keys[0], `${k.keys[0]}: ${k.action}`]);
    return h("div", { className: `pad ${maze ? "spare" : "row"}`, role: "group", ariaLabel: "Actions" },
      shown.map(([key, text]) => h("button", { type: "button", ariaLabel: `key ${key}`,
        onpointerdown: (event) => { event.preventDefault(); this.press(key, true); },
        onpointerup: () => this.press(key, false), onpointerleave: () => this.press(key, false),
        onclick: (event) => event.detail === 0 && this.tap(key) }, text)));
  }

  send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ ...message, n: ++this.sent }));
  }

  press(key, down) {
    this.down ??= new Set();
    if (this.down.has(key) === down) return;
    down ? this.down.add(key) : this.down.delete(key);
    this.send({ key, down });
  }

  tap(key) {
    this.press(key, true);
    this.press(key, false);
  }

  releaseKeys() {
    for (const key of this.down ?? []) this.press(key, false);
  }

  key(event, down) {
    const name = keyName(event);
    if (event.ctrlKey || event.metaKey || event.altKey || (name === "tab" && !this.about.policy) || name.length > 20) return;
    if (name === "escape") return this.stage.querySelector("button").focus();
    event.preventDefault();
    if (!event.repeat) this.press(name, down);
  }

  point(event, pressed = false) {
    if (!this.about.pointer) return;
    const box = this.view.getBoundingClientRect();
    this.show([((event.clientX - box.left) / box.width) * 2 - 1, 1 - ((event.clientY - box.top) / box.height) * 2]);
    if (pressed) this.press("space", true);
  }

  show(axes) {
    if (Math.abs(axes[0] - this.axes[0]) + Math.abs(axes[1] - this.axes[1]) < 0.004) return;
    this.axes = axes;
    this.send({ axes: axes.map((a) => Math.max(-1, Math.min(1, a))) });
  }

  // Gamepads send no events: their sticks are read with every frame.
  poll() {
    const pad = navigator.getGamepads?.().find((p) => p);
    const tilted = pad?.axes.length >= 2 && Math.hypot(pad.axes[0], pad.axes[1]) > 0.06;
    if (tilted) this.show([pad.axes[0], -pad.axes[1]]);
    else if (this.tilted) this.show([0, 0]); // the stick was released
    this.tilted = tilted;
    if (pad?.buttons[0] && pad.buttons[0].pressed !== this.padPressed) this.press("space", (this.padPressed = pad.buttons[0].pressed));
    if (this.socket) this.polling = requestAnimationFrame(this.poll);
  }
}

class Episodes {
  constructor(node) {
    this.node = node;
  }

  async show(file) {
    this.file = file;
    let found = { episodes: [] };
    try {
      found = await ask("episodes", { name: file });
    } catch (error) {
      found.problem = error.message;
    }
    if (this.file === file) this.list(found);
  }

  list(found) {
    this.view = h("div", {});
    const total = found.episodes.reduce((sum, e) => sum + e.steps, 0);
    fill(this.node,
      h("h2", {}, `Episodes in ${this.file}`),
      found.episodes.length
        ? h("p", { className: "quiet" }, `${count(found.episodes.length, "episode")}, ${count(total, "step")}, ${found.env}`)
        : h("p", { className: found.problem ? "bad" : "quiet" }, found.problem ?? "This file has no episodes yet."),
      found.episodes.length ? h("div", { className: "scroll" }, h("table", {},
        h("thead", {}, h("tr", {}, ["#", "Steps", "Reward", "Violations", "End"].map((t) => h("th", { scope: "col" }, t)), h("th", {}, ""))),
        h("tbody", {}, found.episodes.map((e, i) => this.row(e, i))))) : null,
      this.view);
  }

  row(e, i) {
    return h("tr", {}, h("td", {}, i + 1), h("td", {}, e.steps), h("td", {}, short(e.reward)),
      h("td", { className: e.violations ? "bad" : "" }, e.violations ?? "–"), h("td", {}, e.end),
      h("td", {}, h("button", { type: "button", className: "small", onclick: showErrors(() => this.replay(e, i)) }, "Replay"), " ",
        h("button", { type: "button", className: "small", ariaLabel: `Drop episode ${i + 1}`,
          onclick: showErrors(async () => {
            if (!confirm(`Drop episode ${i + 1} from ${this.file}? This cannot be undone.`)) return;
            this.list(await ask("drop", { name: this.file, mark: e.mark }));
            say(`Dropped one episode from ${this.file}.`);
          }) }, "Drop")));
  }

  async replay(e, i) {
    say("Replaying …");
    const [{ shownEpisode }, found] = await Promise.all([import("./replay.js"), ask("replay", { name: this.file, mark: e.mark })]);
    fill(this.view, h("h2", {}, `Episode ${i + 1}`), await shownEpisode(found, (await ask("episodes", { name: this.file })).env));
    say("");
  }
}
