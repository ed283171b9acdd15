// Marble Maze on a canvas. The tray is a picture from the server; path, ball, tilt and maps are drawn here, in the tray's
// px: the origin is its centre and y points up.

const NAVY = "#223462", RED = "#ce2030", WHITE = "#ffffff", DEEP = "#183e74", GLASS = "#5c96cd";

export class Tray {
  constructor(sizes, picture, label) {
    this.sizes = sizes;
    this.picture = picture;
    this.canvas = document.createElement("canvas");
    this.canvas.width = this.canvas.height = 720;
    this.canvas.setAttribute("role", "img");
    this.label = label;
    this.under = null; // a map: (context) => void, in tray coordinates
    this.marker = null; // [x, y] of a chosen start
    this.paths = []; // paths behind the main one
    this.forget();
  }

  set label(text) { this.canvas.setAttribute("aria-label", text); }

  forget() {
    this.trail = []; // { at: [x, y], tilt: [a, b], broken }
    this.from = null;
    this.moving = 0;
  }

  // The state after `step` steps. Undo and chords give a smaller or equal number.
  put(step, state, seconds) {
    this.from = this.trail[step - 1]?.at ?? null;
    this.trail.length = Math.min(this.trail.length, step);
    this.trail[step] = state;
    this.moving = seconds;
    this.since = performance.now() - 12; // so that the next frame shows some motion already
    this.draw();
  }

  // Draws once, and again until the ball has arrived.
  draw(after) {
    if (after) (this.afters ??= []).push(after);
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame((now) => {
      this.queued = false;
      const share = this.from && this.moving ? Math.min(1, (now - this.since) / (1000 * this.moving)) : 1;
      this.paint(share);
      for (const call of this.afters?.splice(0) ?? []) call(now);
      if (share < 1) this.draw();
    });
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect(), { half } = this.sizes;
    return [((event.clientX - box.left) / box.width) * 2 * half - half, half - ((event.clientY - box.top) / box.height) * 2 * half];
  }

  paint(share = 1, until = this.trail.length - 1) {
    const context = this.canvas.getContext("2d"), { half } = this.sizes, scale = this.canvas.width / (2 * half);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.picture, 0, 0, this.canvas.width, this.canvas.height);
    context.setTransform(scale, 0, 0, -scale, this.canvas.width / 2, this.canvas.height / 2);
    this.under?.(context);
    for (const path of this.paths) this.path(context, path, "rgba(34, 52, 98, 0.55)", 1.4);
    const shown = this.trail.slice(0, until + 1);
    if (shown.length) {
      const last = shown[shown.length - 1], from = until === this.trail.length - 1 ? this.from : null;
      const at = from && share < 1 ? from.map((a, i) => a + (last.at[i] - a) * share) : last.at;
      this.path(context, [...shown.slice(0, -1).map((s) => s.at), at], NAVY, 2.2);
      shown.forEach((state, i) => (i === shown.length - 1 && share < 1) || this.dot(context, state, i === 0));
      this.ball(context, at, last);
      this.gauge(context, last.tilt);
    }
    if (this.marker) this.cross(context, this.marker);
  }

  path(context, points, colour, width) {
    context.beginPath();
    points.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.lineJoin = "round";
    context.stroke();
  }

  disc(context, [x, y], radius, colour) {
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.fillStyle = colour;
    context.fill();
  }

  dot(context, state, first) {
    const radius = first || state.broken ? 4.6 : 3;
    this.disc(context, state.at, radius + 0.9, WHITE);
    this.disc(context, state.at, radius, state.broken ? RED : NAVY);
    if (first) this.disc(context, state.at, radius - 2, WHITE);
  }

  ball(context, at, state) {
    const { hole, hole_radius, ball } = this.sizes;
    const fallen = Math.hypot(at[0] - hole[0], at[1] - hole[1]) <= hole_radius;
    const [x, y] = fallen ? hole : at, radius = fallen ? 0.88 * hole_radius : ball;
    if (!fallen) {
      const shadow = context.createRadialGradient(x + 4, y - 6, radius * 0.4, x + 4, y - 6, radius + 5);
      shadow.addColorStop(0, "rgba(30, 26, 26, 0.42)");
      shadow.addColorStop(1, "rgba(30, 26, 26, 0)");
      this.disc(context, [x + 4, y - 6], radius + 5, shadow);
    }
    const glass = context.createRadialGradient(x - radius * 0.4, y + radius * 0.5, radius * 0.1, x, y, radius);
    glass.addColorStop(0, "rgba(255, 255, 255, 0.95)");
    glass.addColorStop(0.18, fallen ? DEEP : "rgba(92, 150, 205, 0.75)");
    glass.addColorStop(0.75, fallen ? "#10294d" : "rgba(63, 118, 180, 0.7)");
    glass.addColorStop(1, fallen ? "#0c1f3a" : DEEP);
    this.disc(context, [x, y], radius, glass);
    this.disc(context, at, state.broken ? 4.2 : 2.6, WHITE);
    this.disc(context, at, state.broken ? 3.1 : 1.5, state.broken ? RED : NAVY);
  }

  gauge(context, tilt) {
    const at = 5 * (this.sizes.half / 5.5), size = 17, to = [(-tilt[1] * 11.5) / 5, (tilt[0] * 11.5) / 5];
    context.fillStyle = "#fcf7ec";
    context.strokeStyle = "#3a281c";
    context.lineWidth = 1.6;
    context.beginPath();
    context.roundRect(at - size, at - size, 2 * size, 2 * size, 4.5);
    context.fill();
    context.stroke();
    this.path(context, [[at, at], [at + to[0], at + to[1]]], DEEP, 2);
    this.disc(context, [at + to[0], at + to[1]], 3.6, DEEP);
  }

  cross(context, [x, y]) {
    for (const [colour, width] of [[WHITE, 6], ["#b3142a", 2.6]]) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.beginPath();
      context.arc(x, y, 9, 0, 2 * Math.PI);
      for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
        context.moveTo(x + 5 * dx, y + 5 * dy);
        context.lineTo(x + 14 * dx, y + 14 * dy);
      }
      context.stroke();
    }
  }
}

export async function picture(blob) {
  return createImageBitmap(blob);
}
