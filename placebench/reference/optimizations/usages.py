"""Where the merge takes the used and free amounts from: asked for again per group, or tracked once per request."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from placebench.reference.optimizations.model import Stock
from placebench.reference.optimizations.optimization import Implementation, Optimization
from placebench.reference.store.candidate_queries import AMOUNTS

if TYPE_CHECKING:
    from placebench.reference.candidates.objects.groups import Solved
    from placebench.reference.candidates.objects.search import Forest

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


OPTIMIZATION = Optimization(
    name="usages",
    step="usages",
    baseline=Implementation("asked_per_group", usages_asked_per_group),
    alternative=Implementation("tracked", usages_tracked),
    why="Each group reads all inventories of the same trees, and the capacity check has just read those that matter.",
    source="Placement 0386f534, aecd0f34 (August 2019) keep them for the request.",
    metric="rows",
)
