// A line chart as SVG. Its aria-label gives the last values.
import { h, short } from "./dom.js";

const NS = "http://www.w3.org/2000/svg";
const W = 420, H = 210, LEFT = 46, RIGHT = 18, TOP = 10, BOTTOM = 24;

function s(tag, attributes, ...children) {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const thousands = (x) => (Math.abs(x) >= 1e6 ? `${+(x / 1e6).toFixed(2)}M` : Math.abs(x) >= 1000 ? `${+(x / 1000).toFixed(1)}k` : String(+x.toPrecision(3)));

function linear(low, high, wanted) {
  const raw = (high - low || 1) / wanted, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((m) => m * power >= raw) * power, ticks = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-6; t += step) ticks.push(+t.toPrecision(12));
  return { to: (x) => x, ticks };
}

// A logarithmic axis that has a place for 0 and for negative values: it is linear below `unit`, the smallest power of ten there.
function logarithmic(values, low, high) {
  const sizes = values.map(Math.abs).filter((v) => v > 0), largest = Math.max(...sizes, 1e-9);
  const unit = 10 ** Math.floor(Math.log10(Math.max(Math.min(...sizes, largest), largest / 1e6)));
  const powers = [], every = Math.ceil(Math.log10(largest / unit) / 4) || 1;
  for (let k = 0; unit * 10 ** k <= largest * 1.0001; k += every) powers.push(unit * 10 ** k);
  const ticks = [...powers.map((p) => -p), 0, ...powers].filter((t) => t >= low && t <= high);
  return { to: (x) => Math.sign(x) * Math.log10(1 + Math.abs(x) / unit), ticks };
}

// The mean of several curves, and the range from the lowest to the highest, at the steps that all of them have reached.
export function meanOf(curves) {
  const first = Math.max(...curves.map((c) => c[0][0])), last = Math.min(...curves.map((c) => c.at(-1)[0]));
  let steps = [...new Set(curves.flatMap((c) => c.map((p) => p[0])))].sort((a, b) => a - b).filter((x) => x >= first && x <= last);
  const every = Math.ceil(steps.length / 300);
  steps = steps.filter((_, i) => i % every === 0 || i === steps.length - 1);
  const at = curves.map(() => 0);
  return steps.map((x) => {
    const values = curves.map((c, i) => {
      while (at[i] < c.length - 2 && c[at[i] + 1][0] <= x) at[i]++;
      const [x0, y0] = c[at[i]], [x1, y1] = c[at[i] + 1] ?? c[at[i]];
      return x1 === x0 ? y0 : y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
    });
    return [x, values.reduce((a, b) => a + b) / values.length, Math.min(...values), Math.max(...values)];
  });
}

// series: [{ name, colour: 0…6, curves: [{ name, points: [[x, y], …] }] }]. Several curves are drawn thin, below their mean and range.
export function chart(title, series, { fromZero = false, logX = false, logY = false } = {}) {
  series = series.map((one) => ({ ...one, curves: one.curves.filter((c) => c.points.length) })).filter((one) => one.curves.length);
  const all = series.flatMap((one) => one.curves.flatMap((c) => c.points));
  const box = h("figure", { className: "panel" }, h("h2", {}, title));
  if (!all.length) return box.append(h("p", { className: "quiet" }, "No values yet.")), box;
  const xs = all.map((p) => p[0]), ys = all.map((p) => p[1]);
  const x1 = Math.max(...xs, 1), x0 = 0;
  let y0 = Math.min(...ys, ...(fromZero ? [0] : [])), y1 = Math.max(...ys, ...(fromZero ? [0.5] : []));
  if (y0 === y1) [y0, y1] = [y0 - 0.5, y1 + 0.5];
  const pad = (y1 - y0) * 0.06;
  y0 -= fromZero ? 0 : pad;
  y1 += pad;
  const ax = logX ? logarithmic(xs, x0, x1) : linear(x0, x1, 5), ay = logY ? logarithmic(ys, y0, y1) : linear(y0, y1, 4);
  const share = (axis, low, high, v) => (axis.to(v) - axis.to(low)) / (axis.to(high) - axis.to(low));
  const X = (x) => (LEFT + share(ax, x0, x1, x) * (W - LEFT - RIGHT)).toFixed(1), Y = (y) => (TOP + (1 - share(ay, y0, y1, y)) * (H - TOP - BOTTOM)).toFixed(1);
  const line = (points) => points.map(([x, y]) => `${X(x)},${Y(y)}`).join(" ");
  const svg = s("svg", { viewBox: `0 0 ${W} ${H}`, class: "chart", role: "img" }), ends = [];
  for (const t of ay.ticks) {
    svg.append(s("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: Y(t), y2: Y(t) }), s("text", { x: LEFT - 6, y: +Y(t) + 4, "text-anchor": "end" }, thousands(t)));
  }
  for (const t of ax.ticks) svg.append(s("text", { x: X(t), y: H - 6, "text-anchor": "middle" }, thousands(t)));
  for (const one of series) {
    let { name, points: shown } = one.curves[0];
    if (one.curves.length > 1) {
      for (const c of one.curves) svg.append(s("polyline", { class: `k${one.colour} thin`, points: line(c.points) }, s("title", {}, c.name)));
      const mean = meanOf(one.curves.map((c) => c.points));
      if (!mean.length) continue; // no step that all have reached
      svg.append(s("polygon", { class: `f${one.colour}`, points: `${line(mean.map((m) => [m[0], m[3]]))} ${line(mean.map((m) => [m[0], m[2]]).reverse())}` }));
      [name, shown] = [one.name, mean];
    }
    const points = shown.length > 1 ? line(shown) : `${line(shown)} ${+X(shown[0][0]) + 3},${Y(shown[0][1])}`;
    svg.append(s("polyline", { class: `k${one.colour}`, points }, s("title", {}, name)));
    ends.push(`${name}: ${short(shown.at(-1)[1])} at step ${thousands(shown.at(-1)[0])}`);
  }
  svg.setAttribute("aria-label", `${title}. ${ends.join("; ")}`);
  box.append(svg);
  return box;
}
