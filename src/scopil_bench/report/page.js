// Choice of methods, seeds and starts. Without this script the page shows a first choice. It loads nothing.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const all = (where, what) => [...where.querySelectorAll(what)];

function node(tag, text = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
}

// Text beside the pointer, inside `box`.
function tip(box) {
  const made = node("div");
  made.className = "tip";
  made.hidden = true;
  box.append(made);
  return {
    hide: () => { made.hidden = true; },
    show(text, event) {
      const frame = box.getBoundingClientRect(), right = event.clientX > frame.left + frame.width / 2;
      made.textContent = text;
      made.hidden = false;
      // The page's content security policy forbids style attributes.
      made.style.top = `${event.clientY - frame.top + 14}px`;
      made.style.left = right ? "auto" : `${event.clientX - frame.left + 10}px`;
      made.style.right = right ? `${frame.right - event.clientX + 10}px` : "auto";
    },
  };
}

const short = (x) => String(+x.toPrecision(4)).replace("-", "−");

function curves(box) {
  const panels = data.curves[box.dataset.setting] || [];
  const off = new Set();
  for (const tick of all(box, "input[data-method]")) {
    tick.addEventListener("change", () => {
      tick.checked ? off.delete(tick.dataset.method) : off.add(tick.dataset.method);
      for (const line of all(box, "g[data-method]")) line.classList.toggle("off", off.has(line.dataset.method));
    });
  }
  const seeds = box.querySelector("input.seeds");
  seeds.addEventListener("change", () => box.classList.toggle("every", seeds.checked));
  all(box, ".chart").forEach((figure, i) => {
    const svg = figure.querySelector("svg"), cursor = svg.querySelector(".cursor"), says = tip(figure);
    const { left, right, steps } = svg.dataset, panel = panels[i];
    const every = [...new Set(Object.values(panel).flatMap((one) => one.steps))].sort((a, b) => a - b);
    svg.addEventListener("pointermove", (event) => {
      const frame = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / frame.width;
      const at = (((event.clientX - frame.left) * scale - left) / (right - left)) * steps;
      const step = every.reduce((best, s) => (Math.abs(s - at) < Math.abs(best - at) ? s : best), every[0]);
      const lines = [];
      for (const [method, one] of Object.entries(panel)) {
        const value = one.mean[one.steps.indexOf(step)];
        if (!off.has(method) && value != null) lines.push(`${data.titles[method]}: ${short(value)}`);
      }
      cursor.setAttribute("d", `M${+left + (step / steps) * (right - left)} 10V184`);
      says.show(`${step.toLocaleString("en")} steps\n${lines.join("\n")}`, event);
    });
    svg.addEventListener("pointerleave", () => { says.hide(); cursor.removeAttribute("d"); });
  });
}

function choice(label, options, chosen, changed) {
  const box = node("select");
  box.setAttribute("aria-label", label);
  for (const [value, text] of options) box.append(Object.assign(node("option", text), { value, selected: value === chosen }));
  box.addEventListener("change", () => changed(box.value));
  return box;
}

const DEMONSTRATIONS = "";  // not the name of a method

function play(figure, kept) {
  const svg = figure.querySelector("svg"), caption = figure.querySelector("figcaption"), says = tip(figure);
  const one = svg.appendChild(document.createElementNS(SVG, "path"));
  one.setAttribute("class", "one");
  let { method, seed, starts } = figure.dataset, view;
  const controls = node("div");
  controls.className = "controls";
  figure.prepend(controls);

  function draw() {
    const methods = Object.keys(kept.runs).map((m) => [m, data.titles[m] || m]);
    if (kept.demonstrations) methods.push([DEMONSTRATIONS, "Demonstrations"]);
    const shown = [choice("method", methods, method, (m) => { method = m; draw(); })];
    let title = "Demonstrations";
    if (method === DEMONSTRATIONS) view = kept.demonstrations;
    else {
      const seeds = kept.runs[method];
      if (!(seed in seeds)) seed = Object.keys(seeds)[0];
      if (!(starts in seeds[seed])) starts = Object.keys(seeds[seed])[0];
      view = seeds[seed][starts];
      title = `${data.titles[method] || method}, seed ${seed}, ${starts} starts`;
      shown.push(choice("seed", Object.keys(seeds).map((s) => [s, `seed ${s}`]), seed, (s) => { seed = s; draw(); }));
      shown.push(choice("starts", Object.keys(seeds[seed]).map((s) => [s, `${s} starts`]), starts, (s) => { starts = s; draw(); }));
    }
    controls.replaceChildren(...shown);
    const many = view.violations == null ? "" : `; ${short(view.violations)} violations per episode`;
    caption.textContent = `${title}: ${view.episodes} episodes${many}`;
    svg.setAttribute("aria-label", caption.textContent);
    svg.querySelector(".path").setAttribute("d", view.paths);
    svg.querySelector(".broken").setAttribute("d", view.broken.map(([x, y]) => `M${x} ${y}h.01`).join(""));
    one.removeAttribute("d");
  }

  svg.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / frame.width;
    const x = (event.clientX - frame.left) * scale, y = (event.clientY - frame.top) * scale;
    let best = null, least = 12 * 12;
    for (const point of view.broken) {
      const far = (point[0] - x) ** 2 + (point[1] - y) ** 2;
      if (far < least) [best, least] = [point, far];
    }
    if (!best) return void (says.hide(), one.removeAttribute("d"));
    const [, , episode, step, rules] = best;
    one.setAttribute("d", `M${view.paths.split("M")[episode + 1]}`);
    says.show(`Violation${rules ? ` (${rules})` : ""}\nepisode ${episode + 1}, ${step ? `step ${step}` : "at its start"}`, event);
  });
  svg.addEventListener("pointerleave", () => { says.hide(); one.removeAttribute("d"); });
  draw();
}

document.body.classList.add("live");
for (const box of all(document, ".curves")) curves(box);
for (const box of all(document, ".trays")) for (const figure of all(box, ".play")) play(figure, data.trays[box.dataset.setting]);

// The target of a link may be folded.
function reveal() {
  let at = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const target = at;
  for (; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  if (target) target.scrollIntoView({ block: "center" });
}
addEventListener("hashchange", reveal);
reveal();
