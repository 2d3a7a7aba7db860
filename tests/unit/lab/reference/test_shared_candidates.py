"""Candidates that only consist of sharing providers, which many trees have: each is selected once, in a few steps."""

import json
from collections.abc import Collection, Iterable
from itertools import product
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placebench.lab.reference.candidates.dedup.solver import solve
from placebench.lab.reference.candidates.dedup.tree_index import InventoryType, TreeClass, TreeIndex
from placebench.lab.reference.domain.candidates_query import parse_query
from placebench.lab.reference.domain.settings import BREADTH_FIRST, DEPTH_FIRST, ServiceSettings

SHARES = "MISC_SHARES_VIA_AGGREGATE"
ROOT = -1
QUERY = "resources1=DISK_GB:1&resources2=DISK_GB:2&group_policy=none"


class Uuid(str):
    """A uuid that counts how often all uuids are hashed."""

    __slots__ = ()
    hashed: ClassVar[list[int]] = [0]

    def __hash__(self) -> int:
        """Count, and return the hash of the text."""
        self.hashed[0] += 1
        return super().__hash__()


def cloud(providers: Iterable[tuple[int, Collection[str], bool]]) -> TreeIndex:
    """Flat providers, numbered from 1, with an amount of DISK_GB and aggregates, and whether they share."""
    index = TreeIndex()
    index.names.resource_classes.add("DISK_GB")
    for number, (free, aggregates, shares) in enumerate(providers, 1):
        provider = index.intern_provider((InventoryType("DISK_GB", 1, 1),) if free else (), (SHARES,) if shares else ())
        most = (free,) if free else ()
        tree_class = TreeClass(index.intern_tree((provider,), (ROOT,)), most, ("",), (frozenset(aggregates),))
        index.put(number, tree_class, [Uuid(f'"{number}"')])
    return index


def mapped(index: TreeIndex, query: str, strategy: str = DEPTH_FIRST) -> list[tuple[int, ...]]:
    """The numbers of the providers that each candidate maps the groups to, in order."""
    body = solve(index, parse_query(query), ServiceSettings(strategy=strategy))
    assert isinstance(body, bytes)
    found = json.loads(body)["allocation_requests"]
    return [tuple(int(uuid) for group in "12" for uuid in each["mappings"][group]) for each in found]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sets(st.sampled_from("abc"), max_size=2), st.booleans()), max_size=12),
    st.integers(1, 40),
    st.sampled_from([DEPTH_FIRST, BREADTH_FIRST]),
)
def test_each_candidate_of_all_trees_is_selected_once(providers: list[Any], limit: int, strategy: str) -> None:
    """A tree can use its own provider and those that share through one of its aggregates."""
    usable = [
        [
            number
            for number, (_, others, shares) in enumerate(providers, 1)
            if number == own or (shares and not aggregates.isdisjoint(others))
        ]
        for own, (_, aggregates, _) in enumerate(providers, 1)
    ]
    expected = {
        (first, second)
        for numbers in usable
        for first, second in product(numbers, repeat=2)
        if providers[first - 1][0] >= 1 and providers[second - 1][0] >= (3 if first == second else 2)
    }
    index = cloud(providers)

    everything = mapped(index, QUERY, strategy)
    some = mapped(index, f"{QUERY}&limit={limit}", strategy)

    assert sorted(everything) == sorted(expected)
    assert len(some) == len(set(some)) == min(limit, len(expected))
    assert set(some) <= expected


@pytest.mark.parametrize("limit", ["", "&limit=100", "&limit=1000"])
@pytest.mark.parametrize("disk", [0, 9])
def test_trees_with_equal_sharing_providers_compare_their_candidates_once(limit: str, disk: int) -> None:
    """Ten providers make 100 candidates, with two uuids each; 90 more trees hash at most 30 uuids each."""

    def hashed(trees: int) -> int:
        index = cloud([(disk, "a", False)] * trees + [(9, "a", True)] * 10)
        Uuid.hashed[0] = 0
        mapped(index, QUERY + limit)
        return Uuid.hashed[0]

    assert hashed(100) - hashed(10) <= 90 * 30
