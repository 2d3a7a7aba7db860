"""Aggregates: groups of providers, known by a UUID alone. They are made on the way and never deleted."""

from collections.abc import Collection

from sqlalchemy import Connection, delete, insert, select

from placebench.reference.store.providers import Locked, bump
from placebench.tables import placement_aggregates, resource_provider_aggregates


def of_provider(connection: Connection, provider_id: int) -> list[str]:
    """The provider's aggregates.

    SELECT uuid FROM placement_aggregates JOIN resource_provider_aggregates ON aggregate_id = placement_aggregates.id
    WHERE resource_provider_id = :provider_id ORDER BY uuid
    """
    own, member = placement_aggregates.c, resource_provider_aggregates.c
    joined = placement_aggregates.join(resource_provider_aggregates, member.aggregate_id == own.id)
    query = select(own.uuid).select_from(joined).where(member.resource_provider_id == provider_id)
    return list(connection.scalars(query.order_by(own.uuid)))


def replace(connection: Connection, provider: Locked, uuids: Collection[str]) -> int:
    """Put the provider into just these aggregates; its generation, moved on in any case. Three to six statements."""
    member = resource_provider_aggregates.c
    connection.execute(delete(resource_provider_aggregates).where(member.resource_provider_id == provider.id))
    if ids := _ensured(connection, uuids):
        rows = [{"resource_provider_id": provider.id, "aggregate_id": aggregate} for aggregate in sorted(ids)]
        connection.execute(insert(resource_provider_aggregates), rows)
    return bump(connection, provider)


def _ensured(connection: Connection, uuids: Collection[str]) -> set[int]:
    """The ids of these aggregates; the missing ones are made.

    SELECT uuid, id FROM placement_aggregates WHERE uuid IN :uuids
    """
    own = placement_aggregates.c
    query = select(own.uuid, own.id).where(own.uuid.in_(uuids))
    known = {row.uuid: row.id for row in connection.execute(query)}
    if missing := sorted(set(uuids) - set(known)):
        connection.execute(insert(placement_aggregates), [{"uuid": uuid} for uuid in missing])
        known = {row.uuid: row.id for row in connection.execute(query)}
    return set(known.values())
