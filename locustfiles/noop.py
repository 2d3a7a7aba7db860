"""A closed load on GET /, which does next to nothing: what the generator, uWSGI and the machine take by themselves.

locust -f locustfiles/noop.py --headless -u 2 -t 5s -H http://127.0.0.1:8000
"""

from locust import FastHttpUser, task

from placebench.loadgen.session import LoadSession

session = LoadSession("closed", "/")


class WaitingUser(FastHttpUser):
    """Waits for its answer before it asks again."""

    @task
    def ask(self) -> None:
        """One request."""
        session.ask(self.client)
