"""The standard traits and resource classes, added where they are missing, as Placement does when it starts."""

from collections.abc import Iterator

import os_resource_classes
import os_traits
import pytest
from sqlalchemy import Connection, create_engine, insert, select

from placebench import tables
from placebench.seeding import add_standard_names


@pytest.fixture
def connection() -> Iterator[Connection]:
    """The tables, empty."""
    engine = create_engine("sqlite://")
    tables.metadata.create_all(engine)
    with engine.connect() as connected:
        yield connected
    engine.dispose()


def names(connection: Connection) -> tuple[dict[str, int], dict[str, int]]:
    """The ids of all classes, and of all traits."""
    both = (tables.resource_classes, tables.traits)
    classes, traits = (dict(connection.execute(select(table.c.name, table.c.id)).all()) for table in both)
    return classes, traits


def test_all_that_the_standard_libraries_name_is_there(connection: Connection) -> None:
    """Every trait, and every class under its place as id: VCPU is 0, PCPU 14, the newest so far 20."""
    add_standard_names(connection)

    classes, traits = names(connection)
    assert set(os_traits.get_traits()) == traits.keys()
    assert set(os_resource_classes.STANDARDS) == classes.keys()
    assert (0, 14, 20) == tuple(classes[name] for name in ("VCPU", "PCPU", "NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC"))


def test_every_row_says_when_it_was_made(connection: Connection) -> None:
    """Rows with a time and rows without in one table make Placement's GET /resource_classes and /traits a 500."""
    add_standard_names(connection)

    for table in (tables.resource_classes, tables.traits):
        assert None not in connection.scalars(select(table.c.created_at)).all()


def test_a_second_time_adds_nothing(connection: Connection) -> None:
    """The same rows with the same ids."""
    add_standard_names(connection)
    before = names(connection)
    add_standard_names(connection)

    assert before == names(connection)


def test_what_is_there_stays(connection: Connection) -> None:
    """A trait under an id that another program gave it, and what users made; the others come beside them."""
    connection.execute(insert(tables.traits), [{"id": 7, "name": "HW_CPU_X86_AVX2"}, {"id": 8, "name": "CUSTOM_RED"}])
    connection.execute(insert(tables.resource_classes), [{"id": 0, "name": "VCPU"}, {"id": 10_000, "name": "CUSTOM_A"}])
    add_standard_names(connection)

    classes, traits = names(connection)
    assert (7, 8) == (traits["HW_CPU_X86_AVX2"], traits["CUSTOM_RED"])
    assert len(os_traits.get_traits()) + 1 == len(traits)
    assert (0, 1, 10_000) == (classes["VCPU"], classes["MEMORY_MB"], classes["CUSTOM_A"])
    assert len(os_resource_classes.STANDARDS) + 1 == len(classes)


def test_traits_that_the_library_does_not_have_may_be_named_beside_it(connection: Connection) -> None:
    """A topology may be newer than the installed os-traits."""
    add_standard_names(connection, ["HW_OF_TOMORROW"])

    assert {*os_traits.get_traits(), "HW_OF_TOMORROW"} == names(connection)[1].keys()
