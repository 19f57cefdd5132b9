// Why these limits apply, and how a request would be decided: /v1/explain.

import { get, Problem } from './api.js';
import { field } from './dialog.js';
import { h, swap } from './dom.js';
import { at, count, limitText, percent, resets, seconds, slotsOf } from './format.js';
import { sourceName } from './levels.js';
import { chip, code, empty, entityLink, limitList, managedBy, panel, planLink, resourceName, table, trouble } from './parts.js';
import { unavailable, unavailableChip } from './unavailable.js';

const levels = /** @type {Record<string, string>} */ ({ request: 'Request', entity: 'Entity on this resource', 'entity-default': 'Entity default', plan: 'Plan on this resource', 'plan-default': 'Plan default', resource: 'Resource', system: 'System' });
const onAggregate = /** @type {Record<string, string>} */ ({ entity: 'Entity', plan: 'Plan', resource: 'For each entity' });

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
  const words = { allowed: 'It would be admitted.', refused: x.retry_after === null ? 'It would be refused until a balance is topped up.' : `It would be refused; retry after ${seconds(x.retry_after)}.`, 'exceeds-burst': 'It can never be admitted.', 'no-limits': 'No limits apply.' };
  const outcome = /** @type {keyof typeof words} */ (x.outcome);
  return [
    (tokens || outcome !== 'allowed') && h('p', { class: `outcome ${looks[outcome] ?? ''}`, role: 'status' }, h('strong', null, words[outcome] ?? x.outcome), ' ', x.detail ?? ''),
    grid(x),
    h('ol', { class: 'chain' }, x.chain.map((/** @type {any} */ n) => h('li', null,
      h('h3', null, n.entity === id ? code(n.entity) : entityLink(n.entity), ' ', !n.exists && chip('no record'), ' ', planLink(n.plan), ' ', managedBy(n.manifest ? { manifest: n.manifest } : undefined)),
      [...Map.groupBy([...n.levels, ...(n.groups ?? [])], (l) => l.resource ?? '')].map(([on, list]) => h('ul', { class: 'steps', 'aria-label': on ? `On ${resourceName(on)}` : null },
        on && h('li', { class: 'of', 'aria-hidden': 'true' }, `On ${resourceName(on)}:`), list.map(step)))))),
    h('p', { class: 'foot' }, x.on_unavailable && `If the store does not answer, requests are ${unavailable(x.on_unavailable.value)}. Set at: ${levels[x.on_unavailable.from] ?? 'the server’s configuration'}.`),
  ];
}

/** @param {any} l */
function step(l) {
  const of = l.resource === undefined ? levels : onAggregate;
  return h('li', { class: l.applies ? 'applies' : l.set ? 'set' : '' },
    h('span', null, of[l.source] ?? l.source), ' ', h('span', { class: 'dim' }, l.applies ? '· applies' : l.set ? '· not reached' : '· none'), ' ', unavailableChip(l.on_unavailable));
}

/**
 * Returns the limits that a request is charged to: a row for each entity, a column for the resource, its group and the total.
 * @param {any} x
 */
function grid(x) {
  const columns = [...new Set([undefined, ...x.chain.flatMap((/** @type {any} */ n) => (n.groups ?? []).map((/** @type {any} */ g) => g.resource))])];
  return table('What is left of each limit', ['Entity', ...columns.map((on) => resourceName(on ?? x.resource))], x.chain.map((/** @type {any} */ n) => [
    code(n.entity), ...columns.map((on) => {
      const here = (/** @type {any} */ l) => l.resource === on, limits = n.limits.filter(here);
      return [cell(limits, x.at), change(n.changes?.find(here), limits.length > 0)];
    })]));
}

/** @param {any} next @param {boolean} limited whether there are limits now */
function change(next, limited) {
  return next && h('div', { class: 'bounded' }, h('span', { class: 'dim' }, `${limited ? 'until' : 'from'} ${at(next.at).text}${limited ? ', then' : ''}`), ' ',
    next.limits.length ? [limitList(next.limits), h('span', { class: 'unseen' }, ` ${sourceName(next)}`)] : 'no limits');
}

/** @param {any[]} limits @param {string} at */
function cell(limits, at) {
  if (!limits.length) return h('span', { class: 'dim' }, 'no limits');
  return h('ul', { class: 'cells' }, limits.map((l) => h('li', null, h('span', { class: 'limit-name' }, l.limit), ' ', limitText(l), ' ',
    h('span', { class: 'left' }, slotsOf(l) ? `${count(l.burst - l.available)} of ${count(l.burst)} held` : `${count(l.available)} left${l.burst > 0 ? `, ${percent(Math.max(0, l.used))} used` : ''}`, l.ends_in && [', ', resets(l.period, l.ends_in, at)]), ' ',
    l.binds && chip('binding', 'shadow'), ' ', l.refused && chip('refuses', 'bad'), ' ', l.shadow && chip('shadow', 'shadow'), ' ',
    managedBy(l.manifest ? { manifest: l.manifest } : undefined), h('span', { class: 'unseen' }, ` ${sourceName(l)}`))));
}
