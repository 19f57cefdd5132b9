"""Locust users for weir: each call is a request event, and a refusal is not a failure."""

from .errors import WeirError
from .lease import Lease, Refusal
from .session import WeirSession
from .transport import Answer
from .user import WeirUser

__all__ = ["Answer", "Lease", "Refusal", "WeirError", "WeirSession", "WeirUser"]
