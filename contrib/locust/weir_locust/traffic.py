"""The numbers used by the scenarios, the same as in `weir load`."""

from __future__ import annotations

import bisect
import hashlib
import itertools
import random
import time

MODELS = {
    "openai/gpt-4o": ["rpm:500/min", "tpm:800K/min"],
    "openai/gpt-4o-mini": ["rpm:2000/min", "tpm:4M/min"],
    "openai/o1": ["rpm:100/min", "tpm:200K/min"],
    "openai/o3-mini": ["rpm:200/min", "tpm:400K/min"],
    "anthropic/claude-sonnet": ["rpm:1000/min", "tpm:400K/min"],
    "anthropic/claude-haiku": ["rpm:2000/min", "tpm:4M/min"],
    "google/gemini-pro": ["rpm:360/min", "tpm:1M/min"],
    "google/gemini-flash": ["rpm:1500/min", "tpm:4M/min"],
}
"""The limits of the gateway's models."""

ESTIMATE = 800
"""Estimated tokens of a chat, before its usage is known."""

UNLIMITED = ["rpm:200M/min"]
"""A limit that refuses nothing: more than a server can answer."""


def chat_tokens() -> int:
    """Return how many tokens a chat used."""
    return random.randint(200, 2000)


class Spikes:
    """Spikes by the clock, not by the request: the same fraction of the time at any rate.

    In each second, a spike begins with probability per_minute / 60, and lasts for the given seconds. It depends only on
    the seed and the second, so all processes have the same spikes.
    """

    def __init__(self, per_minute: float = 0.1, seconds: int = 30, seed: int = 1) -> None:
        self._chance, self._seconds, self._seed = per_minute / 60, seconds, seed
        self._known = -1
        self._until = 0

    def on(self, now: float | None = None) -> bool:
        """Report whether there is a spike now."""
        second = int(time.time() if now is None else now)
        if second != self._known:
            for s in range(max(self._known, second - self._seconds) + 1, second + 1):  # earlier spikes are over
                if self._random(s) < self._chance:
                    self._until = s + self._seconds
            self._known = second
        return second < self._until

    def _random(self, second: int) -> float:
        drawn = hashlib.blake2b(f"{self._seed}/{second}".encode(), digest_size=8)
        return int.from_bytes(drawn.digest()) / 2**64


class Stress:
    """Picks the entity for each call of the stress scenario, out of 16,000.

    Half of the calls are the whale's, 3 % the spiker's (all of them during a spike); the rest follow Zipf's law.
    """

    def __init__(self, tail: int = 15_998, exponent: float = 1.5, spikes: Spikes | None = None) -> None:
        self._reach = list(itertools.accumulate((k + 1) ** -exponent for k in range(tail)))
        self._spikes = spikes or Spikes()

    def pick(self) -> tuple[str, str]:
        """Return the entity, and whether it is "whale", "spike", "spike-baseline" or "powerlaw"."""
        if self._spikes.on():
            return "entity-spiker", "spike"
        share = random.random()
        if share < 0.50:
            return "entity-whale", "whale"
        if share < 0.53:
            return "entity-spiker", "spike-baseline"
        rank = bisect.bisect_left(self._reach, random.random() * self._reach[-1])
        return f"entity-{rank:05d}", "powerlaw"
