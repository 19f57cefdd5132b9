"""A real weir server with its store in memory, and clients of it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from weir import Client

ROOT = Path(__file__).parents[3]
WEIR = os.environ.get("WEIR", str(ROOT / ".bin" / "weir"))

for variable in [v for v in os.environ if v.startswith("WEIR_")]:
    del os.environ[variable]


@contextmanager
def serve(*args: str, store: str = "memory:") -> Iterator[str]:
    """Serve on a free port until the block ends."""
    command = [WEIR, "serve", "--store", store, "--http", "127.0.0.1:0", "--grpc", "off", "--log-level", "error", *args]
    command += ["--decide-within", "1s"]  # a busy machine must not lead to degraded decisions
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            printed = ""
            for line in process.stdout:
                printed += line
                if found := re.search(r"serving (https?://127\.0\.0\.1:\d+)", line):
                    yield found[1]
                    return
            raise AssertionError(f"{command} ended: {printed}")
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with serve() as url:
        yield url


@pytest.fixture
def options(server: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the options of a client in the test's own namespace; a busy machine is given time."""
    namespace = re.sub(r"\W+", "-", request.node.nodeid)
    with Client(server) as admin:
        admin.call("POST", "/v1/namespaces", body={"name": namespace})
    return {"url": server, "namespace": namespace, "timeout": 60.0}


@pytest.fixture
def client(options: dict[str, Any]) -> Iterator[Client]:
    with Client(**options) as client:
        yield client


def limit(client: Client, *limits: str, resource: str = "gpt-4o") -> None:
    """Set the limits of a resource."""
    client.call("PUT", "/v1/limits", query={"resource": resource}, body={"limits": list(limits)})


def left(client: Client, entity: str = "alice", resource: str = "gpt-4o") -> dict[str, int]:
    """Return what is available, by limit."""
    return {s.limit: s.available for s in client.available(entity, resource)}
