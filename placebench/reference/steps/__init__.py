"""The steps of the candidate search that an optimization changes: one file a step, its ways one under the other.

The key piece is `Ways`, the choice of one way for each step. A new optimization is a new file here, a field in
`Ways` and a line in `placebench.reference.variants`.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placebench.reference.lookups.reader import BindingWay, RowsWay
from placebench.reference.steps.model import Candidate, Model, Resource
from placebench.reference.steps.usages import Stocks

if TYPE_CHECKING:
    from placebench.reference.candidates.forest import Forest
    from placebench.reference.candidates.groups import Solved
    from placebench.reference.candidates.merging import Merge


@dataclass(frozen=True, slots=True)
class Ways:
    """One way for each step."""

    rows: RowsWay
    binding: BindingWay
    model: Model
    copying: Callable[[type[Resource]], type[Resource]]
    collection: Callable[[Iterable[int]], Collection[int]]
    usages: "Callable[[Forest, Solved, Collection[int]], Stocks]"
    summaries: "Callable[[Forest, Solved], None]"
    search: "Callable[[Merge], list[Candidate]]"
    serialise: Callable[[Any], bytes]
    collector: Callable[[], None]
