// Namespaces, such as tenants: each is independent of the others.

import { ask, get, Problem, segment } from './api.js';
import { confirmed, field } from './dialog.js';
import { announce, h } from './dom.js';
import { when } from './format.js';
import { adminButton, chip, code, empty, head, pages, panel, table } from './parts.js';
import { link } from './route.js';
import { everywhere } from './session.js';

/** @type {import('./main.js').Page} */
export async function page(root, { signal, reload }) {
  const changed = () => {
    window.dispatchEvent(new Event('weir:namespaces'));
    reload();
  };
  const load = (/** @type {boolean} */ deleted) => (/** @type {string | undefined} */ after) => get('/v1/namespaces', { namespace: null, deleted: deleted || undefined, after, max: 100 }, signal);
  const [live, gone] = await Promise.all([
    pages(load(false), (items) => table('Namespaces', ['Namespace', 'ID', 'Created', { title: 'Actions', hide: true, num: true }], items.map((n) => [
      h('a', { class: 'id', href: link('overview', { ns: n.name }) }, n.name), code(n.id), n.created ? when(n.created) : 'with the store',
      n.name === 'default' ? chip('always exists') : adminButton('Delete', () => remove(n.name, changed), { look: 'quiet', about: n.name, ns: everywhere })]))),
    pages(load(true), (items) => {
      const deleted = items.filter((n) => n.deleted);
      return deleted.length ? table('Deleted namespaces', ['Namespace', 'Deleted', { title: 'Actions', hide: true, num: true }], deleted.map((n) => [code(n.name), when(n.deleted),
        adminButton('Recover', () => recover(n.name, changed), { about: n.name, ns: everywhere })])) : empty('No deleted namespaces', 'A deleted namespace is listed here and can be recovered until it is purged.');
    }),
  ]);
  root.append(head('Namespaces', { lead: 'Each has its own entities, limits and buckets; nothing is shared.', tools: adminButton('New namespace', () => create(changed), { look: 'primary', ns: everywhere }) }),
    panel('All namespaces', {}, live), panel('Deleted', { note: 'weir namespace purge removes a namespace permanently' }, gone));
}

/** @param {() => void} then */
function create(then) {
  confirmed({
    title: 'New namespace', body: field('Name', 'name', { autocomplete: 'off', spellcheck: 'false' }), action: 'Create',
    run: async (inputs) => {
      const name = inputs.name.value.trim();
      if (!name) throw new Problem(400, { detail: 'must not be empty', field: 'name' });
      await ask('POST', '/v1/namespaces', { params: { namespace: null }, body: { name } });
      announce(`Created: namespace ${name}.`);
      then();
    },
  });
}

/** @param {string} name @param {() => void} then */
function remove(name, then) {
  confirmed({
    title: `Delete namespace ${name}?`, danger: true, action: 'Delete', typed: name,
    body: h('p', null, 'Requests in it will fail. It can be recovered until it is purged.'),
    run: async () => {
      await ask('DELETE', `/v1/namespaces/${segment(name)}`, { params: { namespace: null } });
      announce(`Deleted: namespace ${name}.`);
      then();
    },
  });
}

/** @param {string} name @param {() => void} then */
function recover(name, then) {
  confirmed({
    title: `Recover namespace ${name}?`, body: h('p', null, 'It will be as it was when it was deleted.'), action: 'Recover',
    run: async () => {
      await ask('POST', `/v1/namespaces/${segment(name)}/recover`, { params: { namespace: null } });
      announce(`Recovered: namespace ${name}.`);
      then();
    },
  });
}
