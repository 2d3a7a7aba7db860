"""Allocations for what was seeded: so many consumers with 1 DISK_GB each, spread over all providers that have it.

The key piece is `claim`. The topologies have no allocations; what sums them shows only where there are some.
"""

from sqlalchemy import Connection, Table, func, insert, select, text

from placebench import tables
from placebench.errors import SeedError
from placebench.seeding.content import content
from placebench.seeding.database import connected

_OWNER = "placebench"
# Consumer n takes from the provider in place n modulo their number, in the order of their uuids: the same everywhere.
_STOCKS = """
SELECT i.resource_provider_id, i.resource_class_id, floor((i.total - i.reserved) * i.allocation_ratio) AS room,
       row_number() OVER (ORDER BY p.uuid) - 1 AS place, count(*) OVER () AS stocks
FROM inventories i JOIN resource_providers p ON p.id = i.resource_provider_id
JOIN resource_classes c ON c.id = i.resource_class_id WHERE c.name = 'DISK_GB'
"""
_CONSUMERS = """
INSERT INTO consumers (uuid, project_id, user_id, generation)
SELECT md5('placebench claim ' || n)::uuid::text, :project, :user, 1 FROM generate_series(0, :claims - 1) AS n
"""
_ALLOCATIONS = f"""
INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, used)
SELECT s.resource_provider_id, md5('placebench claim ' || n)::uuid::text, s.resource_class_id, 1
FROM generate_series(0, :claims - 1) AS n JOIN ({_STOCKS}) AS s ON s.place = n % s.stocks
"""


def claim(url: str, claims: int) -> str:
    """Add *claims* consumers with an allocation each to a seeded database without any; returns its digest then.

    PostgreSQL only; 6 round trips. Raises SeedError when there is not so much room, or somebody has some already.
    """
    with connected(url) as connection:
        with connection.begin():
            _check_room(connection, claims)
            owners = {"project": _owner(connection, tables.projects), "user": _owner(connection, tables.users)}
            connection.execute(text(_CONSUMERS), {"claims": claims, **owners})
            connection.execute(text(_ALLOCATIONS), {"claims": claims})
            digest = content(connection).digest
        connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM ANALYZE"))
    return digest


def _check_room(connection: Connection, claims: int) -> None:
    least, stocks = connection.execute(text(f"SELECT min(room), count(*) FROM ({_STOCKS}) AS s")).one()
    room = int(least or 0) * stocks
    if claims > room:
        raise SeedError(f"{claims} claims of 1 DISK_GB were asked for, and {stocks} providers have room for {room}")
    if connection.scalar(select(func.count()).select_from(tables.consumers)):
        raise SeedError("the seeded data has consumers already: give claims or a fill, and not both")


def _owner(connection: Connection, table: Table) -> int:
    """The id of our row in the table of projects or of users, which is made here."""
    made = insert(table).values(external_id=_OWNER).returning(table.c.id)
    return int(connection.execute(made).scalar_one())
