// The strip of five: each with its last minute, each a way into the table.
import { h, setAttr, setText, svg } from './dom.js';
import { count, latency, percent, plural, rate } from './format.js';
import { totals } from './wire.js';

const POINTS = 60;

const TILES = [
  { label: 'Calls per second', pick: 'rate', value: (t) => t.rate, show: rate,
    note: (t, n) => plural(n, 'bulkhead') },
  { label: 'Rejected, critical', pick: 'rejected', value: (t) => t.criticalShare, show: percent,
    note: (t) => (t.criticalRate > 0 ? `${rate(t.criticalRejected)} of ${rate(t.criticalRate)} per second` : 'no critical calls'),
    tone: (v) => (v >= 0.01 ? 'bad' : v > 0 ? 'warn' : null) },
  { label: 'Rejected, all', pick: 'rejected', value: (t) => t.rejectedShare, show: percent,
    note: (t) => `${rate(t.rejected)} per second`, tone: (v) => (v >= 0.05 ? 'bad' : v > 0.01 ? 'warn' : null) },
  { label: 'Waiting now', pick: 'queue', value: (t) => t.queue, show: count,
    note: (t) => (t.worstWait === null ? 'nobody waited' : `worst p99 wait ${latency(t.worstWait)}, ${t.worst}`) },
  { label: 'Open breakers', pick: 'breaker', value: (t) => t.open, show: count,
    note: (t) => (t.open ? 'calls are turned away' : 'all dependencies are let through'), tone: (v) => (v > 0 ? 'bad' : null) },
];

export class Tiles {
  constructor(root, onPick) {
    this.tiles = TILES.map((tile) => {
      const value = h('span', { class: 'value' }, '–'), note = h('span', { class: 'note' });
      const area = svg('path', { class: 'spark-area' }), line = svg('path', { class: 'spark' });
      const button = h('button', { class: 'tile', type: 'button', onclick: () => onPick(tile.pick) },
        h('span', { class: 'label' }, tile.label), value, note,
        svg('svg', { viewBox: `0 0 ${POINTS - 1} 20`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, area, line));
      root.append(button);
      return { ...tile, value_: value, note_: note, area, line, button, points: [] };
    });
  }

  // Every frame is remembered; only those that are shown are drawn.
  push(bulkheads) {
    const sums = totals(bulkheads);
    for (const tile of this.tiles) {
      tile.points.push(tile.value(sums));
      if (tile.points.length > POINTS) tile.points.shift();
    }
  }

  update(bulkheads) {
    const sums = totals(bulkheads);
    for (const tile of this.tiles) {
      const value = tile.value(sums);
      setText(tile.value_, tile.show(value));
      setText(tile.note_, tile.note(sums, bulkheads.length));
      setAttr(tile.button, 'data-tone', tile.tone?.(value) ?? null);
      const d = path(tile.points);
      setAttr(tile.line, 'd', d);
      setAttr(tile.area, 'd', d && `${d} V20 H${POINTS - tile.points.length} Z`);
    }
  }
}

export function path(points) {
  if (points.length < 2) return '';
  const top = Math.max(...points) || 1, start = POINTS - points.length;
  return points.map((v, i) => `${i ? 'L' : 'M'}${start + i} ${(18.5 - (v / top) * 16.5).toFixed(1)}`).join('');
}
