"""What calls take and return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Limits = Sequence["str | Mapping[str, Any]"]
"""Limits as text, such as "tpm:50K/min:75K", or as objects of the API."""


@dataclass(frozen=True)
class Request:
    """What to acquire."""

    entity: str
    resource: str
    tokens: Mapping[str, int] = field(default_factory=dict)
    """Whole numbers by limit name; of limits that are not named, 0 tokens are spent, and one slot is taken."""
    limits: Limits | None = None
    """Used for this request instead of the configured limits. With authentication, the token needs the permission
    override."""
    on_unavailable: str | None = None
    """"deny", "local" or "allow": how the server decides while its store does not answer, if that is stricter (in this
    order) than what is configured."""


@dataclass(frozen=True)
class LimitStatus:
    """A limit, and what is left of it. The HTTP API has the meaning of every field."""

    entity: str
    resource: str
    limit: str
    source: str
    requested: int
    available: int
    amount: int
    period: str
    burst: int
    full_in: float
    manifest: str | None = None
    ends_in: float | None = None
    refused: bool = False
    retry_after: float | None = 0.0
    """Seconds until this limit would admit the request; 0 if it does; None for a balance, which must be topped up."""
    estimated: bool = False
    shadow: bool = False
    would_refuse: bool = False

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> LimitStatus:
        """Return the status in an answer, without members that this version does not know."""
        return cls(**{k: v for k, v in data.items() if k in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Balance:
    """What an adjustment has left of a limit."""

    entity: str
    resource: str
    limit: str
    available: int
    """Negative in debt."""
    retry_after: float | None = 0.0
    """Seconds until a token is available; None for a balance, which must be topped up."""

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Balance:
        """Return the balance in an answer, without members that this version does not know."""
        return cls(**{k: v for k, v in data.items() if k in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Explanation:
    """How a request would be decided, and why."""

    outcome: str
    """"allowed", "refused", "exceeds-burst" or "no-limits"."""
    retry_after: float | None
    """Seconds until it would pass, if nobody else spends; also 0 if it never will; None if a balance refuses it."""
    detail: str
    """Why it would not pass; empty if it would."""
    raw: Mapping[str, Any]
    """The whole answer of /v1/explain: the binding limit, the chain of entities, the levels of limits."""
