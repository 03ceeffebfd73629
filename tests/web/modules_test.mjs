// The modules of the dashboard that need no browser: what the wire becomes, how numbers read, what a control promises.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import * as format from '../../control/web/format.js';
import * as effects from '../../control/web/effects.js';
import { curl } from '../../control/web/api.js';
import { toView, totals } from '../../control/web/wire.js';
import { dense, makeHistory } from '../../control/web/history.js';
import { backoff, eventParser, makeStream } from '../../control/web/stream.js';
import { stack } from '../../control/web/charts.js';
import { matches, ordered } from '../../control/web/table.js';

// As the schema of the control plane promises them.
const bulkhead = (more = {}) => ({ name: 'db', type: '', group: '', criticality: 'normal', max_concurrent: 20, in_flight: 17, peak: more.in_flight ?? 17, waiting: 4, max_queue: 50,
  rate: 100, rejected_rate: 0, rejected: {}, wait: null, service: null, total: { rejected: 0 }, breaker: null, overrides: [], ...more });
const document = (bulkheads, more = {}) => ({ seq: 1, time: 1000, bulkheads, tenants: [], events: [], ...more });
const viewOf = (bulkheads, more) => toView(document(bulkheads, more));
const view = (more = {}) => viewOf([bulkhead(more)]).bulkheads[0];

test('counts have three digits that matter', () => {
  assert.deepEqual([0, 999, 9999, 12_345, 123_456, 999_499, 999_500, 1_500_000, 2_000_000_000].map(format.count),
    ['0', '999', '9999', '12.3k', '123k', '999k', '1M', '1.5M', '2G']);
  assert.equal(format.count(null), '–');
  assert.equal(format.count(NaN), '–');
});

test('a small rate and a small share are not nothing, and almost all is not all', () => {
  assert.deepEqual([0, 0.01, 0.25, 9.94, 12.4].map(format.rate), ['0', '<0.1', '0.3', '9.9', '12']);
  assert.deepEqual([0, 0.0001, 0.034, 0.5, 0.9994, 1].map(format.percent), ['0%', '<0.1%', '3.4%', '50%', '>99.9%', '100%']);
  assert.equal(format.percent(0.996), '99%');
  assert.equal(format.percent(1.25), '125%');
});

test('latencies and durations choose their unit', () => {
  assert.deepEqual([0, 0.00001, 0.0012, 0.0213, 0.5, 0.9999, 1.234, 42, 600].map(format.latency),
    ['0 ms', '<0.1 ms', '1.2 ms', '21 ms', '500 ms', '1 s', '1.23 s', '42 s', '10m']);
  assert.deepEqual([0, 59.9, 60, 754, 3600, 3725, 90_000].map(format.duration),
    ['0s', '59s', '1m', '12m 34s', '1h', '1h 2m', '1d 1h']);
  assert.equal(format.duration(-5), '0s');
});

test('a document with nothing in it is a view with nothing in it, and a bulkhead nobody calls is well', () => {
  assert.deepEqual(viewOf([]), document([]));
  const idle = view({ in_flight: 0, max_concurrent: 0, waiting: 0, rate: 0 });
  assert.deepEqual([idle.used, idle.share, idle.health, idle.idle, idle.wait, idle.service], [0, 0, 'ok', true, [], []]);
});

test('health: lost calls are bad, sooner for a critical bulkhead; being worked on is a warning', () => {
  assert.equal(view().health, 'ok');
  assert.equal(view({ rejected_rate: 2 }).health, 'warn');
  assert.equal(view({ rejected_rate: 2, criticality: 'critical' }).health, 'bad');
  assert.equal(view({ rejected_rate: 5 }).health, 'bad');
  assert.equal(view({ in_flight: 18 }).health, 'warn');
  assert.equal(view({ waiting: 25 }).health, 'warn');
  assert.equal(view({ draining: true }).health, 'warn');
  assert.equal(view({ overrides: [{ field: 'max_concurrent', from: 20, to: 40 }] }).health, 'warn');
  assert.equal(view({ breaker: { state: 'open', mode: 'automatic' } }).health, 'bad');
  assert.equal(view({ breaker: { state: 'closed', mode: 'forced_open' } }).health, 'bad');
  assert.equal(view({ breaker: { state: 'half_open', mode: 'automatic' } }).health, 'warn');
  assert.equal(view({ breaker: { state: 'open', mode: 'disabled' } }).health, 'ok');
});

test('a forced breaker is called what it was forced to', () => {
  assert.equal(view({ breaker: { state: 'open', mode: 'automatic' } }).circuit, 'open');
  assert.equal(view({ breaker: { state: 'open', mode: 'forced_closed' } }).circuit, 'forced_closed');
  assert.equal(view({ breaker: { state: 'open', mode: 'forced_closed' } }).open, false);
  assert.equal(view().circuit, 'none');
});

test('bulkheads of tenants are no rows: the busiest stand with their template', () => {
  const many = Array.from({ length: 30 }, (_, i) => ({ name: `t/${i}`, tenants: 't', tenant: `c${i}`, in_flight: i, rejected_rate: i === 3 ? 1 : 0 }));
  const v = viewOf([bulkhead(), ...many], { tenants: [{ name: 't', live: 30, max: 100 }] });
  assert.deepEqual(v.bulkheads.map((b) => b.name), ['db']);
  assert.equal(v.tenants[0].top.length, 20);
  assert.deepEqual(v.tenants[0].top.slice(0, 2).map((t) => t.tenant), ['c3', 'c29']);
});

test('tiles add rates up and never average percentiles', () => {
  const v = viewOf([
    bulkhead({ name: 'a', criticality: 'critical', rate: 100, rejected_rate: 1, wait: [0, 0, 0.2] }),
    bulkhead({ name: 'b', rate: 300, rejected_rate: 39, wait: [0, 0, 0.1], breaker: { state: 'open', mode: 'automatic' } }), bulkhead({ name: 'c', rate: 0, waiting: 0 })]);
  const t = totals(v.bulkheads);
  assert.deepEqual([t.all, t.criticalShare, t.share, t.waiting, t.open, t.worst.wait[2], t.worst.name], [[40, 400], 0.01, 0.1, 8, 1, 0.2, 'a']);
  assert.equal(totals([]).share, 0);
});

test('pairs become columns', () => {
  assert.deepEqual(dense([[1, 5], [3, 7]], 5), [0, 5, 0, 7, 0]);
  assert.deepEqual(dense([[0, 20], [3, 40]], 5, true), [20, 20, 20, 40, 40]);
  assert.deepEqual(dense(undefined, 2), [0, 0]);
});

const cellsOf = (history, name, now, shown) => {
  const cells = new Array(shown).fill(null);
  history.each(name, now, shown, (i, b) => { cells[i] = [b.in_flight, b.max_concurrent, b.waiting, b.rejected, b.open]; });
  return cells;
};
const frame = (seq, time, more = {}, rejected = 0) =>
  viewOf([bulkhead({ total: { rejected }, ...more })], { seq, time: time + 1, events: more.events ?? [] });

test('history: what the server remembers, then what the frames add', () => {
  const history = makeHistory(1, 10);
  history.push(frame(7, 1004.2, { in_flight: 3 }, 100));
  history.load({ end: 1004, step: 1, count: 4, bulkheads: [{ name: 'db', in_flight: [null, 5, 20, 21], max_concurrent: [[0, 20]], waiting: [[2, 9]], rejected: [[3, 4]], open: [[3, 4]] }],
                 changes: [{ time: 1002, bulkhead: 'db', text: 'limit' }] });
  history.push(frame(8, 1005.2, { in_flight: 4 }, 103));
  assert.deepEqual(cellsOf(history, 'db', 1005.2, 6),
    [null, [5, 20, 0, 0, false], [20, 20, 9, 0, false], [21, 20, 0, 4, true], [3, 20, 4, 0, false], [4, 20, 4, 3, false]]);
  assert.deepEqual(history.find('db', 1003), { at: 1003, in_flight: 21, mean: 21, max_concurrent: 20, waiting: 0, rejected: 4, open: true });
  assert.equal(history.find('db', 1000), null);
  assert.equal(history.timeOf(1005.2, 6, 0), 1000);
  assert.deepEqual(history.summary('db', 1005.2, 6), { peak: 1.05, column: 3, rejected: 7, open: 1 });
});

test('history: in a bucket of three seconds the fullest moment, the longest line, the sum', () => {
  const history = makeHistory(3, 10);
  history.push(frame(1, 999, { in_flight: 1, peak: 9 }, 0));
  history.push(frame(2, 1000, { in_flight: 5, max_concurrent: 40, waiting: 1 }, 2));
  history.push(frame(3, 1001, { in_flight: 2, waiting: 8 }, 5));
  assert.deepEqual(cellsOf(history, 'db', 1001, 1), [[9, 20, 8, 5, false]]);
});

test('history: a late frame leaves no hole, a lost connection does, a new process counts from nothing', () => {
  const history = makeHistory(1, 20);
  history.push(frame(1, 1000.9, { in_flight: 1 }, 50));
  history.push(frame(2, 1002.1, { in_flight: 2 }, 50));
  assert.deepEqual(cellsOf(history, 'db', 1002.1, 3).map((c) => c?.[0]), [1, 2, 2]);
  history.push(frame(13, 1013.1, { in_flight: 3 }, 80));
  assert.deepEqual(cellsOf(history, 'db', 1013.1, 3).map((c) => c?.[0]), [undefined, undefined, 3]);
  history.push(frame(1, 1015, { in_flight: 4 }, 200));
  assert.equal(history.find('db', 1015).rejected, 0);
});

test('history: a peak above a max_concurrent that moved is full, calls in flight above it are above it', () => {
  const history = makeHistory(1, 10);
  history.push(frame(1, 1000, { in_flight: 8, peak: 13, max_concurrent: 10 }));
  history.push(frame(2, 1001, { in_flight: 12, peak: 13, max_concurrent: 10 }));
  assert.deepEqual(cellsOf(history, 'db', 1001, 2).map(([used, most]) => used / most), [1, 1.3]);
});

test('history: rings forget what is older than they are long', () => {
  const history = makeHistory(1, 5);
  for (let i = 0; i < 12; ++i) history.push(frame(i + 1, 1000 + i, { in_flight: i }));
  assert.deepEqual(cellsOf(history, 'db', 1011, 5).map((c) => c[0]), [7, 8, 9, 10, 11]);
  assert.deepEqual(cellsOf(history, 'db', 1030, 5), [null, null, null, null, null]);
});

test('history: changes are kept once, those of breakers and adaptive limiters are left out', () => {
  const history = makeHistory(1, 100);
  const event = { id: 5, time: 1000, kind: 'override', bulkhead: 'db', text: 'limit 20 -> 40' };
  history.push(frame(1, 1001, { events: [event, { ...event, id: 6, kind: 'adaptive', time: 1000.5 }] }));
  history.push(frame(2, 1002, { events: [event] }));
  assert.deepEqual(history.changes(), [{ time: 1000, bulkhead: 'db', text: 'limit 20 -> 40', kind: 'override', automatic: false }]);
  const begun = { id: 7, time: 1004, began: 1002, ended: null, kind: 'rejecting', bulkhead: 'db', text: 'rejects calls' };
  history.push(frame(3, 1004, { events: [begun] }));
  assert.deepEqual(history.changes().at(-1), { time: 1002, bulkhead: 'db', text: 'rejects calls', kind: 'rejecting', automatic: true }, 'at its first second');
  history.push(frame(4, 1005, { events: [{ ...begun, id: 8, kind: 'full', text: 'full' }] }));
  assert.deepEqual(history.changes().map((c) => c.kind), ['override', 'rejecting', 'full'], 'two troubles may begin in one second');
});

test('history: the average of a bucket, and its peak', () => {
  const history = makeHistory(1, 10);
  history.load({ end: 1002, step: 1, count: 2, bulkheads: [{ name: 'db', in_flight: [20, 20], mean: [3.5, 19.8], max_concurrent: [[0, 20]], waiting: [], rejected: [], open: [] }], changes: [] });
  history.push(frame(1, 1002.2, { in_flight: 4, peak: 9, mean_in_flight: 4.5 }));
  assert.deepEqual([1000, 1001, 1002].map((at) => { const { mean, in_flight } = history.find('db', at); return [mean, in_flight]; }), [[3.5, 20], [19.8, 20], [4.5, 9]]);
});

test('totals: a call of a nested bulkhead counts once, also if the outer ones are switched off', () => {
  const views = (list) => viewOf(list.map((b) => bulkhead(b))).bulkheads;
  const on = totals(views([{ name: 'checkout', rate: 100, criticality: 'critical' }, { name: 'database', rate: 100, nested: true }]));
  assert.deepEqual(on.all, [0, 100]);
  const off = totals(views([{ name: 'checkout', rate: 100, enabled: false }, { name: 'database', rate: 100, rejected_rate: 40, nested: true, criticality: 'critical' }]));
  assert.deepEqual([off.all, off.share, off.criticalShare, off.critical.name], [[40, 100], 0.4, 0.4, 'database']);
});

test('history of one: percentiles and reasons too, holes are null, and a history of all leaves them', () => {
  const history = makeHistory(12);
  history.push(frame(1, 1213, { in_flight: 9, peak: 11, rejected: { timeout: 2 }, service: [0.1, 0.2, 0.3] }));
  history.push(frame(2, 1215, { in_flight: 9, rejected: { timeout: 1 }, service: [0.1, 0.2, 0.4] }));
  const all = { end: 1200, step: 12, count: 3, bulkheads: [{ name: 'db', in_flight: [1, null, 3], max_concurrent: [[0, 20]], open: [[2, 3]] }] };
  history.load({ ...all, bulkheads: [{ ...all.bulkheads[0], rate: [5, null, 7], failed_rate: [0, null, 0], configured_max_concurrent: [[0, 20]],
    wait: { p50: [0, null, 0.1], p90: [0, null, 0.2], p99: [0, null, 0.3] }, service: { p50: [null, null, null], p90: [null, null, null], p99: [null, null, null] }, reasons: { queue_limit: [[2, 6]] } }] });
  history.load(all);
  const table = history.table('db'), column = (read) => table.map(({ bucket }) => bucket && (read(bucket) ?? null));
  assert.deepEqual(table.map((row) => row.time), [1164, 1176, 1188, 1200, 1212]);
  assert.deepEqual(column((b) => b.in_flight), [1, null, 3, null, 11]);
  assert.deepEqual(column((b) => b.rate), [5, null, 7, null, 100]);
  assert.deepEqual(column((b) => b.wait[2]), [0, null, 0.3, null, null]);
  assert.deepEqual(column((b) => b.service[2]), [null, null, null, null, 0.4]);
  assert.deepEqual(column((b) => b.reasons), [{ queue_limit: 0 }, null, { queue_limit: 6 }, null, { timeout: 4 }]); // 2 in a second, 1 a second for two
  assert.deepEqual(column((b) => b.open), [false, null, true, null, false]);
  assert.deepEqual(makeHistory(1).table('nobody'), []);
});

test('charts: stacks from the last column up', () => {
  assert.deepEqual(stack([[1, null, 2], [3, null, 0], [5, null, 1]]), [[9, null, 3], [8, null, 1], [5, null, 1]]);
});

test('the table opens with what is wrong, then with what matters', () => {
  const all = viewOf([bulkhead({ name: 'z', criticality: 'critical' }), bulkhead({ name: 'a' }), bulkhead({ name: 'm', rejected_rate: 50 }),
    bulkhead({ name: 'b', in_flight: 2 })]).bulkheads;
  assert.deepEqual(ordered(all, { key: 'health' }).map((b) => b.name), ['m', 'z', 'a', 'b']);
  assert.deepEqual(ordered(all, { key: 'used', up: true }).map((b) => b.name), ['b', 'a', 'm', 'z']);
  assert.deepEqual(ordered(all, { key: 'name', up: false }).map((b) => b.name), ['z', 'm', 'b', 'a']);
  assert.deepEqual(all.filter((b) => matches(b, { text: ' M ', unhealthy: false })).map((b) => b.name), ['m']);
  assert.deepEqual(all.filter((b) => matches(b, { text: '', unhealthy: true })).map((b) => b.name), ['m']);
});

test('a resize says who is affected, in numbers', () => {
  const b = view();
  assert.match(effects.resizeEffect(b, { max_concurrent: 14, max_queue: null }).join(' '), /20 → 14\. 17 calls running now: 3 above the new maximum will finish; none are cut/);
  assert.match(effects.resizeEffect(b, { max_concurrent: 40, max_queue: null }).join(' '), /4 waiting calls can start at once/);
  assert.match(effects.resizeEffect(b, { max_concurrent: 19, max_queue: null }).join(' '), /17 calls running now: all continue/);
  assert.match(effects.resizeEffect(b, { max_concurrent: 20, max_queue: 2 }).join(' '), /Max queue 50 → 2\. 4 calls waiting now: all keep their place/);
  assert.match(effects.resizeEffect(b, { max_concurrent: 20, max_queue: 50 }).join(' '), /Nothing changes/);
  assert.match(effects.resizeEffect(view({ in_flight: 1, waiting: 0 }), { max_concurrent: 30, max_queue: null }).join(' '), /1 call running now/);
  const overridden = view({ overrides: [{ field: 'max_concurrent', from: 30, to: 20 }, { field: 'breaker', to: 'forced_open' }] });
  assert.deepEqual(effects.resizeEffect(overridden, { max_concurrent: 20, max_queue: 60 }), ['Max queue 50 → 60.', 'The override max concurrent 20 is prolonged.']);
  assert.doesNotMatch(effects.resizeEffect(overridden, { max_concurrent: 19, max_queue: 50 }).join(' '), /prolonged/);
});

test('breakers, drains and reverts say it too', () => {
  const b = view({ overrides: [{ field: 'max_concurrent', from: 10, to: 20, by: 'ann', expires: 1720 }], breaker: { state: 'open', calls: 100, failures: 61 } });
  assert.match(effects.openEffect(b).join(' '), /about 100 a second now\. 17 running calls will finish; none are cut/);
  assert.match(effects.closedEffect(b).join(' '), /last 100 calls, 61% failed/);
  assert.match(effects.drainEffect(b).join(' '), /17 running calls will finish; none are cut\. 4 waiting calls/);
  assert.match(effects.drainEffect(view({ in_flight: 0, waiting: 0 })).join(' '), /idle at once/);
  assert.deepEqual(effects.revertEffect(b), ['max concurrent: 20 → 10. 7 running calls above it will finish; none are cut.']);
  assert.equal(effects.describeOverride(b.overrides[0], 1000), 'max concurrent 10 → 20, ann, 12m left');
});

test('a command survives the names people give', () => {
  assert.equal(curl('PUT', "overrides/it's", { reason: "don't" }, 'http://h/p/v1/'),
    `curl -X PUT -H "Authorization: Bearer $BULKHEAD_TOKEN" -H 'Content-Type: application/json' -d '{"reason":"don'\\''t"}' 'http://h/p/v1/overrides/it'\\''s'`);
  assert.equal(curl('GET', 'bulkheads/a%2Fb', null, 'http://h/v1/'), "curl 'http://h/v1/bulkheads/a%2Fb'");
});

test('events are read whatever the chunks', () => {
  const text = ': hello\r\nevent: snapshot\r\nid: 4\r\ndata: {"a":\r\ndata: 1}\r\n\r\n\ndata:x\n\nevent: later\n\ndata: y\n\n';
  for (const size of [1, 2, 3, 7, 1000]) {
    const seen = [];
    const feed = eventParser((event, data) => seen.push([event, data]));
    for (let i = 0; i < text.length; i += size) feed(text.slice(i, i + size));
    assert.deepEqual(seen, [['snapshot', '{"a":\n1}'], ['message', 'x'], ['message', 'y']], `chunks of ${size}`);
  }
});

test('it tries again after 1, 2, 4, 8, 15 and 15 seconds', () => {
  assert.deepEqual([1, 2, 3, 4, 5, 6, 60].map(backoff), [1000, 2000, 4000, 8000, 15_000, 15_000, 15_000]);
});

const body = (...chunks) => new Response(new ReadableStream({ start(c) { for (const x of chunks) c.enqueue(new TextEncoder().encode(x)); c.close(); } }));

test('the stream: frames, then the end of the connection, then another try', async () => {
  const log = [];
  let opened = 0;
  const stream = makeStream(
    async () => { opened += 1; if (opened > 1) stream.stop(); return body('event: snapshot\ndata: {"seq":1}\n\nevent: snapshot\nda', 'ta: {"seq":2}\n\n'); },
    async () => assert.fail('nobody polls'), (doc) => log.push(doc.seq),
    ({ state }) => { if (log.at(-1) !== state) log.push(state); if (state === 'waiting') queueMicrotask(() => stream.wake()); },
  );
  await stream.start();
  assert.deepEqual(log.slice(0, 7), ['connecting', 'live', 1, 'live', 2, 'waiting', 'connecting']);
});

test('the stream: a full server is polled, a closed one asks for a token', async () => {
  const log = [];
  const answers = [new Response('', { status: 503 }), new Response('', { status: 401 })];
  const stream = makeStream(
    async () => answers.shift() ?? (stream.stop(), new Response('', { status: 500 })),
    async () => new Response('{"seq":9}'), (doc) => log.push(doc.seq),
    ({ state }) => { if (log.at(-1) !== state) log.push(state);
      if (state === 'unauthorised' || (state === 'polling' && log.at(-1) === 'polling')) setTimeout(() => stream.wake(), 0); },
  );
  await stream.start();
  assert.deepEqual(log, ['connecting', 'polling', 9, 'polling', 'connecting', 'unauthorised', 'connecting']);
});

test('the script that is served is all modules in one, unchanged but for imports and exports', () => {
  const joined = readFileSync(process.env.MAIN_JS ?? new URL('../../build/dev/control/main.js', import.meta.url), 'utf8');
  const { status, stderr } = spawnSync(process.execPath, ['--check', '--input-type=module', '-'], { input: joined, encoding: 'utf8' });
  assert.equal(status, 0, stderr); // a name at the top level of two modules, for example
  const folder = new URL('../../control/web/', import.meta.url);
  const seen = new Set();
  for (const file of readdirSync(folder).filter((name) => name.endsWith('.js'))) {
    const source = readFileSync(new URL(file, folder), 'utf8');
    for (const line of source.split('\n')) {
      if (/^import\b/.test(line)) assert.match(line, /^import \{ [\w$, ]+ \} from '\.\/\w+\.js';$/, `${file}: an import is one line without renaming`);
      else seen.add(line.replace(/^export (?=const|let|class|function|async function)/, ''));
    }
  }
  for (const line of joined.split('\n')) assert.ok(seen.has(line), `not a line of any module: ${line}`);
  assert.doesNotMatch(joined, /^(import|export)\b/m);
});

test('the list of a fleet tells the sums, who has lapsed, and how many are shown', () => {
  const list = { age: 2.2, leased: 3, lapsed: 0, held: 41, needed: 38, lapsed_held: 0 };
  assert.equal(effects.describeList(list, 3), '3 members · 41 units held, 38 needed · 2s ago');
  assert.equal(effects.describeList({ ...list, leased: 120, lapsed: 2, lapsed_held: 6 }, 100), '120 members · 41 units held, 38 needed · 2 lapsed with 6 units · the first 100 of 122 · 2s ago');
});

test('the badge of a fleet tells state, mode, members, units, the age of the lease, and what is wrong', () => {
  const fleet = { state: 'leased', mode: 'block', when_cut_off: 'safe_share', members: 3, held: 7, needed: 5, lease_age: 0.4, degraded_for: 0, pooling_loss: 0, problem: '' };
  assert.equal(effects.describeFleet(fleet), 'fleet leased · block · 3 members · holds 7, needs 5 · lease 0s old');
  assert.equal(effects.describeFleet({ ...fleet, members: 1, pooling_loss: 0.127 }), 'fleet leased · block · 1 member · holds 7, needs 5 · lease 0s old · 13% of calls find no unit here');
  assert.equal(effects.describeFleet({ ...fleet, state: 'degraded', mode: 'direct', degraded_for: 75, lease_age: 80, problem: 'redis://limits:6379: no answer in time' }),
    'fleet degraded 1m 15s, safe share · direct · 3 members · holds 7, needs 5 · lease 1m 20s old · redis://limits:6379: no answer in time');
  assert.equal(effects.describeFleet({ ...fleet, state: 'joining', members: 0, held: 0, lease_age: 0 }), 'fleet joining · block · 0 members · holds 0, needs 5 · no lease yet');
});
