"""What is used: of one provider's inventories, and by a project's consumers."""

from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, FromClause, distinct, func, literal, select

from placebench.reference.store.allocations import NO_TYPE
from placebench.tables import allocations, consumer_types, consumers, inventories, projects, resource_classes, users

ALL_TYPES: Final = "all"


def of_provider(connection: Connection, provider_id: int) -> dict[str, int]:
    """What is used of each class that the provider has an inventory of, 0 too.

    SELECT rc.name, coalesce(sum(a.used), 0) FROM inventories i JOIN resource_classes rc ON rc.id = i.resource_class_id
    LEFT JOIN allocations a ON a.resource_provider_id = i.resource_provider_id
    AND a.resource_class_id = i.resource_class_id WHERE i.resource_provider_id = :provider_id GROUP BY rc.name
    """
    own, used = inventories.c, allocations.c
    same = (used.resource_provider_id == own.resource_provider_id) & (used.resource_class_id == own.resource_class_id)
    joined = inventories.join(resource_classes, resource_classes.c.id == own.resource_class_id).outerjoin(
        allocations, same
    )
    query = select(resource_classes.c.name, func.coalesce(func.sum(used.used), 0)).select_from(joined)
    rows = connection.execute(query.where(own.resource_provider_id == provider_id).group_by(resource_classes.c.name))
    return {name: int(amount) for name, amount in rows}


def of_project(
    connection: Connection, project: str, *, user: str | None, consumer_type: str | None
) -> dict[str, dict[str, int]]:
    """What the project's consumers use, by type: {"INSTANCE": {"consumer_count": 2, "VCPU": 3}}. Two statements.

    user: only the consumers of this user. consumer_type: only this type; "unknown": only those without a type;
    "all": all of them together; None: each type apart. A project that uses nothing has no types.

    SELECT type, count(DISTINCT a.consumer_id) FROM ... GROUP BY type
    SELECT type, rc.name, sum(a.used) FROM ... GROUP BY type, rc.name
    """
    kind = literal(ALL_TYPES) if consumer_type == ALL_TYPES else func.coalesce(consumer_types.c.name, literal(NO_TYPE))
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
    if consumer_type == NO_TYPE:
        conditions.append(consumers.c.consumer_type_id.is_(None))
    elif consumer_type not in (None, ALL_TYPES):
        conditions.append(consumer_types.c.name == consumer_type)
    return conditions
