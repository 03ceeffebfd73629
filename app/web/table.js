// One row per bulkhead. Rows keep their place while somebody points at or tabs through them: a table that re-sorts
// under the hand makes operators drain the wrong thing.
import { $, h, KeyedList, setAttr, setScale, setText } from './dom.js';
import { count, duration, latency, percent, plural, rate, words } from './format.js';
import { breakerLabel } from './wire.js';
import { describeOverride } from './effects.js';

const HEALTH = { bad: 2, warn: 1, ok: 0 };
const CRITICALITY = { critical: 2, normal: 1, best_effort: 0 };
const BREAKER = { forced_open: 5, open: 4, half_open: 3, forced_closed: 2, closed: 1 };

const COLUMNS = [
  { key: 'name', label: 'Bulkhead', sort: (b) => b.name, up: true },
  { key: 'used', label: 'In flight', sort: (b) => b.used },
  { key: 'queue', label: 'Queue', sort: (b) => b.queue },
  { key: 'wait', label: 'Wait p99', sort: (b) => b.wait?.p99 ?? -1, num: true },
  { key: 'service', label: 'Service p50 / p99', sort: (b) => b.service?.p99 ?? -1, num: true },
  { key: 'rate', label: 'Calls/s', sort: (b) => b.rate, num: true },
  { key: 'rejected', label: 'Rejected', sort: (b) => b.rejectedShare, num: true },
  { key: 'breaker', label: 'Breaker', sort: (b) => BREAKER[breakerLabel(b.breaker)] ?? 0 },
  { key: 'override', label: 'Overrides', sort: (b) => b.overrides.length },
];

export const TONE = { open: 'bad', forced_open: 'bad', half_open: 'warn', forced_closed: 'bad', closed: 'ok',
                      metrics_only: 'warn', disabled: 'warn' };
export const usedTone = (b) => (b.used > 1 ? 'over' : b.used >= 1 ? 'bad' : b.used >= 0.9 ? 'warn' : null);

// 'health' is how the table opens: what is wrong first, then what matters most, then by name.
export function order(bulkheads, { key, up }) {
  const column = COLUMNS.find((c) => c.key === key);
  const byName = (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
  const compare = column
    ? (a, b) => { const x = column.sort(a), y = column.sort(b); return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1); }
    : (a, b) => HEALTH[b.health] - HEALTH[a.health] || (CRITICALITY[b.criticality] ?? 1) - (CRITICALITY[a.criticality] ?? 1);
  return [...bulkheads].sort((a, b) => compare(a, b) || byName(a, b));
}

export function matches(b, { text, unhealthy }) {
  if (unhealthy && b.health === 'ok') return false;
  const wanted = text.trim().toLowerCase();
  return wanted === '' || [b.name, b.type, b.group].some((s) => s.toLowerCase().includes(wanted));
}

export class Table {
  constructor(root, { onOpen, onMenu }) {
    this.handlers = { onOpen, onMenu };
    this.sort = { key: 'health', up: false };
    this.filter = { text: '', unhealthy: false };
    this.names = [];
    this.headers = COLUMNS.map((c) => h('th', { scope: 'col', class: `c-${c.key}${c.num ? ' num' : ''}` },
      h('button', { type: 'button', onclick: () => this.sortBy(c.key) }, c.label)));
    this.body = h('tbody');
    this.rows = new KeyedList(this.body, (b) => this.makeRow(b));
    root.append(h('caption', { class: 'vh' }, 'Bulkheads, one row each'),
      h('thead', {}, h('tr', {}, ...this.headers, h('th', { scope: 'col', class: 'c-more' }, h('span', { class: 'vh' }, 'Actions')))), this.body);
    $('filter').addEventListener('input', (e) => { this.filter.text = e.target.value; this.refresh(); });
    $('only-unhealthy').addEventListener('change', (e) => { this.filter.unhealthy = e.target.checked; this.refresh(); });
    $('clear-filter').addEventListener('click', () => this.showAll());
  }

  showAll() {
    this.filter = { text: '', unhealthy: false };
    $('filter').value = '';
    $('only-unhealthy').checked = false;
    this.refresh();
  }

  sortBy(key, up) {
    const column = COLUMNS.find((c) => c.key === key);
    this.sort = { key, up: up ?? (this.sort.key === key ? !this.sort.up : column.up === true) };
    this.refresh();
  }

  refresh() {
    if (this.model) this.update(this.model, true);
  }

  update(model, asked = false) {
    this.model = model;
    COLUMNS.forEach((c, i) => setAttr(this.headers[i], 'aria-sort',
      this.sort.key === c.key ? (this.sort.up ? 'ascending' : 'descending') : null));
    const shown = model.bulkheads.filter((b) => matches(b, this.filter));
    const held = !asked && (this.body.matches(':hover') || this.body.contains(document.activeElement));
    const sorted = held ? this.asBefore(shown) : order(shown, this.sort);
    this.names = sorted.map((b) => b.name);
    this.rows.update(sorted, (b) => b.name);
    setText($('table-count'), shown.length === model.bulkheads.length ? plural(shown.length, 'bulkhead')
      : `${count(shown.length)} of ${plural(model.bulkheads.length, 'bulkhead')}`);
    $('no-match').hidden = shown.length > 0 || model.bulkheads.length === 0;
  }

  asBefore(shown) {
    const place = new Map(this.names.map((name, i) => [name, i]));
    return [...shown].sort((a, b) => (place.get(a.name) ?? 1e9) - (place.get(b.name) ?? 1e9));
  }

  makeRow(first) {
    const name = h('button', { type: 'button', title: first.name, onclick: () => this.handlers.onOpen(first.name) }, first.name);
    const kind = h('small'), own = h('i', { class: 'a' }), lent = h('i', { class: 'b' });
    const track = h('div', { class: 'track', 'aria-hidden': 'true' }, lent, own), used = h('span');
    const line = h('i', { class: 'a' }), lineTrack = h('div', { class: 'track', 'aria-hidden': 'true' }, line), queue = h('span');
    const wait = h('td', { class: 'num c-wait' }), service = h('td', { class: 'num c-service' });
    const perSecond = h('td', { class: 'num c-rate' });
    const share = h('span'), why = h('span', { class: 'reason' });
    const dot = h('span'), breaker = h('span', { class: 'pill' }, h('i'), dot);
    const noBreaker = h('span', { class: 'sub' }, '–');
    const chips = h('div', { class: 'chips' });
    const more = h('button', { type: 'button', class: 'more quiet', 'aria-haspopup': 'menu', 'aria-label': `Actions for ${first.name}`,
      onclick: () => this.handlers.onMenu(first.name, more) }, '⋯');
    const root = h('tr', {},
      h('td', {}, h('div', { class: 'name' }, name, kind)),
      h('td', { class: 'c-used' }, h('div', { class: 'meter' }, track, used)),
      h('td', { class: 'c-queue' }, h('div', { class: 'meter small' }, lineTrack, queue)),
      wait, service, perSecond, h('td', { class: 'num c-rejected' }, share, why),
      h('td', { class: 'c-breaker' }, breaker, noBreaker), h('td', { class: 'c-override' }, chips), h('td', { class: 'num c-more' }, more));
    root.dataset.name = first.name;

    const update = (b) => {
      const now = this.model.now;
      setAttr(root, 'data-health', b.health);
      setAttr(root, 'data-selected', this.model.selected === b.name ? '' : null);
      setText(kind, [b.criticality === 'critical' ? '▲ critical' : b.criticality === 'best_effort' ? 'best effort' : '', b.type, b.group,
        b.shadow ? 'shadow' : '', b.enabled ? '' : 'off'].filter(Boolean).join(' · '));
      setAttr(track, 'data-tone', usedTone(b));
      const scale = Math.max(b.limit, b.inFlight);
      setScale(own, scale ? (b.inFlight - b.borrowed) / scale : 0);
      setScale(lent, scale ? b.inFlight / scale : 0);
      setText(used, b.idle && b.limit ? `idle, limit ${count(b.limit)}`
        : `${count(b.inFlight)}/${count(b.limit)}${b.borrowed ? ` (+${b.borrowed})` : ''}`);
      setAttr(used, 'class', b.idle ? 'sub' : null);
      setAttr(used, 'title', b.borrowed ? `${b.borrowed} of them borrowed from its group` : `most since the last frame: ${b.peak}`);
      setScale(line, b.queueLimit ? b.queue / b.queueLimit : 0);
      setAttr(lineTrack, 'data-tone', b.queueLimit && b.queue >= b.queueLimit ? 'bad' : null);
      lineTrack.hidden = b.queueLimit === 0;
      setText(queue, b.queueLimit ? `${count(b.queue)}/${count(b.queueLimit)}` : 'none');
      setAttr(queue, 'class', b.queue ? null : 'sub');
      setText(wait, latency(b.wait?.p99 ?? null));
      setText(service, b.service ? `${latency(b.service.p50)} / ${latency(b.service.p99)}` : '–');
      setText(perSecond, rate(b.rate));
      setText(share, percent(b.rejectedShare));
      setAttr(share, 'data-tone', b.rejectedShare === 0 ? null : b.health === 'bad' ? 'bad' : 'warn');
      setAttr(share, 'class', b.rejectedShare === 0 ? 'sub' : null);
      setText(why, b.reasons.length ? words(b.reasons[0].reason) : '');
      setAttr(why, 'title', b.reasons.map((r) => `${words(r.reason)} ${rate(r.rate)}/s`).join(', ') || null);
      const label = breakerLabel(b.breaker);
      breaker.hidden = b.breaker === null;
      noBreaker.hidden = !breaker.hidden;
      if (b.breaker) {
        setAttr(breaker, 'data-tone', TONE[label] ?? null);
        const probe = b.breaker.nextProbe !== null && label === 'open' ? Math.max(0, b.breaker.nextProbe - now) : null;
        setText(dot, words(label) + (label === 'closed' || b.breaker.since === null ? ''
          : probe !== null ? `, probe in ${duration(probe)}` : ` ${duration(now - b.breaker.since)}`));
        setAttr(breaker, 'title', b.breaker.since === null ? null
          : `${words(label)} for ${duration(now - b.breaker.since)} (${words(b.breaker.reason)})`);
      }
      const texts = [...(b.draining ? [`draining: ${b.inFlight} left`] : []),
        ...b.overrides.filter((o) => o.field !== 'drain').map((o) => describeOverride(o, now))];
      while (chips.children.length > texts.length) chips.lastChild.remove();
      texts.forEach((t, i) => {
        const chip = chips.children[i] ?? chips.appendChild(h('span', { class: 'chip', 'data-tone': 'warn' }));
        setText(chip, t);
        setAttr(chip, 'title', t);
      });
    };
    return { root, update };
  }
}
