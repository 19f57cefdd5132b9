"""A user's calls, each of which fires one request event."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from .admin import AdminCalls
from .errors import WeirError
from .lease import Lease, Refusal
from .transport import TIMEOUT, Answer, pool_size, shared

if TYPE_CHECKING:
    from locust import User
    from locust.env import Environment

Limits = Sequence[str | Mapping[str, Any]]
"""Limits as text, such as "tpm:50K/min:75K", or as API objects."""

DEGRADED = " (degraded)"
"""Suffix for the names of events about decisions that the store did not make."""


class WeirSession(AdminCalls):
    """A user's calls to one server in one namespace.

    Each fires a request event. Its type is the call; its name is the resource, or the entity for configuration calls,
    unless you give the call another name. Refusals have their own type, RATE_LIMITED, and are not failures. The event's
    context has the entity, the resource and whether the answer is degraded, and for a refusal the refusal itself.

    token and namespace default to WEIR_TOKEN and WEIR_NAMESPACE; without these, no token is sent, and the server
    chooses the namespace. Sessions of a process with the same host, pool_size, timeout and insecure share a pool.
    """

    def __init__(
        self,
        host: str,
        environment: Environment,
        user: User | None = None,
        *,
        token: str | None = None,
        namespace: str | None = None,
        pool_size: int | None = None,
        timeout: float = TIMEOUT,
        insecure: bool = False,
    ) -> None:
        if not host.startswith(("http://", "https://")):
            raise ValueError(f"host {host!r}: must be the URL of a weir server, such as http://127.0.0.1:8080")
        self.namespace = namespace or os.environ.get("WEIR_NAMESPACE") or None
        self._event = environment.events.request
        self._user = user
        self._transport = shared(host, _pool_size(pool_size), timeout, insecure)
        self._plain: dict[str, str] = {}
        if token := token or os.environ.get("WEIR_TOKEN"):
            self._plain["Authorization"] = f"Bearer {token}"
        self._json = {**self._plain, "Content-Type": "application/json"}

    def acquire(
        self,
        entity: str,
        resource: str,
        tokens: Mapping[str, int] | None = None,
        *,
        limits: Limits | None = None,
        wait: str | None = None,
        on_unavailable: str | None = None,
        name: str | None = None,
    ) -> Lease | Refusal:
        """Spend tokens, and take slots, of the entity and of every parent that it charges, all or nothing.

        A slot is taken of each limit that has them, unless tokens name another number. Fires ACQUIRE, or RATE_LIMITED if a limit refused. Raises WeirError in all other cases: "exceeds-burst",
        "no-limits", "overloaded" and so on, which are failures of ACQUIRE. wait is a duration, "2s", at most a minute.
        """
        body: dict[str, Any] = {"entity": entity, "resource": resource, "tokens": dict(tokens or {})}
        if self.namespace is not None:
            body["namespace"] = self.namespace
        if limits is not None:
            body["limits"] = list(limits)
        if wait is not None:
            body["wait"] = wait
        if on_unavailable is not None:
            body["on_unavailable"] = on_unavailable
        name = name or resource
        sent = time.monotonic()
        answer = self._transport.send("POST", "/v1/acquire", body, self._json)
        said = answer.said()
        context: dict[str, Any] = {"entity": entity, "resource": resource, "degraded": said.get("degraded") is True}
        shown = name + DEGRADED if context["degraded"] else name
        if answer.status == 200 and "lease" in said:
            self._fire("ACQUIRE", shown, answer, context)
            return Lease(self, name, entity, resource, said, sent)
        if answer.status == 429 and str(said.get("type")).endswith("#quota-exceeded"):
            refusal = Refusal(entity, resource, answer)
            self._fire("RATE_LIMITED", shown, answer, {**context, "refusal": refusal})
            return refusal
        raise self._failed("ACQUIRE", name, answer, context)

    def available(self, entity: str, resource: str, *, name: str | None = None) -> list[dict[str, Any]]:
        """Return the status of every limit, including the parents'; spends nothing. Fires AVAILABLE."""
        query = {"entity": entity, "resource": resource}
        said = self.call("AVAILABLE", name or resource, "GET", "/v1/available", query=query, context=query)
        return list(said["limits"])

    def is_available(self, entity: str, resource: str, tokens: Mapping[str, int], *, name: str | None = None) -> bool:
        """Report whether such a request would pass now; spends nothing. Fires IS_AVAILABLE."""
        return bool(self._explain("IS_AVAILABLE", entity, resource, tokens, name)["outcome"] == "allowed")

    def time_until_available(
        self, entity: str, resource: str, tokens: Mapping[str, int], *, name: str | None = None
    ) -> float:
        """Return the seconds until such a request would pass if nobody else spends; infinity if it never will.

        Spends nothing. Fires TIME_UNTIL_AVAILABLE.
        """
        said = self._explain("TIME_UNTIL_AVAILABLE", entity, resource, tokens, name)
        return math.inf if said["outcome"] == "exceeds-burst" else float(said["retry_after"])

    def _explain(
        self, request_type: str, entity: str, resource: str, tokens: Mapping[str, int], name: str | None
    ) -> dict[str, Any]:
        query = {"entity": entity, "resource": resource}
        asked = {**query, "tokens": ",".join(f"{limit}={n}" for limit, n in tokens.items())}
        said: dict[str, Any] = self.call(
            request_type, name or resource, "GET", "/v1/explain", query=asked, context=query
        )
        return said

    def call(
        self,
        request_type: str,
        name: str,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        accept: Sequence[int] = (),
        context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send any request of the API and fire an event of this type and name.

        Return the answer's JSON object, or None for a status in accept, which is not a failure either. Raises WeirError
        for all others. The namespace is sent as a parameter, except for leases, which know theirs.
        """
        query = dict(query or {})
        if self.namespace is not None and not path.startswith(("/v1/leases/", "/v1/namespaces")):
            query["namespace"] = self.namespace
        if query:
            path += "?" + urlencode(query)
        headers = self._plain if body is None else self._json
        answer = self._transport.send(method, path, body, headers)
        if 200 <= answer.status < 300:
            self._fire(request_type, name, answer, context)
            return answer.said()
        if answer.status in accept:
            self._fire(request_type, name, answer, context)
            return None
        raise self._failed(request_type, name, answer, context)

    def _failed(self, request_type: str, name: str, answer: Answer, context: Mapping[str, Any] | None) -> WeirError:
        error = WeirError(request_type.lower().replace("_", " "), answer)
        self._fire(request_type, name, answer, context, error)
        return error

    def _fire(
        self,
        request_type: str,
        name: str,
        answer: Answer,
        context: Mapping[str, Any] | None,
        error: Exception | None = None,
    ) -> None:
        self._event.fire(
            request_type=request_type,
            name=name,
            response_time=answer.took,
            response_length=len(answer.body),
            response=answer,
            context={**(self._user.context() if self._user else {}), **(context or {})},
            exception=error,
            start_time=answer.began,
            url=answer.url,
        )


_pool_size = pool_size  # a parameter of the same name hides it
