// The settings of a scope beside its limits: how its requests are decided when the store does not answer, and the group of a
// resource.

import { ask, Problem } from './api.js';
import { confirmed, field } from './dialog.js';
import { announce, h } from './dom.js';
import { scopeName } from './limits-editor.js';
import { adminButton, aggregate, chip } from './parts.js';

const words = /** @type {Record<string, string>} */ ({ deny: 'denied', allow: 'allowed, unmetered', local: 'limited to local shares' });

/**
 * Returns a mode in words. A newer server may have others.
 * @param {string} mode
 */
export function unavailable(mode) {
  return words[mode] ?? mode;
}

/** @param {string | undefined} mode the mode of a scope, if it has one */
export function unavailableChip(mode) {
  return mode && chip(`if the store fails: ${unavailable(mode)}`, mode === 'deny' ? '' : 'shadow');
}

/**
 * Returns a field to choose the mode.
 * @param {string | undefined} mode
 * @param {string} others names what decides if this scope has no mode
 */
export function unavailableField(mode, others) {
  const modes = [...new Set(['default', ...Object.keys(words), mode ?? 'default'])];
  return field('When the store does not answer, requests are', 'on_unavailable', { kind: 'select', kids: modes.map((m) =>
    h('option', { value: m, selected: m === (mode ?? 'default') }, m === 'default' ? `decided by ${others}` : unavailable(m))) },
  'Limited to local shares: each process admits its share of the limits, which is debited when the store answers again');
}

/**
 * Returns a button that changes the settings of a scope. Its limits stay.
 * @param {import('./limits-editor.js').Scope} scope
 * @param {{on_unavailable?: string, group?: string, managed?: {manifest: string}} | null} held
 * @param {() => void} then
 * @param {{about: string, pick?: 'resource'}} more pick also asks for that part of the scope
 */
export function settingsButton(scope, held, then, { about, pick }) {
  const owner = scope.entity ?? scope.plan;
  if (aggregate(scope.resource ?? '')) return null;
  return adminButton('Settings', () => confirmed({
    title: `Settings of ${pick ? (owner ?? 'a resource') : scopeName(scope)}`,
    body: h('div', null,
      held?.managed && h('p', { class: 'warning' }, `Manifest ${held.managed.manifest} declares these settings. Applying it again will undo changes made here.`),
      pick && field('Resource', pick, { autocomplete: 'off', spellcheck: 'false' }, owner ? 'Empty: the default, for each resource without settings of its own' : undefined),
      !owner && (pick || scope.resource) && field('Group', 'group', { value: held?.group ?? '', autocomplete: 'off', spellcheck: 'false' }, 'Requests are also charged to the limits on the group'),
      unavailableField(held?.on_unavailable, owner || pick ? 'the next level' : 'the system')),
    action: 'Save',
    run: async (inputs) => {
      const target = pick ? { ...scope, [pick]: inputs[pick].value.trim() } : scope;
      if (pick && !target[pick] && !owner) throw new Problem(400, { detail: 'must not be empty', field: pick });
      /** @type {Record<string, string>} */
      const body = {}, mode = inputs.on_unavailable.value, group = inputs.group?.value.trim();
      if (mode !== (held?.on_unavailable ?? 'default')) body.on_unavailable = mode;
      if (group !== undefined && group !== (held?.group ?? '')) body.group = group;
      if (Object.keys(body).length) await ask('PUT', '/v1/limits', { params: { ...target }, body });
      announce(`Saved: settings of ${scopeName(target)}.`);
      then();
    },
  }), { look: 'quiet', about });
}
