// The panels under the table: groups and their loans, pools, tenants, events and audit.
import { $, h, setText, svg } from './dom.js';
import { clock, count, duration, latency, plural, rate, words } from './format.js';

const MATRIX_MAX = 30, NOBODY = 'unassigned';

const bar = (share, kind) => {
  const i = h('i', { class: kind });
  i.style.transform = `scaleX(${Math.max(0, Math.min(1, share || 0))})`;
  return i;
};

// Redrawn only when its numbers changed: these are small, and most seconds are dull.
function changed(root, data) {
  const key = JSON.stringify(data);
  if (root.dataset.key === key) return false;
  root.dataset.key = key;
  return true;
}

export function groups(view) {
  const root = $('groups');
  $('groups-panel').hidden = view.groups.length === 0;
  if (!changed(root, view.groups)) return;
  root.replaceChildren(...view.groups.map((g) => h('div', { class: 'group' },
    h('div', { class: 'group-head' }, h('strong', {}, g.name),
      h('span', { class: 'muted' }, `${count(g.inFlight)} of ${count(g.total)} in use, ${count(g.free)} free for all`)),
    ...g.members.map((m) => {
      const track = h('div', { class: 'track', 'aria-hidden': 'true' }, bar(m.inFlight / g.total, 'b'), bar((m.inFlight - m.borrowed) / g.total, 'a'));
      const tick = h('span', { class: 'tick' });
      tick.style.left = `${Math.min(100, (100 * m.guaranteed) / g.total)}%`;
      track.append(tick);
      return h('div', { class: 'member' }, h('span', { title: m.name }, m.name), track,
        h('span', { class: 'num', title: `guaranteed ${m.guaranteed}, at most ${m.max}` },
          `${count(m.inFlight)}/${count(m.guaranteed)}${m.borrowed ? ` (+${m.borrowed})` : ''}`));
    }),
    g.loans.length ? matrix(g) : null,
    h('ul', { class: 'loans' }, ...(g.loans.length ? g.loans.map((l) => h('li', {}, sentence(g, l)))
      : [h('li', { class: 'muted' }, 'Nobody borrows: each keeps within its own share.')])))));
}

export function sentence(group, loan) {
  const lender = group.members.find((m) => m.name === loan.lender);
  const from = loan.lender ? `from ${loan.lender}` : 'of what nobody is guaranteed';
  const back = lender && lender.waiting > 0 ? `; ${plural(lender.waiting, 'call')} of ${loan.lender} wait for it` : '';
  const recalled = group.members.find((m) => m.name === loan.borrower)?.calledBack ?? 0;
  return `${loan.borrower} borrows ${count(loan.units)} ${from}${back}${recalled ? `; ${recalled} called back` : ''}.`;
}

function matrix(g) {
  const lenders = [...new Set(g.loans.map((l) => l.lender || NOBODY))].slice(0, MATRIX_MAX);
  const borrowers = [...new Set(g.loans.map((l) => l.borrower))].slice(0, MATRIX_MAX);
  const longest = Math.max(...borrowers.map((b) => Math.min(16, b.length)));
  const cell = 34, left = 116, top = 30 + Math.round(longest * 4.3), most = Math.max(...g.loans.map((l) => l.units));
  const short = (name) => (name.length > 16 ? name.slice(0, 15) + '…' : name);
  const parts = [svg('text', { x: 0, y: 12 }, 'lends ↓  borrows →')];
  borrowers.forEach((b, i) => parts.push(svg('text', { transform: `translate(${left + i * cell + cell / 2 + 4} ${top - 6}) rotate(-40)` }, short(b), svg('title', {}, b))));
  lenders.forEach((lender, r) => {
    parts.push(svg('text', { x: left - 8, y: top + r * cell + cell / 2 + 4, 'text-anchor': 'end' }, short(lender), svg('title', {}, lender)));
    borrowers.forEach((borrower, c) => {
      const units = g.loans.find((l) => (l.lender || NOBODY) === lender && l.borrower === borrower)?.units ?? 0;
      const box = { x: left + c * cell + 1, y: top + r * cell + 1, width: cell - 2, height: cell - 2, rx: 4 };
      parts.push(svg('rect', { ...box, class: lender === borrower ? 'self' : 'box' }));
      if (!units) return;
      parts.push(svg('rect', { ...box, class: 'loan', opacity: (0.2 + (0.5 * units) / most).toFixed(2) }, svg('title', {}, `${borrower} has ${units} of ${lender}`)),
        svg('text', { class: 'v', x: box.x + box.width / 2, y: box.y + box.height / 2 + 4 }, String(units)));
    });
  });
  const width = left + borrowers.length * cell + 90, height = top + lenders.length * cell + 4;
  return svg('svg', { class: 'matrix', role: 'img', 'aria-label': `Who borrows from whom in ${g.name}: the list below says the same in words`,
    viewBox: `0 0 ${width} ${height}`, width, height }, ...parts);
}

export function switches(view, writable, onSwitch) {
  const root = $('switches');
  root.hidden = view.switches.length === 0;
  if (!changed(root, [view.switches, writable])) return;
  root.replaceChildren(...view.switches.map((s) => h('button', { type: 'button', 'aria-pressed': String(s.on), disabled: !writable,
    title: writable ? null : 'Needs the role operator', onclick: () => onSwitch(s.name, !s.on) }, `${s.title}: ${s.on ? 'on' : 'off'}`)));
}

export function pools(view) {
  const root = $('pools');
  $('pools-panel').hidden = view.pools.length === 0;
  if (!changed(root, view.pools)) return;
  root.replaceChildren(h('table', {}, h('caption', { class: 'vh' }, 'Connection pools'),
    h('thead', {}, h('tr', {}, ...['Pool', 'In use', 'Idle', 'Waiting', 'Wait p99', 'Oldest use', 'Failures'].map((t, i) =>
      h('th', { scope: 'col', class: i > 1 ? 'num' : null }, t)))),
    h('tbody', {}, ...view.pools.map((p) => h('tr', {},
      h('td', {}, h('div', { class: 'name' }, h('strong', {}, p.name), h('small', {}, p.kind))),
      h('td', {}, h('div', { class: 'meter' }, h('div', { class: 'track', 'aria-hidden': 'true' }, bar(p.max ? p.used / p.max : 0, 'a')),
        h('span', {}, `${count(p.used)}/${count(p.max)}${p.connecting ? ` (${p.connecting} connecting)` : ''}`))),
      h('td', { class: 'num' }, count(p.idle)), h('td', { class: 'num' }, count(p.waiting)), h('td', { class: 'num' }, latency(p.waitP99)),
      h('td', { class: 'num' }, p.oldestUse === null ? '–' : duration(p.oldestUse)),
      h('td', { class: 'num', 'data-tone': p.failing ? 'bad' : null, title: p.failing || null }, count(p.failures)))))));
}

export function tenants(view) {
  const root = $('tenants');
  $('tenants-panel').hidden = view.tenants.length === 0;
  if (!changed(root, view.tenants)) return;
  root.replaceChildren(...view.tenants.map((t) => h('div', { class: 'group' },
    h('div', { class: 'group-head' }, h('strong', {}, t.name), h('span', { class: 'muted' }, `${count(t.live)} of ${count(t.max)} live`)),
    h('p', { class: 'muted' }, `${count(t.created)} made, ${count(t.retired)} retired, ${count(t.overflowed)} sent to the overflow, ${count(t.refused)} refused.`),
    t.top.length ? h('table', {}, h('caption', { class: 'vh' }, `The busiest tenants of ${t.name}`),
      h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'Tenant'), h('th', { scope: 'col', class: 'num' }, 'In flight'), h('th', { scope: 'col', class: 'num' }, 'Rejected/s'))),
      h('tbody', {}, ...t.top.slice(0, 20).map((x) => h('tr', {}, h('td', {}, x.tenant), h('td', { class: 'num' }, count(x.inFlight)),
        h('td', { class: 'num' }, rate(x.rejectedRate)))))) : null)));
}

const KIND_TONE = { breaker: 'warn', reload_failed: 'bad', drain: 'warn', override: 'over', revert: 'over', expired: 'over' };

export const eventItem = (e) => h('li', {}, h('time', {}, clock(e.time)),
  h('span', {}, h('span', { class: 'chip', 'data-tone': KIND_TONE[e.kind] ?? null }, words(e.kind))),
  h('span', { class: 'text' }, e.bulkhead ? h('strong', {}, `${e.bulkhead} `) : null, e.text, e.actor ? h('span', { class: 'who' }, ` ${e.actor}`) : null));

const auditItem = (e) => h('li', {}, h('time', {}, clock(e.time)),
  h('span', {}, h('span', { class: 'chip', 'data-tone': e.result && !['ok', 'done', 'allowed', 'applied'].includes(e.result) ? 'bad' : null }, verb(e.action))),
  h('span', { class: 'text' }, e.target ? h('strong', {}, `${e.target} `) : null,
    [change(e), e.reason && `“${e.reason}”`, e.ttl ? `for ${duration(e.ttl)}` : '', words(e.result)].filter(Boolean).join(' · '),
    h('span', { class: 'who' }, ` ${[e.actor, e.role].filter(Boolean).join(', ')}`)));

// "PUT /v1/overrides/NAME" is exact and long: the list says the first word of the path.
const verb = (action) => {
  const [, method, what] = /^([A-Z]+) \/v1\/([a-z]+)/.exec(action) ?? [];
  return what ? `${method === 'DELETE' ? 'end ' : ''}${what.replace(/s$/, '')}` : words(action);
};
const change = (e) => (e.before === null && e.after === null ? '' : `${show(e.before)} → ${show(e.after)}`);
const show = (x) => (x === null ? '–' : typeof x === 'object'
  ? Object.entries(x).map(([k, v]) => `${words(k)} ${v ?? '–'}`).join(', ') || '–' : String(x));

export function log(items, kind, filter) {
  const root = $('events'), wanted = filter.trim().toLowerCase();
  const hit = (...fields) => wanted === '' || fields.some((f) => f.toLowerCase().includes(wanted));
  const shown = (kind === 'audit' ? items.filter((e) => hit(e.actor, e.target)) : items.filter((e) => hit(e.actor, e.bulkhead))).slice(0, 100);
  if (!changed(root, [kind, shown])) return;
  root.replaceChildren(shown.length
    ? h('ul', { class: 'log', tabindex: '0', 'aria-label': kind === 'audit' ? 'Audit log' : 'Events' }, ...shown.map(kind === 'audit' ? auditItem : eventItem))
    : h('p', { class: 'muted pad' }, wanted ? 'Nothing matches.' : kind === 'audit' ? 'Nobody has changed anything yet.' : 'Nothing has happened yet.'));
}
