"""Traits, and which providers have them."""

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, Connection, delete, insert, select

from placebench.reference.api.problems import BadRequest, Conflict, NotFound
from placebench.reference.api.validation import is_standard
from placebench.reference.store.providers import Locked, bump
from placebench.tables import resource_provider_traits, traits


def named(connection: Connection, conditions: Sequence[ColumnElement[bool]] = ()) -> list[str]:
    """The names of the traits that meet all conditions: SELECT name FROM traits WHERE ... ORDER BY name"""
    return list(connection.scalars(select(traits.c.name).where(*conditions).order_by(traits.c.name)))


def with_name_in(names: Collection[str]) -> ColumnElement[bool]:
    """The trait has one of these names."""
    return traits.c.name.in_(names)


def with_prefix(prefix: str) -> ColumnElement[bool]:
    """The trait's name begins with this."""
    return traits.c.name.startswith(prefix, autoescape=True)


def associated(*, wanted: bool) -> ColumnElement[bool]:
    """Some provider has the trait; wanted=False: none has.

    EXISTS (SELECT 1 FROM resource_provider_traits WHERE trait_id = traits.id)
    """
    some = select(1).where(resource_provider_traits.c.trait_id == traits.c.id).exists()
    return some if wanted else ~some


def exists(connection: Connection, name: str) -> bool:
    """Whether there is a trait of this name: SELECT id FROM traits WHERE name = :name"""
    return connection.scalar(select(traits.c.id).where(traits.c.name == name)) is not None


def ensure(connection: Connection, name: str) -> bool:
    """Whether the trait was made now; False if it was there. One to two statements."""
    if exists(connection, name):
        return False
    connection.execute(insert(traits).values(name=name))
    return True


def remove(connection: Connection, name: str) -> None:
    """Delete the trait. Three statements, the first: SELECT id FROM traits WHERE name = :name FOR UPDATE

    Raises NotFound, BadRequest for one of the standard's, Conflict while a provider has it.
    """
    trait_id = connection.scalar(select(traits.c.id).where(traits.c.name == name).with_for_update())
    if trait_id is None:
        raise unknown(name)
    if is_standard(name):
        raise BadRequest(f"trait {name} is the standard's and cannot be deleted")
    own = resource_provider_traits.c
    if connection.scalar(select(own.trait_id).where(own.trait_id == trait_id).limit(1)) is not None:
        raise Conflict(f"trait {name} is in use: take it from its providers first")
    connection.execute(delete(traits).where(traits.c.id == trait_id))


def unknown(name: str) -> NotFound:
    """The problem of a path that names no trait."""
    return NotFound(f"no trait {name}")


def of_provider(connection: Connection, provider_id: int) -> list[str]:
    """The names of the provider's traits.

    SELECT name FROM traits JOIN resource_provider_traits ON trait_id = traits.id
    WHERE resource_provider_id = :provider_id ORDER BY name
    """
    own = resource_provider_traits.c
    joined = traits.join(resource_provider_traits, own.trait_id == traits.c.id)
    query = select(traits.c.name).select_from(joined).where(own.resource_provider_id == provider_id)
    return list(connection.scalars(query.order_by(traits.c.name)))


def replace(connection: Connection, provider: Locked, names: Collection[str]) -> int:
    """Give the provider just these traits; its generation, moved on only if that changed something.

    Two to five statements. Raises BadRequest for an unknown trait.
    """
    wanted = _ids(connection, names)
    own = resource_provider_traits.c
    present = set(connection.scalars(select(own.trait_id).where(own.resource_provider_id == provider.id)))
    if wanted == present:
        return provider.generation
    if gone := present - wanted:
        on_provider = own.resource_provider_id == provider.id
        connection.execute(delete(resource_provider_traits).where(on_provider, own.trait_id.in_(gone)))
    if rows := [{"resource_provider_id": provider.id, "trait_id": trait} for trait in sorted(wanted - present)]:
        connection.execute(insert(resource_provider_traits), rows)
    return bump(connection, provider)


def _ids(connection: Connection, names: Collection[str]) -> set[int]:
    """The ids of these traits, in one statement: SELECT name, id FROM traits WHERE name IN :names"""
    if not names:
        return set()
    ids = {
        row.name: row.id for row in connection.execute(select(traits.c.name, traits.c.id).where(with_name_in(names)))
    }
    if missing := sorted(set(names) - set(ids)):
        raise BadRequest(f"no trait {', '.join(missing)}")
    return set(ids.values())
