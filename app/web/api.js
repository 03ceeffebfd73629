// Requests to the control plane. URLs are relative to this file's folder (…/ui/), so any path prefix works.

const root = new URL('../v1/', import.meta.url);
let token = '';

// A token may come in the fragment of the address (#token=...), which is not sent to anybody; it does not stay there.
// Says whether one came.
export function readToken() {
  const given = /^#token=(.+)$/.exec(location.hash);
  if (given) {
    history.replaceState(null, '', location.pathname + location.search);
    setToken(decodeURIComponent(given[1]));
    return true;
  }
  try { token = sessionStorage.getItem('bulkhead-token') ?? ''; } catch { /* private mode: none */ }
  return false;
}

export const base = root.href;
export const hasToken = () => token !== '';
export function setToken(value) {
  token = value;
  try {
    if (value) sessionStorage.setItem('bulkhead-token', value);
    else sessionStorage.removeItem('bulkhead-token');
  } catch { /* private mode: it lasts as long as the page */ }
}

function request(path, { method = 'GET', body, signal, headers = {} } = {}) {
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  return fetch(new URL(path, root), { method, headers, signal, cache: 'no-store', credentials: 'omit',
    body: body === undefined ? undefined : JSON.stringify(body) });
}

export const stream = (signal) => request('stream', { signal, headers: { Accept: 'text/event-stream' } });
export const snapshot = () => request('snapshot');

export async function get(path) { // null: the server has no such thing, or is not there
  try {
    const response = await request(path);
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}

// Resolves to null when done, else to what the server says went wrong.
export async function change(method, path, body) {
  try {
    const response = await request(path, { method, body });
    if (response.ok) return null;
    const problem = await response.json().catch(() => ({}));
    const fields = (problem.errors ?? []).map((e) => e.message).filter(Boolean);
    return [problem.detail || problem.title || `The server answered ${response.status}.`,
            ...fields.filter((m) => m !== problem.detail)].join(' ');
  } catch {
    return 'The server cannot be reached; nothing was changed as far as this page knows.';
  }
}

const named = (what, name, rest = '') => `${what}/${encodeURIComponent(name)}${rest}`;
export const paths = {
  history: (seconds, step, name) =>
    `history?seconds=${seconds}&step=${step}${name ? `&bulkhead=${encodeURIComponent(name)}` : ''}`,
  bulkhead: (name) => named('bulkheads', name),
  override: (name) => named('overrides', name),
  circuit: (name) => named('circuits', name, '/override'),
  drain: (name) => named('drains', name),
  toggle: (name) => named('switches', name),
  audit: 'audit?limit=100',
  session: 'session',
  diff: 'config/diff',
  reload: 'config/reload',
};
