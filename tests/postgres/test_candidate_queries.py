"""SELECTs for candidates and providers on PostgreSQL: what they return, and how many rows PostgreSQL expects."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Select, create_engine, select, text, update
from sqlalchemy.dialects import postgresql

from placebench.lab.inventory.seeding import find_topology, seed
from placebench.lab.inventory.tables import inventories, resource_providers
from placebench.lab.reference.store.candidate_queries import (
    AMOUNTS,
    Reader,
    read_catalog,
    read_providers_with_capacity,
    read_root,
)
from placebench.lab.reference.store.provider_filters import conditions, parse_filters
from placebench.lab.reference.store.queries import ESTIMATE
from placebench.lab.reference.variants import variant
from placebench.runtime.postgres import Server

HOSTS = 200


@pytest.fixture(scope="module")
def hosts(server: Server) -> Iterator[Connection]:
    """Flat hosts, each with three classes in steps of 1."""
    url = server.create_database("placebench_test_hosts")
    seed(find_topology("flat-perfload", trees=HOSTS), url)
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("ANALYZE"))
    with engine.connect() as connection:
        yield connection
    engine.dispose()
    server.drop_database("placebench_test_hosts")


@pytest.mark.parametrize("name", ["naive", "tuned"])
def test_providers_with_capacity_are_read_from_one_tree_or_all(hosts: Connection, name: str) -> None:
    """Each host has capacity for a processor, and none for a million; the row of one tree is that of its host."""
    use = variant(name).implementations
    reader = Reader(hosts, use.rows, use.binding, use.roots, use.totals, use.divides)
    class_id = read_catalog(reader).class_ids["VCPU"]
    root_id = read_root(reader, find_topology("flat-perfload", trees=HOSTS).uuids(7)[0])

    every = read_providers_with_capacity(reader, class_id, 1, with_amounts=False, root_id=None)
    only = read_providers_with_capacity(reader, class_id, 1, with_amounts=True, root_id=root_id)
    none = read_providers_with_capacity(reader, class_id, 1_000_000, with_amounts=False, root_id=None)

    assert len(every.roots) == HOSTS
    assert every.roots[root_id] == root_id
    assert only.roots == {root_id: root_id}
    assert [len(row[AMOUNTS]) for row in only.rows] == [5]
    assert none.roots == {}


def test_postgresql_expects_steps_of_one_to_divide_all_amounts(hosts: Connection) -> None:
    """Of 600 inventories in steps of 1 it expects 3 to have a multiple in the baseline, and all in the alternative."""
    own = inventories.c

    def expected(name: str) -> int:
        divides = {each.name: each.value for each in ESTIMATE.implementations}[name]
        return expected_rows(hosts, select(own.id).where(divides(own.step_size, own.max_unit * 0 + 6)))

    assert [expected("remainder"), expected("one_or_remainder")] == [3, 600]


def test_postgresql_expects_more_than_one_host_with_capacity_in_a_list_of_providers(hosts: Connection) -> None:
    """All 200 have it, and PostgreSQL expects a ninth of them; of a remainder alone it would expect a single one."""
    filters = conditions(hosts, parse_filters({"resources": ["VCPU:1"]}))
    statement = select(resource_providers.c.id).where(*filters)

    assert len(hosts.execute(statement).all()) == HOSTS
    assert expected_rows(hosts, statement) > HOSTS / 10


def test_a_list_of_providers_has_those_with_a_step_that_divides_the_amount(hosts: Connection) -> None:
    """Of the steps 1 to 4, each of a quarter of the hosts, three divide 6, three divide 4, and one divides 1."""

    def listed(amount: int) -> int:
        filters = conditions(hosts, parse_filters({"resources": [f"VCPU:{amount}"]}))
        return len(hosts.execute(select(resource_providers.c.id).where(*filters)).all())

    with hosts.begin_nested() as undone:
        hosts.execute(update(inventories).values(step_size=1 + inventories.c.resource_provider_id % 4))
        found = [listed(6), listed(4), listed(1)]
        undone.rollback()

    assert found == [150, 150, 50]


def expected_rows(connection: Connection, statement: Select[Any]) -> int:
    """Return the number of rows that PostgreSQL expects."""
    sql = statement.compile(dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True})
    found: int = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {sql}").scalar_one()[0]["Plan"]["Plan Rows"]
    return found
