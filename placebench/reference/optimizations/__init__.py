"""The steps that an optimization changes: one file a step, its ways one under the other.

The key pieces are `Ways`, one way for each step of a request, and `Deployment`, one for each step that is taken once
for all requests. A new optimization is a new file here, a field in one of them and a line in
`placebench.reference.variants`.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, FromClause

from placebench.reference.optimizations.model import Candidate, Model, Resource
from placebench.reference.optimizations.usages import Stocks
from placebench.reference.store.candidate_queries import BindingWay, RowsWay, TotalsWay

if TYPE_CHECKING:
    from placebench.reference.api.candidates_query import CandidateRequest
    from placebench.reference.candidates.dedup.relevance import Matter
    from placebench.reference.candidates.dedup.selection import Choice
    from placebench.reference.candidates.dedup.tree_index import Kind
    from placebench.reference.candidates.objects.combinations import Merge
    from placebench.reference.candidates.objects.groups import Solved
    from placebench.reference.candidates.objects.search import Forest, TreesWay


@dataclass(frozen=True, slots=True)
class Ways:
    """One way for each step of a request; the last three are steps of `dedup`."""

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
    roots: FromClause
    totals: TotalsWay
    trees: "TreesWay"
    transaction: Mapping[str, Any] | None  # execution options of a lonely statement; None: those of a snapshot
    reach: "Callable[[Choice], bool]"
    memberships: "Callable[[CandidateRequest], bool]"
    likeness: "Callable[[Kind, Matter], Hashable]"


@dataclass(frozen=True, slots=True)
class Deployment:
    """One way for each step that is taken once for all requests."""

    driver: Callable[[URL], URL]
    pool: Callable[[int], Mapping[str, Any]]  # from the size that was told, what create_engine takes
    ping: bool
    heap: Callable[[], None]
    passes: Callable[[], None]
    workers: tuple[int, int] | None  # processes, and threads in each; None: as the server was told
