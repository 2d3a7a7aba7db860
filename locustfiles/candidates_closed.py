"""A closed-loop load on GET /allocation_candidates: each user sends the next request as soon as it has the response.

locust -f locustfiles/candidates_closed.py --headless -u 2 -t 5s -H http://127.0.0.1:8000
"""

from locust import FastHttpUser, task

from placebench.lab.inventory.topology import read_topology
from placebench.loadgen.session import LoadSession, candidates_path
from placebench.paths import resource_folder

NESTED_PERFLOAD = resource_folder("loaders") / "topologies" / "nested-perfload.toml"

session = LoadSession("closed", candidates_path(read_topology(NESTED_PERFLOAD, trees=1, seed=1).request))


class WaitingUser(FastHttpUser):
    """Waits for its response before it sends the next request, so that a slow server gets fewer."""

    @task
    def get(self) -> None:
        """One request."""
        session.get(self.client)
