"""HTTP over geventhttpclient, with one pool of connections for all users of a process."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import gevent.ssl
from geventhttpclient import HTTPClient
from geventhttpclient.response import HTTPParseError
from geventhttpclient.url import URL

POOL_SIZE = 1000
"""Connections of a process to one server, unless the user class or WEIR_LOCUST_POOL sets another number."""

TIMEOUT = 65.0
"""Seconds after which a silent server has failed; longer than the longest wait that acquire can request."""


@dataclass(slots=True, frozen=True)
class Answer:
    """The answer to one request, and its timing."""

    status: int
    """The HTTP status; 0 if there was no answer: see error."""
    body: bytes
    retry_after: str | None
    """The header, in whole seconds."""
    began: float
    """Seconds since 1970."""
    took: float
    """Milliseconds until the complete answer or the error, including the wait for a connection from the pool."""
    url: str
    error: Exception | None = None

    def said(self) -> dict[str, Any]:
        """Return the body's JSON object, or an empty one if it is not an object."""
        if not self.body:
            return {}
        try:
            said = json.loads(self.body)
        except ValueError:
            return {}
        return said if isinstance(said, dict) else {}

    def wait(self) -> float | None:
        """Return the seconds of Retry-After, if possible from the body, where they are not rounded up."""
        exact = self.said().get("retry_after")
        if isinstance(exact, int | float):
            return float(exact)
        try:
            return float(self.retry_after) if self.retry_after is not None else None
        except ValueError:
            return None


class Transport:
    """A server and the pool of connections to it.

    geventhttpclient is what Locust's FastHttpUser is built on. Used directly, it takes half of FastHttpUser's processor
    time and a tenth of that of requests, and it sends no POST twice.
    """

    def __init__(self, host: str, pool_size: int, timeout: float, insecure: bool) -> None:
        url = URL(host)
        self.origin = f"{url.scheme}://{url.netloc}"
        self.prefix = url.path.rstrip("/")
        tls: dict[str, Any] = {}
        if url.scheme == "https":
            tls = {"insecure": insecure, "ssl_context_factory": _unverified if insecure else _verified}
        self.client = HTTPClient.from_url(
            url, concurrency=pool_size, connection_timeout=timeout, network_timeout=timeout, **tls
        )

    def send(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Answer:
        """Send a request. Connection errors are reported in the answer, not raised."""
        payload = json.dumps(body).encode() if body is not None else b""
        path = self.prefix + path
        began, start = time.time(), time.perf_counter()
        try:
            response = self.client.request(method, path, payload, headers)
            content = bytes(response.read())
        except (OSError, HTTPParseError) as e:
            return Answer(0, b"", None, began, (time.perf_counter() - start) * 1000, self.origin + path, e)
        took = (time.perf_counter() - start) * 1000
        retry_after = response.get("retry-after")
        if not isinstance(retry_after, str):
            retry_after = None
        return Answer(response.status_code, content, retry_after, began, took, self.origin + path)


@cache
def shared(host: str, pool_size: int, timeout: float, insecure: bool) -> Transport:
    """Return the transport that all users of this process with these settings share."""
    return Transport(host, pool_size, timeout, insecure)


def pool_size(chosen: int | None) -> int:
    """Return the pool size: the given one, or WEIR_LOCUST_POOL, or POOL_SIZE."""
    if chosen is None:
        text = os.environ.get("WEIR_LOCUST_POOL") or str(POOL_SIZE)
        chosen = int(text) if text.isdecimal() else 0
        if chosen < 1:
            raise ValueError(f"WEIR_LOCUST_POOL={text}: must be a whole number of connections, at least 1")
    elif chosen < 1:
        raise ValueError(f"pool_size={chosen}: must be at least 1")
    return chosen


def _verified(cafile: str | None = None) -> gevent.ssl.SSLContext:
    # Trusts the system's roots and those in SSL_CERT_FILE, not only certifi's, which geventhttpclient passes.
    context = gevent.ssl.create_default_context()
    if cafile:
        context.load_verify_locations(cafile=cafile)
    return context


def _unverified(cafile: str | None = None) -> gevent.ssl.SSLContext:
    context = gevent.ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = gevent.ssl.CERT_NONE
    return context
