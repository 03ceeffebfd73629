// The history in buckets of `step` seconds: filled from GET /v1/history, then extended by the frames of the stream.
//
//   const history = makeHistory(3);             // the last 15 minutes
//   history.load(document); history.push(view);
//   history.each('checkout', now, 300, (i, bucket) => ...);   // oldest first
//
// Buckets are numbered by absolute time (floor(time / step)) in rings: a frame is one write, a gap stays a gap. A bucket: {at,
// in_flight, max_concurrent} at its fullest, the mean in flight, the most that waited, the sum of the rejected, whether the breaker
// was open; from a frame or the history of one bulkhead also configured, rate, failed_rate, wait, service and reasons.
import { usage } from './wire.js';

const BRIDGE = 4; // seconds
const SECOND = 1; // a frame describes the second before it
const NO_CHANGE = ['start', 'adaptive', 'breaker']; // as GET /v1/history leaves them out
export const PERCENTILES = ['p50', 'p90', 'p99'];

export function makeHistory(step, size = 300) {
  const rows = Object.create(null);
  let changes = [], last; // the newest frame, and what it had rejected, by name

  const bucketOf = (time) => Math.floor(time / step);
  const timeOf = (now, shown, column) => (bucketOf(now) - shown + 1 + column) * step;

  const row = (name) => (rows[name] ??= []);
  function find(name, at) {
    const bucket = row(name)[at % size];
    return bucket?.at === at ? bucket : null;
  }

  function load({ end, count, bulkheads, changes: made }) {
    const first = bucketOf(end) - count;
    for (const b of bulkheads) {
      const [most, configured] = [b.max_concurrent, b.configured_max_concurrent].map((pairs) => dense(pairs, count, true));
      const [waiting, rejected] = [b.waiting, b.rejected].map((pairs) => dense(pairs, count));
      const reasons = Object.entries(b.reasons ?? {}).map(([reason, pairs]) => [reason, dense(pairs, count)]);
      b.in_flight.forEach((used, i) => {
        if (used === null) return;
        const at = first + i, percentiles = (of) => PERCENTILES.map((p) => of[p][i]);
        row(b.name)[at % size] = { // the history of the server is more exact than the frames
          ...find(b.name, at), at, in_flight: used, mean: b.mean?.[i] ?? used, max_concurrent: most[i], waiting: waiting[i], rejected: rejected[i],
          open: b.open.some(([from, to]) => from <= i && i < to),
          ...(b.rate && { configured: configured[i], rate: b.rate[i], failed_rate: b.failed_rate[i], wait: percentiles(b.wait),
            service: percentiles(b.service), reasons: Object.fromEntries(reasons.map(([reason, n]) => [reason, n[i]])) }) };
      });
    }
    changes = made ?? changes;
  }

  function push(view) {
    const at = bucketOf(view.time - SECOND), before = last?.seq < view.seq ? last : null; // null: another process
    const elapsed = before ? Math.min(5, view.time - before.time) : 1;
    // A late frame leaves no gap: seconds before it get its values.
    const from = before && elapsed <= BRIDGE ? bucketOf(before.time - SECOND) + 1 : at;
    last = { ...view, rejected: {} };
    for (const b of view.bulkheads) {
      const rejected = (last.rejected[b.name] = b.total.rejected);
      const bucket = { in_flight: b.in_flight, mean: b.mean_in_flight ?? b.in_flight, max_concurrent: b.max_concurrent, waiting: b.waiting, rejected: 0, open: b.open, configured: b.configured_max_concurrent,
        rate: b.rate, failed_rate: b.failed_rate, wait: b.wait, service: b.service, reasons: {} };
      for (let skipped = from; skipped < at; ++skipped) write(b.name, skipped, bucket);
      // max_concurrent may have been higher at the peak: only what is above it now is shown as above it.
      write(b.name, at, { ...bucket, in_flight: b.peak, max_concurrent: b.in_flight > b.max_concurrent ? b.max_concurrent : Math.max(b.max_concurrent, b.peak),
        rejected: Math.max(0, rejected - (before?.rejected[b.name] ?? Infinity)),
        // Rates are per second: over the time since the last frame they are counts.
        reasons: Object.fromEntries(b.reasons.map(([reason, rate]) => [reason, rate * elapsed])) });
    }
    for (const { time, bulkhead, text, kind, began } of view.events) {
      const at = began && kind !== 'recovered' ? began : time;
      if (!NO_CHANGE.includes(kind) && !changes.some((c) => c.time === at && c.bulkhead === bulkhead && c.kind === kind)) {
        changes.push({ time: at, bulkhead, text, kind, automatic: began !== undefined });
      }
    }
    changes = changes.filter((c) => c.time >= view.time - step * size);
  }

  function write(name, at, next) {
    const old = find(name, at), bucket = { ...old, ...next, at, reasons: { ...next.reasons } };
    if (old) {
      if (next.in_flight * old.max_concurrent < old.in_flight * next.max_concurrent) { // keep the fullest moment
        [bucket.in_flight, bucket.max_concurrent] = [old.in_flight, old.max_concurrent];
      }
      bucket.waiting = Math.max(old.waiting, next.waiting);
      bucket.mean = old.mean === undefined ? next.mean : (old.mean * (step - 1) + next.mean) / step; // of the seconds of the bucket, nearly
      bucket.rejected += old.rejected;
      bucket.open ||= old.open;
      for (const [reason, n] of Object.entries(old.reasons ?? {})) bucket.reasons[reason] = n + (bucket.reasons[reason] ?? 0);
    }
    row(name)[at % size] = bucket;
  }

  // The `shown` buckets up to `now` that have data.
  function each(name, now, shown, visit) {
    const first = bucketOf(now) - shown + 1, buckets = row(name);
    for (let i = 0; i < shown; ++i) {
      const bucket = buckets[(first + i) % size];
      if (bucket?.at === first + i) visit(i, bucket);
    }
  }

  // All buckets of one bulkhead from the first to the last with data, null where there is none.
  function table(name) {
    const known = row(name).filter(Boolean).map((b) => b.at), last = Math.max(...known), first = Math.min(...known.filter((at) => at > last - size));
    return Array.from({ length: last - first + 1 }, (_, i) => ({ time: (first + i) * step, bucket: find(name, first + i) }));
  }

  function summary(name, now, shown) {
    const sum = { peak: 0, column: -1, rejected: 0, open: 0 };
    each(name, now, shown, (i, bucket) => {
      const share = usage(bucket.in_flight, bucket.max_concurrent);
      if (share > sum.peak || sum.column < 0) [sum.peak, sum.column] = [share, i];
      sum.rejected += bucket.rejected;
      if (bucket.open) sum.open += step;
    });
    return sum;
  }
  return { step, bucketOf, timeOf, find, load, push, each, table, summary, changes: () => changes };
}

// [[i, value], ...] to one value each; `hold`: until the next one, else 0 in between.
export function dense(pairs, count, hold = false) {
  const values = new Array(count).fill(0);
  for (const [i, value] of pairs ?? []) values.fill(value, i, hold ? count : i + 1);
  return values;
}
