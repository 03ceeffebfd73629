// Numbers and times as people read them. Pure; an unknown value is a dash.

const orDash = (show) => (x) => (Number.isFinite(x) ? show(x) : '–');
const trim = (n, digits) => n.toFixed(digits).replace(/\.0+$/, '');

export const count = orDash((n) => {
  if (n < 9999.5) return trim(n, 0);
  const [size, unit] = n < 999_500 ? [1e3, 'k'] : n < 999_500_000 ? [1e6, 'M'] : [1e9, 'G'];
  return trim(n / size, n / size < 99.95 ? 1 : 0) + unit;
});

export const rate = orDash((n) => (n && n < 0.1 ? '<0.1' : n < 9.95 ? trim(n, 1) : count(n)));

export const percent = orDash((share) => {
  const p = share * 100;
  // Never "100%" for almost all: one call that succeeded must be visible.
  return `${p && p < 0.1 ? '<0.1' : p < 9.95 ? trim(p, 1) : p > 99.9 && p < 100 ? '>99.9' : p < 100 ? Math.min(99, Math.round(p)) : Math.round(p)}%`;
});

// Latencies and waits: three digits at most.
export const latency = orDash((s) => (s && s < 0.0001 ? '<0.1 ms' : s < 0.9995 ? `${trim(s * 1e3, s < 0.00995 ? 1 : 0)} ms`
  : s < 99.5 ? `${trim(s, s < 9.95 ? 2 : 1)} s` : duration(s)));

// Ages and time left: the two largest units.
export const duration = orDash((s) => {
  const t = Math.max(0, Math.floor(s));
  const [size, unit, small, rest] = t < 60 ? [1, 's'] : t < 3600 ? [60, 'm', 1, 's'] : t < 86_400 ? [3600, 'h', 60, 'm'] : [86_400, 'd', 3600, 'h'];
  const more = Math.floor((t % size) / small);
  return Math.floor(t / size) + unit + (more ? ` ${more}${rest}` : '');
});

export const clock = orDash((t) => new Date(t * 1000).toTimeString().slice(0, 8));
export const plural = (n, one) => `${count(n)} ${one}${n === 1 ? '' : 's'}`;
export const words = (name) => (name ?? '').replaceAll('_', ' ');
export const short = (name, most) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);
// What there is of these, between dots.
export const dots = (...texts) => texts.filter(Boolean).join(' · ');
