// What is answered of a scope when the store does not answer: on_unavailable.

import { ask, Problem } from './api.js';
import { confirmed, field } from './dialog.js';
import { announce, h } from './dom.js';
import { scopeName } from './limits-editor.js';
import { adminButton, chip } from './parts.js';

const words = /** @type {Record<string, string>} */ ({ deny: 'denied', allow: 'allowed, unmetered', local: 'held to local shares' });

/**
 * What becomes of requests, in words. A newer server may know more.
 * @param {string} mode
 */
export function unavailable(mode) {
  return words[mode] ?? mode;
}

/** @param {string | undefined} mode what a scope says, if it does */
export function unavailableChip(mode) {
  return mode && chip(`in an outage ${unavailable(mode)}`, mode === 'deny' ? '' : 'shadow');
}

/**
 * A choice of what is answered.
 * @param {string | undefined} mode
 * @param {string} others says who is asked if this scope does not tell
 */
export function unavailableField(mode, others) {
  const modes = [...new Set(['default', ...Object.keys(words), mode ?? 'default'])];
  return field('When the store does not answer, requests are', 'on_unavailable', { kind: 'select', kids: modes.map((m) =>
    h('option', { value: m, selected: m === (mode ?? 'default') }, m === 'default' ? `answered as ${others}` : unavailable(m))) },
  'Held to local shares: each process admits its part of the limits, which is debited when the store answers again');
}

/**
 * A button that changes what is answered of a scope. Its limits stay.
 * @param {import('./limits-editor.js').Scope} scope
 * @param {{on_unavailable?: string, managed?: {manifest: string}} | null} held
 * @param {() => void} then
 * @param {{about: string, pick?: 'resource'}} more pick asks for a part of the scope, too
 */
export function unavailableButton(scope, held, then, { about, pick }) {
  return adminButton('Outage', () => confirmed({
    title: pick ? `Outages, for ${scope.entity ?? 'everybody'}` : `Outages, for ${scopeName(scope)}`,
    body: h('div', null,
      held?.managed && h('p', { class: 'warning' }, `The manifest ${held.managed.manifest} declares this. When it is applied again, it will undo a change made here.`),
      pick && field('Resource', pick, { autocomplete: 'off', spellcheck: 'false' }, scope.entity ? 'Empty: every other resource' : undefined),
      unavailableField(held?.on_unavailable, scope.entity || pick ? 'the next level says' : 'the system says')),
    action: 'Save',
    run: async (inputs) => {
      const target = pick ? { ...scope, [pick]: inputs[pick].value.trim() } : scope;
      if (pick && !target[pick] && !scope.entity) throw new Problem(400, { detail: 'must not be empty', field: pick });
      await ask('PUT', '/v1/limits', { params: { ...target }, body: { on_unavailable: inputs.on_unavailable.value } });
      announce(`Saved: outages for ${scopeName(target)}.`);
      then();
    },
  }), { look: 'quiet', about });
}
