"""Where the root of a provider stands: in a column of its row, or at the end of a walk from the roots down."""

from typing import Final

from sqlalchemy import CTE, select

from placebench.reference.optimizations.optimization import Implementation, Optimization
from placebench.tables import resource_providers


def walked_down() -> CTE:
    """The providers with their roots, found level by level; every query walks the whole forest.

    What stands below a provider without a root is not reached.

    WITH RECURSIVE walked AS (
      SELECT id, uuid, parent_provider_id, id AS root_provider_id FROM resource_providers
      WHERE parent_provider_id IS NULL AND root_provider_id IS NOT NULL
      UNION ALL SELECT child.id, child.uuid, child.parent_provider_id, walked.root_provider_id
      FROM resource_providers child JOIN walked ON child.parent_provider_id = walked.id
      WHERE child.root_provider_id IS NOT NULL)
    """
    own, child = resource_providers.c, resource_providers.alias("child")
    roots = select(own.id, own.uuid, own.parent_provider_id, own.id.label("root_provider_id")).where(
        own.parent_provider_id.is_(None), own.root_provider_id.is_not(None)
    )
    walked = roots.cte("walked", recursive=True)
    below = select(child.c.id, child.c.uuid, child.c.parent_provider_id, walked.c.root_provider_id).join(
        walked, child.c.parent_provider_id == walked.c.id
    )
    return walked.union_all(below.where(child.c.root_provider_id.is_not(None)))


WALKED: Final = walked_down()


OPTIMIZATION = Optimization(
    name="roots",
    step="roots",
    baseline=Implementation("denormalised", resource_providers),
    further=(Implementation("walked", WALKED),),
    why="A column that repeats what the parents say saves the walk, and moving a subtree has to update it.",
    source="Placement keeps root_provider_id in each row since microversion 1.14 (2018).",
    metric="cpu_s",
)
