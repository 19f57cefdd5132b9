from __future__ import annotations

import time
from types import SimpleNamespace

import gevent
import pytest
from conftest import Connect, Seen

from weir_locust import Lease, Refusal, WeirError, lease, session
from weir_locust.transport import Answer


class Clock:
    """Time that only sleeping makes pass."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lease, "time", clock)
    monkeypatch.setattr(lease, "gevent", clock)
    monkeypatch.setattr(session, "time", clock)
    return clock


def types(seen: Seen) -> list[str]:
    return [t for t, _, _ in seen.told()]


def test_a_slot_is_held_until_the_end_of_the_block(connect: Connect) -> None:
    weir, seen = connect()
    weir.set_resource_defaults("gpt-4", ["parallel:1slots"])
    seen.clear()
    with weir.acquire("alice", "gpt-4") as held:
        assert held
        assert 26 <= (held.held_for or 0) <= 60, "the heal time of 30 s less 4 s, to twice that"
        held.hold(0.01)
        refusal = weir.acquire("alice", "gpt-4")
        assert isinstance(refusal, Refusal)
        assert refusal.violated == ["parallel"]
    with pytest.raises(KeyError), weir.acquire("alice", "gpt-4"):
        raise KeyError("the work failed")
    assert weir.acquire("alice", "gpt-4")
    assert types(seen) == ["ACQUIRE", "RATE_LIMITED", "COMMIT", "ACQUIRE", "ROLLBACK", "ACQUIRE"]


def test_who_waits_gets_the_slot_that_is_given_back(connect: Connect) -> None:
    weir, seen = connect()
    weir.set_resource_defaults("gpt-4", ["parallel:1slots"])
    held = weir.acquire("alice", "gpt-4")
    assert isinstance(held, Lease)
    waiting = gevent.spawn(weir.acquire, "alice", "gpt-4", wait="60s")
    gevent.sleep(0.05)
    assert not waiting.ready()
    held.commit()
    assert waiting.get(timeout=30)


def test_slots_are_renewed(connect: Connect, clock: Clock) -> None:
    weir, seen = connect()
    weir.set_resource_defaults("gpt-4", ["parallel:1slots/16s"])
    seen.clear()
    held = weir.acquire("alice", "gpt-4")
    assert isinstance(held, Lease)
    first, began = held._id, clock.now
    assert held.held_for is not None
    held.hold(held.held_for / 2 - 0.001)
    assert types(seen) == ["ACQUIRE"], "too early to renew"
    held.hold(120)
    assert clock.now - began >= 120
    renewals = types(seen)[1:]
    assert set(renewals) == {"RENEW"}
    assert 120 / 14 - 1 <= len(renewals) <= 120 / 6 + 1, "12 to 28 s are held, and half of it passes"
    assert seen.told()[1] == ("RENEW", "gpt-4", False)
    assert held._id != first
    assert not weir.acquire("alice", "gpt-4")
    held.commit()
    assert weir.acquire("alice", "gpt-4")
    with pytest.raises(ValueError, match="committed or rolled back already"):
        held.renew()


def test_a_lease_without_slots_is_not_renewed(connect: Connect, clock: Clock) -> None:
    weir, seen = connect()
    weir.set_resource_defaults("gpt-4", ["rpm:10/min"])
    seen.clear()
    with weir.acquire("alice", "gpt-4", {"rpm": 1}) as held:
        assert held
        assert held.held_for is None
        held.hold(3600)
        with pytest.raises(WeirError, match="holds no slots") as refused:
            held.renew()
    assert refused.value.status == 400
    assert types(seen) == ["ACQUIRE", "RENEW"]


def test_a_renewal_is_repeated_until_the_slot_is_lost(connect: Connect, clock: Clock) -> None:
    weir, seen = connect()
    weir.set_resource_defaults("gpt-4", ["parallel:1slots/16s"])
    held = weir.acquire("alice", "gpt-4")
    assert isinstance(held, Lease)
    assert held.held_for is not None
    seen.clear()
    began = clock.now
    held._session._transport = SimpleNamespace(send=_no_answer)  # type: ignore[assignment]
    with pytest.raises(WeirError, match="renew: ConnectionRefusedError"):
        held.hold(3600)
    assert held.held_for <= clock.now - began < held.held_for + 1
    assert set(seen.told()) == {("RENEW", "gpt-4", True)}
    assert held.held_for / 2 <= len(seen) <= held.held_for / 2 + 2, "once a second in the second half"


def _no_answer(*_: object) -> Answer:
    return Answer(0, b"", None, 0, 0, "", ConnectionRefusedError())
