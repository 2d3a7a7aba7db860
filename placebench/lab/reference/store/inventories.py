"""The SQL of inventories (how much of a resource class a provider has) and of the reshaper, which changes several."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select, update

from placebench.lab.inventory.tables import allocations, inventories, resource_providers
from placebench.lab.inventory.tables import resource_classes as classes
from placebench.lab.reference.domain.problems import BadRequest, ConcurrentUpdate, Conflict, NotFound
from placebench.lab.reference.store import claims, consumers
from placebench.lab.reference.store.consumers import ConsumerClaim
from placebench.lab.reference.store.name_tables import RESOURCE_CLASSES
from placebench.lab.reference.store.providers import (
    LockedProvider,
    advance_generation,
    check_generation,
    find_providers,
    known_provider,
    select_with_inventories,
)

_IN_USE: Final = "placement.inventory.inuse"
FIELDS: Final = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")

Inventory = Mapping[str, Any]


def read_inventories(connection: Connection, uuid: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the provider's generation, and its inventories by class name; raise NotFound if it does not exist.

    SELECT p.generation, (SELECT name FROM resource_classes WHERE id = i.resource_class_id) AS resource_class,
    i.total, i.reserved, i.min_unit, i.max_unit, i.step_size, i.allocation_ratio
    FROM resource_providers p LEFT JOIN inventories i ON i.resource_provider_id = p.id
    WHERE p.uuid = :uuid AND p.root_provider_id IS NOT NULL ORDER BY resource_class
    """
    rows = known_provider(connection.execute(_OF_PROVIDER, {"uuid": uuid}).all(), uuid)
    return rows[0][0], {row[1]: dict(zip(FIELDS, row[2:], strict=True)) for row in rows if row[1] is not None}


_OF_PROVIDER: Final = select_with_inventories(*(inventories.c[field] for field in FIELDS)).order_by("resource_class")


def replace_inventories(connection: Connection, provider: LockedProvider, wanted: Mapping[str, Inventory]) -> int:
    """Replace all inventories of the provider, increment its generation, and return the new generation.

    Two to six statements, plus one per inventory that stays. Raises BadRequest for an unknown class, and Conflict if an
    inventory to remove has allocations. A new capacity below the allocated amount is allowed.
    """
    ids = RESOURCE_CLASSES.ids(connection, wanted, lock=True)
    by_class = {ids[name]: inventory for name, inventory in wanted.items()}
    present = _read_class_ids(connection, provider)
    if gone := present - set(by_class):
        if used := _read_used_classes(connection, provider, gone):
            names = ", ".join(used)
            raise Conflict(f"inventory of {names} on {provider.uuid} has allocations: delete them first", code=_IN_USE)
        _delete(connection, provider, gone)
    for class_id in sorted(present & set(by_class)):
        _change(connection, provider, class_id, by_class[class_id])
    _insert(connection, provider, {class_id: by_class[class_id] for class_id in sorted(set(by_class) - present)})
    return advance_generation(connection, provider)


def add_inventory(connection: Connection, provider: LockedProvider, resource_class: str, inventory: Inventory) -> int:
    """Add an inventory and return the provider's new generation. Four statements.

    Raises BadRequest for an unknown class, ConcurrentUpdate if the provider has an inventory of this class already.
    """
    class_id = RESOURCE_CLASSES.ids(connection, [resource_class], lock=True)[resource_class]
    if class_id in _read_class_ids(connection, provider):
        raise ConcurrentUpdate(
            f"resource provider {provider.uuid} has an inventory of {resource_class}: PUT changes it"
        )
    _insert(connection, provider, {class_id: inventory})
    return advance_generation(connection, provider)


def change_inventory(
    connection: Connection, provider: LockedProvider, resource_class: str, inventory: Inventory
) -> int:
    """Change the inventory of one class, and return the provider's new generation. Three statements.

    Raises NotFound for an unknown class, BadRequest if the provider has no inventory of this class.
    """
    class_id = _known_class(connection, resource_class)
    if not _change(connection, provider, class_id, inventory):
        raise BadRequest(f"resource provider {provider.uuid} has no inventory of {resource_class}: POST makes it")
    return advance_generation(connection, provider)


def delete_inventory(connection: Connection, provider: LockedProvider, resource_class: str) -> int:
    """Delete the inventory of one class, and return the provider's new generation. Five statements.

    Raises NotFound if there is no such inventory, ConcurrentUpdate if it has allocations (Placement's error code is
    this one here, and `placement.inventory.inuse` when all inventories are replaced).
    """
    class_id = _known_class(connection, resource_class)
    if _read_used_classes(connection, provider, [class_id]):
        raise ConcurrentUpdate(f"inventory of {resource_class} on {provider.uuid} has allocations: delete them first")
    if class_id not in _read_class_ids(connection, provider):
        raise unknown_inventory(provider.uuid, resource_class)
    _delete(connection, provider, [class_id])
    return advance_generation(connection, provider)


def unknown_inventory(provider_uuid: str, resource_class: str) -> NotFound:
    """Return the error for a path with an inventory that does not exist."""
    return NotFound(f"resource provider {provider_uuid} has no inventory of {resource_class}")


def _read_class_ids(connection: Connection, provider: LockedProvider) -> set[int]:
    """Return the ids of the classes that the provider has inventories of.

    SELECT resource_class_id FROM inventories WHERE resource_provider_id = :provider
    """
    own = inventories.c
    return set(connection.scalars(select(own.resource_class_id).where(own.resource_provider_id == provider.id)))


def _read_used_classes(connection: Connection, provider: LockedProvider, class_ids: Collection[int]) -> list[str]:
    """Return the names of the classes of which the provider has allocations.

    SELECT DISTINCT name FROM allocations JOIN resource_classes ON resource_classes.id = resource_class_id
    WHERE resource_provider_id = :provider AND resource_class_id IN :class_ids ORDER BY name
    """
    own = allocations.c
    query = (
        select(classes.c.name)
        .select_from(allocations.join(classes, classes.c.id == own.resource_class_id))
        .where(own.resource_provider_id == provider.id, own.resource_class_id.in_(class_ids))
    )
    return list(connection.scalars(query.distinct().order_by(classes.c.name)))


def _insert(connection: Connection, provider: LockedProvider, by_class: Mapping[int, Inventory]) -> None:
    rows = [
        {"resource_provider_id": provider.id, "resource_class_id": class_id, **inventory}
        for class_id, inventory in by_class.items()
    ]
    if rows:
        connection.execute(insert(inventories), rows)


def _change(connection: Connection, provider: LockedProvider, class_id: int, inventory: Inventory) -> bool:
    """Update an inventory, and return whether it exists: UPDATE inventories SET ... WHERE resource_provider_id ..."""
    own = inventories.c
    statement = update(inventories).where(own.resource_provider_id == provider.id, own.resource_class_id == class_id)
    return connection.execute(statement.values(**inventory)).rowcount > 0


def _delete(connection: Connection, provider: LockedProvider, class_ids: Collection[int]) -> None:
    own = inventories.c
    on_provider = own.resource_provider_id == provider.id
    connection.execute(delete(inventories).where(on_provider, own.resource_class_id.in_(class_ids)))


def _known_class(connection: Connection, name: str) -> int:
    try:
        return RESOURCE_CLASSES.ids(connection, [name], lock=True)[name]
    except BadRequest as error:
        raise RESOURCE_CLASSES.unknown(name) from error


_NOT_FOUND: Final = "placement.resource_provider.not_found"


@dataclass(frozen=True, slots=True)
class NewInventories:
    """The inventories that replace all present ones of a provider, and the generation that the client last saw."""

    generation: int
    inventories: Mapping[str, Inventory]


def reshape(connection: Connection, new: Mapping[str, NewInventories], several: Sequence[ConsumerClaim]) -> None:
    """Replace inventories of providers and allocations of consumers together, in the caller's transaction.

    First new inventories are added to the old ones, then the allocations are moved, then old inventories are removed.
    Each step increments the generations of the providers that it writes. Raises the errors of `write_claims` and
    `replace_inventories`, and BadRequest with the code `placement.resource_provider.not_found` for an unknown provider
    in *new*.
    """
    # As in Placement, before any other error. Nothing is locked yet, so the generations are checked again below.
    check_generations(connection, {uuid: each.generation for uuid, each in new.items()})
    known = consumers.lock_consumers(connection, several)
    locked = claims.lock_providers(connection, several, new)
    consumers.write_consumers(connection, several, known)
    for uuid, each in new.items():
        check_generation(locked[uuid], each.generation)
        if each.inventories:
            _, old = read_inventories(connection, uuid)
            locked[uuid] = _replace_locked(connection, locked[uuid], {**old, **each.inventories})
    locked |= claims.allocate(connection, several, locked)
    for uuid, each in new.items():
        _replace_locked(connection, locked[uuid], each.inventories)


def check_generations(connection: Connection, wanted: Mapping[str, int]) -> None:
    """Check the generations of several providers, by UUID, in the order of the request.

    Raises BadRequest with the code `placement.resource_provider.not_found` for an unknown provider, and
    ConcurrentUpdate for one that has another generation.
    """
    present = {each.uuid: each for each in find_providers(connection, [resource_providers.c.uuid.in_(wanted)])}
    for uuid, generation in wanted.items():
        if uuid not in present:
            raise BadRequest(f"inventories: no resource provider {uuid}", code=_NOT_FOUND)
        check_generation(present[uuid], generation)


def _replace_locked(
    connection: Connection, provider: LockedProvider, wanted: Mapping[str, Inventory]
) -> LockedProvider:
    return replace(provider, generation=replace_inventories(connection, provider, wanted))
