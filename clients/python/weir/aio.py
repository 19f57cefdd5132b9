"""The client for programs with asyncio."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

import httpx

from ._protocol import Answer, BaseClient, BaseLease, Block, Call, LeaseState, Pause, Steps
from .errors import SlotLostError, WeirError
from .models import Balance, Explanation, Limits, LimitStatus, Request

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_log = logging.getLogger("weir")


class AsyncLease(BaseLease):
    """What is held while a block lasts."""

    def __init__(self, client: AsyncClient, state: LeaseState, on_lost: Callable[[], None]) -> None:
        super().__init__(state)
        self._client, self._on_lost = client, on_lost
        self._lock = asyncio.Lock()
        self._keeper = asyncio.create_task(self._keep(), name="weir-renew") if state.slots else None

    async def adjust(self, **amounts: int) -> list[Balance]:
        """Spend more tokens, or give back if negative, at once; a limit may go into debt by this.

        Returns what is left of each limit that was changed; nothing if it is not known. Raises RequestError, of the
        kind "max-debt" if a limit may not go that far into debt, and was debited as far as it may; LeaseExpiredError;
        RateLimiterUnavailable, after which the call may be repeated.
        """
        async with self._lock:
            return await self._client._run(self._state.adjust(amounts))

    async def release(self, **amounts: int) -> list[Balance]:
        """Give back tokens: adjust with the opposite signs."""
        return await self.adjust(**{limit: -amount for limit, amount in amounts.items()})

    async def _keep(self) -> None:
        while not self._state.lost:
            await asyncio.sleep(self._state.pause())
            async with self._lock:
                await self._client._run(self._state.renew())
        self._on_lost()

    async def _end(self, failed: bool) -> None:
        async with self._lock:
            try:
                await self._client._run(self._state.finish(failed))
            except WeirError as error:
                _log.warning("%r: %s: %s", self, "rollback" if failed else "commit", error)


class _Running:
    """What runs while leases are held, which is cancelled if one of them loses a slot."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._before = task.cancelling() if hasattr(task, "cancelling") else 0  # since Python 3.11
        self._cancelled = False

    def cancel(self) -> None:
        """Cancel the task, once."""
        self._cancelled = self._cancelled or self._task.cancel()

    def end(self, leases: list[AsyncLease], error: BaseException | None) -> bool:
        """Stop renewing, and return whether the block was cancelled by this, and by nothing else."""
        for lease in leases:
            if lease._keeper is not None:
                lease._keeper.cancel()
        if not self._cancelled:
            return False
        left = self._task.uncancel() if hasattr(self._task, "uncancel") else self._before
        return isinstance(error, asyncio.CancelledError) and left <= self._before


class _Held(Block, Generic[T]):
    """A block that holds leases."""

    def __init__(self, name: str, held: AbstractAsyncContextManager[T]) -> None:
        super().__init__(name)
        self._held = held

    async def __aenter__(self) -> T:
        self._entered = True
        return await self._held.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._held.__aexit__(kind, error, trace)


def _held(function: Callable[P, AsyncIterator[T]]) -> Callable[P, _Held[T]]:
    """Do as asynccontextmanager does, and warn if there is no with statement."""
    make = asynccontextmanager(function)

    @wraps(function)
    def held(*args: P.args, **kwargs: P.kwargs) -> _Held[T]:
        return _Held(function.__qualname__, make(*args, **kwargs))

    return held


class AsyncClient(BaseClient):
    """A weir server, for use in one event loop of asyncio.

    The parameters are those of Client; http is an httpx.AsyncClient.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        namespace: str | None = None,
        timeout: float = 5.0,
        fail_open: bool = False,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        super().__init__(url, token, namespace, timeout, fail_open)
        # Without a bound on connections: those that wait for a slot must not keep away who gives it back.
        self._http = http or httpx.AsyncClient(limits=httpx.Limits(max_connections=None, max_keepalive_connections=100))
        self._close = http is None

    @_held
    async def acquire(
        self,
        entity: str,
        resource: str,
        tokens: Mapping[str, int] | None = None,
        *,
        limits: Limits | None = None,
        on_unavailable: str | None = None,
        wait: float = 0.0,
    ) -> AsyncIterator[AsyncLease]:
        """Hold tokens and slots of the entity, and of every parent that it charges, for a block: all or nothing.

        As Client.acquire. If a slot is lost, what runs in the block is cancelled, and the block raises SlotLostError.
        """
        request = Request(entity, resource, tokens or {}, limits, on_unavailable)
        async with self._hold([request], wait, False) as leases:
            yield leases[0]

    @_held
    async def acquire_all(self, requests: Sequence[Request], *, wait: float = 0.0) -> AsyncIterator[list[AsyncLease]]:
        """Hold what several requests name, as acquire does, in one decision: all of them or none.

        The leases are in the order of the requests.
        """
        async with self._hold(requests, wait, True) as leases:
            yield leases

    @asynccontextmanager
    async def _hold(self, requests: Sequence[Request], wait: float, batch: bool) -> AsyncIterator[list[AsyncLease]]:
        states = await self._run(self._api.acquire(requests, wait, batch))
        block = _Running()
        leases = [AsyncLease(self, state, block.cancel) for state in states]
        try:
            yield leases
        except BaseException as error:
            lost = block.end(leases, error)
            await asyncio.gather(*(lease._end(True) for lease in leases))
            if lost:
                raise SlotLostError("a slot could not be renewed in time, and is lost") from error
            raise
        block.end(leases, None)
        await asyncio.gather(*(lease._end(False) for lease in leases))

    def limited(
        self,
        entity: str | Callable[..., str],
        resource: str,
        tokens: Mapping[str, int] | None = None,
        *,
        limits: Limits | None = None,
        on_unavailable: str | None = None,
        wait: float = 0.0,
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]:
        """Return a decorator: each call of the coroutine function acquires.

        entity may be a function of the same arguments that returns it. The rest is as for acquire.
        """

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
            if not inspect.iscoroutinefunction(function):
                raise TypeError(f"{function!r} is no coroutine function: use Client")

            @wraps(function)
            async def limited(*args: P.args, **kwargs: P.kwargs) -> R:
                who = entity if isinstance(entity, str) else entity(*args, **kwargs)
                async with self.acquire(who, resource, tokens, limits=limits, on_unavailable=on_unavailable, wait=wait):
                    return await function(*args, **kwargs)

            return limited

        return decorate

    async def available(self, entity: str, resource: str) -> list[LimitStatus]:
        """Return the status of each limit, the parents' included. Spends nothing. With a token, needs the role read."""
        return await self._run(self._api.available(entity, resource))

    async def explain(
        self,
        entity: str,
        resource: str,
        tokens: Mapping[str, int] | None = None,
        *,
        limits: Sequence[str] | None = None,
    ) -> Explanation:
        """Return how such a request would be decided, and why. Spends nothing. With a token, needs the role read."""
        return await self._run(self._api.explain(entity, resource, tokens, limits))

    async def call(self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Any = None) -> Any:
        """Send any other request of the HTTP API; return the JSON value of its answer, or None if it is empty.

        The client's namespace is added to the query. Raises what acquire raises.
        """
        return await self._run(self._api.call(method, path, query, body))

    async def aclose(self) -> None:
        """Close the connections."""
        if self._close:
            await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _run(self, steps: Steps[T]) -> T:
        answer: Answer | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            answer = None
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            else:
                answer = await self._send(step)

    async def _send(self, call: Call) -> Answer:
        try:
            got = await self._http.request(
                call.method, call.url, headers=call.headers, content=call.content, timeout=call.timeout
            )
        except httpx.HTTPError as error:
            return Answer(0, error=f"{type(error).__name__}: {error}")
        return Answer(got.status_code, got.content, got.headers.get("Retry-After"))
