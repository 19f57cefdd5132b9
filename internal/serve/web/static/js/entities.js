// Finding entities, and creating them.

import { ask, get, Problem, segment } from './api.js';
import { confirmed, field } from './dialog.js';
import { announce, h, swap } from './dom.js';
import { when } from './format.js';
import { adminButton, chip, empty, entityLink, head, managedBy, pages, panel, table, trouble } from './parts.js';
import { go, link } from './route.js';

/** @type {import('./main.js').Page} */
export async function page(root, { params, signal }) {
  const parent = params.get('parent') ?? undefined;
  const list = h('div');
  /** @type {any[]} */
  let items = [];
  /**
   * Further matches from the server, while not all entities are loaded.
   * @type {any[]}
   */
  let found = [];
  let unfinished = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let asking;
  const input = h('input', { type: 'search', id: 'search', placeholder: 'Find an entity by ID …', autocomplete: 'off', spellcheck: 'false', value: params.get('q') ?? '', on: { input: search } });
  const form = h('form', { class: 'search', role: 'search', on: { submit: open } }, h('label', { class: 'unseen', for: 'search' }, 'Entity ID'), input, h('button', { type: 'submit' }, 'Open'));

  /** @param {Event} event */
  function open(event) {
    event.preventDefault();
    const text = input.value.trim();
    if (!text) return;
    const all = shown();
    go(link('entity', { id: all.length === 1 ? all[0].id : text }));
  }

  /** Filters the loaded entities at once, and asks the server for others when typing pauses. */
  function search() {
    draw();
    clearTimeout(asking);
    const prefix = input.value.trim();
    if (!unfinished || !prefix) return;
    asking = setTimeout(async () => {
      try {
        const p = await get('/v1/entities', { parent, prefix, max: 200 }, signal);
        if (input.value.trim() !== prefix) return;
        found = p.items;
        draw();
      } catch (err) {
        if (!signal.aborted && input.value.trim() === prefix) swap(list, trouble(err, search));
      }
    }, 150);
  }

  function shown() {
    const text = input.value.trim().toLowerCase();
    const known = new Map([...items, ...found].map((e) => [e.id, e]));
    return [...known.values()].filter((e) => e.id.toLowerCase().startsWith(text) || (text && `${e.id} ${e.name}`.toLowerCase().includes(text)))
      .sort((a, b) => Number(!a.id.toLowerCase().startsWith(text)) - Number(!b.id.toLowerCase().startsWith(text)));
  }

  function draw() {
    const rows = shown();
    if (!items.length) swap(list, parent ? empty('This entity has no children') : empty('No entities yet', 'An entity does not need a record to be limited. The buckets of entities without a record are under ', h('a', { href: link('buckets') }, 'Buckets'), '. Create an entity to give it a parent, a name or metadata.'));
    else if (!rows.length) swap(list, empty('No entity matches', 'Press Enter to open this ID anyway: it may have buckets without a record.'));
    else swap(list, table('Entities', ['Entity', 'Name', 'Parent', 'Created'],
      rows.map((e) => [[entityLink(e.id), ' ', e.cascade && chip('cascades'), ' ', managedBy(e.managed)], e.name, e.parent && entityLink(e.parent), when(e.created)])));
  }

  const box = await pages(
    (after) => get('/v1/entities', { parent, after, max: 200 }, signal).then((p) => ((unfinished = Boolean(p.next)), p)),
    (all) => ((items = all), draw(), list));
  root.append(head('Entities', {
    lead: parent && ['Children of ', entityLink(parent)],
    tools: adminButton('New entity', () => editEntity(null), { look: 'primary' }),
  }), panel(parent ? 'Children' : 'All entities', { tools: form, wide: true }, box));
}

/**
 * Opens the form for a new entity, or for an existing one.
 * @param {any} e
 * @param {() => void} [then]
 */
export function editEntity(e, then) {
  const metadata = Object.entries(e?.metadata ?? {}).map(([k, v]) => `${k}: ${v}`).join('\n');
  confirmed({
    title: e ? `Edit ${e.id}` : 'New entity',
    body: h('div', null,
      e?.managed && h('p', { class: 'warning' }, `Manifest ${e.managed.manifest} declares this entity. Applying it again will undo changes made here.`),
      !e && field('ID', 'id', { autocomplete: 'off', spellcheck: 'false' }, 'Cannot be changed later'),
      field('Name', 'name', { value: e?.name ?? '', autocomplete: 'off' }),
      field('Parent', 'parent', { value: e?.parent ?? '', autocomplete: 'off', spellcheck: 'false' }, 'An entity ID, or empty'),
      field('Plan', 'plan', { value: e?.plan ?? '', autocomplete: 'off', spellcheck: 'false' }, 'A plan that exists, or empty: that of the nearest ancestor with one'),
      h('label', { class: 'check' }, h('input', { type: 'checkbox', name: 'cascade', checked: e?.cascade }), 'Requests of this entity are also charged to its parent'),
      field('Metadata', 'metadata', { kind: 'textarea', rows: '4', spellcheck: 'false', kids: [metadata] }, 'One “key: value” per line')),
    action: e ? 'Save' : 'Create',
    run: async (f) => {
      const body = { name: f.name.value, parent: f.parent.value.trim(), plan: f.plan.value.trim(), cascade: f.cascade.checked, metadata: edited(e?.metadata, f.metadata) };
      if (e) {
        await ask('PATCH', `/v1/entities/${segment(e.id)}`, { body });
        announce(`Saved: ${e.id}.`);
        then?.();
        return;
      }
      const id = f.id.value.trim();
      if (!id) throw new Problem(400, { detail: 'must not be empty', field: 'id' });
      await ask('POST', '/v1/entities', { body: { id, ...body } });
      announce(`Created: ${id}.`);
      go(link('entity', { id }));
    },
  });
}

/**
 * Returns metadata as typed, or undefined if unchanged: values set by other clients may not fit on one line each.
 * @param {Record<string, string> | undefined} was
 * @param {HTMLTextAreaElement} box
 */
function edited(was, box) {
  const lines = box.defaultValue.replace(/\r\n?/g, '\n');
  if (box.value === lines) return undefined;
  const sorted = (/** @type {Record<string, string>} */ m) => JSON.stringify(Object.entries(m).sort());
  if (was && sorted(pairs(lines)) !== sorted(was)) {
    throw new Problem(400, { detail: 'contains keys or values that do not fit on a line: use the command line', field: 'metadata' });
  }
  return pairs(box.value);
}

/**
 * Parses lines of key: value.
 * @param {string} text
 */
function pairs(text) {
  /** @type {[string, string][]} */
  const out = [];
  for (const line of text.split('\n')) {
    if (!line.trim()) continue;
    const [, key, value] = /^\s*([^:]+?)\s*:\s?(.*)$/.exec(line) ?? [];
    if (key === undefined) throw new Problem(400, { detail: `“${line.trim()}” is not in the form key: value`, field: 'metadata' });
    out.push([key, value]);
  }
  return Object.fromEntries(out);
}
