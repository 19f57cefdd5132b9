// Who changed what.

import { get } from './api.js';
import { h } from './dom.js';
import { when } from './format.js';
import { code, empty, entityLink, head, pages, panel, table, under } from './parts.js';
import { go, link } from './route.js';

/** @type {import('./main.js').Page} */
export async function page(root, { params, signal }) {
  const subject = params.get('subject') ?? '';
  const form = h('form', { class: 'search', role: 'search', on: { submit: apply } },
    h('label', { class: 'unseen', for: 'subject' }, 'Subject'),
    h('input', { id: 'subject', type: 'search', list: 'subjects', placeholder: 'Subject, such as entity:key-alice', value: subject, autocomplete: 'off', spellcheck: 'false' }),
    h('datalist', { id: 'subjects' }, ['entity:', 'resource:', 'system', 'manifest:', 'namespace:'].map((s) => h('option', { value: s }))),
    h('button', { type: 'submit' }, 'Filter'));

  /** @param {Event} event */
  function apply(event) {
    event.preventDefault();
    go(link('audit', { subject: form.querySelector('input').value.trim() }));
  }
  root.append(head('Audit', { lead: 'Every change is recorded atomically with the change itself.' }),
    panel('Changes', { tools: form, wide: true }, await trail(subject, signal)));
}

/**
 * Returns the audit trail of a subject, or of all subjects.
 * @param {string} subject
 * @param {AbortSignal} signal
 */
export function trail(subject, signal) {
  return pages((after) => get('/v1/audit', { subject, after, max: 50 }, signal), (items) => items.length
    ? table('Changes', ['When', { title: 'Who', least: true }, 'Action', 'Subject', { title: 'Change', least: true }], items.map((e) => [[when(e.at), under(e.principal)], code(e.principal), h('span', { class: 'id' }, e.action), about(e.subject), change(e)]))
    : empty('No changes', subject ? 'This subject has not changed, or its changes are no longer kept.' : 'Nothing has changed yet.'));
}

/** @param {string} subject */
function about(subject) {
  const [, kind, id] = /^(\w+):(.*)$/s.exec(subject) ?? [];
  if (kind === 'entity') return entityLink(id);
  if (kind === 'resource') return h('a', { class: 'id', href: link('limits', { resource: id }) }, id);
  if (kind === 'manifest') return h('a', { class: 'id', href: link('manifests', { name: id }) }, id);
  return code(subject);
}

/**
 * Returns the differences between before and after, collapsed.
 * @param {{before: any, after: any}} e
 */
function change(e) {
  const before = flat(e.before), after = flat(e.after);
  const names = [...new Set([...before.keys(), ...after.keys()])].filter((k) => before.get(k) !== after.get(k));
  if (!names.length) return null;
  return h('details', null, h('summary', null, `${names.length} ${names.length === 1 ? 'value' : 'values'}`),
    h('dl', { class: 'diff' }, names.map((k) => h('div', null, h('dt', { class: 'id' }, k), h('dd', null,
      before.has(k) && h('del', null, before.get(k)), before.has(k) && after.has(k) && ' → ', after.has(k) && h('ins', null, after.get(k)))))));
}

/**
 * Flattens a JSON value into paths and values.
 * @param {any} value
 * @param {string} [path]
 * @param {Map<string, string>} [out]
 */
function flat(value, path = '', out = new Map()) {
  if (value === null || value === undefined) return out;
  if (typeof value !== 'object') return out.set(path || 'value', String(value));
  for (const [k, v] of Object.entries(value)) {
    // Limits are keyed by name, so that adding one does not shift the others.
    const key = Array.isArray(value) ? (v?.name ?? k) : k;
    flat(v, path ? `${path}.${key}` : String(key), out);
  }
  return out;
}
