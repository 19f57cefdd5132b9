// Questions and forms in a <dialog>, which traps the focus, closes on Escape and restores the focus by itself.

import { Problem } from './api.js';
import { h, swap } from './dom.js';

/**
 * @typedef {object} Question
 * @property {string} title
 * @property {any} [body]
 * @property {string} action the button's label
 * @property {boolean} [danger]
 * @property {string} [typed] text to type before the button works
 * @property {(inputs: Record<string, any>) => Promise<unknown>} run performs the action with the inputs by name; a Problem that it throws
 *   is shown at its field
 */

/**
 * Opens a dialog. It closes when run succeeds or the user cancels.
 * @param {Question} q
 */
export function confirmed(q) {
  const error = h('div', { class: 'error', role: 'alert' });
  const action = h('button', { type: 'submit', class: q.danger ? 'danger' : 'primary' }, q.action);
  const typed = q.typed !== undefined && field(`Type ${q.typed} to confirm`, 'typed', { autocomplete: 'off', spellcheck: 'false' });
  const form = h('form', { novalidate: true, on: { submit: submit } },
    h('h2', { id: 'dialog-title' }, q.title),
    q.body && h('div', { class: 'dialog-body' }, q.body), typed, error,
    h('div', { class: 'dialog-actions' }, h('button', { type: 'button', class: 'quiet', on: { click: () => dialog.close() } }, 'Cancel'), action));
  const dialog = h('dialog', { 'aria-labelledby': 'dialog-title' }, form);
  if (typed) {
    action.disabled = true;
    typed.addEventListener('input', () => (action.disabled = form.elements.typed.value !== q.typed));
  }

  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    if (action.disabled) return;
    action.disabled = true;
    clear(form);
    swap(error);
    try {
      await q.run(form.elements);
      dialog.close();
    } catch (err) {
      action.disabled = false;
      show(form, error, err);
    }
  }

  dialog.addEventListener('close', () => dialog.remove());
  window.addEventListener('hashchange', () => dialog.close(), { once: true });
  document.body.append(dialog);
  dialog.showModal();
  // Enter must not trigger a destructive action right away.
  const first = form.querySelector('input:not([type=hidden]), select, textarea') ?? (q.danger ? form.querySelector('.quiet') : action);
  first?.focus();
}

/**
 * Returns a labeled input with room for an error message.
 * @param {string} label
 * @param {string} name as the API names the field
 * @param {Record<string, any>} [props]
 * @param {string} [hint]
 */
export function field(label, name, props = {}, hint) {
  const id = `f-${++fields}`;
  const { kind = 'input', kids = [], ...rest } = props;
  return h('div', { class: 'field' }, h('label', { for: id }, label),
    h(kind, { id, name, 'aria-describedby': `${id}-hint ${id}-error`, ...rest }, kids),
    h('p', { class: 'hint', id: `${id}-hint` }, hint),
    h('p', { class: 'field-error', id: `${id}-error`, role: 'alert' }));
}
let fields = 0;

/** @param {HTMLFormElement} form */
export function clear(form) {
  for (const el of form.querySelectorAll('[aria-invalid]')) el.removeAttribute('aria-invalid');
  for (const el of form.querySelectorAll('.field-error')) swap(el);
}

/**
 * Shows an error next to its input, or above the buttons.
 * @param {HTMLFormElement} form
 * @param {Element} rest
 * @param {unknown} err
 */
export function show(form, rest, err) {
  const problem = err instanceof Problem ? err : null;
  const input = problem?.field ? inputOf(form, problem.field) : null;
  const place = input && document.getElementById(`${input.id}-error`);
  const text = err instanceof Error ? err.message : String(err);
  if (!problem) console.error(err);
  if (!problem || !input || !place) {
    swap(rest, h('p', null, problem?.status === 403 ? `You do not have permission to do this: ${text}` : text));
    return;
  }
  // The label already shows the field's name.
  swap(place, text.startsWith(problem.field + ': ') ? text.slice(problem.field.length + 2) : text);
  input.setAttribute('aria-invalid', 'true');
  input.focus();
}

/**
 * Returns the input of that name, or the first one inside it. "limit rpm: burst" is in the row of the limit rpm.
 * @param {HTMLFormElement} form
 * @param {string} name
 * @returns {HTMLInputElement | null}
 */
function inputOf(form, name) {
  const inputs = /** @type {HTMLInputElement[]} */ ([...form.querySelectorAll('input, select, textarea')].filter((i) => i.getAttribute('name')));
  const [, limit, part] = /^limit ([^:]*?)(?:: (\w+))?$/.exec(name) ?? [];
  const row = limit === undefined ? undefined : inputs.find((i) => /\.name$/.test(i.name) && i.value === limit);
  const wanted = row ? row.name.replace(/name$/, part ?? 'name') : name;
  return inputs.find((i) => i.name === wanted) ?? inputs.find((i) => i.name.startsWith(wanted + '.'))
    ?? inputs.find((i) => name === 'limit name' && /\.name$/.test(i.name) && !i.value) ?? null;
}
