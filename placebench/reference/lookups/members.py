"""Who holds a trait, who is in an aggregate, and which trees a sharing provider can serve."""

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from sqlalchemy import select

from placebench import tables
from placebench.reference.lookups.reader import Reader

_Key = TypeVar("_Key")


def holders_of_traits(reader: Reader, trait_ids: Collection[int]) -> Mapping[int, list[int]]:
    """The ids of the providers that hold each trait, by trait id; 1 round trip.

    SELECT trait_id, resource_provider_id FROM resource_provider_traits WHERE trait_id IN (:values)
    """
    holds = tables.resource_provider_traits.c
    statement = select(holds.trait_id, holds.resource_provider_id)
    return _gathered(reader.read_for(statement, holds.trait_id, trait_ids), trait_ids)


def members_of_aggregates(reader: Reader, uuids: Collection[str]) -> Mapping[str, list[int]]:
    """The ids of the providers in each aggregate, by the aggregate's uuid; 1 round trip.

    SELECT a.uuid, m.resource_provider_id FROM resource_provider_aggregates m
    JOIN placement_aggregates a ON a.id = m.aggregate_id WHERE a.uuid IN (:values)
    """
    aggregate, membership = tables.placement_aggregates.c, tables.resource_provider_aggregates.c
    statement = select(aggregate.uuid, membership.resource_provider_id).join(
        tables.resource_provider_aggregates, aggregate.id == membership.aggregate_id
    )
    return _gathered(reader.read_for(statement, aggregate.uuid, uuids), uuids)


def anchors_of_sharing(reader: Reader, sharing_ids: Collection[int]) -> Mapping[int, list[int]]:
    """The roots of the trees that have a provider in an aggregate of each sharing provider, by its id; 1 round trip.

    SELECT DISTINCT shares.resource_provider_id, p.root_provider_id
    FROM resource_provider_aggregates shares
    JOIN resource_provider_aggregates member ON member.aggregate_id = shares.aggregate_id
    JOIN resource_providers p ON p.id = member.resource_provider_id
    WHERE p.root_provider_id IS NOT NULL AND shares.resource_provider_id IN (:values)
    """
    shares, member = (tables.resource_provider_aggregates.alias(name) for name in ("shares", "member"))
    own = reader.providers.c
    statement = (
        select(shares.c.resource_provider_id, own.root_provider_id)
        .distinct()
        .join(member, member.c.aggregate_id == shares.c.aggregate_id)
        .join(reader.providers, own.id == member.c.resource_provider_id)
        .where(own.root_provider_id.is_not(None))
    )
    return _gathered(reader.read_for(statement, shares.c.resource_provider_id, sharing_ids), sharing_ids)


def _gathered(pairs: Iterable[tuple[_Key, int]], keys: Iterable[_Key]) -> Mapping[_Key, list[int]]:
    found: dict[_Key, list[int]] = {key: [] for key in keys}
    for key, member in pairs:
        found[key].append(member)
    return found
