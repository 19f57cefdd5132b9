"""The client for programs with threads."""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

import httpx

from ._protocol import Answer, BaseClient, BaseLease, Block, Call, LeaseState, Pause, Steps
from .errors import WeirError
from .models import Balance, Explanation, Limits, LimitStatus, Request

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_log = logging.getLogger("weir")


class Lease(BaseLease):
    """What is held while a block lasts. Its methods may be called by several threads."""

    def __init__(self, client: Client, state: LeaseState) -> None:
        super().__init__(state)
        self._client = client
        self._lock = threading.Lock()
        self._ended = threading.Event()
        if state.slots:
            threading.Thread(target=self._keep, name="weir-renew", daemon=True).start()

    def adjust(self, **amounts: int) -> list[Balance]:
        """Spend more tokens, or give back if negative, at once; a limit may go into debt by this.

        Returns what is left of each limit that was changed; nothing if it is not known. Raises RequestError, of the
        kind "max-debt" if a limit may not go that far into debt, and was debited as far as it may; LeaseExpiredError;
        RateLimiterUnavailable, after which the call may be repeated.
        """
        with self._lock:
            return self._client._run(self._state.adjust(amounts))

    def release(self, **amounts: int) -> list[Balance]:
        """Give back tokens: adjust with the opposite signs."""
        return self.adjust(**{limit: -amount for limit, amount in amounts.items()})

    def _keep(self) -> None:
        while not self._state.lost and not self._ended.wait(self._state.pause()):
            with self._lock:
                if not self._ended.is_set():
                    self._client._run(self._state.renew())
        if self._state.lost:
            _log.warning("%r has lost a slot, which could not be renewed in time", self)

    def _end(self, failed: bool) -> None:
        with self._lock:  # not during a renewal
            try:
                self._client._run(self._state.finish(failed))
            except WeirError as error:
                _log.warning("%r: %s: %s", self, "rollback" if failed else "commit", error)


class _Held(Block, Generic[T]):
    """A block that holds leases."""

    def __init__(self, name: str, held: AbstractContextManager[T]) -> None:
        super().__init__(name)
        self._held = held

    def __enter__(self) -> T:
        self._entered = True
        return self._held.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._held.__exit__(kind, error, trace)


def _held(function: Callable[P, Iterator[T]]) -> Callable[P, _Held[T]]:
    """Do as contextmanager does, and warn if there is no with statement."""
    make = contextmanager(function)

    @wraps(function)
    def held(*args: P.args, **kwargs: P.kwargs) -> _Held[T]:
        return _Held(function.__qualname__, make(*args, **kwargs))

    return held


class Client(BaseClient):
    """A weir server, for use by any number of threads.

    token is what weir token create printed; namespace, if left out, is the token's or the server's; timeout is for how
    many seconds a silent server is waited for. With fail_open, a request that no server answers is admitted, with a
    lease that is degraded; otherwise it raises RateLimiterUnavailable. http is an httpx.Client to send with, such as
    for certificates or a proxy; its owner closes it.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        namespace: str | None = None,
        timeout: float = 5.0,
        fail_open: bool = False,
        http: httpx.Client | None = None,
    ) -> None:
        super().__init__(url, token, namespace, timeout, fail_open)
        # Without a bound on connections: those that wait for a slot must not keep away who gives it back.
        self._http = http or httpx.Client(limits=httpx.Limits(max_connections=None, max_keepalive_connections=100))
        self._close = http is None

    @_held
    def acquire(
        self,
        entity: str,
        resource: str,
        tokens: Mapping[str, int] | None = None,
        *,
        limits: Limits | None = None,
        on_unavailable: str | None = None,
        wait: float = 0.0,
    ) -> Iterator[Lease]:
        """Hold tokens and slots of the entity, and of every parent that it charges, for a block: all or nothing.

        At the end of the block, the tokens are spent, and slots are given back; if it raises, the tokens are given
        back, too. Slots are renewed while it lasts. wait is for how many seconds at most to wait for the tokens. The
        other parameters are those of Request.

        Raises RateLimitExceeded, RateLimiterUnavailable, or RequestError, such as of the kind "no-limits".
        """
        with self._hold([Request(entity, resource, tokens or {}, limits, on_unavailable)], wait, False) as leases:
            yield leases[0]

    @_held
    def acquire_all(self, requests: Sequence[Request], *, wait: float = 0.0) -> Iterator[list[Lease]]:
        """Hold what several requests name, as acquire does, in one decision: all of them or none.

        The leases are in the order of the requests.
        """
        with self._hold(requests, wait, True) as leases:
            yield leases

    @contextmanager
    def _hold(self, requests: Sequence[Request], wait: float, batch: bool) -> Iterator[list[Lease]]:
        leases = [Lease(self, state) for state in self._run(self._api.acquire(requests, wait, batch))]
        try:
            yield leases
        except BaseException:
            self._end(leases, True)
            raise
        self._end(leases, False)

    def _end(self, leases: list[Lease], failed: bool) -> None:
        for lease in leases:
            lease._ended.set()
        for lease in leases:
            lease._end(failed)

    def limited(
        self,
        entity: str | Callable[..., str],
        resource: str,
        tokens: Mapping[str, int] | None = None,
        *,
        limits: Limits | None = None,
        on_unavailable: str | None = None,
        wait: float = 0.0,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Return a decorator: each call of the function acquires.

        entity may be a function of the same arguments that returns it. The rest is as for acquire.
        """

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if inspect.iscoroutinefunction(function):
                raise TypeError(f"{function.__qualname__} is a coroutine function: use AsyncClient")

            @wraps(function)
            def limited(*args: P.args, **kwargs: P.kwargs) -> R:
                who = entity if isinstance(entity, str) else entity(*args, **kwargs)
                with self.acquire(who, resource, tokens, limits=limits, on_unavailable=on_unavailable, wait=wait):
                    return function(*args, **kwargs)

            return limited

        return decorate

    def available(self, entity: str, resource: str) -> list[LimitStatus]:
        """Return the status of each limit, the parents' included. Spends nothing. With a token, needs the role read."""
        return self._run(self._api.available(entity, resource))

    def explain(
        self,
        entity: str,
        resource: str,
        tokens: Mapping[str, int] | None = None,
        *,
        limits: Sequence[str] | None = None,
    ) -> Explanation:
        """Return how such a request would be decided, and why. Spends nothing. With a token, needs the role read."""
        return self._run(self._api.explain(entity, resource, tokens, limits))

    def call(self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Any = None) -> Any:
        """Send any other request of the HTTP API; return the JSON value of its answer, or None if it is empty.

        The client's namespace is added to the query. Raises what acquire raises.
        """
        return self._run(self._api.call(method, path, query, body))

    def close(self) -> None:
        """Close the connections."""
        if self._close:
            self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, steps: Steps[T]) -> T:
        answer: Answer | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            answer = None
            if isinstance(step, Pause):
                time.sleep(step.seconds)
            else:
                answer = self._send(step)

    def _send(self, call: Call) -> Answer:
        try:
            got = self._http.request(
                call.method, call.url, headers=call.headers, content=call.content, timeout=call.timeout
            )
        except httpx.HTTPError as error:
            return Answer(0, error=f"{type(error).__name__}: {error}")
        return Answer(got.status_code, got.content, got.headers.get("Retry-After"))
