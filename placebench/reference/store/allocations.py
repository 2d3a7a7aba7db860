"""Allocations read and deleted, and sums of them: usages. `claims.py` writes them."""

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, FromClause, Select, bindparam, delete, distinct, func, literal, select

from placebench.reference.api.problems import NotFound
from placebench.reference.store.consumers import delete_consumer
from placebench.tables import (
    allocations,
    consumer_types,
    consumers,
    inventories,
    projects,
    resource_classes,
    resource_providers,
    users,
)

_NO_TYPE: Final = "unknown"


def read_consumer_allocations(connection: Connection, consumer: str) -> dict[str, Any]:
    """Return the document of a consumer: {"allocations": {}} alone if it has nothing.

    SELECT rp.uuid, rp.generation, rc.name, a.used, c.generation, p.external_id, u.external_id, t.name
    FROM allocations a JOIN resource_providers rp ... JOIN resource_classes rc ... JOIN consumers c ON c.uuid =
    a.consumer_id JOIN projects p ... JOIN users u ... LEFT JOIN consumer_types t ... WHERE a.consumer_id = :consumer
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
    """Made once, as others below: to put the expressions together costs as much CPU as the rest of a small read."""
    own = allocations.c
    provider, kind, who = resource_providers.c, consumer_types.c, consumers.c
    joined = (
        allocations.join(resource_providers, provider.id == own.resource_provider_id)
        .join(resource_classes, resource_classes.c.id == own.resource_class_id)
        .join(consumers, who.uuid == own.consumer_id)
        .join(projects, projects.c.id == who.project_id)
        .join(users, users.c.id == who.user_id)
        .outerjoin(consumer_types, kind.id == who.consumer_type_id)
    )
    query = select(
        provider.uuid.label("provider"),
        provider.generation,
        resource_classes.c.name.label("resource_class"),
        own.used,
        who.generation.label("consumer_generation"),
        projects.c.external_id.label("project_id"),
        users.c.external_id.label("user_id"),
        kind.name.label("consumer_type"),
    ).select_from(joined)
    return query.where(own.consumer_id == bindparam("consumer")).order_by(own.id)


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
    return _by_consumer(rows)


def delete_allocations(connection: Connection, consumer: str) -> None:
    """Take all from the consumer, whatever its generation, and forget it; NotFound if it has nothing.

    Three statements; the providers' generations stay, as in Placement.
    """
    connection.execute(select(consumers.c.id).where(consumers.c.uuid == consumer).with_for_update())
    if connection.execute(delete(allocations).where(allocations.c.consumer_id == consumer)).rowcount == 0:
        raise NotFound(f"no allocations for consumer {consumer}")
    delete_consumer(connection, consumer)


def _by_consumer(rows: Iterable[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for consumer, generation, resource_class, used in rows:
        entry = found.setdefault(consumer, {"consumer_generation": generation, "resources": {}})
        entry["resources"][resource_class] = used
    return found


ALL_TYPES: Final = "all"


def read_provider_usages(connection: Connection, provider_id: int) -> dict[str, int]:
    """What is used of each class that the provider has an inventory of, 0 too.

    SELECT rc.name, coalesce(sum(a.used), 0) FROM inventories i JOIN resource_classes rc ON rc.id = i.resource_class_id
    LEFT JOIN allocations a ON a.resource_provider_id = i.resource_provider_id
    AND a.resource_class_id = i.resource_class_id WHERE i.resource_provider_id = :provider_id GROUP BY rc.name
    """
    rows = connection.execute(_USAGES_OF_PROVIDER, {"provider_id": provider_id})
    return {name: int(amount) for name, amount in rows}


def _select_usages_of_provider() -> Select[Any]:
    own, used = inventories.c, allocations.c
    same = (used.resource_provider_id == own.resource_provider_id) & (used.resource_class_id == own.resource_class_id)
    joined = inventories.join(resource_classes, resource_classes.c.id == own.resource_class_id).outerjoin(
        allocations, same
    )
    query = select(resource_classes.c.name, func.coalesce(func.sum(used.used), 0)).select_from(joined)
    return query.where(own.resource_provider_id == bindparam("provider_id")).group_by(resource_classes.c.name)


_USAGES_OF_PROVIDER: Final = _select_usages_of_provider()


def read_project_usages(
    connection: Connection, project: str, *, user: str | None, consumer_type: str | None
) -> dict[str, dict[str, int]]:
    """What the project's consumers use, by type: {"INSTANCE": {"consumer_count": 2, "VCPU": 3}}. Two statements.

    user: only the consumers of this user. consumer_type: only this type; "unknown": only those without a type;
    "all": all of them together; None: each type apart. A project that uses nothing has no types.

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
