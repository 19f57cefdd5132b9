// The limits for everybody, of the system and of resources, and the entities with limits of their own on a resource.

import { ask, find, get, Problem } from './api.js';
import { confirmed, field } from './dialog.js';
import { announce, h } from './dom.js';
import { editLimits, removeLimits } from './limits-editor.js';
import { adminButton, chip, empty, entityLink, head, limitList, managedBy, pages, panel, table } from './parts.js';
import { link } from './route.js';
import { unavailable, unavailableButton, unavailableChip, unavailableField } from './unavailable.js';

/** @type {import('./main.js').Page} */
export async function page(root, context) {
  const resource = context.params.get('resource');
  return resource ? ofResource(root, context, resource) : ofAll(root, context);
}

/** @type {import('./main.js').Page} */
async function ofAll(root, { signal, reload }) {
  const [system, list] = await Promise.all([
    find('/v1/system', undefined, signal),
    pages((after) => get('/v1/resources', { after, max: 100 }, signal), (items) => items.length
      ? table('Resources', ['Resource', 'Limits', { title: 'Actions', hide: true, num: true }], items.map((s) => [
        [h('a', { class: 'id', href: link('limits', { resource: s.resource }) }, s.resource), ' ', managedBy(s.managed)], [limitList(s.limits), unavailableChip(s.on_unavailable)], actions({ resource: s.resource }, s, reload)]))
      : empty('No resource has limits', 'The limits of a resource apply to every entity without limits of its own.')),
  ]);
  const has = Boolean(system?.limits?.length);
  const mode = system?.on_unavailable;
  const near = system?.near_limit ? system.near_limit.join(', ') || 'none' : '';
  root.append(
    head('Limits', { lead: 'The first level with limits applies: entity on the resource, entity, resource, system.' }),
    panel('System', {
      note: 'Used if neither the entity nor the resource has limits',
      tools: [adminButton(has ? 'Edit' : 'Set limits', () => editLimits({}, system, reload), { about: 'of the system' }),
        has && adminButton('Remove', () => removeLimits({}, system, reload), { look: 'quiet', about: 'limits of the system' })],
    }, has ? h('div', { class: 'inset' }, limitList(system.limits), managedBy(system.managed)) : empty('No system limits', 'A request without limits at any level is not admitted: it fails with an error.'),
    h('p', { class: 'foot' }, 'When the store does not answer, requests are ', mode ? chip(unavailable(mode), mode === 'deny' ? '' : 'shadow') : 'decided by the server’s configuration', ', unless the resource or entity says otherwise. ',
      near === 'none' ? 'No events are sent as limits are used up. ' : `Events are sent at ${near || '80, 95, 100'}% of a limit. `,
      adminButton('Change', () => editMode(mode, near, reload), { look: 'inline', about: 'the settings of this namespace' }))),
    panel('Resources', { tools: [unavailableButton({}, null, reload, { pick: 'resource', about: 'of a resource' }), adminButton('New resource', () => editLimits({}, null, reload, { pick: 'resource' }), { look: 'primary' })] }, list));
}

/** @param {{entity?: string, resource?: string}} scope @param {any} held @param {() => void} reload */
function actions(scope, held, reload) {
  const about = `limits of ${scope.entity ?? scope.resource}`;
  return h('div', { class: 'actions' }, adminButton('Edit', () => editLimits(scope, held, reload), { about }), unavailableButton(scope, held, reload, { about: `of ${scope.entity ?? scope.resource}` }),
    held.limits.length > 0 && adminButton('Remove', () => removeLimits(scope, held, reload), { look: 'quiet', about }));
}

/** @param {string | undefined} mode @param {string} near @param {() => void} reload */
function editMode(mode, near, reload) {
  confirmed({
    title: 'Settings of this namespace',
    body: h('div', null, unavailableField(mode, 'the server’s configuration'),
      field('Send events at these percentages of a limit', 'near_limit', { value: near, placeholder: '80, 95, 100', autocomplete: 'off' }, 'For webhooks and logs; enter “none” for no events')),
    action: 'Save',
    run: async (inputs) => {
      /** @type {Record<string, any>} */
      const body = {}, text = inputs.near_limit.value.trim();
      if (inputs.on_unavailable.value !== (mode ?? 'default')) body.on_unavailable = inputs.on_unavailable.value;
      if (text && text !== near) body.near_limit = text === 'none' ? [] : text.split(/[\s,]+/).map(Number);
      if (body.near_limit?.some((/** @type {number} */ n) => !Number.isInteger(n))) throw new Problem(400, { detail: 'must be whole numbers, such as 80, 95, 100', field: 'near_limit' });
      if (Object.keys(body).length) await ask('PUT', '/v1/system', { body });
      announce('Saved: settings of this namespace.');
      reload();
    },
  });
}

/**
 * @param {HTMLElement} root
 * @param {Parameters<import('./main.js').Page>[1]} context
 * @param {string} resource
 */
async function ofResource(root, { signal, reload }, resource) {
  const [own, list] = await Promise.all([
    find('/v1/limits', { resource }, signal),
    pages((after) => get('/v1/limits/list', { resource, after, max: 100 }, signal), (items) => items.length
      ? table('Entities with limits of their own', ['Entity', 'Limits', { title: 'Actions', hide: true, num: true }], items.map((s) => [
        [entityLink(s.entity), ' ', managedBy(s.managed)], [limitList(s.limits), unavailableChip(s.on_unavailable)], actions({ entity: s.entity, resource }, s, reload)]))
      : empty('No entity has limits of its own here', 'The entities’ own defaults apply, or else the limits of the resource.')),
  ]);
  const has = Boolean(own?.limits?.length);
  root.append(
    head(resource, { path: h('p', { class: 'path' }, h('a', { href: link('limits') }, 'Limits'), ' › resource'), tools: h('a', { class: 'button', href: link('buckets', { resource }) }, 'Buckets') }),
    panel('For everybody', { tools: [adminButton(has ? 'Edit' : 'Set limits', () => editLimits({ resource }, own, reload)), unavailableButton({ resource }, own, reload, { about: `of ${resource}` }), has && adminButton('Remove', () => removeLimits({ resource }, own, reload), { look: 'quiet' })] },
      has ? h('div', { class: 'inset' }, limitList(own.limits), managedBy(own.managed)) : empty('No limits for everybody', 'The limits of the system apply to entities without limits of their own.'),
      own?.on_unavailable && h('p', { class: 'foot' }, unavailableChip(own.on_unavailable))),
    panel('Entities with limits of their own', { tools: adminButton('Add', () => editLimits({ resource }, null, reload, { pick: 'entity' }), { about: 'limits of an entity' }) }, list));
  root.querySelector('h1')?.classList.add('id');
}
