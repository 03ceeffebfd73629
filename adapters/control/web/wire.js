// What follows from the numbers of a snapshot (docs/formats/stream.md). The views use the names of the wire, and rely on what
// its schema promises. A view of the same document is the same view.

const TENANTS = 20;

export function toView(doc) {
  const all = doc.bulkheads;
  return { ...doc, bulkheads: all.filter((b) => !b.tenants).map(toBulkhead),
    // Bulkheads of tenants come and go by the thousand: they are not rows, the busiest are listed with their template.
    tenants: doc.tenants.map((t) => ({ ...t, top: all.filter((b) => b.tenants === t.name)
      .sort((x, y) => y.rejected_rate - x.rejected_rate || y.in_flight - x.in_flight).slice(0, TENANTS) })) };
}

function toBulkhead(given) {
  const b = { ...given, wait: given.wait ?? [], service: given.service ?? [] }; // nothing ended in the window
  b.reasons = Object.entries(b.rejected).sort((x, y) => y[1] - x[1]);
  b.share = ratio(b.rejected_rate, b.rate);
  b.used = usage(b.in_flight, b.limit);
  b.idle = !b.rate && !b.in_flight && !b.queue;
  b.circuit = !b.breaker ? 'none' : b.breaker.mode === 'automatic' ? b.breaker.state : b.breaker.mode;
  b.open = b.circuit === 'open' || b.circuit === 'forced_open';
  b.health = health(b);
  return b;
}

export const usage = (used, limit) => (limit > 0 ? used / limit : used > 0 ? Infinity : 0);
const ratio = (part, all) => (all > 0 ? Math.min(1, part / all) : 0);

// bad: calls are lost that should not be, of a critical bulkhead from 1 %, of any other from 5 %. warn: look at it, or
// somebody is at work on it.
function health(b) {
  if (b.open || b.share >= (b.criticality === 'critical' ? 0.01 : 0.05)) return 'bad';
  const touched = b.overrides.length > 0 || b.draining || b.circuit === 'forced_closed' || b.circuit === 'half_open';
  const tight = b.used >= 0.9 || b.rejected_rate > 0 || (b.queue_limit > 0 && b.queue * 2 >= b.queue_limit);
  return touched || tight ? 'warn' : 'ok';
}

// For the strip of tiles. Percentiles are never averaged: the worst one is shown, with its owner.
export function totals(bulkheads) {
  const sum = (of, all = bulkheads) => all.reduce((n, b) => n + of(b), 0);
  const critical = bulkheads.filter((b) => b.criticality === 'critical');
  const both = (all) => [sum((b) => b.rejected_rate, all), sum((b) => b.rate, all)];
  const waited = bulkheads.filter((b) => b.wait[2] >= 0).sort((a, b) => b.wait[2] - a.wait[2]);
  return { all: both(bulkheads), share: ratio(...both(bulkheads)), critical: both(critical), criticalShare: ratio(...both(critical)),
           queue: sum((b) => b.queue), open: sum((b) => (b.open ? 1 : 0)), worst: waited[0] };
}
