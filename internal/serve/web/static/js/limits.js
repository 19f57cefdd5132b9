// The limits of the system, resources, groups and plans, and the entities with limits of their own.

import { ask, find, get, Problem, segment } from './api.js';
import { confirmed, field } from './dialog.js';
import { announce, h } from './dom.js';
import { sourceName } from './levels.js';
import { editLimits, removeLimits } from './limits-editor.js';
import { adminButton, aggregate, chip, empty, entityLink, groupResource, head, managedBy, pages, panel, resourceCode, resourceName, scopeLimits, table, totalResource } from './parts.js';
import { go, link } from './route.js';
import { settingsButton, unavailable, unavailableChip, unavailableField } from './unavailable.js';

/** @type {import('./main.js').Page} */
export async function page(root, context) {
  const resource = context.params.get('resource'), plan = context.params.get('plan');
  return resource ? ofResource(root, context, resource) : plan ? ofPlan(root, context, plan) : ofAll(root, context);
}

/** @type {import('./main.js').Page} */
async function ofAll(root, { signal, reload }) {
  const [system, list, plans] = await Promise.all([
    find('/v1/system', undefined, signal),
    pages((after) => get('/v1/resources', { after, max: 100 }, signal), (items) => items.length
      ? table('Resources', ['Resource', 'Limits', { title: 'Actions', hide: true, num: true }], items.map((s) => [
        [resourceLink(s.resource), ' ', s.group && h('a', { class: 'chip', href: link('limits', { resource: groupResource(s.group) }) }, `group ${s.group}`), ' ', managedBy(s.managed)],
        [scopeLimits(s), unavailableChip(s.on_unavailable)], actions({ resource: s.resource }, s, reload, `of ${resourceName(s.resource)}`)]))
      : empty('No resource has limits', 'The limits of a resource apply to every entity without limits of its own.')),
    pages((after) => get('/v1/plans', { after, max: 100 }, signal), (items) => items.length
      ? table('Plans', ['Plan', 'Plan default'], items.map((s) => [[h('a', { class: 'id', href: link('limits', { plan: s.plan }) }, s.plan), ' ', managedBy(s.managed)], [s.limits.length ? scopeLimits(s) : h('span', { class: 'dim' }, 'none'), unavailableChip(s.on_unavailable)]]))
      : empty('No plans', 'A plan has limits for the entities that name it.')),
  ]);
  const has = Boolean(system?.limits?.length || system?.bounded);
  const mode = system?.on_unavailable;
  const near = system?.near_limit ? system.near_limit.join(', ') || 'none' : '';
  root.append(
    head('Limits', { lead: 'The first level with limits applies: entity, entity default, plan, plan default, resource, system. A default is for each resource without limits of its own. The limits of a group and of the total apply beside these.' }),
    panel('Limits of the system', {
      note: 'Used if neither the entity, its plan nor the resource has limits',
      tools: [adminButton(has ? 'Edit' : 'Set limits', () => editLimits({}, system, reload), { about: 'of the system' }),
        has && adminButton('Remove', () => removeLimits({}, system, reload), { look: 'quiet', about: 'limits of the system' })],
    }, has ? h('div', { class: 'inset' }, h('div', null, scopeLimits(system)), managedBy(system.managed)) : empty('The system has no limits', 'A request without limits at any level is not admitted: it fails with an error.'),
    h('p', { class: 'foot' }, 'When the store does not answer, requests are ', mode ? chip(unavailable(mode), mode === 'deny' ? '' : 'shadow') : 'decided by the server’s configuration', ', unless the resource or entity says otherwise. ',
      near === 'none' ? 'No events are sent as limits are used up. ' : `Events are sent at ${near || '80, 95, 100'}% of a limit${near ? '' : ', 50, 80, 100% of a quota'}. `,
      adminButton('Change', () => editMode(mode, near, reload), { look: 'inline', about: 'the settings of this namespace' }))),
    panel('Resources and groups', { tools: [settingsButton({}, null, reload, { pick: 'resource', about: 'of a resource' }), adminButton('New resource', () => editLimits({}, null, reload, { pick: 'resource' }), { look: 'primary' })] }, list),
    panel('Plans', { tools: adminButton('New plan', () => editLimits({}, null, reload, { pick: 'plan' })) }, plans));
}

/** @param {import('./limits-editor.js').Scope} scope @param {any} held @param {() => void} reload @param {string} about */
function actions(scope, held, reload, about) {
  return h('div', { class: 'actions' }, adminButton('Edit', () => editLimits(scope, held, reload), { about: `limits ${about}` }), settingsButton(scope, held, reload, { about }),
    held.limits.length + (held.bounded?.length ?? 0) > 0 && adminButton('Remove', () => removeLimits(scope, held, reload), { look: 'quiet', about: `limits ${about}` }));
}

/**
 * Returns the panel of the limits that an entity or a plan has of its own.
 * @param {import('./limits-editor.js').Scope} owner
 * @param {any[]} items
 * @param {() => void} reload
 */
export function ownLimits(owner, items, reload) {
  const own = owner.plan ? 'of this plan' : 'of this entity';
  return panel(owner.plan ? 'Limits' : 'Own limits', { tools: [settingsButton(owner, null, reload, { pick: 'resource', about: own }), adminButton('Add', () => editLimits(owner, null, reload, { pick: 'resource' }), { about: `limits ${own}` })] },
  items.length ? table('Limits', ['Resource', 'Limits', { title: 'Actions', hide: true, num: true }], items.map((s) => [
    [s.resource ? resourceCode(s.resource) : h('i', null, 'default'), ' ', managedBy(s.managed)], [scopeLimits(s), unavailableChip(s.on_unavailable)], actions({ ...owner, resource: s.resource }, s, reload, s.resource ? `on ${resourceName(s.resource)}` : 'of the default')]))
    : empty('No limits of its own', 'The next level with limits applies.'));
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
  const among = aggregate(resource), of = resourceName(resource), level = sourceName({ source: 'resource', resource });
  const [own, list, members] = await Promise.all([
    find('/v1/limits', { resource }, signal),
    pages((after) => get('/v1/limits/list', { resource, after, max: 100 }, signal), (items) => items.length
      ? table('Entities with limits of their own', ['Entity', 'Limits', { title: 'Actions', hide: true, num: true }], items.map((s) => [
        [entityLink(s.entity), ' ', managedBy(s.managed)], [scopeLimits(s), unavailableChip(s.on_unavailable)], actions({ entity: s.entity, resource }, s, reload, `of ${s.entity}`)]))
      : empty('No entity has limits of its own here', among ? `The limits of the plan apply, or else those of the ${level}.` : 'The entity default applies, or else the limits of the plan, the resource or the system.')),
    among && resource !== totalResource ? get('/v1/resources', { max: 1000 }, signal).then((p) => p.items.filter((/** @type {any} */ s) => s.group && groupResource(s.group) === resource)) : [],
  ]);
  const has = Boolean(own?.limits?.length || own?.bounded);
  root.append(
    head(of, { path: path(level ?? ''), lead: own?.group && ['Its requests are also charged to ', resourceLink(groupResource(own.group))], tools: h('a', { class: 'button', href: link('buckets', { resource }) }, 'Buckets') }),
    panel(`Limits of the ${level}`, {
      note: ['Used for each entity by itself, if neither it nor its plan has limits. ', members.length > 0 && 'Requests on these resources are charged: ', members.map((/** @type {any} */ s, /** @type {number} */ i) => [i > 0 && ', ', resourceLink(s.resource)])],
      tools: [adminButton(has ? 'Edit' : 'Set limits', () => editLimits({ resource }, own, reload)), settingsButton({ resource }, own, reload, { about: `of ${of}` }), has && adminButton('Remove', () => removeLimits({ resource }, own, reload), { look: 'quiet' })],
    }, has ? h('div', { class: 'inset' }, h('div', null, scopeLimits(own)), managedBy(own.managed)) : empty(`The ${level} has no limits`, among ? 'Only the limits of entities and plans apply.' : 'The limits of the system apply to entities without limits of their own.'),
    own?.on_unavailable && h('p', { class: 'foot' }, unavailableChip(own.on_unavailable))),
    panel('Entities with limits of their own', { tools: adminButton('Add', () => editLimits({ resource }, null, reload, { pick: 'entity' }), { about: 'limits of an entity' }) }, list));
  if (!among) root.querySelector('h1')?.classList.add('id');
}

/**
 * @param {HTMLElement} root
 * @param {Parameters<import('./main.js').Page>[1]} context
 * @param {string} plan
 */
async function ofPlan(root, { signal, reload }, plan) {
  const [items, list] = await Promise.all([
    get('/v1/limits/list', { plan, max: 1000 }, signal).then((p) => p.items),
    pages((after) => get('/v1/entities', { plan, after, max: 100 }, signal), (all) => all.length
      ? h('ul', { class: 'links' }, all.map((e) => h('li', null, entityLink(e.id), e.name && [' ', e.name])))
      : empty('No entity names this plan', 'Edit an entity to give it the plan.')),
  ]);
  root.append(
    head(plan, { path: path('plan'), tools: adminButton('Delete', () => removePlan(plan), { look: 'quiet', about: `plan ${plan}` }) }),
    ownLimits({ plan }, items, reload),
    panel('Entities on this plan', { note: 'And those below them that name no plan' }, list));
  root.querySelector('h1')?.classList.add('id');
}

/** @param {string} plan */
function removePlan(plan) {
  confirmed({
    title: `Delete plan ${plan}?`, action: 'Delete', danger: true,
    body: h('p', null, 'Its limits are deleted. A plan that entities name cannot be deleted.'),
    run: async () => {
      await ask('DELETE', `/v1/plans/${segment(plan)}`);
      announce(`Deleted: plan ${plan}.`);
      go(link('limits'));
    },
  });
}

/** @param {string} what */
function path(what) {
  return h('p', { class: 'path' }, h('a', { href: link('limits') }, 'Limits'), ` › ${what}`);
}

/** @param {string} resource */
function resourceLink(resource) {
  return h('a', { class: aggregate(resource) ? null : 'id', href: link('limits', { resource }) }, resourceName(resource));
}
