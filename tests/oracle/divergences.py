"""The known defects of Placement 16.0.0 and the situations in which they show: docs/lab/service.md has the table.

A difference counts as known only where its situation is present and the specification says what ours says (or, where
only PostgreSQL is at fault, Placement itself on SQLite says it). The main part is `suspects`.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from cloud import Cloud
from queries import TWICE, Group, Query

_PROVIDER: Final = "/resource_providers/00000000-0000-4000-8000-000000000001"
_STOCK: Final = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}, "a b": 5}}
_SHAPE: Final = {"inventories": {_PROVIDER.rpartition("/")[2]: _STOCK}, "allocations": {}}
_AGGREGATES: Final = "{'resource_provider_generation': 9, 'aggregates': ['%s']}"

DELIBERATE: Final = {
    ("GET", "/resource_providers", "", "None"): "D14",  # 401 is an error document like any other
    ("PUT", _PROVIDER, "", r"{'name': 'nul\x00'}"): "D15",  # PostgreSQL cannot store NUL: 400
    ("POST", "/resource_providers", "", r"{'name': 'nul\x00'}"): "D15",
    ("GET", "/resource_providers", "name=%00", "None"): "D15",
    ("PUT", f"{_PROVIDER}/inventories", "", str(_STOCK)): "D16",  # a key that is not a name of a class: 500 there
    ("POST", "/reshaper", "", str(_SHAPE)): "D16",
    ("GET", "/traits", "name=startswith:HW_%25", "None"): "D19",  # a percent sign is no wildcard of LIKE
    ("GET", f"{_PROVIDER}\n", "", "None"): "D17",  # a line feed is not part of a name or UUID
    ("PUT", "/traits/CUSTOM_A\n", "", "None"): "D17",
    ("PUT", "/resource_classes/CUSTOM_A\n", "", "None"): "D17",
    ("PUT", f"{_PROVIDER}/aggregates", "", _AGGREGATES % "{00000000-0000-4000-8000-000000000002}"): "D18",
    ("PUT", f"{_PROVIDER}/aggregates", "", _AGGREGATES % "urn:uuid:00000000-0000-4000-8000-000000000002"): "D18",
}
"""Differences that are meant, by method, path, query and body; D18: a UUID longer than its column is 400."""


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
