"""Inventories: how much of a class a provider has to give."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select, update

from placebench.reference.api.problems import BadRequest, ConcurrentUpdate, Conflict, NotFound
from placebench.reference.store import resource_classes
from placebench.reference.store.providers import Locked, bump
from placebench.tables import allocations, inventories
from placebench.tables import resource_classes as classes

IN_USE: Final = "placement.inventory.inuse"
FIELDS: Final = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")

Inventory = Mapping[str, Any]


def of_provider(connection: Connection, provider_id: int) -> dict[str, dict[str, Any]]:
    """The provider's inventories by the name of their class.

    SELECT name, total, reserved, min_unit, max_unit, step_size, allocation_ratio
    FROM inventories JOIN resource_classes ON resource_classes.id = resource_class_id
    WHERE resource_provider_id = :provider_id ORDER BY name
    """
    own = inventories.c
    query = (
        select(classes.c.name, *(own[field] for field in FIELDS))
        .select_from(inventories.join(classes, classes.c.id == own.resource_class_id))
        .where(own.resource_provider_id == provider_id)
        .order_by(classes.c.name)
    )
    return {row[0]: dict(zip(FIELDS, row[1:], strict=True)) for row in connection.execute(query)}


def replace(connection: Connection, provider: Locked, wanted: Mapping[str, Inventory]) -> int:
    """Give the provider just these inventories; its generation, moved on in any case.

    Two to six statements, and one for each inventory that stays. Raises BadRequest for an unknown class, Conflict
    if one goes that has allocations. Shrinking one below what is allocated of it is allowed.
    """
    ids = resource_classes.held_ids(connection, wanted) if wanted else {}
    by_class = {ids[name]: inventory for name, inventory in wanted.items()}
    present = _present(connection, provider)
    _drop(connection, provider, present - set(by_class))
    for class_id in sorted(present & set(by_class)):
        _change(connection, provider, class_id, by_class[class_id])
    _insert(connection, provider, {class_id: by_class[class_id] for class_id in sorted(set(by_class) - present)})
    return bump(connection, provider)


def add(connection: Connection, provider: Locked, resource_class: str, inventory: Inventory) -> int:
    """One more inventory; the provider's generation, moved on. Four statements.

    Raises BadRequest for an unknown class, ConcurrentUpdate if the provider has an inventory of it.
    """
    class_id = resource_classes.held_ids(connection, [resource_class])[resource_class]
    if class_id in _present(connection, provider):
        raise ConcurrentUpdate(
            f"resource provider {provider.uuid} has an inventory of {resource_class}: PUT changes it"
        )
    _insert(connection, provider, {class_id: inventory})
    return bump(connection, provider)


def change(connection: Connection, provider: Locked, resource_class: str, inventory: Inventory) -> int:
    """Change the inventory of one class; the provider's generation, moved on. Three statements.

    Raises NotFound for an unknown class, BadRequest if the provider has no inventory of it.
    """
    class_id = _known_class(connection, resource_class)
    if not _change(connection, provider, class_id, inventory):
        raise BadRequest(f"resource provider {provider.uuid} has no inventory of {resource_class}: POST makes it")
    return bump(connection, provider)


def remove(connection: Connection, provider: Locked, resource_class: str) -> int:
    """Delete the inventory of one class; the provider's generation, moved on. Five statements.

    Raises NotFound if there is none, ConcurrentUpdate if it has allocations (Placement has this code here, and
    `placement.inventory.inuse` where all inventories are set).
    """
    class_id = _known_class(connection, resource_class)
    if _in_use(connection, provider, [class_id]):
        raise ConcurrentUpdate(f"inventory of {resource_class} on {provider.uuid} has allocations: delete them first")
    if class_id not in _present(connection, provider):
        raise missing(provider.uuid, resource_class)
    _delete(connection, provider, [class_id])
    return bump(connection, provider)


def missing(provider_uuid: str, resource_class: str) -> NotFound:
    """The problem of a path that names no inventory."""
    return NotFound(f"resource provider {provider_uuid} has no inventory of {resource_class}")


def _present(connection: Connection, provider: Locked) -> set[int]:
    """SELECT resource_class_id FROM inventories WHERE resource_provider_id = :provider"""
    own = inventories.c
    return set(connection.scalars(select(own.resource_class_id).where(own.resource_provider_id == provider.id)))


def _drop(connection: Connection, provider: Locked, class_ids: Collection[int]) -> None:
    if not class_ids:
        return
    if used := _in_use(connection, provider, class_ids):
        names = ", ".join(used)
        raise Conflict(f"inventory of {names} on {provider.uuid} has allocations: delete them first", code=IN_USE)
    _delete(connection, provider, class_ids)


def _in_use(connection: Connection, provider: Locked, class_ids: Collection[int]) -> list[str]:
    """The names of those of the classes that something is allocated of.

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


def _insert(connection: Connection, provider: Locked, by_class: Mapping[int, Inventory]) -> None:
    rows = [
        {"resource_provider_id": provider.id, "resource_class_id": class_id, **inventory}
        for class_id, inventory in by_class.items()
    ]
    if rows:
        connection.execute(insert(inventories), rows)


def _change(connection: Connection, provider: Locked, class_id: int, inventory: Inventory) -> bool:
    """Whether there was such an inventory: UPDATE inventories SET ... WHERE resource_provider_id ..."""
    own = inventories.c
    statement = update(inventories).where(own.resource_provider_id == provider.id, own.resource_class_id == class_id)
    return connection.execute(statement.values(**inventory)).rowcount > 0


def _delete(connection: Connection, provider: Locked, class_ids: Collection[int]) -> None:
    own = inventories.c
    on_provider = own.resource_provider_id == provider.id
    connection.execute(delete(inventories).where(on_provider, own.resource_class_id.in_(class_ids)))


def _known_class(connection: Connection, name: str) -> int:
    try:
        return resource_classes.held_ids(connection, [name])[name]
    except BadRequest as error:
        raise resource_classes.unknown(name) from error
