"""What one profiler costs a statement: CPU of this process, blocks with and without it by turns; prints JSON.

    python statement_cost.py CONTENDER DATABASE_URL BLOCKS

A process of its own for each contender: some listen to every engine. `during` is while statements run, `end` is what
the end of a recording of 300 statements costs, divided by them; both are differences to an engine that nobody watches.
"""

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.pool import StaticPool

STATEMENTS = 300
QUERY = text("select 1 where 1 = :value")


@contextmanager
def placebench(engine: Engine, mode: str) -> Iterator[Callable[[], Any]]:
    """Our own profiler; idle is installed and records nothing, statistics counts and records nothing."""
    from contextlib import nullcontext

    from placebench import SqlProfiler

    profiler = SqlProfiler(engine)
    if mode == "statistics":
        profiler.collect_statistics()
    yield nullcontext if mode in ("idle", "statistics") else lambda: profiler.record("block", mode)


@contextmanager
def sqltap(engine: Engine, _: str) -> Iterator[Callable[[], Any]]:
    """sqltap's profiling session."""
    import sqltap

    yield lambda: sqltap.ProfilingSession(engine)


@contextmanager
def opentelemetry(engine: Engine, _: str) -> Iterator[Callable[[], Any]]:
    """Spans that are made and exported nowhere; it says that it knows no SQLAlchemy 2.1, and works with it."""
    from contextlib import nullcontext

    from opentelemetry.instrumentation.sqlalchemy import SQLAlchemyInstrumentor
    from opentelemetry.sdk.trace import TracerProvider

    SQLAlchemyInstrumentor().instrument(engine=engine, tracer_provider=TracerProvider(), skip_dep_check=True)
    yield nullcontext


@contextmanager
def queryspy(engine: Engine, _: str) -> Iterator[Callable[[], Any]]:
    """A recorder of queryspy's, without its judgement."""
    import queryspy

    yield queryspy.record


# The engine that nobody should watch is watched too: what is printed is the whole statement.
LISTENS_TO_ALL = {"queryspy"}
CONTENDERS = {"placebench": placebench, "sqltap": sqltap, "opentelemetry": opentelemetry, "queryspy": queryspy}


def main(contender: str, url: str, blocks: int) -> None:
    """Measure blocks by turns, unwatched and watched, and print the differences in seconds a statement."""
    name, _, mode = contender.partition("-")
    pool = {"poolclass": StaticPool} if url.startswith("sqlite") else {}
    plain, watched = create_engine(url, **pool), create_engine(url, **pool)
    during, end, base = [], [], []
    with CONTENDERS[name](watched, mode) as recording:
        without, within = plain.connect(), watched.connect()
        gc.disable()  # a collection belongs to nobody's statement
        for block in range(blocks + 3):
            unwatched_s = ran(without)
            began = recording()
            began.__enter__()
            watched_s = ran(within)
            ended = time.process_time()
            began.__exit__(None, None, None)
            ended_s = (time.process_time() - ended) / STATEMENTS
            del began
            gc.collect()
            if block >= 3:
                base.append(unwatched_s)
                during.append(watched_s - (0.0 if name in LISTENS_TO_ALL else unwatched_s))
                end.append(ended_s)
    print(json.dumps({"base_s": base, "during_s": during, "end_s": end, "whole": name in LISTENS_TO_ALL}))


def ran(connection: Connection) -> float:
    """CPU seconds of one statement."""
    began = time.process_time()
    for value in range(STATEMENTS):
        connection.execute(QUERY, {"value": value}).all()
    return (time.process_time() - began) / STATEMENTS


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
