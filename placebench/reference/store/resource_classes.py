"""Resource classes: what can be counted. The standard's have the ids 0 to 20, a user's begin at 10000."""

from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection, delete, func, insert, select

from placebench.reference.api.problems import BadRequest, Conflict, NotFound
from placebench.reference.api.validation import is_standard
from placebench.tables import inventories, resource_classes

FIRST_CUSTOM_ID: Final = 10_000


def every(connection: Connection) -> list[str]:
    """The names of all classes in the order of their ids: SELECT name FROM resource_classes ORDER BY id"""
    own = resource_classes.c
    return list(connection.scalars(select(own.name).order_by(own.id)))


def exists(connection: Connection, name: str) -> bool:
    """Whether there is a class of this name: SELECT id FROM resource_classes WHERE name = :name"""
    return connection.scalar(select(resource_classes.c.id).where(resource_classes.c.name == name)) is not None


def held_ids(connection: Connection, names: Collection[str]) -> dict[str, int]:
    """The id of each class, held against deletion until the commit; BadRequest if one is unknown.

    SELECT name, id FROM resource_classes WHERE name IN :names ORDER BY id FOR KEY SHARE
    """
    own = resource_classes.c
    query = select(own.name, own.id).where(own.name.in_(names)).order_by(own.id)
    ids = {row.name: row.id for row in connection.execute(query.with_for_update(read=True, key_share=True))}
    if missing := sorted(set(names) - set(ids)):
        raise BadRequest(f"no resource class {', '.join(missing)}")
    return ids


def ensure(connection: Connection, name: str) -> bool:
    """Whether the class was made now; False if it was there. One to three statements.

    The id is the highest and one, as in Placement: the id of a deleted last class is used again.
    """
    if exists(connection, name):
        return False
    highest = connection.scalar(select(func.max(resource_classes.c.id))) or 0
    new_id = max(highest + 1, FIRST_CUSTOM_ID)
    connection.execute(insert(resource_classes).values(id=new_id, name=name))
    return True


def remove(connection: Connection, name: str) -> None:
    """Delete the class. Three statements, the first: SELECT id FROM resource_classes WHERE name = :name FOR UPDATE

    Raises NotFound, BadRequest for one of the standard's, Conflict while an inventory has it.
    """
    own = resource_classes.c
    class_id = connection.scalar(select(own.id).where(own.name == name).with_for_update())
    if class_id is None:
        raise unknown(name)
    if is_standard(name):
        raise BadRequest(f"resource class {name} is the standard's and cannot be deleted")
    in_use = select(inventories.c.id).where(inventories.c.resource_class_id == class_id).limit(1)
    if connection.scalar(in_use) is not None:
        raise Conflict(f"resource class {name} is in use: delete the inventories of it first")
    connection.execute(delete(resource_classes).where(own.id == class_id))


def unknown(name: str) -> NotFound:
    """The problem of a path that names no class."""
    return NotFound(f"no resource class {name}")
