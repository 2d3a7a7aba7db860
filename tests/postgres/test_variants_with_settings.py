"""Variants with a PostgreSQL of their own, and ways of the deployment, on real servers."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from werkzeug.test import Client

from placebench.compare.keep.records import Block, WirePass
from placebench.compare.keep.run_folder import claim_folder
from placebench.compare.measure.databases import VariantServers, check_settings
from placebench.compare.measure.prepared_variants import PreparedVariants
from placebench.compare.measure.replicate import make_replicate
from placebench.compare.measure.replicate_plan import plan_replicate
from placebench.compare.what.variants import Variant, VariantTable, VariantTables, read_variant
from placebench.errors import DatabaseError, PlacebenchError
from placebench.lab.inventory.seeding import data_digest, find_topology, migrate_options, seed
from placebench.lab.placement_api import placement_workload
from placebench.lab.reference.api.pipeline import make_app
from placebench.lab.reference.deployment import make_engine
from placebench.runtime.postgres import Server

TOPOLOGY = find_topology("nested-perfload", trees=2, seed=1)
WORKLOAD = placement_workload(TOPOLOGY.request)
SETTINGS = VariantTable(
    variant="tuned+totals:by_trigger+driver:psycopg3", pg={"work_mem": "64kB", "enable_hashagg": False}
)
VARIANT = read_variant("own", VariantTables({"own": SETTINGS}))
HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}


def own(settings: dict[str, str | int | float | bool]) -> Variant:
    """tuned with these settings."""
    return read_variant("mine", VariantTables({"mine": VariantTable(variant="tuned", pg=settings)}))


@pytest.fixture(scope="module")
def private(server: Server) -> Iterator[Server]:
    """The server that the variant's settings start; a named server of the session is not ours to ask."""
    if server.kind == "named":
        pytest.skip("settings are for a server of ours")
    with VariantServers(server) as servers:
        yield servers.of(VARIANT)


@pytest.fixture(scope="module")
def url(private: Server) -> str:
    """The variant's database on its own server."""
    url = private.create_database("placebench_variant")
    seed(TOPOLOGY, url)
    migrate_options(url, VARIANT.revisions)
    return url


@pytest.fixture(scope="module")
def blocks(url: str, tmp_path_factory: pytest.TempPathFactory) -> list[Block]:
    """One replicate of one variant."""
    folder = claim_folder(tmp_path_factory.mktemp("runs") / "own")
    variants = PreparedVariants(
        (VARIANT,), {VARIANT.name: url}, placement_workload(TOPOLOGY.request), folder, block_s=0.02
    )
    return make_replicate(variants, plan_replicate([VARIANT.name], 0, rounds=1, seed=1))


def test_the_server_has_the_settings(private: Server, server: Server, url: str) -> None:
    """And the session's own server has them not; variants with the same settings share one."""
    engine = create_engine(url)
    with engine.connect() as connection:
        found = [connection.scalar(text(f"SHOW {name}")) for name in ("work_mem", "enable_hashagg", "fsync")]
    engine.dispose()
    with VariantServers(server) as servers:
        shared = servers.of(read_variant("tuned"))

    assert found == ["64kB", "off", "off"]
    assert shared is server
    assert private.url != server.url


def test_the_content_is_the_same(url: str, server: Server) -> None:
    """The same digest on both servers, with the table that a trigger keeps and without."""
    other = server.create_database("placebench_variant_shared")
    receipt = seed(TOPOLOGY, other)
    server.drop_database("placebench_variant_shared")

    assert data_digest(url) == receipt.digest


def test_the_backends_of_its_own_server_are_measured(blocks: list[Block]) -> None:
    """CPU of every block, though the database lies on another server than the comparison's."""
    assert [block.invalid for block in blocks if block.invalid and "load" not in block.invalid] == []
    assert all(block.cpu_s and block.cpu_s > 0 for block in blocks)
    assert blocks[0].variant == "own"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"work_memory": "64kB"},
            'pg:work_memory=64kB: PostgreSQL .* says unrecognized configuration parameter "w',
        ),
        ({"work_mem": "much"}, 'pg:work_mem=much: PostgreSQL .* says invalid value for parameter "work_mem": "mu'),
        ({"port": 5432}, "pg:port in the variant mine: placebench needs that for itself"),
    ],
)
def test_what_postgresql_does_not_take(
    private: Server, settings: dict[str, str | int | float | bool], message: str
) -> None:
    """One line, before anything is made."""
    with pytest.raises(PlacebenchError, match=message) as caught:
        check_settings([own(settings)], private)

    assert "\n" not in str(caught.value)


def test_jit_is_refused_where_it_would_do_nothing(private: Server) -> None:
    """PostgreSQL takes jit = on without LLVM too, and compiles nothing."""
    engine = create_engine(private.url)
    with engine.connect() as connection:
        connection.execute(text("SET jit = on"))
        compiles = connection.scalar(text("SELECT pg_jit_available()"))
    engine.dispose()

    with nullcontext() if compiles else pytest.raises(DatabaseError, match=r"pg:jit=on: .* says it is built without"):
        check_settings([own({"jit": True})], private)


def test_a_server_that_does_not_start_with_them(server: Server) -> None:
    """Each setting by itself is allowed, and together with the others it is not."""
    if server.kind == "named":
        pytest.skip("settings are for a server of ours")
    with (
        VariantServers(server) as servers,
        pytest.raises(DatabaseError, match=r"^mine: .*not start: ") as no,
    ):
        servers.of(own({"max_connections": 1}))

    assert "\n" not in str(no.value)


def test_a_named_server_is_not_restarted(server: Server) -> None:
    """One line that says what to leave away."""
    with pytest.raises(PlacebenchError, match="placebench sets none on a server that you named: leave --db"):
        check_settings([VARIANT], Server(server.url, "named"))


@contextmanager
def client(url: str, variant: str) -> Iterator[Client]:
    """The service with the variant's driver and pool."""
    engine = make_engine({"PLACEBENCH_DATABASE_URL": url, "PLACEBENCH_VARIANT": variant})
    try:
        yield Client(make_app(engine, variant))
    finally:
        engine.dispose()


WAYS = ("driver:psycopg3", "pool:none", "pool:1", "ping:before_use", "transaction:autocommit")


@pytest.mark.parametrize("way", WAYS)
def test_a_deployment_answers_and_writes_as_any_other(url: str, way: str) -> None:
    """A request of one statement, candidates, a write and its repetition, which is a conflict."""
    asked = ("/resource_classes", "/traits", TOPOLOGY.request)
    name = f"CUSTOM_{way.replace(':', '_').upper()}"
    with client(url, "tuned") as plain, client(url, f"tuned+{way}") as other:
        expected = [plain.get(path, headers=HEADERS).data for path in asked]
        answers = [other.get(path, headers=HEADERS).data for path in asked]
        made = [
            other.post("/resource_classes", json={"name": name}, headers=HEADERS).status_code,
            other.post("/resource_classes", json={"name": name}, headers=HEADERS).status_code,
            other.delete(f"/resource_classes/{name}", headers=HEADERS).status_code,
        ]

    assert expected == answers
    assert made == [201, 409, 204]


OVERFLOWING = """
import os
from sqlalchemy import create_engine, text

engine = create_engine(os.environ["SQLALCHEMY_DATABASE_URL"], pool_size=1)


def app(environ, start_response):
    with engine.connect() as first:
        first.execute(text("SELECT 1"))
        if environ["PATH_INFO"] == "/two":
            with engine.connect() as second:
                second.execute(text("SELECT count(*) FROM pg_class"))
    start_response("200 OK", [("Content-Type", "application/json")])
    return [b"{}"]
"""


@pytest.mark.parametrize(("request_path", "overflows"), [("/one", False), ("/two", True)])
def test_a_connection_beyond_the_pool_is_not_overlooked(
    server: Server, database_url: str, tmp_path: Path, request_path: str, overflows: bool
) -> None:
    """The same backend stands there before and after; what the other ones took between is in the server's CPU."""
    if server.version_number < 150000:
        pytest.skip("before PostgreSQL 15 nobody tells of sessions that came and went")
    (tmp_path / "overflowing.py").write_text(OVERFLOWING)
    variables = {"SQLALCHEMY_DATABASE_URL": "{database_url}", "PYTHONPATH": str(tmp_path)}
    variant = Variant("own", module="overflowing:app", variables=variables, request=request_path, ours=False)
    variants = PreparedVariants(
        (variant,),
        {"own": database_url},
        placement_workload(request_path),
        claim_folder(tmp_path / "run"),
        block_s=0.02,
    )
    blocks = make_replicate(variants, plan_replicate(["own"], 0, rounds=1, seed=1))

    assert all(block.cpu_s for block in blocks)
    assert ["reconnected" in block.counters for block in blocks] == [overflows] * 2


@pytest.mark.long
def test_a_variant_that_connects_anew_has_the_cpu_of_the_server(database_url: str, tmp_path: Path) -> None:
    """Its backends come and go unseen, and their CPU is in that of the server, which says so: never too little."""
    seed(TOPOLOGY, database_url)
    variant = replace(VARIANT, name="anew", variables={"PLACEBENCH_VARIANT": "tuned+pool:none"})
    folder = claim_folder(tmp_path / "run")
    WirePass("anew", *([1.0] for _ in range(6))).save(folder / "wire-anew.json")
    variants = PreparedVariants(
        (variant,), {"anew": database_url}, placement_workload(TOPOLOGY.request), folder, block_s=0.02
    )

    blocks = make_replicate(variants, plan_replicate(["anew"], 0, rounds=1, seed=1))

    assert all(block.cpu_s for block in blocks)
    assert {block.counters.get("reconnected") for block in blocks} == {1.0}
