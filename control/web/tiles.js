// The five tiles: each shows its last minute, and sorts the table when clicked.
import { h, put, svg } from './dom.js';
import { count, latency, percent, plural, rate } from './format.js';
import { totals } from './wire.js';

const POINTS = 60;

// label, column of the table, value of the totals, how it is shown, note, from where it is a warning and bad
const TILES = [
  ['Calls per second', 'rate', (t) => t.all[1], rate, (t, n) => plural(n, 'bulkhead')],
  ['Rejected, critical', 'rejected', (t) => t.criticalShare, percent,
    ({ critical }) => (!critical ? 'no critical bulkhead' : critical.share ? `worst: ${critical.name}, ${rate(critical.rejected_rate)} per second` : 'none'), 0, 0.01],
  ['Rejected, all', 'rejected', (t) => t.share, percent, (t) => `${rate(t.all[0])} per second`, 0.01, 0.05],
  ['Waiting now', 'waiting', (t) => t.waiting, count, ({ worst }) => (worst ? `worst p99 wait ${latency(worst.wait[2])}, ${worst.name}` : 'no call waited')],
  ['Open breakers', 'breaker', (t) => t.open, count, (t) => (t.open ? 'calls are rejected' : 'no breaker is open'), 0, 1],
];

export function makeTiles(root, onPick) {
  const points = TILES.map(() => []);

  // Every frame is recorded, also while the page is paused.
  function push(bulkheads) {
    const sums = totals(bulkheads);
    TILES.forEach(([, , read], i) => { points[i] = [...points[i], read(sums)].slice(-POINTS); });
  }

  // The minute before the page was opened, from GET /v1/history.
  function load({ calls, rejected, critical, waiting, open }) {
    const share = rejected.map((n, i) => (calls[i] ? Math.min(1, n / calls[i]) : 0));
    [calls, critical, share, waiting, open].forEach((before, i) => { points[i] = before.slice(-POINTS); });
  }

  function update(bulkheads) {
    const sums = totals(bulkheads);
    put(root, TILES.map(([label, column, read, show, note, warn, bad], i) => {
      const n = read(sums), top = Math.max(...points[i]) || 1, start = POINTS - points[i].length;
      const line = points[i].map((v, at) => `${start + at},${(18.5 - (v / top) * 16.5).toFixed(1)}`).join(' ');
      return h('button.tile', { 'data-tone': n >= bad ? 'bad' : n > warn && 'warn', onclick: () => onPick(column) },
        h('span.label', label), h('span.value', show(n)), h('span.note', note(sums, bulkheads.length)),
        svg('svg', { viewBox: `0 0 ${POINTS - 1} 20`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
          svg('polygon.spark-area', { points: `${line} ${POINTS - 1},20 ${start},20` }), svg('polyline.spark', { points: line })));
    }));
  }

  return { push, load, update };
}
