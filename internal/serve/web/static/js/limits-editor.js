// Setting and removing the limits of a scope: an entity or a plan on a resource, the default of any of them, or the system.

import { ask, Problem } from './api.js';
import { confirmed, field } from './dialog.js';
import { announce, h, swap } from './dom.js';
import { editable, parseCount, slotsOf } from './format.js';
import { aggregate, groupResource, resourceName, totalResource } from './parts.js';

/** @typedef {{entity?: string, plan?: string, resource?: string}} Scope */
/** @typedef {{limits: import('./parts.js').Limit[], bounded?: import('./parts.js').Bounded[], managed?: {manifest: string}, etag: string}} Held */

/** @param {Scope} scope */
export function scopeName({ entity, plan, resource }) {
  const who = entity ?? (plan && `plan ${plan}`);
  if (who) return resource ? `${who} on ${resourceName(resource)}` : `${who} (default)`;
  return !resource ? 'the system' : aggregate(resource) ? resourceName(resource) : `resource ${resource}`;
}

const zone = new Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC';
const periods = ['s', 'min', 'h', 'd', 'w', `day@${zone}`, `month@${zone}`, 'slots', 'balance'];
/** What the form does not show, by row: it stays as it was. */
const rest = /** @type {WeakMap<Element, Partial<import('./parts.js').Limit>>} */ (new WeakMap());
const stages = ['on', '75%', '50%', '25%', '10%', 'shadow'];

/**
 * Returns a limit as a row of inputs, named as the API names them in errors.
 * @param {number} i
 * @param {Partial<import('./parts.js').Limit>} limit
 * @param {(row: HTMLElement) => void} remove
 */
function row(i, limit, remove) {
  const name = (/** @type {string} */ part) => `limits[${i}].${part}`;
  const enforce = limit.enforce ?? 'on', slots = slotsOf(limit), amount = slots?.slots ?? limit.amount;
  const el = h('fieldset', { class: 'limit-row' },
    h('legend', { class: 'unseen' }, `Limit ${i + 1}`),
    field('Name', name('name'), { value: limit.name ?? '', placeholder: 'rpm', autocomplete: 'off', spellcheck: 'false' }),
    field('Tokens', name('amount'), { value: amount ? editable(amount) : '', placeholder: '50K', inputmode: 'text', autocomplete: 'off' }),
    field('per', name('period'), { value: slots ? `slots${slots.heal && `/${slots.heal}`}` : limit.period ?? 'min', list: 'periods', autocomplete: 'off', spellcheck: 'false' }),
    field('Burst', name('burst'), { value: limit.burst && limit.burst !== limit.amount ? editable(limit.burst) : '', placeholder: 'as tokens', autocomplete: 'off' }),
    field('Enforced', name('enforce'), { kind: 'select', kids: [...new Set([...stages, enforce])].map((s) => h('option', { value: s, selected: s === enforce }, s)) }),
    h('button', { type: 'button', class: 'quiet remove', 'aria-label': `Remove limit ${i + 1}`, on: { click: () => remove(el) } }, '×'));
  rest.set(el, { max_debt: limit.max_debt, returns: limit.returns });
  return el;
}

/**
 * Opens the form for the limits of a scope.
 * @param {Scope} scope
 * @param {Held | null} held the current limits
 * @param {() => void} then
 * @param {{pick?: 'resource' | 'entity' | 'plan'}} [more] pick also asks for that part of the scope
 */
export function editLimits(scope, held, then, { pick } = {}) {
  let made = 0;
  const rows = h('div', { class: 'limit-rows' });
  const remove = (/** @type {HTMLElement} */ el) => {
    const next = el.nextElementSibling ?? el.previousElementSibling;
    el.remove();
    (/** @type {HTMLElement | null} */ (next?.querySelector('input')) ?? more).focus();
  };
  const add = (/** @type {Partial<import('./parts.js').Limit>} */ limit) => {
    const el = row(made++, limit, remove);
    rows.append(el);
    return el;
  };
  const more = h('button', { type: 'button', class: 'quiet', on: { click: () => add({}).querySelector('input')?.focus() } }, 'Add a limit');
  for (const limit of held?.limits.length ? held.limits : [{}]) add(limit);
  const owner = scope.entity ?? scope.plan;
  confirmed({
    title: pick ? `New limits for ${owner ?? `a ${pick}`}` : `Limits of ${scopeName(scope)}`,
    body: h('div', null,
      held?.managed && h('p', { class: 'warning' }, `Manifest ${held.managed.manifest} declares these limits. Applying it again will undo changes made here.`),
      pick === 'resource' ? pickResource(owner) : pick && field(pick === 'plan' ? 'Plan' : 'Entity', pick, { autocomplete: 'off', spellcheck: 'false' }),
      rows, h('p', { class: 'hint' }, `“per” is a duration, such as min or 30d; a window of the calendar in a time zone, such as month@${zone}, for a quota; slots, or slots/2min, for how many can be held at once; or balance, without tokens, for what is topped up`), more, h('datalist', { id: 'periods' }, periods.map((p) => h('option', { value: p })))),
    action: 'Save',
    run: async (inputs) => {
      const picked = pick && inputs[pick].value.trim(), on = inputs.on?.value ?? 'resource';
      if (pick && !picked && on !== 'total' && !(on === 'resource' && owner)) throw new Problem(400, { detail: 'must not be empty', field: pick });
      const target = !pick ? scope : { ...scope, [pick]: on === 'total' ? totalResource : on === 'group' ? groupResource(picked) : picked };
      const limits = limitsOf(rows);
      await change('PUT', target, held, then, { limits }, pick);
      announce(`Saved: limits of ${scopeName(target)}.`);
      then();
    },
  });
}

/**
 * Returns the fields that ask for a resource, a group or the total.
 * @param {string | undefined} owner whose limits they are, unless everybody's
 */
function pickResource(owner) {
  const kinds = { resource: 'one resource', group: 'a group of resources, together', total: 'all resources, together' };
  const name = field('Resource or group', 'resource', { autocomplete: 'off', spellcheck: 'false' }, owner && 'Empty: the default, for each resource without limits of its own');
  const change = (/** @type {any} */ e) => (name.hidden = e.target.value === 'total');
  return [field('On', 'on', { kind: 'select', on: { change }, kids: Object.entries(kinds).map(([value, text]) => h('option', { value }, text)) }), name];
}

/**
 * Changes the limits of a scope, unless they have changed since the form was opened. In that case the page behind it shows
 * the current ones.
 * @param {'PUT' | 'DELETE'} method
 * @param {Scope} scope
 * @param {Held | null} held
 * @param {() => void} then
 * @param {{limits: import('./parts.js').Limit[]}} [body]
 * @param {string} [pick] the part of the scope that the form asked for
 */
async function change(method, scope, held, then, body, pick) {
  try {
    await ask(method, '/v1/limits', { params: { ...scope }, body, was: held?.etag ?? null });
  } catch (err) {
    if (!(err instanceof Problem) || err.kind !== 'stale') throw err;
    if (pick) throw new Problem(412, { detail: 'already has limits or its own on_unavailable: edit those', field: pick });
    then();
    throw new Problem(412, { detail: 'Somebody else has changed these limits. Nothing was saved: the page behind this dialog shows the current limits.' });
  }
}

/**
 * Reads the rows, and renumbers them as the server counts them.
 * @param {Element} rows
 */
function limitsOf(rows) {
  return [...rows.children].map((el, i) => {
    const input = (/** @type {string} */ part) => /** @type {HTMLInputElement} */ (el.querySelector(`[name$=".${part}"]`));
    for (const part of ['name', 'amount', 'period', 'burst', 'enforce']) input(part).name = `limits[${i}].${part}`;
    const number = (/** @type {string} */ part) => {
      const n = parseCount(input(part).value);
      if (Number.isNaN(n)) throw new Problem(400, { detail: 'must be a whole number, such as 500, 50K or 1.5M', field: `limits[${i}].${part}` });
      return n;
    };
    /** @type {import('./parts.js').Limit} */
    const limit = { ...rest.get(el), name: input('name').value.trim(), period: input('period').value.trim() };
    const [unit, heal] = limit.period.split('/');
    if (unit === 'slots') Object.assign(limit, { period: undefined, slots: number('amount'), heal });
    else if (unit !== 'balance' || input('amount').value.trim()) limit.amount = number('amount');
    if (!limit.name) throw new Problem(400, { detail: 'must not be empty', field: `limits[${i}].name` });
    if (input('burst').value.trim()) limit.burst = number('burst');
    if (input('enforce').value !== 'on') limit.enforce = input('enforce').value;
    return limit;
  });
}

/**
 * Removes the limits of a scope after confirmation.
 * @param {Scope} scope
 * @param {Held} held
 * @param {() => void} then
 */
export function removeLimits(scope, held, then) {
  const next = aggregate(scope.resource ?? '') ? `Requests are still charged to other limits on ${resourceName(scope.resource ?? '')} that apply to them.`
    : scope.plan ? 'The next level with limits applies instead.'
    : scope.entity && scope.resource ? 'The entity default applies instead, or else the limits of its plan, the resource or the system.'
    : scope.entity ? 'The limits of its plan, the resource or the system apply instead.' : scope.resource ? 'The limits of the system apply instead.' : 'Nothing replaces them.';
  const body = h('div', null);
  swap(body, h('p', null, `${next} If no limits apply to a request, it fails with an error.`),
    held.bounded && h('p', { class: 'warning' }, 'The limits that begin or end are removed, too.'),
    held.managed && h('p', { class: 'warning' }, `Manifest ${held.managed.manifest} declares these limits. Applying it again will restore them.`));
  confirmed({
    title: `Remove the limits of ${scopeName(scope)}?`, body, action: 'Remove', danger: true,
    run: async () => {
      await change('DELETE', scope, held, then);
      announce(`Removed: limits of ${scopeName(scope)}.`);
      then();
    },
  });
}
