"""API keys that acquire an estimate for one of eight models and adjust it to the actual usage."""

import random
import uuid

from locust import between, task

from weir_locust import WeirSession, WeirUser
from weir_locust.scenario import namespace, prepare
from weir_locust.traffic import ESTIMATE, MODELS, chat_tokens

SPACE = namespace("llm-gateway")


def set_up(weir: WeirSession) -> None:
    """Set the limits of the models."""
    for model, limits in MODELS.items():
        weir.set_resource_defaults(model, limits)


prepare(SPACE, set_up)


class LLMGatewayUser(WeirUser):
    """A key that chats."""

    namespace = SPACE
    wait_time = between(0.5, 2.0)

    def on_start(self) -> None:
        """Give the user a key."""
        self.key = f"apikey-{uuid.uuid4().hex[:8]}"

    @task
    def chat(self) -> None:
        """Spend the estimate, and settle once the actual usage is known."""
        with self.client.acquire(self.key, random.choice(list(MODELS)), {"rpm": 1, "tpm": ESTIMATE}) as lease:
            if lease:
                lease.adjust({"tpm": chat_tokens() - ESTIMATE})
