// The frame around the pages: navigation, namespace, theme, sign-in.

import { get, Problem } from './api.js';
import { confirmed, field } from './dialog.js';
import { at, h, say, swap, visible } from './dom.js';
import { empty, head, trouble } from './parts.js';
import { go, here, link, settle } from './route.js';
import { everywhere, introduce, may, namespacesOf, session, setToken, token } from './session.js';
import { signIn } from './signin.js';

/**
 * A page draws itself into root. Its signal aborts when the user leaves.
 * @typedef {(root: HTMLElement, context: {params: URLSearchParams, ns: string, signal: AbortSignal, reload: () => void}) => Promise<void>} Page
 */

/** @type {Record<string, {title: string, load: () => Promise<{page: Page}>, under?: string}>} */
const pages = {
  overview: { title: 'Overview', load: () => import('./overview.js') },
  entities: { title: 'Entities', load: () => import('./entities.js') },
  limits: { title: 'Limits', load: () => import('./limits.js') },
  buckets: { title: 'Buckets', load: () => import('./buckets.js') },
  usage: { title: 'Usage', load: () => import('./usage.js') },
  manifests: { title: 'Manifests', load: () => import('./manifests.js') },
  audit: { title: 'Audit', load: () => import('./audit.js') },
  namespaces: { title: 'Namespaces', load: () => import('./namespaces.js') },
  entity: { title: 'Entity', load: () => import('./entity.js'), under: 'entities' },
};

const main = at('main');
let leave = new AbortController();
/** The token that had been rejected when the user was last asked for one. */
let asked = '';

/** @param {boolean} [focus] whether the user navigated, so that the focus should follow */
async function draw(focus = false) {
  leave.abort();
  const now = (leave = new AbortController());
  const { page, params, ns } = here();
  const entry = Object.hasOwn(pages, page) ? pages[page] : undefined;
  menu(false);
  navigation(page);
  if (!entry) {
    swap(main, h('div', { class: 'page', 'data-page': page }, head('Page not found'), empty('There is nothing here', `The dashboard has no page “${page}”.`)));
    return;
  }
  document.title = visible([params.get('id') ?? params.get('name') ?? params.get('resource'), entry.title, 'weir'].filter(Boolean).join(' · '));
  const root = h('div', { class: 'page', 'data-page': page });
  const waiting = setTimeout(() => !now.signal.aborted && swap(main, h('p', { class: 'loading', role: 'status' }, 'Loading …')), 250);
  try {
    const { page: mount } = await entry.load();
    await mount(root, { params, ns, signal: now.signal, reload: () => !now.signal.aborted && draw() });
    if (!now.signal.aborted) swap(main, root);
  } catch (err) {
    if (now.signal.aborted) return;
    if (!(err instanceof Problem)) console.error(err);
    if (!(err instanceof Problem && err.status === 401)) swap(main, h('div', { class: 'page', 'data-page': page }, head(entry.title), trouble(err, () => draw())));
  } finally {
    clearTimeout(waiting);
  }
  if (focus && !now.signal.aborted) {
    main.querySelector('h1')?.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }
}

/** @param {string} page */
function navigation(page) {
  const current = Object.hasOwn(pages, page) ? (pages[page].under ?? page) : '';
  swap(at('nav'), Object.entries(pages).filter(([name, p]) => !p.under && (name !== 'namespaces' || may('read', everywhere))).map(([name, p]) =>
    h('a', { href: link(name), 'aria-current': name === current ? 'page' : null }, p.title)));
}

/** @param {boolean} open */
function menu(open) {
  at('menu').setAttribute('aria-expanded', String(open));
  at('side').classList.toggle('open', open);
}

/** Fills the list of namespaces, with those of the token if it may not list all. */
export async function namespaces() {
  const select = at('namespace');
  const { ns } = here();
  const all = namespacesOf().includes(everywhere);
  let names = all ? ['default'] : namespacesOf();
  try {
    if (all) names = (await get('/v1/namespaces', { namespace: null, max: 1000 })).items.map((/** @type {{name: string}} */ n) => n.name);
  } catch {
    // Listing namespaces needs more permissions than using one.
  }
  if (!names.includes(ns)) names = [...names, ns];
  swap(select, names.map((n) => h('option', { value: n, selected: n === ns }, n)), all && h('option', { value: '' }, 'Other …'));
}

/** Asks for a namespace that is not in the list, which may be incomplete. */
function another() {
  at('namespace').value = here().ns;
  confirmed({
    title: 'Go to namespace', body: field('Namespace', 'ns', { autocomplete: 'off', spellcheck: 'false' }), action: 'Go',
    run: async (inputs) => {
      const ns = inputs.ns.value.trim();
      if (!ns) throw new Problem(400, { detail: 'must not be empty', field: 'ns' });
      go(link('overview', { ns }));
    },
  });
}

async function version() {
  try {
    say(at('version'), `weir ${(await get('/healthz', { namespace: null })).version}`);
  } catch {
    // The pages report the error.
  }
}

at('namespace').addEventListener('change', (/** @type {any} */ e) => {
  const { page } = here();
  if (!e.target.value) return another();
  // An entity belongs to one namespace: go to the list of entities instead.
  go(link(Object.hasOwn(pages, page) ? (pages[page].under ?? page) : 'overview', { ns: e.target.value }));
});
at('theme').addEventListener('change', (/** @type {any} */ e) => {
  const theme = e.target.value;
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem('weir.theme', theme);
  } catch {
    // Then the theme lasts until the tab is closed.
  }
});
at('theme').value = document.documentElement.dataset.theme ?? 'auto';
at('menu').addEventListener('click', () => menu(at('menu').getAttribute('aria-expanded') !== 'true'));
at('side').addEventListener('keydown', (/** @type {KeyboardEvent} */ e) => {
  if (e.key === 'Escape' && at('menu').getAttribute('aria-expanded') === 'true') {
    menu(false);
    at('menu').focus();
  }
});
at('skip').addEventListener('click', (/** @type {Event} */ e) => {
  e.preventDefault(); // the fragment is the route
  main.focus();
});
at('sign-out').addEventListener('click', () => setToken(''));

session.addEventListener('unauthorized', () => {
  leave.abort();
  if (main.querySelector('.sign-in') && asked === token()) return; // several requests fail at once
  asked = token();
  at('sign-out').hidden = true;
  swap(main, signIn(true));
  main.querySelector('input')?.focus();
});
session.addEventListener('change', () => start());
window.addEventListener('hashchange', () => {
  at('namespace').value = here().ns;
  if (at('namespace').value !== here().ns) namespaces();
  draw(true);
});
window.addEventListener('weir:namespaces', () => namespaces());

/** Asks the server who the user is, which determines the default namespace. */
async function arrive() {
  const bearer = token();
  try {
    const caller = await get('/v1/whoami', { namespace: null });
    if (bearer !== token()) return;
    introduce(caller);
    const home = [caller.namespace, ...caller.namespaces].find((ns) => ns !== everywhere && caller.namespaces.some((/** @type {string} */ n) => n === everywhere || n === ns));
    settle(home ?? caller.namespace);
  } catch {
    settle('default');
  }
}

async function start() {
  at('sign-out').hidden = token() === '';
  const bearer = token();
  await arrive();
  if (bearer !== token()) return; // signed in or out meanwhile, which has restarted
  namespaces();
  version();
  draw();
}
start();
