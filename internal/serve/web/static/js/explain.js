// Why these limits apply, and how a request would be decided: /v1/explain.

import { get, Problem } from './api.js';
import { field } from './dialog.js';
import { h, swap } from './dom.js';
import { count, limitText, percent, seconds } from './format.js';
import { sources } from './levels.js';
import { chip, code, empty, entityLink, managedBy, panel, trouble } from './parts.js';
import { unavailable, unavailableChip } from './unavailable.js';

const levels = /** @type {Record<string, string>} */ ({ request: 'Request', entity: 'Entity on this resource', 'entity-default': 'Entity default', resource: 'Resource', system: 'System' });

/**
 * @param {{id: string, resource: string}} what
 * @param {AbortSignal} signal
 */
export function explainPanel({ id, resource }, signal) {
  const result = h('div', null, h('p', { class: 'loading' }, 'Loading …'));
  const form = h('form', { class: 'what-if', on: { submit: (/** @type {Event} */ e) => (e.preventDefault(), load()) } },
    field('What would happen to a request for', 'tokens', { placeholder: 'rpm=1, tpm=500', autocomplete: 'off', spellcheck: 'false' }),
    h('button', { type: 'submit' }, 'Explain'));
  const error = form.querySelector('.field-error');

  async function load() {
    swap(error);
    const tokens = form.elements.tokens.value.replace(/\s+/g, '');
    try {
      swap(result, ...explanation(await get('/v1/explain', { entity: id, resource, tokens }, signal), id, tokens));
    } catch (err) {
      if (signal.aborted) return;
      if (err instanceof Problem && err.status === 400 && tokens) swap(error, err.message);
      else swap(result, err instanceof Problem && err.absent ? empty('This server cannot explain decisions', 'It is older than this page.') : trouble(err, load));
    }
  }
  load();
  return panel('Why these limits apply', { wide: true, note: 'Where the limits come from: for each entity in the chain, the first level with limits applies' }, form, result);
}

/**
 * @param {any} x
 * @param {string} id
 * @param {string} tokens
 */
function explanation(x, id, tokens) {
  const looks = { allowed: 'good', refused: 'bad', 'exceeds-burst': 'bad', 'no-limits': 'bad' };
  const words = { allowed: 'It would be admitted.', refused: `It would be refused; retry after ${seconds(x.retry_after)}.`, 'exceeds-burst': 'It can never be admitted.', 'no-limits': 'No limits apply.' };
  const outcome = /** @type {keyof typeof words} */ (x.outcome);
  return [
    (tokens || outcome !== 'allowed') && h('p', { class: `outcome ${looks[outcome] ?? ''}`, role: 'status' }, h('strong', null, words[outcome] ?? x.outcome), ' ', x.detail ?? ''),
    h('ol', { class: 'chain' }, x.chain.map((/** @type {any} */ n) => h('li', null,
      h('h3', null, n.entity === id ? code(n.entity) : entityLink(n.entity), ' ', !n.exists && chip('no record'), ' ', managedBy(n.manifest ? { manifest: n.manifest } : undefined)),
      h('ul', { class: 'steps' }, n.levels.map((/** @type {any} */ l) => h('li', { class: l.applies ? 'applies' : l.set ? 'set' : '' },
        h('span', null, levels[l.source] ?? l.source), ' ', h('span', { class: 'dim' }, l.applies ? '· applies' : l.set ? '· not reached' : '· none'), ' ', unavailableChip(l.on_unavailable)))),
      n.limits.length > 0 && h('ul', { class: 'limits' }, n.limits.map((/** @type {any} */ l) => h('li', null, h('span', { class: 'limit-name' }, l.limit), ' ', limitText(l), ' ',
        h('span', { class: 'dim' }, `${count(l.available)} left, ${percent(Math.max(0, l.used))} used`), ' ', l.binds && chip('binding', 'shadow'), ' ', l.refused && chip('refuses', 'bad'), ' ', l.shadow && chip('shadow', 'shadow'), ' ',
        managedBy(l.manifest ? { manifest: l.manifest } : undefined), h('span', { class: 'unseen' }, ` ${sources[l.source] ?? l.source}`))))))),
    h('p', { class: 'foot' }, x.on_unavailable && `If the store does not answer, requests are ${unavailable(x.on_unavailable.value)}. Set at: ${levels[x.on_unavailable.from] ?? 'the server’s configuration'}.`),
  ];
}
