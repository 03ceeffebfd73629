// The columns of one bulkhead's charts: from GET /v1/history?bulkhead=NAME, then from the frames. Pure.
import { dense } from './history.js';
import { isOpen } from './wire.js';

export const PERCENTILES = ['p50', 'p90', 'p99'];

export class Series {
  constructor(step, count) {
    this.step = step;
    this.count = count;
    this.buckets = []; // oldest first
    this.last = null;
  }

  load(doc) {
    const b = doc?.bulkheads?.[0];
    if (!b) return;
    const { count, step } = doc, first = Math.floor(doc.end / step) - count;
    const limit = dense(b.limit, count, true), configured = dense(b.configured ?? b.limit, count, true), queue = dense(b.queue, count);
    const reasons = Object.entries(b.reasons ?? {}).map(([name, pairs]) => [name, dense(pairs, count)]);
    const live = this.buckets.filter((x) => x.at >= first + count);
    this.buckets = [];
    for (let i = 0; i < count; ++i) {
      if (b.used?.[i] === null || b.used?.[i] === undefined) continue;
      this.buckets.push({
        at: first + i, used: b.used[i], limit: limit[i], configured: configured[i], queue: queue[i],
        rate: b.rate?.[i] ?? null, failed: b.failed_rate?.[i] ?? null,
        wait: PERCENTILES.map((p) => b.wait?.[p]?.[i] ?? null), service: PERCENTILES.map((p) => b.service?.[p]?.[i] ?? null),
        open: (b.open ?? []).some(([from, to]) => from <= i && i < to),
        reasons: Object.fromEntries(reasons.map(([name, values]) => [name, values[i]]).filter(([, n]) => n > 0)),
      });
    }
    this.buckets.push(...live);
  }

  // The frame's rates are per second: over the time since the last frame they are counts.
  push(b, time) {
    const at = Math.floor((time - 1) / this.step); // a frame tells of the second before it
    const elapsed = this.last === null ? 1 : Math.min(5, Math.max(0, time - this.last));
    this.last = time;
    let bucket = this.buckets.at(-1);
    if (!bucket || bucket.at < at) {
      bucket = { at, used: 0, limit: b.limit, queue: 0, open: false, reasons: {} };
      this.buckets.push(bucket);
      while (this.buckets.length && this.buckets[0].at <= at - this.count) this.buckets.shift();
    }
    bucket.used = Math.max(bucket.used, b.peak);
    bucket.limit = b.limit;
    bucket.configured = b.configured;
    bucket.queue = Math.max(bucket.queue, b.queue);
    bucket.rate = b.rate;
    bucket.failed = b.failedRate;
    bucket.wait = PERCENTILES.map((p) => b.wait?.[p] ?? null);
    bucket.service = PERCENTILES.map((p) => b.service?.[p] ?? null);
    bucket.open ||= isOpen(b.breaker);
    for (const { reason, rate } of b.reasons) bucket.reasons[reason] = (bucket.reasons[reason] ?? 0) + rate * elapsed;
  }

  // Dense columns with nulls where nothing is known; starts where the data do.
  columns() {
    const first = this.buckets[0]?.at ?? 0, size = this.buckets.length ? this.buckets.at(-1).at - first + 1 : 0;
    const table = new Array(size).fill(null);
    for (const b of this.buckets) table[b.at - first] = b;
    const pick = (f) => table.map((b) => (b === null ? null : f(b) ?? null));
    const names = [...new Set(this.buckets.flatMap((b) => Object.keys(b.reasons)))].sort();
    return {
      times: table.map((_, i) => (first + i) * this.step),
      used: pick((b) => b.used), limit: pick((b) => b.limit), configured: pick((b) => b.configured), queue: pick((b) => b.queue),
      rate: pick((b) => b.rate), failed: pick((b) => b.failed),
      wait: PERCENTILES.map((_, k) => pick((b) => b.wait[k])), service: PERCENTILES.map((_, k) => pick((b) => b.service[k])),
      open: pick((b) => b.open), reasonNames: names, reasons: names.map((n) => pick((b) => b.reasons[n] ?? 0)),
    };
  }
}
