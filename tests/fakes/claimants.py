"""Clients that claim the last units of a few providers from a running service: the main part is `contend`.

Used by the tests for some seconds and by the bench for thirty.
"""

import http.client
import json
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from sqlalchemy import Engine, create_engine, func, insert, select

from placebench.lab.inventory import tables

PROVIDERS = 3
UNITS = 10  # of each
MOST_HELD = 6  # by a client: eight clients want 48 of 30 units
CANDIDATES = "/allocation_candidates?resources=VCPU:1&limit=2"
HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39", "Content-Type": "application/json"}


@dataclass
class Outcome:
    """What the clients saw, and what they should find in the tables."""

    statuses: Counter[str] = field(default_factory=Counter)  # "PUT 204"
    writes: int = 0  # claims and releases that were accepted
    held: list[str] = field(default_factory=list)  # consumers with a unit
    slowest_s: float = 0.0

    def add(self, other: "Outcome") -> None:
        """Take in what another client saw."""
        self.statuses += other.statuses
        self.writes += other.writes
        self.held += other.held
        self.slowest_s = max(self.slowest_s, other.slowest_s)


def provide(database_url: str) -> None:
    """The tables, with three providers of ten units each."""
    engine = create_engine(database_url)
    tables.metadata.create_all(engine)
    whole = {"reserved": 0, "min_unit": 1, "max_unit": UNITS, "step_size": 1, "allocation_ratio": 1.0}
    with engine.begin() as connection:
        connection.execute(insert(tables.resource_classes).values(id=0, name="VCPU"))
        for key in range(1, PROVIDERS + 1):
            row = {"id": key, "uuid": str(UUID(int=key)), "name": f"rp{key}", "generation": 0, "root_provider_id": key}
            connection.execute(insert(tables.resource_providers).values(row))
            stock = {"resource_provider_id": key, "resource_class_id": 0, "total": UNITS}
            connection.execute(insert(tables.inventories).values(stock | whole))
    engine.dispose()


def contend(url: str, *, clients: int, seconds: float, seed: int = 1) -> Outcome:
    """All the clients' outcomes together."""
    until, outcome = time.monotonic() + seconds, Outcome()
    with ThreadPoolExecutor(clients) as pool:
        for seen in pool.map(
            lambda number: _Client(url, random.Random(seed * 1000 + number)).run(until), range(clients)
        ):
            outcome.add(seen)
    return outcome


def wrong_in_the_tables(engine: Engine, outcome: Outcome) -> list[str]:
    """What the tables say otherwise than the clients: units given too often, lost updates, lost claims."""
    used, generation = tables.allocations.c, tables.resource_providers.c.generation
    with engine.connect() as connection:
        rows = connection.execute(
            select(used.resource_provider_id, func.sum(used.used)).group_by(used.resource_provider_id)
        )
        found = [f"provider {key} gave {amount} of {UNITS} units" for key, amount in rows if amount > UNITS]
        generations = connection.scalar(select(func.sum(generation)))
        holders = set(connection.scalars(select(used.consumer_id)))
    if generations != outcome.writes:
        found.append(f"{outcome.writes} accepted writes moved the generations on by {generations}")
    if holders != set(outcome.held):
        found.append(f"{len(holders ^ set(outcome.held))} claims are not as their clients saw them")
    return found


class _Client:
    """Claims a unit of any candidate, and gives one back when it has many or there are none left."""

    def __init__(self, url: str, chance: random.Random) -> None:
        self._address = urlsplit(url).netloc
        self._chance = chance
        self._seen = Outcome()

    def run(self, until: float) -> Outcome:
        """What it saw until then."""
        held = self._seen.held
        while time.monotonic() < until:
            _, document = self._send("GET", CANDIDATES)
            found = document["allocation_requests"]
            if held and (not found or len(held) >= MOST_HELD):
                if self._put(held[-1], {}, generation=1) == http.client.NO_CONTENT:
                    held.pop()
            elif found:
                self._claim(self._chance.choice(found)["allocations"])
        return self._seen

    def _claim(self, allocations: dict[str, Any]) -> None:
        consumer = str(UUID(int=self._chance.getrandbits(128), version=4))
        if self._put(consumer, allocations, generation=None) == http.client.NO_CONTENT:
            self._seen.held.append(consumer)

    def _put(self, consumer: str, allocations: dict[str, Any], *, generation: int | None) -> int:
        who = {"project_id": "project", "user_id": "user", "consumer_type": "INSTANCE"}
        body = {"allocations": allocations, "consumer_generation": generation, **who}
        status, _ = self._send("PUT", f"/allocations/{consumer}", body)
        self._seen.writes += status == http.client.NO_CONTENT
        return status

    def _send(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        began = time.perf_counter()
        connection = http.client.HTTPConnection(self._address, timeout=30)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), HEADERS)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        self._seen.slowest_s = max(self._seen.slowest_s, time.perf_counter() - began)
        self._seen.statuses[f"{method} {response.status}"] += 1
        return response.status, json.loads(content) if content else None
