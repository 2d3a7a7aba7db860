"""Variants of the reference service: one implementation of each optimization, chosen by name.

The main function is `variant`. A variant's name is naive, naive+a+b, tuned, tuned-a-b, any of these with
+OPTIMIZATION:ALTERNATIVE, or dedup, dedup-a-b, cached. A new optimization needs an `Optimization` in `optimizations`, a
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
    """One implementation of each optimization that takes effect when a worker starts."""

    driver: Callable[[URL], URL]
    pool: Callable[[int], Mapping[str, Any]]  # returns arguments of create_engine for the configured pool size
    ping: bool
    heap: Callable[[], None]
    gc_frequency: Callable[[], None]
    workers: tuple[int, int]  # the number of processes, and of threads per process


# In the order of the cumulative series: first those that save work altogether, then those that make work cheaper.
OPTIMIZATIONS: tuple[Optimization, ...] = (
    search.SUMMARIES,
    search.USAGES,
    search.SETS,
    search.PRUNING,
    search.MATCHING,
    search.DISTINCT,
    queries.ESTIMATE,
    queries.BINDING,
    queries.ROWS,
    model.MODEL,
    model.COPYING,
    search.TREES,
    search.SOLUTIONS,
    results.SERIALIZATION,
    worker.COLLECTOR,
    worker.GC_FREQUENCY,
)
# Optimizations whose alternatives are not better for everyone: naive and tuned both have the baseline.
_TRADE_OFFS: tuple[Optimization, ...] = (
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
_OF_ALGORITHMS: tuple[Optimization, ...] = (search.REACH, search.MEMBERSHIPS, search.LIKENESS, worker.HEAP)
CATALOGUE = (*OPTIMIZATIONS, *_TRADE_OFFS, *_OF_ALGORITHMS)
# Optimizations of dedup and cached; the last one is also one of the series.
ALGORITHM_OPTIMIZATIONS = (*_OF_ALGORITHMS, worker.GC_FREQUENCY)
REVISIONS = tuple(sorted({made.revision for each in CATALOGUE for made in each.implementations if made.revision}))

# The algorithms other than the one that the cumulative series improves.
ALGORITHMS: tuple[str, ...] = ("dedup", "cached")
WHY: Mapping[str, str] = {
    "dedup": "Another algorithm: identical provider trees are solved once and written for all of them, PostgreSQL "
    "sends a row a distinct inventory or trait, not one a provider, and what was read is kept: after a write only the "
    "trees that changed are read again.",
    "cached": "The same on an in-memory index that is kept between requests, and validated before each response. While "
    "nothing is written, the same request gets the same body again, as in a load run: another one costs more.",
}

_BY_FIELD: Mapping[str, Optimization] = {each.field: each for each in CATALOGUE}
_SIGNS: Mapping[str, str] = {"naive": "+", "tuned": "-", **dict.fromkeys(ALGORITHMS, "-")}
_PART = re.compile(r"([+-])([^+-]*)")


Interface = Literal["wsgi", "asgi"]


class Serving(TypedDict):
    """How a variant is served: these fields go into a server's specification."""

    module: str
    interface: Interface
    server: str
    cache_server: bool


_SERVERS: Mapping[Interface, str] = {"wsgi": "uwsgi", "asgi": "uvicorn"}
_POSTGRESQL = URL.create("postgresql")


@dataclass(frozen=True, slots=True)
class ReferenceVariant:
    """A variant: an algorithm, an implementation of each optimization, and what they require of the database."""

    name: str
    implementations: Implementations
    worker: WorkerImplementations
    revisions: tuple[str, ...] = ()  # the revisions of schema/options that its database must have
    postgresql_only: bool = False
    algorithm: str = OBJECTS
    cache_server: bool = False
    """Whether the variant needs a cache server."""

    @property
    def needs_change_log(self) -> bool:
        """Whether the variant reads the change log, which only a primary has."""
        return self.algorithm == "cached" or self.cache_server

    @property
    def interface(self) -> Interface:
        """The interface of the variant's application: ASGI if its driver is asynchronous, else WSGI."""
        return "asgi" if self.worker.driver(_POSTGRESQL).get_dialect().is_async else "wsgi"

    @property
    def portable(self) -> bool:
        """Whether the variant also runs on MariaDB and SQLite."""
        return not (self.postgresql_only or self.revisions)

    @property
    def serving(self) -> Serving:
        """How the variant is served: its application and interface, the default server, the need for a cache server."""
        return {
            "module": f"placebench.lab.reference.{self.interface}:application",
            "interface": self.interface,
            "server": _SERVERS[self.interface],
            "cache_server": self.cache_server,
        }


def variant(name: str) -> ReferenceVariant:
    """Return the variant of this name.

    Raises:
        VariantError: No variant has this name; the message says which names exist.
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
    """Return the name of the default variant for a SQLAlchemy backend: the fastest one with current responses.

    Responses of `cached` can be stale only after writes that the change log cannot see; docs/lab/data.md lists those.
    Without a change log `cached` responds as `dedup` does.
    """
    return "cached" if backend == "postgresql" else "tuned"


def missing_extra(name: str) -> str:
    """Return one line about a package that the variant needs and that is not installed; "" if none is missing."""
    return next(filter(None, (each.missing_extra() for each in _choose(name).values())), "")


def differing(baseline: str, other: str) -> tuple[Optimization, ...]:
    """Return the optimizations that these variants implement differently; () if a variant does not exist."""
    try:
        before, after = _choose(baseline), _choose(other)
    except VariantError:
        return ()
    return tuple(each for each in CATALOGUE if before[each.field] != after[each.field])


def cumulative() -> tuple[str, ...]:
    """Return the names of the cumulative series: from naive to tuned, with one more optimization at each step."""
    names = [each.name for each in OPTIMIZATIONS]
    return ("naive", *("+".join(("naive", *names[:count])) for count in range(1, len(names))), "tuned")


def leave_one_out() -> tuple[str, ...]:
    """Return, for each optimization of tuned, the name of the variant without it."""
    return tuple(f"tuned-{each.name}" for each in OPTIMIZATIONS)


def algorithms_leave_one_out() -> tuple[str, ...]:
    """Return, for each optimization of dedup and cached, the names of the variants without it."""
    return tuple(
        f"{algorithm}-{each.name}"
        for each in ALGORITHM_OPTIMIZATIONS
        for algorithm in ALGORITHMS
        if algorithm in each.algorithms
    )


def further_alternatives() -> tuple[str, ...]:
    """Return, for each implementation that neither naive nor tuned has, the name of the variant of naive with it."""
    return tuple(f"naive+{each.field}:{further.name}" for each in CATALOGUE for further in each.further)


def _choose(name: str) -> dict[str, Implementation]:
    """Return the implementation of each field: that of the base variant, unless a part of the name changes it."""
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
    """Return the field that one part of a variant's name changes, and the implementation that it then has."""
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
