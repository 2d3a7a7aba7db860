"""Foreign writers that change everything a candidate comes from, and requests that compare with naive meanwhile.

`Meddler` writes as psql would: several transactions at once on connections of its own, committed in any order or
rolled back, with savepoints, in either isolation level, one row or all. `Service` writes through an application of the
API. `compare` asks naive, cached (in both ways) and dedup in one REPEATABLE READ transaction, on one connection.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

import orjson
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError
from werkzeug.test import Client

from placebench.compare.what.canonical_response import difference, parse_response
from placebench.lab.placement_api import RULES
from placebench.lab.reference.api.handlers.candidates import find_candidates
from placebench.lab.reference.api.pipeline import make_app
from placebench.lab.reference.candidates.cached_index import find_candidates_at_once
from placebench.lab.reference.domain.candidates_query import parse_query
from placebench.lab.reference.domain.problems import BadRequest
from placebench.lab.reference.domain.settings import DEFAULTS, ServiceSettings
from placebench.lab.reference.store.database import Database
from placebench.lab.reference.variants import variant

TREES: Final = 12
HEADERS: Final = {
    "X-Auth-Token": "admin",
    "OpenStack-API-Version": "placement 1.39",
    "Content-Type": "application/json",
}
CONNECTIONS: Final = 3
UNCHANGED: Final = "unchanged"


def uuid(number: int) -> str:
    """Of the provider with this id."""
    return str(UUID(int=number))


# A tree: its root 10 t with disk, below it 10 t + 1 and 10 t + 2 with VCPU, below the first 10 t + 3 with VGPU.
# The last tree shares its disk through aggregate 1.
CLOUD: Final = f"""
INSERT INTO resource_classes (id, name) VALUES (10000, 'CUSTOM_UNIT');
INSERT INTO traits (id, name) VALUES (1, 'MISC_SHARES_VIA_AGGREGATE'), (2, 'CUSTOM_A'), (3, 'CUSTOM_B'),
    (4, 'CUSTOM_C'), (5, 'HW_CPU_X86_AVX');
INSERT INTO placement_aggregates (id, uuid)
    SELECT n, ('00000000-0000-0000-0001-00000000000' || n) FROM generate_series(1, 3) n;
INSERT INTO resource_providers (id, uuid, name, generation, root_provider_id, parent_provider_id)
    SELECT 10 * t + p, lpad(to_hex(10 * t + p), 32, '0')::uuid, 'rp' || 10 * t + p, 0, 10 * t,
           CASE p WHEN 0 THEN NULL WHEN 3 THEN 10 * t + 1 ELSE 10 * t END
    FROM generate_series(1, {TREES}) t, generate_series(0, 3) p;
INSERT INTO inventories (resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit, step_size,
                         allocation_ratio)
    SELECT id, CASE id % 10 WHEN 0 THEN 2 WHEN 3 THEN 10 ELSE 0 END, 8, 0, 1, 8, 1, 1 FROM resource_providers;
INSERT INTO resource_provider_traits (resource_provider_id, trait_id)
    SELECT id, 2 + id % 3 FROM resource_providers WHERE id % 4 = 0 UNION VALUES ({TREES}0, 1);
INSERT INTO resource_provider_aggregates (resource_provider_id, aggregate_id)
    SELECT id, 1 + (id / 10) % 3 FROM resource_providers WHERE id % 10 = 0 UNION VALUES ({TREES}0, 1);
SELECT setval('resource_providers_id_seq', 1000)
"""
QUERIES: Final = (
    "resources=VCPU:1",
    "resources=VCPU:2,DISK_GB:2",
    "resources=VCPU:1&resources1=VGPU:1&resources2=VGPU:1&group_policy=none",
    "resources1=VCPU:1&resources2=VCPU:1&group_policy=isolate",
    "resources1=VCPU:1&resources2=VGPU:1&group_policy=none&same_subtree=1,2",
    "resources=VCPU:1&required=in:CUSTOM_A,CUSTOM_B",
    "resources=DISK_GB:1&required=!CUSTOM_C",
    "resources=VCPU:1&root_required=CUSTOM_A",
    "resources=VCPU:1,DISK_GB:1&member_of=00000000-0000-0000-0001-000000000001",
    "resources=DISK_GB:1&member_of=!00000000-0000-0000-0001-000000000002",
    f"resources=VCPU:1&in_tree={uuid(33)}",
    f"resources=VCPU:1&in_tree={uuid(1002)}",
    "resources=CUSTOM_UNIT:1",
    "resources=CUSTOM_NEW_UNIT:1",
    "resources=VCPU:1&required=CUSTOM_NEW",
)


def _statements(listed: str) -> tuple[str, ...]:
    return tuple(listed.split(";"))


# Each is one thing that psql may do; :p is a provider, :q another, :n a small number. Any writing statement may prune.
_OF_STOCK: Final = _statements("""
UPDATE inventories SET total = :n WHERE resource_provider_id = :p;
UPDATE inventories SET reserved = :n, min_unit = 1 + :n % 2 WHERE resource_provider_id = :p;
DELETE FROM inventories WHERE resource_provider_id = :p;
INSERT INTO inventories
    (resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit, step_size, allocation_ratio)
    SELECT id, CASE :n % 3 WHEN 0 THEN 0 WHEN 1 THEN 10 ELSE 10000 END, :n, 0, 1, 8, 1, 1
    FROM resource_providers WHERE id = :p ON CONFLICT DO NOTHING;
UPDATE inventories SET resource_provider_id = :q WHERE resource_provider_id = :p""")
_OF_USE: Final = _statements("""
INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, used)
    SELECT resource_provider_id, 'c', resource_class_id, 1 FROM inventories WHERE resource_provider_id = :p;
DELETE FROM allocations WHERE resource_provider_id = :p;
UPDATE allocations SET used = used + 1 WHERE resource_provider_id = :p;
UPDATE allocations SET resource_provider_id = :q WHERE resource_provider_id = :p;
INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, used)
    SELECT resource_provider_id, 'all', resource_class_id, 1 FROM inventories, generate_series(1, 3);
DELETE FROM allocations WHERE consumer_id = 'all';
SELECT placebench_prune()""")
_OF_NAMES: Final = _statements("""
INSERT INTO resource_provider_traits (resource_provider_id, trait_id)
    SELECT id, 2 + :n % 4 FROM resource_providers WHERE id = :p ON CONFLICT DO NOTHING;
DELETE FROM resource_provider_traits WHERE resource_provider_id = :p;
INSERT INTO resource_provider_aggregates (resource_provider_id, aggregate_id)
    SELECT id, 1 + :n % 4 FROM resource_providers WHERE id = :p ON CONFLICT DO NOTHING;
DELETE FROM resource_provider_aggregates WHERE resource_provider_id = :p;
INSERT INTO placement_aggregates (id, uuid) VALUES (4, '00000000-0000-0000-0001-000000000004') ON CONFLICT DO NOTHING;
DELETE FROM placement_aggregates WHERE id = 4;
INSERT INTO traits (id, name) VALUES (50, 'CUSTOM_NEW') ON CONFLICT DO NOTHING;
DELETE FROM traits WHERE id = 50;
UPDATE traits SET name = CASE name WHEN 'CUSTOM_C' THEN 'CUSTOM_D' ELSE 'CUSTOM_C' END WHERE id = 4;
UPDATE resource_classes SET name = CASE name WHEN 'CUSTOM_UNIT' THEN 'CUSTOM_NEW_UNIT' ELSE 'CUSTOM_UNIT' END
    WHERE id = 10000""")
# Only leaves move and go, so that two transactions never part a provider from its parent's tree.
_OF_PLACES: Final = _statements("""
UPDATE resource_providers SET generation = generation + 1 WHERE id = :p;
UPDATE resource_providers SET root_provider_id = id, parent_provider_id = NULL WHERE id = :p AND id % 10 > 1;
UPDATE resource_providers SET root_provider_id = 10 * (1 + :n), parent_provider_id = 10 * (1 + :n)
    WHERE id = :p AND id % 10 > 1;
DELETE FROM resource_providers WHERE id = :p AND id % 10 > 1
    AND NOT EXISTS (SELECT FROM resource_provider_traits WHERE resource_provider_id = :p);
INSERT INTO resource_providers (id, uuid, name, generation, root_provider_id, parent_provider_id)
    SELECT :p, lpad(to_hex(:p), 32, '0')::uuid, 'rp' || :p, 0, 10 * (:p / 10), 10 * (:p / 10)
    WHERE :p % 10 > 1 ON CONFLICT DO NOTHING;
UPDATE resource_providers SET uuid = reverse(uuid) WHERE id = :p AND id % 10 = 2""")
KINDS: Final = (_OF_STOCK, _OF_USE, _OF_NAMES, _OF_PLACES)


class Meddler:
    """Several transactions at once on one database; what waits for another is rolled back."""

    def __init__(self, url: str, seed: int) -> None:
        self._random = random.Random(seed)
        self._engine = create_engine(url, pool_size=CONNECTIONS + 1)
        self._connections = [self._open() for _ in range(CONNECTIONS)]
        self.done: Counter[str] = Counter()

    def step(self) -> None:
        """One of the transactions does one thing more, or ends."""
        connection = self._random.choice(self._connections)
        try:
            self._go_on(connection)
        except DBAPIError:
            connection.rollback()
            self.done["refused"] += 1

    def settle(self) -> None:
        """Every transaction ends, so that others need not wait."""
        for connection in self._connections:
            connection.commit()

    def empty(self) -> None:
        """TRUNCATE, at once: others wait for it, and older snapshots see it, too, so it is nothing for threads."""
        self.settle()
        with self._engine.begin() as connection:
            connection.execute(text("TRUNCATE allocations"))

    def close(self) -> None:
        """What is open is rolled back."""
        for connection in self._connections:
            connection.close()
        self._engine.dispose()

    def _open(self) -> Connection:
        level = self._random.choice(["READ COMMITTED", "READ COMMITTED", "REPEATABLE READ"])
        return self._engine.connect().execution_options(isolation_level=level)

    def _go_on(self, connection: Connection) -> None:
        way = self._random.choice(["commit"] * 4 + ["do"] * 5 + ["savepoint", "back", "rollback"])
        if way == "commit":
            connection.commit()
        elif way == "rollback":
            connection.rollback()
        elif way == "savepoint":
            connection.execute(text("SAVEPOINT s"))
            self._do(connection)
        elif way == "back":
            connection.execute(text("SAVEPOINT s"))
            self._do(connection)
            connection.execute(text("ROLLBACK TO SAVEPOINT s"))
        else:
            self._do(connection)
        self.done[way] += 1

    def _do(self, connection: Connection) -> None:
        connection.execute(text("SET LOCAL lock_timeout = '2ms'"))
        p, q = (10 * self._random.randint(1, TREES) + self._random.randint(0, 3) for _ in "pq")
        statement = self._random.choice(self._random.choice(KINDS))
        values = {"p": p, "q": q, "n": self._random.randint(0, 8)}
        connection.execute(text(statement), {name: value for name, value in values.items() if f":{name}" in statement})


class Service:
    """Writes through an API, on trees of its own: providers with stock and names, claims, moves, removals."""

    def __init__(self, send: Callable[[str, str, Any], Any], seed: int, first: int = 1000) -> None:
        """send: takes a method, a path and a body, and returns the document. first: of eight numbers for providers."""
        self._send = send
        self._numbers = range(first, first + 8)
        self._random = random.Random(seed)
        self.steps = 0

    def step(self) -> None:
        """One provider more, as a whole, or one claim, or one provider less."""
        number = self._random.choice(self._numbers)
        ways = [self._provide, self._provide, self._claim, self._claim, self._name, self._move, self._remove]
        self._random.choice(ways)(number)
        self.steps += 1

    def settle(self) -> None:
        """Each request of it is over when it was answered."""

    def _provide(self, number: int) -> None:
        parent = self._random.choice([None, uuid(self._random.choice(self._numbers))])
        body = {"name": f"own{number}", "uuid": uuid(number), "parent_provider_uuid": parent}
        self._send("POST", "/resource_providers", body)
        stock = {"VCPU": {"total": 4}, "DISK_GB": {"total": self._random.randint(1, 9)}}
        self._put(number, "inventories", {"inventories": stock})

    def _name(self, number: int) -> None:
        self._put(number, "traits", {"traits": self._random.sample(["CUSTOM_A", "CUSTOM_B", "HW_CPU_X86_AVX"], 2)})
        self._put(number, "aggregates", {"aggregates": [f"00000000-0000-0000-0001-00000000000{number % 3 + 1}"]})

    def _claim(self, number: int) -> None:
        consumer = f"/allocations/{uuid(90_000 + number)}"
        if self._random.random() < 0.3:
            self._send("DELETE", consumer, None)
            return
        wanted = {uuid(number): {"resources": {"VCPU": 1}}}
        body = {"allocations": wanted, "project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
        self._send("PUT", consumer, {**body, "consumer_generation": None})

    def _move(self, number: int) -> None:
        parent = self._random.choice([None, uuid(self._random.choice(self._numbers))])
        body = {"name": f"own{number}", "parent_provider_uuid": parent}
        self._send("PUT", f"/resource_providers/{uuid(number)}", body)

    def _remove(self, number: int) -> None:
        self._send("DELETE", f"/resource_providers/{uuid(number)}", None)

    def _put(self, number: int, what: str, body: dict[str, Any]) -> None:
        shown = self._send("GET", f"/resource_providers/{uuid(number)}", None) or {}
        generation = {"resource_provider_generation": shown.get("generation", 0)}
        self._send("PUT", f"/resource_providers/{uuid(number)}/{what}", {**body, **generation})


def send_to(engine: Engine) -> Callable[[str, str, Any], Any]:
    """What sends to the reference service in this process."""
    client = Client(make_app(engine, "tuned"))

    def send(method: str, path: str, body: Any) -> Any:
        content = None if body is None else orjson.dumps(body)
        response = client.open(path, method=method, data=content, headers=HEADERS)
        assert response.status_code < 500, response.text
        return response.json if response.data else None

    return send


def compare(
    database: Database, query: str, *, naive_first: bool, name: str = "cached", settings: ServiceSettings = DEFAULTS
) -> str | None:
    """What the variant of this name or dedup answers otherwise than naive in one transaction; None if they agree.

    An index is asked before it is brought up to date, too: what it then shows without reading must be naive's.
    """
    request = parse_query(query)
    others = [*([UNCHANGED] if variant(name).algorithm == "cached" else []), name, "dedup"]
    with database.snapshot() as connection:
        bodies = {}
        for each in ("naive", *others) if naive_first else (*others, "naive"):
            try:
                if each == UNCHANGED:
                    found = find_candidates_at_once(connection, request, variant(name).implementations, settings)
                else:
                    found = find_candidates(connection, request, variant(each), settings)
                if found is None:
                    others.remove(UNCHANGED)
                    continue
                bodies[each] = found if isinstance(found, bytes) else b"".join(found)
            except BadRequest as error:
                bodies[each] = type(error).__name__.encode()
        naive, *found_by_others = (parse_response(bodies[each], RULES) for each in ("naive", *others))
        return next(filter(None, (difference(naive, found) for found in found_by_others)), None)


@contextmanager
def meddling(*writers: Any) -> Iterator[Callable[[], None]]:
    """Each writer works in a thread of its own; yields a function to call before a request, which lets each take two
    steps more. What one raises is raised at the end."""
    turns, troubles, over = [threading.Semaphore(2) for _ in writers], [], threading.Event()

    def work(writer: Any, turn: threading.Semaphore) -> None:
        try:
            while turn.acquire() and not over.is_set():
                writer.step()
            writer.settle()  # another one may be waiting for what this one has locked
        except Exception as error:  # noqa: BLE001 — it is raised in the thread that waits
            troubles.append(error)

    def go_on() -> None:
        for turn in turns:
            turn.release(2)

    threads = [threading.Thread(target=work, args=each) for each in zip(writers, turns, strict=True)]
    for thread in threads:
        thread.start()
    try:
        yield go_on
    finally:
        over.set()
        go_on()
        for thread in threads:
            thread.join()
    if troubles:
        raise troubles[0]
