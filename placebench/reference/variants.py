"""Variants of the reference service: one implementation of each optimization, chosen by name.

The main function is `variant`, which reads a name: naive, tuned, naive+a+b, tuned-a-b, +FIELD:IMPLEMENTATION on
either; or dedup, dedup-a-b, cached. A new optimization is an `Optimization` in `optimizations`, a
line in a tuple below, and a field in `Implementations` or `WorkerImplementations`.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import URL, FromClause

from placebench.errors import VariantError
from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.candidates.dedup.relevance import Likeness
from placebench.reference.candidates.dedup.selection import Choice
from placebench.reference.candidates.objects.combinations import CandidateCombinations
from placebench.reference.candidates.objects.groups import Solved
from placebench.reference.candidates.objects.search import Forest, TreeReader
from placebench.reference.optimizations import dedup, model, queries, search, serialization, worker
from placebench.reference.optimizations.model import Candidate, Model, ProviderInventory, Resource
from placebench.reference.optimizations.optimization import OBJECTS, Implementation, Optimization
from placebench.reference.store.candidate_queries import ListBinding, RowReader, UsageTotals


@dataclass(frozen=True, slots=True)
class Implementations:
    """One implementation of each optimization that a request takes; the last three are those of `dedup`."""

    rows: RowReader
    binding: ListBinding
    model: Model
    copying: Callable[[type[Resource]], type[Resource]]
    collection: Callable[[Iterable[int]], Collection[int]]
    usages: Callable[[Forest, Solved, Collection[int]], Mapping[tuple[int, int], ProviderInventory]]
    summaries: Callable[[Forest, Solved], None]
    search: Callable[[CandidateCombinations], list[Candidate]]
    serialise: Callable[[Any], bytes]
    collector: Callable[[], None]
    roots: FromClause
    totals: UsageTotals
    trees: TreeReader
    transaction: Mapping[str, Any] | None  # execution options of a single statement; None: those of a snapshot
    reach: Callable[[Choice], bool]
    memberships: Callable[[CandidateRequest], bool]
    likeness: Likeness


@dataclass(frozen=True, slots=True)
class WorkerImplementations:
    """One implementation of each optimization that is taken once, when a worker starts."""

    driver: Callable[[URL], URL]
    pool: Callable[[int], Mapping[str, Any]]  # from the configured size, what create_engine takes
    ping: bool
    heap: Callable[[], None]
    passes: Callable[[], None]
    workers: tuple[int, int] | None  # processes, and threads in each; None: as the server is configured


# In the order of the ladder: first what is not done at all any more, then what is done at less cost.
OPTIMIZATIONS: tuple[Optimization, ...] = (
    search.SUMMARIES,
    search.USAGES,
    search.SETS,
    search.PRUNING,
    queries.BINDING,
    queries.ROWS,
    model.MODEL,
    model.COPYING,
    serialization.SERIALIZATION,
    worker.COLLECTOR,
)
# Steps of which no way is better for everyone: naive and tuned take the plain one.
CHOICES: tuple[Optimization, ...] = (
    search.TREES,
    queries.ROOTS,
    queries.TOTALS,
    queries.TRANSACTION,
    queries.INDEXES,
    worker.DRIVER,
    worker.POOL,
    worker.PING,
    worker.WORKERS,
)
# Of the algorithms beside it: paths that the request opens, and what helps them alone.
PATHS: tuple[Optimization, ...] = (
    dedup.REACH,
    dedup.MEMBERSHIPS,
    dedup.LIKENESS,
    worker.HEAP,
    worker.GC_FREQUENCY,
)
CATALOGUE = (*OPTIMIZATIONS, *CHOICES, *PATHS)
REVISIONS = tuple(sorted({way.revision for each in CATALOGUE for way in each.implementations if way.revision}))

# Algorithms beside the one that the ladder improves.
ALGORITHMS: tuple[str, ...] = ("dedup", "cached")
WHY: Mapping[str, str] = {
    "dedup": "Another algorithm, nothing kept between requests: each distinct shape of a tree is solved once and "
    "written for all trees of it, and PostgreSQL sends a row a distinct inventory, trait or amount in use.",
    "cached": "The same on a picture that is kept between requests, and brought up to date before each answer. While "
    "nothing is written, the same request gets the same body again, as in a load run: another one costs more.",
}

_BY_STEP: Mapping[str, Optimization] = {each.step: each for each in CATALOGUE}
_SIGNS: Mapping[str, str] = {"naive": "+", "tuned": "-", **dict.fromkeys(ALGORITHMS, "-")}
_PART = re.compile(r"([+-])([^+-]*)")


@dataclass(frozen=True, slots=True)
class ReferenceVariant:
    """An algorithm, the way it takes each step, and what it needs of its database."""

    name: str
    implementations: Implementations
    worker: WorkerImplementations
    revisions: tuple[str, ...] = ()  # of schema/options, which its database must be at
    postgresql_only: bool = False
    algorithm: str = OBJECTS


def variant(name: str) -> ReferenceVariant:
    """The variant of this name; VariantError with what there is, if there is none.

    Raises MissingExtraError where a way needs a package that is not installed.
    """
    chosen, algorithm = _chosen(name), algorithm_of(name)
    taken: dict[str, dict[str, Any]] = {"request": {}, "deployment": {}, "database": {}}
    for step, way in chosen.items():
        taken[_BY_STEP[step].place][step] = way.load()
    return ReferenceVariant(
        name,
        Implementations(**taken["request"]),
        WorkerImplementations(**taken["deployment"]),
        revisions=tuple(sorted({way.revision for way in chosen.values() if way.revision})),
        postgresql_only=algorithm in ALGORITHMS or any(way.postgresql_only for way in chosen.values()),
        algorithm=algorithm,
    )


def default_variant(backend: str) -> str:
    """The name of the fastest variant that a database of this kind can have, never stale for ordinary writers.

    Without a change log `cached` answers as `dedup` does; docs/lab/data.md lists which writers the log cannot see.
    """
    return "cached" if backend == "postgresql" else "tuned"


def missing_extra(name: str) -> str:
    """What the variant of this name needs and is not installed, in one line; empty when nothing is."""
    return next(filter(None, (way.missing_extra() for way in _chosen(name).values())), "")


def differing(baseline: str, other: str) -> tuple[Optimization, ...]:
    """The steps that these two variants take in different ways; none where either name is no variant's."""
    try:
        before, after = _chosen(baseline), _chosen(other)
    except VariantError:
        return ()
    return tuple(each for each in CATALOGUE if before[each.step] != after[each.step])


def _chosen(name: str) -> dict[str, Implementation]:
    """The way of each step: naive takes none the best way, tuned its own ones and an algorithm beside it all; but for
    what the parts of the name change."""
    base, parts = _base(name), _PART.findall(name)
    if base not in _SIGNS:
        raise _no_such(name)
    steps = [each for each in CATALOGUE if algorithm_of(name) in each.of]
    improved = {"naive": [], "tuned": steps}.get(base, CATALOGUE)
    chosen = {each.step: each.best if each in improved else each.baseline for each in CATALOGUE}
    changed = [_change(name, steps, given, part) for given, part in parts]
    if len({step for step, _ in changed}) < len(changed):
        raise VariantError(f"variant {name!r} changes one step twice: name each step once")
    return {**chosen, **dict(changed)}


def algorithm_of(name: str) -> str:
    """The algorithm of the variant of this name; naive and tuned are ways of one."""
    return base if (base := _base(name)) in ALGORITHMS else OBJECTS


def _base(name: str) -> str:
    return re.split("[+-]", name, maxsplit=1)[0]


def cumulative() -> tuple[str, ...]:
    """From naive, one optimization more at each rung, to tuned, which has them all."""
    names = [each.name for each in OPTIMIZATIONS]
    return ("naive", *("+".join(("naive", *names[:count])) for count in range(1, len(names))), "tuned")


def leave_one_out() -> tuple[str, ...]:
    """tuned with one optimization taken away, for each of them."""
    return tuple(f"tuned-{each.name}" for each in OPTIMIZATIONS)


def algorithms_leave_one_out() -> tuple[str, ...]:
    """Each algorithm beside it with one of its paths closed."""
    return tuple(f"{algorithm}-{each.name}" for each in PATHS for algorithm in each.of)


def further_alternatives() -> tuple[str, ...]:
    """naive with one step taken in a way that is neither plain nor in tuned, for each of these."""
    return tuple(f"naive+{each.step}:{way.name}" for each in CATALOGUE for way in each.further)


def _change(name: str, steps: Iterable[Optimization], given: str, part: str) -> tuple[str, Implementation]:
    """The step that a part of a name changes, and its new way."""
    sign = _SIGNS[_base(name)]
    for each in steps:
        for way in each.implementations:
            if given == "+" and part == f"{each.step}:{way.name}":
                return each.step, way
        if each.alternative and given == sign and part == each.name:
            return each.step, each.alternative if sign == "+" else each.baseline
    raise _no_such(name)


def _no_such(name: str) -> VariantError:
    optimizations = ", ".join(each.name for each in OPTIMIZATIONS)
    return VariantError(
        f"no variant {name!r}: expected naive, tuned, naive+NAME+NAME, tuned-NAME-NAME, either with +STEP:WAY, or "
        f"{', '.join(ALGORITHMS)} or {_listed(algorithms_leave_one_out())}, "
        f"with NAME one of {optimizations}, and STEP:WAY one of {_listed(further_alternatives())}"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(name.removeprefix("naive+") for name in names)
