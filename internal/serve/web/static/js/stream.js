// Server-sent events read from fetch: EventSource cannot send a bearer token.

import { address, authorization, Problem, problemOf } from './api.js';

/**
 * @typedef {object} Listener
 * @property {(data: any) => void} data receives an event.
 * @property {(state: 'live' | 'reconnecting' | 'ended', problem?: Problem) => void} state receives the state of
 *   the stream. Ended is final: the server does not offer the stream, or not to this user.
 * @property {AbortSignal} signal ends it.
 * @property {number} [quiet] is the number of milliseconds without an event after which the connection counts as dead.
 */

/**
 * Follows a stream until the signal aborts. The stream is closed while the tab is hidden, because a browser has only six
 * connections to a server, for all its tabs.
 * @param {string} path
 * @param {import('./api.js').Params} params
 * @param {Listener} listener
 */
export async function follow(path, params, listener) {
  const { signal } = listener;
  for (let failures = 0; !signal.aborted; ) {
    await visible(signal);
    if (signal.aborted) return;
    const attempt = new AbortController();
    const stop = () => attempt.abort();
    const hide = () => document.hidden && stop();
    signal.addEventListener('abort', stop);
    document.addEventListener('visibilitychange', hide);
    const began = performance.now();
    try {
      await read(address(path, params), attempt, listener);
      // A server ends streams now and then, which is a failure only if it happens at once.
      failures = performance.now() - began < 2000 ? failures + 1 : 0;
    } catch (err) {
      if (err instanceof Problem && err.status >= 400 && err.status < 500 && err.status !== 429) {
        if (!signal.aborted) listener.state('ended', err);
        return;
      }
      if (!document.hidden) failures = performance.now() - began < 30_000 ? failures + 1 : 1;
    } finally {
      signal.removeEventListener('abort', stop);
      document.removeEventListener('visibilitychange', hide);
    }
    if (signal.aborted) return;
    if (failures > 0) listener.state('reconnecting');
    await pause(backoff(failures), signal);
  }
}

/**
 * Returns a delay of up to 15 s with jitter, so that clients that were cut off together do not come back together.
 * @param {number} failures
 */
function backoff(failures) {
  return Math.min(15_000, 250 * 2 ** failures) * (0.5 + Math.random() / 2);
}

/**
 * @param {string} url
 * @param {AbortController} attempt
 * @param {Listener} listener
 */
async function read(url, attempt, listener) {
  /** @type {number | undefined} */
  let timer;
  const alive = () => {
    clearTimeout(timer);
    if (listener.quiet) timer = setTimeout(() => attempt.abort(), listener.quiet);
  };
  try {
    alive();
    const response = await fetch(url, {
      headers: { Accept: 'text/event-stream', ...authorization() },
      signal: attempt.signal, credentials: 'omit', cache: 'no-store', redirect: 'error',
    });
    if (!response.ok) throw await problemOf(response);
    if (!response.body || !(response.headers.get('Content-Type') ?? '').startsWith('text/event-stream')) {
      throw new Problem(404, { detail: 'no such path as a stream' });
    }
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ''; ; ) {
      const { value, done } = await reader.read();
      if (done) return;
      alive();
      rest += value;
      const events = rest.split(/\r?\n\r?\n/);
      rest = events.pop() ?? '';
      for (const event of events) {
        const data = event.split(/\r?\n/).filter((line) => line.startsWith('data:')).map((line) => line.slice(5)).join('\n');
        if (!data || attempt.signal.aborted) continue;
        listener.state('live');
        try {
          listener.data(JSON.parse(data));
        } catch (err) {
          console.error(err); // an error of the page, not of the connection
        }
      }
    }
  } finally {
    clearTimeout(timer);
    attempt.abort();
  }
}

/**
 * Resolves when the tab is visible, or the signal aborts.
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
function visible(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const check = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener('visibilitychange', check);
      signal.removeEventListener('abort', check);
      resolve();
    };
    document.addEventListener('visibilitychange', check);
    signal.addEventListener('abort', check);
  });
}

/**
 * @param {number} ms
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    function done() {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      window.removeEventListener('online', done);
      resolve();
    }
    signal.addEventListener('abort', done);
    window.addEventListener('online', done);
  });
}
