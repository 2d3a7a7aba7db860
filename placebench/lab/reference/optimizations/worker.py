"""How a worker process is set up: driver, connection pool, garbage collector, memory, processes and threads."""

import ctypes
import gc
from typing import Any, Final

from sqlalchemy import URL, NullPool

from placebench.errors import DatabaseError
from placebench.lab.reference.domain.optimization import (
    OBJECTS,
    REFERENCE_REQUEST,
    Extra,
    Implementation,
    Optimization,
)


def keep_gc_defaults() -> None:
    """Keep Python's garbage collector settings: each full collection also traverses all modules."""


def freeze_gc() -> None:
    """Collect once, and exclude the objects that remain, which are permanent, from later collections."""
    gc.collect()
    gc.freeze()


def _disable_gc() -> None:
    """Turn the garbage collector off: reference cycles are never freed, so a worker grows until it is restarted."""
    gc.disable()


COLLECTOR = Optimization(
    name="freeze",
    field="collector",
    baseline=Implementation("default", keep_gc_defaults),
    alternative=Implementation("frozen", freeze_gc),
    further=(Implementation("off", _disable_gc),),
    why="A request makes enough objects for several full collections, and each one traverses all modules again.",
    source="Our measurement of Placement 16.0.0: 160 of 492 ms are GC pauses; 327 to 339 ms after gc.freeze().",
    metric="cpu_s",
)


def _use_url_driver(url: URL) -> URL:
    """Return the URL, with psycopg2 (in the extra `bench`) as its driver if it is a PostgreSQL URL without a driver."""
    return url.set(drivername="postgresql+psycopg2") if url.drivername in ("postgres", "postgresql") else url


def _driver(name: str, drivername: str, extra: Extra) -> Implementation:
    """Return the implementation that replaces the driver in a URL by this one."""

    def use(url: URL) -> URL:
        if url.get_backend_name() not in ("postgres", "postgresql"):
            raise DatabaseError(f"driver:{name} is for PostgreSQL, but the database is of {url.get_backend_name()}")
        return url.set(drivername=f"postgresql+{drivername}")

    return Implementation(name, lambda: use, extra=extra, postgresql_only=True)


DRIVER = Optimization(
    name="driver",
    field="driver",
    algorithms=(OBJECTS, "dedup"),
    baseline=Implementation("psycopg2", _use_url_driver),
    further=(
        _driver("psycopg3", "psycopg", Extra("psycopg3", "psycopg")),
        _driver("asyncpg", "asyncpg", Extra("asyncio", "asyncpg")),
        _driver("psycopg3_async", "psycopg_async", Extra("asyncio", "psycopg")),
    ),
    why="psycopg2 puts values into the text; psycopg 3 sends them separately and prepares repeated statements. "
    "asyncpg and psycopg3_async wait in an event loop, under uvicorn or granian, where the others block a thread.",
    source="psycopg's own documentation names both differences; which one weighs more depends on rows and lists. "
    "`placebench lab study workers` compares event loops with threads and processes.",
    metric="cpu_s",
    scope="worker",
)


def _pool_of_size(size: int) -> dict[str, Any]:
    """Return the settings of a pool of *size* connections: PLACEBENCH_POOL_SIZE, 10 by default."""
    return {"pool_size": size, "max_overflow": 0}


def _pool_of_one(_size: int) -> dict[str, Any]:
    """Return the settings of a pool of one connection: a second thread must wait for it."""
    return {"pool_size": 1, "max_overflow": 0}


def _no_pool(_size: int) -> dict[str, Any]:
    """Return the setting for a new connection per request."""
    return {"poolclass": NullPool}


POOL = Optimization(
    name="pool",
    field="pool",
    baseline=Implementation("10", _pool_of_size),
    further=(Implementation("1", _pool_of_one), Implementation("none", _no_pool)),
    why="A connection costs a process on the server, a login and five round trips; too few of them cost waiting.",
    source="SQLAlchemy keeps 5 and lets 10 overflow. Our count: 5 round trips more for each request without a pool.",
    request=REFERENCE_REQUEST + "&limit=1",
    metric="round_trips",
    scope="worker",
)


PING = Optimization(
    name="ping",
    field="ping",
    baseline=Implementation("never", False),
    further=(Implementation("before_use", True),),
    why="A connection that was dropped without a word is found before it fails a request, for round trips each time; "
    "one that the server has closed is found without a ping.",
    source="SQLAlchemy's pool_pre_ping. Our count: 3 round trips more for each request with psycopg2.",
    request="/resource_classes",
    metric="round_trips",
    scope="worker",
)


WORKERS = Optimization(
    name="workers",
    field="workers",
    baseline=Implementation("1x1", (1, 1)),
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
    scope="worker",
)


def _collect_seldom() -> None:
    """Start a garbage collection after 50 000 new objects instead of 700 (the default of Python 3.11)."""
    gc.set_threshold(50_000)


GC_FREQUENCY = Optimization(
    name="seldom",
    field="gc_frequency",
    algorithms=(OBJECTS, "dedup", "cached"),
    baseline=Implementation("default", keep_gc_defaults),
    alternative=Implementation("seldom", _collect_seldom),
    why="A collection traverses the young objects of all requests that a worker serves at once, and finds no cycle.",
    source="Our measurement of `dedup`: a tenth of the worker's CPU on equal trees and a fifth on trees that differ, "
    "in 2 and 8 collections per request.",
    metric="cpu_s",
    scope="worker",
)


_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
"""Numbers of mallopt's options, from <malloc.h>."""
_AS_MUCH_AS_GOES: Final = 2**31 - 1
_MAX_HEAP_BLOCK_BYTES: Final = 32 * 2**20
"""The size from which malloc maps blocks outside the heap. A body over 50 MB is sent in parts, never held at once."""


def keep_malloc_defaults() -> None:
    """Keep malloc's settings: free memory at the top of the heap returns to the kernel and later costs page faults."""


def keep_freed_memory() -> None:
    """Configure glibc's malloc to keep freed memory, in one arena for all threads; without glibc, do nothing.

    With one arena per thread, each would keep its own maximum: a worker with 10 threads had 151 MiB instead of 110, for
    the same CPU time (two runs of 200 requests).
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_MMAP_THRESHOLD, _MAX_HEAP_BLOCK_BYTES)
        mallopt(_TRIM_THRESHOLD, _AS_MUCH_AS_GOES)
        mallopt(_ARENA_MAX, 1)


HEAP = Optimization(
    name="heap",
    field="heap",
    algorithms=("dedup", "cached"),
    baseline=Implementation("default", keep_malloc_defaults),
    alternative=Implementation("keep_freed", keep_freed_memory),
    why="Memory returned to the kernel comes back as new pages: 1170 faults per request, and 9 when malloc keeps it.",
    source="Our measurement: −22 % worker CPU [95 % CI −25, −20; n = 40]. `tuned`, whose objects lie in Python's own "
    "arenas: −4 % [−9, +1; n = 30]; `naive`: 0 % [−3, +3; n = 20].",
    metric="cpu_s",
    scope="worker",
)
