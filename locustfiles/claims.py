"""A closed-loop load that claims: GET /allocation_candidates, PUT ten of them for new consumers, sometimes DELETE one.

locust -f locustfiles/claims.py --headless -u 2 -t 5s -H http://127.0.0.1:8000

Every write is logged, by which `placebench load --check-writes` finds out whether one was lost. At the end each user
releases what it claimed, unless --keep-claims=1 is given.
"""

import json
import random
from http import HTTPStatus
from itertools import count
from typing import Any, Final

import gevent
from locust import FastHttpUser, events, task

from placebench.lab.inventory.topology import read_topology
from placebench.loadgen.session import PLACEMENT_HEADERS, LoadRequest, LoadSession, candidates_path
from placebench.loadgen.write_log import Allocations
from placebench.paths import resource_folder

NESTED_PERFLOAD = resource_folder("loaders") / "topologies" / "nested-perfload.toml"
OF_SO_MANY = 100  # candidates each user draws: of fewer, more users would want the same

_CLAIMS_PER_RESPONSE: Final = 10
_RELEASE_SHARE: Final = 0.1
_NOTHING_TO_DO_S: Final = 0.1
_WHO: Final = {"project_id": "placebench", "user_id": "placebench", "consumer_type": "INSTANCE"}
_DONE: Final = str(HTTPStatus.NO_CONTENT.value)
_REFUSED: Final = str(HTTPStatus.CONFLICT.value)
_NOT_FOUND: Final = str(HTTPStatus.NOT_FOUND.value)

request = read_topology(NESTED_PERFLOAD, trees=1, seed=1).request
session = LoadSession("closed", candidates_path(f"{request}&limit={OF_SO_MANY}"))
numbers = count(1)


def add_keep_claims(parser: Any, **_: object) -> None:
    """Add the option of this locustfile alone."""
    parser.add_argument(
        "--keep-claims", type=int, default=0, metavar="0|1", help="1: leave the claims in the database (default: 0)"
    )


events.init_command_line_parser.add_listener(add_keep_claims)  # type: ignore[no-untyped-call]


class ClaimingUser(FastHttpUser):
    """Waits for each response before it goes on."""

    def on_start(self) -> None:
        """Each user draws by itself, by the seed."""
        self._chance = random.Random(f"{session.options.seed} {session.part.index} {next(numbers)}")
        self._claimed: list[str] = []
        self._may_hold: set[str] = set()  # also consumers whose claim got no response
        self._offered: list[dict[str, Any]] = []

    def on_stop(self) -> None:
        """Release what this user claimed; where that fails, say what restores the data."""
        while self._may_hold and not self.environment.parsed_options.keep_claims:
            path = f"/allocations/{self._may_hold.pop()}"
            name = "/allocations/{consumer} at the end"
            release = LoadRequest(path, "DELETE", expected=(_DONE, _NOT_FOUND), name=name)
            if (failure := session.send_part(self.client, release).failure) is not None:
                left = len(self._may_hold) + 1
                print(  # noqa: T201  where locust's own output goes
                    f"claims of one user that could not be released: up to {left} ({failure}); "
                    "`placebench lab seed --reset --db URL` seeds the database anew"
                )
                return

    @task
    def write(self) -> None:
        """Send one write: a release one time in ten and where no candidate is left, else a claim.

        It fetches candidates where none are left of those that it drew from the last response.
        """
        if not self._offered:
            outcome = session.send(self.client, LoadRequest(session.options.path))
            candidates = json.loads(outcome.body)["allocation_requests"] if outcome.failure is None else []
            self._offered = self._chance.sample(candidates, min(len(candidates), _CLAIMS_PER_RESPONSE))
        if self._claimed and (not self._offered or self._chance.random() < _RELEASE_SHARE):
            self._release(self._claimed.pop(self._chance.randrange(len(self._claimed))))
        elif self._offered:
            self._claim(self._offered.pop()["allocations"])
        else:
            gevent.sleep(_NOTHING_TO_DO_S)

    def _claim(self, allocations: dict[str, Any]) -> None:
        """Claim for a new consumer; a 409 is not a failure: somebody was quicker."""
        consumer = session.write_log.new_consumer()
        content = {"allocations": allocations, "consumer_generation": None, **_WHO}
        claimed = {provider: entry["resources"] for provider, entry in allocations.items()}
        self._may_hold.add(consumer)
        status = self._write("PUT", consumer, claimed, content, (_DONE, _REFUSED))
        if status == _DONE:
            self._claimed.append(consumer)
        elif status == _REFUSED:
            self._may_hold.discard(consumer)

    def _release(self, consumer: str) -> None:
        if self._write("DELETE", consumer, None, None, (_DONE,)) == _DONE:
            self._may_hold.discard(consumer)

    def _write(
        self, method: str, consumer: str, claimed: Allocations | None, content: Any, expected: tuple[str, ...]
    ) -> str:
        """Send a write; returns the status of the response."""
        name = "/allocations/{consumer}"
        headers = {**PLACEMENT_HEADERS, "Content-Type": "application/json"} if content else PLACEMENT_HEADERS
        request = LoadRequest(
            f"/allocations/{consumer}",
            method,
            headers,
            json.dumps(content).encode() if content else b"",
            expected,
            name,
            write=(consumer, claimed),
        )
        return session.send(self.client, request).status
