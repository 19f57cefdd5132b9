from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit, setrlimit

import gevent
import pytest
from conftest import Connect, free_port, serve
from gevent.event import Event
from gevent.server import StreamServer

from weir_locust import WeirError
from weir_locust.transport import Transport, pool_size


class Waiting:
    """A server that answers nothing until enough requests are in flight."""

    def __init__(self, enough: int) -> None:
        self.now, self.most, self.enough, self.open = 0, 0, enough, Event()
        self.server = StreamServer(("127.0.0.1", 0), self.answer, backlog=2048)

    def answer(self, connection: gevent.socket.socket, _: object) -> None:
        while connection.recv(4096):
            self.now += 1
            self.most = max(self.most, self.now)
            if self.now >= self.enough:
                self.open.set()
            self.open.wait(10)
            self.now -= 1
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    def ask(self, connect: Connect, users: int, **options: object) -> int:
        """Send requests from all users at once, and return the most in flight."""
        self.server.start()
        try:
            sessions = [connect(f"http://127.0.0.1:{self.server.server_port}", **options)[0] for _ in range(users)]
            gevent.joinall([gevent.spawn(s.call, "ASK", "", "GET", "/") for s in sessions], raise_error=True)
        finally:
            self.server.stop()
        return self.most


def test_a_thousand_at_once_by_default(connect: Connect) -> None:
    soft, hard = getrlimit(RLIMIT_NOFILE)
    setrlimit(RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))  # as locust does
    assert Waiting(1000).ask(connect, 1000) == 1000


def test_the_pool_is_shared_and_can_be_set(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Waiting(2).ask(connect, 6, pool_size=2) == 2
    monkeypatch.setenv("WEIR_LOCUST_POOL", "3")
    assert Waiting(3).ask(connect, 6) == 3
    assert pool_size(7) == 7, "what the class says goes first"


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_bad_pools(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_LOCUST_POOL", text)
    with pytest.raises(ValueError, match=f"WEIR_LOCUST_POOL={text}: must be"):
        pool_size(None)


def test_nobody_answers(connect: Connect) -> None:
    session, seen = connect(f"http://127.0.0.1:{free_port()}")
    with pytest.raises(WeirError, match="acquire: ConnectionRefusedError") as failed:
        session.acquire("a", "r", {"rpm": 1})
    assert (failed.value.kind, failed.value.status) == ("connection", 0)
    assert seen.told() == [("ACQUIRE", "r", True)]
    assert seen[0]["response"].status == 0


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", "connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<html>", "connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "malformed"),
        (b"HTTP/1.1 429 Slow\r\nRetry-After: 3\r\nContent-Length: 2\r\n\r\n{}", "malformed"),
        (
            b"HTTP/1.1 503 Busy\r\nRetry-After: 3\r\nContent-Length: 20\r\n\r\n" + b'{"type":"x#overload"}'[:20],
            "malformed",
        ),
    ],
    ids=["closed", "cut", "not weir", "another's 429", "cut JSON"],
)
def test_what_is_no_answer_is_a_failure(answer: bytes, kind: str, connect: Connect) -> None:
    def say(connection: gevent.socket.socket, _: object) -> None:
        connection.recv(4096)
        connection.sendall(answer)

    server = StreamServer(("127.0.0.1", 0), say)
    server.start()
    try:
        session, seen = connect(f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(WeirError) as failed:
            session.acquire("a", "r", {"rpm": 1})
    finally:
        server.stop()
    assert failed.value.kind == kind
    assert failed.value.retry_after == (3 if b"Retry-After" in answer else None), "of the header, without a body"
    assert seen.told() == [("ACQUIRE", "r", True)]


def test_a_server_under_a_path() -> None:
    transport = Transport("http://127.0.0.1:1/limits/", 1, 1, False)
    assert transport.send("GET", "/v1/x", None, {}).url == "http://127.0.0.1:1/limits/v1/x"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls(connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    make = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    make += ["-subj", "/CN=weir", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert]
    subprocess.run(make, check=True, capture_output=True)
    with serve("--tls-cert", cert, "--tls-key", key) as url:
        with pytest.raises(WeirError, match="CERTIFICATE_VERIFY_FAILED"):
            connect(url, namespace=None)[0].list_resources_with_defaults()
        assert connect(url, namespace=None, insecure=True)[0].list_resources_with_defaults() == []
        monkeypatch.setenv("SSL_CERT_FILE", cert)
        assert connect(url, namespace=None, timeout=9.0)[0].list_resources_with_defaults() == []
