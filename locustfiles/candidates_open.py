"""An open-loop load on GET /allocation_candidates: requests come when they are due, whatever became of the ones before.

    locust -f locustfiles/candidates_open.py --headless --rate 5 -t 5s -H http://127.0.0.1:8000

Latency counts from when a request was due. A closed-loop load, and locust's own constant_throughput and poisson, send
fewer requests while the server stalls, and so hide the stall.
"""

from locust import FastHttpUser, task

from placebench.lab.inventory.topology import read_topology
from placebench.loadgen.session import LoadSession, candidates_path
from placebench.paths import resource_folder

NESTED_PERFLOAD = resource_folder("loaders") / "topologies" / "nested-perfload.toml"

session = LoadSession("open", candidates_path(read_topology(NESTED_PERFLOAD, trees=1, seed=1).request))


class ScheduledUser(FastHttpUser):
    """Sends everyone's requests: one user is the whole load, further ones do nothing."""

    @task
    def follow(self) -> None:
        """The whole schedule."""
        session.follow_schedule(self.client)
