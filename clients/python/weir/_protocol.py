"""The HTTP API without I/O.

A function here that needs an answer is a generator: it yields each Call to send and each Pause to make, gets the Answer
to a call, and returns its result. Client and AsyncClient carry them out, each with its own I/O.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

from .errors import LeaseExpiredError, RateLimiterUnavailable, RateLimitExceeded, RequestError
from .models import Balance, Explanation, LimitStatus, Request

C = TypeVar("C", bound="BaseClient")
T = TypeVar("T")

MAX_WAIT = 60.0
"""Seconds that the server waits at most for the tokens of one request."""
STRANGER = "the answer is not one of weir"


@dataclass(frozen=True)
class Call:
    """A request to send."""

    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes | None
    timeout: float
    """Seconds of silence after which there is no answer."""


@dataclass(frozen=True)
class Pause:
    """Seconds to wait."""

    seconds: float


@dataclass(frozen=True)
class Answer:
    """The answer to a call."""

    status: int
    """0 if there was none."""
    content: bytes = b""
    retry_after: str | None = None
    """The header."""
    error: str = ""
    """Why there was none."""

    def read(self) -> dict[str, Any]:
        """Return the JSON object, or an empty one if there is none."""
        try:
            value = json.loads(self.content)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


Steps = Generator["Call | Pause", "Answer | None", T]


class Block:
    """What a with statement enters: until then, nothing was sent. Without one, there is a warning, as of a coroutine."""

    def __init__(self, name: str) -> None:
        self._name, self._entered = name, False

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        if not self._entered:
            message = f"{self._name}() was never entered, and has spent nothing: use it in a with statement"
            _warn(message, RuntimeWarning, stacklevel=2, source=self)


class Api:
    """The requests to one server, in one namespace."""

    def __init__(
        self,
        url: str,
        token: str | None,
        namespace: str | None,
        timeout: float,
        fail_open: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(url)
        surplus = parts.username or parts.query or parts.fragment
        if parts.scheme not in ("http", "https") or not parts.hostname or surplus:
            raise ValueError("url: must be one such as http://127.0.0.1:8080, without user, query and fragment")
        if token is not None and not (token.isascii() and token.isprintable() and token):
            raise ValueError("token: must be printable ASCII, as weir token create prints it")
        self.base, self.host, self.namespace = url.rstrip("/"), parts.netloc, namespace
        self.timeout, self.fail_open, self.clock = timeout, fail_open, clock
        self._headers = {"Accept": "application/json, application/problem+json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        timeout: float | None = None,
    ) -> Steps[Answer]:
        """Send a request."""
        url = self.base + path + ("?" + urlencode(query) if query else "")
        headers, content = self._headers, None
        if body is not None:
            headers = {**headers, "Content-Type": "application/json"}
            content = json.dumps(body, allow_nan=False).encode()
        answer = yield Call(method, url, headers, content, self.timeout if timeout is None else timeout)
        assert answer is not None
        return answer

    def call(self, method: str, path: str, query: Mapping[str, str] | None, body: Any) -> Steps[Any]:
        """Send any request; return the JSON value of its answer, or None if that is empty."""
        answer = yield from self.send(method, path, self.scoped(query), body)
        return None if answer.status == 204 else self.result(answer)

    def scoped(self, query: Mapping[str, str] | None) -> Mapping[str, str]:
        """Add the namespace to a query."""
        scope = {} if self.namespace is None else {"namespace": self.namespace}
        return {**scope, **(query or {})}

    def acquire(self, requests: Sequence[Request], wait: float, batch: bool = False) -> Steps[list[LeaseState]]:
        """Acquire all or nothing; wait is for how many seconds at most to wait for the tokens.

        The server waits for a single request, up to a minute at a time. For anything else, the client does, for as long
        as the server has named.
        """
        until = self.clock() + wait
        while True:
            sent = self.clock()
            left = max(0.0, until - sent)
            answer = yield from self._decide(requests, min(left, MAX_WAIT), batch)
            try:
                result = self.result(answer)
            except RateLimiterUnavailable as silent:
                if not self.fail_open or silent.kind:
                    raise
                return [LeaseState(self, request, {"degraded": True, "over": -1}, sent) for request in requests]
            except RateLimitExceeded as refused:
                left = until - self.clock()
                if refused.retry_after is None or _soonest(refused) > left:
                    raise
                yield Pause(max(min(refused.retry_after, left), 0.01))
            else:
                results = result.get("results", []) if batch else [result]
                if len(results) != len(requests) or not all(data.get("allowed") for data in results):
                    raise RequestError(STRANGER, answer.status)
                return [LeaseState(self, r, data, sent) for r, data in zip(requests, results, strict=True)]

    def _decide(self, requests: Sequence[Request], wait: float, batch: bool) -> Steps[Answer]:
        bodies = [self._body(request) for request in requests]
        if batch:
            return (yield from self.send("POST", "/v1/acquire/batch", body={"requests": bodies, "atomic": True}))
        if wait >= 0.001:
            bodies[0]["wait"] = f"{wait:.3f}s"
        return (yield from self.send("POST", "/v1/acquire", body=bodies[0], timeout=self.timeout + wait))

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {"entity": request.entity, "resource": request.resource, "tokens": dict(request.tokens)}
        if request.limits is not None:
            body["limits"] = list(request.limits)
        if request.on_unavailable is not None:
            body["on_unavailable"] = request.on_unavailable
        return {**body, **self.scoped(None)}

    def available(self, entity: str, resource: str) -> Steps[list[LimitStatus]]:
        """Return the status of each limit, the parents' included."""
        result = yield from self.call("GET", "/v1/available", {"entity": entity, "resource": resource}, None)
        return [LimitStatus.parse(s) for s in result["limits"]]

    def explain(
        self, entity: str, resource: str, tokens: Mapping[str, int] | None, limits: Sequence[str] | None
    ) -> Steps[Explanation]:
        """Return how such a request would be decided."""
        query = {"entity": entity, "resource": resource}
        if tokens:
            query["tokens"] = ",".join(f"{limit}={amount}" for limit, amount in tokens.items())
        if limits:
            query["limits"] = ",".join(limits)
        result = yield from self.call("GET", "/v1/explain", query, None)
        return Explanation(result["outcome"], result["retry_after"], result.get("detail", ""), result)

    def result(self, answer: Answer) -> dict[str, Any]:
        """Return what an answer holds, or raise what it is instead."""
        problem = answer.read()
        if 200 <= answer.status < 300 and problem:
            return problem
        kind = str(problem.get("type", "")).rpartition("#")[2]
        detail = str(problem.get("detail") or STRANGER)
        if kind == "quota-exceeded":
            raise RateLimitExceeded(problem)
        if answer.status == 0:
            raise RateLimiterUnavailable(f"no answer from {self.host}: {answer.error}")
        if answer.status >= 500:
            after = _seconds(problem, answer)
            raise RateLimiterUnavailable(f"{answer.status} {kind}: {detail}", answer.status, kind, after)
        if kind in ("settled", "expired"):
            raise LeaseExpiredError(detail)
        raise RequestError(detail, answer.status, kind, problem.get("field"))


def _soonest(refused: RateLimitExceeded) -> float:
    """Return the seconds after which the request could pass: retry_after without its random share."""
    waits = [s.retry_after for s in refused.violations if s.retry_after is not None]
    return max(waits, default=refused.retry_after or 0.0)


def _seconds(problem: Mapping[str, Any], answer: Answer) -> float | None:
    after = problem.get("retry_after", answer.retry_after)
    try:
        return None if after is None else float(after)
    except ValueError:  # a date, of a proxy
        return None


class LeaseState:
    """A lease: what it holds, and its requests. Who uses it sends one of them at a time."""

    def __init__(self, api: Api, request: Request, data: Mapping[str, Any], sent: float) -> None:
        self.api, self.request = api, request
        self.id: str | None = data.get("lease")
        self.expires: str = data.get("expires", "")
        self.degraded: bool = data.get("degraded", False)
        self.exceeds: int = data.get("over", 0)
        self.statuses = [LimitStatus.parse(s) for s in data.get("limits", ())]
        self.consumed = dict(request.tokens)
        self.done = self.id is None and "allowed" in data  # its block has ended, or its id is lost
        self.lost = False
        self._hold(data.get("held_for"), sent)

    def _hold(self, held_for: float | None, sent: float) -> None:
        self.slots = held_for is not None
        self.due, self.end = sent + (held_for or 0) / 2, sent + (held_for or 0)

    def adjust(self, tokens: Mapping[str, int]) -> Steps[list[Balance]]:
        """Spend more, or give back."""
        if self.done:
            raise LeaseExpiredError("the lease is over")
        if self.id is None:  # no server has admitted it
            return []
        answer = yield from self._settle("adjust", {"tokens": dict(tokens)})
        left = []
        if answer is None:
            self.done = True  # the new id was in the answer that got lost
        else:
            if answer.status == 422:
                self.id = answer.read().get("lease", self.id)  # the adjustment may have been made in part
            result = self.api.result(answer)
            self.id, left = result["lease"], [Balance.parse(b) for b in result["limits"]]
        for limit, amount in tokens.items():
            self.consumed[limit] = self.consumed.get(limit, 0) + amount
        return left

    def finish(self, failed: bool) -> Steps[None]:
        """Roll back, or commit if there are slots to give back: nothing else needs it."""
        needless = self.done or self.id is None or (not failed and (self.lost or not self.slots))
        self.done = True
        if not needless:
            answer = yield from self._settle("rollback" if failed else "commit")
            if answer is not None and answer.status != 204:
                self.api.result(answer)

    def _settle(self, verb: str, body: Any = None) -> Steps[Answer | None]:
        """Send a request, and again if there was no answer. None if the first turns out to have been carried out."""
        path = f"/v1/leases/{self.id}/{verb}"
        answer = yield from self.api.send("POST", path, body=body)
        if answer.status != 0:
            return answer
        answer = yield from self.api.send("POST", path, body=body)
        return None if answer.status == 409 else answer

    def pause(self) -> float:
        """Return the seconds until the slots are to be renewed."""
        return max(0.0, self.due - self.api.clock())

    def renew(self) -> Steps[None]:
        """Renew the slots. Without an answer, they are due again after a second, until they are lost."""
        sent = self.api.clock()
        if sent >= self.end:
            self.lost = True
            return
        timeout = min(self.api.timeout, self.end - sent)
        answer = yield from self.api.send("POST", f"/v1/leases/{self.id}/renew", timeout=timeout)
        try:
            result = self.api.result(answer)
        except RateLimiterUnavailable:
            self.due = min(self.api.clock() + 1, self.end)
        except (LeaseExpiredError, RequestError):
            self.lost = True
        else:
            self.id = result["lease"]
            self._hold(result["held_for"], sent)


class BaseLease:
    """What is held while a block lasts."""

    def __init__(self, state: LeaseState) -> None:
        self._state = state

    @property
    def entity(self) -> str:
        """Who is limited."""
        return self._state.request.entity

    @property
    def resource(self) -> str:
        """On what."""
        return self._state.request.resource

    @property
    def consumed(self) -> dict[str, int]:
        """The tokens that were requested, and what adjustments have added; not those of one that was made in part."""
        return dict(self._state.consumed)

    @property
    def statuses(self) -> list[LimitStatus]:
        """All limits after the decision: the entity's first, then its parents'."""
        return self._state.statuses

    @property
    def degraded(self) -> bool:
        """Whether something else than the store decided: on_unavailable, or fail_open."""
        return self._state.degraded

    @property
    def over(self) -> int:
        """If degraded: how many tokens may be admitted beyond a limit at most; -1 if there is no bound."""
        return self._state.exceeds

    @property
    def expires(self) -> str:
        """The time, in RFC 3339, from which it can neither be adjusted nor rolled back; empty if no server answered."""
        return self._state.expires

    @property
    def lost(self) -> bool:
        """Whether a slot was lost, because it could not be renewed in time."""
        return self._state.lost

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.entity!r}, {self.resource!r}, {self.consumed})"


class BaseClient:
    """What both clients have in common."""

    def __init__(self, url: str, token: str | None, namespace: str | None, timeout: float, fail_open: bool) -> None:
        self._api = Api(url, token, namespace, timeout, fail_open)

    @classmethod
    def from_env(cls: type[C], **options: Any) -> C:
        """Return a client of WEIR_SERVER, with WEIR_TOKEN and WEIR_NAMESPACE if they are set, and these options."""
        if not (url := os.environ.get("WEIR_SERVER")):
            raise ValueError("WEIR_SERVER is not set: it names the server, such as http://127.0.0.1:8080")
        options.setdefault("token", os.environ.get("WEIR_TOKEN") or None)
        options.setdefault("namespace", os.environ.get("WEIR_NAMESPACE") or None)
        return cls(url, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._api.base!r}, namespace={self._api.namespace!r})"
