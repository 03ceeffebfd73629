// The utilisation heatmap: bulkheads x time. A cell is the most that was in flight in its bucket against the limit,
// so a spike of a second is seen in an hour. Canvas, because 200 rows of 300 cells change every second; only the rows
// in sight are drawn. Arrow keys move a cursor, and a table out of sight tells screen readers the same.
import { $, h, setText } from './dom.js';
import { sized } from './charts.js';
import { clock, count, duration, latency, percent, words } from './format.js';

const AXIS = 22, NOW = 62, REORDER_MS = 10_000;

export class Heatmap {
  constructor(root, { onPick, closer }) {
    [this.onPick, this.closer] = [onPick, closer];
    this.canvas = h('canvas', { 'aria-hidden': 'true' });
    this.axis = h('canvas', { class: 'heat-axis', 'aria-hidden': 'true' });
    this.sizer = h('div', {}, this.canvas);
    this.scroll = h('div', { class: 'heat-scroll', tabindex: '0', role: 'application', 'aria-label':
      'Utilisation heatmap. Arrow keys move by bulkhead and time, Enter opens the bulkhead at that time, Escape leaves.' }, this.sizer);
    this.table = h('tbody');
    this.root = h('div', { class: 'heat' }, this.scroll, this.axis);
    root.append(this.root, h('div', { class: 'vh' }, h('table', {},
      h('caption', {}, 'Utilisation in the time shown'),
      h('thead', {}, h('tr', {}, ...['Bulkhead', 'Highest utilisation', 'At', 'Rejected', 'Breaker open'].map((t) =>
        h('th', { scope: 'col' }, t)))), this.table)));
    this.model = null;
    this.cursor = null; // {row, column}
    this.order = [];
    this.orderedAt = -Infinity;
    this.scroll.addEventListener('keydown', (e) => this.key(e));
    this.scroll.addEventListener('blur', () => this.point(null));
    this.canvas.addEventListener('pointermove', (e) => this.point(this.at(e), e));
    this.canvas.addEventListener('pointerleave', () => this.point(null));
    this.canvas.addEventListener('click', (e) => this.pick(this.at(e)));
    this.scroll.addEventListener('scroll', () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(root);
    this.readPalette();
  }

  readPalette() {
    const css = getComputedStyle(document.documentElement);
    const of = (name) => css.getPropertyValue(name).trim();
    const stops = of('--heat').split(',').map((c) => parse(c.trim()));
    this.ramp = Array.from({ length: 33 }, (_, i) => mix(stops, i / 32));
    this.colour = { fg: of('--fg'), fg2: of('--fg-2'), fg3: of('--fg-3'), over: of('--over'), bad: of('--bad'),
                    warn: of('--warn'), line: of('--line'), panel: of('--panel'), accent: of('--accent') };
    this.font = css.getPropertyValue('--sans');
    this.hatch = null;
  }

  // {history, bulkheads, now, shown, pinned}
  update(model) {
    this.model = model;
    const due = performance.now() - this.orderedAt > REORDER_MS;
    if (due || model.bulkheads.length !== this.order.length || model.shown !== this.shown ||
        model.history !== this.history) this.reorder();
    else {
      const byName = new Map(model.bulkheads.map((b) => [b.name, b]));
      this.order = this.order.map((b) => byName.get(b.name)).filter(Boolean);
    }
    this.draw();
    if (this.cursor) this.tell();
  }

  reorder() {
    const { history, bulkheads, now, shown } = this.model;
    [this.shown, this.history, this.orderedAt] = [shown, history, performance.now()];
    const rank = { critical: 0, normal: 1, best_effort: 2 };
    const sums = new Map(bulkheads.map((b) => [b.name, history.summary(b.name, now, shown)]));
    const before = this.cursor && this.order[this.cursor.row]?.name;
    this.order = [...bulkheads].sort((a, b) => (rank[a.criticality] ?? 1) - (rank[b.criticality] ?? 1) ||
      sums.get(b.name).peak - sums.get(a.name).peak || (a.name < b.name ? -1 : 1));
    if (before) this.cursor.row = Math.max(0, this.order.findIndex((b) => b.name === before));
    this.table.replaceChildren(...this.order.map((b) => {
      const s = sums.get(b.name);
      return h('tr', {}, h('th', { scope: 'row' }, b.name), h('td', {}, percent(s.peak)),
        h('td', {}, s.peakColumn < 0 ? 'no data' : clock(history.timeOf(now, shown, s.peakColumn))),
        h('td', {}, count(s.rejected)), h('td', {}, s.open ? duration(s.open) : 'never'));
    }));
  }

  layout() {
    const width = this.root.clientWidth, rows = this.order.length;
    const label = Math.round(Math.max(86, Math.min(210, width * 0.15)));
    const height = rows > 60 ? 15 : rows > 24 ? 18 : 24;
    return { width, label, height, plot: Math.max(40, width - label - NOW), view: Math.min(rows * height, this.maxHeight()) };
  }
  maxHeight() { return Math.min(window.innerHeight * 0.46, 460); }

  draw() {
    const m = this.model;
    if (!m || !this.root.clientWidth) return;
    const l = (this.at_ = this.layout());
    this.sizer.style.height = `${this.order.length * l.height}px`;
    const c = sized(this.canvas, l.width, Math.max(1, l.view));
    const top = this.scroll.scrollTop;
    c.clearRect(0, 0, l.width, l.view);
    const first = Math.floor(top / l.height);
    const last = Math.min(this.order.length, Math.ceil((top + l.view) / l.height));
    for (let r = first; r < last; ++r) this.drawRow(c, l, r, r * l.height - top);
    this.drawRules(c, l, top);
    this.drawAxis(l);
  }

  x(l, i) { return l.label + Math.round((i * l.plot) / this.model.shown); }

  drawRow(c, l, r, y) {
    const { history, now, shown } = this.model, b = this.order[r], k = this.colour;
    const gap = l.height > 16 ? 3 : 2, tall = l.height - gap;
    const here = this.cursor?.row === r;
    c.font = `${b.criticality === 'critical' ? 600 : 400} ${l.height > 16 ? 12 : 11}px ${this.font}`;
    c.textBaseline = 'middle';
    c.textAlign = 'left';
    c.fillStyle = here ? k.accent : b.health === 'bad' ? k.bad : k.fg2;
    c.fillText(fit(c, b.name, l.label - 12), 0, y + tall / 2 + 0.5);
    c.textAlign = 'right';
    c.fillStyle = b.used > 1 ? k.over : b.used >= 0.9 ? k.fg : k.fg3;
    c.fillText(`${count(b.inFlight)}/${count(b.limit)}`, l.width - 2, y + tall / 2 + 0.5);
    let open = -1;
    const hatch = (to) => {
      if (open < 0) return;
      c.fillStyle = (this.hatch ??= stripes(c, k.warn));
      c.fillRect(this.x(l, open), y, this.x(l, to) - this.x(l, open), tall);
      open = -1;
    };
    let before = -1;
    history.each(b.name, now, shown, (i, used, limit, queue, rejected, isOpen) => {
      const x = this.x(l, i), w = this.x(l, i + 1) - x;
      if (open >= 0 && (!isOpen || i !== before + 1)) hatch(before + 1);
      const share = limit > 0 ? used / limit : used > 0 ? 2 : 0;
      c.fillStyle = share > 1 ? k.over : this.ramp[Math.round(share * 32)];
      c.fillRect(x, y, w, tall);
      if (isOpen && open < 0) open = i;
      if (rejected > 0) {
        c.fillStyle = k.bad;
        c.fillRect(x, y + tall - Math.max(3, tall * 0.22), w, Math.max(3, tall * 0.22));
      }
      before = i;
    });
    hatch(before + 1);
    if (here) {
      c.strokeStyle = k.accent;
      c.strokeRect(l.label - 0.5, y - 0.5, l.plot + 1, tall + 1);
    }
  }

  drawRules(c, l, top) {
    const { history, now, shown, pinned } = this.model, k = this.colour;
    const from = history.timeOf(now, shown, 0), span = shown * history.step;
    const xOf = (t) => l.label + ((t - from) / span) * l.plot;
    c.save();
    c.lineWidth = 1;
    for (const change of history.changes) {
      const x = Math.round(xOf(change.time)) + 0.5;
      if (x < l.label || x > l.label + l.plot) continue;
      c.strokeStyle = k.fg;
      c.setLineDash([1, 3]);
      line(c, x, 0, l.view);
      const row = this.order.findIndex((b) => b.name === change.bulkhead);
      if (row >= 0) {
        c.setLineDash([]);
        c.lineWidth = 2;
        line(c, x, row * l.height - top, (row + 1) * l.height - top - 3);
        c.lineWidth = 1;
      }
    }
    c.setLineDash([]);
    if (pinned !== null && pinned >= from) {
      c.strokeStyle = k.accent;
      c.lineWidth = 2;
      line(c, xOf(pinned), 0, l.view);
    }
    if (this.cursor) {
      c.strokeStyle = k.fg;
      c.lineWidth = 1;
      const x = this.x(l, this.cursor.column);
      c.strokeRect(x - 0.5, this.cursor.row * l.height - top - 0.5, this.x(l, this.cursor.column + 1) - x + 1, l.height - 2);
    }
    c.restore();
  }

  drawAxis(l) {
    const { history, now, shown } = this.model;
    const c = sized(this.axis, l.width, AXIS);
    c.clearRect(0, 0, l.width, AXIS);
    c.font = `11px ${this.font}`;
    c.fillStyle = this.colour.fg3;
    c.textBaseline = 'middle';
    const span = shown * history.step, from = history.timeOf(now, shown, 0);
    const every = [5, 10, 15, 30, 60, 120, 300, 600, 900].find((s) => (s / span) * l.plot > 76) ?? 900;
    c.textAlign = 'center';
    for (let t = Math.ceil(from / every) * every; t < from + span; t += every) {
      const x = l.label + ((t - from) / span) * l.plot;
      if (x < l.label + 24 || x > l.label + l.plot - 56) continue;
      c.fillRect(Math.round(x), 0, 1, 4);
      c.fillText(every < 60 ? clock(t) : clock(t).slice(0, 5), x, 13);
    }
    c.textAlign = 'right';
    c.fillText('now', l.label + l.plot, 13);
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect(), l = this.at_;
    if (!l || !this.order.length) return null;
    const row = Math.floor((event.clientY - box.top + this.scroll.scrollTop) / l.height);
    const column = Math.floor(((event.clientX - box.left - l.label) / l.plot) * this.model.shown);
    if (row < 0 || row >= this.order.length) return null;
    return { row, column: Math.min(column, this.model.shown - 1), label: column < 0 };
  }

  point(cursor, event) {
    this.cursor = cursor && !cursor.label ? cursor : null;
    this.mouse = event ? { x: event.clientX, y: event.clientY } : null;
    if (!this.cursor) $('tip').hidden = true;
    this.draw();
    if (this.cursor) this.tell();
  }

  pick(cursor) {
    if (!cursor) return;
    const { history, now, shown } = this.model;
    this.onPick(this.order[cursor.row].name, cursor.label || cursor.column < 0 ? null : history.timeOf(now, shown, cursor.column));
  }

  key(event) {
    if (!this.order.length) return;
    const cursor = this.cursor ?? { row: 0, column: this.model.shown - 1 };
    const step = event.shiftKey ? 10 : 1;
    const moves = { ArrowLeft: [0, -step], ArrowRight: [0, step], ArrowUp: [-step, 0], ArrowDown: [step, 0],
                    Home: [0, -1e9], End: [0, 1e9] };
    if (event.key === 'Enter' && this.cursor) this.pick(this.cursor);
    else if (event.key === 'Escape') { this.point(null); return; }
    else if (!moves[event.key]) return;
    else {
      const [dr, dc] = this.cursor ? moves[event.key] : [0, 0];
      this.mouse = null;
      this.cursor = { row: clamp(cursor.row + dr, this.order.length - 1), column: clamp(cursor.column + dc, this.model.shown - 1) };
      const l = this.layout(), y = this.cursor.row * l.height;
      if (y < this.scroll.scrollTop) this.scroll.scrollTop = y;
      else if (y + l.height > this.scroll.scrollTop + l.view) this.scroll.scrollTop = y + l.height - l.view;
      this.draw();
      this.tell(true);
    }
    event.preventDefault();
  }

  // The tip beside the cursor; spoken when it was moved by key.
  tell(aloud = false) {
    const { history, now, shown } = this.model, b = this.order[this.cursor?.row];
    if (!b) return;
    this.aloud = aloud;
    const time = history.timeOf(now, shown, this.cursor.column);
    const cell = history.cell(b.name, now, shown, this.cursor.column);
    const end = time + history.step;
    const more = this.closer(b.name, history.step, time);
    const changes = history.changes.filter((x) => x.time >= time && x.time < end && (!x.bulkhead || x.bulkhead === b.name));
    const rows = cell === null ? [['no data', '']] : [
      ['in flight, most', `${count(cell.used)} of ${count(cell.limit)}`],
      ['utilisation', percent(cell.limit > 0 ? cell.used / cell.limit : 0)],
      ['queue, longest', count(cell.queue)], ['rejected', count(cell.rejected)],
      ...(more ? [...Object.entries(more.reasons).map(([reason, n]) => [`– ${words(reason)}`, count(n)]),
                  ['wait p99', latency(more.wait[2])], ['service p99', latency(more.service[2])]] : []),
      ...(cell.open ? [['breaker', 'open']] : []), ...changes.map((x) => ['change', x.text])];
    const tip = $('tip');
    tip.replaceChildren(h('strong', {}, b.name),
      h('span', { class: 'muted' }, history.step > 1 ? `${clock(time)} – ${clock(end)}` : clock(time)),
      h('dl', {}, ...rows.flatMap(([k, v]) => [h('dt', {}, k), h('dd', {}, v)])));
    tip.hidden = false;
    const l = this.at_, box = this.canvas.getBoundingClientRect();
    const x = this.mouse?.x ?? box.left + this.x(l, this.cursor.column);
    const y = this.mouse?.y ?? box.top + (this.cursor.row + 1) * l.height - this.scroll.scrollTop;
    const left = x + 18 + tip.offsetWidth > window.innerWidth ? x - 18 - tip.offsetWidth : x + 18;
    const topY = Math.min(y + 12, window.innerHeight - tip.offsetHeight - 8);
    tip.style.transform = `translate(${Math.max(8, left)}px, ${topY}px)`;
    if (aloud) setText($('announcer'), `${b.name}, ${clock(time)}: ${rows.map(([k, v]) => `${k} ${v}`).join(', ')}`);
  }
}

const clamp = (n, max) => Math.max(0, Math.min(max, n));

function line(c, x, from, to) {
  c.beginPath();
  c.moveTo(x, from);
  c.lineTo(x, to);
  c.stroke();
}

function stripes(c, colour) {
  const tile = document.createElement('canvas');
  tile.width = tile.height = 6;
  const t = tile.getContext('2d');
  t.strokeStyle = colour;
  t.lineWidth = 2;
  for (const d of [-6, 0, 6]) { t.beginPath(); t.moveTo(d - 1, 7); t.lineTo(d + 7, -1); t.stroke(); }
  return c.createPattern(tile, 'repeat');
}

function fit(c, text, width) {
  if (c.measureText(text).width <= width) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const mid = (low + high + 1) >> 1;
    if (c.measureText(text.slice(0, mid) + '…').width <= width) low = mid;
    else high = mid - 1;
  }
  return text.slice(0, low) + '…';
}

const parse = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
function mix(stops, at) {
  const place = at * (stops.length - 1), i = Math.min(stops.length - 2, Math.floor(place)), f = place - i;
  return `rgb(${stops[i].map((v, k) => Math.round(v + (stops[i + 1][k] - v) * f)).join(' ')})`;
}
