// Requests to the control plane. URLs are relative to this file's folder (…/ui/), so any path prefix works.

const root = new URL('../v1/', import.meta.url);

// Where storage is forbidden, settings last as long as the page.
function storage(which) {
  try { return window[which]; } catch { return {}; }
}
export const kept = storage('localStorage');
const session = storage('sessionStorage');
const TOKEN = 'bulkhead-token';

export const token = () => session[TOKEN];
export function setToken(value) {
  if (value) session[TOKEN] = value;
  else delete session[TOKEN];
}
// A token may come in the fragment of the address (#token=...), which is not sent to a server; it is removed. Says whether one came.
export function readToken() {
  const given = /^#token=(.+)$/.exec(location.hash);
  if (given) {
    window.history.replaceState(null, '', location.pathname + location.search);
    setToken(decodeURIComponent(given[1]));
  }
  return given;
}

export function request(path, { method = 'GET', body, signal } = {}) {
  return fetch(new URL(path, root), { method, signal, cache: 'no-store', credentials: 'omit', body: body && JSON.stringify(body),
    headers: { ...(token() && { Authorization: `Bearer ${token()}` }), ...(body && { 'Content-Type': 'application/json' }) } });
}

export async function get(path) { // null: not found, or no connection
  try {
    const response = await request(path);
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}

// Resolves to '' when done, else to what the server says went wrong.
export async function change(method, path, body) {
  try {
    const response = await request(path, { method, body });
    if (response.ok) return '';
    const { title, detail = title, errors = [] } = await response.json().catch(() => ({}));
    return [...new Set([detail || `The server answered ${response.status}.`, ...errors.map((e) => e.message)])].join(' ');
  } catch {
    return 'The server cannot be reached; nothing was changed as far as this page knows.';
  }
}

export const pathOf = (what, name) => `${what}/${encodeURIComponent(name)}`;

// The same as a command for a shell.
export function curl(method, path, body, base = root) {
  const parts = ['curl'];
  if (method !== 'GET') parts.push('-X', method, '-H', '"Authorization: Bearer $BULKHEAD_TOKEN"');
  if (body) parts.push('-H', quote('Content-Type: application/json'), '-d', quote(JSON.stringify(body)));
  return [...parts, quote(new URL(path, base).href)].join(' ');
}
export const quote = (s) => `'${s.replaceAll("'", `'\\''`)}'`;
