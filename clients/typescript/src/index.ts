/** A client of the rate limiter weir, over its HTTP API, with fetch alone. */

import { LeaseExpired, RateLimited, RequestError, SlotLost, Unavailable, WeirError } from './errors.js';
import type { components } from './openapi.js';

export { LeaseExpired, RateLimited, RequestError, SlotLost, Unavailable, WeirError };

type Schemas = components['schemas'];
/** A limit, and what is left of it. */
export type LimitStatus = Schemas['Status'];
/** What an adjustment has left of a limit; `available` is negative in debt. */
export type Balance = Schemas['Balance'];
/** How a request would be decided, and why. */
export type Explanation = Schemas['Explanation'];
/** A limit in text form, such as `tpm:50K/min:75K`, or as an object. */
export type NewLimit = Schemas['NewLimit'];
/** What to answer while the store does not: the stricter of this and what is configured counts. */
export type OnUnavailable = Schemas['Unavailable'];
/** Whole numbers by limit name; of limits that are not named, 0 tokens are spent, and one slot is taken. */
export type Tokens = Readonly<Record<string, number>>;

export interface Options {
  /** As `weir token create` prints it. By default, none is sent. */
  token?: string;
  /** By default the token's, or the server's. */
  namespace?: string;
  /** Milliseconds after which a server that has not answered counts as unavailable; by default 5,000. `wait` is added. */
  timeout?: number;
  /** Used in place of the global fetch. */
  fetch?: typeof fetch;
}

/** What to acquire. */
export interface Request {
  entity: string;
  resource: string;
  tokens?: Tokens;
  /** Used for this request instead of the configured limits. With authentication, the token needs the permission override. */
  limits?: NewLimit[];
  onUnavailable?: OnUnavailable;
}

export interface AcquireOptions {
  /** Milliseconds to wait for the tokens at most, up to a minute; by default 0. */
  wait?: number;
  /** Ends the wait, and the lease's signal. */
  signal?: AbortSignal;
}

/** What the server has admitted: tokens, and slots for as long as the work goes on. */
export interface Lease {
  /** All limits after the decision: the entity's first, then its parents'. */
  readonly limits: readonly LimitStatus[];
  /** Whether something else than the store decided, and why. */
  readonly degraded: boolean;
  /** If degraded: how many tokens may be admitted beyond a limit at most; -1 if there is no bound. */
  readonly over: number;
  /** Aborted when a slot could not be renewed in time, with a SlotLost as its reason, or when the caller's own signal is. */
  readonly signal: AbortSignal;
  /**
   * Spends more tokens, or gives back if negative, at once; a limit may go into debt by this. Returns what is left of the
   * limits, or nothing if the tokens were spent but the answer got lost: the lease then cannot be adjusted again. A
   * RequestError of the kind max-debt means that a limit was debited only as far as it may be. An Unavailable means that
   * there was no answer: the call may be repeated.
   */
  adjust(tokens: Tokens): Promise<Balance[]>;
}

/** A weir server. Make one for a process. */
export class Client {
  readonly #base: URL;
  readonly #options: Options;

  /** @param url such as http://127.0.0.1:8080 */
  constructor(url: string, options: Options = {}) {
    const base = new URL(url);
    if (!/^https?:$/.test(base.protocol) || base.username || base.search || base.hash) {
      throw new TypeError('url: must be one such as http://127.0.0.1:8080, without user, query and fragment');
    }
    if (!base.pathname.endsWith('/')) base.pathname += '/';
    this.#base = base;
    this.#options = options;
  }

  /**
   * Holds tokens and slots of the entity, and of every parent that it charges, while work runs: all or nothing. Returns what
   * work returns. The tokens are spent at once. If work throws, they are given back; slots are given back in either case, and
   * are renewed until then.
   *
   * Throws RateLimited if a limit refuses: nothing was spent, and work has not run. Throws Unavailable if the server does not
   * decide. Throws SlotLost if a slot was lost while work ran.
   */
  async acquire<T>(request: Request, work: (lease: Lease) => T | Promise<T>, { wait = 0, signal }: AcquireOptions = {}): Promise<T> {
    const sent = performance.now();
    const body = { ...this.#body(request), ...(wait > 0 && { wait: `${Math.ceil(wait)}ms` }) };
    const held = new Held(this, await this.#send<Schemas['Acquired']>('POST', 'v1/acquire', { body, wait, signal }), sent, signal);
    return this.#run([held], () => work(held));
  }

  /** Holds what several requests name, as acquire does, in one decision: all of them or none. */
  async acquireAll<T>(requests: readonly Request[], work: (leases: Lease[]) => T | Promise<T>, { signal }: { signal?: AbortSignal } = {}): Promise<T> {
    const sent = performance.now();
    const body = { atomic: true, requests: requests.map((r) => this.#body(r)) };
    const { results } = await this.#send<{ results: Schemas['Acquired'][] }>('POST', 'v1/acquire/batch', { body, signal });
    const all = results.map((r) => new Held(this, r, sent, signal));
    return this.#run(all, () => work(all));
  }

  async #run<T>(all: Held[], work: () => T | Promise<T>): Promise<T> {
    let failed = true;
    try {
      const result = await work();
      failed = all.some((l) => l.lost);
      if (failed) throw new SlotLost();
      return result;
    } catch (err) {
      // Work that was stopped because a slot was lost fails in its own way: the slot is why.
      throw all.some((l) => l.lost) && !(err instanceof SlotLost) ? new SlotLost({ cause: err }) : err;
    } finally {
      await Promise.all(all.map((l) => l.end(failed)));
    }
  }

  /** Returns the status of each limit, the parents' included. Spends nothing. With a token, needs the role read. */
  async available(entity: string, resource: string): Promise<LimitStatus[]> {
    return (await this.call<Schemas['Availability']>('GET', '/v1/available', { query: { entity, resource } })).limits;
  }

  /** Returns how a request would be decided, and why. Spends nothing. With a token, needs the role read. */
  explain(entity: string, resource: string, tokens: Tokens = {}): Promise<Explanation> {
    const list = Object.entries(tokens).map(([limit, n]) => `${limit}=${n}`).join(',');
    return this.call('GET', '/v1/explain', { query: { entity, resource, ...(list && { tokens: list }) } });
  }

  /**
   * Sends any other request of the API, in the client's namespace. Returns the JSON value of its answer, undefined if it is
   * empty. Throws what acquire throws.
   */
  call<T = unknown>(method: string, path: string, { query = {}, body }: { query?: Record<string, string>; body?: unknown } = {}): Promise<T> {
    const { namespace } = this.#options;
    return this.#send<T>(method, path, { query: { ...(namespace && { namespace }), ...query }, body });
  }

  /**
   * @internal Sends what settles a lease, and again if there was no answer: the server carries it out once. Returns undefined
   * if the first turns out to have been carried out.
   */
  async settle<T>(path: string, body?: unknown): Promise<T | undefined> {
    return this.#send<T>('POST', path, { body }).catch((err) => {
      if (err instanceof Unavailable && err.status === 0) return this.#send<T>('POST', path, { body, again: true });
      throw err;
    });
  }

  /** @internal */
  renew(path: string, within: number): Promise<Schemas['Renewed']> {
    return this.#send('POST', path, { within });
  }

  #body({ entity, resource, tokens = {}, limits, onUnavailable }: Request) {
    const { namespace } = this.#options;
    return { entity, resource, tokens, ...(namespace && { namespace }), ...(limits && { limits }), ...(onUnavailable && { on_unavailable: onUnavailable }) };
  }

  async #send<T>(method: string, path: string, { query, body, wait = 0, signal, within, again }: Sent): Promise<T> {
    const { token, timeout = 5000, fetch: send = fetch } = this.#options;
    const url = new URL(path.replace(/^\//, ''), this.#base);
    url.search = new URLSearchParams(query).toString();
    const late = AbortSignal.timeout(Math.max(1, Math.min(timeout, within ?? timeout) + wait));
    let status = 0, text = '', header: string | null = null;
    try {
      const answer = await send(url, {
        method, redirect: 'error', signal: signal ? AbortSignal.any([signal, late]) : late,
        headers: { Accept: 'application/json, application/problem+json', ...(body !== undefined && { 'Content-Type': 'application/json' }), ...(token && { Authorization: `Bearer ${token}` }) },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      text = await answer.text();
      status = answer.status;
      header = answer.headers.get('Retry-After');
    } catch (err) {
      if (signal?.aborted) throw signal.reason;
      throw new Unavailable(`no answer from ${this.#base.host}`, 0, '', null, { cause: err });
    }
    if (status === 204 || (again && status === 409)) return undefined as T;
    const value = parsed(text);
    if (status < 300 && value !== undefined) return value as T;
    throw WeirError.of(status, value, header);
  }
}

interface Sent {
  query?: Record<string, string>;
  body?: unknown;
  wait?: number;
  signal?: AbortSignal | undefined;
  within?: number;
  again?: boolean;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A lease whose work is running. */
class Held implements Lease {
  readonly limits: readonly LimitStatus[];
  readonly degraded: boolean;
  readonly over: number;
  readonly signal: AbortSignal;
  readonly #client: Client;
  readonly #stop = new AbortController();
  #id: string;
  #slots: boolean;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #turn: Promise<unknown> = Promise.resolve();
  #over = false;
  /** Its id is used up, and the next one was in an answer that got lost. */
  #used = false;

  constructor(client: Client, acquired: Schemas['Acquired'], sent: number, signal?: AbortSignal) {
    this.#client = client;
    this.#id = acquired.lease;
    this.limits = acquired.limits;
    this.degraded = acquired.degraded;
    this.over = acquired.over ?? 0;
    this.signal = signal ? AbortSignal.any([signal, this.#stop.signal]) : this.#stop.signal;
    this.#slots = acquired.held_for !== undefined;
    if (acquired.held_for !== undefined) this.#keep(acquired.held_for * 1000, sent);
  }

  get lost(): boolean {
    return this.#stop.signal.aborted;
  }

  async adjust(tokens: Tokens): Promise<Balance[]> {
    return this.#after(async () => {
      if (this.#over || this.#used) throw new LeaseExpired('the lease is over');
      try {
        const done = await this.#client.settle<Schemas['Adjusted']>(`v1/leases/${this.#id}/adjust`, { tokens });
        this.#used = !done;
        this.#id = done?.lease ?? this.#id;
        return done?.limits ?? [];
      } catch (err) {
        // A limit was debited only as far as it may be: the rest was done, and the lease has a new id.
        if (err instanceof RequestError && err.lease) this.#id = err.lease;
        throw err;
      }
    });
  }

  /** Gives everything back if work has failed, otherwise slots alone. A failure is left to the lease's end. */
  async end(failed: boolean): Promise<void> {
    clearTimeout(this.#timer);
    await this.#after(async () => {
      const needless = this.#over || this.#used || (!failed && !this.#slots);
      this.#over = true;
      if (!needless) await this.#client.settle(`v1/leases/${this.#id}/${failed ? 'rollback' : 'commit'}`).catch(() => {});
    });
  }

  /** Renews the slots when half of the time for which they are held has passed. */
  #keep(heldFor: number, since: number, due = heldFor / 2): void {
    const left = () => since + heldFor - performance.now();
    this.#timer = setTimeout(() => this.#after(async () => {
      if (this.#over) return;
      if (left() <= 0) return this.#stop.abort(new SlotLost());
      const sent = performance.now();
      try {
        const renewed = await this.#client.renew(`v1/leases/${this.#id}/renew`, left());
        this.#id = renewed.lease;
        this.#keep(renewed.held_for * 1000, sent);
      } catch (err) {
        // Without an answer, they are due again after a second, until they are lost.
        if (err instanceof Unavailable) this.#keep(heldFor, since, performance.now() - since + Math.min(1000, left()));
        else this.#stop.abort(new SlotLost({ cause: err }));
      }
    }), Math.max(0, since + due - performance.now()));
  }

  /** Sends one request of the lease at a time: each answer has the id for the next. */
  #after<T>(step: () => Promise<T>): Promise<T> {
    const next = this.#turn.then(step);
    this.#turn = next.catch(() => {});
    return next;
  }
}
