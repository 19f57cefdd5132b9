// Balances: what is left of prepaid credits, and topping them up.

import { ask, get, Problem, segment } from './api.js';
import { confirmed, field } from './dialog.js';
import { announce, h, swap } from './dom.js';
import { count, num, parseCount, when } from './format.js';
import { button, chip, code, panel, principalName, resourceName, table } from './parts.js';

/** @typedef {{entity: string, resource: string, limit: string}} Balance */

/** @param {Balance} b */
function path(b) {
  return `/v1/entities/${segment(b.entity)}/balances/${segment(b.limit)}`;
}

/** @param {Balance} b */
function nameOf(b) {
  return `${b.limit} of ${b.entity} on ${resourceName(b.resource)}`;
}

/**
 * Returns the panel of an entity's balances, or null if it has none.
 * @param {any[]} items
 * @param {() => void} reload
 */
export function balancesPanel(items, reload) {
  if (!items.length) return null;
  return panel('Balances', { wide: true, note: 'A balance that is 0 may be forgotten: its sums then begin anew' },
    table('Balances', ['Balance', { title: 'Left', num: true }, { title: 'Credited', num: true }, { title: 'Debited', num: true }, { title: 'Returned', num: true }, { title: 'Actions', hide: true, num: true }], items.map((b) => [
      [h('span', { class: 'limit-name' }, b.limit), ' ', h('span', { class: 'dim' }, `on ${resourceName(b.resource)}`), ' ', b.removed && chip('removed')],
      num(b.available), num(b.credited), num(b.debited), num(b.returned), !b.removed && topUpButton(b, reload)])));
}

/**
 * Returns a button that tops up a balance, for those who may.
 * @param {Balance} b
 * @param {() => void} then
 */
export function topUpButton(b, then) {
  return button('Top up', () => topUp(b, then), { role: 'credit', about: nameOf(b) });
}

/**
 * Asks for an amount and an id. The dialog stays open with both until there is an answer, so that who presses the button again
 * after a lost one repeats the same credit.
 * @param {Balance} b
 * @param {() => void} then
 */
function topUp(b, then) {
  const history = h('div');
  lastCredits(b).then((list) => swap(history, list), () => {}); // a help that a dialog works without
  confirmed({
    title: `Top up ${nameOf(b)}`,
    body: h('div', null,
      field('Amount', 'amount', { placeholder: '500', autocomplete: 'off' }, 'In tokens'),
      field('ID', 'id', { autocomplete: 'off', spellcheck: 'false' }, 'Names what is paid, such as the number of an invoice. Each ID is credited once, for ever. If you get no answer, try again with the same ID: nothing is added twice.'),
      history),
    action: 'Top up',
    run: async (inputs) => {
      const amount = parseCount(inputs.amount.value), id = inputs.id.value.trim();
      if (Number.isNaN(amount)) throw new Problem(400, { detail: 'must be a whole number, such as 500, 50K or 1.5M', field: 'amount' });
      if (!id) throw new Problem(400, { detail: 'must not be empty', field: 'id' });
      const now = await ask('POST', path(b), { params: { resource: b.resource }, body: { amount, id } }).catch((err) => {
        if (!(err instanceof Problem) || (err.status > 0 && err.status < 500)) throw err;
        throw new Problem(err.status, { detail: `${err.message}. The credit may have been made nonetheless: try again with the same ID, which is credited once.` });
      });
      announce(`${now.repeated ? `${id} was credited before` : `Credited: ${id}`}. ${count(now.available)} ${b.limit} left.`);
      then();
    },
  });
}

/** @param {Balance} b */
async function lastCredits(b) {
  const { items } = await get(`${path(b)}/history`, { resource: b.resource, max: 5 });
  return items.length > 0 && [h('h3', null, 'Last credits'), h('ul', { class: 'limits' }, items.map((/** @type {any} */ c) =>
    h('li', null, num(c.amount), ' ', code(c.id), ' ', h('span', { class: 'dim' }, when(c.at), ' by ', principalName(c.principal)))))];
}
