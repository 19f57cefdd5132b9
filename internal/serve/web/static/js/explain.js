// Why these limits apply, and how a request would be decided: /v1/explain.

import { get, Problem } from './api.js';
import { clear, field, show } from './dialog.js';
import { h, swap } from './dom.js';
import { at, count, limitText, parseCount, percent, resets, seconds, slotsOf } from './format.js';
import { sourceName, sources } from './levels.js';
import { chip, code, empty, entityLink, limitList, managedBy, panel, planLink, resourceName, table, trouble } from './parts.js';
import { unavailable, unavailableChip } from './unavailable.js';

/**
 * @param {{id: string, resource: string}} what
 * @param {AbortSignal} signal
 */
export function explainPanel({ id, resource }, signal) {
  const result = h('div', null, h('p', { class: 'loading' }, 'Loading …'));
  const error = h('div', { class: 'error', role: 'alert' }), amounts = h('div', { class: 'amounts' });
  const form = h('form', { class: 'explain', hidden: true, novalidate: true, on: { submit: (/** @type {Event} */ e) => (e.preventDefault(), load()) } },
    h('fieldset', { class: 'what-if' }, h('legend', null, 'What would happen to a request for'), amounts, h('button', { type: 'submit' }, 'Explain')), error);

  /** @returns {HTMLInputElement[]} */
  const inputs = () => [...amounts.querySelectorAll('input')];
  const shown = (/** @type {HTMLInputElement} */ input) => input.name.slice('tokens.'.length);

  /** Offers an amount of each limit that applies. What was entered stays. @param {any} x */
  function offer(x) {
    const names = [...new Set(x.chain.flatMap((/** @type {any} */ n) => n.limits.map((/** @type {any} */ l) => l.limit)))];
    form.hidden = names.length === 0;
    if (JSON.stringify(names) === JSON.stringify(inputs().map(shown))) return;
    const had = new Map(inputs().map((input) => [shown(input), input.value]));
    swap(amounts, ...names.map((name) => field(name, `tokens.${name}`, { value: had.get(name) ?? '', placeholder: '0', autocomplete: 'off' })));
  }

  function entered() {
    return inputs().filter((input) => input.value.trim()).map((input) => {
      const n = parseCount(input.value);
      if (Number.isNaN(n)) throw new Problem(400, { detail: 'must be a whole number, such as 500, 50K or 1.5M', field: input.name });
      return `${shown(input)}=${n}`;
    }).join();
  }

  async function load() {
    clear(form);
    swap(error);
    let tokens = '';
    try {
      tokens = entered();
      const x = await get('/v1/explain', { entity: id, resource, tokens }, signal);
      offer(x);
      swap(result, ...explanation(x, id, tokens));
    } catch (err) {
      if (signal.aborted) return;
      if (err instanceof Problem && err.status === 400 && inputs().length) show(form, error, err);
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
    h('p', { class: 'foot' }, x.on_unavailable && `If the store does not answer, requests are ${unavailable(x.on_unavailable.value)}. Set at: ${sources[x.on_unavailable.from] ?? 'the server’s configuration'}.`),
  ];
}

/** @param {any} l */
function step(l) {
  return h('li', { class: l.applies ? 'applies' : l.set ? 'set' : '' },
    h('span', null, sourceName(l)), ' ', h('span', { class: 'dim' }, l.applies ? '· applies' : l.set ? '· not reached' : '· none'), ' ', unavailableChip(l.on_unavailable));
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
