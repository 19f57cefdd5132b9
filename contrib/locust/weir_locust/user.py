"""The base class for the users in locustfiles."""

from __future__ import annotations

from typing import Any

from locust import User
from locust.exception import StopTest

from .session import WeirSession
from .transport import TIMEOUT


class WeirUser(User):
    """A user whose client is a WeirSession.

    host, or --host, is the server's URL. Attributes that are None come from the environment: see WeirSession.
    """

    abstract = True

    token: str | None = None
    """Bearer token. None: WEIR_TOKEN; if that is not set, no token is sent."""
    namespace: str | None = None
    """Namespace of all calls. None: WEIR_NAMESPACE; if that is not set, the server chooses."""
    pool_size: int | None = None
    """Connections of the process. None: WEIR_LOCUST_POOL, or 1000. Waiting for one counts as response time."""
    timeout: float = TIMEOUT
    """Seconds after which a silent server has failed. Acquire may wait for tokens for up to a minute."""
    insecure: bool = False
    """Accept any certificate. By default it must chain to one of the system's roots or those in SSL_CERT_FILE."""

    client: WeirSession

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.host:
            raise StopTest("there is no host: start locust with --host http://127.0.0.1:8080, or set host")
        self.client = WeirSession(
            self.host,
            self.environment,
            self,
            token=self.token,
            namespace=self.namespace,
            pool_size=self.pool_size,
            timeout=self.timeout,
            insecure=self.insecure,
        )
