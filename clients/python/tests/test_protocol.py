"""The protocol without I/O: the steps of each call, driven by hand."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import pytest

from weir import (
    LeaseExpiredError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    Request,
    RequestError,
)
from weir._protocol import Answer, Api, Call, LeaseState, Pause, Steps

T = TypeVar("T")


class Script:
    """Answers calls in order, and turns the clock instead of waiting."""

    def __init__(self, *answers: Answer, fail_open: bool = False) -> None:
        self.now, self.answers = 1000.0, list(answers)
        self.calls: list[Call] = []
        self.pauses: list[float] = []
        self.api = Api("http://h", None, None, 5.0, fail_open, clock=lambda: self.now)

    def run(self, steps: Steps[T]) -> T:
        answer: Answer | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            answer = None
            if isinstance(step, Pause):
                self.pauses.append(step.seconds)
                self.now += step.seconds
            else:
                self.calls.append(step)
                answer = self.answers.pop(0)

    def acquire(self, wait: float = 0.0, *, batch: bool = False) -> list[LeaseState]:
        return self.run(self.api.acquire([Request("e", "r", {"rpm": 1})], wait, batch))

    def body(self, n: int = -1) -> Any:
        return json.loads(self.calls[n].content or b"null")

    def paths(self) -> list[str]:
        return [c.url.removeprefix("http://h") for c in self.calls]


def answer(status: int, /, **data: Any) -> Answer:
    return Answer(status, json.dumps(data).encode())


def admitted(lease: str = "L0", **data: Any) -> Answer:
    return answer(200, allowed=True, lease=lease, expires="2030-01-01T00:00:00Z", degraded=False, limits=[], **data)


def refused(retry_after: float | None, exact: float | None = None) -> Answer:
    status = {
        "entity": "e",
        "resource": "r",
        "limit": "rpm",
        "source": "resource",
        "requested": 1,
        "available": 0,
        "amount": 1,
        "period": "min",
        "burst": 1,
        "full_in": 60.0,
        "refused": True,
        "retry_after": retry_after if exact is None else exact,
    }
    more = {} if retry_after is None else {"retry_after": retry_after}
    return answer(429, type="https://x#quota-exceeded", detail="d", limits=[status], **more)


def problem(status: int, kind: str, **data: Any) -> Answer:
    return answer(status, type=f"https://x#{kind}", title="t", status=status, detail="d", **data)


SILENCE = Answer(0, error="ConnectError: refused")


def test_the_server_waits_a_minute_at_most_and_then_the_client() -> None:
    script = Script(refused(100.0, 90.0), admitted())
    script.acquire(wait=130)
    assert [c.timeout for c in script.calls] == [65.0, 5.0 + 30.0], "the timeout, and as long as the server may wait"
    assert script.body(0)["wait"] == "60.000s"
    assert script.pauses == [100.0]
    assert script.body(1)["wait"] == "30.000s"


def test_a_wait_is_never_longer_than_given() -> None:
    script = Script(refused(2.6, 2.0), answer(200, results=[json.loads(admitted().content)]))
    script.acquire(wait=2.5, batch=True)
    assert script.pauses == [2.5]
    assert "wait" not in json.dumps(script.body(0)), "the requests of a batch may not wait"
    assert script.paths() == ["/v1/acquire/batch"] * 2


@pytest.mark.parametrize(
    ("wait", "answer"),
    [(0.0, refused(0.5)), (1.9, refused(2.6, 2.0)), (3600.0, refused(None))],
    ids=["no wait", "too late", "a balance"],
)
def test_what_waiting_does_not_help_is_refused_at_once(wait: float, answer: Answer) -> None:
    script = Script(answer)
    with pytest.raises(RateLimitExceeded):
        script.acquire(wait=wait, batch=True)
    assert script.pauses == []


def test_no_answer_is_unavailability_and_not_a_refusal() -> None:
    with pytest.raises(RateLimiterUnavailable, match="no answer from h: ConnectError: refused") as silent:
        Script(SILENCE).acquire()
    assert (silent.value.status, silent.value.kind, silent.value.retry_after) == (0, "", None)
    with pytest.raises(RateLimiterUnavailable) as busy:
        Script(problem(503, "overloaded", retry_after=0.2)).acquire()
    assert (busy.value.status, busy.value.kind, busy.value.retry_after) == (503, "overloaded", 0.2)


@pytest.mark.parametrize("answer", [SILENCE, Answer(502, b"<html>", "soon")], ids=["silence", "a proxy"])
def test_fail_open(answer: Answer) -> None:
    script = Script(answer, fail_open=True)
    (lease,) = script.acquire()
    assert lease.degraded
    assert lease.exceeds == -1
    assert script.run(lease.adjust({"rpm": 1})) == []
    script.run(lease.finish(True))
    assert len(script.calls) == 1


def test_fail_open_overrides_no_decision_of_weir() -> None:
    with pytest.raises(RateLimiterUnavailable):
        Script(problem(503, "temporary-reduced-capacity"), fail_open=True).acquire()


@pytest.mark.parametrize(
    "stranger",
    [Answer(200, b"{}"), Answer(200, b"[]"), Answer(200, b"hello"), Answer(429, b"slow down"), Answer(301)],
)
def test_the_answer_of_another_server_admits_nothing(stranger: Answer) -> None:
    with pytest.raises(RequestError, match="not one of weir"):
        Script(stranger, fail_open=True).acquire()


def test_a_batch_that_leaves_out_a_request_admits_nothing() -> None:
    with pytest.raises(RequestError, match="not one of weir"):
        Script(answer(200, results=[])).acquire(batch=True)


def test_a_lease_without_slots_is_not_committed() -> None:
    script = Script(admitted())
    (lease,) = script.acquire()
    script.run(lease.finish(False))
    assert script.paths() == ["/v1/acquire"]


def test_the_id_of_the_last_answer_is_used() -> None:
    script = Script(admitted(), answer(200, lease="L1", limits=[]), Answer(204))
    (lease,) = script.acquire()
    script.run(lease.adjust({"rpm": 2, "tpm": -5}))
    script.run(lease.finish(True))
    assert script.paths() == ["/v1/acquire", "/v1/leases/L0/adjust", "/v1/leases/L1/rollback"]
    assert lease.consumed == {"rpm": 3, "tpm": -5}


def test_what_had_no_answer_is_sent_again_and_409_means_that_it_was_done() -> None:
    script = Script(admitted(), SILENCE, problem(409, "settled"))
    (lease,) = script.acquire()
    script.run(lease.finish(True))
    assert script.paths()[1:] == ["/v1/leases/L0/rollback"] * 2

    script = Script(admitted(), problem(409, "settled"))
    (lease,) = script.acquire()
    with pytest.raises(LeaseExpiredError):
        script.run(lease.finish(True))

    script = Script(admitted(), SILENCE, SILENCE)
    (lease,) = script.acquire()
    with pytest.raises(RateLimiterUnavailable):
        script.run(lease.finish(True))


def test_an_adjustment_whose_answer_is_lost_ends_the_lease() -> None:
    script = Script(admitted(), SILENCE, problem(409, "settled"))
    (lease,) = script.acquire()
    assert script.run(lease.adjust({"rpm": 1})) == []
    assert lease.consumed == {"rpm": 2}, "the adjustment counts"
    with pytest.raises(LeaseExpiredError):
        script.run(lease.adjust({"rpm": 1}))
    script.run(lease.finish(True))
    assert len(script.calls) == 3


def test_a_lease_goes_on_after_an_adjustment_in_part() -> None:
    script = Script(admitted(), problem(422, "max-debt", lease="L1", limits=[]), Answer(204))
    (lease,) = script.acquire()
    with pytest.raises(RequestError) as partial:
        script.run(lease.adjust({"rpm": 1000}))
    assert partial.value.kind == "max-debt"
    script.run(lease.finish(True))
    assert script.paths()[-1] == "/v1/leases/L1/rollback"


def test_a_lease_without_an_id_cannot_be_adjusted() -> None:
    script = Script(answer(200, results=[{"allowed": True, "degraded": False}]))
    (lease,) = script.acquire(batch=True)
    with pytest.raises(LeaseExpiredError):
        script.run(lease.adjust({"rpm": 1}))
    script.run(lease.finish(True))
    assert len(script.calls) == 1


def test_slots_are_renewed_after_half_of_their_time() -> None:
    script = Script(admitted(held_for=40.0), answer(200, lease="L1", held_for=20.0), Answer(204))
    (lease,) = script.acquire()
    assert lease.pause() == 20
    script.now += 20
    script.run(lease.renew())
    assert lease.pause() == 10
    script.run(lease.finish(False))
    assert script.paths()[1:] == ["/v1/leases/L0/renew", "/v1/leases/L1/commit"]


def test_a_renewal_without_an_answer_is_repeated_every_second_until_the_slot_is_lost() -> None:
    script = Script(admitted(held_for=16.0), *[SILENCE, problem(503, "overloaded")] * 5)
    (lease,) = script.acquire()
    while not lease.lost:
        script.now += lease.pause()
        script.run(lease.renew())
    assert script.now == 1016
    assert script.paths()[1:] == ["/v1/leases/L0/renew"] * 8
    assert script.calls[-1].timeout == 1, "not beyond the end of what is held"
    script.run(lease.finish(False))
    assert len(script.calls) == 9, "there is nothing to give back"


def test_a_refused_renewal_means_that_the_slot_is_lost() -> None:
    script = Script(admitted(held_for=16.0), problem(410, "expired"))
    (lease,) = script.acquire()
    script.run(lease.renew())
    assert lease.lost


def test_what_a_newer_server_adds_is_ignored() -> None:
    script = Script(answer(200, at="", limits=[{**json.loads(refused(1.0).content)["limits"][0], "new": 1}]))
    (status,) = script.run(script.api.available("e", "r"))
    assert status.limit == "rpm"


@pytest.mark.parametrize(
    "url", ["", "localhost:8080", "ftp://h", "http://", "http://u:p@h", "http://h?a=b", "http://h#a"]
)
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(ValueError, match="url: must be"):
        Api(url, None, None, 5.0, False)


def test_a_token_that_is_none_is_not_repeated() -> None:
    with pytest.raises(ValueError, match="token: must be") as refused:
        Api("http://h", "secret\n", None, 5.0, False)
    assert "secret" not in str(refused.value)
