/** What calls throw. All of it is a WeirError. */

import type { components } from './openapi.js';

type Problem = components['schemas']['Problem'] & { lease?: string };
type LimitStatus = components['schemas']['Status'];

/** A call did not do what it was asked to. */
export class WeirError extends Error {
  override name = 'WeirError';

  /** @internal */
  static of(status: number, value: unknown, header: string | null): WeirError {
    const problem = (typeof value === 'object' && value !== null ? value : {}) as Partial<Problem>;
    const kind = (problem.type ?? '').split('#').pop() ?? '';
    const detail = problem.detail ?? 'the answer is not one of weir';
    if (kind === 'quota-exceeded') return new RateLimited(problem as Problem);
    if (status >= 500) return new Unavailable(`${status} ${kind}: ${detail}`, status, kind, seconds(problem.retry_after ?? header));
    if (kind === 'settled' || kind === 'expired') return new LeaseExpired(detail);
    return new RequestError(`${status} ${kind}: ${detail}`, status, kind, problem.field, problem.lease);
  }
}

/** A limit refused the request, and nothing was spent. */
export class RateLimited extends WeirError {
  override name = 'RateLimited';
  /** All limits that were checked: the entity's, then its parents'. Empty if the server had no memory for them. */
  readonly limits: readonly LimitStatus[];
  /**
   * Seconds until the request could pass if nobody else spends, plus a random share, so that not all who were refused come
   * back together; null if only a top-up of a balance helps.
   */
  readonly retryAfter: number | null;
  /** The store did not answer, and the server's own share of the limits is used up. */
  readonly degraded: boolean;

  /** @param problem the server's answer, fit to be passed on to a caller with status 429 */
  constructor(readonly problem: Problem) {
    super(problem.detail);
    this.limits = problem.limits ?? [];
    this.retryAfter = problem.retry_after ?? null;
    this.degraded = problem.degraded ?? false;
  }
}

/** The server did not answer, or not with a decision: it may or may not have spent tokens. */
export class Unavailable extends WeirError {
  override name = 'Unavailable';

  /**
   * @param status the HTTP status, at least 500; 0 if there was no answer
   * @param kind the last part of the problem's type, such as overloaded; empty if it was not weir that answered
   * @param retryAfter seconds to wait before a retry; null if the server named none
   */
  constructor(message: string, readonly status: number, readonly kind: string, readonly retryAfter: number | null, options?: ErrorOptions) {
    super(message, options);
  }
}

/** The server refused the call for another reason than a limit: a mistake of the caller, or of the configuration. */
export class RequestError extends WeirError {
  override name = 'RequestError';

  /**
   * @param status the HTTP status
   * @param kind the last part of the problem's type, such as no-limits, exceeds-burst or forbidden
   * @param field the member or parameter that is not valid
   * @param lease the new id of a lease that was adjusted in part
   */
  constructor(message: string, readonly status: number, readonly kind: string, readonly field?: string, readonly lease?: string) {
    super(message);
  }
}

/** The lease is over: its work has ended, it has expired, or it was settled elsewhere. */
export class LeaseExpired extends WeirError {
  override name = 'LeaseExpired';
}

/** A slot could not be renewed in time: others may have it now. */
export class SlotLost extends WeirError {
  override name = 'SlotLost';

  constructor(options?: ErrorOptions) {
    super('a slot could not be renewed in time, and is lost', options);
  }
}

function seconds(after: number | string | null): number | null {
  const n = after === null ? NaN : Number(after);
  return Number.isNaN(n) ? null : n;
}
