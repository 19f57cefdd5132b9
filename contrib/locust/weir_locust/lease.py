"""The results of acquire: a lease, which is truthy, or a refusal, which is falsy."""

from __future__ import annotations

import math
import time
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
    """Tokens that have been spent, and slots that are held. It is truthy.

    As a context manager, it commits at the end if it was adjusted or holds slots (any other lease needs no commit, and
    none is sent), and rolls back if the block raises, except for the exceptions with which Locust ends a user: slots
    then come back by themselves.
    """

    expires: str
    """The time, in RFC 3339, from which the lease counts as committed."""
    held_for: float | None
    """Seconds for which the lease holds its slots unless it is renewed, from when the last request was sent."""

    def __init__(
        self, session: WeirSession, name: str, entity: str, resource: str, said: Mapping[str, Any], sent: float
    ) -> None:
        super().__init__(entity, resource, said)
        self._session, self._name = session, name
        self._adjusted = False
        self._received(said, sent)

    def _received(self, said: Mapping[str, Any], sent: float) -> None:
        self._id: str | None = said["lease"]
        self.expires, self.held_for = str(said["expires"]), said.get("held_for")
        held = math.inf if self.held_for is None else self.held_for
        self._due, self._lost = sent + held / 2, sent + held

    def __bool__(self) -> Literal[True]:
        return True

    def __repr__(self) -> str:
        return f"Lease({self.entity!r}, {self.resource!r}, expires={self.expires})"

    def adjust(self, tokens: Mapping[str, int]) -> list[dict[str, Any]]:
        """Spend more tokens, or return tokens if negative; may go into debt, and is never refused for lack of tokens.

        Returns what is left of each limit that was changed, as returned by the API; nothing if the lease is degraded.

        Fires ADJUST. Raises WeirError, with kind "settled" or "expired" if it comes too late, and "max-debt" if a limit
        may not go that far into debt. The lease then holds what was spent.
        """
        try:
            said = self._settle("ADJUST", "adjust", {"tokens": dict(tokens)})
        except WeirError as error:
            if error.lease is not None:
                self._id, self._adjusted = error.lease, True
            raise
        self._id, self.expires, self._adjusted = said["lease"], said["expires"], True
        return said.get("limits") or []

    def renew(self) -> None:
        """Renew the slots, which are then held for held_for seconds. Fires RENEW.

        Raises WeirError, with kind "expired" if a slot is lost. After any other error, the call may be repeated.
        """
        sent = time.monotonic()
        self._received(self._settle("RENEW", "renew"), sent)

    def hold(self, seconds: float) -> None:
        """Sleep for so long, and renew the slots whenever half of held_for has passed. Other users go on meanwhile.

        A renewal that fails is repeated every second until the slots are lost, unless weir refuses it. Raises
        WeirError.
        """
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            if now >= self._due:
                self._keep(now)
            gevent.sleep(max(0.0, min(end, self._due) - time.monotonic()))

    def _keep(self, now: float) -> None:
        try:
            self.renew()
        except WeirError as error:
            if 0 < error.status < 500 or now >= self._lost:
                raise
            self._due = now + 1

    def commit(self) -> None:
        """Confirm that the tokens are used, and give slots back. Fires COMMIT. Raises WeirError."""
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
            if self._adjusted or self.held_for is not None:
                self.commit()
        elif isinstance(error, Exception):
            try:
                self.rollback()
            except WeirError as e:  # already counted; the exception from the block matters more
                error.add_note(f"rollback: {e}")
        return False
