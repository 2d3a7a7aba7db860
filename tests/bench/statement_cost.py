"""CPU that profilers add to a small statement; prints JSON.

    python statement_cost.py DATABASE_URL ROUNDS

A round is one block of statements for each profiler that is installed, and one that nobody watches ("bare"), in random
order and each on an engine of its own: what else happens on the machine reaches all of them. The figures are medians of
the rounds, in seconds per statement: `during_s` of the bare block, or what a profiler adds to the bare block of its
round, and `end_s`, what the end of its recording takes.

"loop" is no profiler: what a loop of Python adds that runs after each statement, and "loop alone" what it takes where
nothing runs between. Their ratio is what code costs more after a statement than by itself.
"""

import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import StaticPool

from placebench import SqlProfiler

STATEMENTS = 100
WARM_UP = 3
QUERY = text("select 1 where 1 = :value")

Recording = Callable[[], AbstractContextManager[Any]]
"""Begins what a block of statements is recorded with."""


def placebench(engine: Engine, mode: str) -> Recording:
    """Our own profiler; idle is installed and records nothing, statistics counts and records nothing."""
    profiler = SqlProfiler(engine)
    if mode == "statistics":
        profiler.collect_statistics()
    return nullcontext if mode in ("idle", "statistics") else lambda: profiler.record("block", mode)


def sqltap(engine: Engine) -> Recording:
    """sqltap's profiling session."""
    from sqltap import ProfilingSession

    return lambda: ProfilingSession(engine)


def opentelemetry(engine: Engine) -> Recording:
    """Spans that are made and exported nowhere; it says that it knows no SQLAlchemy 2.1, and works with it."""
    from opentelemetry.instrumentation.sqlalchemy import SQLAlchemyInstrumentor
    from opentelemetry.sdk.trace import TracerProvider

    SQLAlchemyInstrumentor().instrument(engine=engine, tracer_provider=TracerProvider(), skip_dep_check=True)
    return nullcontext


MODES = ("idle", "statistics", "light", "full", "sampled", "flame")
OTHERS = {"sqltap": sqltap, "opentelemetry-instrumentation-sqlalchemy": opentelemetry}
"""By the name of their distribution."""


def main(url: str, rounds: int) -> None:
    """Measure, and print the medians."""
    engines = {name: connected(url) for name in ("bare", *MODES)}
    recordings: dict[str, Recording] = {"bare": nullcontext}
    recordings |= {mode: placebench(engines[mode], mode) for mode in MODES}
    for distribution, begin in OTHERS.items():
        try:
            name = f"{distribution} {version(distribution)}"
        except PackageNotFoundError:
            continue
        engines[name] = connected(url)
        recordings[name] = begin(engines[name])
    connections = {name: engine.connect() for name, engine in engines.items()}
    engines["loop"] = connected(url)
    recordings["loop"], connections["loop"] = nullcontext, engines["loop"].connect()
    found = costs(recordings, connections, rounds)
    found["loop alone"] = {"during_s": statistics.median(loop_s() for _ in range(rounds)), "end_s": 0.0}
    # py-spy takes some 100 ms to start: one recording has the blocks of all rounds.
    engine = connected(url)
    with placebench(engine, "external")():
        connections["external"] = engine.connect()
        found["external"] = costs(dict.fromkeys(("bare", "external"), nullcontext), connections, rounds)["external"]
    print(json.dumps(found))


def connected(url: str) -> Engine:
    """An engine of its own."""
    return create_engine(url, poolclass=StaticPool)


def costs(
    recordings: Mapping[str, Recording], connections: Mapping[str, Connection], rounds: int
) -> dict[str, dict[str, float]]:
    """By profiler, the medians of the rounds."""
    during: dict[str, list[float]] = {name: [] for name in recordings}
    end: dict[str, list[float]] = {name: [] for name in recordings}
    gc.collect()
    gc.freeze()
    gc.disable()  # a collection belongs to no statement
    for number in range(-WARM_UP, rounds):
        took = {}
        for name in random.Random(number).sample(list(recordings), len(recordings)):
            took[name] = block(recordings[name], connections[name], loop if name == "loop" else None)
            gc.collect()
        for name, (during_s, end_s) in took.items() if number >= 0 else ():
            during[name].append(during_s - (0.0 if name == "bare" else took["bare"][0]))
            end[name].append(end_s)
    gc.enable()
    return {
        name: {"during_s": statistics.median(during[name]), "end_s": statistics.median(end[name])}
        for name in recordings
    }


def block(
    recording: Recording, connection: Connection, after: Callable[[], object] | None = None
) -> tuple[float, float]:
    """CPU seconds of this process per statement, while they run and at the end of what records them.

    after: what else runs after each statement.
    """
    recorded = recording()
    recorded.__enter__()
    began = time.process_time()
    for value in range(STATEMENTS):
        connection.execute(QUERY, {"value": value}).all()
        if after is not None:
            after()
    ended = time.process_time()
    recorded.__exit__(None, None, None)
    return (ended - began) / STATEMENTS, (time.process_time() - ended) / STATEMENTS


def loop() -> int:
    """Some microseconds of Python that has nothing to do with statements: calls, arithmetic, tuples and a dict."""
    kept: dict[int, tuple[int, int]] = {}
    total = 0
    for number in range(60):
        kept[number & 7] = (number, total)
        total += len(kept) + number
    return total


def loop_s() -> float:
    """CPU seconds of this process that the loop takes, one after the other."""
    began = time.process_time()
    for _ in range(STATEMENTS):
        loop()
    return (time.process_time() - began) / STATEMENTS


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
