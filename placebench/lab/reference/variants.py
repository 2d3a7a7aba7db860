"""Variants of the reference service: one implementation of each optimization, chosen by name.

The main function is `variant`, which reads a name: naive, tuned, naive+a+b, tuned-a-b, +OPTIMIZATION:ALTERNATIVE
on either; or dedup, dedup-a-b, cached. A new optimization is an `Optimization` in `optimizations`, a
line in a tuple below, and a field in `Implementations` or `WorkerImplementations`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from sqlalchemy import URL

from placebench.errors import VariantError, did_you_mean
from placebench.lab.reference.candidates import results
from placebench.lab.reference.candidates.implementations import Implementations
from placebench.lab.reference.candidates.objects import model
from placebench.lab.reference.domain.optimization import OBJECTS, Implementation, Optimization
from placebench.lab.reference.optimizations import search, worker
from placebench.lab.reference.store import queries


@dataclass(frozen=True, slots=True)
class WorkerImplementations:
    """One implementation of each optimization that is taken once, when a worker starts."""

    driver: Callable[[URL], URL]
    pool: Callable[[int], Mapping[str, Any]]  # from the configured size, what create_engine takes
    ping: bool
    heap: Callable[[], None]
    gc_frequency: Callable[[], None]
    workers: tuple[int, int]  # processes, and threads in each


# In the order of the cumulative series: first what is not done at all any more, then what is done at less cost.
OPTIMIZATIONS: tuple[Optimization, ...] = (
    search.SUMMARIES,
    search.USAGES,
    search.SETS,
    search.PRUNING,
    queries.BINDING,
    queries.ROWS,
    model.MODEL,
    model.COPYING,
    results.SERIALIZATION,
    worker.COLLECTOR,
)
# Those whose alternatives are not better for everyone: naive and tuned take the baseline.
_TRADE_OFFS: tuple[Optimization, ...] = (
    search.TREES,
    queries.ROOTS,
    queries.TOTALS,
    queries.TRANSACTION,
    queries.INDEXES,
    search.RESPONSES,
    worker.DRIVER,
    worker.POOL,
    worker.PING,
    worker.WORKERS,
)
# Of dedup and cached.
ALGORITHM_OPTIMIZATIONS: tuple[Optimization, ...] = (
    search.REACH,
    search.MEMBERSHIPS,
    search.LIKENESS,
    worker.HEAP,
    worker.GC_FREQUENCY,
)
CATALOGUE = (*OPTIMIZATIONS, *_TRADE_OFFS, *ALGORITHM_OPTIMIZATIONS)
REVISIONS = tuple(sorted({made.revision for each in CATALOGUE for made in each.implementations if made.revision}))

# Algorithms beside the one of the cumulative series.
ALGORITHMS: tuple[str, ...] = ("dedup", "cached")
WHY: Mapping[str, str] = {
    "dedup": "Another algorithm: identical provider trees are solved once and written for all of them, PostgreSQL "
    "sends a row a distinct inventory or trait, not one a provider, and what was read is kept until a transaction that "
    "wrote anything has ended.",
    "cached": "The same on an in-memory index that is kept between requests, and validated before each response. While "
    "nothing is written, the same request gets the same body again, as in a load run: another one costs more.",
}

_BY_FIELD: Mapping[str, Optimization] = {each.field: each for each in CATALOGUE}
_SIGNS: Mapping[str, str] = {"naive": "+", "tuned": "-", **dict.fromkeys(ALGORITHMS, "-")}
_PART = re.compile(r"([+-])([^+-]*)")


Interface = Literal["wsgi", "asgi"]


class Serving(TypedDict):
    """What serves a variant: fields of a server's specification."""

    module: str
    interface: Interface
    server: str
    cache_server: bool


_SERVERS: Mapping[Interface, str] = {"wsgi": "uwsgi", "asgi": "uvicorn"}
_POSTGRESQL = URL.create("postgresql")


@dataclass(frozen=True, slots=True)
class ReferenceVariant:
    """An algorithm, an implementation of each optimization, and what they need of the database."""

    name: str
    implementations: Implementations
    worker: WorkerImplementations
    revisions: tuple[str, ...] = ()  # of schema/options, which its database must be at
    postgresql_only: bool = False
    algorithm: str = OBJECTS
    cache_server: bool = False
    """Whether it needs a cache server."""

    @property
    def needs_change_log(self) -> bool:
        """Whether it reads the change log, which only a primary has."""
        return self.algorithm == "cached" or self.cache_server

    @property
    def interface(self) -> Interface:
        """The interface of its application: ASGI if its driver waits in an event loop, else WSGI."""
        return "asgi" if self.worker.driver(_POSTGRESQL).get_dialect().is_async else "wsgi"

    @property
    def portable(self) -> bool:
        """Whether it runs on MariaDB and SQLite too."""
        return not (self.postgresql_only or self.revisions)

    @property
    def serving(self) -> Serving:
        """The application, its interface, the server that serves it where none is named, and what it needs beside."""
        return {
            "module": f"placebench.lab.reference.{self.interface}:application",
            "interface": self.interface,
            "server": _SERVERS[self.interface],
            "cache_server": self.cache_server,
        }


def variant(name: str) -> ReferenceVariant:
    """Return the variant of this name.

    Raises:
        VariantError: There is none; it says what there is.
        MissingExtraError: An implementation needs a package that is not installed.
    """
    chosen, algorithm = _choose(name), _algorithm_of(name)
    values: dict[str, dict[str, Any]] = {"request": {}, "worker": {}, "database": {}}
    for field, implementation in chosen.items():
        values[_BY_FIELD[field].scope][field] = implementation.load()
    made = ReferenceVariant(
        name,
        Implementations(**values["request"]),
        WorkerImplementations(**values["worker"]),
        revisions=tuple(sorted({each.revision for each in chosen.values() if each.revision})),
        postgresql_only=algorithm in ALGORITHMS or any(each.postgresql_only for each in chosen.values()),
        algorithm=algorithm,
        cache_server=any(each.cache_server for each in chosen.values()),
    )
    if made.cache_server and made.interface == "asgi":
        raise VariantError(f"the variant {name} would wait for its cache server in the event loop: name another driver")
    return made


def default_variant(backend: str) -> str:
    """Return the name of the fastest variant that a database of this kind can have, never stale for ordinary writers.

    Without a change log `cached` responds as `dedup` does; docs/lab/data.md lists which writers the log cannot see.
    """
    return "cached" if backend == "postgresql" else "tuned"


def missing_extra(name: str) -> str:
    """Say what the variant of this name needs and is not installed, in one line; empty when nothing is."""
    return next(filter(None, (each.missing_extra() for each in _choose(name).values())), "")


def differing(baseline: str, other: str) -> tuple[Optimization, ...]:
    """Return the optimizations that these variants implement differently; none where a name is no variant's."""
    try:
        before, after = _choose(baseline), _choose(other)
    except VariantError:
        return ()
    return tuple(each for each in CATALOGUE if before[each.field] != after[each.field])


def cumulative() -> tuple[str, ...]:
    """Return the cumulative series: from naive, one optimization more at each step, to tuned, which has them all."""
    names = [each.name for each in OPTIMIZATIONS]
    return ("naive", *("+".join(("naive", *names[:count])) for count in range(1, len(names))), "tuned")


def leave_one_out() -> tuple[str, ...]:
    """Return tuned without one of its optimizations, for each of them."""
    return tuple(f"tuned-{each.name}" for each in OPTIMIZATIONS)


def algorithms_leave_one_out() -> tuple[str, ...]:
    """Return dedup and cached without one of their own optimizations, for each of them."""
    return tuple(f"{algorithm}-{each.name}" for each in ALGORITHM_OPTIMIZATIONS for algorithm in each.algorithms)


def further_alternatives() -> tuple[str, ...]:
    """Return naive with an implementation that neither naive nor tuned has, for each of these."""
    return tuple(f"naive+{each.field}:{further.name}" for each in CATALOGUE for further in each.further)


def _choose(name: str) -> dict[str, Implementation]:
    """The implementation of each field: what the base of the name has, and what the parts of the name change."""
    base, parts = _base(name), _PART.findall(name)
    if base not in _SIGNS:
        raise _no_such_variant(name)
    own = [each for each in CATALOGUE if _algorithm_of(name) in each.algorithms]
    improved = {"naive": [], "tuned": own}.get(base, CATALOGUE)
    chosen = {each.field: each.best if each in improved else each.baseline for each in CATALOGUE}
    changed = [_change(name, own, sign, part) for sign, part in parts]
    if len({field for field, _ in changed}) < len(changed):
        raise VariantError(f"variant {name!r} changes one optimization twice: name each once")
    return {**chosen, **dict(changed)}


def _algorithm_of(name: str) -> str:
    return base if (base := _base(name)) in ALGORITHMS else OBJECTS


def _base(name: str) -> str:
    return re.split("[+-]", name, maxsplit=1)[0]


def _change(name: str, own: Iterable[Optimization], sign: str, part: str) -> tuple[str, Implementation]:
    """The field that a part of a name changes, and its implementation."""
    own_sign = _SIGNS[_base(name)]
    for each in own:
        for implementation in each.implementations:
            if sign == "+" and part == f"{each.field}:{implementation.name}":
                return each.field, implementation
        if each.alternative and sign == own_sign and part == each.name:
            return each.field, each.alternative if sign == "+" else each.baseline
    raise _no_such_variant(name)


def _no_such_variant(name: str) -> VariantError:
    if _base(name) not in _SIGNS:
        return VariantError(
            f"no variant {name!r}: {did_you_mean(name, _SIGNS)}expected {', '.join(_SIGNS)}, or one of them with "
            "other optimizations, as in naive+pruning and tuned-orjson"
        )
    optimizations = ", ".join(each.name for each in OPTIMIZATIONS)
    changed = [f"{base}{each.name}" for base in ("naive+", "tuned-") for each in OPTIMIZATIONS]
    further = ", ".join(each.removeprefix("naive+") for each in further_alternatives())
    return VariantError(
        f"no variant {name!r}: {did_you_mean(name, changed)}expected naive, tuned, naive+NAME+NAME, tuned-NAME-NAME, "
        f"either with +OPTIMIZATION:ALTERNATIVE, or {', '.join([*ALGORITHMS, *algorithms_leave_one_out()])}, "
        f"with NAME one of {optimizations}, and OPTIMIZATION:ALTERNATIVE one of {further}"
    )
