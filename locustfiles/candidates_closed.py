"""A closed load on GET /allocation_candidates: each user asks again as soon as it is answered.

locust -f locustfiles/candidates_closed.py --headless -u 2 -t 5s -H http://127.0.0.1:8000
"""

from pathlib import Path

from locust import FastHttpUser, task

from placebench.loadgen.session import LoadSession, candidates_path
from placebench.topology import read_topology

NESTED_PERFLOAD = Path(__file__).parents[1] / "loaders" / "topologies" / "nested-perfload.toml"

session = LoadSession("closed", candidates_path(read_topology(NESTED_PERFLOAD, trees=1, seed=1).request))


class WaitingUser(FastHttpUser):
    """Waits for its answer before it asks again, so that a slow server is asked less."""

    @task
    def ask(self) -> None:
        """One request."""
        session.ask(self.client)
