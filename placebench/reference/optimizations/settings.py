"""Optimizations that are a setting and no code of their own: driver, pool, transaction, workers, indexes and others."""

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, NullPool

from placebench.errors import DatabaseError
from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.optimizations.garbage_collection import collector_as_shipped, collector_seldom
from placebench.reference.optimizations.optimization import REFERENCE_REQUEST, Extra, Implementation, Optimization

if TYPE_CHECKING:
    from placebench.reference.candidates.dedup.relevance import Matter
    from placebench.reference.candidates.dedup.selection import Choice
    from placebench.reference.candidates.dedup.tree_index import Kind
    from placebench.reference.candidates.objects.search import Forest


def driver_of_the_url(url: URL) -> URL:
    """The driver that the URL names; psycopg2, which the extra bench brings, where it names none."""
    return url.set(drivername="postgresql+psycopg2") if url.drivername in ("postgres", "postgresql") else url


def psycopg3(url: URL) -> URL:
    """psycopg 3, whatever driver the URL names: parameters go beside the text, often used statements are prepared."""
    if url.get_backend_name() not in ("postgres", "postgresql"):
        raise DatabaseError(f"driver:psycopg3 is for PostgreSQL, but the database is of {url.get_backend_name()}")
    return url.set(drivername="postgresql+psycopg")


def _by_psycopg3() -> object:
    return psycopg3


DRIVER = Optimization(
    name="driver",
    step="driver",
    baseline=Implementation("psycopg2", driver_of_the_url),
    further=(Implementation("psycopg3", _by_psycopg3, extra=Extra("psycopg3", "psycopg"), postgresql_only=True),),
    why="psycopg2 puts values into the text; psycopg 3 sends them separately and prepares repeated statements.",
    source="psycopg's own documentation names both differences; which one weighs more depends on rows and lists.",
    metric="cpu_s",
    place="deployment",
)


def as_told(size: int) -> dict[str, Any]:
    """PLACEBENCH_POOL_SIZE connections, 10 where that is not set."""
    return {"pool_size": size, "max_overflow": 0}


def one(_size: int) -> dict[str, Any]:
    """One connection: a second thread waits for it."""
    return {"pool_size": 1, "max_overflow": 0}


def none(_size: int) -> dict[str, Any]:
    """A new connection for each request."""
    return {"poolclass": NullPool}


POOL = Optimization(
    name="pool",
    step="pool",
    baseline=Implementation("10", as_told),
    further=(Implementation("1", one), Implementation("none", none)),
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
    why="BEGIN and ROLLBACK are two of the three round trips of a request with one statement.",
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
    why="Threads share memory and the interpreter lock, so they help while the database works; processes share "
    "neither.",
    source="uWSGI's --processes and --threads. A comparison sends one request at a time, so it shows the memory; "
    "`placebench lab study workers` measures throughput and waiting.",
    metric="pss_bytes",
    place="deployment",
)


INDEXES = Optimization(
    name="indexes",
    step="indexes",
    baseline=Implementation("as_placement", None),
    further=(Implementation("covering", None, revision="covering_indexes"),),
    why="An index that holds all columns of a query saves the access to the table, and is one more index to write.",
    source="PostgreSQL's index-only scans; Placement makes single columns and keys.",
    metric="cpu_s",
    place="database",
)


PASSES = Optimization(
    name="seldom",
    step="passes",
    of=("dedup", "cached"),
    baseline=Implementation("as_shipped", collector_as_shipped),
    alternative=Implementation("seldom", collector_seldom),
    why="A collection traverses the young lists and dicts, thousands of entries, and finds no cycle.",
    source="Our measurement: a tenth of the worker's CPU on equal trees and a fifth on trees that differ, in 2 and 8 "
    "collections per request. For `naive` and `tuned` it is `collector:seldom`.",
    metric="cpu_s",
    on="nested-perfload with disks that differ",
    place="deployment",
)


def a_query_a_need(forest: "Forest", root_ids: Collection[int]) -> Mapping[int, list[str]]:
    """The traits by provider, after the forest knows all else; up to 3 round trips."""
    forest.know_providers(root_ids)
    forest.ask_stocks([root_id for root_id in root_ids if root_id not in forest.trees_stocks])
    return forest.ask_traits(root_ids)


def one_joined_query(forest: "Forest", root_ids: Collection[int]) -> Mapping[int, list[str]]:
    """The same in 1 round trip; a provider of three classes and four traits comes in twelve rows."""
    return forest.ask_everything(root_ids)


TREES = Optimization(
    name="trees",
    step="trees",
    baseline=Implementation("a_query_a_need", a_query_a_need),
    further=(Implementation("joined", one_joined_query),),
    why="One join saves two round trips, and multiplies the rows: each class of a provider times each of its traits.",
    source="SQLAlchemy's joinedload and selectinload are the same choice.",
    metric="rows",
)


def all_trees(_choice: "Choice") -> bool:
    """Never a few: the limit cuts what was found in all trees."""
    return False


def few_trees(choice: "Choice") -> bool:
    """A few where those that come first are wanted, and not any or the first ones of each tree."""
    return choice.left is not None and choice.depth_first


REACH = Optimization(
    name="few",
    step="reach",
    of=("dedup",),
    baseline=Implementation("all_trees", all_trees),
    alternative=Implementation("few_trees", few_trees),
    why="Ten candidates are in the first few trees, and the other thousand need not be read.",
    source="Placement searches all trees and applies limit last: 343 ms of CPU with limit=10, 472 without.",
    request=f"{REFERENCE_REQUEST}&limit=10",
    metric="cpu_s",
)


def equal(kind: "Kind", matter: "Matter") -> Hashable:
    """Equal in everything: each distinct tree is searched."""
    return kind, matter


def mattering_alike(_kind: "Kind", matter: "Matter") -> Hashable:
    """Alike in what the request asks about, however else they differ."""
    return matter


LIKENESS = Optimization(
    name="alike",
    step="likeness",
    of=("dedup", "cached"),
    baseline=Implementation("equal", equal),
    alternative=Implementation("mattering_alike", mattering_alike),
    why="A thousand trees with five hundred different disks are 504 distinct trees, and four for a request.",
    source="Our measurement: one search for each distinct tree was 18× faster than Placement on equal trees, and "
    "3.5× on trees that differ.",
    metric="cpu_s",
    on="nested-perfload with disks that differ",
)


def in_a_list(ids: Iterable[int]) -> Collection[int]:
    """A list: each question walks along it, so a filter of n by m ids takes n times m steps."""
    return list(ids)


def in_a_set(ids: Iterable[int]) -> Collection[int]:
    """A frozenset: each question is one lookup."""
    return frozenset(ids)


MEMBERSHIP = Optimization(
    name="sets",
    step="collection",
    baseline=Implementation("lists", in_a_list),
    alternative=Implementation("sets", in_a_set),
    why="Roots and providers are filtered against each other in every group: quadratic in the number of trees.",
    source="Placement still tests `root_id in dict.values()` for each row of its forbidden traits: 32 ms of a request "
    "at 1000 trees and 197 ms at 3000.",
    metric="cpu_s",
)


def always(_request: CandidateRequest) -> bool:
    """For each request; 1 round trip."""
    return True


def where_asked_for(request: CandidateRequest) -> bool:
    """For those with member_of; where somebody shares it is read anyway, since aggregates say with whom."""
    return any(group.member_of or group.not_member_of for group in request.groups)


MEMBERSHIPS = Optimization(
    name="unshared",
    step="memberships",
    of=("dedup",),
    baseline=Implementation("always", always),
    alternative=Implementation("where_asked_for", where_asked_for),
    why="An aggregate matters to member_of and to sharing; providers that differ in it alone are otherwise alike.",
    source="Placement reads the sharing providers first, and takes a shortcut when there are none.",
    request="/allocation_candidates?resources=DISK_GB:10,VCPU:1,MEMORY_MB:256",
    metric="cpu_s",
    on="flat-perfload",
    topology="flat-perfload",
)
