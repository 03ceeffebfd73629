// What a control will do, in numbers, before it is done; and the same as a command for a shell. Pure.
import { clock, count, duration, plural } from './format.js';

const HELD = 'none are cut';

export function resizeEffect(b, { limit, queue }) {
  const lines = [];
  if (limit !== null && limit !== b.limit) {
    lines.push(`Limit ${b.limit} → ${limit}.`);
    const over = b.inFlight - limit;
    if (over > 0) {
      lines.push(`${plural(b.inFlight, 'call')} running now: ${count(over)} above the new limit will finish; ${HELD}. ` +
        'New calls wait or are rejected until then.');
    } else if (limit > b.limit && b.queue > 0) {
      lines.push(`${plural(Math.min(b.queue, limit - b.inFlight), 'waiting call')} can start at once.`);
    } else {
      lines.push(`${plural(b.inFlight, 'call')} running now: ${b.inFlight === 0 ? 'nobody is affected' : 'all stay'}.`);
    }
    if (b.floor !== null) lines.push(`Its adaptive limit moves by itself between ${b.floor} and ${b.ceiling}: the server may refuse to fix it.`);
  }
  if (queue !== null && queue !== b.queueLimit) {
    lines.push(`Queue ${b.queueLimit} → ${queue}.`);
    if (b.queue > queue) {
      lines.push(`${plural(b.queue, 'call')} waiting now: all keep their place, new ones are rejected until ${count(queue)} or fewer wait.`);
    }
  }
  return lines.length ? lines : ['Nothing changes: these are the numbers in force.'];
}

export function breakerEffect(b, state) {
  if (state === 'open') {
    return [`Every new call of ${b.name} is rejected at once (breaker_open): about ${perSecond(b.rate)} now.`,
            b.inFlight ? `${plural(b.inFlight, 'running call')} will finish; ${HELD}.` : 'No call is running.'];
  }
  if (state === 'closed') {
    const failing = b.breaker && b.breaker.calls > 0 ? Math.round((100 * b.breaker.failures) / b.breaker.calls) : 0;
    return [`Every call of ${b.name} is let through, whatever fails: about ${perSecond(b.rate)} now.`,
            `Of its last ${plural(b.breaker?.calls ?? 0, 'call')}, ${failing}% failed. The breaker does not protect it meanwhile.`];
  }
  return ['The breaker judges again by itself: closed, with an empty window.'];
}

export function drainEffect(b) {
  return [`No new call of ${b.name} is admitted: about ${perSecond(b.rate)} will be rejected.`,
          b.inFlight || b.queue
            ? `${plural(b.inFlight, 'running call')} will finish; ${HELD}. ${plural(b.queue, 'waiting call')} in line now.`
            : 'Nothing runs and nothing waits: it is empty at once.'];
}

export function revertEffect(b) {
  return b.overrides.map((o) => {
    const back = `${o.field}: ${value(o.to)} → ${value(o.from)}.`;
    const over = o.field === 'limit' ? b.inFlight - Number(o.from) : 0;
    return over > 0 ? `${back} ${plural(over, 'running call')} above it will finish; ${HELD}.` : back;
  });
}

export const until = (ttl, now) => `Ends by itself at ${clock(now + ttl)}, in ${duration(ttl)}.`;

export function describeOverride(o, now) {
  const left = o.expires === null ? 'until reverted' : `${duration(o.expires - now)} left`;
  return `${o.field} ${value(o.from)} → ${value(o.to)}, ${o.by || 'unknown'}, ${left}`;
}

export function curl(base, method, path, body) {
  const parts = ['curl'];
  if (method !== 'GET') parts.push('-X', method, '-H', '"Authorization: Bearer $BULKHEAD_TOKEN"');
  if (body) parts.push('-H', quote('Content-Type: application/json'), '-d', quote(JSON.stringify(body)));
  return [...parts, quote(new URL(path, base).href)].join(' ');
}

export const quote = (s) => `'${String(s).replaceAll("'", `'\\''`)}'`;
const perSecond = (rate) => (rate < 1 ? 'less than one a second' : `${count(rate)} a second`);
const value = (x) => (x === null ? '–' : String(x));
