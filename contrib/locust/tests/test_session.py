from __future__ import annotations

import math
import shutil
import subprocess
import time
from pathlib import Path

import gevent
import pytest
from conftest import WEIR, Connect, free_port, serve

from weir_locust import Lease, Refusal, WeirError
from weir_locust.scenario import _ensure


def test_acquire_is_an_event(connect: Connect) -> None:
    session, seen = connect()
    session.set_resource_defaults("gpt-4", ["rpm:10/min"])
    seen.clear()
    before = time.time()
    lease = session.acquire("alice", "gpt-4", {"rpm": 3})
    assert isinstance(lease, Lease)
    assert lease
    assert not lease.degraded
    assert lease.limits[0]["available"] == 7
    assert seen.told() == [("ACQUIRE", "gpt-4", False)]
    event = seen[0]
    assert event["context"] == {"entity": "alice", "resource": "gpt-4", "degraded": False}
    assert event["response"].status == 200
    assert event["response_length"] == len(event["response"].body) > 100
    assert event["url"].endswith("/v1/acquire")
    assert before <= event["start_time"] <= time.time()
    assert 0 < event["response_time"] < (time.time() - before) * 1000 + 1


def test_a_refusal_is_no_failure(connect: Connect) -> None:
    session, seen = connect()
    session.set_resource_defaults("gpt-4", ["rpm:60/min:2"])
    seen.clear()
    assert session.acquire("alice", "gpt-4", {"rpm": 2})
    refusal = session.acquire("alice", "gpt-4", {"rpm": 1})
    assert isinstance(refusal, Refusal)
    assert not refusal
    assert 0.5 < refusal.retry_after <= 1.3, "a token a second, and up to three tenths on top"
    assert refusal.retry_after % 1, "not rounded up"
    assert refusal.violated == ["rpm"]
    assert seen.told() == [("ACQUIRE", "gpt-4", False), ("RATE_LIMITED", "gpt-4", False)]
    assert seen[1]["context"]["refusal"] is refusal
    refusal.wait()
    assert session.acquire("alice", "gpt-4", {"rpm": 1}), "Retry-After is never too early"


def test_settle(connect: Connect) -> None:
    session, seen = connect()
    session.set_resource_defaults("gpt-4", ["tpm:1000/day"])
    seen.clear()
    lease = session.acquire("alice", "gpt-4", {"tpm": 100})
    assert isinstance(lease, Lease)
    lease.adjust({"tpm": 50})
    assert [limit["available"] for limit in lease.adjust({"tpm": -20})] == [870]
    assert session.available("alice", "gpt-4")[0]["available"] == 870
    with pytest.raises(WeirError, match="at most 10000 in debt"):
        lease.adjust({"tpm": 20_000})
    assert session.available("alice", "gpt-4")[0]["available"] == -10_000
    lease.rollback()
    assert session.available("alice", "gpt-4")[0]["available"] == 1000
    with pytest.raises(ValueError, match="rolled back already"):
        lease.commit()
    again = session.acquire("alice", "gpt-4", {"tpm": 1}, name="mine")
    assert isinstance(again, Lease)
    again.commit()
    told = ["ACQUIRE", "ADJUST", "ADJUST", "AVAILABLE", "ADJUST", "AVAILABLE", "ROLLBACK", "AVAILABLE", "ACQUIRE", "COMMIT"]
    assert seen.told() == [(t, "mine" if i > 7 else "gpt-4", i == 4) for i, t in enumerate(told)]


def test_with_settles(connect: Connect) -> None:
    session, seen = connect()
    session.set_resource_defaults("gpt-4", ["tpm:10/day"])
    seen.clear()
    with session.acquire("alice", "gpt-4", {"tpm": 1}) as lease:
        assert lease
    with session.acquire("alice", "gpt-4", {"tpm": 1}) as lease:
        assert lease
        lease.adjust({"tpm": 1})
    with pytest.raises(KeyError), session.acquire("alice", "gpt-4", {"tpm": 7}):
        raise KeyError("the work failed")
    with session.acquire("alice", "gpt-4", {"tpm": 8}) as refusal:
        assert not refusal
    with session.acquire("alice", "gpt-4", {"tpm": 1}) as lease:
        assert lease
        lease.rollback()
    types = [t for t, _, _ in seen.told()]
    assert types == [
        "ACQUIRE", "ACQUIRE", "ADJUST", "COMMIT", "ACQUIRE", "ROLLBACK", "RATE_LIMITED", "ACQUIRE", "ROLLBACK",
    ]  # fmt: skip
    assert session.available("alice", "gpt-4")[0]["available"] == 7


def test_with_does_not_settle_for_whom_locust_ends(connect: Connect) -> None:
    session, seen = connect()
    session.set_resource_defaults("gpt-4", ["tpm:10/day"])
    seen.clear()

    def user() -> None:
        with session.acquire("alice", "gpt-4", {"tpm": 1}):
            gevent.sleep(60)

    greenlet = gevent.spawn(user)
    while not seen:
        gevent.sleep(0.001)
    greenlet.kill()
    assert [t for t, _, _ in seen.told()] == ["ACQUIRE"]


def test_availability(connect: Connect) -> None:
    session, seen = connect()
    session.set_resource_defaults("gpt-4", ["rpm:60/min:2", "tpm:10/min"])
    session.acquire("alice", "gpt-4", {"rpm": 2})
    seen.clear()
    assert session.is_available("alice", "gpt-4", {"tpm": 10})
    assert not session.is_available("alice", "gpt-4", {"rpm": 2})
    assert 1 < session.time_until_available("alice", "gpt-4", {"rpm": 2}) <= 2
    assert session.time_until_available("alice", "gpt-4", {"tpm": 10}) == 0
    assert session.time_until_available("alice", "gpt-4", {"rpm": 3}) == math.inf
    assert [s["limit"] for s in session.available("alice", "gpt-4")] == ["rpm", "tpm"]
    types = ["IS_AVAILABLE"] * 2 + ["TIME_UNTIL_AVAILABLE"] * 3 + ["AVAILABLE"]
    assert seen.told() == [(t, "gpt-4", False) for t in types]


def test_options_of_acquire(connect: Connect) -> None:
    session, _ = connect()
    assert session.acquire("a", "r", {"rps": 2}, limits=["rps:20/s:2"]), "no level has limits"
    start = time.perf_counter()
    assert session.acquire("a", "r", {"rps": 2}, limits=["rps:20/s:2"], wait="5s", on_unavailable="deny")
    assert time.perf_counter() - start > 0.05, "it waited for tokens"


def test_errors_are_failures(connect: Connect) -> None:
    session, seen = connect()
    session.set_resource_defaults("gpt-4", ["rpm:10/min"])
    seen.clear()
    with pytest.raises(WeirError, match="acquire: 422 exceeds-burst: ") as failed:
        session.acquire("alice", "gpt-4", {"rpm": 11})
    assert (failed.value.kind, failed.value.status, failed.value.retry_after) == ("exceeds-burst", 422, None)
    with pytest.raises(WeirError, match="no-limits"):
        session.acquire("alice", "nothing", {"rpm": 1})
    with pytest.raises(WeirError, match="not-found"):
        session.get_entity("nobody")
    lease = session.acquire("alice", "gpt-4", {"rpm": 1})
    assert isinstance(lease, Lease)
    used = lease._id
    lease.adjust({"rpm": 1})
    lease._id = used
    with pytest.raises(WeirError, match="settled"):
        lease.rollback()
    assert seen.told() == [
        ("ACQUIRE", "gpt-4", True),
        ("ACQUIRE", "nothing", True),
        ("GET_ENTITY", "nobody", True),
        ("ACQUIRE", "gpt-4", False),
        ("ADJUST", "gpt-4", False),
        ("ROLLBACK", "gpt-4", True),
    ]
    assert seen[0]["exception"] is failed.value


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="a store that can be taken away")
def test_degraded_is_marked(connect: Connect, tmp_path: Path) -> None:
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path), "--save", ""]
    redis = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert redis.stdout is not None
        assert any("Ready to accept connections" in line for line in redis.stdout)
        with serve("--on-unavailable", "allow", store=f"redis://127.0.0.1:{port}?volatile=true") as url:
            session, seen = connect(url, namespace="default")
            session.set_resource_defaults("gpt-4", ["rpm:10/min"])
            assert not session.acquire("alice", "gpt-4", {"rpm": 1}).degraded
            redis.terminate()
            redis.wait()
            seen.clear()
            lease = session.acquire("alice", "gpt-4", {"rpm": 1})
            assert lease.degraded
            assert lease.over == -1, "allow has no bound"
            assert seen.told() == [("ACQUIRE", "gpt-4 (degraded)", False)]
            assert seen[0]["context"]["degraded"] is True
            with pytest.raises(WeirError, match="503 temporary-reduced-capacity") as failed:
                session.acquire("alice", "gpt-4", {"rpm": 1}, on_unavailable="deny")
            assert failed.value.retry_after is not None
            refusals = [session.acquire("alice", "gpt-4", {"rpm": 10}, on_unavailable="local") for _ in range(2)]
            assert not refusals[1]
            assert seen.told()[-1] == ("RATE_LIMITED", "gpt-4 (degraded)", False)
    finally:
        redis.kill()
        redis.wait()


def test_tokens(connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = tmp_path / "tokens.yaml"
    create = [WEIR, "token", "create", "--file", str(tokens), "--no-expiry", "--namespace", "default", "--name"]
    admin, acquire = (
        subprocess.run([*create, role, "--role", role], check=True, capture_output=True, text=True).stdout.strip()
        for role in ("admin", "acquire")
    )
    with serve("--auth", str(tokens)) as url:
        monkeypatch.setenv("WEIR_TOKEN", admin)
        monkeypatch.setenv("WEIR_NAMESPACE", "default")
        connect(url, namespace=None)[0].set_resource_defaults("gpt-4", ["rpm:10/min"])
        session, seen = connect(url, namespace=None)
        _ensure(session, "elsewhere")  # 403 is no obstacle if the namespace exists
        assert seen.told() == [("CREATE_NAMESPACE", "elsewhere", False)]
        session, _ = connect(url, namespace=None, token=acquire)
        assert session.acquire("alice", "gpt-4", {"rpm": 1})
        with pytest.raises(WeirError, match="forbidden"):
            session.delete_resource_defaults("gpt-4")
        monkeypatch.delenv("WEIR_TOKEN")
        with pytest.raises(WeirError, match="401 unauthenticated"):
            connect(url, namespace=None)[0].acquire("alice", "gpt-4", {"rpm": 1})
