"""What calls raise. All of it is a WeirError, and can be pickled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .models import LimitStatus


class WeirError(Exception):
    """A call did not do what it was asked to."""


class RateLimitExceeded(WeirError):
    """A limit refused the request, and nothing was spent."""

    problem: Mapping[str, Any]
    """The server's answer, problem+json: fit to be passed on to a caller, with status 429."""
    statuses: list[LimitStatus]
    """All limits that were checked: the entity's, then its parents'. Empty if the server had no memory for them."""
    retry_after: float | None
    """Seconds until the request could pass if nobody else spends, plus a random share of up to three tenths, so that
    not all who were refused come back together; None if only a top-up of a balance helps."""
    degraded: bool
    """The store did not answer, and the server's own share of the limits is used up."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(problem)
        self.problem = problem
        self.statuses = [LimitStatus.parse(s) for s in problem.get("limits", ())]
        self.retry_after = problem.get("retry_after")
        self.degraded = problem.get("degraded", False)

    @property
    def violations(self) -> list[LimitStatus]:
        """The limits that refused."""
        return [s for s in self.statuses if s.refused]

    @property
    def passed(self) -> list[LimitStatus]:
        """The limits that would have admitted the request."""
        return [s for s in self.statuses if not s.refused]

    @property
    def primary_violation(self) -> LimitStatus | None:
        """The limit that refuses for longest; None if statuses is empty."""
        return max(self.violations, key=_wait, default=None)

    @property
    def retry_after_header(self) -> str:
        """The value of Retry-After, in whole seconds, rounded up; empty if waiting does not help."""
        return "" if self.retry_after is None else str(math.ceil(self.retry_after))

    def __str__(self) -> str:
        after = "" if self.retry_after is None else f"; retry after {self.retry_after:.1f} s"
        return f"{self.problem.get('detail') or 'limit exceeded'}{after}"


class RateLimiterUnavailable(WeirError):
    """The server did not answer, or not with a decision: it may or may not have spent tokens."""

    status: int
    """The HTTP status, at least 500; 0 if there was no answer."""
    kind: str
    """The last part of the problem's type, such as "overloaded"; "" if it was not weir that answered."""
    retry_after: float | None
    """Seconds to wait before a retry; None if the server named none."""

    def __init__(self, detail: str, status: int = 0, kind: str = "", retry_after: float | None = None) -> None:
        super().__init__(detail, status, kind, retry_after)
        self.status, self.kind, self.retry_after = status, kind, retry_after

    def __str__(self) -> str:
        return str(self.args[0])


class RequestError(WeirError):
    """The server refused the call for another reason than a limit: a mistake of the caller, or of the configuration."""

    status: int
    """The HTTP status."""
    kind: str
    """The last part of the problem's type, such as "no-limits", "exceeds-burst" or "forbidden"; "" if the answer is no
    problem of weir."""
    field: str | None
    """The member or parameter that is not valid."""

    def __init__(self, detail: str, status: int, kind: str = "", field: str | None = None) -> None:
        super().__init__(detail, status, kind, field)
        self.status, self.kind, self.field = status, kind, field

    def __str__(self) -> str:
        return f"{self.status} {self.kind}: {self.args[0]}"


class LeaseExpiredError(WeirError):
    """The lease is over: its block has ended, it has expired, or it was adjusted or settled elsewhere."""


class SlotLostError(LeaseExpiredError):
    """A slot could not be renewed in time: others may have it now."""


def _wait(status: LimitStatus) -> float:
    return math.inf if status.retry_after is None else status.retry_after
