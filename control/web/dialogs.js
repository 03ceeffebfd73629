// Every change goes through a dialog that says its effect in numbers, asks for a reason, and ends by itself.
import { $, announce, h, put } from './dom.js';
import { autoEffect, closedEffect, drainEffect, faultEffect, openEffect, resizeEffect, resumeEffect, revertEffect, until } from './effects.js';
import { change, curl, get, pathOf, token } from './api.js';

const TTLS = [['5 min', 300], ['15 min', 900], ['1 h', 3600]];

// title, method, path, effect, verb unless it is the title
const PLANS = {
  resize: ['Resize', 'PUT', 'overrides', resizeEffect],
  open: ['Force open the breaker of', 'PUT', 'breakers', openEffect, 'Force open'],
  closed: ['Force closed the breaker of', 'PUT', 'breakers', closedEffect, 'Force closed'],
  auto: ['Automatic breaker for', 'DELETE', 'breakers', autoEffect, 'Back to automatic'],
  drain: ['Drain', 'PUT', 'drains', drainEffect],
  resume: ['Resume', 'DELETE', 'drains', resumeEffect],
  endFault: ['End the fault of', 'DELETE', 'faults', faultEffect, 'End the fault'],
  revert: ['Revert', 'DELETE', 'overrides', revertEffect],
};

// `latest` gives the bulkhead as it is now: the numbers in the dialog follow the process.
export function ask(action, name, latest, now) {
  const b = latest(), [title, method, what, effect, verb = title] = PLANS[action];
  const adds = method === 'PUT', resize = action === 'resize', danger = adds && !resize, breaker = what === 'breakers';
  const path = pathOf(what, name);
  const number = (from, value) => h('input', { type: 'number', min: from, value });
  const concurrent = number(1, b.max_concurrent), queue = number(0, b.max_queue);
  const [reason, reasonLabel, because] = askWhy(adds);
  const ttls = TTLS.map(([label, value]) => h('label.check', h('input', { type: 'radio', name: 'ttl', value, checked: value === 900 }), label));
  const consequence = h('div.effect', { 'data-tone': danger && 'bad', role: 'status' });
  const command = h('pre', { tabindex: 0, 'aria-label': 'The same as a command' });

  const ttl = () => Number(form.elements.ttl.value);
  const body = () => {
    const fresh = latest() ?? b;
    // Fields that are overridden already are sent again, so that they end together.
    const size = (field, input, is) => {
      const value = whole(input);
      return resize && value !== null && (value !== is || fresh.overrides.some((o) => o.field === field)) && { [field]: value };
    };
    return adds ? { ...(breaker && { state: action }), ...size('max_concurrent', concurrent, fresh.max_concurrent), ...size('max_queue', queue, fresh.max_queue), ttl: ttl(), ...because() } : because();
  };
  const refresh = () => {
    put(consequence, [...effect(latest() ?? b, { max_concurrent: whole(concurrent), max_queue: whole(queue) }), adds && until(ttl(), now())].map((line) => line && h('span', line)));
    put(command, curl(method, path, body()));
  };
  const form = show(`${title} ${name}`, [
    resize && h('div.two', h('label', 'Max concurrent', concurrent), h('label', 'Max queue', queue)),
    adds && h('fieldset', h('legend', 'For how long'), h('div.row', ttls)),
    reasonLabel, consequence, h('details', h('summary', 'As a command'), command)],
    h('button', { type: 'submit', class: danger ? 'danger' : 'primary' }, verb), async () => {
      if (adds && !because()) {
        reason.focus();
        return 'A reason is required: colleagues see it, and the audit log keeps it.';
      }
      if (resize && !(whole(concurrent) >= 1 && whole(queue) !== null)) return 'Give whole numbers: max concurrent from 1, max queue from 0.';
      const problem = await change(method, path, body());
      if (!problem) announce(`${title} ${name}: done.`);
      return problem;
    });
  form.oninput = refresh;
  refresh();
  const timer = setInterval(() => (form.isConnected && $('dialog').open ? refresh() : clearInterval(timer)), 1000);
  const first = resize ? concurrent : reason;
  first.focus();
  first.select();
}

// Its input, its label, and the body so far.
function askWhy(required) {
  const input = h('input', { type: 'text', maxlength: 200, required, autocomplete: 'off', placeholder: 'Shown to everybody, kept in the audit log' });
  return [input, h('label', required ? 'Reason' : 'Reason (optional)', input), () => (input.value.trim() ? { reason: input.value.trim() } : undefined)];
}

const whole = (input) => (/^\d+$/.test(input.value) ? Number(input.value) : null);

export function askToken(why, onToken) {
  const input = h('input', { type: 'password', autocomplete: 'off' });
  const use = (value) => { $('dialog').close(); onToken(value); };
  show('Sign in', [h('p.muted', why), h('label', 'Token', input), h('p.muted', 'It stays in this tab and ends with it.')],
    [token() && h('button', { onclick: () => use('') }, 'Sign out'), h('button.primary', { type: 'submit' }, 'Sign in')], () => use(input.value.trim()));
  input.focus();
}

// What a reload would do, as the server plans it; nothing is changed yet.
export async function askReload(file, may) {
  const plan = await get('config/diff');
  const lines = !plan ? ['The server did not answer.'] : plan.valid
    ? [...plan.changes, ...plan.needs_restart]
    : plan.errors.map((e) => `line ${e.line}: ${e.pointer}: ${e.message}${e.hint ? ` (${e.hint})` : ''}`);
  const [, reasonLabel, because] = askWhy(false);
  show('Load the file anew', [h('p.muted', file), h('pre', { tabindex: 0, 'aria-label': 'What would change' }, lines.join('\n') || 'No changes.'),
    may ? reasonLabel : h('p.muted', 'Needs the role admin; or type: bulkhead reload')],
    h('button.primary', { type: 'submit', disabled: !may || !plan?.valid }, 'Reload'), async () => {
      const problem = await change('POST', 'config/reload', because());
      if (!problem) announce('The file is loaded.');
      return problem;
    });
}

// `submit` says what is wrong, and until then the dialog stays.
function show(title, parts, buttons, submit) {
  const dialog = $('dialog'), before = document.activeElement, error = h('p.error', { role: 'alert' });
  const form = h('form', { method: 'dialog', novalidate: true }, h('h2', { id: 'dialog-title' }, title), ...parts, error,
    h('div.actions', h('button', { onclick: () => dialog.close() }, 'Cancel'), buttons));
  form.onsubmit = async (event) => {
    event.preventDefault();
    const [confirm] = form.querySelectorAll('[type=submit]');
    confirm.disabled = true;
    const problem = await submit();
    confirm.disabled = false;
    put(error, problem);
    if (!problem && form.isConnected) dialog.close();
  };
  form.addEventListener('input', () => put(error)); // it is about the text before
  dialog.replaceChildren(form);
  dialog.onclose = () => before?.focus();
  if (!dialog.open) dialog.showModal();
  return form;
}
