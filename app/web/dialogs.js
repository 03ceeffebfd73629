// Every change goes through a dialog that says in numbers what it will do, asks why, and ends by itself.
import { $, announce, h, setText } from './dom.js';
import * as effects from './effects.js';
import * as api from './api.js';

const TTLS = [['5 min', 300], ['15 min', 900], ['1 h', 3600]];

// action: resize, open, closed, auto, drain, resume, revert. `latest` gives the bulkhead as it is now, again and again:
// the numbers in the dialog follow the process while somebody reads them.
export function ask(action, name, latest, now) {
  const b = latest();
  const plan = PLANS[action](b);
  const number = (label, value, max) => {
    const input = h('input', { type: 'number', min: label === 'New limit' ? 1 : 0, max, step: 1, value: String(value), inputmode: 'numeric' });
    return { input, label: h('label', {}, label, input) };
  };
  const limit = plan.numbers ? number('New limit', b.limit, 268435455) : null;
  const queue = plan.numbers ? number('New queue limit', b.queueLimit, 16777215) : null;
  const reason = h('input', { type: 'text', maxlength: 200, required: plan.method === 'PUT', autocomplete: 'off', placeholder: 'Shown to everybody, kept in the audit log' });
  let ttl = 900;
  const ttls = plan.ttl === false ? null : h('fieldset', {}, h('legend', {}, 'For how long'), h('div', { class: 'row' }, ...TTLS.map(([label, seconds]) => {
    const radio = h('input', { type: 'radio', name: 'ttl', value: String(seconds), checked: seconds === ttl, onchange: () => { ttl = seconds; refresh(); } });
    return h('span', { class: 'check' }, h('label', { class: 'check' }, radio, label));
  })));
  const effect = h('div', { class: 'effect', 'data-tone': plan.danger ? 'bad' : null, role: 'status' });
  const error = h('p', { class: 'error', role: 'alert' });
  const command = h('pre', { tabindex: '0', 'aria-label': 'The same as a command' });
  const confirm = h('button', { type: 'submit', class: plan.danger ? 'danger' : 'primary' }, plan.verb);

  const wanted = () => ({ limit: limit ? whole(limit.input) : null, queue: queue ? whole(queue.input) : null });
  const body = () => {
    if (plan.method === 'DELETE') return reason.value.trim() ? { reason: reason.value.trim() } : undefined;
    const { limit: l, queue: q } = wanted(), fresh = latest() ?? b;
    return { ...(plan.body ?? {}), ...(l !== null && l !== fresh.limit ? { limit: l } : {}),
             ...(q !== null && q !== fresh.queueLimit ? { queue: q } : {}), ttl, reason: reason.value.trim() };
  };
  const path = () => plan.path(name);
  function refresh() {
    const fresh = latest() ?? b;
    const lines = [...plan.effect(fresh, wanted()), ...(ttls ? [effects.until(ttl, now())] : [])];
    const text = lines.join('\n');
    if (effect.dataset.text !== text) {
      effect.dataset.text = text;
      effect.replaceChildren(...lines.map((line) => h('span', {}, line)));
    }
    setText(command, effects.curl(api.base, plan.method, path(), body()));
  }
  const form = h('form', { method: 'dialog', novalidate: true },
    h('h2', { id: 'dialog-title' }, `${plan.title} ${name}`),
    plan.numbers ? h('div', { class: 'two' }, limit.label, queue.label) : null,
    ttls, h('label', {}, plan.method === 'DELETE' ? 'Reason (optional)' : 'Reason', reason), effect,
    h('details', {}, h('summary', {}, 'As a command'), command), error,
    h('div', { class: 'actions' }, h('button', { type: 'button', onclick: () => $('dialog').close() }, 'Cancel'), confirm));
  form.addEventListener('input', refresh);
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (plan.method !== 'DELETE' && reason.value.trim() === '') {
      setText(error, 'Please say why: others will see this change and wonder.');
      reason.focus();
      return;
    }
    if (plan.numbers && (invalid(limit.input) || invalid(queue.input))) {
      setText(error, 'Limits are whole numbers: a limit from 1, a queue from 0.');
      return;
    }
    confirm.disabled = true;
    const problem = await api.change(plan.method, path(), body());
    confirm.disabled = false;
    if (problem !== null) {
      setText(error, problem);
      return;
    }
    $('dialog').close();
    announce(`${plan.title} ${name}: done.`);
  });
  refresh();
  const timer = setInterval(refresh, 1000);
  show(form, () => clearInterval(timer));
  (limit?.input ?? reason).focus();
  limit?.input.select();
}

export function askToken(why, onToken) {
  const input = h('input', { type: 'password', autocomplete: 'off', spellcheck: 'false' });
  const form = h('form', { method: 'dialog' }, h('h2', { id: 'dialog-title' }, 'Sign in'), h('p', { class: 'muted' }, why),
    h('label', {}, 'Token', input), h('p', { class: 'muted' }, 'It stays in this tab and is forgotten when the tab is closed.'),
    h('div', { class: 'actions' },
      api.hasToken() ? h('button', { type: 'button', onclick: () => { $('dialog').close(); onToken(''); } }, 'Sign out') : null,
      h('button', { type: 'button', onclick: () => $('dialog').close() }, 'Cancel'),
      h('button', { type: 'submit', class: 'primary' }, 'Sign in')));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    $('dialog').close();
    onToken(input.value.trim());
  });
  show(form);
  input.focus();
}

// What a reload would do, as the server plans it, before anybody does it.
export async function askReload(file, may) {
  const plan = await api.get(api.paths.diff);
  const lines = !plan ? ['The server does not say what it would change.'] : plan.valid
    ? [...plan.changes, ...plan.needs_restart.map((line) => `needs a restart: ${line}`)]
    : plan.errors.map((e) => `line ${e.line}: ${e.pointer}: ${e.message}${e.hint ? ` (${e.hint})` : ''}`);
  const error = h('p', { class: 'error', role: 'alert' });
  const form = h('form', { method: 'dialog' }, h('h2', { id: 'dialog-title' }, 'Load the file anew'), h('p', { class: 'muted' }, file),
    h('pre', { tabindex: '0', 'aria-label': 'What would change' }, lines.join('\n') || 'No changes.'),
    may ? null : h('p', { class: 'muted' }, 'Needs the role admin; or type: bulkhead reload'), error,
    h('div', { class: 'actions' }, h('button', { type: 'button', onclick: () => $('dialog').close() }, 'Cancel'),
      h('button', { type: 'submit', class: 'primary', disabled: !may || !plan?.valid }, 'Reload')));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const problem = await api.change('POST', api.paths.reload);
    if (problem !== null) return setText(error, problem);
    $('dialog').close();
    announce('The file is loaded.');
  });
  show(form);
}

function show(form, onClose = () => {}) {
  const dialog = $('dialog'), before = document.activeElement;
  dialog.replaceChildren(form);
  dialog.addEventListener('close', () => { onClose(); before?.focus?.(); }, { once: true });
  if (!dialog.open) dialog.showModal();
}

const whole = (input) => (/^\d+$/.test(input.value) ? Number(input.value) : null);
const invalid = (input) => whole(input) === null || whole(input) < Number(input.min);

const PLANS = {
  resize: () => ({ title: 'Resize', verb: 'Resize', numbers: true, method: 'PUT', path: api.paths.override, effect: effects.resizeEffect }),
  open: () => ({ title: 'Force open the breaker of', verb: 'Force open', danger: true, method: 'PUT', path: api.paths.circuit,
                 body: { state: 'open' }, effect: (b) => effects.breakerEffect(b, 'open') }),
  closed: () => ({ title: 'Force closed the breaker of', verb: 'Force closed', danger: true, method: 'PUT', path: api.paths.circuit,
                   body: { state: 'closed' }, effect: (b) => effects.breakerEffect(b, 'closed') }),
  auto: () => ({ title: 'Automatic breaker for', verb: 'Back to automatic', method: 'DELETE', ttl: false, path: api.paths.circuit,
                 effect: (b) => effects.breakerEffect(b, 'auto') }),
  drain: () => ({ title: 'Drain', verb: 'Drain', danger: true, method: 'PUT', path: api.paths.drain, effect: effects.drainEffect }),
  resume: () => ({ title: 'Resume', verb: 'Resume', method: 'DELETE', ttl: false, path: api.paths.drain,
                   effect: (b) => [`New calls of ${b.name} are admitted again, up to ${b.limit} at once.`] }),
  revert: () => ({ title: 'Revert', verb: 'Revert', method: 'DELETE', ttl: false, path: api.paths.override, effect: effects.revertEffect }),
};
