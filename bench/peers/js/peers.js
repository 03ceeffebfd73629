// The workloads of bench/ for JavaScript: cockatiel's bulkhead and p-limit. There is one thread, so a call costs what
// its promises cost, and "threads" are asynchronous loops.
import { bulkhead } from 'cockatiel';
import pLimit from 'p-limit';

const designs = (permits, queue) => {
  const b = bulkhead(permits, queue);
  const limit = pLimit(permits);
  return [
    { name: 'floor: await an async function', call: (fn) => fn(), rejects: false, waits: false },
    { name: 'cockatiel bulkhead', call: (fn) => b.execute(fn), rejects: true, waits: true },
    { name: 'p-limit', call: (fn) => limit(fn), rejects: false, waits: true },
  ];
};

const now = () => Number(process.hrtime.bigint());
const median = (v) => [...v].sort((a, b) => a - b)[Math.floor(v.length / 2)];
const emit = (row) => console.log(JSON.stringify({ ...row, language: 'JavaScript', median: median(row.rounds) }));
const nothing = async () => {};

const window = async (call) => {
  const start = now();
  let ops = 0;
  while (now() - start < 20e6) {
    for (let i = 0; i < 200; ++i) await call();
    ops += 200;
  }
  return (now() - start) / ops;
};

const rounds = async (all, call) => {
  const result = all.map(() => []);
  for (let round = 0; round < 3; ++round) {
    const windows = all.map(() => []);
    for (let i = 0; i < 7; ++i) for (const [d, one] of all.entries()) windows[d].push(await window(call(one)));
    for (const d of all.keys()) result[d].push(median(windows[d]));
  }
  return result;
};

const admit = async () => {
  const all = designs(1000, 1000);
  const measured = await rounds(all, (one) => () => one.call(nothing));
  for (const [d, one] of all.entries())
    emit({ workload: 'admit', threads: 1, permits: 1000, section: 'empty', design: one.name, unit: 'ns', rounds: measured[d] });
};

const reject = async () => {
  const all = designs(1, 0).filter((one) => one.rejects);
  for (const one of all) {
    let letGo;
    const holder = one.call(() => new Promise((done) => (letGo = done)));
    const [measured] = await rounds([one], () => () => one.call(nothing).catch(() => {}));
    letGo();
    await holder;
    emit({ workload: 'reject', threads: 1, permits: 1, section: '', design: one.name, unit: 'ns', rounds: measured });
  }
};

const saturate = async (threads, permits, name, section) => {
  for (const one of designs(permits, 1000).filter((d) => d.waits)) {
    const times = [];
    const fair = [];
    let worst = 0;
    for (let round = 0; round < 3; ++round) {
      const counts = new Array(threads).fill(0);
      const start = now();
      const loop = async (t) => {
        for (let last = now(); last - start < 200e6; ) {
          await one.call(section);
          const next = now();
          worst = Math.max(worst, next - last);
          last = next;
          ++counts[t];
        }
      };
      await Promise.all(counts.map((_, t) => loop(t)));
      times.push((now() - start) / 1000 / counts.reduce((a, b) => a + b));
      fair.push(Math.max(...counts) / Math.max(Math.min(...counts), 1));
    }
    emit({ workload: 'saturation', threads, permits, section: name, design: one.name, unit: 'us', rounds: times,
           'max/min': median(fair), 'worst ms': worst / 1e6 });
  }
};

await admit();
await reject();
await saturate(8, 2, 'empty', nothing);
await saturate(16, 4, '1 ms of sleep', () => new Promise((done) => setTimeout(done, 1)));
