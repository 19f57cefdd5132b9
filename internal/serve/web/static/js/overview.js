// What the server is doing now: /v1/overview, updated every second.

import { get, Problem } from './api.js';
import { chart } from './chart.js';
import { announce, h, say, swap } from './dom.js';
import { count, hms, millis, percent, rate, when } from './format.js';
import { chip, choice, code, empty, head, panel, shareBar, table } from './parts.js';
import { link } from './route.js';
import { follow } from './stream.js';

/** @param {string} name */
function tile(name) {
  const value = h('dd', { class: 'num' });
  const rest = h('dd', { class: 'tile-rest' });
  const el = h('div', { class: 'tile' }, h('dt', null, name), value, rest);
  return { el, set: (/** @type {string} */ v, /** @type {string} */ r, look = '') => (say(value, v), say(rest, r), (el.dataset.look = look)) };
}

/** @type {import('./main.js').Page} */
export async function page(root, { ns, signal }) {
  const decisions = tile('Decisions'), refused = tile('Refused'), latency = tile('Latency'), degraded = tile('Degraded'), store = tile('Store');
  const tiles = [decisions, refused, latency, degraded, store];
  const share = h('span', { 'aria-live': 'off' }); // changes every second, and is not announced again
  const dot = h('span', { class: 'live', 'data-state': 'waiting' }, 'Connecting …');
  const alarm = h('div', { class: 'alarm', role: 'alert', hidden: true });
  const graph = chart({
    label: 'Decisions per second over the last two minutes. Use the arrow keys to read single seconds.',
    series: [{ name: 'Allowed', look: 'allowed' }, { name: 'Refused', look: 'refused' }, { name: 'Degraded', look: 'degraded' }, { name: 'Failed', look: 'failed' }],
    time: hms, empty: 'No decisions in the last two minutes',
  });
  const steps = panel('First steps', { wide: true, note: 'Nothing has been decided since this server started' },
    h('ol', { class: 'first' }, h('li', null, h('a', { href: link('limits') }, 'Set limits'), ', such as 60 requests a minute for all entities.'),
      h('li', null, 'Ask for a decision. If the server requires a token, add the header Authorization:', h('pre', { tabindex: '0' }, `curl -H 'Content-Type: application/json' -d '{"entity":"key-alice","resource":"gpt-4","tokens":{"rpm":1}}' ${location.origin}/v1/acquire`)),
      h('li', null, 'See what is left, and why, under ', h('a', { href: link('buckets') }, 'Buckets'), '.')));
  steps.hidden = true;
  const pick = h('div'), spenders = h('div'), losers = h('div'), started = h('span');
  const body = h('div', { class: 'grid2' }, steps,
    h('dl', { class: 'tiles wide' }, tiles.map((t) => t.el)),
    panel('Decisions per second', { wide: true }, graph.el),
    panel('Top spenders', { note: 'Most tokens since the server started', tools: pick }, spenders),
    panel('Most refused', { note: 'Since the server started' }, losers));
  root.append(head('Overview', { lead: started, tools: dot }), alarm, body);

  let last = 0, state = 'waiting', ill = '', top = '', limit = '';
  /** @type {any} */
  let latest;

  /** @param {any} o */
  function draw(o) {
    last = Date.now();
    latest = o;
    const p = o.per_second, l = o.latency_ms, s = o.store;
    const decided = p.allowed + p.refused + p.degraded;
    steps.hidden = Object.values(o.totals).some((n) => Number(n) > 0);
    decisions.set(`${rate(decided)}/s`, `${count(o.totals.allowed)} allowed since start`);
    refused.set(decided > 0 ? percent(p.refused / decided) : '–', `${rate(p.refused)}/s, ${count(o.totals.refused)} in total`, p.refused > 0 ? 'refused' : '');
    latency.set(decided > 0 ? millis(l.p99) : '–', decided > 0 ? `p99; median ${millis(l.p50)}` : 'no decisions to measure');
    degraded.set(`${rate(p.degraded)}/s`, o.totals.degraded ? `${count(o.totals.degraded)} in total` : 'none since start', p.degraded > 0 ? 'bad' : '');
    store.set(s.errors_per_second > 0 ? `${rate(s.errors_per_second)} errors/s` : p.failed > 0 ? `${rate(p.failed)} failed/s` : 'Healthy',
      `${rate(s.calls_per_decision)} ${rate(s.calls_per_decision) === '1' ? 'call' : 'calls'} per decision, ${percent(s.cache_hit_ratio)} cached`, s.errors_per_second > 0 || p.failed > 0 ? 'bad' : '');
    swap(started, 'Up since ', when(o.started), ns === 'default' ? null : [', namespace ', code(ns)]);
    graph.update(lastSeconds(o));
    trouble(o);
    // Links that are replaced every second cannot be clicked and lose the focus.
    const now = JSON.stringify([o.top_spending, o.top_refused, limit]);
    if (now !== top) lists(o.top_spending ?? [], o.top_refused ?? []);
    top = now;
  }

  /** @param {any} o */
  function trouble(o) {
    const p = o.per_second, s = o.store, unmetered = p.degraded > p.local, local = p.local > 0;
    const now = s.breaker === 'open' || s.breaker === 'half-open' ? 'down' : s.unanswered > 0 ? 'late' : '';
    const what = now && [now, local, unmetered, p.failed > 0].join();
    alarm.hidden = !now;
    if (now) say(share, now === 'down' ? 'The store does not answer. ' : `${percent(s.unanswered)} of decisions were not answered in time. `);
    if (now && what !== ill) {
      swap(alarm, h('strong', null, share), [local && 'This server’s shares of the limits decide.', unmetered && 'Requests are admitted without limits.',
        p.failed > 0 && 'Requests fail.'].filter(Boolean).join(' '));
    } else if (!now && ill) announce('The store answers every decision again.');
    ill = what;
  }

  /** @param {any[]} spent @param {any[]} lost */
  function lists(spent, lost) {
    // Tokens of different limits cannot be compared: each limit has its own ranking, the one with the most tokens first.
    const limits = [...new Set(spent.map((t) => t.limit))];
    if (!limits.includes(limit)) limit = limits[0] ?? '';
    const shown = spent.filter((t) => t.limit === limit);
    if (pick.dataset.limits !== JSON.stringify(limits)) {
      pick.dataset.limits = JSON.stringify(limits);
      swap(pick, limits.length > 1 && choice('Limit', limits, limit, (l) => ((limit = l), draw(latest))));
    }
    const most = Math.max(1, ...shown.map((t) => t.tokens)), worst = Math.max(1, ...lost.map((t) => t.refused));
    keepFocus(spenders, shown.length ? table('Top spenders', ['Entity', 'Resource', `${limit} spent`], shown.slice(0, 10).map((t) => [row(t), code(t.resource), shareBar(t.tokens, most)]))
      : empty('Nothing spent yet', 'Once requests are admitted, this shows which entities spend most.'));
    keepFocus(losers, lost.length ? table('Most refused', ['Entity', 'Resource', 'Requests refused'], lost.slice(0, 10).map((t) => [row(t), code(t.resource), shareBar(t.refused, worst, 'refused')]))
      : empty('No refusals', 'No request was beyond its limits.'));
  }

  /** @param {string} to @param {Problem} [problem] */
  function set(to, problem) {
    if (to === state) return;
    const was = state;
    state = to;
    dot.dataset.state = to;
    if (to === 'live') say(dot, 'Live');
    if (to === 'live' && was === 'reconnecting') announce('Live again.');
    if (to === 'reconnecting') announce('Connection lost. Reconnecting.');
    if (to === 'ended' && problem) swap(root, head('Overview'), problem.absent
      ? empty('This server has no overview', 'It is older than this page.') : empty(problem.status === 403 ? 'You do not have permission to see this' : 'No overview', problem.message));
    tick();
  }

  function tick() {
    const stale = last > 0 && (state !== 'live' || Date.now() - last > 4000);
    body.classList.toggle('stale', stale);
    if (state === 'reconnecting' || stale) {
      if (state === 'live') dot.dataset.state = 'reconnecting';
      say(dot, last ? `Reconnecting, stale since ${hms(last)}` : 'Reconnecting …');
    }
  }
  const timer = setInterval(tick, 1000);
  signal.addEventListener('abort', () => clearInterval(timer));

  // First as JSON: a missing permission shows at once, and there is something to draw.
  try {
    draw(await get('/v1/overview', undefined, signal));
  } catch (err) {
    if (!(err instanceof Problem) || (err.status > 0 && err.status < 500 && !err.absent)) throw err;
    if (err.absent) return set('ended', err);
  }
  follow('/v1/overview', {}, { data: draw, state: set, signal, quiet: 8000 });
}

/**
 * Returns the last 120 seconds, padded if the server is younger, so that the time scale is constant.
 * @param {any} o
 * @returns {import('./chart.js').Point[]}
 */
function lastSeconds(o) {
  const points = (o.history ?? []).map((/** @type {any} */ s) => ({ at: Date.parse(s.at), values: [s.allowed, s.refused, s.degraded, s.failed] }));
  for (let at = points[0]?.at ?? Date.parse(o.at); points.length < 120; ) points.unshift({ at: (at -= 1000), values: [0, 0, 0, 0] });
  return points;
}

/** @param {{entity: string, resource: string}} t */
function row(t) {
  if (t.entity === '_default_') return chip('others');
  return h('a', { href: link('entity', { id: t.entity, resource: t.resource }), class: 'id' }, t.entity);
}

/**
 * Replaces a list, and restores the focus to the link that had it.
 * @param {HTMLElement} box
 * @param {Node} list
 */
function keepFocus(box, list) {
  const focused = box.contains(document.activeElement) ? document.activeElement?.getAttribute('href') : null;
  swap(box, list);
  if (focused) [...box.querySelectorAll('a')].find((a) => a.getAttribute('href') === focused)?.focus();
}
