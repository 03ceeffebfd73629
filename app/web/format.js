// Numbers and times as people read them. Pure; an unknown value is a dash.
export const DASH = '–';

const known = (x) => x !== null && x !== undefined && Number.isFinite(x);

export function count(n) {
  if (!known(n)) return DASH;
  const size = Math.abs(n);
  if (size < 10_000) return String(Math.round(n));
  if (size < 999_500) return trim(n / 1e3, size < 99_950 ? 1 : 0) + 'k';
  if (size < 999_500_000) return trim(n / 1e6, size < 99_950_000 ? 1 : 0) + 'M';
  return trim(n / 1e9, 1) + 'G';
}

export function rate(n) {
  if (!known(n)) return DASH;
  if (n === 0) return '0';
  if (n < 0.1) return '<0.1';
  return n < 9.95 ? trim(n, 1) : count(n);
}

export function percent(share) {
  if (!known(share)) return DASH;
  const p = share * 100;
  if (p === 0) return '0%';
  if (p < 0.1) return '<0.1%';
  // Never "100%" for almost all: the one call that got through is news.
  if (p > 99.9 && p < 100) return '>99.9%';
  return (p < 9.95 ? trim(p, 1) : Math.round(Math.min(p, 99.9 < p ? p : 99)).toString()) + '%';
}

// Latencies and waits: three digits at most.
export function latency(s) {
  if (!known(s)) return DASH;
  if (s === 0) return '0 ms';
  if (s < 0.0001) return '<0.1 ms';
  if (s < 0.00995) return trim(s * 1e3, 1) + ' ms';
  if (s < 0.9995) return Math.round(s * 1e3) + ' ms';
  return s < 9.95 ? trim(s, 2) + ' s' : s < 99.5 ? trim(s, 1) + ' s' : duration(s);
}

// Ages and time left: the two largest units.
export function duration(s) {
  if (!known(s)) return DASH;
  const t = Math.max(0, Math.floor(s));
  if (t < 60) return `${t}s`;
  if (t < 3600) return join(Math.floor(t / 60), 'm', t % 60, 's');
  if (t < 86_400) return join(Math.floor(t / 3600), 'h', Math.floor((t % 3600) / 60), 'm');
  return join(Math.floor(t / 86_400), 'd', Math.floor((t % 86_400) / 3600), 'h');
}

export function age(s) {
  if (!known(s)) return DASH;
  return s < 9.95 ? `${Math.max(0, s).toFixed(1)} s` : duration(s);
}

export function clock(t) {
  if (!known(t)) return DASH;
  const d = new Date(t * 1000);
  return [d.getHours(), d.getMinutes(), d.getSeconds()].map((n) => String(n).padStart(2, '0')).join(':');
}

export const plural = (n, one, many = one + 's') => `${count(n)} ${n === 1 ? one : many}`;
export const words = (name) => String(name ?? '').replaceAll('_', ' ');

function trim(n, digits) {
  return n.toFixed(digits).replace(/\.0+$/, '');
}
function join(a, unitA, b, unitB) {
  return b ? `${a}${unitA} ${b}${unitB}` : `${a}${unitA}`;
}
