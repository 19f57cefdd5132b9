"""All users ask at once, every five seconds by the clock, for an entity that may make 100 calls a second.

Who is refused comes back when Retry-After says, once: RATE_LIMITED of the name "api again" shows how well that spreads
them. It takes more than 100 users to see a refusal. WEIR_HERD_SECONDS sets another pace.
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
    """Waits for the stroke of the clock, which all processes hear."""

    namespace = SPACE

    def wait_time(self) -> float:
        """Return the seconds until the next stroke."""
        return SECONDS - time.time() % SECONDS

    @task
    def acquire(self) -> None:
        """Ask, and once more if refused."""
        answer = self.client.acquire("herd", "api", {"rps": 1})
        if not answer:
            answer.wait()
            self.client.acquire("herd", "api", {"rps": 1}, name="api again")
