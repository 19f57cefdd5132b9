"""Users that share eight slots: each waits for one, holds it for a while and gives it back."""

import random

from locust import constant, task

from weir_locust import WeirUser
from weir_locust.scenario import namespace, prepare

SPACE = namespace("slots")
prepare(SPACE, lambda weir: weir.set_system_defaults(["parallel:8slots"]))


class SlotUser(WeirUser):
    """Works back to back, whenever it has a slot."""

    namespace = SPACE
    wait_time = constant(0)

    @task
    def work(self) -> None:
        """Wait for a slot for at most five seconds, and hold it for 0.1 to 0.3 s."""
        with self.client.acquire("fleet", "api", wait="5s") as lease:
            if lease:
                lease.hold(random.uniform(0.1, 0.3))
