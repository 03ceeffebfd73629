// The little DOM this page needs. Text goes in as text: names are user input.
//
//   put($('tiles'), h('button.tile', { onclick: open }, h('b', 'Calls'), count > 0 && h('i', count)));
//
// A view is made anew every second, and `put` changes only what differs: a button keeps the focus, a screen reader hears only news.

export const $ = (id) => document.getElementById(id);

export const h = (what, ...rest) => make((tag) => document.createElement(tag), what, rest);
export const svg = (what, ...rest) => make((tag) => document.createElementNS('http://www.w3.org/2000/svg', tag), what, rest);

// 'tag.class.class', attributes if any, children; what is null, undefined, false or '' is left out.
function make(create, what, rest) {
  const [tag, ...classes] = what.split('.'), element = create(tag);
  const given = rest[0]?.constructor === Object ? rest.shift() : {};
  const attributes = { class: classes.join(' '), type: tag === 'button' && 'button', ...given };
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element[name] = value;
    else if (name === 'style') Object.assign(element.style, value); // the CSP allows this, but no style attribute
    else if (wanted(value)) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...rest.flat().filter(wanted));
  return element;
}
const wanted = (x) => x !== null && x !== undefined && x !== false && x !== '';

export const put = (parent, ...children) => alike(parent, h('div', ...children));

// Gives `parent` the children of `next`. Those with a data-name stay the same element wherever they go.
function alike(parent, next) {
  let named, place = parent.firstChild;
  for (const child of [...next.childNodes]) {
    const name = child.dataset?.name, old = name ? (named ??= new Map([...parent.children].map((c) => [c.dataset.name, c]))).get(name) : place;
    if (old?.nodeName !== child.nodeName || old.dataset?.name !== name) {
      parent.insertBefore(child, place);
      continue;
    }
    if (old === place) place = old.nextSibling;
    else parent.insertBefore(old, place);
    if (!child.attributes) {
      if (old.data !== child.data) old.data = child.data;
      continue;
    }
    for (const attribute of new Set([...old.getAttributeNames(), ...child.getAttributeNames()])) {
      if (attribute !== 'style') setAttr(old, attribute, child.getAttribute(attribute));
      else if (old.style.cssText !== child.style.cssText) old.style.cssText = child.style.cssText;
    }
    old.onclick = child.onclick;
    alike(old, child);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

export function setAttr(element, name, value) {
  if ((value ?? false) === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

// One of a few, side by side.
export const segments = (parent, choices, chosen, pick) => put(parent, choices.map((choice) =>
  h('button', { 'aria-pressed': String(choice === chosen), onclick: () => pick(choice) }, choice)));

// A bar of parts, [class, share] each, the longest first.
export const track = (tone, ...parts) => h('div.track', { 'data-tone': tone }, parts.map(([kind, share]) =>
  h('i.' + kind, { style: { transform: `scaleX(${Math.max(0, Math.min(1, share || 0))})` } })));

// A table's caption, head and rows of cells; from which column on are numbers?
export const grid = (caption, labels, rows, numbers = 9) => [h('caption.vh', caption),
  h('thead', h('tr', labels.map((label, i) => h(i < numbers ? 'th' : 'th.num', { scope: 'col' }, label)))),
  h('tbody', rows.map(([head, ...cells]) => h('tr', h('th', { scope: 'row' }, head), cells.map((cell, i) => h(i + 1 < numbers ? 'td' : 'td.num', cell)))))];

// Puts it there, as far as the window goes.
export const place = (element, x, y) => {
  const within = (n, most) => Math.max(8, Math.min(n, most - 8));
  element.style.transform = `translate(${within(x, window.innerWidth - element.offsetWidth)}px, ${within(y, window.innerHeight - element.offsetHeight)}px)`;
};

export const badge = (tone, ...text) => h('span.badge', { 'data-tone': tone }, ...text);

// One polite sentence for screen readers.
export const announce = (text) => put($('announcer'), text);

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
