"""A gateway's users as in production: chats, lists of models, checks of what is left.

WEIR_SHAPE=daily or spike varies the number of users as over a day, or over the hour of its morning spike.
WEIR_SHAPE_SPEED speeds that up: 60 runs a day in 24 minutes. Without WEIR_SHAPE, locust's own options apply.
"""

import os
import random
import uuid

from locust import between, task

from weir_locust import WeirSession, WeirUser, shapes
from weir_locust.scenario import namespace, prepare
from weir_locust.traffic import ESTIMATE, MODELS, chat_tokens

SPACE = namespace("llm-production")


def set_up(weir: WeirSession) -> None:
    """Set the limits of the models."""
    for model, limits in MODELS.items():
        weir.set_resource_defaults(model, limits)


prepare(SPACE, set_up)

if shape := os.environ.get("WEIR_SHAPE"):
    Shape = shapes.of(shape, float(os.environ.get("WEIR_SHAPE_SPEED", "1")))


class LLMGatewayUserReal(WeirUser):
    """A key with people behind it."""

    namespace = SPACE
    wait_time = between(20, 45)

    def on_start(self) -> None:
        """Give the user a key."""
        self.key = f"apikey-{uuid.uuid4().hex[:8]}"

    @task(15)
    def chat(self) -> None:
        """Spend the estimate, and settle once the actual usage is known."""
        with self.client.acquire(self.key, random.choice(list(MODELS)), {"rpm": 1, "tpm": ESTIMATE}) as lease:
            if lease:
                lease.adjust({"tpm": chat_tokens() - ESTIMATE})

    @task(2)
    def list_models(self) -> None:
        """Spend a request that uses no LLM tokens."""
        self.client.acquire(self.key, random.choice(list(MODELS)), {"rpm": 1})

    @task(1)
    def available(self) -> None:
        """Check what is left."""
        self.client.available(self.key, random.choice(list(MODELS)))
