// From the wire (docs/formats/stream.md) to what the views draw. The only module that knows the names of the JSON.
//
// Whatever is missing gets a harmless value here, so that no view has to ask. Nothing of the page's own time is
// used: a view of the same document is the same view.

const number = (x, otherwise = 0) => (Number.isFinite(x) ? x : otherwise);
const orNull = (x) => (Number.isFinite(x) ? x : null);
const text = (x) => (typeof x === 'string' ? x : '');
const list = (x) => (Array.isArray(x) ? x : []);

// A critical bulkhead that rejects 1 % of its calls is in trouble, any other at 5 %.
const TENANTS = 20;
export const REJECTED_LIMIT = { critical: 0.01, normal: 0.05, best_effort: 0.05 };

export function toView(doc) {
  const config = doc.config ?? {}, all = list(doc.bulkheads);
  return {
    seq: number(doc.seq), time: number(doc.time), instance: text(doc.instance) || 'bulkhead',
    version: text(doc.version), uptime: number(doc.uptime), window: number(doc.window, 10),
    revision: text(doc.revision),
    config: { state: text(config.state) || 'none', file: text(config.file), overrides: number(config.overrides),
              error: text(config.error) },
    bulkheads: all.filter((b) => !text(b.tenants)).map(toBulkhead),
    groups: list(doc.groups).map(toGroup),
    pools: list(doc.pools).map(toPool),
    tenants: list(doc.tenants).map((t) => toTenants(t, all)),
    events: list(doc.events).map(toEvent),
    switches: list(doc.switches).map((s) => ({ name: text(s.name), title: text(s.title) || text(s.name), on: s.on === true })),
  };
}

function toBulkhead(b) {
  const limit = number(b.limit), inFlight = number(b.in_flight), rate = number(b.rate);
  const rejectedRate = number(b.rejected_rate);
  const reasons = Object.entries(b.rejected ?? {}).filter(([, n]) => n > 0).sort((x, y) => y[1] - x[1])
    .map(([reason, perSecond]) => ({ reason, rate: perSecond }));
  const view = {
    name: text(b.name), type: text(b.type), group: text(b.group), isolation: text(b.isolation),
    criticality: text(b.criticality) || 'normal', enabled: b.enabled !== false, shadow: b.shadow === true,
    draining: b.draining === true,
    inFlight, peak: Math.max(inFlight, number(b.peak)), borrowed: number(b.borrowed),
    limit, configured: number(b.configured_limit, limit), floor: orNull(b.floor), ceiling: orNull(b.ceiling),
    queue: number(b.queue), queueLimit: number(b.queue_limit),
    rate, failedRate: number(b.failed_rate), rejectedRate, reasons,
    rejectedShare: rate > 0 ? Math.min(1, rejectedRate / rate) : 0,
    wait: percentiles(b.wait), service: percentiles(b.service),
    total: { admitted: number(b.total?.admitted), succeeded: number(b.total?.succeeded),
             failed: number(b.total?.failed), rejected: number(b.total?.rejected), timedOut: number(b.total?.timed_out) },
    breaker: toBreaker(b.breaker),
    overrides: list(b.overrides).map((o) => ({ field: text(o.field), from: o.from ?? null, to: o.to ?? null,
      by: text(o.by), reason: text(o.reason), expires: orNull(o.expires) })),
  };
  view.used = limit > 0 ? inFlight / limit : inFlight > 0 ? Infinity : 0;
  view.idle = rate === 0 && inFlight === 0 && view.queue === 0;
  view.health = health(view);
  return view;
}

function percentiles(p) {
  return Array.isArray(p) ? { p50: orNull(p[0]), p90: orNull(p[1]), p99: orNull(p[2]) } : null;
}

function toBreaker(b) {
  if (!b) return null;
  return { state: text(b.state) || 'closed', mode: text(b.mode) || 'automatic', reason: text(b.reason),
           since: orNull(b.since), nextProbe: orNull(b.next_probe), calls: number(b.calls),
           failures: number(b.failures), slow: number(b.slow) };
}

// open, closed, half_open, or how an operator or the file forced it.
export function breakerLabel(breaker) {
  if (!breaker) return 'none';
  return breaker.mode === 'automatic' ? breaker.state : breaker.mode;
}
export const isOpen = (breaker) =>
  breaker !== null && (breaker.mode === 'forced_open' || (breaker.mode === 'automatic' && breaker.state === 'open'));

// bad: calls are lost that should not be. warn: look at it, or somebody is at work on it.
function health(b) {
  if (isOpen(b.breaker) || b.rejectedShare >= (REJECTED_LIMIT[b.criticality] ?? 0.05)) return 'bad';
  const touched = b.overrides.length > 0 || b.draining || breakerLabel(b.breaker) === 'forced_closed';
  const tight = b.used >= 0.9 || b.rejectedRate > 0 || (b.queueLimit > 0 && b.queue * 2 >= b.queueLimit);
  return touched || tight || b.breaker?.state === 'half_open' ? 'warn' : 'ok';
}

function toGroup(g) {
  return {
    name: text(g.name), total: number(g.total), inFlight: number(g.in_flight), free: number(g.free),
    members: list(g.members).map((m) => ({ name: text(m.name), guaranteed: number(m.guaranteed), max: number(m.max),
      allotted: number(m.allotted), inFlight: number(m.in_flight), waiting: number(m.waiting),
      calledBack: number(m.called_back), lent: number(m.lent), borrowed: number(m.borrowed) })),
    loans: list(g.loans).filter((l) => l.units > 0)
      .map((l) => ({ lender: text(l.lender), borrower: text(l.borrower), units: number(l.units) })),
  };
}

function toPool(p) {
  return { name: text(p.name), kind: text(p.kind), used: number(p.used), idle: number(p.idle),
           connecting: number(p.connecting), waiting: number(p.waiting), max: number(p.max), waitP99: orNull(p.wait_p99),
           oldestUse: orNull(p.oldest_use), failures: number(p.timeouts) + number(p.open_failures), failing: text(p.failing) };
}

// Bulkheads of tenants come and go by the thousand: they are not rows, the busiest are listed with their template.
function toTenants(t, all) {
  const top = all.filter((b) => b.tenants === t.name)
    .map((b) => ({ tenant: text(b.tenant) || 'overflow', in_flight: b.in_flight, rejected_rate: b.rejected_rate }));
  return { name: text(t.name), live: number(t.live), max: number(t.max), created: number(t.created),
           retired: number(t.retired), overflowed: number(t.overflowed), refused: number(t.refused),
           top: [...list(t.top), ...top].map((x) => ({ tenant: text(x.tenant), inFlight: number(x.in_flight),
                                                       rejectedRate: number(x.rejected_rate) }))
             .sort((x, y) => y.rejectedRate - x.rejectedRate || y.inFlight - x.inFlight).slice(0, TENANTS) };
}

function toEvent(e) {
  return { id: number(e.id), time: number(e.time), kind: text(e.kind), bulkhead: text(e.bulkhead),
           actor: text(e.actor), text: text(e.text) };
}

export function toAudit(doc) {
  return list(doc?.entries).map((e) => ({ time: number(e.time), actor: text(e.actor), role: text(e.role),
    action: text(e.action), target: text(e.target), before: e.before ?? null, after: e.after ?? null,
    reason: text(e.reason), ttl: orNull(e.ttl), result: text(e.result) }));
}

export function toSession(doc) {
  const role = text(doc?.role) || 'viewer';
  return { role, actor: text(doc?.actor), writable: doc?.writable ?? role !== 'viewer' };
}

export function toSettings(doc) {
  return list(doc?.settings).map((s) => ({ name: text(s.name), value: String(s.value ?? ''), source: text(s.source) }));
}

// The strip of tiles. Percentiles are never averaged: the worst one is shown, with its owner.
export function totals(bulkheads) {
  const sum = { rate: 0, rejected: 0, criticalRate: 0, criticalRejected: 0, queue: 0, open: 0, worstWait: null, worst: '' };
  for (const b of bulkheads) {
    sum.rate += b.rate;
    sum.rejected += b.rejectedRate;
    if (b.criticality === 'critical') {
      sum.criticalRate += b.rate;
      sum.criticalRejected += b.rejectedRate;
    }
    sum.queue += b.queue;
    if (isOpen(b.breaker)) sum.open += 1;
    const p99 = b.wait?.p99 ?? null;
    if (p99 !== null && (sum.worstWait === null || p99 > sum.worstWait)) [sum.worstWait, sum.worst] = [p99, b.name];
  }
  sum.rejectedShare = sum.rate > 0 ? sum.rejected / sum.rate : 0;
  sum.criticalShare = sum.criticalRate > 0 ? sum.criticalRejected / sum.criticalRate : 0;
  return sum;
}
