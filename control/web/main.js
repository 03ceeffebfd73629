// Wires the stream to the views. All state of the page is in `page`; a view is drawn from what it is given.
import { $, announce, h, place, put, segments, setAttr } from './dom.js';
import { clock, count, dots, duration, plural } from './format.js';
import { change, get, kept, pathOf, readToken, request, setToken, token } from './api.js';
import { toView } from './wire.js';
import { describeDrain, describeOverride } from './effects.js';
import { makeHistory } from './history.js';
import { makeStream } from './stream.js';
import { log, panels } from './panels.js';
import { actionsFor, makeDetail, NEEDS } from './detail.js';
import { makeTable, ordered } from './table.js';
import { makeTiles } from './tiles.js';
import { makeHeatmap } from './heatmap.js';
import { ask, askReload, askToken } from './dialogs.js';

// buckets of how many seconds, and how many of them
const RANGES = { '1m': [1, 60], '5m': [1, 300], '15m': [3, 300], '1h': [12, 300] };
const THEMES = ['auto', 'dark', 'light'];
const STALE_MS = 3000, FROZEN_MS = 10_000, REORDER_MS = 10_000, LOG = 500;

const page = {
  latest: null, // newest view
  view: null,   // the one that is shown; older while paused
  frameAt: 0, clockAhead: 0, since: Infinity, connection: {}, paused: false, missed: 0,
  session: { role: 'viewer' }, pinned: null, log: [], logKind: 'Events', audit: [], menuOf: null, returnTo: null,
  range: RANGES[kept['bulkhead-range']] ? kept['bulkhead-range'] : '5m', theme: kept['bulkhead-theme'] ?? 'auto',
};
const now = () => Date.now() / 1000 - page.clockAhead;
const named = (name) => page.latest?.bulkheads.find((b) => b.name === name);

const histories = {}; // by step, of the ranges shown so far
const historyOf = (step) => (histories[step] ??= makeHistory(step));

// The place of each bulkhead, unhealthy ones first, for heatmap and table alike. Kept for ten seconds: rows that jump cannot be read.
let ranks = new Map(), rankedAt = -Infinity;
function ranked(bulkheads) {
  const same = ranks.size === bulkheads.length && bulkheads.every((b) => ranks.has(b.name));
  if (!same || performance.now() - rankedAt > REORDER_MS) {
    ranks = new Map(ordered(bulkheads, { key: 'health' }).map((b, i) => [b.name, i]));
    rankedAt = performance.now();
  }
  return ranks;
}

const tiles = makeTiles($('tiles'), (column) => {
  table.showAll();
  table.sortBy(column, false);
  $('table-panel').scrollIntoView();
});
const heat = makeHeatmap($('heat'), openDetail, lookCloser);
const table = makeTable($('table'), openDetail, fillMenu, () => historyOf(1));
const detail = makeDetail($('detail'), historyOf, fetchHistory, act, () => {
  page.pinned = null;
  render();
  page.returnTo?.focus();
}, () => page.session.writable);
const stream = makeStream((signal) => request('stream', { signal }), () => request('snapshot'), frame, connection);

// ---- frames

function frame(doc) {
  const view = toView(doc), first = !page.latest, restarted = view.seq < page.latest?.seq;
  if (restarted) page.log = [];
  if (first) page.since = view.time;
  page.frameAt = performance.now();
  page.clockAhead = Date.now() / 1000 - view.time;
  page.log = [...new Map([...page.log, ...view.events].map((e) => [e.id, e])).values()].sort((a, b) => b.id - a.id).slice(0, LOG);
  for (const step of [1, RANGES[page.range][0]]) historyOf(step); // the rows of the table show seconds, whatever the range
  for (const history of Object.values(histories)) history.push(view);
  tiles.push(view.bulkheads);
  page.latest = view;
  if (first || restarted) loadHistory();
  if (view.events.length) loadAudit();
  if (page.paused && page.view) {
    page.missed += 1;
    banners();
  } else {
    page.view = view;
    render();
  }
  tick();
}

function render() {
  const { view, session } = page;
  if (!view) return;
  const [step, most] = RANGES[page.range], { bulkheads } = view;
  // For a young process, show only as many buckets as can have data.
  const shown = Math.min(most, Math.max(60, Math.ceil(Math.max(view.uptime, view.time - page.since) / step) + 1));
  $('empty').hidden = bulkheads.length > 0;
  for (const id of ['tiles', 'heat-panel', 'table-panel']) $(id).hidden = !bulkheads.length;
  header(view);
  verdict(view.verdict);
  banners();
  tiles.update(bulkheads);
  const order = ranked(bulkheads);
  heat.update({ history: historyOf(step), bulkheads, order, now: view.time - 1, shown, pinned: page.pinned });
  put($('heat-sub'), `the last ${duration(shown * step)}${shown < most ? ', all there is' : ''}; average of each ${step === 1 ? 'second' : `${step} s`}`);
  table.update({ bulkheads, order, now: view.time, selected: detail.shown() });
  detail.update(view, page.log);
  $('switches').hidden = !view.switches.length;
  put($('switches'), view.switches.map(({ name, title, on }) => h('button', { 'aria-pressed': String(on), disabled: !session.writable,
    title: !session.writable && NEEDS, onclick: async () => announce(await change('PUT', pathOf('switches', name), { on: !on })) },
    `${title}: ${on ? 'on' : 'off'}`)));
  panels(view, page.log);
  log(page.logKind === 'Audit' ? page.audit : page.log, page.logKind === 'Audit', $('events-filter').value);
}

function header({ instance, version, uptime, revision, config: { state, file, overrides, needs_restart: restart }, bulkheads }) {
  put($('instance'), instance);
  put($('meta'), dots(version && `v${version}`, `up ${duration(uptime)}`));
  const id = revision.slice(0, 8), changed = plural(overrides, 'override');
  const [text, tone] = { in_sync: ['in sync', 'ok'], drift: [`drift: ${[overrides && changed, restart && 'restart needed'].filter(Boolean).join(', ')}`, 'warn'], invalid: [`FILE INVALID – running ${id}`, 'bad'],
    none: overrides ? [changed, 'warn'] : ['no file'] }[state];
  put($('revision'), dots(state !== 'invalid' && file && id, text));
  setAttr($('revision'), 'data-tone', tone);
  setAttr($('revision'), 'title', file && `${file}: what a reload would change`);
  $('revision').disabled = !file;
  document.title = `${bulkheads.some((b) => b.health === 'bad') ? '● ' : ''}${instance} – Bulkhead`;
}

// What is wrong, since when, and what to do next: the top of the page.
function verdict(said) {
  $('verdict').hidden = !said;
  if (!said) return;
  setAttr($('verdict'), 'data-tone', { ok: 'ok', note: 'info', warning: 'warn', critical: 'bad' }[said.severity]);
  const [worst] = said.findings, known = worst && named(worst.subject);
  // From the end: a reason that somebody typed may contain the same words.
  const at = worst ? said.sentence.lastIndexOf(` Next: ${worst.next}`) : -1;
  const [text, more] = at < 0 ? [said.sentence] : [said.sentence.slice(0, at), said.sentence.slice(at + ` Next: ${worst.next}`.length)];
  put($('verdict'), h('strong', { class: 'mark', 'aria-hidden': 'true' }, { ok: '✓', note: 'i', warning: '!', critical: '✕' }[said.severity]),
    h('span.grow', text, at >= 0 && [' Next: ', h('code', worst.next), more]),
    known && h('button', { onclick: () => openDetail(worst.subject) }, 'Open'));
}

function banners() {
  const { view: { config, revision, time, bulkheads }, paused, missed, session } = page;
  const banner = (tone, title, text, verb, onclick, key = '') => h('div.banner', { 'data-tone': tone, 'data-name': title + key },
    h('div.grow', h('strong', title), ' ', h('span', text)), verb && h('button', { 'aria-label': `${verb}: ${title}`, onclick }, verb));
  const touched = bulkheads.flatMap((b) => [...b.overrides, ...(b.draining && !b.overrides.some((o) => o.field === 'drain') ? [{ field: 'drain' }] : [])].map((o) => {
    const drain = o.field === 'drain', undo = { drain: 'resume', breaker: 'auto', fault: 'endFault' }[o.field] ?? 'revert';
    return banner('warn', b.name, `${drain ? describeDrain(b, o, time) : describeOverride(o, time)}${o.reason ? ` – “${o.reason}”` : ''}`,
      session.writable && (drain ? 'Resume' : 'Revert'), () => act(undo, b.name), o.field);
  }));
  put($('banners'), paused && banner('warn', 'Paused', `at ${clock(time)}. Frozen for ${duration(missed)}; the service is still running.`, 'Resume', togglePause),
    page.rejectedToken && banner('warn', 'Not signed in', `${page.rejectedToken} You can read; sign in again to change something.`, 'Sign in', () => signIn(NEEDS)),
    config.state === 'invalid' && banner('bad', 'The file is invalid', `${config.error || config.file} – running revision ${revision.slice(0, 8)} instead.`),
    touched.slice(0, 3), touched.length > 3 && banner('warn', `${count(touched.length - 3)} more changes`, 'are active; see the column Overrides.'));
}

// ---- history, audit, session

async function fetchHistory(step, name = '') { // of one bulkhead: with percentiles and reasons, without changes
  const doc = await get(`history?seconds=${step * 300}&step=${step}${name && `&bulkhead=${encodeURIComponent(name)}`}`);
  if (doc) historyOf(step).load(name ? { ...doc, changes: undefined } : doc);
  return doc;
}

async function loadHistory() {
  const [step] = RANGES[page.range], [doc] = await Promise.all([fetchHistory(step), step > 1 && fetchHistory(1)]);
  if (doc?.minute && !page.minuteLoaded) {
    page.minuteLoaded = true;
    tiles.load(doc.minute);
  }
  heat.anew();
  render();
}

// The tip of the row under the pointer also shows percentiles and reasons: fetched when the pointer stays there.
let closer = {};
function lookCloser(name, step) {
  const key = `${step} ${name}`, at = performance.now();
  if (closer.key === key && at - closer.at < 5000) return;
  const mine = (closer = { key, at });
  setTimeout(async () => {
    if (closer === mine) await fetchHistory(step, name);
    if (closer === mine) heat.tellAgain();
  }, 120);
}

async function loadAudit() {
  if (page.logKind !== 'Audit') return;
  page.audit = (await get('audit?newest=100'))?.entries ?? [];
  render();
}

async function loadSession() {
  page.session = await get('session') ?? page.session;
  const { role, writable, actor } = page.session;
  const anonymous = !actor || actor === 'anonymous';
  if (!anonymous) page.rejectedToken = '';
  put($('role'), anonymous ? 'Sign in' : `${actor}, ${role}${writable ? '' : ', read-only'}`);
  setAttr($('role'), 'data-tone', anonymous ? 'accent' : null);
  setAttr($('role'), 'title', anonymous ? 'You may read. Sign in with a token to make changes.' : `Signed in as ${actor}; click to use another token`);
  render();
}

// ---- the connection

function connection(next) {
  const before = page.connection.state, { state } = next;
  page.connection = next;
  if (state === before) return;
  if (state === 'live' || state === 'polling') {
    loadSession();
    if (page.latest) { // load what was missed
      loadHistory();
      detail.show();
    }
    if (before === 'connecting') announce('Connected.');
  }
  if (state === 'unauthorised') change('GET', 'session').then(withoutToken); // with the server's message
  tick();
}

// A token that is not accepted must not hide what may be read without one: try that before asking.
async function withoutToken(why) {
  if (!token()) return signIn(page.rejectedToken || why);
  setToken('');
  page.rejectedToken = `The server does not accept the token: ${why}.`;
  stream.wake();
  loadSession();
}

function tick() {
  const { frameAt, latest, paused, connection: { state, until, failures } } = page, denied = state === 'unauthorised';
  const silent = frameAt ? performance.now() - frameAt : Infinity, off = document.hidden && !stream.running();
  document.body.toggleAttribute('data-paused', paused);
  setAttr($('age'), 'data-level', paused ? 'warn' : off || !(frameAt || failures) ? 'off' : silent > FROZEN_MS ? 'bad' : silent > STALE_MS ? 'warn' : 'ok');
  put($('age-text'), paused ? `paused, ${clock(page.view?.time)}` : denied ? 'no access' : !frameAt ? (failures ? 'no connection' : 'connecting') : `${silent > STALE_MS ? `${duration(silent / 1000)} old` : 'live'}${state === 'polling' ? ', every 5 s' : ''}`);
  // While disconnected, or when an open connection sends nothing.
  const frozen = !off && !denied && (failures > 0 ? silent > STALE_MS : frameAt > 0 && silent > FROZEN_MS);
  $('veil').hidden = !frozen;
  document.body.toggleAttribute('data-frozen', frozen || denied);
  if (!frozen) return;
  put($('veil-title'), frameAt ? `No data for ${duration(silent / 1000)}` : 'Cannot reach the server');
  put($('veil-text'), latest && `These numbers are of ${clock(latest.time)}. `,
    state === 'waiting' ? `Next try in ${Math.max(0, Math.ceil((until - Date.now()) / 1000))} s.` : 'Trying now.');
}

// ---- actions

const signIn = (why) => askToken(why, (value) => {
  setToken(value);
  stream.wake();
  loadSession();
});

function act(action, name) {
  if (named(name)) ask(action, name, () => named(name), now);
}

function openDetail(name, time = null) {
  if (!detail.shown()) page.returnTo = document.activeElement;
  page.pinned = time;
  detail.open(name, time, page.range);
  render();
}

// The browser opens and closes the popover, also at Escape, and restores the focus.
const menu = $('menu');
function fillMenu(name, button) {
  const off = !page.session.writable, b = named(name);
  const entry = (label, onclick, more) => h('button', { role: 'menuitem', ...more, onclick() { menu.hidePopover(); onclick(); } }, label);
  if (page.menuOf !== button && menu.matches(':popover-open')) menu.hidePopover();
  page.menuOf = button;
  put(menu, entry('Details', () => openDetail(name), { autofocus: true }), b && actionsFor(b).map(([id, label]) => entry(label, () => act(id, name), { disabled: off })),
    off && entry('Sign in to change…', () => signIn(NEEDS)));
}
function placeMenu() { // beside its button, also while the page scrolls
  const at = page.menuOf?.getBoundingClientRect();
  if (at) place(menu, at.right - menu.offsetWidth, at.bottom + 4);
}
menu.ontoggle = window.onscroll = window.onresize = placeMenu;
menu.onkeydown = (e) => {
  const items = [...menu.querySelectorAll(':enabled')], i = items.indexOf(document.activeElement);
  const to = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: -1 }[e.key];
  e.stopPropagation();
  if (to !== undefined) items.at(to % items.length).focus();
  else if (e.key === 'Tab') menu.hidePopover();
  else return;
  e.preventDefault();
};

function togglePause() {
  page.paused = !page.paused;
  page.missed = 0;
  setAttr($('pause'), 'aria-pressed', String(page.paused));
  put($('pause'), page.paused ? 'Resume' : 'Pause');
  if (!page.paused) page.view = page.latest;
  render();
}

const prefersLight = matchMedia('(prefers-color-scheme: light)');
function applyTheme() {
  document.documentElement.dataset.theme = page.theme !== 'auto' ? page.theme : prefersLight.matches ? 'light' : 'dark';
  put($('theme'), `Theme: ${page.theme}`);
  heat.readPalette();
  detail.dropCharts();
  render();
}

function setRange(range) {
  page.range = range;
  kept['bulkhead-range'] = range;
  segments($('range'), Object.keys(RANGES), range, setRange);
  if (page.latest) loadHistory();
}

function setLog(kind) {
  page.logKind = kind;
  segments($('events-kind'), ['Events', 'Audit'], kind, setLog);
  put($('events-title'), kind);
  loadAudit();
  render();
}

$('events-filter').oninput = render;
$('pause').onclick = togglePause;
$('revision').onclick = () => askReload(page.latest.config.file, page.session.role === 'admin');
$('retry').onclick = () => stream.wake();
$('role').onclick = () => signIn(page.session.writable ? `You are ${page.session.actor || 'signed in'}, role ${page.session.role}. Another token:` : NEEDS);
$('theme').onclick = () => {
  page.theme = THEMES[(THEMES.indexOf(page.theme) + 1) % 3];
  kept['bulkhead-theme'] = page.theme;
  applyTheme();
};
prefersLight.onchange = applyTheme;
document.onvisibilitychange = () => (document.hidden ? stream.stop() : stream.start());
document.onkeydown = (e) => {
  if (e.target.closest('input, dialog') || e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.key === '/') {
    $('filter').focus();
    e.preventDefault();
  } else if (e.key === 'p') togglePause();
  else if (e.key === 'Escape') detail.close();
};
window.onhashchange = () => { if (readToken()) stream.wake(); };

readToken();
setRange(page.range);
setLog(page.logKind);
applyTheme();
setInterval(tick, 500);
stream.start();
