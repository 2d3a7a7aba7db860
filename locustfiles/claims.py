"""A closed-loop load that claims: GET /allocation_candidates, PUT ten of them for new consumers, sometimes DELETE one.

locust -f locustfiles/claims.py --headless -u 2 -t 5s -H http://127.0.0.1:8000

Every write is logged, by which `placebench load --check-writes` finds out whether one was lost.
"""

import random
from itertools import count
from pathlib import Path

from locust import FastHttpUser, task

from placebench.loadgen.session import Claimant, LoadSession, candidates_path
from placebench.topology import read_topology

NESTED_PERFLOAD = Path(__file__).parents[1] / "loaders" / "topologies" / "nested-perfload.toml"
OF_SO_MANY = 100  # candidates each user draws: of fewer, more users would want the same

request = read_topology(NESTED_PERFLOAD, trees=1, seed=1).request
session = LoadSession("closed", candidates_path(f"{request}&limit={OF_SO_MANY}"))
numbers = count(1)


class ClaimingUser(FastHttpUser):
    """Waits for each response before it goes on."""

    def on_start(self) -> None:
        """Each user draws by itself, by the seed."""
        chance = random.Random(f"{session.options.seed} {next(numbers)}")
        self._claimant = Claimant(session, self.client, chance)

    @task
    def write(self) -> None:
        """Fetch candidates, then write."""
        self._claimant.write()
