"""Like cascade.py, with requests back to back."""

import cascade
from locust import constant


class MaxRpsCascadeUser(cascade.CascadeUser):
    """Sends requests back to back."""

    wait_time = constant(0)
