"""Resource providers and the trees they stand in.

A provider's row is the lock of all that hangs on it: `locked` takes it, `bump` moves its generation on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, delete, insert, or_, select, update

from placebench.reference.problems import BadRequest, ConcurrentUpdate, Conflict, NotFound
from placebench.tables import (
    allocations,
    inventories,
    resource_provider_aggregates,
    resource_provider_traits,
    resource_providers,
)

DUPLICATE_NAME = "placement.duplicate_name"
HAS_CHILDREN = "placement.resource_provider.cannot_delete_parent"
IN_USE = "placement.resource_provider.inuse"

_parents = resource_providers.alias("parent")
_roots = resource_providers.alias("root")


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider as its document shows it."""

    uuid: str
    name: str
    generation: int
    parent_uuid: str | None
    root_uuid: str


@dataclass(frozen=True, slots=True)
class Locked:
    """A provider whose row this transaction holds: nobody else changes it or what hangs on it before the commit."""

    id: int
    uuid: str
    generation: int
    root_id: int
    parent_id: int | None


def found(connection: Connection, uuid: str) -> Provider:
    """The provider of this uuid; NotFound if there is none."""
    providers = matching(connection, [resource_providers.c.uuid == uuid])
    if not providers:
        raise unknown(uuid)
    return providers[0]


def unknown(uuid: str) -> NotFound:
    """The problem of a path that names no provider."""
    return NotFound(f"no resource provider {uuid}")


def matching(connection: Connection, conditions: Sequence[ColumnElement[bool]]) -> list[Provider]:
    """The providers that meet all conditions, oldest first. One statement:

    SELECT p.uuid, p.name, p.generation, parent.uuid, root.uuid
    FROM resource_providers p JOIN resource_providers root ON root.id = p.root_provider_id
    LEFT JOIN resource_providers parent ON parent.id = p.parent_provider_id
    WHERE ... ORDER BY p.id
    """
    own = resource_providers.c
    joined = resource_providers.join(_roots, _roots.c.id == own.root_provider_id).outerjoin(
        _parents, _parents.c.id == own.parent_provider_id
    )
    query = select(own.uuid, own.name, own.generation, _parents.c.uuid, _roots.c.uuid).select_from(joined)
    return [Provider(*row) for row in connection.execute(query.where(*conditions).order_by(own.id))]


def id_and_generation(connection: Connection, uuid: str) -> tuple[int, int]:
    """What a read of something that hangs on the provider needs of it; NotFound if there is none.

    SELECT id, generation FROM resource_providers WHERE uuid = :uuid
    """
    own = resource_providers.c
    row = connection.execute(select(own.id, own.generation).where(own.uuid == uuid)).one_or_none()
    if row is None:
        raise unknown(uuid)
    return row.id, row.generation


def locked(connection: Connection, uuid: str) -> Locked:
    """The provider in its newest state, held until the commit; NotFound if there is none.

    No join: PostgreSQL would look at the joined rows in their old state once it has waited for the lock.

    SELECT id, uuid, generation, root_provider_id, parent_provider_id
    FROM resource_providers WHERE uuid = :uuid FOR UPDATE
    """
    own = resource_providers.c
    query = select(own.id, own.uuid, own.generation, own.root_provider_id, own.parent_provider_id)
    row = connection.execute(query.where(own.uuid == uuid).with_for_update()).one_or_none()
    if row is None:
        raise unknown(uuid)
    return Locked(*row)


def locked_at(connection: Connection, uuid: str, generation: int) -> Locked:
    """As `locked`; ConcurrentUpdate if the provider has another generation than the caller last saw."""
    provider = locked(connection, uuid)
    if provider.generation != generation:
        raise _changed(uuid, generation, provider.generation)
    return provider


def bump(connection: Connection, provider: Locked) -> int:
    """The provider's next generation, now in its row; ConcurrentUpdate if somebody else moved it.

    UPDATE resource_providers SET generation = :next WHERE id = :id AND generation = :generation
    """
    own, following = resource_providers.c, provider.generation + 1
    statement = update(resource_providers).where(own.id == provider.id, own.generation == provider.generation)
    if connection.execute(statement.values(generation=following)).rowcount != 1:
        raise ConcurrentUpdate(f"resource provider {provider.uuid} was changed meanwhile: read it and try again")
    return following


def create(connection: Connection, *, uuid: str, name: str, parent_uuid: str | None) -> Provider:
    """A new provider, at the root of its own tree or below a parent, whose tree it joins. Four to five statements.

    Raises BadRequest without such a parent, Conflict if uuid or name is taken.
    """
    parent = None if parent_uuid is None else _parent(connection, parent_uuid)
    own = resource_providers.c
    _refuse_taken(connection, or_(own.uuid == uuid, own.name == name), f"uuid {uuid} or name {name!r}")
    row = {"uuid": uuid, "name": name, "generation": 0}
    if parent is not None:
        row |= {"parent_provider_id": parent.id, "root_provider_id": parent.root_id}
    new_id = connection.scalar(insert(resource_providers).values(row).returning(own.id))
    if parent is None:
        connection.execute(update(resource_providers).where(own.id == new_id).values(root_provider_id=new_id))
    return found(connection, uuid)


def rename(connection: Connection, provider: Locked, name: str) -> None:
    """Give the provider this name; Conflict if another one has it. The generation stays."""
    own = resource_providers.c
    _refuse_taken(connection, (own.name == name) & (own.id != provider.id), f"name {name!r}")
    connection.execute(update(resource_providers).where(own.id == provider.id).values(name=name))


def move(connection: Connection, provider: Locked, parent_uuid: str | None) -> None:
    """Put the provider with all below it under another parent, or at the root of a tree of its own.

    Holds the parent and the whole subtree, level by level, so that no provider is put below either meanwhile.
    One statement a level, and one or two. Raises BadRequest without such a parent, or if it stands in the subtree.
    """
    parent = None if parent_uuid is None else _parent(connection, parent_uuid)
    subtree = _locked_subtree(connection, provider.id)
    if parent is not None and parent.id in subtree:
        raise BadRequest(f"parent {parent.uuid} stands below resource provider {provider.uuid}: that would be a loop")
    own = resource_providers.c
    root_id = provider.id if parent is None else parent.root_id
    statement = update(resource_providers)
    connection.execute(statement.where(own.id.in_(subtree)).values(root_provider_id=root_id))
    parent_id = None if parent is None else parent.id
    connection.execute(statement.where(own.id == provider.id).values(parent_provider_id=parent_id))


def remove(connection: Connection, provider: Locked) -> None:
    """Delete the provider and what hangs on it; Conflict while it has children or allocations. Six statements."""
    children = select(resource_providers.c.id).where(resource_providers.c.parent_provider_id == provider.id)
    if _any(connection, children):
        raise Conflict(f"resource provider {provider.uuid} has children: delete them first", code=HAS_CHILDREN)
    if _any(connection, select(allocations.c.id).where(allocations.c.resource_provider_id == provider.id)):
        raise Conflict(f"resource provider {provider.uuid} has allocations: delete them first", code=IN_USE)
    for table in (inventories, resource_provider_traits, resource_provider_aggregates):
        connection.execute(delete(table).where(table.c.resource_provider_id == provider.id))
    connection.execute(delete(resource_providers).where(resource_providers.c.id == provider.id))


def _locked_subtree(connection: Connection, root: int) -> set[int]:
    """The ids of the provider and all below it, each held. One statement a level:

    SELECT id FROM resource_providers WHERE parent_provider_id IN :level ORDER BY id FOR UPDATE
    """
    own, subtree, level = resource_providers.c, {root}, [root]
    while level:
        query = select(own.id).where(own.parent_provider_id.in_(level)).order_by(own.id).with_for_update()
        level = [child for child in connection.scalars(query) if child not in subtree]
        subtree.update(level)
    return subtree


def _parent(connection: Connection, uuid: str) -> Locked:
    try:
        return locked(connection, uuid)
    except NotFound as error:
        raise BadRequest(f"parent_provider_uuid: no resource provider {uuid}") from error


def _refuse_taken(connection: Connection, condition: ColumnElement[bool], what: str) -> None:
    if _any(connection, select(resource_providers.c.id).where(condition)):
        raise Conflict(f"a resource provider with {what} exists already", code=DUPLICATE_NAME)


def _any(connection: Connection, query: Select[Any]) -> bool:
    return connection.execute(query.limit(1)).first() is not None


def _changed(uuid: str, expected: int, seen: int) -> ConcurrentUpdate:
    return ConcurrentUpdate(f"resource provider {uuid} has generation {seen}, the request {expected}: read it again")
