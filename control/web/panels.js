// The panels under the table: groups and their loans, pools, tenants, events and audit.
import { $, badge, colour, grid, h, put, svg, track } from './dom.js';
import { clock, count, dots, duration, latency, plural, rate, short, words } from './format.js';

const MATRIX_MAX = 30, LOG_MAX = 100;

// A panel is there when it has something to show.
function panel(id, items, show) {
  $(`${id}-panel`).hidden = !items.length;
  put($(id), show(items));
}

const group = (name, note, ...parts) => h('div.group', h('div.group-head', h('strong', name), h('span.muted', note)), ...parts);

// Of each adaptive group: seq, total and units in flight of the frames since the page was opened.
const recent = new Map(), SHOWN = 300;

function adaptive(g, seq, events) {
  const points = [...(recent.get(g.name) ?? []).filter((p) => p[0] !== seq), [seq, g.total, g.in_flight]].slice(-SHOWN);
  recent.set(g.name, points);
  const top = Math.max(...points.map((p) => p[1])), start = SHOWN - points.length;
  const line = (which) => points.map((p, i) => `${start + i},${(19 - 18 * Math.min(1, p[which] / top)).toFixed(1)}`).join(' ');
  return [h('p', badge(null, `adaptive ${g.floor}–${g.ceiling}`), ` ${g.configured_total} in the file; ${g.why}`),
    svg('svg.group-spark', { viewBox: `0 0 ${SHOWN - 1} 20`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      svg('polygon.spark-area', { points: `${line(2)} ${SHOWN - 1},20 ${start},20` }), svg('polyline.spark', { points: line(1) })),
    h('ul.log', events.filter((e) => e.kind === 'adaptive' && e.bulkhead === g.name).slice(0, 5).map(eventItem))];
}

export function panels(view, events) {
  panel('groups', view.groups, (groups) => groups.map((g) => group(g.name, `${count(g.in_flight)} of ${count(g.total)} in use, ${count(g.free)} free for all`,
    ...(g.ceiling ? adaptive(g, view.seq, events) : []),
    ...g.members.map((m) => {
      const bar = track(null, ['b', m.in_flight / g.total], ['a', (m.in_flight - m.borrowed) / g.total]);
      bar.append(h('span.tick', { style: { left: `${Math.min(100, (100 * m.guaranteed) / g.total)}%` } }));
      return h('div.member', h('span', { title: m.name }, m.name), bar, h('span.num', { title: `guaranteed ${m.guaranteed}, at most ${m.max}` }, of(m, m.guaranteed)));
    }),
    g.loans.length > 0 && matrix(g),
    h('ul.loans', g.loans.length ? g.loans.map((loan) => h('li', sentence(g, loan))) : h('li.muted', 'No member borrows units.')))));

  panel('pools', view.pools, (pools) => h('table', grid('Connection pools', ['Pool', 'In use', 'Idle', 'Waiting', 'Wait p99', 'Oldest use', 'Failures'],
    pools.map((p) => [h('div.name', h('strong', p.name), h('small', p.kind)),
      h('div.meter', track(p.used >= p.max ? 'bad' : p.used >= 0.9 * p.max && 'warn', ['a', p.used / p.max]), h('span', `${count(p.used)}/${count(p.max)}${p.connecting ? ` (${p.connecting} connecting)` : ''}`)),
      count(p.idle), [count(p.waiting), p.bulkhead_waiting > 0 && h('small', ` + ${count(p.bulkhead_waiting)} at ${p.bulkhead}`)], latency(p.wait_p99), duration(p.oldest_use),
      h('span', { 'data-tone': p.failing && 'bad', title: p.failing }, count(p.timeouts + p.open_failures))]), 2)));

  panel('tenants', view.tenants, (all) => all.map((t) => group(t.name, `${count(t.live)} of ${count(t.max)} live`,
    h('p.muted', `${count(t.created)} made, ${count(t.retired)} retired, ${count(t.overflowed)} sent to the overflow, ${count(t.rejected)} rejected.`),
    t.top.length > 0 && h('table', grid(`The busiest tenants of ${t.name}`, ['Tenant', 'In flight', 'Rejected/s'],
      t.top.map((x) => [x.tenant || 'overflow', count(x.in_flight), rate(x.rejected_rate)]), 1)))));
}

// 17/20 (+3): in flight, of how many, of them borrowed.
export const of = (b, most) => `${count(b.in_flight)}/${count(most)}${b.borrowed ? ` (+${b.borrowed})` : ''}`;

function sentence({ members }, { lender, borrower, units }) {
  const waiting = members.find((m) => m.name === lender)?.waiting, recalled = members.find((m) => m.name === borrower)?.called_back;
  return `${borrower} borrows ${count(units)} ${lender ? `from ${lender}` : 'of the unassigned units'}${
    waiting ? `; ${plural(waiting, 'call')} of ${lender} ${waiting === 1 ? 'waits' : 'wait'} for units` : ''}${recalled ? `; ${recalled} called back` : ''}.`;
}

function matrix(g) {
  const loans = g.loans.map((loan) => ({ ...loan, lender: loan.lender || 'unassigned' })), most = Math.max(...loans.map((loan) => loan.units));
  const [lenders, borrowers] = ['lender', 'borrower'].map((side) => [...new Set(loans.map((loan) => loan[side]))].slice(0, MATRIX_MAX));
  return h('table.matrix', grid(`Who borrows from whom in ${g.name}`, ['lends ↓ borrows →', ...borrowers.map((name) => short(name, 16))], lenders.map((lender) => [short(lender, 16),
    ...borrowers.map((borrower) => {
      const units = loans.find((loan) => loan.lender === lender && loan.borrower === borrower)?.units;
      return units && h('b', { title: `${borrower} has ${units} of ${lender}`, style: { background: colour('over') + Math.round(48 + (80 * units) / most).toString(16) } }, units);
    })]), 1));
}

// Of a breaker, and of an event.
export const TONE = { open: 'bad', forced_open: 'bad', half_open: 'warn', forced_closed: 'bad', closed: 'ok', metrics_only: 'warn', disabled: 'warn',
                      breaker: 'warn', reload_failed: 'bad', drain: 'warn', fault: 'over', override: 'over', revert: 'over', expired: 'over',
                      rejecting: 'bad', full: 'warn', waiting: 'warn', stuck: 'bad', failing: 'bad', cut_off: 'bad', pool_down: 'bad', error: 'bad', recovered: 'ok' };

const item = (e, tone, kind, about, text, who) => h('li', h('time', clock(e.time)), h('span', h('span.chip', { 'data-tone': tone }, kind)),
  h('span.text', about && h('strong', `${about} `), text, who && h('span.who', ` ${who}`)));

export const eventItem = (e) => item(e, TONE[e.kind], words(e.kind), e.bulkhead, e.text, e.actor);
const auditItem = (e) => item(e, e.result !== 'ok' && 'bad', verb(e.action), e.target,
  dots((e.before ?? e.after ?? null) !== null && `${value(e.before)} → ${value(e.after)}`, e.reason && `“${e.reason}”`, e.ttl && `for ${duration(e.ttl)}`, words(e.result)),
  [e.actor, e.role].filter(Boolean).join(', '));

// "PUT /v1/overrides/NAME" is exact and long: the list says the first word of the path.
function verb(action) {
  const [, method, what] = /^([A-Z]+) \/v1\/([a-z]+)/.exec(action) ?? [];
  return what ? `${method === 'DELETE' ? 'end ' : ''}${what.replace(/(?<=ch)es$|s$/, '')}` : words(action);
}
const value = (x) => (x && typeof x === 'object' ? Object.entries(x).map(([k, v]) => `${words(k)} ${v ?? '–'}`).join(', ') : x) ?? '–';

export function log(items, audit, filter) {
  const hits = items.filter((e) => `${e.actor}\n${e.target ?? e.bulkhead}`.toLowerCase().includes(filter.trim().toLowerCase())).slice(0, LOG_MAX);
  put($('events'), hits.length ? h('ul.log', { tabindex: 0, 'aria-label': audit ? 'Audit log' : 'Events' }, hits.map(audit ? auditItem : eventItem))
    : h('p.muted.pad', items.length ? 'Nothing matches.' : audit ? 'No changes yet.' : 'No events yet.'));
}
