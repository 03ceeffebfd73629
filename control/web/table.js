// One row per bulkhead. Rows keep their place while the pointer or the focus is in the table, so a click cannot hit the wrong one.
import { $, h, put, setAttr, svg, track } from './dom.js';
import { clock, count, dots, duration, latency, percent, plural, rate, words } from './format.js';
import { describeOverride } from './effects.js';
import { of, TONE } from './panels.js';
import { usage } from './wire.js';

const SPARK = 60, NEAR = 10; // seconds; rows beyond the edge of the window. Further rows get no line, so that a frame stays little work

const HEALTH = ['ok', 'warn', 'bad'];
const CRITICALITY = ['best_effort', 'normal', 'critical'];
const BREAKER = ['closed', 'forced_closed', 'half_open', 'open', 'forced_open'];
const rank = (b) => CRITICALITY.indexOf(b.criticality);
const byName = (a, b) => compare(a.name, b.name);
const compare = (x, y) => (x < y ? -1 : x > y ? 1 : 0);

// [key, label, what it is sorted by]
const COLUMNS = [
  ['name', 'Bulkhead', (b) => b.name],
  ['used', 'In flight', (b) => b.used],
  ['waiting', 'Waiting', (b) => b.waiting],
  ['wait', 'Wait p99', (b) => b.wait[2] ?? -1],
  ['service', 'Service p50 / p99', (b) => b.service[2] ?? -1],
  ['rate', 'Calls/s', (b) => b.rate],
  ['rejected', 'Rejected', (b) => b.share],
  ['breaker', 'Breaker', (b) => BREAKER.indexOf(b.circuit)],
  ['override', 'Overrides', (b) => b.overrides.length],
];
const NUMBERS = ['wait', 'service', 'rate', 'rejected'];

// 'health' is how the table opens: what is wrong first, then what matters most, then by name.
export function ordered(bulkheads, { key, up }) {
  const by = COLUMNS.find((c) => c[0] === key)?.[2];
  const wanted = by ? (a, b) => compare(by(a), by(b)) * (up ? 1 : -1)
    : (a, b) => HEALTH.indexOf(b.health) - HEALTH.indexOf(a.health) || rank(b) - rank(a);
  return [...bulkheads].sort((a, b) => wanted(a, b) || byName(a, b));
}

export const matches = (b, { text, unhealthy }) => !(unhealthy && b.health === 'ok') &&
  [b.name, b.type, b.group].join('\n').toLowerCase().includes(text.trim().toLowerCase());

// onOpen(name), onMenu(name, button)
export function makeTable(root, onOpen, onMenu, historyOf) {
  let sort = { key: 'health' }, names = [], model; // model: {bulkheads, order, now, selected}
  const body = h('tbody'), headers = COLUMNS.map(([key, label]) => h('th', { scope: 'col', class: `c-${key}${NUMBERS.includes(key) ? ' num' : ''}` },
    h('button', { onclick: () => sortBy(key) }, label)));
  root.append(h('caption.vh', 'Bulkheads, one row each'), h('thead', h('tr', headers, h('th.c-more', { scope: 'col' }, h('span.vh', 'Actions')))), body);
  $('filter').oninput = $('only-unhealthy').onchange = () => update(model, true);
  $('clear-filter').onclick = showAll;

  function showAll() {
    $('filter').value = '';
    $('only-unhealthy').checked = false;
    update(model, true);
  }

  function sortBy(key, up) {
    sort = { key, up: up ?? (sort.key === key ? !sort.up : key === 'name') };
    update(model, true);
  }

  function update(next, asked = false) { // asked: by the user, so rows may move
    if (!next) return;
    model = next;
    COLUMNS.forEach(([key], i) => setAttr(headers[i], 'aria-sort', sort.key === key && (sort.up ? 'ascending' : 'descending')));
    const all = model.bulkheads, filter = { text: $('filter').value, unhealthy: $('only-unhealthy').checked };
    const found = all.filter((b) => matches(b, filter)), { order } = model;
    const shown = sort.key === 'health' ? found.sort((a, b) => order.get(a.name) - order.get(b.name)) : ordered(found, sort), place = new Map(names.map((name, i) => [name, i]));
    if (!asked && (body.matches(':hover') || body.contains(document.activeElement))) {
      shown.sort((a, b) => (place.get(a.name) ?? 1e9) - (place.get(b.name) ?? 1e9));
    }
    names = shown.map((b) => b.name);
    const [first, last] = inSight();
    put(body, shown.map((b, i) => row(b, first <= i && i <= last)));
    put($('table-count'), `${shown.length < all.length ? `${shown.length} of ` : ''}${plural(all.length, 'bulkhead')}`);
    $('no-match').hidden = shown.length > 0 || !all.length;
  }

  // The places of the first and the last row that can be seen, nearly: rows differ a little in height.
  function inSight() {
    const { top, height } = body.getBoundingClientRect(), each = height / Math.max(1, body.rows.length) || 40;
    return [Math.floor(-top / each) - NEAR, Math.ceil((innerHeight - top) / each) + NEAR];
  }
  let drawing = false;
  addEventListener('scroll', () => {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => { drawing = false; update(model); });
  }, { passive: true });

  function row(b, sparks) {
    const { now, selected } = model, size = Math.max(b.max_concurrent, b.in_flight), since = b.breaker?.since, changes = b.overrides.filter((o) => o.field !== 'drain');
    const open = b.circuit === 'open' && b.breaker.next_probe;
    return h('tr', { 'data-name': b.name, 'data-health': b.health, 'data-selected': selected === b.name },
      h('td', h('div.name', h('button', { title: b.name, onclick: () => onOpen(b.name) }, b.name),
        h('small', dots(b.criticality === 'critical' ? '▲ critical' : b.criticality !== 'normal' && words(b.criticality), b.type, b.group, b.nested && 'nested', b.shadow && 'shadow', !b.enabled && 'off')),
        h('small.narrow', dots(`${rate(b.rate)}/s`, `p99 ${latency(b.service[2])}`, b.max_queue > 0 && `${count(b.waiting)} waiting`)))),
      h('td.c-used', h('div.meter', track(b.used > 1 ? 'over' : b.used === 1 ? 'bad' : b.used >= 0.9 && 'warn', ['b', b.in_flight / size], ['a', (b.in_flight - b.borrowed) / size]),
        h('span', { class: b.idle && 'sub', title: b.borrowed ? `${b.borrowed} of them borrowed from its group` : `most since the last frame: ${b.peak}` },
          b.idle && b.max_concurrent ? `idle, 0/${count(b.max_concurrent)}` : of(b, b.max_concurrent),
          b.peak > b.in_flight && h('small.peak', { title: 'most in the last second' }, ` max ${count(b.peak)}`))), sparks && spark(b.name)),
      h('td.c-waiting', h('div.meter.small', b.max_queue > 0 && track(b.waiting >= b.max_queue && 'bad', ['a', b.waiting / b.max_queue]),
        h('span', { class: !b.waiting && 'sub' }, b.max_queue ? `${count(b.waiting)}/${count(b.max_queue)}` : 'none'))),
      h('td.num.c-wait', latency(b.wait[2])), h('td.num.c-service', `${latency(b.service[0])} / ${latency(b.service[2])}`), h('td.num.c-rate', rate(b.rate)),
      h('td.num.c-rejected', h('span', { class: !b.share && 'sub', 'data-tone': b.share > 0 && (b.health === 'bad' ? 'bad' : 'warn') }, percent(b.share)),
        h('span.reason', { title: b.reasons.map(([reason, n]) => `${words(reason)} ${rate(n)}/s`).join(', ') }, words(b.reasons[0]?.[0])),
        // For how long, and whether it is over: what the rate of the last seconds does not say.
        b.health !== 'ok' && (b.since || b.last_minute?.rejected > 0) && h('span.reason.minute', dots(b.since && `since ${clock(b.since)}`,
          b.last_minute && `${percent(b.last_minute.calls ? Math.min(1, b.last_minute.rejected / b.last_minute.calls) : 0)} in ${duration(b.last_minute.seconds)}`))),
      h('td.c-breaker', b.breaker ? h('span.pill', { 'data-tone': b.enabled && TONE[b.circuit], title: since && `${words(b.circuit)} for ${duration(now - since)} (${words(b.breaker.reason)})` }, h('i'),
        h('span', words(b.circuit), open ? `, probe in ${duration(open - now)}` : b.circuit !== 'closed' && since && ` ${duration(now - since)}`)) : h('span.sub', '–')),
      h('td.c-override', h('div.chips', [b.draining && `draining: ${b.in_flight} left`, ...changes.map((o) => describeOverride(o, now))].map((text) =>
        text && h('span.chip', { 'data-tone': 'warn', title: text }, text)))),
      h('td.num.c-more', h('button.more.quiet', { popovertarget: 'menu', 'aria-haspopup': 'menu', 'aria-label': `Actions for ${b.name}`,
        onclick: (e) => onMenu(b.name, e.currentTarget) }, '⋯')));
  }

  // The last minute of a row: in flight as a line, rejections as red bars.
  function spark(name) {
    const history = historyOf(), used = [];
    let lost = '';
    history.each(name, model.now - 1, SPARK, (i, { mean, in_flight, max_concurrent: most, rejected }) => {
      used.push(`${i},${(15 - 14 * Math.min(1, usage(mean ?? in_flight, most))).toFixed(1)}`);
      if (rejected > 0) lost += `M${i} 10h1v6h-1z`;
    });
    return svg('svg.row-spark', { viewBox: `0 0 ${SPARK} 16`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      svg('path', { d: lost }), svg('polyline.spark', { points: used.join(' ') }));
  }
  return { update, showAll, sortBy };
}
