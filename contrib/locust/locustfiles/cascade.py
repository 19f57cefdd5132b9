"""Users with one entity each that all charge one parent; nothing is refused.

All processes know the parent by name, so the children on every worker charge it.
"""

import uuid

from locust import between, task

from weir_locust import WeirSession, WeirUser
from weir_locust.scenario import namespace, prepare
from weir_locust.traffic import UNLIMITED

SPACE = namespace("cascade")
PARENT = "parent"


def set_up(weir: WeirSession) -> None:
    """Create the parent."""
    weir.set_system_defaults(UNLIMITED)
    weir.create_entity(PARENT, exist_ok=True)


def tear_down(weir: WeirSession) -> None:
    """Delete the parent and the children that users created."""
    weir.delete_entity(PARENT, children=True, missing_ok=True)


prepare(SPACE, set_up, tear_down)


class CascadeUser(WeirUser):
    """Creates its own child entity and sends a request now and then."""

    namespace = SPACE
    wait_time = between(0.1, 1.0)

    def on_start(self) -> None:
        """Create the child."""
        self.entity = f"child-{uuid.uuid4().hex[:8]}"
        self.client.create_entity(self.entity, parent=PARENT, cascade=True, name="child")

    @task
    def acquire(self) -> None:
        """Spend one token of the child and one of the parent."""
        self.client.acquire(self.entity, "api", {"rpm": 1})
