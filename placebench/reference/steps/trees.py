"""How the providers, stocks and traits of whole trees are read: a query for each, or all of them joined in one."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from placebench.reference.steps.optimization import Optimization, Way

if TYPE_CHECKING:
    from placebench.reference.candidates.forest import Forest


def a_query_a_need(forest: "Forest", root_ids: Collection[int]) -> Mapping[int, list[str]]:
    """The traits by provider, after the forest knows all else; up to 3 round trips."""
    forest.know_providers(root_ids)
    forest.ask_stocks([root_id for root_id in root_ids if root_id not in forest.trees_stocks])
    return forest.ask_traits(root_ids)


def one_joined_query(forest: "Forest", root_ids: Collection[int]) -> Mapping[int, list[str]]:
    """The same in 1 round trip; a provider of three classes and four traits comes in twelve rows."""
    return forest.ask_everything(root_ids)


OPTIMIZATION = Optimization(
    name="trees",
    step="trees",
    plain=Way("a_query_a_need", a_query_a_need),
    others=(Way("joined", one_joined_query),),
    why="One join saves two round trips, and multiplies the rows: each class of a provider times each of its traits.",
    source="SQLAlchemy's joinedload and selectinload are the same choice.",
    metric="rows",
)
