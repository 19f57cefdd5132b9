"""All users share one entity; nothing is refused."""

from locust import constant, task

from weir_locust import WeirUser
from weir_locust.scenario import namespace, prepare

SPACE = namespace("hot-key")
prepare(SPACE, lambda weir: weir.set_system_defaults(["rps:1M/s"]))


class HotKeyUser(WeirUser):
    """Sends ten requests a second."""

    namespace = SPACE
    wait_time = constant(0.1)

    @task
    def acquire(self) -> None:
        """Spend one token of the shared entity."""
        self.client.acquire("hot", "api", {"rps": 1})
