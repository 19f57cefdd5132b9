// All buckets: what every entity can spend on every resource.

import { get } from './api.js';
import { h } from './dom.js';
import { when } from './format.js';
import { adminButton, chip, code, empty, head, level, pages, panel, resetBucket, table, under } from './parts.js';
import { go, link } from './route.js';

/** @type {import('./main.js').Page} */
export async function page(root, { params, signal, reload }) {
  const entity = params.get('entity') ?? '', resource = params.get('resource') ?? '';
  const filter = h('form', { class: 'search', role: 'search', on: { submit: apply } },
    h('label', { class: 'unseen', for: 'by-entity' }, 'Entity'), h('input', { id: 'by-entity', name: 'entity', type: 'search', placeholder: 'Entity', value: entity, autocomplete: 'off', spellcheck: 'false' }),
    h('label', { class: 'unseen', for: 'by-resource' }, 'Resource'), h('input', { id: 'by-resource', name: 'resource', type: 'search', placeholder: 'Resource', value: resource, autocomplete: 'off', spellcheck: 'false' }),
    h('button', { type: 'submit' }, 'Filter'));

  /** @param {Event} event */
  function apply(event) {
    event.preventDefault();
    const f = filter.elements;
    go(link('buckets', { entity: f.entity.value.trim(), resource: f.resource.value.trim() }));
  }

  const list = await pages((after) => get('/v1/buckets', { entity, resource, after, max: 50 }, signal), (items) => items.length
    ? table('Buckets', ['Entity', { title: 'Resource', least: true }, 'Levels', { title: 'Last written', least: true }, { title: 'Actions', hide: true, num: true }], items.map((b) => [
      [h('a', { class: 'id', href: link('entity', { id: b.entity, resource: b.resource }) }, b.entity), under(b.resource)], code(b.resource), levels(b), when(b.at),
      adminButton('Reset', () => resetBucket(b, reload), { look: 'quiet', about: `the bucket of ${b.entity} on ${b.resource}` })]))
    : entity || resource ? empty('No bucket matches', 'IDs must match exactly. An entity has no bucket if it has not spent anything, or if its bucket is full again.')
      : empty('No buckets', 'The first request creates a bucket. It is removed after it has been full for some time.'));
  root.append(head('Buckets', { lead: 'What was left to spend when this page was loaded.', tools: h('button', { type: 'button', on: { click: reload } }, 'Refresh') }),
    panel('Levels', { tools: filter, wide: true }, list));
}

/**
 * Returns the levels of a bucket, one below the other.
 * @param {any} b
 */
export function levels(b) {
  return h('div', { class: 'levels' }, b.limits.map((/** @type {any} */ l) => {
    const bar = level(`${l.limit.name} of ${b.entity} on ${b.resource}`);
    bar.update({ available: l.available, burst: l.limit.burst ?? l.limit.amount });
    return h('div', { class: 'level-line' }, h('span', { class: 'limit-name' }, l.limit.name, l.override && [' ', chip('override')]), bar.el);
  }));
}
