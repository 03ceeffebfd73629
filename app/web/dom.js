// The little DOM this page needs. Text only ever goes in as text: names are user input.

export const $ = (id) => document.getElementById(id);

export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}
export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'value') element.value = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter((c) => c !== null && c !== undefined));
  return element;
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
export function setAttr(element, name, value) {
  if (value === null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}
// Length of a bar, 0 to 1.
export function setScale(element, share) {
  const value = String(Math.max(0, Math.min(1, Number.isFinite(share) ? share : 1)));
  if (element.dataset.share === value) return;
  element.dataset.share = value;
  element.style.transform = `scaleX(${value})`;
}

// Keeps one element per key, in order, making and dropping as needed. `make(key)` returns {root, update(item)}.
export class KeyedList {
  constructor(parent, make) {
    this.parent = parent;
    this.make = make;
    this.items = new Map();
  }
  update(items, keyOf) {
    const seen = new Set();
    let place = this.parent.firstElementChild;
    for (const item of items) {
      const key = keyOf(item);
      if (seen.has(key)) continue;
      seen.add(key);
      let entry = this.items.get(key);
      if (!entry) this.items.set(key, (entry = this.make(item)));
      if (entry.root === place) place = place.nextElementSibling;
      else this.parent.insertBefore(entry.root, place);
      entry.update(item);
    }
    for (const [key, entry] of this.items) {
      if (seen.has(key)) continue;
      entry.root.remove();
      this.items.delete(key);
    }
  }
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

// One polite sentence for screen readers.
export function announce(text) { setText($('announcer'), text); }
