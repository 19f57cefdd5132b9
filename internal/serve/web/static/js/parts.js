// The building blocks of pages: panels, tables, bars, chips, states.

import { ask, Problem, segment } from './api.js';
import { confirmed } from './dialog.js';
import { announce, h, say, swap } from './dom.js';
import { at, count, limitText, num, resets, seconds, slotsOf } from './format.js';
import { here, link } from './route.js';
import { denied, may, session } from './session.js';

/** @typedef {{limit: string, entity: string, resource: string, available: number, burst: number, amount: number, period: string, full_in: number, ends_in?: number, source?: string, shadow?: boolean, would_refuse?: boolean}} Status */
/** @typedef {{name: string, amount?: number, period: string, burst?: number, slots?: number, heal?: string, enforce?: string, max_debt?: number, returns?: string}} Limit */

/**
 * Returns the head of a page. Its heading receives the focus after navigation.
 * @param {string} title
 * @param {{lead?: any, tools?: any, path?: any}} [more]
 */
export function head(title, { lead, tools, path } = {}) {
  return h('div', { class: 'head' },
    h('div', null, path, h('h1', { tabindex: '-1' }, title), lead && h('p', { class: 'lead' }, lead)),
    tools && h('div', { class: 'actions' }, tools));
}

/**
 * Returns a panel with a heading.
 * @param {string} title
 * @param {{tools?: any, note?: any, wide?: boolean}} more
 * @param {...any} kids
 */
export function panel(title, { tools, note, wide } = {}, ...kids) {
  return h('section', { class: wide ? 'panel wide' : 'panel' },
    h('div', { class: 'panel-head' }, h('h2', null, title), tools && h('div', { class: 'actions' }, tools)),
    note && h('p', { class: 'note' }, note), ...kids);
}

/**
 * Returns a table that scrolls if it is too wide; on small screens, each row is a list of its cells. A column is its heading, or
 * an object: `num` is right-aligned, the title of `hide` is for screen readers only.
 * @param {string} caption
 * @param {(string | {title: string, num?: boolean, hide?: boolean})[]} columns
 * @param {any[][]} rows
 */
export function table(caption, columns, rows) {
  const cols = columns.map((c) => (typeof c === 'string' ? { title: c } : c));
  const name = (/** @type {any} */ c) => (c.num ? 'r' : null);
  return h('div', { class: 'scroll', role: 'region', 'aria-label': caption, tabindex: '0' },
    h('table', null, h('caption', { class: 'unseen' }, caption),
      h('thead', null, h('tr', null, cols.map((c) => h('th', { scope: 'col', class: name(c) }, c.hide ? h('span', { class: 'unseen' }, c.title) : c.title)))),
      h('tbody', null, rows.map((row) => h('tr', null, row.map((cell, i) => h(i ? 'td' : 'th', { scope: i ? null : 'row', class: name(cols[i]), 'data-title': i && !cols[i].hide ? cols[i].title : null }, cell)))))));
}

/**
 * Returns the placeholder of an empty list: what that means, and what to do.
 * @param {string} title
 * @param {...any} text
 */
export function empty(title, ...text) {
  return h('div', { class: 'empty' }, h('p', { class: 'empty-title' }, title), text.length > 0 && h('p', null, ...text));
}

/**
 * Returns the placeholder of a failed request.
 * @param {unknown} err
 * @param {() => void} [retry]
 */
export function trouble(err, retry) {
  const p = err instanceof Problem ? err : null;
  const title = p?.status === 403 ? 'You do not have permission to see this' : p?.status === 404 ? 'Not found'
    : p && (p.status === 0 || p.status >= 500) ? 'The server is not responding properly' : 'The request failed';
  return h('div', { class: 'empty bad', role: 'alert' }, h('p', { class: 'empty-title' }, title),
    h('p', null, err instanceof Error ? err.message : String(err)),
    retry && p?.status !== 403 && h('button', { type: 'button', on: { click: retry } }, 'Try again'));
}

/** @param {string} text @param {string} [look] */
export function chip(text, look = '') {
  return h('span', { class: `chip ${look}` }, text);
}

/** @param {string} id */
export function entityLink(id) {
  return h('a', { href: link('entity', { id }), class: 'id' }, id);
}

/** @param {string} id */
export function code(id) {
  return h('span', { class: 'id' }, id);
}

/** The resource of the limits on all resources together. */
export const totalResource = '_total_';
const group = '_group_';

/**
 * Returns the resource of the limits on a group.
 * @param {string} name
 */
export function groupResource(name) {
  return group + name;
}

/**
 * Returns whether a resource is a group or the total, which no request names.
 * @param {string} resource
 */
export function aggregate(resource) {
  return resource === totalResource || resource.startsWith(group);
}

/**
 * Returns the name of a resource in a sentence: gpt-4, group openai, the total.
 * @param {string} resource
 */
export function resourceName(resource) {
  return resource === totalResource ? 'the total' : resource.startsWith(group) ? `group ${resource.slice(group.length)}` : resource;
}

/** @param {string} resource */
export function resourceCode(resource) {
  return aggregate(resource) ? h('span', null, resourceName(resource)) : code(resource);
}

/**
 * Who made a change: without tokens, whoever used HTTP.
 * @param {string} name
 */
export function principalName(name) {
  return name === 'http' ? 'anonymous' : code(name);
}

/** @param {string | undefined} name */
export function planLink(name) {
  return name && h('a', { class: 'chip', href: link('limits', { plan: name }) }, `plan ${name}`);
}

/** @param {{manifest: string} | undefined} managed */
export function managedBy(managed) {
  return managed && h('a', { class: 'chip', href: link('manifests', { name: managed.manifest }), title: 'Declared by a manifest' }, `managed by manifest ${managed.manifest}`);
}

/** @param {Limit[]} limits */
export function limitList(limits) {
  return h('ul', { class: 'limits' }, limits.map((l) => h('li', null, h('span', { class: 'limit-name' }, l.name), ' ', limitText(l).split(/(?=@)/).map((part, i) => [i > 0 && h('wbr'), part]),
    l.enforce && l.enforce !== 'on' && [' ', chip(l.enforce === 'shadow' ? 'shadow' : `${l.enforce} enforced`, 'shadow')])));
}

/** @typedef {{from?: string, until?: string, scale?: number, limits?: Limit[]}} Bounded */

/**
 * Returns the limits of a scope, and what begins and ends next.
 * @param {{limits: Limit[], bounded?: Bounded[]}} s
 */
export function scopeLimits(s) {
  const next = (s.bounded ?? []).map((b) => ({ b, from: b.from ? at(b.from) : null, until: b.until ? at(b.until) : null })).filter(({ until }) => !until?.passed);
  const balances = s.limits.some((l) => l.period === 'balance');
  return [limitList(s.limits), next.map(({ b, from, until }) => h('div', { class: 'bounded' },
    h('span', { class: 'dim' }, [from && `${from.passed ? 'since' : 'from'} ${from.text}`, until && `until ${until.text}`].filter(Boolean).join(' ')), ' ', (!from || from.passed) && chip('now'),
    b.scale ? h('p', null, `${b.scale} × these limits${balances ? ', except balances' : ''}`) : limitList(b.limits ?? [])))];
}

/**
 * Returns a button for an admin action, or null for everybody else.
 * @param {string} label
 * @param {(event: Event) => void} click
 * @param {{look?: string, about?: string, ns?: string}} [more] ns is the namespace it changes, by default the current one
 */
export function adminButton(label, click, more) {
  return button(label, click, { role: 'admin', ...more });
}

/**
 * Returns a button for the action of a role, or null for everybody else. Once the server refuses the action, the button is
 * disabled and says why.
 * @param {string} label
 * @param {(event: Event) => void} click
 * @param {{role: string, look?: string, about?: string, ns?: string}} more
 */
export function button(label, click, { role, look = '', about, ns = here().ns }) {
  if (!may(role, ns)) return null;
  const el = h('button', { type: 'button', class: `admin ${look}`, 'aria-label': about ? `${label} ${about}` : null, on: { click } }, label);
  const check = () => {
    const why = denied(ns);
    el.disabled = why !== undefined;
    el.title = why === undefined ? '' : `Requires the ${role} role: ${why}`;
    if (!el.isConnected && seen) session.removeEventListener('denied', check);
    seen = true;
  };
  let seen = false;
  check();
  session.addEventListener('denied', check);
  return el;
}

/**
 * Returns a bar for the level of a bucket under one limit. update moves it.
 * @param {string} label
 */
export function level(label) {
  const track = h('i');
  const value = h('span', { class: 'level-value num' });
  const rest = h('span', { class: 'level-rest' });
  const bar = h('div', { class: 'level', role: 'meter', 'aria-label': label, 'aria-valuemin': '0' }, track);
  const el = h('div', { class: 'level-box' }, bar, h('div', { class: 'level-text' }, value, rest));
  return {
    el,
    /**
     * @param {{available: number, burst?: number, period?: string, full_in?: number, ends_in?: number}} s a balance has no burst
     * @param {string | number} [from] the time from which its seconds count
     */
    update({ burst = 0, ...s }, from = Date.now()) {
      bar.hidden = burst === 0;
      const share = burst > 0 ? Math.max(0, Math.min(1, s.available / burst)) : 1;
      track.style.setProperty('--share', String(share));
      el.dataset.state = s.available <= 0 ? 'none' : share < 0.2 ? 'low' : 'good';
      const held = slotsOf({ ...s, burst });
      const text = held ? `${count(burst - s.available)} of ${count(burst)} held` : s.available < 0 ? `${count(-s.available)} in debt` : burst > 0 ? `${count(s.available)} of ${count(burst)}` : `${count(s.available)} left`;
      bar.setAttribute('aria-valuemax', String(burst));
      bar.setAttribute('aria-valuenow', String(Math.max(0, Math.min(burst, s.available))));
      bar.setAttribute('aria-valuetext', held || s.available < 0 ? text : `${text} available`);
      say(value, text);
      const full = s.full_in === undefined || burst === 0 || held ? '' : s.full_in > 0 ? `full in ${seconds(s.full_in)}` : 'full';
      if (!s.ends_in) say(rest, full);
      else swap(rest, resets(s.period ?? '', s.ends_in, from), (s.full_in ?? 0) > s.ends_in && `, ${full}`);
    },
  };
}

/**
 * Returns a thin bar for a share of the largest value, with the number.
 * @param {number} n
 * @param {number} most
 * @param {string} [look]
 */
export function shareBar(n, most, look = '') {
  const fill = h('i');
  fill.style.setProperty('--share', String(most > 0 ? Math.max(0, n / most) : 0));
  return h('span', { class: `share ${look}` }, h('span', { class: 'share-bar', 'aria-hidden': 'true' }, fill), num(n));
}

/**
 * Returns a list that is loaded in pages, with a button to load more.
 * @param {(after: string | undefined) => Promise<{items: any[], next?: string}>} load
 * @param {(items: any[]) => Node} show receives all items so far
 */
export async function pages(load, show) {
  /** @type {any[]} */
  let items = [];
  const box = h('div');
  const draw = async (/** @type {string | undefined} */ after) => {
    const page = await load(after);
    items = items.concat(page.items);
    const more = page.next && h('button', { type: 'button', class: 'more', on: {
      click: async () => {
        more.disabled = true;
        try {
          await draw(page.next);
        } catch (err) {
          more.replaceWith(trouble(err));
        }
      },
    } }, 'Load more');
    swap(box, show(items), more);
  };
  await draw(undefined);
  return box;
}

/**
 * Resets a bucket to full, after confirmation.
 * @param {{entity: string, resource: string}} b
 * @param {() => void} [then]
 */
export function resetBucket(b, then) {
  confirmed({
    title: 'Reset this bucket?',
    body: ['All limits of ', code(b.entity), ' on ', resourceCode(b.resource), ' except balances become full at once, and debts are forgotten. The audit trail records the reset.'],
    action: 'Reset', danger: true,
    run: async () => {
      await ask('POST', `/v1/buckets/${segment(b.entity)}/${segment(b.resource)}/reset`);
      announce(`The bucket of ${b.entity} on ${resourceName(b.resource)} is full again.`);
      then?.();
    },
  });
}

/**
 * Returns a labeled select that calls change with the chosen value.
 * @param {string} label
 * @param {string[]} options
 * @param {string} value
 * @param {(value: string) => void} change
 */
export function choice(label, options, value, change) {
  return h('label', { class: 'field inline' }, h('span', null, label),
    h('select', { on: { change: (/** @type {any} */ e) => change(e.target.value) } },
      options.map((o) => h('option', { value: o, selected: o === value }, o))));
}
