// What one tab remembers: the token, and what its bearer was told not to do.

const key = 'weir.token';

/** Fires `change` when the token did, and `unauthorized` when the server asks for one. */
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
    // Kept in memory then: a reload asks again.
  }
  denials.clear();
  me = null;
  session.dispatchEvent(new Event('change'));
}

/** @typedef {{principal: string, roles: string[], namespaces: string[], namespace: string}} Caller */

/**
 * Who the bearer is to the server; null as long as it has not said.
 * @type {Caller | null}
 */
let me = null;

/** @param {Caller} caller */
export function introduce(caller) {
  me = caller;
}

/** The namespaces that the bearer has a role in; everywhere stands for all. */
export function namespacesOf() {
  return me?.namespaces ?? [everywhere];
}

/**
 * Whether the bearer may do what takes a role in a namespace, or everywhere, as far as is known.
 * @param {string} role
 * @param {string} namespace
 */
export function may(role, namespace) {
  return !me || (me.roles.includes(role) && (me.namespaces.includes(everywhere) || me.namespaces.includes(namespace)));
}

/** Stands for what belongs to no namespace, as the list of them. */
export const everywhere = '*';

/** @type {Map<string, string>} */
const denials = new Map();

/**
 * Why the bearer may not change a namespace, as the server said it; undefined as long as it has not.
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
