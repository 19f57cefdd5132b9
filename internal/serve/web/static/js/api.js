// The HTTP API, the only way to the server: docs/integrate/http.md. Streams are in stream.js.

import { here } from './route.js';
import { deny, everywhere, session, token } from './session.js';

/** A response that is not 2xx, or no response at all (status 0). */
export class Problem extends Error {
  /**
   * @param {number} status
   * @param {Record<string, any>} body
   */
  constructor(status, body) {
    super(body.detail || body.title || `the server responded with status ${status}`);
    this.status = status;
    /** The kind of the error, to branch on: the last part of the type. */
    this.kind = String(body.type ?? '').split(/[#/]/).pop() ?? '';
    /** The invalid member or parameter, or ''. */
    this.field = String(body.field ?? '');
    this.retryAfter = Number(body.retry_after ?? 0);
    /** @type {{line: number, column: number, message: string}[]} */
    this.errors = body.errors ?? [];
  }

  /** Whether the server does not know the path, because it is older. */
  get absent() {
    return this.status === 404 && this.message.startsWith('no such path');
  }
}

/** @typedef {Record<string, string | number | boolean | undefined | null>} Params */

/**
 * Returns the URL of a path with its parameters. The namespace is the current one, unless params name one or null. It is
 * always explicit: without it, the server would use the token's or its own namespace, whatever the page shows.
 * @param {string} path
 * @param {Params} [params]
 */
export function address(path, params = {}) {
  const query = new URLSearchParams();
  const all = { namespace: here().ns, ...params };
  for (const [name, value] of Object.entries(all)) {
    if (value !== undefined && value !== null && value !== '') query.set(name, String(value));
  }
  const text = query.toString();
  return path + (text ? '?' + text : '');
}

/**
 * Encodes an ID as a path segment.
 * @param {string} id
 */
export function segment(id) {
  if (id === '.' || id === '..') throw new Problem(400, { detail: `the ID ${id} cannot be part of a path: use the command line` });
  return encodeURIComponent(id);
}

/** @returns {Record<string, string>} */
export function authorization() {
  const t = token();
  return t ? { Authorization: `Bearer ${t}` } : {};
}

/**
 * Returns the problem that a response describes. A 401 asks the user to sign in.
 * @param {Response} response
 */
export async function problemOf(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    // Perhaps a proxy's page: then there is only the status.
  }
  const problem = new Problem(response.status, body);
  if (problem.status === 401) session.dispatchEvent(new Event('unauthorized'));
  return problem;
}

/**
 * Sends a request. Throws a Problem, or the error of an aborted signal.
 * @param {string} method
 * @param {string} path
 * @param {{params?: Params, body?: unknown, yaml?: string, was?: string | null, signal?: AbortSignal}} [options] was is the etag of
 *   what is being changed, or null if it did not exist, so that changes made by others meanwhile are not overwritten
 * @returns {Promise<any>}
 */
export async function ask(method, path, { params, body, yaml, was, signal } = {}) {
  /** @type {Record<string, string>} */
  const headers = { Accept: 'application/json', ...authorization() };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (yaml !== undefined) headers['Content-Type'] = 'application/yaml';
  if (was === null) headers['If-None-Match'] = '*';
  else if (was !== undefined) headers['If-Match'] = `"${was}"`;
  let response;
  try {
    response = await fetch(address(path, params), {
      method, headers, signal, body: yaml ?? (body === undefined ? undefined : JSON.stringify(body)),
      credentials: 'omit', cache: 'no-store', redirect: 'error',
    });
  } catch (err) {
    if (signal?.aborted) throw err;
    throw new Problem(0, { detail: 'the server cannot be reached' });
  }
  if (!response.ok) {
    const problem = await problemOf(response);
    const reads = method === 'GET' || /\/manifests\/(plan|diff|validate)$/.test(path);
    if (problem.status === 403 && problem.kind !== 'cross-origin' && !reads) deny(params?.namespace === null ? everywhere : here().ns, problem.message);
    throw problem;
  }
  return response.status === 204 ? null : response.json();
}

/**
 * @param {string} path
 * @param {Params} [params]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export function get(path, params, signal) {
  return ask('GET', path, { params, signal });
}

/**
 * Like get, but returns null if there is nothing of that name.
 * @param {string} path
 * @param {Params} [params]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function find(path, params, signal) {
  try {
    return await get(path, params, signal);
  } catch (err) {
    if (err instanceof Problem && err.status === 404) return null;
    throw err;
  }
}
