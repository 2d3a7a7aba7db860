"""The implementations of the optimizations that a variant uses in a request: `Implementations`."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, FromClause

from placebench.lab.reference.candidates.combinations import MatchingRule
from placebench.lab.reference.candidates.dedup.relevance import Equivalence
from placebench.lab.reference.candidates.dedup.selection import Selection
from placebench.lab.reference.candidates.objects.combinations import CandidateCombinations
from placebench.lab.reference.candidates.objects.groups import Solved
from placebench.lab.reference.candidates.objects.model import Model, ProviderInventory, Resource
from placebench.lab.reference.candidates.objects.search import Forest, Search, SolutionForm, TreeForm
from placebench.lab.reference.candidates.results import Body
from placebench.lab.reference.domain.candidates_query import CandidateRequest, RequestGroup
from placebench.lab.reference.store.candidate_queries import DivisibilityTest, ListBinding, RowReader, UsageTotals

ResponseSource = Callable[[Callable[[], Body], Connection, Any, str], Body]
"""A function that returns a body.

Its arguments are a function that computes the body, the connection, a key of the request and the cache service's URL.
"""


@dataclass(frozen=True, slots=True)
class Implementations:
    """One implementation of each optimization that takes effect in a request."""

    rows: RowReader
    binding: ListBinding
    model: Model
    copying: Callable[[type[Resource]], type[Resource]]
    collection: Callable[[Iterable[int]], Collection[int]]
    usages: Callable[[Forest, Solved, Collection[int]], Mapping[tuple[int, int], ProviderInventory]]
    summaries: Callable[[Forest, Solved], None]
    groups: Callable[[Search, RequestGroup], Solved]
    completion: MatchingRule
    search: Callable[[CandidateCombinations], list[Any]]
    serialise: Callable[[Any], bytes]
    collector: Callable[[], None]
    roots: FromClause
    totals: UsageTotals
    divides: DivisibilityTest
    trees: TreeForm
    solutions: SolutionForm
    transaction: Mapping[str, Any] | None  # execution options of a single statement; None: those of a snapshot
    responses: ResponseSource
    reach: Callable[[Selection], bool]  # this field and those below are for `dedup`; `cached` has the last one too
    memberships: Callable[[CandidateRequest], bool]
    equivalence: Equivalence
