// The effects of an operation in numbers, before it is confirmed. Pure.
import { clock, count, duration, percent, plural, words } from './format.js';

const running = (n, which = '') => `${plural(n, 'running call')}${which} will finish; none are cut.`;
const perSecond = (b) => (b.rate < 1 ? 'less than one a second' : `${count(b.rate)} a second`);

export function resizeEffect(b, wanted) {
  const { max_concurrent: concurrent, max_queue: queue } = wanted, lines = [], now = `${plural(b.in_flight, 'call')} running now: `;
  if (concurrent !== null && concurrent !== b.max_concurrent) {
    lines.push(`Max concurrent ${b.max_concurrent} → ${concurrent}.`, b.in_flight > concurrent
      ? `${now}${count(b.in_flight - concurrent)} above the new maximum will finish; none are cut. New calls wait or are rejected until then.`
      : concurrent > b.max_concurrent && b.waiting ? `${plural(Math.min(b.waiting, concurrent - b.in_flight), 'waiting call')} can start at once.`
      : `${now}${b.in_flight ? 'all continue' : 'none is affected'}.`);
    if (b.ceiling) lines.push(`The adaptive limiter moves it between ${b.floor} and ${b.ceiling}: the server may reject a fixed value.`);
  }
  if (queue !== null && queue !== b.max_queue) {
    lines.push(`Max queue ${b.max_queue} → ${queue}.`);
    if (b.waiting > queue) {
      lines.push(`${plural(b.waiting, 'call')} waiting now: all keep their place, new ones are rejected until ${count(queue)} or fewer wait.`);
    }
  }
  if (!lines.length) lines.push('Nothing changes: these values are in force.');
  return [...lines, ...b.overrides.filter((o) => wanted[o.field] === o.to).map((o) => `The override ${words(o.field)} ${o.to} is prolonged.`)];
}

export const openEffect = (b) => [`Every new call of ${b.name} is rejected at once (breaker_open): about ${perSecond(b)} now.`,
  b.in_flight ? running(b.in_flight) : 'No call is running.'];
export const closedEffect = (b) => [`Every call of ${b.name} is admitted, also if calls fail: about ${perSecond(b)} now.`,
  `Of its last ${plural(b.breaker.calls, 'call')}, ${percent(b.breaker.failures / (b.breaker.calls || 1))} failed. The breaker does not protect it meanwhile.`];
export const autoEffect = () => ['The breaker decides again: it starts closed, with an empty window.'];

export const drainEffect = (b) => [`No new call of ${b.name} is admitted: about ${perSecond(b)} will be rejected.`,
  b.in_flight || b.waiting ? `${running(b.in_flight)} ${plural(b.waiting, 'waiting call')} stay in the queue.` : 'No call runs or waits: it is idle at once.'];
export const resumeEffect = (b) => [`New calls of ${b.name} are admitted again, up to ${b.max_concurrent} at once.`];

export const faultEffect = (b) => [`The calls of ${b.name} are made as they are again; those that are delayed finish their latency.`];

export const FORCED = ['breaker', 'drain', 'fault']; // not settings
export const revertEffect = (b) => b.overrides.filter((o) => !FORCED.includes(o.field)).map(({ field, from, to }) => `${words(field)}: ${to ?? '–'} → ${from ?? '–'}.` +
  (field === 'max_concurrent' && b.in_flight > from ? ` ${running(b.in_flight - from, ' above it')}` : ''));

export const until = (ttl, now) => `Ends by itself at ${clock(now + ttl)}, in ${duration(ttl)}.`;

const left = (o, now) => (o.expires ? `${duration(o.expires - now)} left` : 'until reverted');
export const describeDrain = (b, o, now) => `draining, ${plural(b.in_flight, 'call')} in flight${o.by ? `, ${o.by}, ${left(o, now)}` : ''}`;
// The lease of a bulkhead with scope: fleet, as its badge says it.
export const describeFleet = (f) => [`fleet ${f.state}${f.degraded_for ? ` ${duration(f.degraded_for)}, ${words(f.when_cut_off)}` : ''}`, f.mode, plural(f.members, 'member'),
  `holds ${f.held}, needs ${f.needed}`, f.state === 'joining' ? 'no lease yet' : `lease ${duration(f.lease_age)} old`, f.pooling_loss >= 0.001 && `${percent(f.pooling_loss)} of calls find no unit here`, f.problem].filter(Boolean).join(' · ');

// All members of a fleet, of which a page shows some.
export const describeList = (l, shown) => [plural(l.leased, 'member'), `${count(l.held)} units held, ${count(l.needed)} needed`, l.lapsed > 0 && `${count(l.lapsed)} lapsed with ${count(l.lapsed_held)} units`,
  shown < l.leased + l.lapsed && `the first ${count(shown)} of ${count(l.leased + l.lapsed)}`, `${duration(l.age)} ago`].filter(Boolean).join(' · ');

export const describeOverride = (o, now) => `${words(o.field)} ${o.from ?? '–'} → ${o.to ?? '–'}, ${o.by || 'unknown'}, ${left(o, now)}`;
