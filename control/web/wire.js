// What follows from the numbers of a snapshot (docs/formats/stream.md). Views use the names of the wire. toView() is pure.

const TENANTS = 20;

export function toView(doc) {
  const all = doc.bulkheads;
  return { ...doc, bulkheads: all.filter((b) => !b.tenants).map(toBulkhead),
    // There can be thousands of bulkheads of tenants: they are not rows; the busiest are listed with their set.
    tenants: doc.tenants.map((t) => ({ ...t, top: all.filter((b) => b.tenants === t.name)
      .sort((x, y) => y.rejected_rate - x.rejected_rate || y.in_flight - x.in_flight).slice(0, TENANTS) })) };
}

function toBulkhead(given) {
  const b = { ...given, wait: given.wait ?? [], service: given.service ?? [] }; // null: no call ended in the window
  b.reasons = Object.entries(b.rejected).sort((x, y) => y[1] - x[1]);
  b.share = ratio(b.rejected_rate, b.rate);
  b.used = usage(b.in_flight, b.max_concurrent);
  b.idle = !b.rate && !b.in_flight && !b.waiting;
  b.circuit = !b.breaker ? 'none' : b.breaker.mode === 'automatic' ? b.breaker.state : b.breaker.mode;
  b.open = b.circuit === 'open' || b.circuit === 'forced_open';
  b.health = health(b);
  return b;
}

export const usage = (used, most) => (most > 0 ? used / most : used > 0 ? Infinity : 0);
const ratio = (part, all) => (all > 0 ? Math.min(1, part / all) : 0);

// bad: calls are rejected, from 1 % for a critical bulkhead, from 5 % for others, or the breaker is open. warn: nearly full, or
// an operator has changed it.
function health(b) {
  if (b.open || b.share >= (b.criticality === 'critical' ? 0.01 : 0.05)) return 'bad';
  const touched = b.overrides.length > 0 || b.draining || b.circuit === 'forced_closed' || b.circuit === 'half_open';
  const tight = b.used >= 0.9 || b.rejected_rate > 0 || (b.max_queue > 0 && b.waiting * 2 >= b.max_queue);
  return touched || tight ? 'warn' : 'ok';
}

// For the tiles. Percentiles are never averaged: the worst is shown, with its owner. A call of a nested bulkhead has arrived at
// another one already, and is rejected at most once: rejections of all are added up.
export function totals(bulkheads) {
  const sum = (of, all = bulkheads) => all.reduce((n, b) => n + of(b), 0);
  const critical = bulkheads.filter((b) => b.criticality === 'critical').sort((a, b) => b.share - a.share);
  const all = [sum((b) => b.rejected_rate), sum((b) => b.rate, bulkheads.filter((b) => !b.nested))];
  const waited = bulkheads.filter((b) => b.wait[2] >= 0).sort((a, b) => b.wait[2] - a.wait[2]);
  return { all, share: ratio(...all), critical: critical[0], criticalShare: critical[0]?.share ?? 0,
           waiting: sum((b) => b.waiting), open: sum((b) => (b.open ? 1 : 0)), worst: waited[0] };
}
