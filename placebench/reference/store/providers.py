"""Resource providers, each by itself; `trees.py` puts them into trees.

A provider's row is the lock of all that hangs on it: `locked` takes it, `bump` moves its generation on. A provider
whose root_provider_id is NULL is not there, in no call, as in Placement.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Connection, select, update

from placebench.reference.api.problems import ConcurrentUpdate, Conflict, NotFound
from placebench.tables import resource_providers

DUPLICATE_NAME: Final = "placement.duplicate_name"

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

    SELECT id, generation FROM resource_providers WHERE uuid = :uuid AND root_provider_id IS NOT NULL
    """
    own = resource_providers.c
    query = select(own.id, own.generation).where(own.uuid == uuid, own.root_provider_id.is_not(None))
    row = connection.execute(query).one_or_none()
    if row is None:
        raise unknown(uuid)
    return row.id, row.generation


def locked(connection: Connection, uuid: str) -> Locked:
    """The provider in its newest state, held until the commit; NotFound if there is none.

    No join: PostgreSQL would look at the joined rows in their old state once it has waited for the lock.

    SELECT id, uuid, generation FROM resource_providers
    WHERE uuid = :uuid AND root_provider_id IS NOT NULL FOR UPDATE
    """
    own = resource_providers.c
    query = select(own.id, own.uuid, own.generation).where(own.uuid == uuid, own.root_provider_id.is_not(None))
    row = connection.execute(query.with_for_update()).one_or_none()
    if row is None:
        raise unknown(uuid)
    return Locked(*row)


def check_generation(provider: Locked | Provider, generation: int) -> None:
    """ConcurrentUpdate if the provider has another generation than this one, which the client last saw."""
    if provider.generation != generation:
        raise ConcurrentUpdate(
            f"resource provider {provider.uuid} has generation {provider.generation},"
            f" the request says {generation}: read it again"
        )


def bump(connection: Connection, provider: Locked) -> int:
    """The provider's next generation, now in its row; ConcurrentUpdate if somebody else moved it.

    UPDATE resource_providers SET generation = :next WHERE id = :id AND generation = :generation
    """
    own, following = resource_providers.c, provider.generation + 1
    statement = update(resource_providers).where(own.id == provider.id, own.generation == provider.generation)
    if connection.execute(statement.values(generation=following)).rowcount != 1:
        raise ConcurrentUpdate(f"resource provider {provider.uuid} was changed meanwhile: read it and try again")
    return following


def rename(connection: Connection, uuid: str, name: str) -> None:
    """Give the provider this name; NotFound without it, Conflict if another has the name. The generation stays."""
    own, provider = resource_providers.c, locked(connection, uuid)
    refuse_taken(connection, (own.name == name) & (own.id != provider.id), f"name {name!r}")
    connection.execute(update(resource_providers).where(own.id == provider.id).values(name=name))


def refuse_taken(connection: Connection, condition: ColumnElement[bool], what: str) -> None:
    """Conflict if a provider meets the condition: SELECT id FROM resource_providers WHERE ... LIMIT 1"""
    if connection.execute(select(resource_providers.c.id).where(condition).limit(1)).first() is not None:
        raise Conflict(f"a resource provider with {what} exists already", code=DUPLICATE_NAME)
