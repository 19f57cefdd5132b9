// Who changed what.

import { get } from './api.js';
import { h } from './dom.js';
import { limitText, when } from './format.js';
import { code, empty, entityLink, head, pages, panel, principalName, resourceName, table } from './parts.js';
import { go, link } from './route.js';

/** @type {import('./main.js').Page} */
export async function page(root, { params, signal }) {
  const subject = params.get('subject') ?? '';
  const form = h('form', { class: 'search', role: 'search', on: { submit: apply } },
    h('label', { class: 'unseen', for: 'subject' }, 'Subject'),
    h('input', { id: 'subject', type: 'search', list: 'subjects', placeholder: 'Subject, such as entity:key-alice', value: subject, autocomplete: 'off', spellcheck: 'false' }),
    h('datalist', { id: 'subjects' }, ['balance:', 'entity:', 'plan:', 'resource:', 'system', 'manifest:', 'namespace:'].map((s) => h('option', { value: s }))),
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
    ? table('Changes', ['When', 'Who', 'Action', 'Subject', 'Change'], items.map((e) => [when(e.at), [principalName(e.principal), e.source && h('span', { class: 'dim' }, ` from ${e.source}`)], h('span', { class: 'id' }, e.action), about(e.subject), change(e)]))
    : empty('No changes', subject ? 'This subject has not changed, or its changes are no longer kept.' : 'Nothing has changed yet.'));
}

/** @param {string} subject */
function about(subject) {
  const [, kind, id] = /^(\w+):(.*)$/s.exec(subject) ?? [];
  if (kind === 'entity') return entityLink(id);
  if (kind === 'resource') return h('a', { class: 'id', href: link('limits', { resource: id }) }, resourceName(id));
  if (kind === 'plan') return h('a', { class: 'id', href: link('limits', { plan: id }) }, `plan ${id}`);
  if (kind === 'balance') {
    const [entity, resource = '', limit] = id.split('#').map((part) => part.replace(/%(23|25)/g, (_, code) => (code === '23' ? '#' : '%')));
    return [entityLink(entity), ` ${limit} on ${resourceName(resource)}`];
  }
  if (kind === 'manifest') return h('a', { class: 'id', href: link('manifests', { name: id }) }, id);
  return code(subject);
}

/**
 * Returns the differences between before and after: rpm 60 / min → 90 / min. Many are collapsed.
 * @param {{action: string, before: any, after: any}} e
 */
function change(e) {
  const before = flat(e.before), after = flat(e.after);
  if (e.action.startsWith('limits.')) for (const repeated of ['entity', 'plan', 'resource', 'source']) before.delete(repeated), after.delete(repeated);
  const names = [...new Set([...before.keys(), ...after.keys()])].filter((k) => before.get(k) !== after.get(k));
  if (!names.length) return null;
  const list = h('dl', { class: 'diff' }, names.map((k) => h('div', null, h('dt', { class: 'id' }, k), h('dd', null,
    before.has(k) && h('del', null, before.get(k)), before.has(k) && after.has(k) && ' → ', after.has(k) && h('ins', null, after.get(k))))));
  return names.length <= 4 ? list : h('details', null, h('summary', null, `${names.length} values`), list);
}

/**
 * Flattens a JSON value into paths and values. A limit is written in one line, and what is beside its rate is a value of its own.
 * @param {any} value
 * @param {string} [path]
 * @param {Map<string, string>} [out]
 */
function flat(value, path = '', out = new Map()) {
  if (value === null || value === undefined) return out;
  if (typeof value !== 'object') return out.set(path || 'value', String(value));
  for (const [k, v] of Object.entries(value)) {
    // Limits are keyed by name, so that adding one does not shift the others.
    const key = Array.isArray(value) ? (v?.name ?? k) : k, at = path && path !== 'limits' ? `${path}.${key}` : String(key);
    if (!v?.name || !(v.period || v.slots)) flat(v, at, out);
    else {
      const { name, amount, period, burst, slots, heal, ...rest } = v;
      flat(rest, at, out.set(at, limitText(v)));
    }
  }
  return out;
}
