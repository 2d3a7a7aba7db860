"""The SQL of traits, resource classes and aggregates, and of those that a provider has.

The main class is `NameTable`, for traits and resource classes: users can add their own to the standard ones.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Column, ColumnElement, Connection, Table, delete, func, insert, select, update

from placebench.lab.inventory.tables import (
    inventories,
    placement_aggregates,
    resource_classes,
    resource_provider_aggregates,
    resource_provider_traits,
    traits,
)
from placebench.lab.reference.domain.problems import BadRequest, Conflict, NotFound
from placebench.lab.reference.domain.validation import is_standard
from placebench.lab.reference.store.providers import LockedProvider, advance_generation


@dataclass(frozen=True)
class NameTable:
    """A table of names with ids, to which other tables refer.

    Attributes:
        table: The table, with the columns id and name.
        noun: The word for one row, for messages.
        reference: The column of another table that refers to an id if the name is in use.
        release: What a user must do before a name in use can be deleted, for messages.
        first_id: The smallest id of names that users add; None: the database chooses ids.
    """

    table: Table
    noun: str
    reference: Column[int]
    release: str
    first_id: int | None = None

    def check(self, connection: Connection, name: str) -> None:
        """Raise NotFound if the table does not have the name: SELECT id FROM traits WHERE name = :name."""
        if self._id(connection, name) is None:
            raise self.unknown(name)

    def ensure(self, connection: Connection, name: str) -> bool:
        """Insert the name if it does not exist, and return whether it was inserted. One to three statements.

        With a first_id, the new id is the highest id plus one, as in Placement: the id of a deleted last row is reused.
        """
        if self._id(connection, name) is not None:
            return False
        row: dict[str, str | int] = {"name": name}
        if self.first_id is not None:
            highest = connection.scalar(select(func.max(self.table.c.id))) or 0
            row["id"] = max(highest + 1, self.first_id)
        connection.execute(insert(self.table).values(row))
        return True

    def rename(self, connection: Connection, name: str, new_name: str) -> None:
        """Replace a name by a new one. Three statements.

        Raises NotFound for an unknown name, BadRequest for a standard one, Conflict if another row has the new name.
        """
        own_id = self._id(connection, name, lock=True)
        if own_id is None:
            raise self.unknown(name)
        if is_standard(name):
            raise BadRequest(f"{self.noun} {name} is the standard's and cannot be renamed")
        if self._id(connection, new_name) not in (None, own_id):
            raise Conflict(f"{self.noun} {new_name} exists already")
        connection.execute(update(self.table).where(self.table.c.id == own_id).values(name=new_name))

    def delete(self, connection: Connection, name: str) -> None:
        """Lock the name's row and delete it. Three statements.

        Raises NotFound for an unknown name, BadRequest for a standard one, Conflict if the name is in use.
        """
        own_id = self._id(connection, name, lock=True)
        if own_id is None:
            raise self.unknown(name)
        if is_standard(name):
            raise BadRequest(f"{self.noun} {name} is the standard's and cannot be deleted")
        if connection.scalar(select(self.reference).where(self.reference == own_id).limit(1)) is not None:
            raise Conflict(f"{self.noun} {name} is in use: {self.release} first")
        connection.execute(delete(self.table).where(self.table.c.id == own_id))

    def ids(self, connection: Connection, names: Collection[str], *, lock: bool = False) -> dict[str, int]:
        """Return the id of each name; raise BadRequest if one is unknown. One statement; without names none.

        SELECT name, id FROM resource_classes WHERE name IN :names ORDER BY id [FOR KEY SHARE]

        lock: whether to lock the rows against deletion until the commit.
        """
        if not names:
            return {}
        own = self.table.c
        query = select(own.name, own.id).where(own.name.in_(names)).order_by(own.id)
        query = query.with_for_update(read=True, key_share=True) if lock else query
        ids = {row.name: row.id for row in connection.execute(query)}
        if missing := sorted(set(names) - set(ids)):
            raise BadRequest(f"no {self.noun} {', '.join(missing)}")
        return ids

    def unknown(self, name: str) -> NotFound:
        """Return the error for a path with a name that the table does not have."""
        return NotFound(f"no {self.noun} {name}")

    def _id(self, connection: Connection, name: str, *, lock: bool = False) -> int | None:
        query = select(self.table.c.id).where(self.table.c.name == name)
        found: int | None = connection.scalar(query.with_for_update() if lock else query)
        return found


TRAITS: Final = NameTable(traits, "trait", resource_provider_traits.c.trait_id, "take it from its providers")
RESOURCE_CLASSES: Final = NameTable(
    resource_classes, "resource class", inventories.c.resource_class_id, "delete the inventories of it", first_id=10_000
)


def read_resource_classes(connection: Connection) -> list[str]:
    """Return the names of all classes in the order of their ids: SELECT name FROM resource_classes ORDER BY id."""
    return list(connection.scalars(select(resource_classes.c.name).order_by(resource_classes.c.id)))


def read_traits(connection: Connection, conditions: Sequence[ColumnElement[bool]] = ()) -> list[str]:
    """Return the names of the traits that meet all conditions: SELECT name FROM traits WHERE ... ORDER BY name."""
    return list(connection.scalars(select(traits.c.name).where(*conditions).order_by(traits.c.name)))


def is_associated(*, wanted: bool) -> ColumnElement[bool]:
    """Return the condition that some provider has the trait, or, if not *wanted*, that no provider has it.

    EXISTS (SELECT 1 FROM resource_provider_traits WHERE trait_id = traits.id)
    """
    some = select(1).where(resource_provider_traits.c.trait_id == traits.c.id).exists()
    return some if wanted else ~some


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
    """Replace all traits of the provider, and return its generation, which is incremented only if traits changed.

    One to five statements. Raises BadRequest for an unknown trait.
    """
    wanted = set(TRAITS.ids(connection, names).values())
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


def read_provider_aggregates(connection: Connection, provider_id: int) -> list[str]:
    """Return the uuids of the provider's aggregates.

    SELECT uuid FROM placement_aggregates JOIN resource_provider_aggregates ON aggregate_id = placement_aggregates.id
    WHERE resource_provider_id = :provider_id ORDER BY uuid
    """
    own, member = placement_aggregates.c, resource_provider_aggregates.c
    joined = placement_aggregates.join(resource_provider_aggregates, member.aggregate_id == own.id)
    query = select(own.uuid).select_from(joined).where(member.resource_provider_id == provider_id)
    return list(connection.scalars(query.order_by(own.uuid)))


def replace_aggregates(connection: Connection, provider: LockedProvider, uuids: Collection[str]) -> None:
    """Replace all aggregates of the provider without changing its generation. Two to five statements."""
    member = resource_provider_aggregates.c
    connection.execute(delete(resource_provider_aggregates).where(member.resource_provider_id == provider.id))
    if ids := _ensure_aggregates(connection, uuids):
        rows = [{"resource_provider_id": provider.id, "aggregate_id": aggregate} for aggregate in sorted(ids)]
        connection.execute(insert(resource_provider_aggregates), rows)


def _ensure_aggregates(connection: Connection, uuids: Collection[str]) -> set[int]:
    """Return the ids of these aggregates; insert the missing ones.

    SELECT uuid, id FROM placement_aggregates WHERE uuid IN :uuids
    """
    own = placement_aggregates.c
    query = select(own.uuid, own.id).where(own.uuid.in_(uuids))
    known = {row.uuid: row.id for row in connection.execute(query)}
    if missing := sorted(set(uuids) - set(known)):
        connection.execute(insert(placement_aggregates), [{"uuid": uuid} for uuid in missing])
        known = {row.uuid: row.id for row in connection.execute(query)}
    return set(known.values())
