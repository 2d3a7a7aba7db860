"""A closed-loop load on GET /, which does next to nothing: what the generator, uWSGI and the machine cost.

locust -f locustfiles/noop.py --headless -u 2 -t 5s -H http://127.0.0.1:8000
"""

from locust import FastHttpUser, task

from placebench.loadgen.session import LoadSession

session = LoadSession("closed", "/")


class WaitingUser(FastHttpUser):
    """Waits for its response before it sends the next request."""

    @task
    def get(self) -> None:
        """One request."""
        session.get(self.client)
