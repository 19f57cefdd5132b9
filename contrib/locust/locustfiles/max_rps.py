"""Users with one entity each that send requests back to back; nothing is refused."""

import uuid

from locust import constant, task

from weir_locust import WeirUser
from weir_locust.scenario import namespace, prepare
from weir_locust.traffic import UNLIMITED

SPACE = namespace("max-rps")
prepare(SPACE, lambda weir: weir.set_system_defaults(UNLIMITED))


class MaxRpsUser(WeirUser):
    """Sends requests back to back."""

    namespace = SPACE
    wait_time = constant(0)

    def on_start(self) -> None:
        """Give the user an entity, which need not be created."""
        self.entity = f"user-{uuid.uuid4().hex[:8]}"

    @task
    def acquire(self) -> None:
        """Spend one token."""
        self.client.acquire(self.entity, "api", {"rpm": 1})
