"""Client of the rate limiter weir, sync and async, over its HTTP API."""

from .aio import AsyncClient, AsyncLease
from .client import Client, Lease
from .errors import (
    LeaseExpiredError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    RequestError,
    SlotLostError,
    WeirError,
)
from .models import Balance, Explanation, Limits, LimitStatus, Request

__all__ = [
    "AsyncClient",
    "AsyncLease",
    "Balance",
    "Client",
    "Explanation",
    "Lease",
    "LeaseExpiredError",
    "LimitStatus",
    "Limits",
    "RateLimitExceeded",
    "RateLimiterUnavailable",
    "Request",
    "RequestError",
    "SlotLostError",
    "WeirError",
]
