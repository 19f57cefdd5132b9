"""Set up what a locustfile's users need, once, however many processes there are."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, NoReturn

import gevent
from locust import events
from locust.env import Environment
from locust.exception import StopTest
from locust.runners import WorkerRunner

from .errors import WeirError
from .session import WeirSession

log = logging.getLogger(__name__)

Step = Callable[[WeirSession], object]


def namespace(scenario: str) -> str:
    """Return WEIR_NAMESPACE, or a namespace for this scenario alone, so that nobody else's limits change."""
    return os.environ.get("WEIR_NAMESPACE") or f"locust-{scenario}"


def prepare(namespace: str, set_up: Step, tear_down: Step | None = None) -> None:
    """Arrange for set_up to run before the first user starts, and tear_down after the last has stopped.

    Both run in the only process or in the master, never in workers, which find what was set up by its name. The
    namespace is created if it does not exist. If set_up fails, the test does not run, and locust exits with 1.

    WEIR_LOCUST_SETUP=off skips both, for tokens that may only acquire.
    """

    def on_start(environment: Environment, **_: Any) -> None:
        if not _is_ours(environment):
            return
        try:
            session = _session(environment, namespace)
            _ensure(session, namespace)
            set_up(session)
        except (WeirError, ValueError) as e:
            _end(environment, e)

    def on_stop(environment: Environment, **_: Any) -> None:
        if tear_down is None or not _is_ours(environment):
            return
        try:
            tear_down(_session(environment, namespace))
        except (WeirError, ValueError) as e:
            log.error("tear down: %s", e)
            environment.process_exit_code = 1

    events.init.add_listener(_look_at_the_clock)
    events.test_start.add_listener(on_start)
    events.test_stop.add_listener(on_stop)


def _look_at_the_clock(**_: Any) -> None:
    # --run-time counts from the last update of gevent's loop, before locust's import: seconds ago, on a slow machine.
    gevent.get_hub().loop.update_now()


def _is_ours(environment: Environment) -> bool:
    if os.environ.get("WEIR_LOCUST_SETUP") == "off":
        return False
    return not isinstance(environment.runner, WorkerRunner)


def _ensure(session: WeirSession, namespace: str) -> None:
    # A token that may only administer this namespace gets 403; the following calls show whether the namespace exists.
    if namespace != "default":
        body = {"name": namespace}
        session.call("CREATE_NAMESPACE", namespace, "POST", "/v1/namespaces", body=body, accept=(403, 409))


def _session(environment: Environment, namespace: str) -> WeirSession:
    host = environment.host or next((u.host for u in environment.user_classes if u.host), None)
    return WeirSession(host or "", environment, namespace=namespace)


def _end(environment: Environment, error: Exception) -> NoReturn:
    log.error("set up: %s", error)
    if environment.web_ui is not None or environment.runner is None:
        raise StopTest(f"set up: {error}") from error  # shows the error to whoever started the test
    environment.process_exit_code = 1
    gevent.spawn(environment.runner.quit)
    raise gevent.GreenletExit from error  # ends the greenlet that starts users, without a traceback in the log
