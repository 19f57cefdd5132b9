"""AsyncClient against a real server."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from conftest import left, limit
from test_client import WorkFailed, eager

from weir import (
    AsyncClient,
    Client,
    LeaseExpiredError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    Request,
    SlotLostError,
)


def test_a_block_spends_what_it_acquired(options: dict[str, Any], client: Client) -> None:
    limit(client, "rpm:10/day", "tpm:1000/day")

    async def main() -> None:
        async with AsyncClient(**options) as weir:
            async with weir.acquire("alice", "gpt-4o", tokens={"rpm": 1, "tpm": 500}) as lease:
                assert (await lease.adjust(tpm=740))[0].available == -240
                await lease.release(tpm=1000)
                assert lease.consumed == {"rpm": 1, "tpm": 240}
            with pytest.raises(LeaseExpiredError):
                await lease.adjust(tpm=1)
            assert [s.available for s in await weir.available("alice", "gpt-4o")] == [9, 760]
            assert (await weir.explain("alice", "gpt-4o", {"rpm": 9})).outcome == "allowed"
            refused = weir.acquire("alice", "gpt-4o", {"rpm": 10})
            with pytest.raises(RateLimitExceeded):
                async with refused:
                    raise AssertionError("admitted")

    asyncio.run(main())
    assert left(client) == {"rpm": 9, "tpm": 760}


@pytest.mark.parametrize("method", ["acquire", "acquire_all"])
def test_without_a_block_there_is_a_warning(options: dict[str, Any], client: Client, method: str) -> None:
    limit(client, "rpm:10/day")

    async def main() -> None:
        async with AsyncClient(**options) as weir:
            if method == "acquire":
                weir.acquire("alice", "gpt-4o", {"rpm": 1})
            else:
                weir.acquire_all([Request("alice", "gpt-4o", {"rpm": 1})])
            gc.collect()

    with pytest.warns(RuntimeWarning, match=rf"^AsyncClient\.{method}\(\) was never entered") as found:
        asyncio.run(main())
    assert found[0].filename == __file__
    assert left(client) == {"rpm": 10}


@pytest.mark.parametrize("error", [WorkFailed, asyncio.CancelledError])
def test_a_block_that_raises_gives_everything_back(
    options: dict[str, Any], client: Client, error: type[BaseException]
) -> None:
    limit(client, "rpm:10/day")

    async def main() -> None:
        async with AsyncClient(**options) as weir, weir.acquire("alice", "gpt-4o", {"rpm": 1}) as lease:
            await lease.adjust(rpm=3)
            raise error

    with pytest.raises(error):
        asyncio.run(main())
    assert left(client) == {"rpm": 10}


def test_a_task_that_is_cancelled_gives_everything_back(options: dict[str, Any], client: Client) -> None:
    limit(client, "rpm:10/day", "parallel:1slots")

    async def work(weir: AsyncClient, begun: asyncio.Event) -> None:
        async with weir.acquire("alice", "gpt-4o", {"rpm": 1}):
            begun.set()
            await asyncio.Event().wait()

    async def main() -> None:
        async with AsyncClient(**options) as weir:
            begun = asyncio.Event()
            task = asyncio.create_task(work(weir, begun))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(asyncio.all_tasks()) == 1, "nothing renews any more"

    asyncio.run(main())
    assert left(client) == {"rpm": 10, "parallel": 1}


def test_all_or_none(options: dict[str, Any], client: Client) -> None:
    limit(client, "rpm:10/day")
    limit(client, "calls:1/day", "parallel:2slots", resource="search")

    async def main() -> None:
        requests = [Request("alice", "gpt-4o", {"rpm": 3}), Request("alice", "search", {"calls": 1})]
        async with AsyncClient(**options) as weir:
            async with weir.acquire_all(requests) as (chat, search):
                await chat.adjust(rpm=1)
                assert search.resource == "search"
            with pytest.raises(RateLimitExceeded):
                async with weir.acquire_all(requests):
                    raise AssertionError("admitted")

    asyncio.run(main())
    assert left(client) == {"rpm": 6}
    assert left(client, resource="search") == {"calls": 0, "parallel": 2}


def test_a_decorated_function_acquires(options: dict[str, Any], client: Client) -> None:
    limit(client, "rpm:1/day")
    weir = AsyncClient(**options)

    @weir.limited(lambda user: user, "gpt-4o", {"rpm": 1})
    async def chat(user: str) -> str:
        return user.upper()

    async def main() -> None:
        async with weir:
            assert await chat("alice") == "ALICE"
            with pytest.raises(RateLimitExceeded):
                await chat("alice")

    asyncio.run(main())

    def function() -> Awaitable[None]:
        raise AssertionError("called")

    with pytest.raises(TypeError, match="use Client"):
        weir.limited("carol", "gpt-4o")(function)


def test_who_waits_gets_the_slot_that_is_given_back(options: dict[str, Any], client: Client) -> None:
    # More than the connections of a pool that httpx bounds by default: who has the slot must be able to give it back.
    limit(client, "parallel:1slots")
    holders = 0

    async def work(weir: AsyncClient) -> None:
        nonlocal holders
        async with weir.acquire("alice", "gpt-4o", wait=300):
            holders += 1
            assert holders == 1
            await asyncio.sleep(0)
            holders -= 1

    async def main() -> None:
        async with AsyncClient(**options) as weir:
            async with weir.acquire("alice", "gpt-4o"):
                waiting = [asyncio.create_task(work(weir)) for _ in range(129)]
                await asyncio.sleep(0)
            await asyncio.gather(*waiting)

    asyncio.run(main())


class Renewals(httpx.AsyncHTTPTransport):
    """Counts renewals, and answers them if told to as if the slot were lost."""

    def __init__(self, *, lose: bool = False) -> None:
        super().__init__()
        self.lose, self.seen = lose, asyncio.Semaphore(0)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/renew"):
            return await super().handle_async_request(request)
        if self.lose:
            return httpx.Response(410, json={"type": "https://x#expired", "detail": "a slot is lost"})
        response = await super().handle_async_request(request)
        self.seen.release()
        return response


def test_slots_are_renewed_until_the_block_ends(
    options: dict[str, Any], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(client, "parallel:2slots", "tpm:1000/day")
    eager(monkeypatch)

    async def main() -> None:
        renewals = Renewals()
        async with httpx.AsyncClient(transport=renewals) as http:
            weir = AsyncClient(**options, http=http)
            async with weir.acquire("alice", "gpt-4o", {"tpm": 100}) as lease:
                for _ in range(3):
                    await renewals.seen.acquire()
                await lease.adjust(tpm=50)
                for _ in range(3):
                    await renewals.seen.acquire()
                assert [s.available for s in await weir.available("alice", "gpt-4o")] == [1, 850]
            assert len(asyncio.all_tasks()) == 1, "nothing renews any more"
            await weir.aclose()
            assert not http.is_closed

    asyncio.run(main())
    assert left(client) == {"parallel": 2, "tpm": 850}


Losing = Callable[[AsyncClient], Awaitable[None]]


async def _waits(weir: AsyncClient) -> None:
    with pytest.raises(SlotLostError):
        async with weir.acquire("alice", "gpt-4o"):
            await asyncio.Event().wait()
    await asyncio.sleep(0)  # the task itself was not cancelled


async def _two_at_once(weir: AsyncClient) -> None:
    with pytest.raises(SlotLostError):
        async with weir.acquire_all([Request("alice", "gpt-4o"), Request("bob", "gpt-4o")]):
            await asyncio.Event().wait()


async def _raises_something_else(weir: AsyncClient) -> None:
    with pytest.raises(WorkFailed):
        async with weir.acquire("alice", "gpt-4o"):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise WorkFailed from None


async def _goes_on(weir: AsyncClient) -> None:
    async with weir.acquire("alice", "gpt-4o") as lease:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.Event().wait()
        assert lease.lost


async def _is_cancelled_too(weir: AsyncClient) -> None:
    task = asyncio.current_task()
    assert task is not None
    with pytest.raises(asyncio.CancelledError):
        async with weir.acquire("alice", "gpt-4o"):
            try:
                await asyncio.Event().wait()
            finally:
                task.cancel()
    if sys.version_info >= (3, 11):
        task.uncancel()


LOSING: list[Losing] = [_waits, _two_at_once, _raises_something_else, _goes_on]
if sys.version_info >= (3, 11):  # before, who has cancelled a task cannot be found out
    LOSING.append(_is_cancelled_too)


@pytest.mark.parametrize("losing", LOSING)
def test_a_lost_slot_cancels_the_block(
    options: dict[str, Any], client: Client, monkeypatch: pytest.MonkeyPatch, losing: Losing
) -> None:
    limit(client, "parallel:1slots")
    eager(monkeypatch)

    async def main() -> None:
        async with httpx.AsyncClient(transport=Renewals(lose=True)) as http:
            await losing(AsyncClient(**options, http=http))
            task = asyncio.current_task()
            assert task is not None
            assert sys.version_info < (3, 11) or task.cancelling() == 0
            assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_without_a_server(options: dict[str, Any]) -> None:
    async def main() -> None:
        async with AsyncClient("http://127.0.0.1:1") as weir:
            with pytest.raises(RateLimiterUnavailable):
                async with weir.acquire("alice", "gpt-4o"):
                    raise AssertionError("admitted")
        async with AsyncClient("http://127.0.0.1:1", fail_open=True) as weir:
            async with weir.acquire("alice", "gpt-4o", {"rpm": 1}) as lease:
                assert lease.degraded

    asyncio.run(main())
