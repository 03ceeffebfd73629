// One bulkhead in full: numbers, charts, where each setting comes from, what happened to it.
import { $, badge, colour, grid, h, put, segments } from './dom.js';
import { count, duration, latency, percent, rate, words } from './format.js';
import { curl, get, pathOf, quote } from './api.js';
import { describeFleet, describeList, describeOverride, FORCED } from './effects.js';
import { chart, stepped } from './charts.js';
import { PERCENTILES } from './history.js';
import { eventItem, TONE } from './panels.js';

export const NEEDS = 'A change needs a token with the role operator.';
const STEPS = { '1m': 1, '5m': 1, '15m': 3, '1h': 12 };
const SHADES = ['bad', 'warn', 'over', 'accent', 'ok', 'fg-3'];

const facts = (b) => [
  ['In flight', `${count(b.in_flight)} of ${count(b.max_concurrent)} calls`],
  ['Waiting', b.max_queue ? `${count(b.waiting)} of ${count(b.max_queue)} calls` : 'none'],
  ['Calls', `${rate(b.rate)}/s`],
  ['Rejected', `${percent(b.share)}${b.reasons[0] ? `, ${words(b.reasons[0][0])}` : ''}`, b.reasons.map(([reason, n]) => `${words(reason)} ${rate(n)}/s`).join(', ')],
  ['Rejected, last minute', b.last_minute ? `${count(b.last_minute.rejected)} of ${count(b.last_minute.calls)} calls` : '–'],
  ['Failed', `${rate(b.failed_rate)}/s`],
  ['Service p50 / p99', `${latency(b.service[0])} / ${latency(b.service[2])}`],
  ['Wait p99', latency(b.wait[2])],
  b.why && ['Adaptive limiter', b.why.split(': ')[0], b.why],
  b.why && ['Because', b.why.split(': ').at(-1), b.why],
  b.holdback && ['Saturation', percent(b.holdback.saturation), `gauges ${percent(b.holdback.gauges)}, headroom for critical calls ${percent(b.holdback.headroom)}`],
  b.holdback && [b.holdback.shadow ? 'Would hold back' : 'Held back', `${percent(b.holdback.share.best_effort)} of best effort, ${percent(b.holdback.share.normal)} of normal`,
    `${b.holdback.held.best_effort} best effort and ${b.holdback.held.normal} normal calls in all`],
  ['Admitted in all', `${count(b.total.admitted)} calls`, b.total.admitted],
];

// Units of each budget, as a bar of what is in use.
const budgetBar = (x) => h('div', h('dt', `Budget ${x.name}`), h('dd', { title: `${x.calls} calls hold units, at most ${x.per_call_max} each; ${x.waiting} wait, ${x.rejected} were rejected` },
  h('meter', { min: 0, max: x.max, high: x.max * 0.8, optimum: 0, value: Math.min(x.in_use, x.max), 'aria-label': `Budget ${x.name}` }), ` ${count(x.in_use)} of ${count(x.max)}${x.waiting ? `, ${x.waiting} waiting` : ''}`));

const line = (label, tint, read, more) => ({ label, colour: tint, read, ...more });
const percentiles = (which) => PERCENTILES.map((p, k) => line(p, ['fg-3', 'accent', 'over'][k], (b) => b[which]?.[k]));

// historyOf(step), fetchHistory(step, name), onAction(action, name), onClose(), writable()
export function makeDetail(root, historyOf, fetchHistory, onAction, onClose, writable) {
  let name = null, pinned, range = '1h', signature, tracked, shared, loadedAt, charts = [], shape, table;
  const tags = h('div.row'), actions = h('div.row'), ranges = h('div.segments', { role: 'group', 'aria-label': 'Time of the charts' }), numbers = h('dl.facts'),
    host = h('div'), settings = h('table'), usual = h('details'), holders = h('section'), members = h('section'), events = h('ul.log', { tabindex: 0, 'aria-label': 'Events of this bulkhead' });

  function open(next, time, wanted = range) {
    const again = name === next;
    [name, pinned, range] = [next, time, wanted];
    if (again) return;
    const command = curl('GET', pathOf('bulkheads', name)), label = `{bulkhead=${JSON.stringify(name)}}`, done = h('span.muted', { role: 'status' });
    const copier = (text, what) => h('button', { onclick: () => navigator.clipboard.writeText(what).then(() => put(done, 'Copied.'),
      () => put(done, 'The browser did not allow it; select the text instead.')) }, text);
    const section = (title, ...parts) => h('section', h('h3', title), ...parts);
    dropCharts();
    put(settings);
    root.replaceChildren(
      h('div.drawer-head', h('div.drawer-title', h('h2', { id: 'detail-title', tabindex: -1 }, name),
        h('button.quiet', { 'aria-label': 'Close the detail', onclick: close }, '✕')), tags, h('div.row', actions, ranges)),
      numbers, holders, members, host, section('Settings in force', settings, usual), section('Events', events),
      section('From a shell', h('pre', { tabindex: 0, 'aria-label': 'Commands' }, `${command}\nbulkhead status ${quote(name)}`),
        h('div.row', copier('Copy as curl', command), copier('Copy PromQL', `bulkhead_in_flight${label} / bulkhead_max_concurrent${label}`), done)));
    root.hidden = false;
    $('detail-title').focus();
    signature = null;
    show();
  }

  function close() {
    if (!name) return;
    name = null;
    dropCharts();
    root.hidden = true;
    onClose();
  }

  async function show(wanted = range) {
    if (!name) return;
    range = wanted;
    segments(ranges, Object.keys(STEPS), range, show);
    const asked = name;
    await fetchHistory(STEPS[range], name);
    if (name === asked && range === wanted) drawCharts();
  }

  async function loadSettings() {
    const asked = name, doc = await get(pathOf('bulkheads', name));
    if (name !== asked) return;
    tracked = doc?.settings.some((s) => s.name === 'track_holders' && s.value === 'true');
    const rows = (list) => grid('Settings in force', ['Setting', 'Value', 'From'], list.map((s) => [s.name, h('span.mono', String(s.value)), h('span.muted', s.source)]));
    const own = doc?.settings.filter((s) => !s.default) ?? [], same = doc?.settings.filter((s) => s.default) ?? [];
    put(settings, doc ? rows(own) : h('caption.muted', 'The server did not answer.'));
    usual.hidden = !same.length;
    put(usual, h('summary', `${count(same.length)} settings as by default`), h('table', rows(same)));
    holders.hidden = !doc?.holders.length;
    put(holders, h('h3', 'Longest calls in flight'), h('ul.log', (doc?.holders ?? []).slice(0, 10).map((x) =>
      h('li', h('span', latency(x.age)), h('span', x.label || words(x.priority)), h('span.text.mono', x.where)))));
    const { fleet_members: all, fleet } = doc ?? {};
    shared = !!all;
    members.hidden = !all;
    put(members, all && [h('h3', 'Members of the fleet'), h('p.muted', describeList(fleet.list, all.length)), h('table', grid('Members of the fleet', ['Member', 'State', 'Holds', 'Needs', 'Lease'],
      all.map((m) => [m.own ? `${m.name} (this one)` : m.name || '?', m.state, count(m.held), count(m.needed), `${latency(m.lease_age)} old`])))]);
  }

  function update(view, log) {
    const b = view.bulkheads.find((x) => x.name === name), off = !writable();
    if (!name) return;
    if (!b) {
      put(tags, badge('warn', 'no longer there'));
      put(actions);
      return;
    }
    const { fleet } = b;
    put(tags, fleet && badge(fleet.state === 'leased' ? null : 'warn', describeFleet(fleet)),
      b.host_in_flight !== undefined && badge(null, `${count(b.host_in_flight)} in flight on this host`),
      [words(b.criticality), b.type && `type ${b.type}`, b.group && `group ${b.group}`, b.ceiling && `adaptive ${b.floor}–${b.ceiling}`].map((text) => text && badge(null, text)),
      b.breaker && badge(TONE[b.circuit], `breaker ${words(b.circuit)}${b.breaker.since ? ` ${duration(view.time - b.breaker.since)}` : ''}`),
      [b.draining && `draining, ${b.in_flight} left`, b.shadow && 'shadow: rejects nothing', ...b.overrides.map((o) => describeOverride(o, view.time))].map((text) => text && badge('warn', text)));
    put(actions, actionsFor(b).map(([id, label]) => h('button', { disabled: off, title: off && NEEDS, onclick: () => onAction(id, b.name) }, label)));
    put(numbers, facts(b).filter(Boolean).map(([label, text, title]) => h('div', h('dt', label), h('dd', { title }, text))), (b.budgets ?? []).map(budgetBar));
    const mine = log.filter((e) => e.bulkhead === name).slice(0, 50), now = JSON.stringify([b.overrides, b.configured_max_concurrent, b.max_queue]);
    put(events, mine.length ? mine.map(eventItem) : h('li.muted', 'Nothing yet.'));
    // Holders come and go, also while no setting changes.
    if (signature !== now || ((tracked || shared) && view.time - loadedAt > 2)) {
      loadedAt = view.time;
      loadSettings();
    }
    signature = now;
    drawCharts();
  }

  function drawCharts() {
    const step = STEPS[range];
    table = historyOf(step).table(name);
    const reasons = [...new Set(table.flatMap(({ bucket }) => Object.entries(bucket?.reasons ?? {}).filter(([, n]) => n > 0).map(([reason]) => reason)))].sort();
    if (!charts.length || shape !== `${reasons} ${step}`) {
      dropCharts();
      shape = `${reasons} ${step}`;
      charts = [
        { title: 'In flight (calls), most per bucket', height: 132, behind, series: [
          line('in flight', 'accent', (b) => b.in_flight, { fill: '26' }), line('max concurrent', 'fg', (b) => b.max_concurrent, { paths: stepped() }),
          line('configured', 'fg-3', (b) => b.configured, { paths: stepped(), dash: [4, 4], width: 1 })] },
        { title: 'Waiting (calls), most per bucket', series: [line('waiting', 'warn', (b) => b.waiting, { fill: '22' })] },
        { title: 'Waiting time', format: latency, least: 0.001, series: percentiles('wait') },
        { title: 'Service time', format: latency, least: 0.001, series: percentiles('service') },
        { title: 'Rejections by reason (calls per bucket)', bars: true, series: (reasons.length ? reasons : ['none']).map((reason, i) =>
          line(words(reason), SHADES[i % 6], (b) => b.reasons && (b.reasons[reason] ?? 0), { fill: 'ff' })) },
        { title: 'Calls per second', format: rate, series: [line('per second', 'accent', (b) => b.rate),
          line('good', 'ok', (b) => b.rate !== undefined && Math.max(0, b.rate - b.failed_rate - b.rejected / step)), line('failed', 'bad', (b) => b.failed_rate)] },
      ].map((one) => chart(host, { format: count, step, ...one }));
    }
    for (const one of charts) one.set(table);
  }

  // Behind the first chart: when the breaker was open, and the pinned moment.
  function behind({ ctx, bbox, valToPos }) {
    const paint = (tint, from, to) => {
      const [x, end] = [from, to].map((time) => Math.round(valToPos(time, 'x', true)));
      ctx.fillStyle = tint;
      ctx.fillRect(x, bbox.top, Math.max(2, end - x), bbox.height);
    };
    for (const { time, bucket } of table) if (bucket?.open) paint(colour('bad') + '30', time, time + STEPS[range]);
    if (pinned >= table[0]?.time) paint(colour('accent'), pinned, pinned);
  }

  function dropCharts() { // the next update creates them in the current colours
    for (const one of charts) one.destroy();
    charts = [];
    put(host);
  }

  return { open, close, show, update, dropCharts, shown: () => name };
}

// What can be done with a bulkhead now, [action, label]; menu and drawer show the same.
export const actionsFor = (b) => [
  ['resize', 'Resize…'],
  b.breaker && b.circuit !== 'forced_open' && ['open', 'Force breaker open…'],
  b.breaker && b.circuit !== 'forced_closed' && ['closed', 'Force breaker closed…'],
  b.circuit.startsWith('forced') && ['auto', 'Breaker back to automatic…'],
  b.draining ? ['resume', 'Resume…'] : ['drain', 'Drain…'],
  b.overrides.some((o) => o.field === 'fault') && ['endFault', 'End fault…'],
  b.overrides.some((o) => !FORCED.includes(o.field)) && ['revert', 'Revert overrides…'],
].filter(Boolean);
