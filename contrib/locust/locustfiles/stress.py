"""16,000 entities: a whale that makes half of the calls, one that spikes, and a long tail.

Event names distinguish them: api-3/whale, /spike, /spike-baseline, /powerlaw.
"""

import random

from locust import between, task

from weir_locust import WeirSession, WeirUser
from weir_locust.scenario import namespace, prepare
from weir_locust.traffic import Stress

SPACE = namespace("stress")
APIS = [f"api-{n}" for n in range(8)]
STRESS = Stress()


def set_up(weir: WeirSession) -> None:
    """Set the limits of all entities, and of the one that spikes."""
    weir.set_system_defaults(["rpm:400/min", "tpm:400K/min"])
    weir.set_limits("entity-spiker", ["rpm:1500/min", "tpm:1500K/min"])


prepare(SPACE, set_up)


class StressUser(WeirUser):
    """Sends requests for the entity that is next."""

    namespace = SPACE
    wait_time = between(0.01, 0.1)

    @task(100)
    def acquire(self) -> None:
        """Spend a request and its tokens."""
        entity, kind = STRESS.pick()
        api = random.choice(APIS)
        self.client.acquire(entity, api, {"rpm": 1, "tpm": random.randint(100, 1000)}, name=f"{api}/{kind}")

    @task(5)
    def available(self) -> None:
        """Check what is left."""
        entity, kind = STRESS.pick()
        api = random.choice(APIS)
        self.client.available(entity, api, name=f"{api}/{kind}")
