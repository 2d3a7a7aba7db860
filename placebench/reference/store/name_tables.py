"""Traits, resource classes and aggregates, and which of them a provider has."""

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select

from placebench.reference.api.problems import BadRequest, Conflict, NotFound
from placebench.reference.api.validation import is_standard
from placebench.reference.store.providers import LockedProvider, advance_generation
from placebench.tables import (
    inventories,
    placement_aggregates,
    resource_classes,
    resource_provider_aggregates,
    resource_provider_traits,
    traits,
)


def read_traits(connection: Connection, conditions: Sequence[ColumnElement[bool]] = ()) -> list[str]:
    """Return the names of the traits that meet all conditions: SELECT name FROM traits WHERE ... ORDER BY name."""
    return list(connection.scalars(select(traits.c.name).where(*conditions).order_by(traits.c.name)))


def trait_is_one_of(names: Collection[str]) -> ColumnElement[bool]:
    """Return the trait has one of these names."""
    return traits.c.name.in_(names)


def trait_starts_with(prefix: str) -> ColumnElement[bool]:
    """Return the trait's name begins with this."""
    return traits.c.name.startswith(prefix, autoescape=True)


def trait_is_associated(*, wanted: bool) -> ColumnElement[bool]:
    """Some provider has the trait; wanted=False: none has.

    EXISTS (SELECT 1 FROM resource_provider_traits WHERE trait_id = traits.id)
    """
    some = select(1).where(resource_provider_traits.c.trait_id == traits.c.id).exists()
    return some if wanted else ~some


def trait_exists(connection: Connection, name: str) -> bool:
    """Whether there is a trait of this name: SELECT id FROM traits WHERE name = :name."""
    return connection.scalar(select(traits.c.id).where(traits.c.name == name)) is not None


def ensure_trait(connection: Connection, name: str) -> bool:
    """Whether the trait was made now; False if it was there. One to two statements."""
    if trait_exists(connection, name):
        return False
    connection.execute(insert(traits).values(name=name))
    return True


def delete_trait(connection: Connection, name: str) -> None:
    """Delete the trait, which is locked first. Three statements.

    Raises NotFound, BadRequest for one of the standard's, Conflict while a provider has it.
    """
    trait_id = connection.scalar(select(traits.c.id).where(traits.c.name == name).with_for_update())
    if trait_id is None:
        raise unknown_trait(name)
    if is_standard(name):
        raise BadRequest(f"trait {name} is the standard's and cannot be deleted")
    own = resource_provider_traits.c
    if connection.scalar(select(own.trait_id).where(own.trait_id == trait_id).limit(1)) is not None:
        raise Conflict(f"trait {name} is in use: take it from its providers first")
    connection.execute(delete(traits).where(traits.c.id == trait_id))


def unknown_trait(name: str) -> NotFound:
    """Return the problem of a path that names no trait."""
    return NotFound(f"no trait {name}")


def read_provider_traits(connection: Connection, provider_id: int) -> list[str]:
    """Return the names of the provider's traits.

    SELECT name FROM traits JOIN resource_provider_traits ON trait_id = traits.id
    WHERE resource_provider_id = :provider_id ORDER BY name
    """
    own = resource_provider_traits.c
    joined = traits.join(resource_provider_traits, own.trait_id == traits.c.id)
    query = select(traits.c.name).select_from(joined).where(own.resource_provider_id == provider_id)
    return list(connection.scalars(query.order_by(traits.c.name)))


def replace_traits(connection: Connection, provider: LockedProvider, names: Collection[str]) -> int:
    """Give the provider just these traits; its generation, moved on only if that changed something.

    Two to five statements. Raises BadRequest for an unknown trait.
    """
    wanted = _trait_ids(connection, names)
    own = resource_provider_traits.c
    present = set(connection.scalars(select(own.trait_id).where(own.resource_provider_id == provider.id)))
    if wanted == present:
        return provider.generation
    if gone := present - wanted:
        on_provider = own.resource_provider_id == provider.id
        connection.execute(delete(resource_provider_traits).where(on_provider, own.trait_id.in_(gone)))
    if rows := [{"resource_provider_id": provider.id, "trait_id": trait} for trait in sorted(wanted - present)]:
        connection.execute(insert(resource_provider_traits), rows)
    return advance_generation(connection, provider)


def _trait_ids(connection: Connection, names: Collection[str]) -> set[int]:
    """The ids of these traits, in one statement: SELECT name, id FROM traits WHERE name IN :names."""
    if not names:
        return set()
    ids = {
        row.name: row.id for row in connection.execute(select(traits.c.name, traits.c.id).where(trait_is_one_of(names)))
    }
    if missing := sorted(set(names) - set(ids)):
        raise BadRequest(f"no trait {', '.join(missing)}")
    return set(ids.values())


_FIRST_CUSTOM_ID: Final = 10_000


def read_resource_classes(connection: Connection) -> list[str]:
    """Return the names of all classes in the order of their ids: SELECT name FROM resource_classes ORDER BY id."""
    own = resource_classes.c
    return list(connection.scalars(select(own.name).order_by(own.id)))


def resource_class_exists(connection: Connection, name: str) -> bool:
    """Whether there is a class of this name: SELECT id FROM resource_classes WHERE name = :name."""
    return connection.scalar(select(resource_classes.c.id).where(resource_classes.c.name == name)) is not None


def lock_resource_class_ids(connection: Connection, names: Collection[str]) -> dict[str, int]:
    """Return the id of each class, locked against deletion until the commit; BadRequest if one is unknown.

    SELECT name, id FROM resource_classes WHERE name IN :names ORDER BY id FOR KEY SHARE
    """
    own = resource_classes.c
    query = select(own.name, own.id).where(own.name.in_(names)).order_by(own.id)
    ids = {row.name: row.id for row in connection.execute(query.with_for_update(read=True, key_share=True))}
    if missing := sorted(set(names) - set(ids)):
        raise BadRequest(f"no resource class {', '.join(missing)}")
    return ids


def ensure_resource_class(connection: Connection, name: str) -> bool:
    """Whether the class was made now; False if it was there. One to three statements.

    The id is the highest and one, as in Placement: the id of a deleted last class is used again.
    """
    if resource_class_exists(connection, name):
        return False
    highest = connection.scalar(select(func.max(resource_classes.c.id))) or 0
    new_id = max(highest + 1, _FIRST_CUSTOM_ID)
    connection.execute(insert(resource_classes).values(id=new_id, name=name))
    return True


def delete_resource_class(connection: Connection, name: str) -> None:
    """Delete the class, which is locked first. Three statements.

    Raises NotFound, BadRequest for one of the standard's, Conflict while an inventory has it.
    """
    own = resource_classes.c
    class_id = connection.scalar(select(own.id).where(own.name == name).with_for_update())
    if class_id is None:
        raise unknown_resource_class(name)
    if is_standard(name):
        raise BadRequest(f"resource class {name} is the standard's and cannot be deleted")
    in_use = select(inventories.c.id).where(inventories.c.resource_class_id == class_id).limit(1)
    if connection.scalar(in_use) is not None:
        raise Conflict(f"resource class {name} is in use: delete the inventories of it first")
    connection.execute(delete(resource_classes).where(own.id == class_id))


def unknown_resource_class(name: str) -> NotFound:
    """Return the problem of a path that names no class."""
    return NotFound(f"no resource class {name}")


def read_provider_aggregates(connection: Connection, provider_id: int) -> list[str]:
    """Return the provider's aggregates.

    SELECT uuid FROM placement_aggregates JOIN resource_provider_aggregates ON aggregate_id = placement_aggregates.id
    WHERE resource_provider_id = :provider_id ORDER BY uuid
    """
    own, member = placement_aggregates.c, resource_provider_aggregates.c
    joined = placement_aggregates.join(resource_provider_aggregates, member.aggregate_id == own.id)
    query = select(own.uuid).select_from(joined).where(member.resource_provider_id == provider_id)
    return list(connection.scalars(query.order_by(own.uuid)))


def replace_aggregates(connection: Connection, provider: LockedProvider, uuids: Collection[str]) -> int:
    """Put the provider into just these aggregates; its generation, moved on in any case. Three to six statements."""
    member = resource_provider_aggregates.c
    connection.execute(delete(resource_provider_aggregates).where(member.resource_provider_id == provider.id))
    if ids := _ensure_aggregates(connection, uuids):
        rows = [{"resource_provider_id": provider.id, "aggregate_id": aggregate} for aggregate in sorted(ids)]
        connection.execute(insert(resource_provider_aggregates), rows)
    return advance_generation(connection, provider)


def _ensure_aggregates(connection: Connection, uuids: Collection[str]) -> set[int]:
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
