"""How a worker process is set up: driver, connection pool, garbage collector, memory, processes and threads."""

import ctypes
import gc
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, NullPool

from placebench.errors import DatabaseError
from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.optimizations.optimization import REFERENCE_REQUEST, Extra, Implementation, Optimization

if TYPE_CHECKING:
    from placebench.reference.candidates.dedup.relevance import Matter
    from placebench.reference.candidates.dedup.selection import Choice
    from placebench.reference.candidates.dedup.tree_index import Kind
    from placebench.reference.candidates.objects.search import Forest


def keep_gc_defaults() -> None:
    """Leaves Python's defaults: every full pass walks the modules too."""


def freeze_gc() -> None:
    """Collects once and moves what is left, which stays for good, out of the collector's sight."""
    gc.collect()
    gc.freeze()


def collect_seldom() -> None:
    """A pass for every 50 000 new objects instead of every 700 (Python 3.11)."""
    gc.set_threshold(50_000)


def disable_gc() -> None:
    """No pass at all: what refers to itself is never given back, so that a worker grows until it is renewed."""
    gc.disable()


COLLECTOR = Optimization(
    name="freeze",
    step="collector",
    baseline=Implementation("as_shipped", keep_gc_defaults),
    alternative=Implementation("frozen", freeze_gc),
    further=(Implementation("seldom", collect_seldom), Implementation("off", disable_gc)),
    why="A request makes enough objects for several full passes, and each one walks all modules again.",
    source="Our measurement of Placement 16.0.0: 160 of 492 ms are the collector's; 327 to 339 ms after gc.freeze().",
    metric="cpu_s",
)


def use_url_driver(url: URL) -> URL:
    """The driver that the URL names; psycopg2, which the extra bench brings, where it names none."""
    return url.set(drivername="postgresql+psycopg2") if url.drivername in ("postgres", "postgresql") else url


def use_psycopg3(url: URL) -> URL:
    """psycopg 3, whatever driver the URL names: parameters go beside the text, often used statements are prepared."""
    if url.get_backend_name() not in ("postgres", "postgresql"):
        raise DatabaseError(f"driver:psycopg3 is for PostgreSQL, but the database is of {url.get_backend_name()}")
    return url.set(drivername="postgresql+psycopg")


def _load_psycopg3() -> object:
    return use_psycopg3


DRIVER = Optimization(
    name="driver",
    step="driver",
    baseline=Implementation("psycopg2", use_url_driver),
    further=(Implementation("psycopg3", _load_psycopg3, extra=Extra("psycopg3", "psycopg"), postgresql_only=True),),
    why="psycopg2 puts values into the text; psycopg 3 sends them apart and prepares what it is asked again.",
    source="psycopg's own documentation names both differences; which one weighs more depends on rows and lists.",
    metric="cpu_s",
    place="deployment",
)


def pool_of_size(size: int) -> dict[str, Any]:
    """PLACEBENCH_POOL_SIZE connections, 10 where that is not set."""
    return {"pool_size": size, "max_overflow": 0}


def pool_of_one(_size: int) -> dict[str, Any]:
    """One connection: a second thread waits for it."""
    return {"pool_size": 1, "max_overflow": 0}


def no_pool(_size: int) -> dict[str, Any]:
    """A new connection for each request."""
    return {"poolclass": NullPool}


POOL = Optimization(
    name="pool",
    step="pool",
    baseline=Implementation("10", pool_of_size),
    further=(Implementation("1", pool_of_one), Implementation("none", no_pool)),
    why="A connection costs a process on the server, a login and five round trips; too few of them cost waiting.",
    source="SQLAlchemy keeps 5 and lets 10 overflow. Our count: 18 round trips instead of 13 without a pool.",
    request=REFERENCE_REQUEST + "&limit=1",
    metric="round_trips",
    place="deployment",
)


PING = Optimization(
    name="ping",
    step="ping",
    baseline=Implementation("never", False),
    further=(Implementation("before_use", True),),
    why="A connection that the server has dropped is found before it fails a request, for round trips each time.",
    source="SQLAlchemy's pool_pre_ping. Our count: 16 round trips instead of 13 with psycopg2.",
    request="/resource_classes",
    metric="round_trips",
    place="deployment",
)


AUTOCOMMIT: Final[dict[str, Any]] = {"isolation_level": "AUTOCOMMIT"}

TRANSACTION = Optimization(
    name="transaction",
    step="transaction",
    baseline=Implementation("snapshot", None),
    further=(Implementation("autocommit", AUTOCOMMIT),),
    why="BEGIN and ROLLBACK are two of the three round trips of a request that asks one question.",
    source="Our count; allocation candidates take 11 statements or more, so there it changes nothing.",
    request="/resource_classes",
    metric="round_trips",
)


WORKERS = Optimization(
    name="workers",
    step="workers",
    baseline=Implementation("as_told", None),
    further=(
        Implementation("2x1", (2, 1)),
        Implementation("1x2", (1, 2)),
        Implementation("2x2", (2, 2)),
        Implementation("1x4", (1, 4)),
    ),
    why="Threads share memory and the interpreter's lock, so that they help while the database works; processes share "
    "neither.",
    source="uWSGI's --processes and --threads. A comparison asks one request at a time, so that it sees the memory; "
    "throughput and waiting are what `placebench workers` measures.",
    metric="pss_bytes",
    place="deployment",
)


INDEXES = Optimization(
    name="indexes",
    step="indexes",
    baseline=Implementation("as_placement", None),
    further=(Implementation("covering", None, revision="covering_indexes"),),
    why="An index that holds all columns of a query spares the visit to the table, and is one more to write.",
    source="PostgreSQL's index-only scans; Placement makes single columns and keys.",
    metric="cpu_s",
    place="database",
)


GC_FREQUENCY = Optimization(
    name="seldom",
    step="passes",
    of=("dedup", "cached"),
    baseline=Implementation("as_shipped", keep_gc_defaults),
    alternative=Implementation("seldom", collect_seldom),
    why="A pass walks the young lists and dicts with all that they hold, thousands of entries, and finds no cycle.",
    source="Our measurement: a tenth of the worker's CPU on equal trees and a fifth on trees that differ, in 2 and 8 "
    "passes a request. What it does for `naive` and `tuned` is `collector:seldom`.",
    metric="cpu_s",
    on="nested-perfload with disks that differ",
    place="deployment",
)


def read_trees_by_query(forest: "Forest", root_ids: Collection[int]) -> Mapping[int, list[str]]:
    """The traits by provider, after the forest knows all else; up to 3 round trips."""
    forest.know_providers(root_ids)
    forest.ask_stocks([root_id for root_id in root_ids if root_id not in forest.trees_stocks])
    return forest.ask_traits(root_ids)


def read_trees_joined(forest: "Forest", root_ids: Collection[int]) -> Mapping[int, list[str]]:
    """The same in 1 round trip; a provider of three classes and four traits comes in twelve rows."""
    return forest.ask_everything(root_ids)


TREES = Optimization(
    name="trees",
    step="trees",
    baseline=Implementation("a_query_a_need", read_trees_by_query),
    further=(Implementation("joined", read_trees_joined),),
    why="One join saves two round trips, and multiplies the rows: each class of a provider with each of its traits.",
    source="SQLAlchemy's joinedload and selectinload are the same choice.",
    metric="rows",
)


def read_all_trees(_choice: "Choice") -> bool:
    """Never a few: the limit cuts what was found in all trees."""
    return False


def read_few_trees(choice: "Choice") -> bool:
    """A few where those that come first are wanted, and not any or the first ones of each tree."""
    return choice.left is not None and choice.depth_first


REACH = Optimization(
    name="few",
    step="reach",
    of=("dedup",),
    baseline=Implementation("all_trees", read_all_trees),
    alternative=Implementation("few_trees", read_few_trees),
    why="Ten candidates stand in the first few trees, and the other thousand need not be read.",
    source="Placement searches all trees and applies limit last: 343 ms of CPU with limit=10, 472 without.",
    request=f"{REFERENCE_REQUEST}&limit=10",
    metric="cpu_s",
)


def same_provider_class(kind: "Kind", matter: "Matter") -> Hashable:
    """Equal in everything: each distinct tree is searched."""
    return kind, matter


def same_relevance(_kind: "Kind", matter: "Matter") -> Hashable:
    """Alike in what the request asks about, however else they differ."""
    return matter


LIKENESS = Optimization(
    name="alike",
    step="likeness",
    of=("dedup", "cached"),
    baseline=Implementation("equal", same_provider_class),
    alternative=Implementation("mattering_alike", same_relevance),
    why="A thousand trees with five hundred different disks make 504 distinct trees; a request tells four apart.",
    source="Our measurement: one search for each distinct tree was 18 times faster than Placement on equal trees, and "
    "3.5 times on trees that differ.",
    metric="cpu_s",
    on="nested-perfload with disks that differ",
)


def as_list(ids: Iterable[int]) -> Collection[int]:
    """A list: each question walks along it, so a filter of n by m ids takes n times m steps."""
    return list(ids)


def as_set(ids: Iterable[int]) -> Collection[int]:
    """A frozenset: each question is one lookup."""
    return frozenset(ids)


SETS = Optimization(
    name="sets",
    step="collection",
    baseline=Implementation("lists", as_list),
    alternative=Implementation("sets", as_set),
    why="Roots and providers are filtered against each other in every group: quadratic in the number of trees.",
    source="Placement still asks `root_id in dict.values()` for each row of its forbidden traits: 32 ms of a request "
    "at 1000 trees and 197 ms at 3000.",
    metric="cpu_s",
)


def always_read(_request: CandidateRequest) -> bool:
    """For each request; 1 round trip."""
    return True


def read_if_requested(request: CandidateRequest) -> bool:
    """For those with member_of; where somebody shares it is read anyway, since aggregates say with whom."""
    return any(group.member_of or group.not_member_of for group in request.groups)


MEMBERSHIPS = Optimization(
    name="unshared",
    step="memberships",
    of=("dedup",),
    baseline=Implementation("always", always_read),
    alternative=Implementation("where_asked_for", read_if_requested),
    why="An aggregate matters to member_of and to sharing; providers that differ in it alone are otherwise alike.",
    source="Placement asks for the sharing providers first, and takes a shorter way without them.",
    request="/allocation_candidates?resources=DISK_GB:10,VCPU:1,MEMORY_MB:256",
    metric="cpu_s",
    on="flat-perfload",
    topology="flat-perfload",
)


_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
"""Names of options in <malloc.h>."""
_AS_MUCH_AS_GOES: Final = 2**31 - 1
_LARGEST_ON_THE_HEAP: Final = 32 * 2**20
"""Bytes; a body over 50 MB is sent in parts, and never in memory at once."""


def keep_malloc_defaults() -> None:
    """Leaves malloc's defaults: what is free at the top of the heap goes back, to be faulted in page by page again."""


def keep_freed_memory() -> None:
    """Tells malloc to keep what it has, and once for all threads; nothing where the C library is not glibc.

    A heap a thread would keep the most that each of them ever took: a worker of 10 threads had 151 MiB instead of 110,
    for the same CPU (two runs of 200 requests).
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_MMAP_THRESHOLD, _LARGEST_ON_THE_HEAP)
        mallopt(_TRIM_THRESHOLD, _AS_MUCH_AS_GOES)
        mallopt(_ARENA_MAX, 1)


HEAP = Optimization(
    name="heap",
    step="heap",
    of=("dedup", "cached"),
    baseline=Implementation("given_back", keep_malloc_defaults),
    alternative=Implementation("kept", keep_freed_memory),
    why="Memory that was given back comes as new pages, each a fault: 1170 a request, and 9 where it is kept.",
    source="Our measurement: 0.78 times the worker's CPU (0.75 to 0.80, 40 pairs). `tuned`, whose objects lie in "
    "Python's own arenas, would take 0.96 times (0.91 to 1.01, 30 pairs), `naive` 1.00 (0.97 to 1.03, 20 pairs).",
    metric="cpu_s",
    place="deployment",
)
