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
  session.dispatchEvent(new Event('change'));
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
