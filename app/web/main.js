// Wires the stream to the views. All state of the page is in `page`; a view is drawn from what it is given.
import { $, announce, h, setAttr, setText } from './dom.js';
import { age, clock, count, duration, plural } from './format.js';
import { toAudit, toSession, toView } from './wire.js';
import { History } from './history.js';
import { Series } from './series.js';
import { Stream } from './stream.js';
import { Heatmap } from './heatmap.js';
import { Tiles } from './tiles.js';
import { Table } from './table.js';
import { Detail, actionsFor } from './detail.js';
import { ask, askReload, askToken } from './dialogs.js';
import { describeOverride } from './effects.js';
import * as panels from './panels.js';
import * as api from './api.js';

const RANGES = [['1m', 1, 60], ['5m', 1, 300], ['15m', 3, 300], ['1h', 12, 300]];
const STALE_MS = 3000, FROZEN_MS = 10_000, LOG = 500;

const page = {
  latest: null, // newest view
  view: null,   // the one that is shown; older while paused
  frameAt: 0, clockAhead: 0, since: Infinity,
  connection: { state: 'connecting' }, paused: false, missed: 0,
  session: { role: 'viewer', actor: '', writable: false },
  range: 1, pinned: null, log: [], logKind: 'events', audit: [],
};
const histories = new Map(); // by step, of the ranges shown so far
const now = () => Date.now() / 1000 - page.clockAhead;

api.readToken();
const tiles = new Tiles($('tiles'), pickTile);
const heat = new Heatmap($('heat'), { closer: lookCloser, onPick: (name, time) => { page.pinned = time; openDetail(name, time); } });
const table = new Table($('table'), { onOpen: (name) => openDetail(name), onMenu: openMenu });
const detail = new Detail($('detail'), { onAction: act, writable: () => page.session.writable,
  onClose: () => { page.pinned = null; render(); returnTo?.focus?.(); } });
let returnTo = null;

const stream = new Stream({
  open: (signal) => api.stream(signal), poll: () => api.snapshot(),
  onFrame: frame, onState: connection,
});

// ---- frames

function frame(doc) {
  const view = toView(doc);
  const restarted = page.latest !== null && view.seq < page.latest.seq;
  if (restarted) page.log = [];
  page.frameAt = performance.now();
  page.clockAhead = Date.now() / 1000 - view.time;
  remember(view.events);
  historyOf(RANGES[page.range][1]);
  for (const history of histories.values()) history.push(view);
  tiles.push(view.bulkheads);
  const first = page.latest === null;
  if (first) page.since = view.time;
  page.latest = view;
  detail.remember(view);
  if (first || restarted) loadHistory();
  if (view.events.length && page.logKind === 'audit') loadAudit();
  if (page.paused) {
    page.missed += 1;
    banners(page.view);
  } else show(view);
  tick();
}

function remember(events) {
  const known = new Set(page.log.map((e) => e.id));
  page.log = [...events.filter((e) => !known.has(e.id)), ...page.log].sort((a, b) => b.id - a.id).slice(0, LOG);
}

function show(view) {
  page.view = view;
  page.view.log = page.log;
  render();
}

function render() {
  const view = page.view;
  if (!view) return;
  const [, step, most] = RANGES[page.range];
  // A young process fills the picture too: as many buckets as there can be data for.
  const shown = Math.min(most, Math.max(60, Math.ceil(Math.max(view.uptime, view.time - page.since) / step) + 1));
  const none = view.bulkheads.length === 0;
  $('empty').hidden = !none;
  for (const id of ['tiles', 'heat-panel', 'table-panel']) $(id).hidden = none;
  header(view);
  banners(view);
  tiles.update(view.bulkheads);
  heat.update({ history: historyOf(step), bulkheads: view.bulkheads, now: view.time - 1, shown, pinned: page.pinned });
  setText($('heat-sub'), `the last ${duration(Math.min(shown, most) * step)} in buckets of ${step} s, the most in each`);
  table.update({ bulkheads: view.bulkheads, now: view.time, selected: detail.name });
  detail.update(view);
  panels.switches(view, page.session.writable, async (name, on) => {
    const problem = await api.change('PUT', api.paths.toggle(name), { on });
    if (problem) announce(problem);
  });
  panels.groups(view);
  panels.pools(view);
  panels.tenants(view);
  panels.log(page.logKind === 'audit' ? page.audit : page.log, page.logKind, $('events-filter').value);
}

function header(view) {
  setText($('instance'), view.instance);
  setText($('meta'), [view.version && `v${view.version}`, `up ${duration(view.uptime)}`].filter(Boolean).join(' · '));
  const revision = view.revision.slice(0, 8), n = view.config.overrides;
  const [text, tone] = {
    in_sync: ['in sync', 'ok'], drift: [`drift: ${plural(n, 'override')}`, 'warn'],
    invalid: [`FILE INVALID – running ${revision}`, 'bad'], none: [n ? plural(n, 'override') : 'no file', n ? 'warn' : null],
  }[view.config.state] ?? [view.config.state, null];
  setText($('revision'), view.config.state === 'invalid' || !view.config.file || !revision ? text : `${revision} · ${text}`);
  setAttr($('revision'), 'data-tone', tone);
  setAttr($('revision'), 'title', view.config.file ? `${view.config.file}: what a reload would change` : null);
  $('revision').disabled = !view.config.file;
  const title = `${view.bulkheads.filter((b) => b.health === 'bad').length ? '● ' : ''}${view.instance} – Bulkhead`;
  if (document.title !== title) document.title = title;
}

function banners(view) {
  const list = [];
  if (page.paused) list.push(banner('info', 'Paused', `at ${clock(view.time)}: ${plural(page.missed, 'frame')} behind. The process runs on.`,
    ['Resume', togglePause]));
  if (view.config.state === 'invalid') list.push(banner('bad', 'The file is invalid', `${view.config.error || view.config.file} – running revision ${view.revision.slice(0, 8)} instead.`));
  const touched = view.bulkheads.flatMap((b) => [
    ...b.overrides.filter((o) => o.field !== 'drain').map((o) => ({ b, text: describeOverride(o, view.time), why: o.reason,
      undo: o.field === 'breaker' ? 'auto' : 'revert' })),
    ...(b.draining ? [{ b, text: `draining, ${plural(b.inFlight, 'call')} left`, why: b.overrides.find((o) => o.field === 'drain')?.reason, undo: 'resume' }] : [])]);
  for (const { b, text, why, undo } of touched.slice(0, 3)) {
    list.push(banner('warn', b.name, `${text}${why ? ` – “${why}”` : ''}`,
      page.session.writable ? [undo === 'resume' ? 'Resume' : 'Revert', () => act(undo, b.name)] : null));
  }
  if (touched.length > 3) list.push(banner('warn', `${count(touched.length - 3)} more changes`, 'are active; see the column Overrides.'));
  const key = list.map((x) => x.key).join('\n');
  if (page.bannerKey === key) list.forEach((x, i) => setText($('banners').children[i].querySelector('.grow > span'), x.text));
  else $('banners').replaceChildren(...list.map((x) => x.make()));
  page.bannerKey = key;
}

// Rebuilt only if the set changes, so that a button in it keeps the focus while its text counts down.
function banner(tone, title, text, action) {
  return { text, key: `${tone} ${title} ${action?.[0] ?? ''}`, make: () => h('div', { class: 'banner', 'data-tone': tone },
    h('div', { class: 'grow' }, h('strong', {}, title), ' ', h('span', {}, text)),
    action ? h('button', { type: 'button', 'aria-label': `${action[0]}: ${title}`, onclick: action[1] }, action[0]) : null) };
}

// ---- history, audit, session

function historyOf(step) {
  let history = histories.get(step);
  if (!history) {
    history = new History(step, 300);
    histories.set(step, history);
  }
  return history;
}

async function loadHistory() {
  const [, step] = RANGES[page.range], history = histories.get(step);
  if (!history) return;
  const doc = await api.get(api.paths.history(step * 300, step));
  if (!doc) return;
  history.load(doc);
  heat.orderedAt = -Infinity;
  render();
}

// Of the row that is pointed at the tip tells more, percentiles and reasons: asked for when somebody stays there.
let closer = { key: '', at: 0, series: null };
function lookCloser(name, step, time) {
  const key = `${step} ${name}`, start = performance.now();
  if (closer.key !== key || start - closer.at > 5000) {
    const mine = (closer = { key, at: start, series: closer.key === key ? closer.series : null });
    setTimeout(async () => {
      const doc = closer === mine && await api.get(api.paths.history(step * 300, step, name));
      if (!doc || closer !== mine) return;
      mine.series = new Series(step, 300);
      mine.series.load(doc);
      heat.tell(heat.aloud);
    }, 120);
  }
  return closer.series?.buckets.find((b) => b.at === Math.floor(time / step));
}

async function loadAudit() {
  page.audit = toAudit(await api.get(api.paths.audit));
  render();
}

async function loadSession() {
  const doc = await api.get(api.paths.session);
  if (doc) page.session = toSession(doc);
  const { role, writable, actor } = page.session;
  setText($('role'), writable ? role : `${role}, read-only`);
  setAttr($('role'), 'data-tone', writable ? 'accent' : null);
  setAttr($('role'), 'title', actor ? `Signed in as ${actor}` : 'Sign in to change things');
  render();
}

// ---- the connection

function connection(next) {
  const before = page.connection.state;
  page.connection = next;
  if (next.state === before) return;
  if (next.state === 'live' || next.state === 'polling') {
    loadSession();
    if (page.latest) loadHistory(); // what was missed meanwhile
    if (before === 'waiting' || before === 'connecting') announce('Connected.');
  }
  if (next.state === 'unauthorised') signIn('This server wants a token to show its numbers.');
  tick();
}

function tick() {
  const { state, until, failures } = page.connection;
  const silent = page.frameAt ? performance.now() - page.frameAt : Infinity;
  const off = document.hidden && !stream.running;
  const level = !page.frameAt ? (failures ? 'bad' : 'off') : silent > FROZEN_MS ? 'bad' : silent > STALE_MS ? 'warn' : 'ok';
  setAttr($('age'), 'data-level', off ? 'off' : level);
  setText($('age-text'), state === 'unauthorised' ? 'no access' : !page.frameAt ? (failures ? 'no connection' : 'connecting')
    : state === 'polling' ? `${age(silent / 1000)}, every 5 s` : age(silent / 1000));
  const lost = !off && state !== 'unauthorised' && (page.frameAt ? silent > FROZEN_MS : failures > 0);
  const gone = !off && page.frameAt > 0 && failures > 0 && silent > STALE_MS; // between tries and while trying
  const frozen = lost || gone;
  if ($('veil').hidden === frozen) {
    $('veil').hidden = !frozen;
    setAttr(document.body, 'data-frozen', frozen ? '' : null);
  }
  if (!frozen) return;
  const retry = state === 'waiting' ? `Next try in ${Math.max(0, Math.ceil((until - Date.now()) / 1000))} s.` : 'Trying now.';
  setText($('veil-title'), page.frameAt ? `No data for ${duration(silent / 1000)}` : 'Cannot reach the server');
  setText($('veil-text'), `${page.latest ? `These numbers are of ${clock(page.latest.time)}. ` : ''}${retry}`);
}

// ---- what people do

function signIn(why) {
  askToken(why, (token) => {
    api.setToken(token);
    stream.wake();
    loadSession();
  });
}

function act(action, name) {
  closeMenu();
  const latest = () => page.latest?.bulkheads.find((b) => b.name === name);
  if (latest()) ask(action, name, latest, now);
}

function openDetail(name, time = null) {
  if ($('detail').hidden) returnTo = document.activeElement;
  detail.open(name, time);
  render();
}

function pickTile(what) {
  table.showAll();
  table.sortBy(what, false);
  $('table-panel').scrollIntoView({ block: 'start' });
}

let menuOwner = null;
function openMenu(name, button) {
  const menu = $('menu'), b = page.latest.bulkheads.find((x) => x.name === name);
  if (!b) return;
  if (menuOwner === button) { closeMenu(); return; }
  const off = !page.session.writable;
  menu.replaceChildren(
    h('button', { type: 'button', role: 'menuitem', onclick: () => { closeMenu(); openDetail(name); } }, 'Details'),
    ...actionsFor(b).map(({ id, label }) => h('button', { type: 'button', role: 'menuitem', disabled: off, onclick: () => act(id, name) }, label)),
    ...(off ? [h('button', { type: 'button', role: 'menuitem', onclick: () => { closeMenu(); signIn('Changing things needs a token with the role operator.'); } }, 'Sign in to change…')] : []));
  menu.hidden = false;
  menuOwner = button;
  button.setAttribute('aria-expanded', 'true');
  placeMenu();
  menu.querySelector('button').focus();
}
function placeMenu() { // beside its button, also while the page scrolls
  const menu = $('menu'), at = menuOwner?.getBoundingClientRect();
  if (menu.hidden || !at) return;
  const y = at.bottom + menu.offsetHeight > window.innerHeight ? Math.max(8, at.top - menu.offsetHeight) : at.bottom + 4;
  menu.style.transform = `translate(${Math.max(8, at.right - menu.offsetWidth)}px, ${y}px)`;
}
function closeMenu(back = false) {
  if ($('menu').hidden) return;
  $('menu').hidden = true;
  menuOwner?.setAttribute('aria-expanded', 'false');
  if (back || $('menu').contains(document.activeElement)) menuOwner?.focus();
  menuOwner = null;
}
$('menu').addEventListener('keydown', (e) => {
  const items = [...$('menu').querySelectorAll('button:not(:disabled)')], i = items.indexOf(document.activeElement);
  const to = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: items.length - 1 }[e.key];
  if (to !== undefined) items[(to + items.length) % items.length].focus();
  else if (e.key === 'Escape' || e.key === 'Tab') closeMenu(true);
  else return;
  e.preventDefault();
});
document.addEventListener('pointerdown', (e) => { if (!$('menu').contains(e.target) && !menuOwner?.contains(e.target)) closeMenu(); });
window.addEventListener('scroll', placeMenu, { passive: true });
window.addEventListener('resize', placeMenu);

function togglePause() {
  page.paused = !page.paused;
  page.missed = 0;
  setAttr($('pause'), 'aria-pressed', String(page.paused));
  setText($('pause'), page.paused ? 'Resume' : 'Pause');
  if (!page.paused && page.latest) show(page.latest);
  else render();
}

const THEMES = ['auto', 'dark', 'light'];
const prefersLight = matchMedia('(prefers-color-scheme: light)');
let theme = stored('bulkhead-theme', THEMES, 'auto');
function applyTheme() {
  document.documentElement.dataset.theme = theme === 'auto' ? (prefersLight.matches ? 'light' : 'dark') : theme;
  setText($('theme'), { auto: 'Theme: auto', dark: 'Theme: dark', light: 'Theme: light' }[theme]);
  heat.readPalette();
  legend();
  detail.redraw();
  render();
}
function stored(key, allowed, otherwise) {
  try {
    const value = localStorage.getItem(key);
    return allowed.includes(value) ? value : otherwise;
  } catch {
    return otherwise;
  }
}
function store(key, value) {
  try { localStorage.setItem(key, value); } catch { /* private mode */ }
}

function legend() {
  const ramp = h('i', { class: 'ramp' });
  ramp.style.background = `linear-gradient(90deg, ${getComputedStyle(document.documentElement).getPropertyValue('--heat')})`;
  const item = (kind, text) => h('span', {}, h('i', { class: kind }), text);
  $('heat-legend').replaceChildren(h('span', {}, '0', ramp, 'full'), item('over', 'above the limit'), item('rej', 'rejected'),
    item('hatch', 'breaker open'), item('change', 'changed'));
}

$('range').append(...RANGES.map(([label], i) => h('button', { type: 'button', 'aria-pressed': String(i === page.range), onclick: () => {
  page.range = i;
  [...$('range').children].forEach((b, k) => b.setAttribute('aria-pressed', String(k === i)));
  store('bulkhead-range', label);
  historyOf(RANGES[i][1]);
  loadHistory();
  render();
} }, label)));
{
  const wanted = RANGES.findIndex(([label]) => label === stored('bulkhead-range', RANGES.map((r) => r[0]), '5m'));
  if (wanted !== page.range) $('range').children[wanted].click();
}
$('events-kind').append(...['events', 'audit'].map((kind) => h('button', { type: 'button', 'aria-pressed': String(kind === page.logKind), onclick: (e) => {
  page.logKind = kind;
  [...$('events-kind').children].forEach((b) => b.setAttribute('aria-pressed', String(b === e.currentTarget)));
  setText($('events-title'), kind === 'audit' ? 'Audit' : 'Events');
  if (kind === 'audit') loadAudit();
  else render();
} }, kind === 'audit' ? 'Audit' : 'Events')));
$('events-filter').addEventListener('input', render);
$('pause').addEventListener('click', togglePause);
$('revision').addEventListener('click', () => askReload(page.latest.config.file, page.session.role === 'admin'));
$('retry').addEventListener('click', () => stream.wake());
$('role').addEventListener('click', () => signIn(page.session.writable
  ? `You are ${page.session.actor || 'signed in'}, role ${page.session.role}. Another token:` : 'Changing things needs a token with the role operator.'));
$('theme').addEventListener('click', () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  store('bulkhead-theme', theme);
  applyTheme();
});
prefersLight.addEventListener('change', applyTheme);
document.addEventListener('visibilitychange', () => (document.hidden ? stream.stop() : stream.start()));
document.addEventListener('keydown', (e) => {
  if (e.target.closest('input, textarea, dialog') || e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.key === '/') { $('filter').focus(); e.preventDefault(); }
  else if (e.key === 'p') togglePause();
  else if (e.key === 'Escape') detail.close();
});
$('foot').append(h('span', {}, 'Keys: / filter, p pause, arrows in the heatmap, Esc close'),
  ...[['../v1/snapshot', 'snapshot'], ['../v1/openapi.json', 'API'], ['../metrics', 'metrics']].map(([href, text]) => h('a', { href }, text)));

window.addEventListener('hashchange', () => { if (api.readToken()) stream.wake(); });
applyTheme();
setInterval(tick, 250);
stream.start();
