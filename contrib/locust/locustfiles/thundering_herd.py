"""All users send a request at once, every five seconds by the clock, for one entity with 100 calls a second.

Refused users retry once, after Retry-After: RATE_LIMITED under the name "api again" shows how well that spreads them.
Refusals need more than 100 users. WEIR_HERD_SECONDS changes the interval.
"""

import os
import time

from locust import task

from weir_locust import WeirUser
from weir_locust.scenario import namespace, prepare

SPACE = namespace("thundering-herd")
SECONDS = float(os.environ.get("WEIR_HERD_SECONDS", "5"))
prepare(SPACE, lambda weir: weir.set_system_defaults(["rps:100/s"]))


class HerdUser(WeirUser):
    """Waits for the next tick of the clock, which is the same in all processes."""

    namespace = SPACE

    def wait_time(self) -> float:
        """Return the seconds until the next tick."""
        return SECONDS - time.time() % SECONDS

    @task
    def acquire(self) -> None:
        """Send a request, and retry once if refused."""
        answer = self.client.acquire("herd", "api", {"rps": 1})
        if not answer:
            answer.wait()
            self.client.acquire("herd", "api", {"rps": 1}, name="api again")
