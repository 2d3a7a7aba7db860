"""The SQL that reads and deletes allocations, and reads their sums (usages); `claims.py` writes allocations."""

from typing import Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    FromClause,
    ScalarSelect,
    Select,
    bindparam,
    delete,
    distinct,
    func,
    literal,
    select,
)

from placebench.lab.inventory.tables import (
    allocations,
    consumer_types,
    consumers,
    inventories,
    projects,
    resource_classes,
    resource_providers,
    users,
)
from placebench.lab.reference.domain.problems import NotFound
from placebench.lab.reference.store.database import Database
from placebench.lab.reference.store.providers import known_provider, select_with_inventories

_NO_TYPE: Final = "unknown"


def read_consumer_allocations(connection: Connection, consumer: str) -> dict[str, Any]:
    """Return the document of a consumer: only {"allocations": {}} if it has no allocations.

    SELECT rp.uuid, rp.generation, a.used, c.generation, (SELECT name FROM resource_classes ...), (SELECT external_id
    FROM projects ...), (SELECT external_id FROM users ...), (SELECT name FROM consumer_types ...)
    FROM allocations a JOIN resource_providers rp ... JOIN consumers c ON c.uuid = a.consumer_id
    WHERE a.consumer_id = :consumer ORDER BY a.id
    """
    rows = connection.execute(_OF_CONSUMER, {"consumer": consumer}).mappings().all()
    found: dict[str, Any] = {"allocations": {}}
    for row in rows:
        entry = found["allocations"].setdefault(row["provider"], {"generation": row["generation"], "resources": {}})
        entry["resources"][row["resource_class"]] = row["used"]
    if rows:
        found |= {name: rows[0][name] for name in ("project_id", "user_id", "consumer_generation")}
        found["consumer_type"] = rows[0]["consumer_type"] or _NO_TYPE
    return found


def _select_of_consumer() -> Select[Any]:
    """Return the SELECT of a consumer's allocations.

    It is made once per process, since building the expressions costs as much CPU time as the rest of a small read.
    Names are read by scalar subqueries, since planning a join of seven tables costs PostgreSQL more than all the rest.
    """
    own, provider, who = allocations.c, resource_providers.c, consumers.c
    joined = allocations.join(resource_providers, provider.id == own.resource_provider_id).join(
        consumers, who.uuid == own.consumer_id
    )
    query = select(
        provider.uuid.label("provider"),
        provider.generation,
        _one(resource_classes.c.name, own.resource_class_id).label("resource_class"),
        own.used,
        who.generation.label("consumer_generation"),
        _one(projects.c.external_id, who.project_id).label("project_id"),
        _one(users.c.external_id, who.user_id).label("user_id"),
        _one(consumer_types.c.name, who.consumer_type_id).label("consumer_type"),
    ).select_from(joined)
    return query.where(own.consumer_id == bindparam("consumer")).order_by(own.id)


def _one(column: Column[str], key: ColumnElement[int]) -> ScalarSelect[str]:
    return select(column).where(column.table.c.id == key).scalar_subquery()


_OF_CONSUMER: Final = _select_of_consumer()


def read_provider_allocations(connection: Connection, provider_id: int) -> dict[str, Any]:
    """Return the provider's allocations by consumer.

    SELECT c.uuid, c.generation, rc.name, a.used FROM allocations a JOIN consumers c ON c.uuid = a.consumer_id
    JOIN resource_classes rc ON rc.id = a.resource_class_id WHERE a.resource_provider_id = :provider_id
    """
    own = allocations.c
    joined = allocations.join(consumers, consumers.c.uuid == own.consumer_id).join(
        resource_classes, resource_classes.c.id == own.resource_class_id
    )
    query = select(consumers.c.uuid, consumers.c.generation, resource_classes.c.name, own.used).select_from(joined)
    rows = connection.execute(query.where(own.resource_provider_id == provider_id).order_by(own.id))
    found: dict[str, Any] = {}
    for consumer, generation, resource_class, used in rows:
        entry = found.setdefault(consumer, {"consumer_generation": generation, "resources": {}})
        entry["resources"][resource_class] = used
    return found


def delete_allocations(database: Database, consumer: str) -> None:
    """Delete the consumer and its allocations, without a check of its generation; raise NotFound if it has none.

    The providers' generations do not change, as in Placement. The SQL is one message if the database takes messages.
    """
    nothing = NotFound(f"no allocations for consumer {consumer}")

    def delete_at_once(connection: Connection) -> None:
        if connection.exec_driver_sql(_DELETE, {"consumer": consumer}).scalar_one() == 0:
            raise nothing

    def delete_step_by_step(connection: Connection) -> None:
        connection.execute(select(consumers.c.id).where(consumers.c.uuid == consumer).with_for_update())
        if connection.execute(delete(allocations).where(allocations.c.consumer_id == consumer)).rowcount == 0:
            raise nothing
        connection.execute(delete(consumers).where(consumers.c.uuid == consumer))

    if database.takes_messages:
        database.write_at_once(delete_at_once)
    else:
        database.write(delete_step_by_step)


# First a row lock, then a statement that sees all that was committed before the lock. A single statement deletes from
# both tables: a claim that is committed between two statements would lose its consumer or its allocations only.
_DELETE: Final = """
SELECT FROM consumers WHERE uuid = %(consumer)s FOR UPDATE;
WITH given_back AS (
    DELETE FROM allocations WHERE consumer_id = %(consumer)s RETURNING id
), forgotten AS (
    DELETE FROM consumers WHERE uuid = %(consumer)s AND EXISTS (SELECT FROM given_back)
)
SELECT count(*) FROM given_back
"""


ALL_TYPES: Final = "all"


def read_provider_usages(connection: Connection, uuid: str) -> tuple[int, dict[str, int]]:
    """Return the provider's generation, and the amount in use (perhaps 0) of each class in its inventories.

    Raises NotFound if the provider does not exist.

    SELECT p.generation, (SELECT name FROM resource_classes WHERE id = i.resource_class_id), (SELECT coalesce(sum(used),
    0) FROM allocations WHERE resource_provider_id = p.id AND resource_class_id = i.resource_class_id)
    FROM resource_providers p LEFT JOIN inventories i ON i.resource_provider_id = p.id
    WHERE p.uuid = :uuid AND p.root_provider_id IS NOT NULL
    """
    rows = known_provider(connection.execute(_USAGES_OF_PROVIDER, {"uuid": uuid}).all(), uuid)
    return rows[0][0], {name: int(amount) for _, name, amount in rows if name is not None}


_USAGES_OF_PROVIDER: Final = select_with_inventories(
    select(func.coalesce(func.sum(allocations.c.used), 0))
    .where(allocations.c.resource_provider_id == resource_providers.c.id)
    .where(allocations.c.resource_class_id == inventories.c.resource_class_id)
    .scalar_subquery()
)


def read_project_usages(
    connection: Connection, project: str, *, user: str | None, consumer_type: str | None
) -> dict[str, dict[str, int]]:
    """Return the amounts in use by consumer type: {"INSTANCE": {"consumer_count": 2, "VCPU": 3}}. Two statements.

    The result of a project without allocations is {}.

    user: count only the consumers of this user, if it is not None.
    consumer_type: count only consumers of this type; "unknown": only those without a type; "all": all types together,
        under the key "all"; None: each type by itself.

    SELECT type, count(DISTINCT a.consumer_id) FROM ... GROUP BY type
    SELECT type, rc.name, sum(a.used) FROM ... GROUP BY type, rc.name
    """
    kind = literal(ALL_TYPES) if consumer_type == ALL_TYPES else func.coalesce(consumer_types.c.name, literal(_NO_TYPE))
    chosen = select(
        kind.label("kind"), allocations.c.consumer_id, allocations.c.resource_class_id, allocations.c.used
    ).select_from(_joined())
    part = chosen.where(*_conditions(project, user, consumer_type)).subquery()
    counts = select(part.c.kind, func.count(distinct(part.c.consumer_id))).group_by(part.c.kind)
    found: dict[str, dict[str, Any]] = {name: {"consumer_count": count} for name, count in connection.execute(counts)}
    named = part.join(resource_classes, resource_classes.c.id == part.c.resource_class_id)
    sums = select(part.c.kind, resource_classes.c.name, func.sum(part.c.used)).select_from(named)
    for name, resource_class, used in connection.execute(sums.group_by(part.c.kind, resource_classes.c.name)):
        found[name][resource_class] = int(used)
    return found


def _joined() -> FromClause:
    who = consumers.c
    return (
        allocations.join(consumers, who.uuid == allocations.c.consumer_id)
        .join(projects, projects.c.id == who.project_id)
        .join(users, users.c.id == who.user_id)
        .outerjoin(consumer_types, consumer_types.c.id == who.consumer_type_id)
    )


def _conditions(project: str, user: str | None, consumer_type: str | None) -> list[ColumnElement[bool]]:
    conditions = [projects.c.external_id == project]
    if user is not None:
        conditions.append(users.c.external_id == user)
    if consumer_type == _NO_TYPE:
        conditions.append(consumers.c.consumer_type_id.is_(None))
    elif consumer_type not in (None, ALL_TYPES):
        conditions.append(consumer_types.c.name == consumer_type)
    return conditions
