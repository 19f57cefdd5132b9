"""A real in-memory weir server, and the means to observe events."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from locust.env import Environment

from weir_locust import WeirSession

ROOT = Path(__file__).parents[3]
WEIR = os.environ.get("WEIR", str(ROOT / ".bin" / "weir"))
FILES = Path(__file__).parents[1] / "locustfiles"

for variable in [v for v in os.environ if v.startswith(("WEIR_", "LOCUST_"))]:
    del os.environ[variable]


@contextmanager
def serve(*args: str, store: str = "memory:") -> Iterator[str]:
    """Serve on a free port until the block ends."""
    command = [WEIR, "serve", "--store", store, "--http", "127.0.0.1:0", "--grpc", "off", "--log-level", "error", *args]
    # A busy machine must not lead to degraded decisions.
    command += [] if "--decide-within" in args else ["--decide-within", "1s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            said = ""
            for line in process.stdout:
                said += line
                if found := re.search(r"serving (https?://127\.0\.0\.1:\d+)", line):
                    yield found[1]
                    return
            raise AssertionError(f"{command} ended: {said}")
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with serve() as url:
        yield url


class Seen(list[dict[str, Any]]):
    """The fired events."""

    def told(self) -> list[tuple[str, str, bool]]:
        """Return the type and name of each event, and whether it is a failure."""
        return [(e["request_type"], e["name"], e["exception"] is not None) for e in self]


Connect = Callable[..., tuple[WeirSession, Seen]]


@pytest.fixture
def connect(server: str, request: pytest.FixtureRequest) -> Connect:
    """Return a session in the test's own namespace, and the events it fires."""

    def connected(host: str = server, **options: Any) -> tuple[WeirSession, Seen]:
        environment, seen = Environment(), Seen()
        environment.events.request.add_listener(lambda **event: seen.append(event))
        options.setdefault("namespace", re.sub(r"\W", "-", request.node.name))
        session = WeirSession(host, environment, **options)
        if host == server:
            body = {"name": options["namespace"]}
            session.call("CREATE_NAMESPACE", "", "POST", "/v1/namespaces", body=body, accept=(409,))
            seen.clear()
        return session, seen

    return connected


def locust(*args: str, **environment: str) -> subprocess.Popen[str]:
    """Start a separate locust process."""
    package = str(Path(__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-m", "locust", *args],
        env={**os.environ, "PYTHONPATH": package, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
