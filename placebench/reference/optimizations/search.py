"""The steps of the search of `naive` and `tuned`: trees, memberships, usages, summaries and combinations."""

from collections.abc import Collection, Iterator
from itertools import islice, product
from typing import TYPE_CHECKING

from placebench.reference.optimizations.model import Candidate, Stock
from placebench.reference.optimizations.optimization import Implementation, Optimization
from placebench.reference.store.candidate_queries import AMOUNTS

if TYPE_CHECKING:
    from placebench.reference.candidates.objects.combinations import Merge
    from placebench.reference.candidates.objects.groups import Solved
    from placebench.reference.candidates.objects.search import Forest


Combination = tuple[Candidate, ...]


def whole_product(merge: "Merge") -> list[Candidate]:
    """Every combination at every anchor, tested when complete; the limit cuts the finished list."""
    at_anchors = (filter(merge.allows, product(*merge.options(anchor))) for anchor in merge.anchors)
    return merge.wanted(list(merge.found(at_anchors)))


def pruned_product(merge: "Merge") -> list[Candidate]:
    """Combinations grown group by group, each dropped at the first group that cannot stand; stops at the limit."""
    options_at_anchors = map(merge.options, merge.anchors)
    at_anchors = (_grown(merge, options, (), set()) for options in options_at_anchors if merge.could_suffice(options))
    return merge.wanted(list(islice(merge.found(at_anchors), merge.enough)))


def _grown(
    merge: "Merge", options: list[list[Candidate]], placed: Combination, barren: set[object]
) -> Iterator[Combination]:
    """The allowed combinations that begin with *placed*.

    options: the solutions of each group at one anchor; barren: prospects from which nothing grew, so that groups
    that differ in nothing but their order are not tried in every order.
    """
    if len(placed) == len(options):
        yield placed
        return
    if barren and merge.prospects(placed) in barren:
        return
    fruitful = False
    for solution in options[len(placed)]:
        longer = (*placed, solution)
        if merge.allows(longer):
            for combination in _grown(merge, options, longer, barren):
                fruitful = True
                yield combination
    if not fruitful:
        barren.add(merge.prospects(placed))


PRUNING = Optimization(
    name="pruning",
    step="search",
    baseline=Implementation("whole_product", whole_product),
    alternative=Implementation("pruned", pruned_product),
    why="Eight groups over eight devices make 16 million combinations, of which 40 thousand stand.",
    source="Placement 5b73b980 (2025) prunes behind an option, and applies limit last.",
    request="/allocation_candidates?resources_A=FPGA:1&resources_B=FPGA:1&resources_C=FPGA:1"
    "&group_policy=isolate&limit=10",
    metric="cpu_s",
)


Stocks = dict[tuple[int, int], Stock]  # by ids of provider and class


def usages_asked_per_group(forest: "Forest", solved: "Solved", _crowded: Collection[int]) -> Stocks:
    """All stocks of the trees in which one group was solved, asked for again; 1 round trip a group."""
    root_ids = solved.root_ids()
    forest.ask_stocks(root_ids)
    providers = (provider for root_id in root_ids for provider in forest.trees_stocks[root_id].items())
    return {(provider_id, stock.class_id): stock for provider_id, stocks in providers for stock in stocks}


def usages_tracked(forest: "Forest", solved: "Solved", crowded: Collection[int]) -> Stocks:
    """What the search for room has read of the crowded classes, those that several groups ask for; no round trip."""
    return {
        (provider_id, demand.class_id): forest.stock(demand.class_id, *row[AMOUNTS])
        for demand in solved.demands
        if demand.class_id in crowded
        for provider_id, row in demand.room.items()
    }


USAGES = Optimization(
    name="usages",
    step="usages",
    baseline=Implementation("asked_per_group", usages_asked_per_group),
    alternative=Implementation("tracked", usages_tracked),
    why="Each group asks for all stocks of the same trees, and the search for room has just read those that count.",
    source="Placement 0386f534, aecd0f34 (August 2019) keep them for the request.",
    metric="rows",
)


def summaries_per_group(forest: "Forest", solved: "Solved") -> None:
    """After each group, for all trees it was solved in, again for each group; 2 round trips a group."""
    root_ids = solved.root_ids()
    forest.ask_providers(root_ids)
    forest.summarise(root_ids)


def summaries_per_request(forest: "Forest", solved: "Solved") -> None:
    """After each group, for the trees that no group before it was solved in; 2 round trips or none."""
    forest.summarise([root_id for root_id in solved.root_ids() if root_id not in forest.summaries])


def summaries_of_the_answer(_forest: "Forest", _solved: "Solved") -> None:
    """Nothing after a group: the document asks for the trees of its candidates, after the merge and the limit."""


SUMMARIES = Optimization(
    name="summaries",
    step="summaries",
    baseline=Implementation("per_group", summaries_per_group),
    alternative=Implementation("of_the_answer", summaries_of_the_answer),
    further=(Implementation("per_request", summaries_per_request),),
    why="Three groups over 1000 trees of 7 providers make 21 000 summaries, and the document has 7000.",
    source="Placement 6ef820c9, 25732260 (August 2019) make them once per request; to wait for the answer is ours.",
    metric="rows",
)
