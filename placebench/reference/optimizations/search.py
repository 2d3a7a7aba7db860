"""How the groups' solutions at an anchor are combined: the whole product and then the tests, or pruned on the way."""

from collections.abc import Iterator
from itertools import islice, product
from typing import TYPE_CHECKING

from placebench.reference.optimizations.model import Candidate
from placebench.reference.optimizations.optimization import Implementation, Optimization

if TYPE_CHECKING:
    from placebench.reference.candidates.objects.combinations import Merge

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


OPTIMIZATION = Optimization(
    name="pruning",
    step="search",
    baseline=Implementation("whole_product", whole_product),
    alternative=Implementation("pruned", pruned_product),
    why="Eight groups over eight devices make 16 million combinations, of which 40 thousand are valid.",
    source="Placement 5b73b980 (2025) prunes behind an option, and applies limit last.",
    request="/allocation_candidates?resources_A=FPGA:1&resources_B=FPGA:1&resources_C=FPGA:1"
    "&group_policy=isolate&limit=10",
    metric="cpu_s",
)
