// What a control will do, in numbers, before it is done. Pure.
import { clock, count, duration, percent, plural } from './format.js';

const running = (n, which = '') => `${plural(n, 'running call')}${which} will finish; none are cut.`;
const perSecond = (b) => (b.rate < 1 ? 'less than one a second' : `${count(b.rate)} a second`);

export function resizeEffect(b, { limit, queue }) {
  const lines = [], now = `${plural(b.in_flight, 'call')} running now: `;
  if (limit !== null && limit !== b.limit) {
    lines.push(`Limit ${b.limit} → ${limit}.`, b.in_flight > limit
      ? `${now}${count(b.in_flight - limit)} above the new limit will finish; none are cut. New calls wait or are rejected until then.`
      : limit > b.limit && b.queue ? `${plural(Math.min(b.queue, limit - b.in_flight), 'waiting call')} can start at once.`
      : `${now}${b.in_flight ? 'all stay' : 'nobody is affected'}.`);
    if (b.ceiling) lines.push(`Its adaptive limit moves by itself between ${b.floor} and ${b.ceiling}: the server may refuse to fix it.`);
  }
  if (queue !== null && queue !== b.queue_limit) {
    lines.push(`Queue ${b.queue_limit} → ${queue}.`);
    if (b.queue > queue) {
      lines.push(`${plural(b.queue, 'call')} waiting now: all keep their place, new ones are rejected until ${count(queue)} or fewer wait.`);
    }
  }
  if (!lines.length) lines.push('Nothing changes: these are the numbers in force.');
  return [...lines, ...b.overrides.filter((o) => ({ limit, queue })[o.field] === o.to).map((o) => `The ${o.field} stays ${o.to} as long.`)];
}

export const openEffect = (b) => [`Every new call of ${b.name} is rejected at once (breaker_open): about ${perSecond(b)} now.`,
  b.in_flight ? running(b.in_flight) : 'No call is running.'];
export const closedEffect = (b) => [`Every call of ${b.name} is let through, whatever fails: about ${perSecond(b)} now.`,
  `Of its last ${plural(b.breaker.calls, 'call')}, ${percent(b.breaker.failures / (b.breaker.calls || 1))} failed. The breaker does not protect it meanwhile.`];
export const autoEffect = () => ['The breaker judges again by itself: closed, with an empty window.'];

export const drainEffect = (b) => [`No new call of ${b.name} is admitted: about ${perSecond(b)} will be rejected.`,
  b.in_flight || b.queue ? `${running(b.in_flight)} ${plural(b.queue, 'waiting call')} in line now.` : 'Nothing runs and nothing waits: it is empty at once.'];
export const resumeEffect = (b) => [`New calls of ${b.name} are admitted again, up to ${b.limit} at once.`];

export const revertEffect = (b) => b.overrides.map(({ field, from, to }) => `${field}: ${to ?? '–'} → ${from ?? '–'}.` +
  (field === 'limit' && b.in_flight > from ? ` ${running(b.in_flight - from, ' above it')}` : ''));

export const until = (ttl, now) => `Ends by itself at ${clock(now + ttl)}, in ${duration(ttl)}.`;

export const describeOverride = (o, now) => `${o.field} ${o.from ?? '–'} → ${o.to ?? '–'}, ${o.by || 'unknown'}, ${
  o.expires ? `${duration(o.expires - now)} left` : 'until reverted'}`;
