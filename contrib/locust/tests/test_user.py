from __future__ import annotations

import gevent
import pytest
from conftest import Connect
from locust import constant, task
from locust.env import Environment
from locust.exception import StopTest

from weir_locust import WeirSession, WeirUser


def test_a_user_runs(server: str, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    admin, _ = connect()
    admin.set_resource_defaults("gpt-4", ["rpm:3/day"])
    monkeypatch.setenv("WEIR_NAMESPACE", admin.namespace or "")
    raised: list[object] = []

    class Caller(WeirUser):
        host = server
        wait_time = constant(0.01)

        def context(self) -> dict[str, str]:
            return {"user": "mine"}

        @task
        def ask(self) -> None:
            self.client.acquire("alice", "gpt-4", {"rpm": 1})

        @task
        def fail(self) -> None:
            self.client.acquire("alice", "gpt-4", {"rpm": 4})
            raise AssertionError("more than the burst")

    environment = Environment(user_classes=[Caller])
    environment.events.user_error.add_listener(lambda **event: raised.append(event))
    contexts: list[dict[str, object]] = []
    environment.events.request.add_listener(lambda context, **_: contexts.append(context))
    runner = environment.create_local_runner()
    runner.start(1, 1)
    refused = environment.stats.get("gpt-4", "RATE_LIMITED")
    acquire = environment.stats.get("gpt-4", "ACQUIRE")
    with gevent.Timeout(10):
        while not (refused.num_requests and acquire.num_failures > 1):
            gevent.sleep(0.01)
            refused = environment.stats.get("gpt-4", "RATE_LIMITED")
            acquire = environment.stats.get("gpt-4", "ACQUIRE")
    runner.quit()
    assert acquire.num_requests - acquire.num_failures == 3
    assert refused.num_failures == 0
    assert raised == [], "a task that fails ends quietly: its request was counted"
    assert contexts[0]["user"] == "mine"


def test_a_user_has_its_settings(server: str) -> None:
    class Caller(WeirUser):
        host = server
        token = "weir_secret"
        namespace = "mine"
        pool_size = 5

    client = Caller(Environment()).client
    assert isinstance(client, WeirSession)
    assert client.namespace == "mine"
    assert client._plain == {"Authorization": "Bearer weir_secret"}
    assert client._transport is Caller(Environment()).client._transport
    assert client._transport.client._connection_pool.size == 5


def test_a_user_needs_a_host() -> None:
    with pytest.raises(StopTest, match="--host"):
        type("Caller", (WeirUser,), {})(Environment())
    with pytest.raises(ValueError, match="must be the URL"):
        type("Caller", (WeirUser,), {"host": "localhost:8080"})(Environment())
