// Which entities spent most, and what the namespace spent over time.

import { get, Problem } from './api.js';
import { h } from './dom.js';
import { num } from './format.js';
import { choice, code, empty, entityLink, head, panel, shareBar, table } from './parts.js';
import { go, link } from './route.js';
import { usagePanel, values, windows } from './usage-panel.js';

/** @type {import('./main.js').Page} */
export async function page(root, { params, signal }) {
  const by = params.get('by') ?? 'entity', window = params.get('window') ?? 'daily', limit = params.get('limit') ?? '';
  const to = (/** @type {Record<string, string>} */ change) => go(link('usage', { by, window, limit, ...change }));
  const picks = [
    choice('By', ['entity', 'parent', 'resource', 'namespace'], by, (v) => to({ by: v })),
    choice('Window', windows, window, (v) => to({ window: v })),
    h('form', { class: 'search', on: { submit: (/** @type {any} */ e) => (e.preventDefault(), to({ limit: e.target.elements.limit.value.trim() })) } },
      h('label', { class: 'field inline' }, h('span', null, 'Limit'), h('input', { name: 'limit', value: limit, placeholder: 'requests', autocomplete: 'off', spellcheck: 'false' })), h('button', { type: 'submit' }, 'Rank')),
  ];
  root.append(head('Usage', { lead: 'Every admission is counted. Windows are hours of the last day, days of the last month, or months of the last year, in UTC.' }));
  try {
    const top = await get('/v1/usage/top', { by, window, limit, max: 50 }, signal);
    root.append(usagePanel({ by: 'namespace' }, signal, 'A request counts in each bucket that it charges: the entity’s and its parents’'), panel('Top', { tools: picks, wide: true }, ranking(top.items, by, limit)));
  } catch (err) {
    if (!(err instanceof Problem && err.message.startsWith('usage:'))) throw err;
    root.append(empty('This store keeps no usage', 'The memory and disk stores keep it themselves; for DynamoDB and Redis, an aggregator does. The counters under Overview are for this server only.'));
  }
}

/**
 * @param {any[]} items
 * @param {string} by
 * @param {string} limit
 */
function ranking(items, by, limit) {
  const rows = items.map((u) => ({ u, v: values(u, limit || 'requests') }));
  const most = Math.max(1, ...rows.map((r) => r.v[0]));
  if (!rows.length) return empty('Nothing spent in this period', limit ? `No bucket has a limit named ${limit}.` : 'Requests appear here within a minute.');
  return table('Ranking', [by === 'resource' ? 'Resource' : by === 'namespace' ? 'Namespace' : by === 'parent' ? 'Parent' : 'Entity', limit ? `${limit} consumed` : 'Requests', ...(limit ? [{ title: 'Requests', num: true, least: true }] : []), { title: 'Refused', num: true }],
    rows.map(({ u, v }) => [by === 'resource' ? code(u.resource) : by === 'namespace' ? 'Whole namespace' : entityLink(u.entity), shareBar(v[0], most), ...(limit ? [num(u.requests)] : []), num(u.refused)]));
}
