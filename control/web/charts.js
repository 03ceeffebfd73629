// A time series of one bulkhead, drawn by uPlot, which index.html loads first: lines, steps, areas or stacked bars, one cursor over
// all charts, the values under it in the head, else the newest. Gaps stay gaps.
import { colour, h } from './dom.js';
import { clock } from './format.js';

// series: [{label, colour, read(bucket), ...options of uPlot}]. `step`: seconds of a bucket. `behind(plot)` paints behind the
// lines. `bars`: stacked, the first on top. Its set() takes the table of a history.
export function chart(host, { title, series, format, step, behind, bars, height = 112, least = 1 }) {
  let plain = []; // the values that the head shows; the drawn ones are stacked
  const head = h('div.chart-head', h('h3', title)), root = h('div.chart', head);
  host.append(root);
  const axis = { stroke: colour('fg-3'), font: '11px system-ui, sans-serif', ticks: { show: false }, grid: { stroke: colour('line-soft'), width: 1 } };
  const plot = new uPlot({
    width: 300, height, padding: [8, 6, 0, 0],
    cursor: { y: false, drag: { x: false }, sync: { key: 'detail' } },
    legend: { mount: (_, legend) => head.append(legend), markers: { width: 0, fill: (_, i) => colour(series[i - 1]?.colour) } },
    scales: {
      x: { range: (_, from, to) => [Math.min(from, to + step - 60), to + step] }, // at least a minute
      y: { range: (_, from, to) => [0, Math.max(least, to * 1.15)] },
    },
    axes: [
      { ...axis, grid: { show: false }, size: 24, gap: 6, space: 72, values: (_, times, a, b, every) => times.map((t) => clock(t).slice(0, every < 60 ? 8 : 5)) },
      { ...axis, size: 56, space: 34, values: (_, splits) => splits.map((n) => (n % 1 && least === 1 ? '' : format(n))) },
    ],
    series: [{ label: ' ', value: (_, time, a, i) => (i === null ? 'latest' : clock(time)) }, ...series.map((s) => ({
      width: bars ? 0 : 1.5, paths: bars && uPlot.paths.bars({ size: [0.85], align: 1 }), points: { show: () => false }, ...s, stroke: colour(s.colour), fill: s.fill && colour(s.colour) + s.fill,
      value: (_, n, k, i) => format(i === null ? plain[k - 1]?.findLast((x) => x !== null) : plain[k - 1][i]),
    }))],
    hooks: { drawAxes: [(u) => behind?.(u)] },
  }, [[], ...series.map(() => [])], root);
  // Touch has no hover: the cursor follows the finger.
  plot.over.onpointermove = (e) => { if (e.pointerType === 'touch') plot.setCursor({ left: e.offsetX, top: 0 }, true, true); };
  const observer = new ResizeObserver(() => plot.setSize({ width: head.clientWidth, height }));
  observer.observe(head);
  return {
    set(table) {
      plain = series.map((s) => table.map(({ bucket }) => bucket && (s.read(bucket) ?? null)));
      plot.setData([table.map((row) => row.time), ...(bars ? stack(plain) : plain)]);
    },
    destroy() {
      observer.disconnect();
      plot.destroy();
    },
  };
}

export const stepped = () => uPlot.paths.stepped({ align: 1 });

// Sums from the last column up, for bars painted from the tallest down.
export const stack = (columns) => columns.map((column, k) =>
  column.map((n, i) => n === null ? null : columns.slice(k).reduce((sum, c) => sum + c[i], 0)));
