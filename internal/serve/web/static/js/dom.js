// Elements without markup: data becomes text nodes and attribute values, never HTML.

/** @typedef {Node | string | number | null | undefined | false | any[]} Kid */

const svgNS = 'http://www.w3.org/2000/svg';

/**
 * Creates an element. `on` holds listeners; other props are attributes: true sets an empty one, null and false none.
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...(Kid | Kid[])} kids
 * @returns {any}
 */
export function h(tag, props, ...kids) {
  return fill(document.createElement(tag), props, kids);
}

/**
 * Like h, for SVG.
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...(Kid | Kid[])} kids
 * @returns {any}
 */
export function svg(tag, props, ...kids) {
  return fill(document.createElementNS(svgNS, tag), props, kids);
}

/**
 * @param {Element} el
 * @param {Record<string, any> | null | undefined} props
 * @param {(Kid | Kid[])[]} kids
 */
function fill(el, props, kids) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name === 'on') {
      for (const [event, listener] of Object.entries(value)) el.addEventListener(event, listener);
    } else if (value !== null && value !== undefined && value !== false) {
      setAttribute(el, name, value === true ? '' : String(value));
    }
  }
  el.append(...nodes(kids));
  return el;
}

/**
 * Rejects attributes that could run code. Links lead only to pages of the dashboard, whatever the data says.
 * @param {Element} el
 * @param {string} name
 * @param {string} value
 */
function setAttribute(el, name, value) {
  if (name.startsWith('on') || name === 'style' || name === 'src' || name === 'srcdoc' || (name === 'href' && !value.startsWith('#'))) {
    throw new Error(`attribute ${name} is not set from data`);
  }
  el.setAttribute(name, name === 'title' || name.startsWith('aria-') ? visible(value) : value);
}

const unseen = /[\p{Cf}\p{Zl}\p{Zp}\u{34f}\u{115f}\u{1160}\u{17b4}\u{17b5}\u{3164}\u{ffa0}]/gu;

/**
 * Escapes the characters of a text that cannot be seen, or that turn the direction of writing.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(unseen, (c) => `\\u{${c.codePointAt(0)?.toString(16)}}`);
}

/**
 * @param {(Kid | Kid[])[]} kids
 * @returns {Node[]}
 */
function nodes(kids) {
  /** @type {Node[]} */
  const out = [];
  for (const kid of kids.flat(4)) {
    if (kid === null || kid === undefined || kid === false) continue;
    out.push(kid instanceof Node ? kid : document.createTextNode(visible(String(kid))));
  }
  return out;
}

/**
 * Replaces the children of an element.
 * @param {Element} el
 * @param {...(Kid | Kid[])} kids
 */
export function swap(el, ...kids) {
  el.replaceChildren(...nodes(kids));
}

/**
 * Sets a text if it differs, so that an unchanged node is neither repainted nor read out.
 * @param {Element} el
 * @param {string} text
 */
export function say(el, text) {
  text = visible(text);
  if (el.textContent !== text) el.textContent = text;
}

/**
 * Returns the element of index.html with an ID.
 * @param {string} id
 * @returns {any}
 */
export function at(id) {
  const el = document.getElementById(id);
  if (!el) throw new Error(`index.html has no #${id}`);
  return el;
}

/**
 * Announces a completed action, in the corner and to screen readers.
 * @param {string} text
 */
export function announce(text) {
  const box = at('status');
  swap(box, h('p', null, text));
  clearTimeout(fading);
  fading = setTimeout(() => swap(box), 6000);
}
/** @type {number | undefined} */
let fading;
