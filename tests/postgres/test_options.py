"""What some variants want of their database: optional revisions, which change no row that anybody else reads."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, create_engine, text

from placebench.errors import DatabaseError
from placebench.lab.inventory.seeding import data_digest, find_topology, migrate_options, seed
from placebench.lab.inventory.seeding.connection import applied_options
from placebench.runtime.postgres import Server

BOTH = ("covering_indexes", "usage_totals")
TOPOLOGY = find_topology("nested-perfload", trees=3)
SUMS = """SELECT resource_provider_id, resource_class_id, sum(used) FROM allocations GROUP BY 1, 2 ORDER BY 1, 2"""
KEPT = """SELECT resource_provider_id, resource_class_id, used FROM placebench_usages WHERE used <> 0 ORDER BY 1, 2"""


@pytest.fixture(scope="module")
def url(server: Server) -> Iterator[str]:
    """Three nested trees and one allocation, then both optional revisions, twice."""
    url = server.create_database("placebench_test_options")
    seed(TOPOLOGY, url)
    engine = create_engine(url)
    with engine.begin() as connection:
        allocate(connection, provider=1, used=3)
    engine.dispose()
    migrate_options(url, BOTH)
    migrate_options(url, BOTH)
    yield url
    server.drop_database("placebench_test_options")


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    """A transaction that is rolled back."""
    engine = create_engine(url)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def allocate(connection: Connection, *, provider: int, used: int) -> None:
    """One allocation of VCPU."""
    insert = (
        "INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, used) VALUES (:p, 'c', 0, :u)"
    )
    connection.execute(text(insert), {"p": provider, "u": used})


def test_the_triggers_keep_what_a_sum_would_say(connection: Connection) -> None:
    """Inserted, moved to another provider, lessened, deleted, and truncated."""
    allocate(connection, provider=1, used=4)
    allocate(connection, provider=2, used=5)
    for change in (
        "UPDATE allocations SET used = used - 1 WHERE resource_provider_id = 2",
        "UPDATE allocations SET resource_provider_id = 3 WHERE used = 3",
        "DELETE FROM allocations WHERE used = 4 AND resource_provider_id = 2",
    ):
        connection.execute(text(change))
        sums = connection.execute(text(SUMS)).all()
        assert sums
        assert sums == connection.execute(text(KEPT)).all()
    connection.execute(text("TRUNCATE allocations"))

    assert connection.execute(text(KEPT)).all() == []


def test_what_stood_there_before_is_counted(connection: Connection) -> None:
    """The revision fills its table from the allocations that it finds."""
    assert connection.execute(text(KEPT)).all() == [(1, 0, 3)]


def test_a_covering_index_answers_without_its_table(connection: Connection) -> None:
    """Providers with room for a class, and whole trees by their roots."""
    connection.execute(text("SET enable_seqscan = off"))
    connection.execute(text("SET enable_bitmapscan = off"))
    rooms = "SELECT resource_provider_id, total, reserved, max_unit FROM inventories WHERE resource_class_id = 0"
    trees = "SELECT id, uuid, parent_provider_id FROM resource_providers WHERE root_provider_id = 1"
    plans = [connection.scalars(text(f"EXPLAIN {query}")).all()[0] for query in (rooms, trees)]

    assert [plan.split("  ")[0] for plan in plans] == [
        "Index Only Scan using placebench_rooms_covering_idx on inventories",
        "Index Only Scan using placebench_trees_covering_idx on resource_providers",
    ]


def test_options_are_no_part_of_the_content(url: str, server: Server) -> None:
    """The digest of what was seeded, with the revisions and without."""
    plain = server.create_database("placebench_test_without_options")
    receipt = seed(TOPOLOGY, plain)
    migrate_options(plain, BOTH)
    found, there = data_digest(plain), applied_options(plain)
    server.drop_database("placebench_test_without_options")

    assert (found, there) == (receipt.digest, {"covering_indexes", "usage_totals"})


def test_there_is_no_such_option(url: str) -> None:
    """One line with its name."""
    with pytest.raises(DatabaseError, match="Can't locate revision identified by 'faster_disks'"):
        migrate_options(url, ["faster_disks"])
