"""The optimizations of the candidate search.

For `naive` and `tuned`: how trees and usages are read, how sets of ids are stored, how summaries are made, and how
combinations are searched. For `dedup` and `cached`: how many trees are read, whether aggregates are, and which trees
are solved together. `RESPONSES` is whether responses are computed each time or kept in a cache service.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import product
from typing import Any

from sqlalchemy import Connection

from placebench.lab.reference.candidates.combinations import InventoryKey
from placebench.lab.reference.candidates.completion import Completion, CompletionRules
from placebench.lab.reference.candidates.dedup.relevance import SAME_AMOUNTS, SAME_RELEVANCE
from placebench.lab.reference.candidates.dedup.selection import Selection
from placebench.lab.reference.candidates.implementations import ResponseSource
from placebench.lab.reference.candidates.objects.combinations import (
    CandidateCombinations,
    TupleCombinations,
    object_providers,
    tuple_providers,
)
from placebench.lab.reference.candidates.objects.groups import (
    Solved,
    solutions_as_objects,
    solutions_as_tuples,
    solve_distinct,
    solve_each,
)
from placebench.lab.reference.candidates.objects.model import ProviderInventory, ProviderSummary
from placebench.lab.reference.candidates.objects.search import Document, Forest, SolutionForm, TreeForm
from placebench.lab.reference.candidates.results import Body
from placebench.lab.reference.domain.candidates_query import CandidateRequest
from placebench.lab.reference.domain.optimization import OBJECTS, REFERENCE_REQUEST, Extra, Implementation, Optimization
from placebench.lab.reference.store.candidate_queries import AMOUNTS

_Inventories = dict[InventoryKey, ProviderInventory]


def _combine_then_test(combinations: CandidateCombinations) -> list[Any]:
    """Test each combination of each anchor only when it is complete, and apply the limit to the finished list."""
    by_anchor = map(combinations.options, combinations.anchors)
    at_anchors = (filter(combinations.allows, product(*each)) for each in by_anchor if combinations.may_exist(each))
    return combinations.candidates(at_anchors, combinations.maximum)


def _combine_pruned(combinations: CandidateCombinations) -> list[Any]:
    """Extend combinations group by group, drop each at the first group that is not allowed, and stop at the limit."""
    at_anchors = (combinations.combine(combinations.options(anchor_id)) for anchor_id in combinations.anchors)
    return combinations.candidates(at_anchors, combinations.bound)


PRUNING = Optimization(
    name="pruning",
    field="search",
    baseline=Implementation("whole_product", _combine_then_test),
    alternative=Implementation("pruned", _combine_pruned),
    why="Eight groups over eight devices make 16 million combinations, of which 40 thousand are valid.",
    source="Placement 5b73b980 (2025) prunes behind an option, and applies limit last.",
    request="/allocation_candidates?resources_A=FPGA:1&resources_B=FPGA:1&resources_C=FPGA:1"
    "&group_policy=isolate&limit=10",
    metric="cpu_s",
)


def _try_all(_rules: CompletionRules) -> None:
    """Return None: whether groups can follow is found by trying their solutions."""


MATCHING = Optimization(
    name="matching",
    field="completion",
    baseline=Implementation("by_trial", _try_all),
    alternative=Implementation("by_matching", Completion),
    why="Five devices of one of two NUMA nodes that have four: no combination is allowed, and trying shows it at the "
    "last groups of each. A matching of groups and devices says so at once.",
    source="Hall 1935; Kuhn 1955. Placement combines all groups first (Launchpad 2070257, 2126751, 2160721).",
    request="/allocation_candidates?"
    + "&".join(f"resources{number}=VGPU:1" for number in range(1, 6))
    + "&required_N=HW_NUMA_ROOT&same_subtree=_N,1,2,3,4,5&group_policy=none&limit=10",
    metric="cpu_s",
    data="gpu-nodes",
    topology="gpu-nodes",
)


DISTINCT = Optimization(
    name="distinct",
    field="groups",
    baseline=Implementation("each_group", solve_each),
    alternative=Implementation("each_distinct", solve_distinct),
    why="Eight groups that want a device each read the same rows eight times, and make the same objects of them.",
    source="Our profile: of a request for 64 devices in 64 groups, equal statements and objects were nine tenths.",
    request="/allocation_candidates?"
    + "&".join(f"resources{number}=VGPU:1" for number in range(1, 4))
    + "&group_policy=isolate&limit=10",
    metric="round_trips",
    data="gpu-hosts",
    topology="gpu-hosts",
)


SOLUTIONS = Optimization(
    name="tuples",
    field="solutions",
    baseline=Implementation("objects", SolutionForm(solutions_as_objects, object_providers, CandidateCombinations)),
    alternative=Implementation("tuples", SolutionForm(solutions_as_tuples, tuple_providers, TupleCombinations)),
    why="A group has a solution at each of a thousand hosts, and a limit, a trait or another group leaves few of them: "
    "what a solution takes follows from its group, so that neither solutions nor candidates need objects.",
    source="Our profile of `tuned` without it, on ordinary requests to nested trees: 26 % of a request found solutions "
    "of groups and made an object of each.",
    request=REFERENCE_REQUEST + "&limit=10",
    metric="cpu_s",
)


def _read_usages_per_group(forest: Forest, solved: Solved, _contended: Collection[int]) -> _Inventories:
    """Read all inventories of the trees in which one group was solved; 1 round trip per group."""
    root_ids = solved.root_ids()
    forest.read_inventories(root_ids)
    providers = (provider for root_id in root_ids for provider in forest.inventories[root_id].items())
    return {(provider_id, inventory.class_id): inventory for provider_id, found in providers for inventory in found}


def _track_usages(forest: Forest, solved: Solved, contended: Collection[int]) -> _Inventories:
    """Use the inventories of contended classes that the search for capacity has already read; no round trip."""
    return {
        (row[0], demand.class_id): forest.inventory(demand.class_id, *row[AMOUNTS])
        for demand in solved.demands
        if demand.class_id in contended
        for row in demand.providers.rows
    }


USAGES = Optimization(
    name="usages",
    field="usages",
    baseline=Implementation("per_group", _read_usages_per_group),
    alternative=Implementation("tracked", _track_usages),
    why="Each group reads all inventories of the same trees, and the capacity check has just read those that matter.",
    source="Placement 0386f534, aecd0f34 (August 2019) keep them for the request.",
    metric="rows",
)


def _summarise_per_group(forest: Forest, solved: Solved) -> None:
    """Read and summarise all trees in which the group was solved, for each group again; 2 or 3 round trips."""
    root_ids = solved.root_ids()
    forest.read_providers(root_ids)
    forest.summarise(root_ids)


def _summarise_per_request(forest: Forest, solved: Solved) -> None:
    """Summarise the trees in which the group was solved and that have no summary yet; up to 3 round trips."""
    forest.summarise([root_id for root_id in solved.root_ids() if root_id not in forest.summaries])


def _summarise_response(_forest: Forest, _solved: Solved) -> None:
    """Do nothing: only the trees in the response are summarised, after the limit is applied."""


SUMMARIES = Optimization(
    name="summaries",
    field="summaries",
    baseline=Implementation("per_group", _summarise_per_group),
    alternative=Implementation("of_the_response", _summarise_response),
    further=(Implementation("per_request", _summarise_per_request),),
    why="Three groups over 1000 trees of 7 providers make 21 000 summaries, and the document has 7000.",
    source="Placement 6ef820c9, 25732260 (August 2019) make them once per request; after the search is ours.",
    metric="rows",
)


def _summarise_separately(forest: Forest, root_ids: Collection[int]) -> Mapping[int, list[ProviderSummary]]:
    """Read inventories and traits of the trees, and providers that are not known yet; up to 3 round trips."""
    forest.ensure_providers(root_ids)
    forest.read_inventories([root_id for root_id in root_ids if root_id not in forest.inventories])
    return forest.summary_objects(root_ids, forest.read_traits(root_ids))


def _summarise_joined(forest: Forest, root_ids: Collection[int]) -> Mapping[int, list[ProviderSummary]]:
    """Read the trees with one join, 1 round trip; a provider with three classes and four traits makes twelve rows."""
    return forest.summary_objects(root_ids, forest.read_joined(root_ids))


def _as_documents(_forest: Forest, pairs: Iterable[tuple[str, Document]]) -> dict[str, Document]:
    """Return the pairs of uuid and document as a dict."""
    return dict(pairs)


TREES = Optimization(
    name="documents",
    field="trees",
    baseline=Implementation("separate", TreeForm(_summarise_separately, Forest.documents_of_objects)),
    alternative=Implementation("documents", TreeForm(Forest.summary_documents, _as_documents)),
    further=(Implementation("joined", TreeForm(_summarise_joined, Forest.documents_of_objects)),),
    why="An inventory that only goes into the response needs no object between its row and the document. One join "
    "saves two round trips, and multiplies the rows: each class of a provider times each of its traits.",
    source="Our profile of `tuned` without it, on ordinary requests to nested trees: 26 % of a request read and "
    "summarised the trees of the response. SQLAlchemy's joinedload and selectinload are separate and joined.",
    metric="cpu_s",
)


def _as_list(ids: Iterable[int]) -> Collection[int]:
    """Return a list: each membership test is a linear search, so filtering n ids by m ids takes n × m steps."""
    return list(ids)


def _as_set(ids: Iterable[int]) -> Collection[int]:
    """Return a frozenset: each membership test is one hash lookup."""
    return frozenset(ids)


SETS = Optimization(
    name="sets",
    field="collection",
    baseline=Implementation("lists", _as_list),
    alternative=Implementation("sets", _as_set),
    why="Roots and providers are filtered against each other in every group: quadratic in the number of trees.",
    source="Placement still tests `root_id in dict.values()` for each row of its forbidden traits: 32 ms of a request "
    "at 1000 trees and 197 ms at 3000.",
    metric="cpu_s",
)


def read_all_trees(_choice: Selection) -> bool:
    """Return False: all trees are read, and the limit is applied to the candidates found in them."""
    return False


def _read_few_trees(choice: Selection) -> bool:
    """Return whether to read only a few trees: if candidates are limited, in depth-first order, and not random."""
    return choice.left is not None and choice.depth_first


REACH = Optimization(
    name="few",
    field="reach",
    algorithms=("dedup",),
    baseline=Implementation("all_trees", read_all_trees),
    alternative=Implementation("few_trees", _read_few_trees),
    why="Ten candidates are in the first few trees, and the other thousand need not be read.",
    source="Placement searches all trees and applies limit last: 343 ms of CPU with limit=10, 472 without.",
    request=f"{REFERENCE_REQUEST}&limit=10",
    metric="cpu_s",
)


def _always_read(_request: CandidateRequest) -> bool:
    """Return True: each request reads the aggregates of providers, 1 round trip."""
    return True


def _read_if_requested(request: CandidateRequest) -> bool:
    """Return whether the request has member_of; if a provider shares its resources, aggregates are read anyway."""
    return any(group.member_of or group.not_member_of for group in request.groups)


MEMBERSHIPS = Optimization(
    name="unshared",
    field="memberships",
    algorithms=("dedup",),
    baseline=Implementation("always", _always_read),
    alternative=Implementation("if_requested", _read_if_requested),
    why="An aggregate matters to member_of and to sharing; providers that differ in it alone are otherwise alike.",
    source="Placement reads the sharing providers first, and takes a shortcut when there are none.",
    request="/allocation_candidates?resources=DISK_GB:10,VCPU:1,MEMORY_MB:256",
    metric="cpu_s",
    data="flat-perfload",
    topology="flat-perfload",
)


LIKENESS = Optimization(
    name="alike",
    field="equivalence",
    algorithms=("dedup", "cached"),
    baseline=Implementation("equal", SAME_AMOUNTS),
    alternative=Implementation("relevant", SAME_RELEVANCE),
    why="A thousand trees with five hundred different disks are 504 distinct trees, and four for a request.",
    source="Our measurement: one search for each distinct tree was 18× faster than Placement on equal trees, and "
    "3.5× on trees that differ.",
    metric="cpu_s",
    data="nested-perfload with disks that differ",
)


def _compute_each(compute: Callable[[], Body], _connection: Connection, _key: Any, _cache_url: str) -> Body:
    """Compute the response for each request, without a cache service."""
    return compute()


def _from_redis() -> ResponseSource:
    from placebench.lab.reference.candidates.shared_responses import respond_from_redis

    return respond_from_redis


RESPONSES = Optimization(
    name="responses",
    field="responses",
    algorithms=(OBJECTS, "dedup"),
    baseline=Implementation("computed", _compute_each),
    further=(
        Implementation("redis", _from_redis, extra=Extra("redis", "redis"), postgresql_only=True, cache_server=True),
    ),
    why="Workers that share a cache service compute a response once for all of them; a hit costs one statement, which "
    "reads the revision of the data, and the transfer of the body.",
    source="A cache service beside the database is what web applications add first; `cached` keeps responses in the "
    "worker instead.",
    metric="cpu_s",
)
