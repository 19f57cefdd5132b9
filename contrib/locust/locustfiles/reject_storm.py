"""Ten entities that send far more than their limits allow and ignore refusals: nearly everything is refused."""

import random

from locust import constant, task

from weir_locust import WeirUser
from weir_locust.scenario import namespace, prepare

SPACE = namespace("reject-storm")
prepare(SPACE, lambda weir: weir.set_system_defaults(["rps:1/s"]))


class LoudUser(WeirUser):
    """Sends ten requests a second and ignores Retry-After."""

    namespace = SPACE
    wait_time = constant(0.1)

    @task
    def acquire(self) -> None:
        """Spend one token, if there is one."""
        self.client.acquire(f"loud-{random.randrange(10)}", "api", {"rps": 1})
