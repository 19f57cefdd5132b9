// The state of one tab: the token, and what the server has refused to its bearer.

const key = 'weir.token';

/** Fires `change` when the token changes, and `unauthorized` when the server asks for one. */
export const session = new EventTarget();

/** @returns {string} */
export function token() {
  try {
    return sessionStorage.getItem(key) ?? '';
  } catch {
    return inMemory;
  }
}
let inMemory = '';

/**
 * Keeps a token until the tab is closed; '' forgets it.
 * @param {string} text
 */
export function setToken(text) {
  inMemory = text;
  try {
    if (text) sessionStorage.setItem(key, text);
    else sessionStorage.removeItem(key);
  } catch {
    // Then it is kept in memory only, and a reload asks again.
  }
  denials.clear();
  me = null;
  session.dispatchEvent(new Event('change'));
}

/** @typedef {{principal: string, roles: string[], namespaces: string[], namespace: string}} Caller */

/**
 * The bearer as the server sees it; null until the server has answered.
 * @type {Caller | null}
 */
let me = null;

/** @param {Caller} caller */
export function introduce(caller) {
  me = caller;
}

/** Returns the namespaces that the bearer has a role in; everywhere stands for all. */
export function namespacesOf() {
  return me?.namespaces ?? [everywhere];
}

/**
 * Returns whether the bearer has a role in a namespace, or everywhere, as far as is known.
 * @param {string} role
 * @param {string} namespace
 */
export function may(role, namespace) {
  return !me || (me.roles.includes(role) && (me.namespaces.includes(everywhere) || me.namespaces.includes(namespace)));
}

/** Stands for all namespaces, and for what belongs to none, such as the list of namespaces. */
export const everywhere = '*';

/** @type {Map<string, string>} */
const denials = new Map();

/**
 * Returns the server's reason why the bearer may not change a namespace, or undefined if it has given none.
 * @param {string} namespace
 */
export function denied(namespace) {
  return denials.get(namespace);
}

/**
 * @param {string} namespace
 * @param {string} why
 */
export function deny(namespace, why) {
  denials.set(namespace, why);
  session.dispatchEvent(new Event('denied'));
}
