// Usage of an entity or a namespace over time, as a chart.

import { get, Problem } from './api.js';
import { chart } from './chart.js';
import { h, swap } from './dom.js';
import { count } from './format.js';
import { choice, empty, panel, trouble } from './parts.js';

export const windows = ['hourly', 'daily', 'monthly'];

const forms = {
  hourly: new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' }),
  daily: new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', timeZone: 'UTC' }),
  monthly: new Intl.DateTimeFormat(undefined, { month: 'short', year: 'numeric', timeZone: 'UTC' }),
};

/**
 * Returns the start of the next window, in UTC.
 * @param {number} at
 * @param {string} window
 */
function following(at, window) {
  const t = new Date(at);
  if (window === 'monthly') return Date.UTC(t.getUTCFullYear(), t.getUTCMonth() + 1);
  return at + (window === 'daily' ? 86_400_000 : 3_600_000);
}

/**
 * Returns the placeholder where nothing keeps usage, with what would; nothing if that is not what went wrong.
 * @param {unknown} err
 */
export function noUsage(err) {
  if (err instanceof Problem && err.kind === 'no-usage') return empty('No usage yet', `${err.message[0].toUpperCase()}${err.message.slice(1)}.`);
}

/**
 * @param {import('./api.js').Params} params of /v1/usage/summary
 * @param {AbortSignal} signal
 */
export function usagePanel(params, signal, note = '') {
  const body = h('div', null, h('p', { class: 'loading' }, 'Loading …'));
  const picks = h('div', { class: 'actions' });
  const el = panel('Usage', { tools: picks, note, wide: true }, body);
  let window = 'hourly', limit = 'requests';

  async function load() {
    try {
      draw(await get('/v1/usage/summary', { ...params, window }, signal));
    } catch (err) {
      if (signal.aborted) return;
      swap(body, noUsage(err) ?? trouble(err, load));
    }
  }

  /** @param {any} sum */
  function draw(sum) {
    const limits = sum.total.limits.map((/** @type {any} */ l) => l.limit);
    if (limit !== 'requests' && !limits.includes(limit)) limit = 'requests';
    const again = (/** @type {string} */ w) => ((window = w), load());
    swap(picks, choice('Show', ['requests', ...limits], limit, (l) => ((limit = l), draw(sum))), choice('Window', windows, window, again));
    const graph = chart({
      label: `${limit} per ${window} window. Use the arrow keys to read single windows.`,
      series: [{ name: limit === 'requests' ? 'Admitted' : 'Consumed', look: 'allowed' }, { name: limit === 'requests' ? 'Refused' : 'Refused by this limit', look: 'refused' }],
      time: (at) => forms[/** @type {keyof typeof forms} */ (window)].format(at), empty: 'Nothing in this period',
    });
    const t = values(sum.total, limit);
    swap(body, graph.el, h('p', { class: 'foot' }, `${count(t[0])} ${limit === 'requests' ? 'admitted' : `${limit} consumed`}, ${count(t[1])} refused`));
    const by = new Map(sum.windows.map((/** @type {any} */ w) => [Date.parse(w.start), w]));
    /** @type {import('./chart.js').Point[]} */
    const points = [];
    const to = Math.min(Date.parse(sum.to), Date.now());
    for (let at = start(Date.parse(sum.from), window); at <= to && points.length < 400; at = following(at, window)) points.push({ at, values: values(by.get(at), limit) });
    graph.update(points);
  }
  load();
  return el;
}

/**
 * Returns the start of the window that contains a moment.
 * @param {number} at
 * @param {string} window
 */
function start(at, window) {
  const t = new Date(at);
  if (window === 'monthly') return Date.UTC(t.getUTCFullYear(), t.getUTCMonth());
  const unit = window === 'daily' ? 86_400_000 : 3_600_000;
  return at - (at % unit);
}

/**
 * Returns what was admitted and what was refused, in requests or in tokens of a limit.
 * @param {any} usage
 * @param {string} limit
 * @returns {[number, number]}
 */
export function values(usage, limit) {
  if (!usage) return [0, 0];
  if (limit === 'requests') return [usage.requests, usage.refused];
  const l = usage.limits.find((/** @type {any} */ u) => u.limit === limit);
  return l ? [l.consumed, l.refused_tokens] : [0, 0];
}
