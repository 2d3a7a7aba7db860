"""A cloud of providers to ask for candidates, on PostgreSQL, MariaDB and SQLite: naive and tuned are one Core."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import NAMESPACE_URL, uuid5
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from short_profiles import few_profiled_requests, without_profiles
from sqlalchemy import Engine, Table, create_engine, insert, text, update
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.util import greenlet_spawn

from placebench.errors import ServerError
from placebench.lab.inventory import tables
from placebench.lab.inventory.seeding import migrate, migrate_options
from placebench.lab.reference.api.handlers.candidates import find_candidates
from placebench.lab.reference.api.pipeline import make_app
from placebench.lab.reference.domain.candidates_query import parse_query
from placebench.lab.reference.domain.settings import DEFAULTS, ServiceSettings
from placebench.lab.reference.store.database import Database
from placebench.lab.reference.variants import ALGORITHMS, variant
from placebench.runtime.cache_server import find_cache_server, start_cache_server
from placebench.runtime.mariadb import MariaDbServer
from placebench.runtime.postgres import Server

__all__ = ["few_profiled_requests", "without_profiles"]
CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB", "VGPU")
TRAITS = ("MISC_SHARES_VIA_AGGREGATE", "HW_CPU_X86_AVX", "STORAGE_DISK_SSD", "CUSTOM_RED", "CUSTOM_BLUE")
ASYNCHRONOUS = "dedup+driver:asyncpg"
SHARED_RESPONSES = "dedup+responses:redis"
OWN = "own"  # as the name of a variant: the one that the cloud was made with
SHARES = "MISC_SHARES_VIA_AGGREGATE"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On PostgreSQL naive is tested once: whose response the cloud would give otherwise changes nothing."""
    repeated = [("naive", name) for name in (*ALGORITHMS, SHARED_RESPONSES)]
    items[:] = [item for item in items if _parameters(item, "name", "cloud") not in repeated]


def _parameters(item: pytest.Item, *names: str) -> tuple[object, ...]:
    found = getattr(item, "callspec", None)
    return tuple(found.params.get(name) for name in names) if found else ()


class Cloud:
    """Providers added by name to one database, and the answers it gives, with the names in place of the UUIDs."""

    def __init__(self, engine: Engine, variant_name: str = "tuned", cache_url: str = "") -> None:
        """variant_name: of the variant that answers where a question names none."""
        self._engine = engine
        self._cache_url = cache_url
        self._database = Database(engine)
        self.own = variant_name
        self.dialect = engine.dialect.name
        self._ids: dict[str, int] = {}
        self._roots: dict[str, int] = {}
        self._aggregates: dict[str, int] = {}
        self._unwritten: dict[Table, list[dict[str, Any]]] = {
            tables.resource_classes: [{"id": n, "name": name} for n, name in enumerate(CLASSES)],
            tables.traits: [{"id": n, "name": name} for n, name in enumerate(TRAITS, 1)],
        }

    def add(
        self,
        name: str,
        *,
        parent: str | None = None,
        traits: str = "",
        aggregates: str = "",
        used: Mapping[str, int] | None = None,
        **inventories: int | Mapping[str, float],
    ) -> None:
        """One provider; an inventory is its total, or a mapping of the columns that are not as usual."""
        key = self._ids[name] = len(self._ids) + 1
        root = self._roots[name] = self._roots[parent] if parent else key
        parent_id = self._ids[parent] if parent else None
        place = {"id": key, "root_provider_id": root, "parent_provider_id": parent_id}
        new = [each for each in aggregates.split() if each not in self._aggregates]
        self._aggregates |= {each: len(self._aggregates) + number for number, each in enumerate(new, 1)}
        rows: dict[Table, list[dict[str, Any]]] = {
            tables.resource_providers: [{**place, "uuid": self.uuid(name), "name": name, "generation": 0}],
            tables.inventories: [self._inventory(key, *each) for each in inventories.items()],
            tables.resource_provider_traits: [self._holds(key, trait) for trait in traits.split()],
            tables.placement_aggregates: [{"id": self._aggregates[each], "uuid": self.uuid(each)} for each in new],
            tables.resource_provider_aggregates: [self._joins(key, each) for each in aggregates.split()],
            tables.allocations: [self._uses(key, *each) for each in (used or {}).items()],
        }
        for table, added in rows.items():
            self._unwritten.setdefault(table, []).extend(added)

    def write(self) -> None:
        """Write what was added, in one transaction; done before each question, and for tests that read the tables."""
        if not self._unwritten:
            return
        with self._engine.begin() as connection:
            for table, added in self._unwritten.items():
                if added:
                    connection.execute(insert(table), added)
        self._unwritten.clear()

    def root(self, name: str, *, there: bool) -> None:
        """Take the root from the provider's row, or give it back."""
        self.write()
        of_provider = tables.resource_providers.c.id == self._ids[name]
        with self._engine.begin() as connection:
            change = update(tables.resource_providers).where(of_provider)
            connection.execute(change.values(root_provider_id=self._roots[name] if there else None))

    @staticmethod
    def uuid(name: str) -> str:
        """The UUID of the provider or aggregate of this name."""
        return str(uuid5(NAMESPACE_URL, name))

    def document(self, query: str, name: str = OWN, settings: ServiceSettings = DEFAULTS) -> dict[str, Any]:
        """The document for a query, in which {names} stand for UUIDs; the answer of the variant of this name.

        OWN is tuned on each database, and each of the algorithms on PostgreSQL.
        """
        query = re.sub(r"\{(\w+)\}", lambda found: self.uuid(found[1]), query)
        self.write()
        body = self._body(query, self.own if name == OWN else name, settings).decode()
        for provider in self._ids:
            body = body.replace(self.uuid(provider), provider)
        document: dict[str, Any] = json.loads(body)
        for summary in document["provider_summaries"].values():
            summary["traits"].sort()
        return document

    def candidates(self, query: str, name: str = OWN, settings: ServiceSettings = DEFAULTS) -> list[str]:
        """Each candidate as one line, `cn VCPU:1, ss DISK_GB:10`, sorted."""
        requests = self.document(query, name, settings)["allocation_requests"]
        return sorted(_line(request["allocations"]) for request in requests)

    def mappings(self, query: str, name: str = OWN) -> list[str]:
        """The mappings of each candidate as one line, `=ss _A=cn`, sorted."""
        requests = self.document(query, name)["allocation_requests"]
        return sorted(
            " ".join(f"{suffix}={','.join(sorted(names))}" for suffix, names in sorted(request["mappings"].items()))
            for request in requests
        )

    def _body(self, query: str, name: str, settings: ServiceSettings) -> bytes:
        with self._database.snapshot() as connection:
            settings = replace(settings, cache_url=self._cache_url)
            found = find_candidates(connection, parse_query(query), variant(name), settings)
            return found if isinstance(found, bytes) else b"".join(found)

    @staticmethod
    def _inventory(key: int, name: str, given: int | Mapping[str, float]) -> dict[str, Any]:
        columns = {"total": given} if isinstance(given, int) else given
        usual = {"reserved": 0, "min_unit": 1, "max_unit": 1000, "step_size": 1, "allocation_ratio": 1.0}
        return {"resource_provider_id": key, "resource_class_id": CLASSES.index(name), **usual, **columns}

    @staticmethod
    def _holds(key: int, trait: str) -> dict[str, Any]:
        return {"resource_provider_id": key, "trait_id": TRAITS.index(trait) + 1}

    def _joins(self, key: int, name: str) -> dict[str, Any]:
        return {"resource_provider_id": key, "aggregate_id": self._aggregates[name]}

    def _uses(self, key: int, name: str, used: int) -> dict[str, Any]:
        taken = {"resource_class_id": CLASSES.index(name), "used": used}
        return {"resource_provider_id": key, "consumer_id": self.uuid(f"consumer {key}"), **taken}


class EventLoopCloud(Cloud):
    """The same, where each answer is read by an asynchronous driver in an event loop."""

    def __init__(self, engine: Engine, asynchronous: Engine, loop: asyncio.Runner) -> None:
        super().__init__(engine, ASYNCHRONOUS)
        self._database = Database(asynchronous)
        self._loop = loop

    def _body(self, query: str, name: str, settings: ServiceSettings) -> bytes:
        return self._loop.run(greenlet_spawn(super()._body, query, name, settings))


def _line(allocations: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{provider} {name}:{amount}"
        for provider in sorted(allocations)
        for name, amount in sorted(allocations[provider]["resources"].items())
    )


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An empty database."""
    engine = create_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def api_url(database_url: str) -> Iterator[str]:
    """The reference service over the test's database, one request at a time."""

    class Silent(WSGIRequestHandler):
        def log_message(self, *_: object) -> None: ...

    migrate(database_url)
    engine = create_engine(database_url)
    with make_server("127.0.0.1", 0, make_app(engine, "tuned"), handler_class=Silent) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
    engine.dispose()


@pytest.fixture(scope="session")
def _postgresql(server: Server) -> Iterator[Engine]:
    url = server.create_database("placebench_test_cloud")
    migrate(url)
    migrate_options(url, ("covering_indexes", "usage_totals"))
    engine = create_engine(url)
    yield engine
    engine.dispose()
    server.drop_database("placebench_test_cloud")


@pytest.fixture
def on_postgresql(_postgresql: Engine) -> Engine:
    """The tables, empty, on PostgreSQL; made once for the session, since each test wants only its rows."""
    with _postgresql.begin() as connection:  # TRUNCATE, which makes new files, takes four times as long
        deletes = (str(table.delete()) for table in reversed(tables.metadata.sorted_tables))
        connection.exec_driver_sql("; ".join(deletes))
    return _postgresql


@pytest.fixture(scope="session")
def cache_url() -> Iterator[str]:
    """A cache server of our own, for the session; without the program or its client the tests are skipped."""
    pytest.importorskip("redis", reason="redis is not installed: pip install 'placebench[redis]'")
    try:
        find_cache_server()
    except ServerError as error:
        pytest.skip(str(error))
    running = start_cache_server()
    yield running.url
    running.stop()


@pytest.fixture(scope="session")
def _mariadb(mariadb: MariaDbServer) -> Iterator[Engine]:
    engine = create_engine(mariadb.database("cloud"))
    tables.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def on_mariadb(_mariadb: Engine) -> Engine:
    """The tables, empty, on MariaDB; made once for the session."""
    with _mariadb.begin() as connection:
        connection.execute(text("SET FOREIGN_KEY_CHECKS = 0"))
        for table in tables.metadata.sorted_tables:
            connection.execute(table.delete())
        connection.execute(text("SET FOREIGN_KEY_CHECKS = 1"))
    return _mariadb


@pytest.fixture
def on_sqlite() -> Iterator[Engine]:
    """The tables, empty, in memory."""
    engine = create_engine("sqlite://")
    tables.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def _in_event_loop(_postgresql: Engine) -> Iterator[tuple[Engine, asyncio.Runner]]:
    engine = create_async_engine(variant(ASYNCHRONOUS).worker.driver(_postgresql.url)).sync_engine
    with asyncio.Runner() as loop:
        yield engine, loop
        loop.run(greenlet_spawn(engine.dispose))


@pytest.fixture(params=["on_postgresql", "on_mariadb", "on_sqlite", *ALGORITHMS, ASYNCHRONOUS, SHARED_RESPONSES])
def cloud(request: pytest.FixtureRequest) -> Cloud:
    """A cloud without providers, on each database; for each algorithm, which want PostgreSQL; in an event loop."""
    if request.param == ASYNCHRONOUS:
        return EventLoopCloud(request.getfixturevalue("on_postgresql"), *request.getfixturevalue("_in_event_loop"))
    if request.param == SHARED_RESPONSES:
        return Cloud(request.getfixturevalue("on_postgresql"), request.param, request.getfixturevalue("cache_url"))
    if request.param in ALGORITHMS:
        return Cloud(request.getfixturevalue("on_postgresql"), request.param)
    return Cloud(request.getfixturevalue(request.param))
