"""The results of acquire: a lease, which is truthy, or a refusal, which is falsy."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import gevent

from .errors import WeirError
from .transport import Answer

if TYPE_CHECKING:
    from .session import WeirSession


class _Decision:
    """What leases and refusals have in common."""

    entity: str
    resource: str
    degraded: bool
    """Whether on_unavailable decided instead of the store."""
    over: int | None
    """If degraded: the most tokens that may be admitted beyond any one limit; -1 if there is no bound."""
    limits: list[dict[str, Any]]
    """The status of each limit: the entity's, then its parents', as returned by /v1/acquire."""

    def __init__(self, entity: str, resource: str, said: Mapping[str, Any]) -> None:
        self.entity, self.resource = entity, resource
        self.degraded = said.get("degraded") is True
        self.over = said.get("over")
        self.limits = said.get("limits") or []


class Refusal(_Decision):
    """A refusal by a limit: nothing was spent. It is falsy, and not a failure."""

    retry_after: float
    """Seconds until the request could pass if nobody else spends, plus a small random delay; never too early."""
    violated: list[str]
    """The limits that refused, longest wait first; a parent's as limit@parent."""

    def __init__(self, entity: str, resource: str, answer: Answer) -> None:
        said = answer.said()
        super().__init__(entity, resource, said)
        self.retry_after = answer.wait() or 0.0
        self.violated = said.get("violated-policies") or []

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return f"Refusal({self.entity!r}, {self.resource!r}, {self.violated}, retry_after={self.retry_after:g})"

    def wait(self) -> None:
        """Sleep for the duration of Retry-After. Other users go on meanwhile."""
        gevent.sleep(self.retry_after)

    def __enter__(self) -> Refusal:
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        return False


class Lease(_Decision):
    """Tokens that have been spent. It is truthy.

    As a context manager, it commits at the end if it was adjusted (an unadjusted lease needs no commit, and none is
    sent), and rolls back if the block raises, except for the exceptions with which Locust ends a user.
    """

    expires: str
    """The time, in RFC 3339, from which the lease counts as committed."""

    def __init__(self, session: WeirSession, name: str, entity: str, resource: str, said: Mapping[str, Any]) -> None:
        super().__init__(entity, resource, said)
        self._session, self._name = session, name
        self._id: str | None = said["lease"]
        self._adjusted = False
        self.expires = str(said["expires"])

    def __bool__(self) -> Literal[True]:
        return True

    def __repr__(self) -> str:
        return f"Lease({self.entity!r}, {self.resource!r}, expires={self.expires})"

    def adjust(self, tokens: Mapping[str, int]) -> None:
        """Spend more tokens, or return tokens if negative; may go into debt, and is never refused for lack of tokens.

        Fires ADJUST. Raises WeirError, with kind "settled" or "expired" if it comes too late.
        """
        said = self._settle("ADJUST", "adjust", {"tokens": dict(tokens)})
        self._id, self.expires, self._adjusted = said["lease"], said["expires"], True

    def commit(self) -> None:
        """Confirm that the tokens are used. Fires COMMIT. Raises WeirError."""
        self._settle("COMMIT", "commit")
        self._id = None

    def rollback(self) -> None:
        """Return everything that the lease holds. Fires ROLLBACK. Raises WeirError."""
        self._settle("ROLLBACK", "rollback")
        self._id = None

    def _settle(self, request_type: str, verb: str, body: Any = None) -> Any:
        if self._id is None:
            raise ValueError(f"{verb} {self!r}: it is committed or rolled back already")
        context = {"entity": self.entity, "resource": self.resource}
        return self._session.call(
            request_type, self._name, "POST", f"/v1/leases/{self._id}/{verb}", body=body, context=context
        )

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if self._id is None:
            return False
        if error is None:
            if self._adjusted:
                self.commit()
        elif isinstance(error, Exception):
            try:
                self.rollback()
            except WeirError as e:  # already counted; the exception from the block matters more
                error.add_note(f"rollback: {e}")
        return False
