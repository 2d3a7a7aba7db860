"""Allocations written: what consumers are to have replaces what they had, if it all fits.

The key piece is `write`; `reshaping.py` takes its parts. It takes locks in one order (consumers by uuid, providers by
id, then what it adds: projects, users, types and consumers), so that claimants wait for each other and do not deadlock;
with the providers held, what is used of them stays until the commit. `claims_at_once.py` keeps to the same order.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, case, delete, func, insert, select

from placebench.reference.problems import BadRequest, Conflict
from placebench.reference.store import consumers, resource_classes
from placebench.reference.store.consumers import Claim
from placebench.reference.store.providers import Locked, bump
from placebench.reference.store.room import Room
from placebench.tables import allocations, inventories, resource_providers

Key = tuple[int, int]  # the ids of a provider and of a resource class


@dataclass(frozen=True, slots=True)
class Amount:
    """One allocation to be: so much of a class of a provider."""

    consumer: str
    provider: str
    resource_class: str
    key: Key
    amount: int

    @property
    def where(self) -> str:
        """For messages: "VCPU on 4e8e5957-649f-477b-9e5b-f1f75b21c03c"."""
        return f"{self.resource_class} on {self.provider}"


def write(connection: Connection, claims: Sequence[Claim]) -> None:
    """Replace the allocations of the claims' consumers, and move on the generations of consumers and providers.

    Raises ConcurrentUpdate for another generation of a consumer, BadRequest for an unknown provider or class,
    Conflict if an amount does not fit. About ten statements and one for each consumer and provider.
    """
    present = consumers.hold(connection, claims)
    held = hold(connection, claims)
    consumers.settle(connection, claims, present)
    allocate(connection, claims, held)


def hold(connection: Connection, claims: Sequence[Claim], others: Collection[str] = ()) -> dict[str, Locked]:
    """What the claims touch and these other providers in their newest state, held until the commit.

    BadRequest if one that is named is unknown. One statement, or two:

    SELECT id, uuid, generation, root_provider_id FROM resource_providers WHERE uuid IN :uuids ORDER BY id FOR UPDATE
    """
    own = resource_providers.c
    query = select(own.id, own.uuid, own.generation, own.root_provider_id)
    uuids = touched(connection, claims).union(others)
    rows = connection.execute(query.where(own.uuid.in_(uuids)).order_by(own.id).with_for_update()).all()
    there = {row.uuid for row in rows if row.root_provider_id is not None}
    if missing := sorted(named(claims).union(others) - there):
        raise BadRequest(f"allocations: no resource provider {', '.join(missing)}")
    return {row.uuid: Locked(row.id, row.uuid, row.generation) for row in rows}


def named(claims: Sequence[Claim]) -> set[str]:
    """The providers that the claims name."""
    return {provider for claim in claims for provider in claim.allocations}


def touched(connection: Connection, claims: Sequence[Claim]) -> set[str]:
    """The providers that the claims name, and those that a consumer who is to have nothing has something of.

    SELECT DISTINCT p.uuid FROM resource_providers p JOIN allocations a ON a.resource_provider_id = p.id
    WHERE a.consumer_id IN :emptied
    """
    emptied = [claim.consumer for claim in claims if not claim.allocations]
    if not emptied:
        return named(claims)
    joined = resource_providers.join(allocations, allocations.c.resource_provider_id == resource_providers.c.id)
    left = select(resource_providers.c.uuid).distinct().select_from(joined)
    return named(claims) | set(connection.scalars(left.where(allocations.c.consumer_id.in_(emptied))))


def allocate(connection: Connection, claims: Sequence[Claim], held: Mapping[str, Locked]) -> dict[str, Locked]:
    """Write the allocations; the providers that were touched, with their next generations.

    held: all that `touched` names. Raises BadRequest for an unknown class, Conflict if an amount does not fit.
    """
    moved_on = {uuid: held[uuid] for uuid in touched(connection, claims)}
    claimants = [claim.consumer for claim in claims]
    wanted = list(_amounts(connection, claims, held))
    check(wanted, _rooms(connection, wanted, claimants))
    connection.execute(delete(allocations).where(allocations.c.consumer_id.in_(claimants)))
    if rows := [_row(each) for each in wanted]:
        connection.execute(insert(allocations), rows)
    return {uuid: replace(each, generation=bump(connection, each)) for uuid, each in moved_on.items()}


def _row(each: Amount) -> dict[str, str | int]:
    provider_id, class_id = each.key
    ids = {"resource_provider_id": provider_id, "resource_class_id": class_id}
    return {"consumer_id": each.consumer, "used": each.amount, **ids}


def _amounts(connection: Connection, claims: Sequence[Claim], held: Mapping[str, Locked]) -> Iterator[Amount]:
    """Each amount with the ids that it is stored under; BadRequest for an unknown class."""
    names = {name for claim in claims for resources in claim.allocations.values() for name in resources}
    ids = resource_classes.held_ids(connection, names) if names else {}
    for claim in claims:
        for provider, resources in claim.allocations.items():
            for name, amount in resources.items():
                yield Amount(claim.consumer, provider, name, (held[provider].id, ids[name]), amount)


def check(wanted: Sequence[Amount], rooms: Mapping[Key, Room]) -> None:
    """Conflict at the first amount that has no inventory or does not fit, alone or with the others."""
    sums: Counter[Key] = Counter()
    for each in wanted:
        if each.key not in rooms:
            raise Conflict(f"resource provider {each.provider} has no inventory of {each.resource_class}")
        rooms[each.key].check_unit(each.amount)
        sums[each.key] += each.amount
    for key, amount in sums.items():
        rooms[key].check_sum(amount)


def _rooms(connection: Connection, wanted: Sequence[Amount], claimants: Collection[str]) -> dict[Key, Room]:
    """The inventories that the amounts are taken from.

    SELECT resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit, step_size, allocation_ratio
    FROM inventories WHERE resource_provider_id IN :providers AND resource_class_id IN :classes
    """
    names = {each.key: each.where for each in wanted}
    used = _used(connection, names, claimants)
    own = inventories.c
    query = select(
        own.resource_provider_id,
        own.resource_class_id,
        own.total,
        own.reserved,
        own.min_unit,
        own.max_unit,
        own.step_size,
        own.allocation_ratio,
    )
    providers, classes = {key[0] for key in names}, {key[1] for key in names}
    rows = connection.execute(
        query.where(own.resource_provider_id.in_(providers), own.resource_class_id.in_(classes))
    ).all()
    keyed = {(row[0], row[1]): row[2:] for row in rows}
    return {key: Room(names[key], *keyed[key], *used.get(key, (0, 0))) for key in names.keys() & keyed.keys()}


def _used(connection: Connection, keys: Collection[Key], claimants: Collection[str]) -> dict[Key, tuple[int, int]]:
    """What is used of each, by all and by others than the claimants.

    SELECT resource_provider_id, resource_class_id, sum(used),
    sum(CASE WHEN consumer_id IN :claimants THEN 0 ELSE used END) FROM allocations
    WHERE resource_provider_id IN :providers AND resource_class_id IN :classes
    GROUP BY resource_provider_id, resource_class_id
    """
    own = allocations.c
    by_others = case((own.consumer_id.in_(claimants), 0), else_=own.used)
    query = (
        select(own.resource_provider_id, own.resource_class_id, func.sum(own.used), func.sum(by_others))
        .where(own.resource_provider_id.in_({key[0] for key in keys}))
        .where(own.resource_class_id.in_({key[1] for key in keys}))
        .group_by(own.resource_provider_id, own.resource_class_id)
    )
    return {(row[0], row[1]): (int(row[2]), int(row[3])) for row in connection.execute(query)}
