"""Users with an entity each and a call now and then; nothing is refused."""

import uuid

from locust import between, task

from weir_locust import WeirUser
from weir_locust.scenario import namespace, prepare
from weir_locust.traffic import UNLIMITED

SPACE = namespace("simple")
prepare(SPACE, lambda weir: weir.set_system_defaults(UNLIMITED))


class SimpleUser(WeirUser):
    """Asks for one request after another."""

    namespace = SPACE
    wait_time = between(0.1, 1.0)

    def on_start(self) -> None:
        """Give the user an entity, which need not be created."""
        self.entity = f"user-{uuid.uuid4().hex[:8]}"

    @task
    def acquire(self) -> None:
        """Spend one."""
        self.client.acquire(self.entity, "api", {"rpm": 1})
