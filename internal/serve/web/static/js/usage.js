// Which entities spent most, and what the namespace spent over time.

import { get } from './api.js';
import { num } from './format.js';
import { choice, code, empty, entityLink, head, panel, shareBar, table } from './parts.js';
import { go, link } from './route.js';
import { noUsage, usagePanel, values, windows } from './usage-panel.js';

/** @type {import('./main.js').Page} */
export async function page(root, { params, signal }) {
  const by = params.get('by') ?? 'entity', window = params.get('window') ?? 'daily', limit = params.get('limit') ?? '';
  const to = (/** @type {Record<string, string>} */ change) => go(link('usage', { by, window, limit, ...change }));
  const picks = [
    choice('By', ['entity', 'parent', 'resource', 'namespace'], by, (v) => to({ by: v })),
    choice('Window', windows, window, (v) => to({ window: v })),
  ];
  root.append(head('Usage', { lead: 'Windows are hours of the last day, days of the last month, or months of the last year, in UTC.' }));
  try {
    const [top, sum] = await Promise.all([get('/v1/usage/top', { by, window, limit, max: 50 }, signal), get('/v1/usage/summary', { by: 'namespace', window }, signal)]);
    const limits = new Set(['requests', ...sum.total.limits.map((/** @type {any} */ l) => l.limit), limit || 'requests']);
    picks.push(choice('Limit', [...limits], limit || 'requests', (v) => to({ limit: v === 'requests' ? '' : v })));
    root.append(usagePanel({ by: 'namespace' }, signal, 'A request counts in each bucket that it charges: the entity’s and its parents’'), panel('Top', { tools: picks, wide: true, note: by === 'entity' && 'Parents that their children charge are ranked by parent' }, ranking(top.items, by, limit)));
  } catch (err) {
    const none = noUsage(err);
    if (!none) throw err;
    root.append(panel('Usage', { wide: true }, none));
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
  return table('Ranking', [by === 'resource' ? 'Resource' : by === 'namespace' ? 'Namespace' : by === 'parent' ? 'Parent' : 'Entity', limit ? `${limit} consumed` : 'Requests', ...(limit ? [{ title: 'Requests', num: true }] : []), { title: 'Refused', num: true }],
    rows.map(({ u, v }) => [by === 'resource' ? code(u.resource) : by === 'namespace' ? 'Whole namespace' : entityLink(u.entity), shareBar(v[0], most), ...(limit ? [num(u.requests)] : []), num(u.refused)]));
}
