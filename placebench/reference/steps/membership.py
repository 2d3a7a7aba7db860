"""What is asked `x in these` of: a list, or a set."""

from collections.abc import Collection, Iterable

from placebench.reference.steps.optimization import Optimization, Way


def in_a_list(ids: Iterable[int]) -> Collection[int]:
    """A list: each question walks along it, so a filter of n by m ids takes n times m steps."""
    return list(ids)


def in_a_set(ids: Iterable[int]) -> Collection[int]:
    """A frozenset: each question is one lookup."""
    return frozenset(ids)


OPTIMIZATION = Optimization(
    name="sets",
    step="collection",
    plain=Way("lists", in_a_list),
    better=Way("sets", in_a_set),
    why="Roots and providers are filtered against each other in every group: quadratic in the number of trees.",
    source="Placement still tests `root_id in dict.values()` for each row of its forbidden traits: 32 ms of a request "
    "at 1000 trees and 197 ms at 3000.",
    metric="cpu_s",
)
