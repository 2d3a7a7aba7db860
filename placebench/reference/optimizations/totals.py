"""What is used of an inventory: summed from the allocations in each request, or kept beside them by a trigger."""

from typing import Any

from sqlalchemy import ColumnElement, FromClause, func, select

from placebench.reference.optimizations.optimization import Implementation, Optimization
from placebench.tables import allocations, placebench_usages


def summed(class_id: ColumnElement[Any] | None = None) -> FromClause:
    """What is used of each provider and class, of one class where it is named.

    SELECT resource_provider_id, resource_class_id, sum(used) AS used FROM allocations
    [WHERE resource_class_id = :class_id] GROUP BY resource_provider_id, resource_class_id
    """
    own = allocations.c
    of = own.resource_provider_id, own.resource_class_id
    sums = select(*of, func.sum(own.used).label("used")).group_by(*of)
    return (sums if class_id is None else sums.where(own.resource_class_id == class_id)).subquery("usage")


def kept(_class_id: ColumnElement[Any] | None = None) -> FromClause:
    """The table that a trigger on the allocations keeps; schema/options/kept_usages.py makes both."""
    return placebench_usages.alias("usage")


OPTIMIZATION = Optimization(
    name="totals",
    step="totals",
    baseline=Implementation("summed", summed),
    further=(Implementation("kept", kept, revision="kept_usages", postgresql_only=True),),
    why="Reads add up the same allocations again and again; a trigger adds each up once, and slows every claim.",
    source="Placement sums in each request; nova's row of a compute node holds such sums.",
    on="nested-perfload with allocations (`--utilization 0.5`)",
    fill=0.5,
    metric="cpu_s",
)
