"""Memory of an application that is profiled for a million statements; prints JSON.

    python statement_memory.py STATEMENTS

Requests of 100 statements on SQLite through `profiler.wsgi`, which keeps the last hundred recordings: `rss_bytes` after
each tenth of the statements.
"""

import gc
import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

import psutil
from sqlalchemy import create_engine, text
from sqlalchemy.pool import StaticPool

from placebench import SqlProfiler

EACH = 100
QUERY = text("select 1 where 1 = :value")


def main(statements: int) -> None:
    """Answer the requests, and print the memory."""
    engine = create_engine("sqlite://", poolclass=StaticPool)

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with engine.connect() as connection:
            for value in range(EACH):
                connection.execute(QUERY, {"value": value}).all()
        start_response("200 OK", [])
        return [b""]

    profiled, rss_bytes = SqlProfiler(engine).wsgi(application, mode="full"), []
    for number in range(1, statements // EACH + 1):
        for _ in profiled({"REQUEST_METHOD": "GET", "PATH_INFO": "/"}, lambda *_: None):
            pass
        if number % (statements // EACH // 10) == 0:
            gc.collect()
            rss_bytes.append(psutil.Process().memory_info().rss)
    print(json.dumps({"rss_bytes": rss_bytes}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
