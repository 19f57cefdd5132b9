"""The number of users over a day, and over its morning spike."""

from __future__ import annotations

from typing import ClassVar

from locust import LoadTestShape

DAILY = [
    (21600, 15, 1.0),
    (7200, 100, 1.0),
    (3600, 150, 2.0),
    (28800, 150, 1.0),
    (7200, 120, 0.5),
    (14400, 30, 0.5),
    (3600, 15, 0.5),
]
"""Stages of seconds, users, and users started per second: 24 hours."""

SPIKE = [(600, 50, 2.0), (600, 150, 3.0), (1800, 150, 1.0), (600, 100, 1.0)]
"""The same for one hour."""

STAGES = {"daily": DAILY, "spike": SPIKE}


class Staged(LoadTestShape):
    """Follows the stages at speed times their pace; then the test ends."""

    abstract = True

    stages: ClassVar[list[tuple[int, int, float]]]
    speed: ClassVar[float] = 1.0

    def tick(self) -> tuple[int, float] | None:
        """Return the number of users wanted now, and how many to start per second."""
        return self.at(self.get_run_time())

    @classmethod
    def at(cls, seconds: float) -> tuple[int, float] | None:
        """Return the result of tick after this many seconds; None when all stages are over."""
        at = seconds * cls.speed
        for length, users, spawn in cls.stages:
            if at < length:
                return users, spawn * cls.speed
            at -= length
        return None


def of(name: str, speed: float = 1.0) -> type[Staged]:
    """Return the shape named "daily" or "spike", for a locustfile to bind to a name.

    Locust takes one shape per run, so a file must bind only the one to follow.
    """
    if name not in STAGES:
        raise ValueError(f"shape {name!r}: there are {', '.join(STAGES)}")
    if not speed > 0:
        raise ValueError(f"speed {speed}: must be more than 0")
    return type(name.title(), (Staged,), {"stages": STAGES[name], "speed": speed})
