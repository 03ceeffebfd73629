// The utilisation heatmap: bulkheads x time. The colour of a cell is the average in flight against max_concurrent, a tick the
// peak; a saturated cell has its own colour. Rows are in the order of the table. A canvas, because 200 rows of 300 cells change every
// second; only rows in sight are drawn. A hidden table tells screen readers the same.
import { $, announce, colour, grid, h, place, put } from './dom.js';
import { clock, count, duration, latency, percent, short, words } from './format.js';
import { usage } from './wire.js';

const AXIS = 22, NOW = 62, FOLD = 20, SATURATED = 0.95;

// `onPick(name, time)`: a cell was chosen. `closer(name, step)`: the pointer or cursor is on it.
export function makeHeatmap(root, onPick, closer) {
  let model, ink, cursor, mouse, spoken; // model: {history, bulkheads, order, now, shown, pinned}; cursor: {row, column}
  let order = [], stale = true, tall, label, plot, view, unfolded = false;
  $('heat-more').onclick = () => {
    unfolded = !unfolded;
    stale = true;
    update(model);
  };
  const canvas = h('canvas', { onpointermove: (e) => point(at(e), e), onpointerleave: () => point(), onclick: (e) => pick(at(e)) }), axis = h('canvas');
  const sizer = h('div', canvas), table = h('table');
  const scroll = h('div.heat-scroll', { tabindex: 0, role: 'application', 'aria-label':
    'Utilisation heatmap. Arrow keys move by bulkhead and time, Enter opens the bulkhead at that time, Escape leaves.',
    onkeydown: key, onblur: () => point(), onscroll: draw }, sizer);
  root.append(h('div.heat', scroll, axis), h('div.vh', table));
  new ResizeObserver(draw).observe(root);

  function readPalette() {
    ink = Object.fromEntries(['fg', 'fg-2', 'fg-3', 'over', 'bad', 'warn', 'accent', 'line-soft', 'sans'].map((name) => [name, colour(name)]));
    ink.hatch = stripes(colour('warn'));
  }

  function update(next) {
    const before = model;
    model = next;
    if (stale || next.order !== before?.order || next.shown !== before.shown || next.history !== before.history) reorder();
    else order = order.map((old) => next.bulkheads.find((b) => b.name === old.name)).filter(Boolean);
    draw();
    if (cursor) tell();
  }

  function reorder() {
    const { history, bulkheads, now, shown } = model, before = order[cursor?.row]?.name;
    stale = false;
    const sums = new Map(bulkheads.map((b) => [b, history.summary(b.name, now, shown)]));
    order = [...bulkheads].sort((a, b) => model.order.get(a.name) - model.order.get(b.name));
    $('heat-fold').hidden = order.length <= FOLD;
    put($('heat-more'), unfolded ? `Show ${FOLD} rows` : `Show all ${order.length} rows`);
    if (!unfolded) order = order.slice(0, FOLD);
    if (before) cursor.row = Math.max(0, order.findIndex((b) => b.name === before));
    put(table, grid('Utilisation in the time shown', ['Bulkhead', 'Highest utilisation', 'At', 'Rejected', 'Breaker open'], order.map((b) => {
      const { peak, column, rejected, open } = sums.get(b);
      return [b.name, percent(peak), column < 0 ? 'no data' : clock(timeOf(column)), count(rejected), open ? duration(open) : 'never'];
    })));
  }

  const timeOf = (column) => model.history.timeOf(model.now, model.shown, column);
  const ofNoRow = (name) => !model.bulkheads.some((b) => b.name === name); // of a pool, or of the process: it concerns all rows
  const xOf = (column) => label + Math.round((column * plot) / model.shown);
  const columnAt = (time) => (time - timeOf(0)) / model.history.step;

  function draw() {
    const width = scroll.clientWidth, rows = order.length, top = scroll.scrollTop;
    if (!model || !width) return;
    tall = rows > 60 ? 15 : rows > 12 ? 16 : 24; // twenty rows leave room for the top of the table
    label = Math.round(Math.max(86, Math.min(210, width * 0.15)));
    plot = Math.max(40, width - label - NOW);
    view = Math.min(rows * tall, window.innerHeight * 0.46, 460);
    sizer.style.height = `${rows * tall}px`;
    scroll.style.height = `${view}px`;
    const c = sized(canvas, width, Math.max(1, view));
    for (let row = Math.floor(top / tall); row < Math.min(rows, (top + view) / tall); ++row) drawRow(c, row, row * tall - top);
    drawRules(c, top);
    drawAxis(sized(axis, width, AXIS));
  }

  function drawRow(c, row, y) {
    const b = order[row], big = tall > 16, high = tall - (big ? 3 : 2), here = cursor?.row === row, notch = Math.max(3, high * 0.22), middle = y + high / 2 + 0.5;
    c.font = `${b.criticality === 'critical' ? 600 : 400} ${big ? 12 : 11}px ${ink.sans}`;
    c.textBaseline = 'middle';
    c.textAlign = 'left';
    c.fillStyle = here ? ink.accent : b.health === 'bad' ? ink.bad : ink['fg-2'];
    c.fillText(short(b.name, Math.floor(label / 7)), 0, middle, label - 12);
    c.textAlign = 'right';
    c.fillStyle = b.used > 1 ? ink.over : b.used >= 0.9 ? ink.fg : ink['fg-3'];
    c.fillText(`${count(b.in_flight)}/${count(b.max_concurrent)}`, label + plot + NOW - 2, middle);
    model.history.each(b.name, model.now, model.shown, (i, { in_flight: used, mean = used, max_concurrent: most, rejected, open }) => {
      const x = xOf(i), share = usage(mean, most), peak = usage(used, most), wide = xOf(i + 1) - x;
      const fill = (style, from = 0) => {
        c.fillStyle = style;
        c.fillRect(x, y + from, xOf(i + 1) - x, high - from);
      };
      fill(peak > 1 ? ink.over : share >= SATURATED ? ink.warn : ink['line-soft']);
      c.globalAlpha = peak > 1 || share >= SATURATED ? 0 : share * 0.8;
      fill(ink.accent);
      c.globalAlpha = 1;
      if (share < SATURATED && peak > share && peak <= 1) { // the peak, as a tick
        c.fillStyle = peak === 1 ? ink.warn : ink['fg-3'];
        c.fillRect(x, y + Math.round((1 - peak) * (high - 2)), wide, peak === 1 ? 2 : 1);
      }
      if (rejected > 0) fill(ink.bad, high - notch);
      if (open) fill(ink.hatch);
    });
    c.strokeStyle = ink.accent;
    if (here) c.strokeRect(label - 0.5, y - 0.5, plot + 1, high + 1);
  }

  function drawRules(c, top) {
    const rule = (time, style, width, from, to, dash = []) => {
      const x = Math.round(xOf(columnAt(time))) + 0.5;
      if (x < label || x > label + plot) return;
      c.strokeStyle = style;
      c.lineWidth = width;
      c.setLineDash(dash);
      c.beginPath();
      c.moveTo(x, from);
      c.lineTo(x, to);
      c.stroke();
    };
    for (const { time, bulkhead, automatic, kind } of model.history.changes()) {
      const row = order.findIndex((b) => b.name === bulkhead), y = row * tall - top;
      const tint = !automatic ? ink.fg : kind === 'recovered' ? ink.accent : ink.bad;
      if (!automatic || ofNoRow(bulkhead)) rule(time, tint, 1, 0, view, [1, 3]);
      if (row >= 0) rule(time, tint, 2, y, y + tall - 3);
    }
    if (model.pinned) rule(model.pinned, ink.accent, 2, 0, view);
    if (!cursor) return;
    const { row, column } = cursor, x = xOf(column);
    c.lineWidth = 1;
    c.setLineDash([]);
    c.strokeStyle = ink.fg;
    c.strokeRect(x - 0.5, row * tall - top - 0.5, xOf(column + 1) - x + 1, tall - 2);
  }

  function drawAxis(c) {
    const from = timeOf(0), end = timeOf(model.shown), right = label + plot;
    const every = [5, 10, 15, 30, 60, 120, 300, 600].find((s) => (s / (end - from)) * plot > 76) ?? 900;
    c.font = `11px ${ink.sans}`;
    c.fillStyle = ink['fg-3'];
    c.textAlign = 'center';
    for (let t = Math.ceil(from / every) * every; t < end; t += every) {
      const x = xOf(columnAt(t));
      if (x < label + 24 || x > right - 56) continue;
      c.fillRect(x, 0, 1, 4);
      c.fillText(clock(t).slice(0, every < 60 ? 8 : 5), x, 16);
    }
    c.textAlign = 'right';
    c.fillText('now', right, 16);
  }

  function at(event) {
    const box = canvas.getBoundingClientRect(), row = Math.floor((event.clientY - box.top + scroll.scrollTop) / tall);
    const column = Math.floor(((event.clientX - box.left - label) / plot) * model?.shown);
    return order[row] && { row, column: Math.min(column, model.shown - 1) };
  }

  function point(next, event) {
    cursor = next?.column >= 0 ? next : null;
    mouse = event;
    $('tip').hidden = !cursor;
    draw();
    if (cursor) tell();
  }

  function pick(where) { // a click on a name has no time
    if (where) onPick(order[where.row].name, where.column < 0 ? null : timeOf(where.column));
  }

  function key(event) {
    const far = event.shiftKey ? 10 : 1;
    const move = { ArrowLeft: [0, -far], ArrowRight: [0, far], ArrowUp: [-far, 0], ArrowDown: [far, 0], Home: [0, -1e9], End: [0, 1e9] }[event.key];
    if (event.key === 'Escape') point();
    if (event.key === 'Enter') pick(cursor);
    if (!move || !order.length) return;
    event.preventDefault();
    const within = (n, size) => Math.max(0, Math.min(size - 1, n));
    const { row, column } = cursor ?? { row: 0, column: 1e9 }, [down, right] = cursor ? move : [0, 0];
    cursor = { row: within(row + down, order.length), column: within(column + right, model.shown) };
    mouse = null;
    const y = cursor.row * tall;
    scroll.scrollTop = Math.min(y, Math.max(scroll.scrollTop, y + tall - view));
    draw();
    tell(true);
  }

  // The tip beside the cursor; spoken when it was moved by key.
  function tell(aloud = false) {
    const b = order[cursor?.row], { history } = model, tip = $('tip'), box = canvas.getBoundingClientRect();
    if (!b) return;
    spoken = aloud;
    closer(b.name, history.step);
    const time = timeOf(cursor.column), end = time + history.step, cell = history.find(b.name, history.bucketOf(time));
    const rows = cell ? [
      ['in flight, average', count(cell.mean ?? cell.in_flight)], ['in flight, most', `${count(cell.in_flight)} of ${count(cell.max_concurrent)}`],
      ['utilisation', percent(usage(cell.mean ?? cell.in_flight, cell.max_concurrent))],
      ['waiting, most', count(cell.waiting)], ['rejected', count(cell.rejected)],
      ...(cell.wait ? [...Object.entries(cell.reasons).filter(([, n]) => n > 0).map(([reason, n]) => [`– ${words(reason)}`, count(n)]),
                       ['wait p99', latency(cell.wait[2])], ['service p99', latency(cell.service[2])]] : []),
      ...(cell.open ? [['breaker', 'open']] : []),
      ...history.changes().filter((x) => x.time >= time && x.time < end && (x.bulkhead === b.name || ofNoRow(x.bulkhead))).map((x) => [x.automatic ? words(x.kind) : 'change', x.text])] : [['no data', '']];
    put(tip, h('strong', b.name), h('span.muted', clock(time), history.step > 1 && ` – ${clock(end)}`),
      h('dl', rows.flatMap(([what, text]) => [h('dt', what), h('dd', text)])));
    tip.hidden = false;
    place(tip, 18 + (mouse?.clientX ?? box.left + xOf(cursor.column)), 12 + (mouse?.clientY ?? box.top + (cursor.row + 1) * tall - scroll.scrollTop));
    if (aloud) announce(`${b.name}, ${clock(time)}: ${rows.map((row) => row.join(' ')).join(', ')}`);
  }

  // anew(): the history has more buckets than before.
  return { update, readPalette, anew() { stale = true; }, tellAgain: () => tell(spoken) };
}

// An empty canvas that is sharp on every screen.
function sized(canvas, width, height) {
  const dpr = window.devicePixelRatio, c = canvas.getContext('2d'), size = [Math.round(width * dpr), Math.round(height * dpr)];
  if (canvas.width !== size[0] || canvas.height !== size[1]) { // a new size is a new buffer
    [canvas.width, canvas.height] = size;
    canvas.style.height = `${height}px`;
  }
  c.setTransform(dpr, 0, 0, dpr, 0, 0);
  c.clearRect(0, 0, width, height);
  return c;
}

function stripes(tint) {
  const tile = h('canvas', { width: 6, height: 6 }), c = tile.getContext('2d');
  c.strokeStyle = tint;
  c.lineWidth = 2;
  for (const d of [-6, 0, 6]) {
    c.moveTo(d - 1, 7);
    c.lineTo(d + 7, -1);
  }
  c.stroke();
  return c.createPattern(tile, 'repeat');
}
