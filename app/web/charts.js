// The time series of one bulkhead: lines, steps, areas and stacked bars on canvas, one cursor over all charts, and the
// values under it in the head. Own code, because a charting library is half of what the whole page may weigh.
import { h, setText } from './dom.js';
import { clock } from './format.js';

const LEFT = 54, RIGHT = 6, TOP = 8, BOTTOM = 20;

export const palette = () => {
  const css = getComputedStyle(document.documentElement);
  const of = (name) => css.getPropertyValue(`--${name}`).trim();
  return { fg: of('fg'), fg2: of('fg-2'), fg3: of('fg-3'), line: of('line-soft'), accent: of('accent'), ok: of('ok'), warn: of('warn'),
           bad: of('bad'), over: of('over') };
};

// A round number at or above n: 1, 2, 2.5 or 5 times a power of ten.
export function niceTop(n) {
  const power = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 2.5, 5, 10].map((m) => m * power).find((x) => x >= n * 0.9999);
}

// series: [{label, colour, width, dash, fill, stepped, bars}]. `step`: seconds of a bucket. `shade(c, x, top, height)` paints
// behind the lines. Charts made with the same `link` share the cursor.
export class Chart {
  constructor(parent, { title, series, format, link, step, height = 112, min = 1, shade = null }) {
    Object.assign(this, { series, format, link, step, height, min, shade, times: [], columns: [], shown: [] });
    this.values = series.map(() => h('b', {}, '–'));
    const legend = series.map((s, i) => {
      const swatch = h('i');
      swatch.style.background = s.colour;
      return h('span', {}, swatch, s.label, this.values[i]);
    });
    this.when = h('span', { class: 'muted' });
    this.canvas = h('canvas', { 'aria-hidden': 'true' });
    this.root = h('div', { class: 'chart' },
      h('div', { class: 'chart-head' }, h('h3', {}, title, ' ', this.when), h('div', { class: 'legend' }, ...legend)), this.canvas);
    parent.append(this.root);
    this.canvas.addEventListener('pointermove', (e) => this.moveTo(this.indexAt(e)));
    this.canvas.addEventListener('pointerleave', () => this.moveTo(null));
    this.colours = palette();
    link.charts.push(this);
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.canvas);
  }

  // `shown` are the values of the head, where the drawn ones are stacked.
  set(times, columns, shown = columns) {
    Object.assign(this, { times, columns, shown });
    this.draw();
    this.tell();
  }

  get from() { return Math.min(this.times[0] ?? 0, this.to - 60); } // a minute at least, or three points fill the picture
  get to() { return (this.times.at(-1) ?? 60) + this.step; }
  x(time) { return LEFT + ((time - this.from) / (this.to - this.from)) * (this.canvas.clientWidth - LEFT - RIGHT); }

  draw() {
    const width = this.canvas.clientWidth, dpr = window.devicePixelRatio || 1, plot = this.height - TOP - BOTTOM;
    if (!width) return;
    const c = sized(this.canvas, width, this.height, dpr), p = this.colours;
    c.clearRect(0, 0, width, this.height);
    const most = Math.max(this.min, ...this.columns.map((col) => col.reduce((a, v) => (v > a ? v : a), 0)));
    const top = niceTop(most), y = (v) => TOP + plot * (1 - v / top);
    c.font = '11px system-ui, sans-serif';
    c.textBaseline = 'middle';
    c.textAlign = 'right';
    for (const part of [0, 0.5, 1]) {
      c.fillStyle = p.line;
      c.fillRect(LEFT, Math.round(y(part * top)), width - LEFT - RIGHT, 1);
      c.fillStyle = p.fg3;
      if (part !== 0.5 || top >= 2 || this.min < 1) c.fillText(this.format(part * top), LEFT - 8, y(part * top));
    }
    this.drawTimes(c, width);
    this.shade?.(c, (t) => this.x(t), TOP, plot);
    this.series.forEach((s, k) => (s.bars ? this.drawBars : this.drawLine).call(this, c, s, this.columns[k] ?? [], y));
    if (this.link.index !== null && this.times[this.link.index] !== undefined) {
      c.fillStyle = p.fg3;
      c.fillRect(Math.round(this.x(this.times[this.link.index])), TOP, 1, plot);
    }
  }

  drawTimes(c, width) {
    const span = this.to - this.from;
    const every = [10, 15, 30, 60, 120, 300, 600, 900, 1800].find((s) => (s / span) * (width - LEFT) > 72) ?? 3600;
    c.textAlign = 'center';
    c.fillStyle = this.colours.fg3;
    for (let t = Math.ceil(this.from / every) * every; t < this.to; t += every) {
      const x = this.x(t);
      if (x > LEFT + 16 && x < width - 24) c.fillText(every < 60 ? clock(t) : clock(t).slice(0, 5), x, this.height - 8);
    }
  }

  drawLine(c, s, column, y) {
    c.beginPath();
    let start = null, last = null;
    const close = () => {
      if (start === null || !s.fill) return;
      area.push([start, last]);
    };
    const area = [];
    column.forEach((v, i) => {
      if (v === null) { close(); start = null; return; }
      const x = this.x(this.times[i]);
      if (start === null) { c.moveTo(x, y(v)); start = i; }
      else {
        if (s.stepped) c.lineTo(x, y(column[i - 1]));
        c.lineTo(x, y(v));
      }
      if (s.stepped || start === i) c.lineTo(this.x(this.times[i] + (s.stepped ? this.step : 0)), y(v));
      last = i;
    });
    close();
    c.strokeStyle = s.colour;
    c.lineWidth = s.width ?? 1.5;
    c.lineJoin = 'round';
    c.setLineDash(s.dash ?? []);
    c.stroke();
    c.setLineDash([]);
    if (!s.fill) return;
    c.fillStyle = s.fill;
    for (const [from, to] of area) {
      c.beginPath();
      c.moveTo(this.x(this.times[from]), y(0));
      for (let i = from; i <= to; ++i) c.lineTo(this.x(this.times[i]), y(column[i]));
      c.lineTo(this.x(this.times[to]), y(0));
      c.fill();
    }
  }

  drawBars(c, s, column, y) {
    c.fillStyle = s.colour;
    const width = Math.max(1, (this.x(this.from + this.step) - this.x(this.from)) * 0.85);
    column.forEach((v, i) => { if (v) c.fillRect(this.x(this.times[i]), y(v), width, y(0) - y(v)); });
  }

  indexAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const time = this.from + ((event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)) * (this.to - this.from);
    const i = Math.floor((time - (this.times[0] ?? 0)) / this.step);
    return i >= 0 && i < this.times.length ? i : null;
  }

  moveTo(index) {
    if (this.link.index === index) return;
    this.link.index = index;
    for (const chart of this.link.charts) {
      chart.draw();
      chart.tell();
    }
  }

  tell() {
    const at = this.link.index;
    setText(this.when, at === null || this.times[at] === undefined ? '' : clock(this.times[at]));
    this.values.forEach((value, i) => {
      const column = this.shown[i] ?? [];
      setText(value, this.format(at === null ? lastKnown(column) : (column[at] ?? null)));
    });
  }

  destroy() {
    this.observer.disconnect();
    this.link.charts = this.link.charts.filter((c) => c !== this);
  }
}

// A canvas that is sharp on every screen.
export function sized(canvas, width, height, dpr = window.devicePixelRatio || 1) {
  const w = Math.round(width * dpr), t = Math.round(height * dpr);
  if (canvas.width !== w || canvas.height !== t) {
    canvas.width = w;
    canvas.height = t;
    canvas.style.height = `${height}px`;
  }
  const c = canvas.getContext('2d');
  c.setTransform(dpr, 0, 0, dpr, 0, 0);
  return c;
}

function lastKnown(column) {
  for (let i = column.length - 1; i >= 0; --i) if (column[i] !== null) return column[i];
  return null;
}

// Sums from the last column up, for bars painted from the tallest down.
export function stack(columns) {
  const stacked = columns.map((c) => [...c]);
  for (let k = columns.length - 2; k >= 0; --k) {
    for (let i = 0; i < stacked[k].length; ++i) stacked[k][i] = add(stacked[k][i], stacked[k + 1][i]);
  }
  return stacked;
}
const add = (a, b) => (a === null && b === null ? null : (a ?? 0) + (b ?? 0));
