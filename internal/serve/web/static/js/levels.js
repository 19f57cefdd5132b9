// What an entity can spend on a resource, live.

import { get, Problem } from './api.js';
import { topUpButton } from './balances.js';
import { h, say, swap } from './dom.js';
import { hms, limitText } from './format.js';
import { adminButton, aggregate, chip, empty, entityLink, level, panel, resourceName, totalResource, trouble } from './parts.js';
import { follow, pause } from './stream.js';

/** The names of the levels that limits come from. */
export const sources = /** @type {Record<string, string>} */ ({ request: 'request', entity: 'entity', 'entity-default': 'entity default', plan: 'plan', 'plan-default': 'plan default', resource: 'resource', system: 'system' });

/**
 * Returns the name of the level that a limit comes from.
 * @param {{resource?: string, source?: string}} l
 */
export function sourceName(l) {
  if (l.source === 'resource' && aggregate(l.resource ?? '')) return l.resource === totalResource ? 'total' : 'group';
  return sources[l.source ?? ''] ?? l.source;
}

/**
 * Returns the panel of live levels of the entity, then of its parents.
 * @param {{id: string, resource: string}} what
 * @param {AbortSignal} signal
 * @param {{edit: () => void, edits: string, reset: () => void, reload: () => void}} act
 */
export function livePanel({ id, resource }, signal, act) {
  const dot = h('span', { class: 'live', 'data-state': 'waiting', role: 'status' }, 'Connecting …');
  const box = h('div', { class: 'live-levels' });
  const tools = [dot, adminButton(act.edits, act.edit, { about: `of ${id} on ${resource}` }), adminButton('Reset', act.reset, { look: 'quiet', about: `the bucket of ${id} on ${resource}` })];
  const el = panel(`Levels on ${resource}`, { tools, wide: true }, box);
  /** @type {Map<string, ReturnType<typeof level>>} */
  const bars = new Map();
  let shape = '', last = 0;

  /** @param {{at: string, limits: import('./parts.js').Status[]}} state */
  function draw({ at, limits }) {
    last = Date.now();
    // Bars are kept while the limits stay the same, so that they move instead of being recreated.
    const now = JSON.stringify(limits.map((s) => [s.entity, s.resource, s.limit, s.source, s.amount, s.period, s.burst, s.shadow]));
    if (now !== shape) {
      shape = now;
      bars.clear();
      const groups = Map.groupBy(limits, (s) => s.entity);
      swap(box, [...groups].map(([entity, list]) => h('div', { class: 'link' },
        h('h3', null, entity === id ? 'Own' : [h('span', { class: 'up' }, 'also charged: '), entityLink(entity)]),
        list.map((s) => {
          const bar = level(`${s.limit} of ${entity} on ${resourceName(s.resource)}`);
          bars.set(JSON.stringify([entity, s.resource, s.limit]), bar);
          return h('div', { class: 'level-line', 'data-limit': s.limit }, h('div', { class: 'level-name' }, h('span', { class: 'limit-name' }, s.limit), h('span', { class: 'dim' }, limitText(s)),
            aggregate(s.resource) && h('span', { class: 'dim' }, `on ${resourceName(s.resource)}`), s.source && chip(sourceName(s)), s.shadow && chip('shadow', 'shadow')), s.period === 'balance' ? h('div', { class: 'actions' }, bar.el, topUpButton(s, act.reload)) : bar.el);
        }))));
    }
    for (const s of limits) bars.get(JSON.stringify([s.entity, s.resource, s.limit]))?.update(s, at);
  }

  /** @param {string} state @param {Problem} [problem] */
  function set(state, problem) {
    dot.dataset.state = state;
    box.classList.toggle('stale', state === 'reconnecting');
    say(dot, state === 'live' ? 'Live' : state === 'reconnecting' ? (last ? `Reconnecting, stale since ${hms(last)}` : 'Reconnecting …') : '');
    if (state !== 'ended' || !problem) return;
    if (problem.absent) return void poll();
    swap(box, problem.kind === 'no-limits'
      ? empty('No limits apply', 'No level has limits for this entity on this resource, so requests fail with an error. Set limits here, for the resource, or for the system.')
      : trouble(problem));
  }

  // Polls a server that does not stream levels.
  async function poll() {
    while (!signal.aborted) {
      try {
        draw(await get('/v1/available', { entity: id, resource }, signal));
        set('live');
      } catch (err) {
        if (err instanceof Problem && err.status >= 400 && err.status < 500) return set('ended', err);
        set('reconnecting');
      }
      await pause(2000, signal);
    }
  }

  follow('/v1/watch', { entity: id, resource }, { data: draw, state: set, signal });
  return el;
}
