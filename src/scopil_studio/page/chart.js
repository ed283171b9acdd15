// A line chart as SVG: a few series of [x, y]. Its aria-label gives the last values.
import { h, short } from "./dom.js";

const NS = "http://www.w3.org/2000/svg";
const W = 420, H = 210, LEFT = 46, RIGHT = 18, TOP = 10, BOTTOM = 24;

function s(tag, attributes, ...children) {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function ticks(low, high, wanted = 4) {
  const raw = (high - low || 1) / wanted, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((m) => m * power >= raw) * power, found = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-6; t += step) found.push(+t.toPrecision(12));
  return found;
}

const thousands = (x) => (Math.abs(x) >= 1e6 ? `${+(x / 1e6).toFixed(2)}M` : Math.abs(x) >= 1000 ? `${+(x / 1000).toFixed(1)}k` : String(+x.toPrecision(3)));

// series: [{ name, points: [[x, y], …], colour: 0…5 }]
export function chart(title, series, fromZero = false) {
  const all = series.flatMap((one) => one.points);
  const box = h("figure", { className: "panel" }, h("h2", {}, title));
  if (!all.length) return box.append(h("p", { className: "quiet" }, "No values yet.")), box;
  const xs = all.map((p) => p[0]), ys = all.map((p) => p[1]);
  const x1 = Math.max(...xs, 1), x0 = 0;
  let y0 = Math.min(...ys, ...(fromZero ? [0] : [])), y1 = Math.max(...ys, ...(fromZero ? [0.5] : []));
  if (y0 === y1) [y0, y1] = [y0 - 0.5, y1 + 0.5];
  const pad = (y1 - y0) * 0.06;
  y0 -= fromZero ? 0 : pad;
  y1 += pad;
  const X = (x) => LEFT + ((x - x0) / (x1 - x0)) * (W - LEFT - RIGHT), Y = (y) => TOP + (1 - (y - y0) / (y1 - y0)) * (H - TOP - BOTTOM);
  const svg = s("svg", { viewBox: `0 0 ${W} ${H}`, class: "chart", role: "img" });
  const ends = series.filter((one) => one.points.length).map((one) => `${one.name}: ${short(one.points.at(-1)[1])} at step ${thousands(one.points.at(-1)[0])}`);
  svg.setAttribute("aria-label", `${title}. ${ends.join("; ")}`);
  for (const t of ticks(y0, y1)) {
    svg.append(s("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: Y(t), y2: Y(t) }), s("text", { x: LEFT - 6, y: Y(t) + 4, "text-anchor": "end" }, thousands(t)));
  }
  for (const t of ticks(x0, x1, 5)) svg.append(s("text", { x: X(t), y: H - 6, "text-anchor": "middle" }, thousands(t)));
  for (const one of series) {
    const points = one.points.map(([x, y]) => `${X(x).toFixed(1)},${Y(y).toFixed(1)}`);
    if (points.length === 1) points.push(points[0].replace(/^[^,]+/, (x) => String(+x + 3)));
    svg.append(s("polyline", { class: `k${one.colour}`, points: points.join(" ") }, s("title", {}, one.name)));
  }
  box.append(svg);
  return box;
}
