// The current location: #/PAGE?params. IDs are parameters, so that any ID works and none reaches a server's log.

/** @typedef {{page: string, params: URLSearchParams, ns: string}} Route */

/** The namespace of a URL that names none. */
let home = 'default';

/** @param {string} ns */
export function settle(ns) {
  home = ns;
}

/** @returns {Route} */
export function here() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  const params = new URLSearchParams(query);
  return { page: path || 'overview', params, ns: params.get('ns') || home };
}

/**
 * Returns the link to a page, in the current namespace unless `ns` is among the parameters.
 * @param {string} page
 * @param {Record<string, string | undefined>} [params]
 */
export function link(page, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ ns: here().ns, ...params })) {
    if (value && !(name === 'ns' && value === 'default' && home === 'default')) query.set(name, value);
  }
  const text = query.toString();
  return `#/${page}${text ? '?' + text : ''}`;
}

/**
 * Goes to a page.
 * @param {string} to
 */
export function go(to) {
  location.hash = to;
}
