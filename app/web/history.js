// What happened, in buckets of `step` seconds: filled from GET /v1/history, then kept up by the frames of the stream.
//
//   const history = new History(3, 300);        // the last 15 minutes
//   history.load(document); history.push(view);
//   history.each('checkout', now, 300, (i, used, limit, queue, rejected, open) => ...);   // oldest first
//
// Buckets are numbered by absolute time (floor(time / step)) and live in rings, so that a frame is one write and a
// gap in the stream stays a gap. Per bucket: in flight and limit at its fullest, the longest line, the sum of the
// rejections, whether the breaker was open at all. The names in COLUMNS are those of the wire.
import { isOpen } from './wire.js';

const BRIDGE = 4; // seconds
const SECOND = 1; // a frame tells of the second before it
const COLUMNS = ['used', 'limit', 'queue', 'rejected', 'open'];

export class History {
  constructor(step, count) {
    this.step = step;
    this.count = count;
    this.rows = new Map();
    this.changes = [];
    this.last = null; // {time, seq, rejected by name} of the last frame
  }

  bucket(time) { return Math.floor(time / this.step); }

  row(name) {
    let row = this.rows.get(name);
    if (!row) {
      row = { at: new Float64Array(this.count).fill(-1) };
      for (const column of COLUMNS) row[column] = new Float64Array(this.count);
      this.rows.set(name, row);
    }
    return row;
  }

  load(doc) {
    const first = this.bucket(doc.end) - doc.count;
    for (const b of doc.bulkheads ?? []) {
      const row = this.row(b.name);
      const limits = dense(b.limit, doc.count, true);
      const queue = dense(b.queue, doc.count), rejected = dense(b.rejected, doc.count);
      for (let i = Math.max(0, doc.count - this.count); i < doc.count; ++i) {
        if (b.used?.[i] === null || b.used?.[i] === undefined) continue;
        row.at[(first + i) % this.count] = -1; // the server knows better than the frames did
        this.write(row, first + i, b.used[i], limits[i], queue[i], rejected[i],
          (b.open ?? []).some(([from, to]) => from <= i && i < to));
      }
    }
    this.changes = (doc.changes ?? []).map((c) => ({ time: c.time, bulkhead: c.bulkhead ?? '', text: c.text ?? '' }));
  }

  push(view) {
    const bucket = this.bucket(view.time - SECOND), last = this.last;
    const sameProcess = last !== null && view.seq > last.seq;
    // A frame a little late leaves no hole: seconds between two frames of one process look like the later one.
    const bridged = sameProcess && view.time - last.time <= BRIDGE ? this.bucket(last.time - SECOND) + 1 : bucket;
    const rejected = new Map();
    for (const b of view.bulkheads) {
      rejected.set(b.name, b.total.rejected);
      const before = sameProcess ? last.rejected.get(b.name) : undefined;
      const news = before === undefined ? 0 : Math.max(0, b.total.rejected - before);
      const row = this.row(b.name), open = isOpen(b.breaker);
      // The peak may be of a moment with a higher limit: above the limit is only what is so now.
      const limit = b.inFlight > b.limit ? b.limit : Math.max(b.limit, b.peak);
      for (let skipped = bridged; skipped < bucket; ++skipped) this.write(row, skipped, b.inFlight, b.limit, b.queue, 0, open);
      this.write(row, bucket, b.peak, limit, b.queue, news, open);
    }
    for (const e of view.events) {
      if (!NO_CHANGE.has(e.kind) && !this.changes.some((c) => c.time === e.time && c.bulkhead === e.bulkhead)) {
        this.changes.push({ time: e.time, bulkhead: e.bulkhead, text: e.text });
      }
    }
    const oldest = view.time - this.step * this.count;
    if (this.changes.length && this.changes[0].time < oldest) this.changes = this.changes.filter((c) => c.time >= oldest);
    this.last = { time: view.time, seq: view.seq, rejected };
  }

  write(row, bucket, used, limit, queue, rejected, open) {
    const i = bucket % this.count;
    if (row.at[i] !== bucket) {
      row.at[i] = bucket;
      row.used[i] = used;
      row.limit[i] = limit;
      row.queue[i] = queue;
      row.rejected[i] = rejected;
      row.open[i] = open ? 1 : 0;
      return;
    }
    if (used * row.limit[i] >= row.used[i] * limit) { // the moment it was fullest, with its limit then
      row.used[i] = used;
      row.limit[i] = limit;
    }
    row.queue[i] = Math.max(row.queue[i], queue);
    row.rejected[i] += rejected;
    if (open) row.open[i] = 1;
  }

  // The `shown` buckets up to `now`, through a callback and without allocating: 200 rows are drawn every second.
  each(name, now, shown, visit) {
    const row = this.rows.get(name);
    if (!row) return;
    const first = this.bucket(now) - shown + 1;
    for (let i = 0; i < shown; ++i) {
      const at = (first + i) % this.count;
      if (row.at[at] === first + i) visit(i, row.used[at], row.limit[at], row.queue[at], row.rejected[at], row.open[at]);
    }
  }

  cell(name, now, shown, column) {
    let found = null;
    this.each(name, now, shown, (i, used, limit, queue, rejected, open) => {
      if (i === column) found = { used, limit, queue, rejected, open: open === 1 };
    });
    return found;
  }

  timeOf(now, shown, column) { return (this.bucket(now) - shown + 1 + column) * this.step; }

  summary(name, now, shown) {
    const sum = { peak: 0, peakColumn: -1, rejected: 0, open: 0 };
    this.each(name, now, shown, (i, used, limit, queue, rejected, open) => {
      const share = limit > 0 ? used / limit : used > 0 ? Infinity : 0;
      if (share > sum.peak || sum.peakColumn < 0) [sum.peak, sum.peakColumn] = [share, i];
      sum.rejected += rejected;
      sum.open += open * this.step;
    });
    return sum;
  }
}

const NO_CHANGE = new Set(['start', 'limit', 'breaker']); // as GET /v1/history leaves them out

// [[i, value], ...] to one value each; `hold`: until the next one, else 0 in between.
export function dense(pairs, count, hold = false) {
  const values = new Array(count).fill(0);
  const given = pairs ?? [];
  given.forEach(([i, value], at) => {
    const to = hold ? (given[at + 1]?.[0] ?? count) : i + 1;
    for (let k = Math.max(0, i); k < Math.min(to, count); ++k) values[k] = value;
  });
  return values;
}
