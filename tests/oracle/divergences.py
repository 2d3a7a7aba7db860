"""The known defects of Placement 16.0.0 and the situations in which they show: docs/lab/service.md has the table.

A difference counts as known only where its situation is present and the specification says what ours says (or, where
only PostgreSQL is at fault, Placement itself on SQLite says it). The main part is `suspects`.
"""

from collections.abc import Iterable, Iterator

from cloud import Cloud
from queries import TWICE, Group, Query


def suspects(cloud: Cloud, query: Query, status: int, *, postgresql: bool, wide: bool) -> Iterator[str]:
    """The defects that could be behind an answer of Placement's with this status.

    wide: it runs with optimize_for_wide_provider_trees.
    """
    spread = [group for group in query.all_groups if not group.suffix]
    alone = [group for group in query.all_groups if group.suffix]
    sharing = cloud.sharing()
    if postgresql and status == 500 and any(group.forbidden for group in spread):
        yield "D1"
    if status == 500 and spread and any(cloud.providers[place].parent is not None for place in sharing):
        yield "D3"
    if status == 200 and spread and alone and sharing:
        yield "D4"
    if status == 200 and query.policy != "none" and _classes_of(spread) & _classes_of(alone):
        yield "D5"
    if query.spoilt in TWICE:
        yield "D6"
    if wide and status == 200 and _asked_twice(query):
        yield "D9"


def _classes_of(groups: Iterable[Group]) -> set[str]:
    return {name for group in groups for name, _ in group.resources}


def _asked_twice(query: Query) -> bool:
    names = [name for group in query.all_groups for name, _ in group.resources]
    return len(names) > len(set(names))
