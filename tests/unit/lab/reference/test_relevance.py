"""What a request can tell apart in what providers have: sums of amounts, bounded whatever is requested; aggregates."""

import tracemalloc
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from placebench.lab.reference.candidates.dedup.equivalence import EquivalenceClasses
from placebench.lab.reference.candidates.dedup.relevance import MAX_SUMS, Assessor, possible_sums
from placebench.lab.reference.candidates.dedup.tree_index import ROOT, InventoryType, TreeClass, TreeIndex
from placebench.lab.reference.domain.candidates_query import parse_query

LARGEST = 2**31 - 1
AMOUNTS = st.one_of(st.integers(1, 12), st.sampled_from([2**n for n in range(36)]), st.integers(1, 2 * LARGEST))


@given(st.lists(AMOUNTS, min_size=1, max_size=10))
def test_each_sum_of_some_amounts_is_possible(amounts: list[int]) -> None:
    """No sum that an inventory can give is missing, the sums ascend, and a list of them has no others."""
    sums = {sum(some) for count in range(len(amounts) + 1) for some in combinations(amounts, count)}

    found = possible_sums(amounts)

    expected = {total for total in sums if total <= LARGEST}
    if isinstance(found, range):
        assert len(expected) > MAX_SUMS
        assert all(total in found for total in expected)
    else:
        assert sorted(expected) == found


def test_few_sums_are_exact_and_many_are_a_range() -> None:
    """Amounts of 4, 8 and 12 have seven sums; eleven powers of two from 4 on have 2048, all of them multiples of 4."""
    assert possible_sums([4, 8, 12]) == [0, 4, 8, 12, 16, 20, 24]
    assert possible_sums([4 * 2**n for n in range(11)]) == range(0, 4 * 2**11 - 3, 4)


def test_a_request_of_many_different_amounts_takes_little_memory() -> None:
    """Sixty groups, each of twice the amount of the one before, have 2⁶⁰ sums: less than 1 MB is allocated."""
    query = "&".join(f"resources{number}=VCPU:{2**number}" for number in range(60))
    request = parse_query(f"{query}&group_policy=none")

    tracemalloc.start()
    assessor = Assessor(request)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert assessor.contended == assessor.amounts == {"VCPU": range(2**31)}
    assert peak_bytes < 1_000_000


def test_only_the_aggregates_that_a_request_names_are_told_apart() -> None:
    """Hosts in neither, one or both of two aggregates are four kinds; a request that names one of them sees two."""
    named, other = "00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"
    index = TreeIndex()
    host = index.intern_provider((InventoryType("VCPU", 1, 1),), ())
    for root_id, uuids in enumerate([{named}, {other}, set[str](), {named, other}]):
        layout = index.intern_tree((host,), (ROOT,))
        index.put(root_id, TreeClass(layout, (8,), ("",), (frozenset(uuids),)), [f"host {root_id}"])

    classes = EquivalenceClasses(index, Assessor(parse_query(f"resources=VCPU:1&member_of={named}"))).all()

    trees = [[tree[0] for tree in each.trees] for each in classes]
    assert [["host 0", "host 3"], ["host 1", "host 2"]] == trees
