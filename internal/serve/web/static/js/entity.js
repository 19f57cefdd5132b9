// One entity: what it can spend, why, and what it spent.

import { ask, find, get, Problem, segment } from './api.js';
import { trail } from './audit.js';
import { balancesPanel } from './balances.js';
import { left, levels } from './buckets.js';
import { confirmed } from './dialog.js';
import { announce, h } from './dom.js';
import { editEntity } from './entities.js';
import { explainPanel } from './explain.js';
import { when } from './format.js';
import { livePanel } from './levels.js';
import { editLimits } from './limits-editor.js';
import { ownLimits } from './limits.js';
import { adminButton, aggregate, chip, choice, code, empty, entityLink, head, managedBy, pages, panel, planLink, resetBucket, resourceName, table } from './parts.js';
import { go, link } from './route.js';
import { usagePanel } from './usage-panel.js';

/** @type {import('./main.js').Page} */
export async function page(root, { params, signal, reload }) {
  const id = params.get('id') ?? '';
  const [record, own, buckets, resources, balances] = await Promise.all([
    find(`/v1/entities/${segment(id)}`, undefined, signal),
    get('/v1/limits/list', { entity: id, max: 1000 }, signal),
    get('/v1/buckets', { entity: id, max: 200 }, signal),
    get('/v1/resources', { max: 200 }, signal),
    find(`/v1/entities/${segment(id)}/balances`, undefined, signal),
  ]);
  const names = [...new Set([...buckets.items, ...own.items, ...resources.items].map((x) => x.resource).filter((r) => r && !aggregate(r)))];
  const resource = params.get('resource') ?? await tightest(id, names, buckets.items, signal);
  if (resource && !names.includes(resource)) names.unshift(resource);
  const pick = resource && choice('Resource', names, resource, (r) => go(link('entity', { id, resource: r })));
  const limitsHere = own.items.find((/** @type {any} */ s) => s.resource === resource) ?? null;

  root.append(head(record?.name || id, {
    path: await path(record, signal),
    lead: [record?.name && [code(id), ' '], !record && 'This entity has no record. It can be limited without one. ', record?.cascade && chip('charges its parent'), ' ', planLink(record?.plan), ' ', managedBy(record?.managed)],
    tools: [pick, record && adminButton('Edit entity', () => editEntity(record, reload), { about: id }), record && adminButton('Delete', () => remove(record), { look: 'quiet', about: id })],
  }));
  if (!record?.name) root.querySelector('h1')?.classList.add('id');
  root.append(h('div', { class: 'grid2' },
    resource
      ? [livePanel({ id, resource }, signal, {
        edit: () => editLimits({ entity: id, resource }, limitsHere, reload), edits: limitsHere ? 'Edit limits' : 'Set limits', reset: () => resetBucket({ entity: id, resource }, reload), reload,
      }), explainPanel({ id, resource }, signal)]
      : panel('Levels', { wide: true }, empty('No resource has limits yet', h('a', { href: link('limits') }, 'Set limits'), ' of a resource, the system or this entity.')),
    balancesPanel(balances?.items ?? [], reload),
    usagePanel({ entity: id }, signal),
    ownLimits({ entity: id }, own.items, reload),
    panel('Buckets', {}, buckets.items.length ? table('Buckets', ['Resource', 'Levels', { title: 'Actions', hide: true, num: true }], buckets.items.map((/** @type {any} */ b) => [
      aggregate(b.resource) ? resourceName(b.resource) : h('a', { class: 'id', href: link('entity', { id, resource: b.resource }) }, b.resource), levels(b), adminButton('Reset', () => resetBucket(b, reload), { look: 'quiet', about: `the bucket on ${resourceName(b.resource)}` })]))
      : empty('No buckets', 'Nothing has been spent yet, or the buckets are full again.')),
    record && panel('Record', {}, facts(record)),
    record && panel('Children', {}, await children(id, signal)),
    panel('Audit', { wide: true }, await trail(`entity:${id}`, signal))));
}

/**
 * Returns the resource of which least is left, as a share of what can be spent at once, or the first of those that are alike.
 * It asks about at most eight, those first of which the entity itself has spent most.
 * @param {string} id
 * @param {string[]} names
 * @param {any[]} buckets
 * @param {AbortSignal} signal
 */
async function tightest(id, names, buckets, signal) {
  const own = new Map(buckets.map((b) => [b.resource, left(b.limits)]));
  const few = names.toSorted((a, b) => (own.get(a) ?? 1) - (own.get(b) ?? 1)).slice(0, 8);
  const shares = await Promise.all(few.map(async (resource) => {
    try {
      const { limits } = await get('/v1/available', { entity: id, resource }, signal);
      return left(limits.filter((/** @type {import('./parts.js').Status} */ s) => !s.shadow).map((/** @type {any} */ s) => ({ limit: s, available: s.available })));
    } catch (err) {
      if (err instanceof Problem && err.kind === 'no-limits') return 1;
      throw err;
    }
  }));
  return few[shares.indexOf(Math.min(...shares))];
}

/**
 * Returns the chain of parents, topmost first.
 * @param {any} record
 * @param {AbortSignal} signal
 */
async function path(record, signal) {
  /** @type {string[]} */
  const above = [];
  for (let parent = record?.parent; parent && above.length < 16 && !above.includes(parent); ) {
    above.unshift(parent);
    parent = (await find(`/v1/entities/${segment(parent)}`, undefined, signal))?.parent;
  }
  return h('nav', { class: 'path', 'aria-label': 'Chain of parents' }, h('a', { href: link('entities') }, 'Entities'), above.map((p) => [' › ', entityLink(p)]), ' ›');
}

/** @param {any} e */
function facts(e) {
  const rows = [['ID', code(e.id)], ['Parent', e.parent ? entityLink(e.parent) : 'none'], ['Plan', planLink(e.plan) ?? 'none'], ['Created', when(e.created)],
    ...Object.entries(e.metadata ?? {}).map(([k, v]) => [code(k), h('span', { class: 'text' }, v)])];
  return h('dl', { class: 'facts' }, rows.map(([k, v]) => h('div', null, h('dt', null, k), h('dd', null, v))));
}

/** @param {string} id @param {AbortSignal} signal */
function children(id, signal) {
  return pages((after) => get(`/v1/entities/${segment(id)}/children`, { after, max: 50 }, signal), (items) => items.length
    ? h('ul', { class: 'links' }, items.map((e) => h('li', null, entityLink(e.id), e.name && [' ', e.name], ' ', e.cascade && chip('charges this entity'))))
    : empty('No children'));
}

/** @param {any} record */
function remove(record) {
  confirmed({
    title: `Delete ${record.id}?`, action: 'Delete', danger: true,
    body: h('div', null, h('p', null, 'This deletes its record and its own limits. What it has spent stays spent. After that, the limits of the resource or the system apply to its requests.'),
      h('label', { class: 'check' }, h('input', { type: 'checkbox', name: 'children' }), 'Also delete its children')),
    run: async (inputs) => {
      await ask('DELETE', `/v1/entities/${segment(record.id)}`, { params: { children: inputs.children.checked || undefined } });
      announce(`Deleted: ${record.id}.`);
      go(link('entities'));
    },
  });
}
