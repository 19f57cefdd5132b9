// Limits as code: what was applied, by whom, and whether the live limits are still as declared.

import { ask, get, Problem, segment } from './api.js';
import { confirmed } from './dialog.js';
import { announce, h, swap } from './dom.js';
import { when } from './format.js';
import { adminButton, chip, code, empty, head, pages, panel, principalName, table, trouble } from './parts.js';
import { link } from './route.js';

/** @type {import('./main.js').Page} */
export async function page(root, context) {
  const name = context.params.get('name');
  if (name) return one(root, context, name);
  const list = await pages((after) => get('/v1/manifests', { after, max: 100 }, context.signal), (items) => items.length
    ? table('Manifests', ['Manifest', { title: 'Revision', num: true }, 'Applied', 'By', 'Summary'], items.map((r) => [
      h('a', { class: 'id', href: link('manifests', { name: r.manifest }) }, r.manifest), r.revision, when(r.at), principalName(r.by), r.summary]))
    : empty('No manifests', 'Declare limits in a YAML file and apply it: ', code('weir limits apply -f limits.yaml')));
  root.append(head('Manifests', { lead: 'Limits as code, and the revisions that were applied.' }), panel('Latest revisions', { wide: true }, list));
}

/**
 * @param {HTMLElement} root
 * @param {Parameters<import('./main.js').Page>[1]} context
 * @param {string} name
 */
async function one(root, { params, signal, reload }, name) {
  const history = await get(`/v1/manifests/${segment(name)}/history`, { max: 100 }, signal);
  const last = history.items[0];
  const chosen = Number(params.get('revision') ?? last?.revision);
  const drift = h('div', null, h('p', { class: 'loading' }, 'Comparing …'));
  const text = h('div');
  root.append(
    head(name, { path: h('p', { class: 'path' }, h('a', { href: link('manifests') }, 'Manifests'), ' › manifest') }),
    panel('Drift', { note: 'How the live limits differ from the latest revision' }, drift),
    panel('History', {}, history.items.length ? table('Revisions', ['Revision', 'Applied', 'By', 'Summary', { title: 'Actions', hide: true, num: true }],
      history.items.map((/** @type {any} */ r) => [
        h('a', { href: link('manifests', { name, revision: String(r.revision) }), 'aria-current': r.revision === chosen ? 'true' : null }, `${r.revision}`), when(r.at), principalName(r.by), r.summary,
        r !== last && adminButton('Roll back', () => rollback(name, r, reload), { look: 'quiet', about: `to revision ${r.revision}` })]))
      : empty('Never fully applied', 'Apply the manifest again to continue where it stopped.')),
    panel(last ? `Text of revision ${chosen}` : 'Text', { wide: true }, text));
  root.querySelector('h1')?.classList.add('id');
  if (!last) return swap(drift, empty('Nothing to compare with'));
  const shown = revision(name, chosen, signal);
  const newest = chosen === last.revision ? shown : revision(name, last.revision, signal);
  shown.then((r) => swap(text, h('pre', { tabindex: '0' }, r.text)), (err) => swap(text, trouble(err)));
  newest.then((r) => ask('POST', '/v1/manifests/diff', { yaml: r.text, signal, params: { namespace: null } }))
    .then((d) => swap(drift, differences(d)), (err) => !signal.aborted && swap(drift, trouble(err)));
}

/**
 * @param {string} name
 * @param {number} n
 * @param {AbortSignal} [signal]
 */
function revision(name, n, signal) {
  return get(`/v1/manifests/${segment(name)}/history/${n}`, undefined, signal);
}

const reasons = {
  edited: 'changed by hand', removed: 'removed by hand', staged: 'in a rollout', unapplied: 'not applied yet', unmanaged: 'exists, but not managed', undeclared: 'managed, but no longer declared',
};

/** @param {any} d */
function differences(d) {
  const all = d.manifests.flatMap((/** @type {any} */ m) => m.drift);
  if (!all.length) return empty('No drift', 'The live limits are as declared.');
  return table('Drift', ['Record', 'Reason', 'Live → declared'], all.map((/** @type {any} */ r) => [code(r.target),
    chip(reasons[/** @type {keyof typeof reasons} */ (r.why)] ?? r.why, 'shadow'), fields(r.fields)]));
}

/** @param {any[]} list */
function fields(list) {
  return h('dl', { class: 'diff' }, (list ?? []).map((f) => h('div', null, h('dt', null, [f.limit, f.name].filter(Boolean).join(' ')),
    h('dd', null, f.old && h('del', null, f.old), f.old && f.new && ' → ', f.new && h('ins', null, f.new)))));
}

/**
 * Shows what a rollback would change before it happens.
 * @param {string} name
 * @param {any} r
 * @param {() => void} then
 */
async function rollback(name, r, then) {
  const changes = h('div', null, h('p', { class: 'loading' }, 'Planning …'));
  confirmed({
    title: `Roll back ${name} to revision ${r.revision}?`, action: 'Roll back', danger: true,
    body: h('div', null, h('p', null, 'The earlier text is applied as a new revision.'), changes),
    run: async () => {
      await ask('POST', `/v1/manifests/${segment(name)}/rollback`, { params: { revision: r.revision } });
      announce(`Rolled back: ${name} is now as in revision ${r.revision}.`);
      then();
    },
  });
  try {
    const { text } = await revision(name, r.revision);
    const { plans } = await ask('POST', '/v1/manifests/plan', { yaml: text, params: { namespace: null } });
    const list = plans.flatMap((/** @type {any} */ p) => p.changes);
    swap(changes, list.length ? table('Changes', ['Action', 'Record', 'Values'], list.map((/** @type {any} */ c) => [chip(c.action, c.action === 'delete' ? 'bad' : ''), code(c.target), fields(c.fields)]))
      : h('p', null, 'Nothing would change.'));
  } catch (err) {
    swap(changes, h('p', { class: 'warning' }, err instanceof Problem ? err.message : String(err)));
  }
}
