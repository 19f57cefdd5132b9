// How requests of a scope are decided when the store does not answer: on_unavailable.

import { ask, Problem } from './api.js';
import { confirmed, field } from './dialog.js';
import { announce, h } from './dom.js';
import { scopeName } from './limits-editor.js';
import { adminButton, chip } from './parts.js';

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
  return mode && chip(`in an outage: ${unavailable(mode)}`, mode === 'deny' ? '' : 'shadow');
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
 * Returns a button that changes the mode of a scope. Its limits stay.
 * @param {import('./limits-editor.js').Scope} scope
 * @param {{on_unavailable?: string, managed?: {manifest: string}} | null} held
 * @param {() => void} then
 * @param {{about: string, pick?: 'resource'}} more pick also asks for that part of the scope
 */
export function unavailableButton(scope, held, then, { about, pick }) {
  return adminButton('Outage', () => confirmed({
    title: pick ? `Outage behavior for ${scope.entity ?? 'everybody'}` : `Outage behavior for ${scopeName(scope)}`,
    body: h('div', null,
      held?.managed && h('p', { class: 'warning' }, `Manifest ${held.managed.manifest} declares this setting. Applying it again will undo changes made here.`),
      pick && field('Resource', pick, { autocomplete: 'off', spellcheck: 'false' }, scope.entity ? 'Empty: all other resources' : undefined),
      unavailableField(held?.on_unavailable, scope.entity || pick ? 'the next level' : 'the system')),
    action: 'Save',
    run: async (inputs) => {
      const target = pick ? { ...scope, [pick]: inputs[pick].value.trim() } : scope;
      if (pick && !target[pick] && !scope.entity) throw new Problem(400, { detail: 'must not be empty', field: pick });
      await ask('PUT', '/v1/limits', { params: { ...target }, body: { on_unavailable: inputs.on_unavailable.value } });
      announce(`Saved: outage behavior for ${scopeName(target)}.`);
      then();
    },
  }), { look: 'quiet', about });
}
