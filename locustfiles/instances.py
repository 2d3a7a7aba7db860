"""An open-loop load of instances as nova builds them: candidates, the claim of one, and the release of the oldest.

    locust -f locustfiles/instances.py --headless --rate 5 -t 5s -H http://127.0.0.1:8000

A sample is an instance: its latency runs from when it was due until its claim was accepted. So many instances are kept
as a quarter of the candidates; each further one releases the oldest, and the end of the run releases all.
"""

import random
from collections import deque
from http import HTTPStatus
from typing import Any, Final
from uuid import uuid4

import orjson
from locust import FastHttpUser, task

from placebench.lab.inventory.topology import read_topology
from placebench.loadgen.session import PLACEMENT_HEADERS, LoadRequest, LoadSession, Outcome, candidates_path
from placebench.paths import resource_folder

NESTED_PERFLOAD = resource_folder("loaders") / "topologies" / "nested-perfload.toml"

_ATTEMPTS: Final = 3
"""How often an instance is tried, as nova's [scheduler]max_attempts has it."""
_KEPT_SHARE: Final = 0.25
_WHO: Final = {"project_id": "placebench", "user_id": "placebench", "consumer_type": "INSTANCE"}
_DONE: Final = str(HTTPStatus.NO_CONTENT.value)
_REFUSED: Final = str(HTTPStatus.CONFLICT.value)

session = LoadSession("open", candidates_path(read_topology(NESTED_PERFLOAD, trees=1, seed=1).request))


class BuildingUser(FastHttpUser):
    """Builds everyone's instances: one user is the whole load, further ones do nothing."""

    def on_start(self) -> None:
        """Candidates are drawn by the seed."""
        self._chance = random.Random(session.options.seed)
        self._claimed: deque[str] = deque()
        self._kept = 0

    @task
    def follow(self) -> None:
        """The whole schedule; then nothing is left of it."""
        try:
            session.follow_schedule(self.client, self._build)
        finally:
            while self._claimed:
                self._release()

    def _build(self, due_s: float) -> None:
        """One instance, and the release of another where enough are there."""
        sent_s = session.samples.send(due_s)
        status, failure = self._schedule()
        ended_s = session.samples.now_s()
        if len(self._claimed) > self._kept:
            failure = self._release().failure or failure
        session.samples.end(sent_s, ended_s, due_s=due_s, status=status, body_bytes=0, failure=failure)

    def _schedule(self) -> tuple[str, str | None]:
        """Claim one of the candidates; return how that ended, and why it failed."""
        outcome = self._send(LoadRequest(session.options.path))
        if outcome.failure is not None:
            return outcome.status, outcome.failure
        candidates = orjson.loads(outcome.body)["allocation_requests"]
        self._kept = max(1, int(_KEPT_SHARE * len(candidates)))
        for attempt, each in enumerate(self._chance.sample(candidates, min(_ATTEMPTS, len(candidates)))):
            outcome = self._claim(each["allocations"])
            if outcome.status == _DONE:
                return f"{_DONE} after {_REFUSED}" if attempt else _DONE, None
            if outcome.failure is not None:
                return outcome.status, outcome.failure
        return "no candidate", f"none of {len(candidates)} candidates could be claimed"

    def _claim(self, allocations: dict[str, Any]) -> Outcome:
        consumer = str(uuid4())
        body = orjson.dumps({"allocations": allocations, "consumer_generation": None, **_WHO})
        headers = {**PLACEMENT_HEADERS, "Content-Type": "application/json"}
        outcome = self._send(_write(consumer, "PUT", headers, body, (_DONE, _REFUSED)))
        if outcome.status == _DONE:
            self._claimed.append(consumer)
        return outcome

    def _release(self) -> Outcome:
        return self._send(_write(self._claimed.popleft(), "DELETE", PLACEMENT_HEADERS, b"", (_DONE,)))

    def _send(self, request: LoadRequest) -> Outcome:
        return session.send_part(self.client, request)


def _write(consumer: str, method: str, headers: dict[str, str], body: bytes, expected: tuple[str, ...]) -> LoadRequest:
    return LoadRequest(
        f"/allocations/{consumer}", method, headers, body, expected=expected, name="/allocations/{consumer}"
    )
