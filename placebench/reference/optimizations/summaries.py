"""When the provider summaries of a tree are made: with each group, once per request, or for the answer only."""

from typing import TYPE_CHECKING

from placebench.reference.optimizations.optimization import Implementation, Optimization

if TYPE_CHECKING:
    from placebench.reference.candidates.objects.groups import Solved
    from placebench.reference.candidates.objects.search import Forest


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


OPTIMIZATION = Optimization(
    name="summaries",
    step="summaries",
    baseline=Implementation("per_group", summaries_per_group),
    alternative=Implementation("of_the_answer", summaries_of_the_answer),
    further=(Implementation("per_request", summaries_per_request),),
    why="Three groups over 1000 trees of 7 providers make 21 000 summaries, and the document has 7000.",
    source="Placement 6ef820c9, 25732260 (August 2019) make them once per request; after the search is ours.",
    metric="rows",
)
