"""As cascade.py, back to back."""

import cascade
from locust import constant


class MaxRpsCascadeUser(cascade.CascadeUser):
    """Asks again at once."""

    wait_time = constant(0)
