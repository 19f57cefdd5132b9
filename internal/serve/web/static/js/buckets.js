// All buckets: what every entity can spend on every resource.

import { get } from './api.js';
import { h } from './dom.js';
import { when } from './format.js';
import { adminButton, aggregate, chip, empty, head, level, pages, panel, resetBucket, resourceCode, resourceName, table } from './parts.js';
import { go, link } from './route.js';

/** @type {import('./main.js').Page} */
export async function page(root, { params, signal, reload }) {
  const entity = params.get('entity') ?? '', resource = params.get('resource') ?? '', all = params.has('all');
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

  const list = await pages((after) => get('/v1/buckets', { entity, resource, after, max: 1000 }, signal), (items) => {
    if (!items.length) {
      return entity || resource ? empty('No bucket matches', 'IDs must match exactly. An entity has no bucket if it has not spent anything, or if its bucket is full again.')
        : empty('No buckets', 'The first request creates a bucket. It is removed after it has been full for some time.');
    }
    const shown = items.map((b) => ({ b, left: left(b.limits) })).filter((x) => all || x.left < 1).sort((x, y) => x.left - y.left);
    const full = items.length - shown.length;
    return h('div', null, shown.length > 0 && table('Buckets', ['Entity', 'Resource', 'Levels', 'Last written', { title: 'Actions', hide: true, num: true }], shown.map(({ b }) => [
      h('a', { class: 'id', href: link('entity', { id: b.entity, resource: aggregate(b.resource) ? undefined : b.resource }) }, b.entity), resourceCode(b.resource), levels(b), when(b.at),
      adminButton('Reset', () => resetBucket(b, reload), { look: 'quiet', about: `the bucket of ${b.entity} on ${resourceName(b.resource)}` })])),
      full > 0 && h('p', { class: 'foot' }, `${full} full ${full === 1 ? 'bucket is' : 'buckets are'} not shown. `, h('a', { href: link('buckets', { entity, resource, all: '1' }) }, 'Show all')));
  });
  root.append(head('Buckets', { lead: 'What was left to spend when this page was loaded, the emptiest first.', tools: h('button', { type: 'button', on: { click: reload } }, 'Refresh') }),
    panel('Levels', { tools: filter, wide: true }, list));
}

/**
 * Returns how full a bucket is by its emptiest limit, from 0 to 1.
 * @param {any[]} limits
 */
export function left(limits) {
  return Math.min(1, ...limits.map((l) => {
    const burst = l.limit.slots ?? l.limit.burst ?? l.limit.amount;
    return burst ? Math.max(0, l.available / burst) : l.available > 0 ? 1 : 0;
  }));
}

/**
 * Returns the levels of a bucket, one below the other.
 * @param {any} b
 */
export function levels(b) {
  return h('div', { class: 'levels' }, b.limits.map((/** @type {any} */ l) => {
    const bar = level(`${l.limit.name} of ${b.entity} on ${resourceName(b.resource)}`);
    bar.update({ available: l.available, burst: l.limit.burst ?? l.limit.amount });
    return h('div', { class: 'level-line' }, h('span', { class: 'limit-name' }, l.limit.name, l.override && [' ', chip('override')], l.removed && [' ', chip('removed')]), bar.el);
  }));
}
