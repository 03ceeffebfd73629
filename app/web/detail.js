// One bulkhead in full: numbers, charts, where each setting comes from, what happened to it.
import { copy, h, setAttr, setText } from './dom.js';
import { count, duration, latency, percent, rate, words } from './format.js';
import { breakerLabel, toSettings } from './wire.js';
import { describeOverride, curl, quote } from './effects.js';
import { Chart, palette, stack } from './charts.js';
import { Series } from './series.js';
import { eventItem } from './panels.js';
import { TONE } from './table.js';
import * as api from './api.js';

const RANGES = [['5m', 1, 300], ['15m', 3, 300], ['1h', 12, 300]];
const FACTS = [
  ['In flight', (b) => `${count(b.inFlight)} of ${count(b.limit)}`],
  ['Queue', (b) => (b.queueLimit ? `${count(b.queue)} of ${count(b.queueLimit)}` : 'none')],
  ['Calls', (b) => `${rate(b.rate)}/s`],
  ['Rejected', (b) => percent(b.rejectedShare)],
  ['Failed', (b) => `${rate(b.failedRate)}/s`],
  ['Service p50 / p99', (b) => (b.service ? `${latency(b.service.p50)} / ${latency(b.service.p99)}` : '–')],
  ['Wait p99', (b) => latency(b.wait?.p99 ?? null)],
  ['Admitted in all', (b) => count(b.total.admitted)],
];

export class Detail {
  constructor(root, { onAction, onClose, writable }) {
    Object.assign(this, { root, onAction, onClose, writable });
    this.name = null;
    this.charts = [];
    this.range = 2;
    root.addEventListener('keydown', (e) => { if (e.key === 'Escape' && !e.defaultPrevented) this.close(); });
  }

  async open(name, pinned = null) {
    const again = this.name === name;
    [this.name, this.pinned] = [name, pinned];
    if (!again) this.build();
    this.root.hidden = false;
    if (!again) {
      this.root.querySelector('h2').focus();
      await Promise.all([this.loadSeries(), this.loadSettings()]);
    } else this.drawCharts();
  }

  close() {
    if (this.name === null) return;
    this.name = null;
    this.dropCharts();
    this.root.hidden = true;
    this.root.replaceChildren();
    this.onClose();
  }

  build() {
    this.dropCharts();
    const tags = (this.tags = h('div', { class: 'row' }));
    const facts = (this.facts = FACTS.map(([label, read]) => ({ read, dd: h('dd') , label })));
    this.actions = h('div', { class: 'row' });
    this.buttons = RANGES.map(([label], i) => h('button', { type: 'button', onclick: () => this.setRange(i) }, label));
    this.chartHost = h('div');
    this.settings = h('tbody');
    this.settingsNote = h('p', { class: 'muted' });
    this.events = h('ul', { class: 'log', tabindex: '0', 'aria-label': 'Events of this bulkhead' });
    const command = curl(api.base, 'GET', api.paths.bulkhead(this.name));
    const done = h('span', { class: 'muted', role: 'status' });
    const promql = `bulkhead_in_flight{bulkhead=${JSON.stringify(this.name)}} / bulkhead_limit{bulkhead=${JSON.stringify(this.name)}}`;
    const copier = (label, text) => h('button', { type: 'button', onclick: async () =>
      setText(done, (await copy(text)) ? 'Copied.' : 'The browser refused; select the text instead.') }, label);
    this.root.replaceChildren(
      h('div', { class: 'drawer-head' },
        h('div', { class: 'drawer-title' }, h('h2', { id: 'detail-title', tabindex: '-1' }, this.name),
          h('button', { type: 'button', class: 'quiet', 'aria-label': 'Close the detail', onclick: () => this.close() }, '✕')),
        tags, h('div', { class: 'row' }, this.actions,
          h('div', { class: 'segments', role: 'group', 'aria-label': 'Time of the charts' }, ...this.buttons))),
      h('dl', { class: 'facts' }, ...facts.map((f) => h('div', {}, h('dt', {}, f.label), f.dd))),
      this.chartHost,
      h('section', {}, h('h3', {}, 'Settings in force'), this.settingsNote,
        h('table', {}, h('thead', {}, h('tr', {}, ...['Setting', 'Value', 'From'].map((t) => h('th', { scope: 'col' }, t)))), this.settings)),
      h('section', {}, h('h3', {}, 'Events'), this.events),
      h('section', {}, h('h3', {}, 'From a shell'), h('pre', { tabindex: '0', 'aria-label': 'Commands' }, `${command}\nbulkhead status ${quote(this.name)}`),
        h('div', { class: 'row' }, copier('Copy as curl', command), copier('Copy PromQL', promql), done)));
    this.markRange();
    this.series = new Series(RANGES[this.range][1], RANGES[this.range][2]);
    this.fresh = true;
  }

  markRange() { this.buttons.forEach((b, i) => b.setAttribute('aria-pressed', String(i === this.range))); }

  setRange(i) {
    this.range = i;
    this.markRange();
    this.series = new Series(RANGES[i][1], RANGES[i][2]);
    this.loadSeries();
  }

  async loadSeries() {
    const [, step, buckets] = RANGES[this.range], name = this.name, series = this.series;
    const doc = await api.get(api.paths.history(step * buckets, step, name));
    if (this.name !== name || this.series !== series) return;
    if (doc) series.load(doc);
    this.drawCharts();
  }

  async loadSettings() {
    const name = this.name;
    const rows = toSettings(await api.get(api.paths.bulkhead(name)));
    if (this.name !== name) return;
    setText(this.settingsNote, rows.length ? '' : 'The server does not tell.');
    this.settings.replaceChildren(...rows.map((s) =>
      h('tr', {}, h('th', { scope: 'row' }, s.name), h('td', { class: 'mono' }, s.value), h('td', { class: 'muted' }, s.source))));
  }

  // A frame that is shown. `remember` gets every frame, shown or not.
  update(view) {
    if (this.name === null) return;
    const b = view.bulkheads.find((x) => x.name === this.name);
    if (!b) {
      this.tags.replaceChildren(h('span', { class: 'badge', 'data-tone': 'warn' }, 'no longer there'));
      this.actions.replaceChildren();
      return;
    }
    const label = breakerLabel(b.breaker);
    this.tags.replaceChildren(...[
      h('span', { class: 'badge' }, words(b.criticality)), b.type ? h('span', { class: 'badge' }, `type ${b.type}`) : null,
      b.group ? h('span', { class: 'badge' }, `group ${b.group}`) : null,
      b.breaker ? h('span', { class: 'badge', 'data-tone': TONE[label] }, `breaker ${words(label)}${
        b.breaker.since === null ? '' : ` ${duration(view.time - b.breaker.since)}`}`) : null,
      b.floor === null ? null : h('span', { class: 'badge' }, `adaptive ${b.floor}–${b.ceiling}`),
      b.draining ? h('span', { class: 'badge', 'data-tone': 'warn' }, `draining, ${b.inFlight} left`) : null,
      b.shadow ? h('span', { class: 'badge', 'data-tone': 'warn' }, 'shadow: rejects nothing') : null,
      ...b.overrides.map((o) => h('span', { class: 'badge', 'data-tone': 'warn' }, describeOverride(o, view.time))),
    ].filter(Boolean));
    if (this.fresh || this.wasWritable !== this.writable() || this.touched !== signature(b)) {
      [this.fresh, this.wasWritable, this.touched] = [false, this.writable(), signature(b)];
      const off = !this.writable();
      this.actions.replaceChildren(...actionsFor(b).map(({ id, label: text }) =>
        h('button', { type: 'button', disabled: off, title: off ? 'Needs the role operator' : null, onclick: () => this.onAction(id, b.name) }, text)));
      if (this.loaded === b.name) this.loadSettings();
      this.loaded = b.name;
    }
    for (const f of this.facts) setText(f.dd, f.read(b));
    setAttr(this.facts.at(-1).dd, 'title', String(b.total.admitted));
    const events = view.log.filter((e) => e.bulkhead === b.name).slice(0, 50);
    const key = events[0]?.id ?? 0;
    if (this.eventsKey !== `${b.name} ${key}`) {
      this.eventsKey = `${b.name} ${key}`;
      this.events.replaceChildren(...(events.length ? events.map(eventItem) : [h('li', {}, h('span', { class: 'muted' }, 'nothing yet'))]));
    }
    this.drawCharts();
  }

  remember(view) {
    if (this.name === null) return;
    const b = view.bulkheads.find((x) => x.name === this.name);
    if (b) this.series.push(b, view.time);
  }

  redraw() { // a new theme
    this.dropCharts();
    this.drawCharts();
  }

  drawCharts() {
    if (this.name === null) return;
    const c = this.series.columns(), names = c.reasonNames.join();
    const shape = `${names} ${this.series.step}`;
    if (!this.charts.length || this.shape !== shape) {
      this.dropCharts();
      this.shape = shape;
      this.makeCharts(c.reasonNames);
    }
    const [flight, queue, wait, service, rejected, calls] = this.charts;
    this.open_ = c;
    flight.set(c.times, [c.used, c.limit, c.configured]);
    queue.set(c.times, [c.queue]);
    wait.set(c.times, c.wait);
    service.set(c.times, c.service);
    rejected.set(c.times, stack(c.reasons), c.reasons);
    calls.set(c.times, [c.rate, c.failed]);
  }

  makeCharts(reasons) {
    const p = palette(), host = this.chartHost;
    const lines = [{ label: 'p50', colour: p.fg3 }, { label: 'p90', colour: p.accent }, { label: 'p99', colour: p.over }];
    const shades = [p.bad, p.warn, p.over, p.accent, p.ok, p.fg3];
    const shade = (c, x, top, height) => this.shade(c, x, top, height, p);
    const link = { index: null, charts: [] }, step = this.series.step;
    const chart = (options) => new Chart(host, { link, step, ...options });
    this.charts = [
      chart({ title: 'In flight, most per bucket', format: whole, height: 132, shade, series: [
        { label: 'in flight', colour: p.accent, fill: `${p.accent}26` }, { label: 'limit', colour: p.fg, stepped: true },
        { label: 'configured', colour: p.fg3, dash: [4, 4], width: 1, stepped: true }] }),
      chart({ title: 'Queue, longest per bucket', format: whole, series: [{ label: 'waiting', colour: p.warn, fill: `${p.warn}22` }] }),
      chart({ title: 'Time in the queue', format: latency, min: 0.001, series: lines }),
      chart({ title: 'Service time', format: latency, min: 0.001, series: lines }),
      chart({ title: 'Rejections by reason', format: whole, series: (reasons.length ? reasons : ['none']).map((reason, i) =>
        ({ label: words(reason), colour: shades[i % shades.length], bars: true })) }),
      chart({ title: 'Calls', format: rate, series: [{ label: 'per second', colour: p.accent }, { label: 'failed', colour: p.bad }] }),
    ];
  }

  // Behind the first chart: when the breaker was open, and the pinned moment.
  shade(c, x, top, height, p) {
    const { times, open } = this.open_;
    c.fillStyle = `${p.bad}30`;
    times.forEach((t, i) => { if (open[i]) c.fillRect(x(t), top, Math.max(1, x(t + this.series.step) - x(t)), height); });
    if (this.pinned !== null && this.pinned >= times[0]) {
      c.fillStyle = p.accent;
      c.fillRect(x(this.pinned) - 1, top, 2, height);
    }
  }

  dropCharts() {
    for (const chart of this.charts) chart.destroy();
    this.charts = [];
    this.chartHost?.replaceChildren();
  }
}

const whole = (n) => (n === null ? '–' : count(Math.round(n)));
const signature = (b) => JSON.stringify([b.name, b.overrides, b.draining, b.breaker?.mode, b.limit, b.queueLimit]);

// What can be done with a bulkhead now; menu and drawer show the same.
export function actionsFor(b) {
  const list = [{ id: 'resize', label: 'Resize…' }];
  if (b.breaker) {
    const forced = b.breaker.mode === 'forced_open' || b.breaker.mode === 'forced_closed';
    if (b.breaker.mode !== 'forced_open') list.push({ id: 'open', label: 'Force breaker open…' });
    if (b.breaker.mode !== 'forced_closed') list.push({ id: 'closed', label: 'Force breaker closed…' });
    if (forced) list.push({ id: 'auto', label: 'Breaker back to automatic…' });
  }
  list.push(b.draining ? { id: 'resume', label: 'Resume…' } : { id: 'drain', label: 'Drain…' });
  if (b.overrides.some((o) => o.field === 'limit' || o.field === 'queue')) list.push({ id: 'revert', label: 'Revert overrides…' });
  return list;
}
