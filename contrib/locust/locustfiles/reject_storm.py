"""Ten entities that ask far more often than they may, whatever they are told: nearly all is refused."""

import random

from locust import constant, task

from weir_locust import WeirUser
from weir_locust.scenario import namespace, prepare

SPACE = namespace("reject-storm")
prepare(SPACE, lambda weir: weir.set_system_defaults(["rps:1/s"]))


class LoudUser(WeirUser):
    """Asks ten times a second, and minds no Retry-After."""

    namespace = SPACE
    wait_time = constant(0.1)

    @task
    def acquire(self) -> None:
        """Spend one, if there is one."""
        self.client.acquire(f"loud-{random.randrange(10)}", "api", {"rps": 1})
