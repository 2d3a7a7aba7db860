"""The search for combinations finds all that brute force finds, and never takes exponentially many steps to do so."""

import json
import tracemalloc
from collections.abc import Iterable, Sequence
from itertools import combinations as combinations_of
from itertools import islice, permutations, product
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placebench.lab.reference.candidates import combinations
from placebench.lab.reference.candidates.combinations import MAX_STEPS, Combinations, InventoryKey, Placed, StepLimit
from placebench.lab.reference.candidates.completion import Completion, Matching
from placebench.lab.reference.candidates.dedup.solver import solve
from placebench.lab.reference.candidates.dedup.tree_index import InventoryType, TreeClass, TreeIndex
from placebench.lab.reference.candidates.objects.groups import choices_with_traits
from placebench.lab.reference.domain.candidates_query import CandidateRequest, RequestGroup, parse_query
from placebench.lab.reference.domain.problems import BadRequest

NODES = (1, 2)  # the NUMA nodes of `numa_host`
ROOT = -1


class Host(Combinations[int]):
    """A tree in which a solution is the number of a provider, and which counts the solutions that were tried."""

    def __init__(
        self, request: CandidateRequest, parents: Sequence[int], free: Sequence[tuple[int, int]], steps: int = MAX_STEPS
    ) -> None:
        """free: the free amounts of the classes A and B at each provider; steps: how many may be taken in vain."""
        self.request = request
        self.parents = parents
        self.free = free
        self.tried = 0
        super().__init__(request, {"A": 0, "B": 1}, StepLimit(steps))

    def solvers(self, group: RequestGroup) -> list[int]:
        """The providers that can give all that the group wants."""
        wanted = dict(group.resources)
        return [
            number for number, (a, b) in enumerate(self.free) if a >= wanted.get("A", 0) and b >= wanted.get("B", 0)
        ]

    def completion(self, options: Sequence[Sequence[int]]) -> Completion:
        """What decides whether combinations can be completed."""
        completion = self._completion(options)
        assert completion
        return completion

    def _extended(self, placed: Placed[int], solution: int) -> Placed[int] | None:
        self.tried += 1
        return super()._extended(placed, solution)

    def _providers(self, solution: int) -> tuple[int, ...]:
        return (solution,)

    def _amounts(self, group: int, solution: int) -> Iterable[tuple[InventoryKey, int]]:
        names = {"A": 0, "B": 1}
        return [((solution, names[name]), amount) for name, amount in self.request.groups[group].resources]

    def _read_free(self, key: InventoryKey) -> int:
        return self.free[key[0]][key[1]]

    def _lineage(self, provider: int) -> tuple[int, ...]:
        lineage = []
        while provider != ROOT:
            lineage.append(provider)
            provider = self.parents[provider]
        return tuple(lineage)


@st.composite
def hosts(draw: Any, amounts: int, subtrees: int) -> tuple[Host, list[list[int]]]:
    """A host of up to 5 providers, with a request of up to 5 groups and the options of each group."""
    parents = [ROOT, *(draw(st.integers(0, number)) for number in range(draw(st.integers(0, 4))))]
    free = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=len(parents), max_size=len(parents)))
    suffixes = [f"_{number}" for number in range(draw(st.integers(2, 5)))]
    groups = tuple(
        RequestGroup(
            suffix,
            tuple((name, draw(st.integers(1, amounts))) for name in draw(st.sampled_from(["", "A", "A", "AB"]))),
        )
        for suffix in suffixes
    )
    same_subtrees = draw(st.lists(st.frozensets(st.sampled_from(suffixes), min_size=2), max_size=subtrees))
    request = CandidateRequest(groups, isolate=draw(st.booleans()), same_subtrees=tuple(same_subtrees))
    host = Host(request, parents, free)
    options = [[number for number in host.solvers(group) if draw(st.integers(0, 3)) or number == 0] for group in groups]
    return host, options


def brute_force(host: Host, options: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Every allowed combination, in the order of the options."""
    return list(filter(host.allows, product(*options)))


@settings(max_examples=300, deadline=None)
@given(hosts(amounts=3, subtrees=3), st.integers(0, 3))
def test_the_search_yields_what_brute_force_yields_in_its_order(
    case: tuple[Host, list[list[int]]], patience: int
) -> None:
    """Different amounts, two classes and several same_subtree: no combination is missing, added or moved."""
    host, options = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combinations, "PATIENCE", patience)

        assert brute_force(host, options) == list(host.combine(options))


@settings(max_examples=300, deadline=None)
@given(hosts(amounts=3, subtrees=3), st.data())
def test_a_completion_that_is_refused_does_not_exist(case: tuple[Host, list[list[int]]], data: Any) -> None:
    """Whatever the request, a prefix of an allowed combination is never refused."""
    host, options = case
    completion = host.completion(options)

    for combination in brute_force(host, options):
        assert completion.exists([(each,) for each in combination[: data.draw(st.integers(0, len(combination)))]])


@settings(max_examples=300, deadline=None)
@given(hosts(amounts=1, subtrees=1))
def test_equal_amounts_are_decided_exactly(case: tuple[Host, list[list[int]]]) -> None:
    """Groups that want the same, and one same_subtree: the response is empty exactly if the matching says so."""
    host, options = case
    if len({group.resources for group in host.request.groups if group.resources}) > 1 or not all(options):
        return
    found = brute_force(host, options)

    assert bool(found) == host.completion(options).exists([])


@settings(max_examples=300, deadline=None)
@given(hosts(amounts=3, subtrees=1), st.data())
def test_different_amounts_are_decided_exactly(case: tuple[Host, list[list[int]]], data: Any) -> None:
    """Any amounts of two classes, with group_policy=none and at most one same_subtree: the first groups' solutions can
    be completed exactly if the completion says so."""
    host, options = case
    if host.request.isolate or not all(options):
        return
    found = brute_force(host, options)
    completion = host.completion(options)

    for _ in range(4):
        start = tuple(data.draw(st.sampled_from(some)) for some in options[: data.draw(st.integers(0, len(options)))])
        is_possible = any(combination[: len(start)] == start for combination in found)
        assert is_possible == completion.exists([(each,) for each in start])


@settings(max_examples=300, deadline=None)
@given(hosts(amounts=2, subtrees=2), st.data())
def test_what_was_asked_before_changes_no_response(case: tuple[Host, list[list[int]]], data: Any) -> None:
    """One completion is asked about the beginnings of several combinations, and says what a new one says to each."""
    host, options = case
    if not all(options):
        return
    completion = host.completion(options)
    for _ in range(6):
        placed = [(data.draw(st.sampled_from(some)),) for some in options[: data.draw(st.integers(0, len(options)))]]

        assert host.completion(options).exists(placed) == completion.exists(placed)


def devices(groups: int, count: int, *, isolate: bool, numa: bool, units: int) -> tuple[Host, list[list[int]]]:
    """One unit for each group, on devices below a root or below its two NUMA nodes; with NUMA, all below one node.

    The search may take no step in vain.
    """
    wanted = [RequestGroup(f"_{number}", (("A", 1),)) for number in range(groups)]
    same = (frozenset(["_N", *(group.suffix for group in wanted)]),) if numa else ()
    parents = [ROOT, 0, 0, *(NODES[number * 2 // count] if numa else 0 for number in range(count))]
    node_group = [RequestGroup("_N")] if numa else []
    request = CandidateRequest((*wanted, *node_group), isolate=isolate, same_subtrees=same)
    host = Host(request, parents, [(0, 0)] * 3 + [(units, 0)] * count, steps=0)
    return host, [[*range(3, 3 + count)]] * groups + ([[*NODES]] if numa else [])


@pytest.mark.parametrize("numa", [False, True])
@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("units", [1, 2])
def test_steps_between_combinations_are_bounded_by_a_polynomial(units: int, isolate: bool, numa: bool) -> None:
    """From 4 to 24 groups on 4 to 24 devices, feasible and not: at most 9 × groups × providers solutions are tried
    before the first combination, between two of them, and after the last, and none in vain. The product is up to 24²⁴.
    """
    for groups, count in product([4, 7, 8, 9, 16, 24], [4, 8, 16, 24]):
        host, options = devices(groups, count, isolate=isolate, numa=numa, units=units)
        at_most = (combinations.PATIENCE + 1) * len(options) * (count + 1)
        capacity = (count // 2 if numa else count) * (1 if isolate else units)

        found = 0
        for _ in islice(host.combine(options), 50):
            found += 1
            assert host.tried <= at_most
            host.tried = 0

        assert host.tried <= at_most
        assert (found > 0) == (groups <= capacity)


def test_groups_that_need_more_than_a_count_are_refused_at_once() -> None:
    """Twelve groups on twelve devices, of which six can use the same five only (Hall's condition): fewer solutions are
    tried than one per group and device for each dead end, where permutations are 12!."""
    host, options = devices(12, 12, isolate=True, numa=False, units=1)
    options = options[:6] + [options[0][:5]] * 6

    assert list(host.combine(options)) == []
    assert host.tried <= (combinations.PATIENCE + 1) * 12 * 12


class Counted(list[int]):
    """A list that counts how many of its items were looked at one by one."""

    seen = 0

    def __iter__(self) -> Any:
        """Iterate over the items, and count them."""
        for each in super().__iter__():
            Counted.seen += 1
            yield each


@given(st.lists(st.sets(st.integers(0, 7)), min_size=8, max_size=8), st.integers(1, 3))
def test_a_matching_is_one_of_hall(sets: list[set[int]], capacity: int) -> None:
    """Eight groups are matched if and only if each set of them has providers with enough capacity together; each group
    looks at each edge at most once."""
    Counted.seen = 0
    allowed = [Counted(sorted(each)) for each in sets]
    matching = Matching(range(8), frozenset(), dict.fromkeys(range(8), capacity))

    unions = (
        (len(some), set().union(*(sets[group] for group in some)))
        for mask in range(1, 256)
        if (some := [group for group in range(8) if mask >> group & 1])
    )
    assert matching.repair(allowed) == all(count <= capacity * len(union) for count, union in unions)
    assert Counted.seen <= 8 * sum(map(len, sets))


def tree(providers: Sequence[tuple[Sequence[str], Sequence[str]]]) -> TreeIndex:
    """One tree: an empty root, and below it providers with 10 of each of these classes, and these traits."""
    index = TreeIndex()
    types = [
        index.intern_provider(tuple(InventoryType(name, 1, 1) for name in classes), tuple(traits))
        for classes, traits in [((), ()), *providers]
    ]
    layout = index.intern_tree(tuple(types), (ROOT, *[0] * len(providers)))
    none = (frozenset[str](),) * len(types)
    most = tuple(10 for _ in layout.inventories)
    index.put(1, TreeClass(layout, most, ("",) * len(types), none), [f'"{number}"' for number in range(len(types))])
    index.names.resource_classes |= {"A", "B", "C", *(name for classes, _ in providers for name in classes)}
    index.names.traits |= {"RED", "BLUE", "FAST"}
    return index


def test_one_candidate_of_many_classes_takes_little_memory() -> None:
    """Sixteen providers of six classes have 16⁶ = 16,777,216 candidates: one is made for a limit of 1."""
    names = [f"CUSTOM_{letter}" for letter in "ABCDEF"]
    index = tree([(names, ())] * 16)
    request = parse_query(f"resources={','.join(f'{name}:1' for name in names)}&limit=1")

    tracemalloc.start()
    body = solve(index, request)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert isinstance(body, bytes)
    assert len(json.loads(body)["allocation_requests"]) == 1
    assert peak_bytes < 1_000_000


SOME = st.tuples(
    st.sets(st.sampled_from("ABC")).map(sorted), st.sets(st.sampled_from(["RED", "BLUE", "FAST"])).map(sorted)
)


@given(st.lists(SOME, min_size=1, max_size=5))
def test_providers_of_the_classes_together_have_the_required_traits(providers: list[Any]) -> None:
    """The unsuffixed group has each choice of a provider per class with RED, and BLUE or FAST, in order."""
    request = parse_query("resources=A:1,B:2,C:3&required=RED&required=in:BLUE,FAST")
    body = solve(tree(providers), request)
    assert isinstance(body, bytes)

    givers = [[number for number, (names, _) in enumerate(providers, 1) if name in names] for name in "ABC"]
    expected = []
    for choice in product(*givers):
        traits = {name for number in choice for name in providers[number - 1][1]}
        if "RED" in traits and traits & {"BLUE", "FAST"}:
            expected.append([str(number) for number in dict.fromkeys(choice)])
    assert expected == [each["mappings"][""] for each in json.loads(body)["allocation_requests"]]


def test_a_trait_that_no_provider_has_is_noticed_before_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven equal devices with capacity for all groups, and none is RED: no step is taken in vain."""
    monkeypatch.setattr(combinations, "MAX_STEPS", 0)
    query = "&".join(f"resources{number}=A:{amount}" for number, amount in enumerate([3, 3, 2, 2, 2, 1], 1))
    request = parse_query(f"{query}&resources=A:2&required=RED&group_policy=none")

    assert solve(tree([(["A"], ())] * 7), request) == b'{"allocation_requests":[],"provider_summaries":{}}'


@given(
    st.lists(st.lists(st.integers(0, 5), max_size=4, unique=True), min_size=1, max_size=4),
    st.lists(st.frozensets(st.integers(0, 5)), max_size=3),
)
def test_choices_with_traits_are_those_of_the_product(choices: list[list[int]], required: list[frozenset[int]]) -> None:
    """One provider of each choice, in order, and of these those that hold each set of required traits."""
    every = [each for each in product(*choices) if all(not held.isdisjoint(each) for held in required)]

    assert every == list(choices_with_traits(choices, required, StepLimit().spend))


def test_traits_that_exclude_each_other_are_found_at_once() -> None:
    """Two traits, each on another provider of one class only, among 16 providers of 20 classes: 16²⁰ choices, none."""
    choices = [[*range(16)]] * 19 + [[16, 17]]

    assert list(choices_with_traits(choices, [{16}, {17}], StepLimit().spend)) == []


def test_a_set_cover_that_is_hard_is_given_up() -> None:
    """Five classes of 64 providers, of which some 14 in 64 have each of 60 traits: hardly one of 64⁵ choices has all of
    them, and the search ends at the maximum of steps."""
    rng = Random(1)
    choices = [[*range(number * 64, number * 64 + 64)] for number in range(5)]
    required = [{provider for provider in range(320) if rng.random() < 14 / 64} for _ in range(60)]

    with pytest.raises(BadRequest, match=f"given up after {MAX_STEPS} steps"):
        list(islice(choices_with_traits(choices, required, StepLimit().spend), 10))


@pytest.mark.parametrize(("amounts", "count"), [([4] * 6 + [3] * 12, 6), ([7, 6, 5, 4, 3, 3, 3, 3, 3, 3], 4)])
def test_equal_devices_are_searched_as_one_kind(amounts: list[int], count: int) -> None:
    """Different amounts on devices of ten units, which fit exactly or not at all: which of equal devices hold them
    makes no difference to what is left, so a few hundred solutions are tried, of 6¹⁸ and 4¹⁰ combinations."""
    groups = tuple(RequestGroup(f"_{number}", (("A", amount),)) for number, amount in enumerate(amounts))
    host = Host(CandidateRequest(groups), [ROOT, *[0] * (count - 1)], [(10, 0)] * count)

    found = list(islice(host.combine([[*range(count)]] * len(amounts)), 10))

    assert len(found) == (10 if count == 6 else 0)
    assert host.tried < 300


def test_a_search_that_is_hard_is_given_up() -> None:
    """36 different amounts that fill twelve equal devices but for five units are hard bin packing: with 694,000 steps
    ten combinations are found, and the search ends at the maximum."""
    amounts = [250 + number * number * 11 % 251 for number in range(36)]
    groups = tuple(RequestGroup(f"_{number}", (("A", amount),)) for number, amount in enumerate(amounts))
    host = Host(CandidateRequest(groups), [ROOT, *[0] * 11], [(sum(amounts) // 12 + 1, 0)] * 12)

    with pytest.raises(BadRequest, match=f"given up after {MAX_STEPS} steps"):
        list(host.combine([[*range(12)]] * len(amounts)))


def test_too_many_combinations_are_refused_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight groups on eight devices have 40,320 combinations: of these the first 1000 and 5000 others are found, which
    have 40,000 solutions."""
    monkeypatch.setattr(combinations, "MAX_FOUND", 40_000)
    monkeypatch.setattr(combinations, "NEVER_TOO_MANY", 5_000)
    host, options = devices(8, 8, isolate=True, numa=False, units=1)
    found = []

    with pytest.raises(BadRequest, match="more than 40000 mappings of groups together"):
        found.extend(host.combine(options))
    assert len(found) == 6_000
    assert list(islice(host.combine(options), 5)) == list(islice(permutations(options[0]), 5))


def test_ten_thousand_combinations_are_never_too_many() -> None:
    """Of 64 groups 1,000 and 10,000 combinations are found; the latter have 640,000 solutions, above the maximum."""
    host, options = devices(64, 64, isolate=True, numa=False, units=1)
    found = []

    with pytest.raises(BadRequest, match="more than 500000 mappings of groups together"):
        found.extend(len(each) for each in host.combine(options))
    assert [64] * 11_000 == found


def test_what_is_checked_for_combinations_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group takes one of forty nodes, and another one the device below it, so that a combination takes 41 checks
    of two solutions. Ten are free, and 24 others have fewer than two thousand."""
    monkeypatch.setattr(combinations, "FEW", 10)
    monkeypatch.setattr(combinations, "MAX_CHECKED", 2_000)
    groups = (RequestGroup("_0", (("A", 1),)), RequestGroup("_1", (("B", 1),)))
    request = CandidateRequest(groups, same_subtrees=(frozenset({"_0", "_1"}),))
    nodes, devices_below = [*range(1, 41)], [*range(41, 81)]
    host = Host(request, [ROOT, *[0] * 40, *nodes], [(0, 0), *[(1, 0)] * 40, *[(0, 1)] * 40])
    found = []

    with pytest.raises(
        BadRequest, match="given up after 2000 checks of same_subtree: request fewer candidates with limit"
    ):
        found.extend(host.combine([nodes, devices_below]))
    assert [*zip(nodes, devices_below, strict=True)][:34] == found


def test_a_thousand_combinations_of_each_tree_are_never_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four groups on six devices have 360 combinations, however many such trees a request has."""
    monkeypatch.setattr(combinations, "MAX_FOUND", 0)
    monkeypatch.setattr(combinations, "NEVER_TOO_MANY", 0)
    host, options = devices(4, 6, isolate=True, numa=False, units=1)

    assert [360] * 3 == [len(list(host.combine(options))) for _ in range(3)]


def test_what_several_same_subtree_try_in_vain_is_counted() -> None:
    """Seven groups of one unit, each two of which must be below one another, need seven levels, and a binary tree has
    six. The topmost providers of 21 same_subtree have more than 6²¹ choices: those tried in vain take a step per group.
    """
    names = [f"_{number}" for number in range(7)]
    pairs = tuple(map(frozenset, combinations_of(names, 2)))
    request = CandidateRequest(tuple(RequestGroup(name, (("A", 1),)) for name in names), same_subtrees=pairs)
    host = Host(request, [ROOT, *((number - 1) // 2 for number in range(1, 63))], [(1, 0)] * 63, steps=5_000)
    completion = host.completion([[*range(63)]] * 7)

    with pytest.raises(BadRequest, match="given up after 5000 steps"):
        completion.exists([])
    assert completion.questions == 22 + 5_000 // 7 + 1


def test_all_trees_of_a_request_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """One tree is found to have no candidate within the limit; of four such trees that differ, the request is refused:
    the time of a request does not grow with the trees."""
    amounts = [37, 53, 29, 41, 59, 23, 47, 31]
    query = "&".join(f"resources{number}=A:{amount}" for number, amount in enumerate(amounts))
    request = parse_query(f"{query}&group_policy=none")
    monkeypatch.setattr(combinations, "MAX_STEPS", 300)
    index = TreeIndex()
    index.names.resource_classes.add("A")
    device = index.intern_provider((InventoryType("A", 1, 1),), ())

    def add(number: int, most: tuple[int, ...]) -> None:
        layout = index.intern_tree((device,) * 4, (ROOT, 0, 0, 0))
        index.put(number, TreeClass(layout, most, ("",) * 4, (frozenset(),) * 4), [f'"{number}{n}"' for n in range(4)])

    add(1, (70, 72, 78, 100))
    assert solve(index, request) == b'{"allocation_requests":[],"provider_summaries":{}}'
    for number, most in enumerate([(70, 72, 83, 95), (70, 76, 83, 91), (72, 78, 82, 88)], 2):
        add(number, most)
    with pytest.raises(BadRequest, match="given up after 300 steps"):
        solve(index, request)
