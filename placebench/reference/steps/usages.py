"""Where the merge takes the used and free amounts from: asked for again per group, or tracked once per request."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from placebench.reference.lookups.rooms import Room, RoomRow
from placebench.reference.steps.model import Stock
from placebench.reference.steps.optimization import Optimization, Way

if TYPE_CHECKING:
    from placebench.reference.candidates.forest import Forest

Stocks = dict[tuple[int, int], Stock]  # by ids of provider and class


def usages_asked_per_group(forest: "Forest", root_ids: Collection[int], _rooms: Mapping[int, Room]) -> Stocks:
    """All stocks of the trees in which one group was solved, asked for again; 1 round trip a group."""
    forest.ask_stocks(root_ids)
    providers = (provider for root_id in root_ids for provider in forest.trees_stocks[root_id].items())
    return {(provider_id, stock.class_id): stock for provider_id, stocks in providers for stock in stocks}


def usages_tracked(forest: "Forest", _root_ids: Collection[int], rooms: Mapping[int, Room]) -> Stocks:
    """What the search for room has read of the classes that several groups ask for; no round trip."""
    return {
        (provider_id, class_id): forest.stock(class_id, *RoomRow(*row)[2:])
        for class_id, room in rooms.items()
        for provider_id, row in room.items()
    }


OPTIMIZATION = Optimization(
    name="usages",
    step="usages",
    plain=Way("asked_per_group", usages_asked_per_group),
    better=Way("tracked", usages_tracked),
    why="Each group asks for all stocks of the same trees, and the search for room has just read those that count.",
    source="Placement 0386f534, aecd0f34 (August 2019) keep them for the request.",
    metric="rows",
)
