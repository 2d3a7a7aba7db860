"""With a limit, different requests name different hosts: which trees come first follows from the request and a seed."""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placebench.lab.reference.candidates.dedup.relevance import SAME_RELEVANCE, Equivalence
from placebench.lab.reference.candidates.dedup.solver import solve
from placebench.lab.reference.candidates.dedup.tree_index import InventoryType, TreeClass, TreeIndex
from placebench.lab.reference.domain.candidates_query import parse_query
from placebench.lab.reference.domain.settings import BREADTH_FIRST, DEFAULTS, ServiceSettings

HOSTS = 200
CLASSES = ("VCPU", "MEMORY_MB")
ROOT = -1


def put(index: TreeIndex, number: int, free: Sequence[int]) -> None:
    """Add a host with these amounts of VCPU and MEMORY_MB; its number is its uuid."""
    provider = index.intern_provider(tuple(InventoryType(name, 1, 1) for name in CLASSES), ())
    tree_class = TreeClass(index.intern_tree((provider,), (ROOT,)), tuple(free), ("",), (frozenset(),))
    index.put(number, tree_class, [f'"{number}"'])


def hosts(free: Iterable[Sequence[int]]) -> TreeIndex:
    """Flat hosts with these free amounts, numbered from 1."""
    index = TreeIndex()
    index.names.resource_classes |= {*CLASSES}
    for number, amounts in enumerate(free, 1):
        put(index, number, amounts)
    return index


EQUAL = hosts([(128, 262_144)] * HOSTS)


def named(index: TreeIndex, query: str, settings: ServiceSettings = DEFAULTS) -> list[int]:
    """The hosts of the candidates, one each, in order."""
    body = solve(index, parse_query(query), settings)
    assert isinstance(body, bytes)
    found = [host for each in json.loads(body)["allocation_requests"] for host in each["allocations"]]
    assert len(found) == len(set(found))
    return list(map(int, found))


@pytest.mark.parametrize(
    "query",
    [
        lambda number: f"resources=VCPU:{number + 1}",
        lambda number: f"resources=VCPU:2,MEMORY_MB:{512 * (number + 1)}",
        lambda number: f"resources=VCPU:{number % 4 + 1},MEMORY_MB:{1024 * (number + 1)}",
    ],
    ids=["VCPU", "memory", "both"],
)
def test_sixty_requests_name_every_host(query: Callable[[int], str]) -> None:
    """Ten hosts each of 200 equal ones: all 200 are named, none by more than five; 191 would be expected by chance."""
    counts = Counter(host for number in range(60) for host in named(EQUAL, f"{query(number)}&limit=10"))

    assert sum(counts.values()) == 600
    assert len(counts) == HOSTS
    assert max(counts.values()) <= 5


def test_requests_that_have_nothing_in_common_spread_as_by_chance() -> None:
    """Twenty times sixty requests for any amounts: a host is left out by all of them with a probability of 0.95⁶⁰, so
    some 191 of 200 are named."""
    random = Random(20)
    counts = []
    for _ in range(20):
        queries = (f"resources=VCPU:{random.randint(1, 64)},MEMORY_MB:{random.randint(1, 65_536)}" for _ in range(60))
        counts.append(len({host for query in queries for host in named(EQUAL, f"{query}&limit=10")}))

    assert 188 <= sum(counts) / 20 <= 194


def test_request_and_seed_decide() -> None:
    """The same request names the same hosts again, a smaller limit some of them, and another seed others."""
    query = "resources=VCPU:3&limit="
    of_seed = [named(EQUAL, f"{query}10", ServiceSettings(seed=seed)) for seed in range(40)]

    assert named(EQUAL, f"{query}10") == of_seed[0]
    assert named(EQUAL, f"{query}3") == of_seed[0][:3]
    assert len({host for found in of_seed for host in found}) > 150


def test_the_names_of_a_request_decide_too() -> None:
    """Groups with other suffixes and the same amount begin elsewhere."""
    starts = {named(EQUAL, f"resources{number}=VCPU:1&limit=1")[0] for number in range(60)}

    assert len(starts) > 40


def test_the_few_hosts_that_fit_are_named_by_turns() -> None:
    """Ten of 1000 hosts fit, which a request without a limit has grouped: of sixty requests for one each names some."""
    index = hosts((64 if number % 100 == 50 else 1, 262_144) for number in range(1000))
    fitting = set(named(index, "resources=VCPU:2,MEMORY_MB:1"))

    one_each = [named(index, f"resources=VCPU:2,MEMORY_MB:{amount + 1}&limit=1") for amount in range(60)]

    assert len(fitting) == 10
    assert {host for (host,) in one_each} == fitting


def test_a_request_that_no_host_meets_is_compared_with_each_of_them_once() -> None:
    """A limit of 10 compares 30 hosts one by one, then all 100; later requests compare none until a host changes."""
    index, compared = hosts((number, 8) for number in range(1, 101)), list[int]()

    def level(amounts: Sequence[int], most: int) -> int:
        compared.append(most)
        return bisect_right(amounts, most)

    def count(query: str) -> int:
        compared.clear()
        solve(index, parse_query(query), equivalence=Equivalence(level, SAME_RELEVANCE.key))
        return len(compared)

    assert count("resources=VCPU:200&limit=10") == 30 + 100
    assert [count(f"resources=VCPU:300{limit}") for limit in ("&limit=1", "&limit=10", "&limit=99", "")] == [0, 0, 0, 0]
    index.remove(7)
    assert count("resources=VCPU:200&limit=90") == 99


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=40),
    st.integers(1, 45),
    st.integers(0, 2**32 - 1),
    st.sampled_from([DEFAULTS.strategy, BREADTH_FIRST]),
)
def test_a_limit_takes_that_many_of_all(free: list[tuple[int, int]], limit: int, seed: int, strategy: str) -> None:
    """Wherever the search begins, each host that fits is named once, until there are enough."""
    index, settings = hosts(free), ServiceSettings(seed=seed, strategy=strategy)

    some = named(index, f"resources=VCPU:2&limit={limit}", settings)

    every = {number for number, (units, _) in enumerate(free, 1) if units >= 2}
    assert set(some) <= every
    assert len(some) == min(limit, len(every))


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=30))
def test_an_index_knows_its_roots_after_any_changes(changes: list[tuple[bool, int]]) -> None:
    """Trees are added, replaced and removed, and the roots are read in between."""
    index, present = hosts([]), set[int]()
    for add, number in changes:
        index.remove(number)
        present.discard(number)
        if add:
            put(index, number, (1, 1))
            present.add(number)
        if number % 2:
            assert list(index.roots) == sorted(present)
    assert list(index.roots) == sorted(present)
