"""Client against a real server."""

from __future__ import annotations

import gc
import pickle
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import WEIR, left, limit, serve

from weir import (
    Client,
    LeaseExpiredError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    Request,
    RequestError,
)
from weir._protocol import LeaseState


class WorkFailed(Exception):
    pass


def test_a_block_spends_what_it_acquired(client: Client) -> None:
    limit(client, "rpm:10/day", "tpm:1000/day")
    with client.acquire("alice", "gpt-4o", tokens={"rpm": 1, "tpm": 500}) as lease:
        assert left(client) == {"rpm": 9, "tpm": 500}
        (balance,) = lease.adjust(tpm=740)
        assert (balance.limit, balance.available) == ("tpm", -240)
        assert lease.adjust(tpm=-1000)[0].available == 760
        lease.release(rpm=1)
        assert lease.consumed == {"rpm": 0, "tpm": 240}
        assert not lease.degraded
    assert left(client) == {"rpm": 10, "tpm": 760}
    with pytest.raises(LeaseExpiredError):
        lease.adjust(tpm=1)


@pytest.mark.parametrize("error", [WorkFailed, KeyboardInterrupt])
def test_a_block_that_raises_gives_everything_back(client: Client, error: type[BaseException]) -> None:
    limit(client, "rpm:10/day", "tpm:1000/day")
    with pytest.raises(error), client.acquire("alice", "gpt-4o", {"rpm": 1, "tpm": 500}) as lease:
        lease.adjust(tpm=300)
        raise error
    assert left(client) == {"rpm": 10, "tpm": 1000}


@pytest.mark.parametrize("method", ["acquire", "acquire_all"])
def test_without_a_block_there_is_a_warning(client: Client, method: str) -> None:
    limit(client, "rpm:10/day")
    with pytest.warns(RuntimeWarning, match=rf"^Client\.{method}\(\) was never entered, and has spent nothing") as found:
        if method == "acquire":
            client.acquire("alice", "gpt-4o", {"rpm": 1})
        else:
            client.acquire_all([Request("alice", "gpt-4o", {"rpm": 1})])
        gc.collect()
    assert found[0].filename == __file__
    assert left(client) == {"rpm": 10}


def test_more_than_is_held_cannot_be_given_back(client: Client) -> None:
    limit(client, "tpm:1000/day")
    with client.acquire("alice", "gpt-4o", {"tpm": 500}) as lease, pytest.raises(RequestError) as refused:
        lease.release(tpm=501)
    assert refused.value.kind == "invalid"
    assert left(client) == {"tpm": 500}


def test_a_refusal(client: Client) -> None:
    limit(client, "rpm:2/day", "tpm:1000/day")
    with client.acquire("alice", "gpt-4o", {"rpm": 2}):
        pass
    with pytest.raises(RateLimitExceeded) as caught, client.acquire("alice", "gpt-4o", {"rpm": 1, "tpm": 10}):
        raise AssertionError("admitted")
    for refused in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert [s.limit for s in refused.statuses] == ["rpm", "tpm"]
        assert [s.limit for s in refused.violations] == ["rpm"]
        assert [s.limit for s in refused.passed] == ["tpm"]
        assert refused.primary_violation == refused.violations[0]
        exact = refused.violations[0].retry_after
        assert refused.retry_after is not None
        assert exact is not None
        assert 43000 < exact <= 43200
        assert exact <= refused.retry_after <= exact + 30, "the random share is at most 30 s"
        assert refused.retry_after <= int(refused.retry_after_header) < refused.retry_after + 1
        assert "rpm" in str(refused)
        assert refused.problem["status"] == 429
        assert not refused.degraded
    assert left(client) == {"rpm": 0, "tpm": 1000}


def test_a_balance_has_no_retry_after(client: Client) -> None:
    limit(client, "credits:balance")
    with pytest.raises(RateLimitExceeded) as refused, client.acquire("alice", "gpt-4o", {"credits": 1}, wait=60):
        raise AssertionError("admitted")
    assert refused.value.retry_after is None
    assert refused.value.retry_after_header == ""


def test_mistakes_are_request_errors(client: Client) -> None:
    with pytest.raises(RequestError) as refused, client.acquire("alice", "gpt-4o", {"rpm": 1}):
        raise AssertionError("admitted")
    assert (refused.value.status, refused.value.kind) == (422, "no-limits")
    limit(client, "rpm:2/day")
    with pytest.raises(RequestError, match="exceeds-burst"), client.acquire("alice", "gpt-4o", {"rpm": 3}, wait=9):
        raise AssertionError("admitted")
    with pytest.raises(RequestError) as refused, client.acquire("alice", "gpt-4o", {"tpm": 1}):
        raise AssertionError("admitted")
    assert (refused.value.kind, refused.value.field) == ("invalid", "tokens.tpm")
    with pytest.raises(RequestError) as refused, client.acquire("", "gpt-4o"):
        raise AssertionError("admitted")
    assert refused.value.field == "entity"
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), again.field) == (str(refused.value), "entity")


def test_parents_are_charged(client: Client) -> None:
    limit(client, "rpm:10/day")
    client.call("POST", "/v1/entities", body={"id": "team/a"})
    client.call("POST", "/v1/entities", body={"id": "alice", "parent": "team/a", "cascade": True})
    with client.acquire("alice", "gpt-4o", {"rpm": 4}) as lease:
        assert [(s.entity, s.available) for s in lease.statuses] == [("alice", 6), ("team/a", 6)]
    assert left(client, "team/a") == {"rpm": 6}


def test_a_request_may_bring_its_limits(client: Client) -> None:
    with client.acquire(
        "alice", "gpt-4o", {"rpm": 1}, limits=["rpm:5/min", {"name": "tpm", "amount": 9, "period": "s"}]
    ):
        pass
    with pytest.raises(RequestError), client.acquire("alice", "gpt-4o", {"rpm": 1}):
        raise AssertionError("admitted")


def test_all_or_none(client: Client) -> None:
    limit(client, "rpm:10/day")
    limit(client, "calls:1/day", resource="search")
    requests = [Request("alice", "gpt-4o", {"rpm": 3}), Request("alice", "search", {"calls": 1})]
    with client.acquire_all(requests) as (chat, search):
        assert (chat.resource, search.resource) == ("gpt-4o", "search")
        chat.adjust(rpm=1)
    assert left(client) == {"rpm": 6}
    with pytest.raises(RateLimitExceeded) as refused, client.acquire_all(requests):
        raise AssertionError("admitted")
    assert [s.resource for s in refused.value.violations] == ["search"]
    assert left(client) == {"rpm": 6}
    with pytest.raises(WorkFailed), client.acquire_all([requests[0], Request("bob", "search", {"calls": 1})]):
        raise WorkFailed
    assert left(client) == {"rpm": 6}
    assert left(client, "bob", "search") == {"calls": 1}


def test_a_decorated_function_acquires(client: Client) -> None:
    limit(client, "rpm:2/day")

    @client.limited(lambda user, text="": user, "gpt-4o", {"rpm": 1})
    def chat(user: str, text: str = "") -> str:
        """Chat."""
        if not text:
            raise WorkFailed
        return text.upper()

    assert chat.__doc__ == "Chat."
    assert chat("alice", text="hi") == "HI"
    assert left(client) == {"rpm": 1}
    with pytest.raises(WorkFailed):
        chat("alice")
    assert chat("alice", "hi") == "HI"
    with pytest.raises(RateLimitExceeded):
        chat("alice", "hi")
    assert chat("bob", "hi") == "HI"

    @client.limited("carol", "gpt-4o", {"rpm": 2})
    def report() -> int:
        return 1

    assert report() == 1
    assert left(client, "carol") == {"rpm": 0}

    async def coroutine() -> None: ...

    with pytest.raises(TypeError, match="AsyncClient"):
        client.limited("carol", "gpt-4o")(coroutine)


def test_explain(client: Client) -> None:
    limit(client, "rpm:2/day")
    allowed = client.explain("alice", "gpt-4o", {"rpm": 2})
    assert (allowed.outcome, allowed.retry_after, allowed.detail) == ("allowed", 0, "")
    assert allowed.raw["chain"][0]["entity"] == "alice"
    assert client.explain("alice", "gpt-4o", {"rpm": 1, "a": 1}, limits=["rpm:1/min", "a:1/min"]).outcome == "allowed"
    with client.acquire("alice", "gpt-4o", {"rpm": 2}):
        pass
    refused = client.explain("alice", "gpt-4o", {"rpm": 1})
    assert refused.outcome == "refused"
    assert refused.retry_after is not None
    assert 43000 < refused.retry_after <= 43200
    assert refused.detail


def test_who_waits_gets_the_slot_that_is_given_back(client: Client) -> None:
    # More than the connections of a pool that httpx bounds by default: who has the slot must be able to give it back.
    limit(client, "parallel:1slots")
    held: list[int] = []

    def work(n: int) -> None:
        with client.acquire("alice", "gpt-4o", wait=300):
            held.append(n)
            assert held == [n], "another holds the slot, too"
            held.clear()

    with ThreadPoolExecutor(130) as pool, client.acquire("alice", "gpt-4o"):
        waiting = [pool.submit(work, n) for n in range(129)]
        with pytest.raises(RateLimitExceeded), client.acquire("alice", "gpt-4o"):
            raise AssertionError("admitted")
    for done in waiting:
        done.result()


class Seen:
    """Counts the answers to requests whose paths end in a word."""

    def __init__(self, word: str) -> None:
        self.word, self.answers = word, threading.Semaphore(0)

    def __call__(self, response: httpx.Response) -> None:
        if response.request.url.path.endswith(self.word) and response.status_code < 300:
            self.answers.release()

    def wait(self, n: int) -> None:
        for _ in range(n):
            assert self.answers.acquire(timeout=120), f"no {self.word}"


def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let slots be due for renewal at once."""
    hold = LeaseState._hold

    def held(self: LeaseState, held_for: float | None, sent: float) -> None:
        hold(self, held_for, sent)
        self.due = sent

    monkeypatch.setattr(LeaseState, "_hold", held)


def test_slots_are_renewed_until_the_block_ends(
    options: dict[str, Any], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(client, "parallel:2slots", "tpm:1000/day")
    renewed = Seen("/renew")
    eager(monkeypatch)
    with httpx.Client(event_hooks={"response": [renewed]}) as http:
        holder = Client(**options, http=http)
        with holder.acquire("alice", "gpt-4o", {"tpm": 100}) as lease:
            renewed.wait(3)
            assert lease.adjust(tpm=50)[0].available == 850
            renewed.wait(3)
            assert left(client) == {"parallel": 1, "tpm": 850}
            renewer = next(t for t in threading.enumerate() if t.name == "weir-renew")
        renewer.join(timeout=120)
        assert not renewer.is_alive()
        assert not lease.lost
        assert left(client) == {"parallel": 2, "tpm": 850}
        with pytest.raises(WorkFailed), holder.acquire("alice", "gpt-4o", {"tpm": 100}):
            raise WorkFailed
        assert left(client) == {"parallel": 2, "tpm": 850}
        holder.close()
        assert not http.is_closed


class Faults(httpx.HTTPTransport):
    """Answers renewals as if the slot were lost."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/renew"):
            return httpx.Response(410, json={"type": "https://x#expired", "detail": "a slot is lost"})
        return super().handle_request(request)


def test_a_lost_slot_is_shown(
    options: dict[str, Any], client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limit(client, "parallel:1slots")
    eager(monkeypatch)
    with httpx.Client(transport=Faults()) as http, Client(**options, http=http).acquire("alice", "gpt-4o") as lease:
        for thread in threading.enumerate():
            if thread.name == "weir-renew":
                thread.join(timeout=120)
        assert lease.lost
    assert "has lost a slot" in caplog.text


def test_a_failed_rollback_hides_no_error(
    options: dict[str, Any], client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    limit(client, "rpm:10/day")
    with pytest.raises(WorkFailed), client.acquire("alice", "gpt-4o", {"rpm": 1}) as lease:
        httpx.post(f"{options['url']}/v1/leases/{lease._state.id}/rollback").raise_for_status()
        raise WorkFailed
    assert "rollback: it was adjusted or rolled back" in caplog.text


def test_without_a_server() -> None:
    with serve() as url:
        pass
    with Client(url) as client, pytest.raises(RateLimiterUnavailable, match="no answer from"):
        with client.acquire("alice", "gpt-4o"):
            raise AssertionError("admitted")
    with Client(url, fail_open=True) as client:
        with client.acquire("alice", "gpt-4o", {"rpm": 1}) as lease:
            assert lease.degraded
            assert lease.over == -1
            assert lease.adjust(rpm=1) == []
        with client.acquire_all([Request("alice", "gpt-4o")] * 2) as leases:
            assert [lease.degraded for lease in leases] == [True, True]
        with pytest.raises(RateLimiterUnavailable):
            client.available("alice", "gpt-4o")


def test_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = tmp_path / "tokens.yaml"
    command = [WEIR, "token", "create", "--name", "app", "--role", "admin", "--no-expiry", "--file", str(tokens)]
    token = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    with serve("--auth", str(tokens)) as url:
        with Client(url, token=token) as client:
            limit(client, "rpm:10/day")
            assert left(client) == {"rpm": 10}
            assert token not in repr(client)
        with Client(url) as client, pytest.raises(RequestError) as refused:
            client.available("alice", "gpt-4o")
        assert (refused.value.status, refused.value.kind) == (401, "unauthenticated")
        monkeypatch.setenv("WEIR_SERVER", url)
        monkeypatch.setenv("WEIR_TOKEN", token)
        monkeypatch.setenv("WEIR_NAMESPACE", "default")
        with Client.from_env(timeout=60) as client:
            assert left(client) == {"rpm": 10}
            assert repr(client) == f"Client({url!r}, namespace='default')"


def test_the_environment_must_name_a_server() -> None:
    with pytest.raises(ValueError, match="WEIR_SERVER is not set"):
        Client.from_env()


def test_errors_in_the_format_of_openai_are_not_for_this_client() -> None:
    with serve("--errors", "openai") as url, Client(url) as client:
        limit(client, "rpm:1/day")
        with client.acquire("alice", "gpt-4o", {"rpm": 1}):
            pass
        with pytest.raises(RateLimitExceeded), client.acquire("alice", "gpt-4o", {"rpm": 1}):
            raise AssertionError("admitted")
