"""A long life of an application in production: memory of the process and size of its folder; prints JSON.

    python soak.py STATEMENTS FOLDER

Requests of 10 statements on SQLite, of ten shapes: equal texts, texts that never come again, long ones, lists of any
length, an executemany, a write, a savepoint, a nested record with a span, a connection of its own, and one that
fails. Every tenth request is recorded into FOLDER, which may hold 200 recordings of 1 MB; every statement is counted;
now and then Prometheus's text is read and a worker is forked, serves 20 requests and ends. `rss_bytes` is the memory
after each of 20 parts; the first is after one part, when all is loaded; `blocks` is how many blocks Python had
allocated then, which grow with a leak and not with what is free between others. `files` and `bytes` are the most that
the folder held after a part.
"""

import gc
import json
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool, StaticPool

from placebench import SqlProfiler
from placebench.profiler import Keep, Sampling

PARTS = 20
EACH = 10
MAX_LENGTH = 50_000
QUERY = text("select 1 where 1 = :value")
KEEP = Keep(50, "latest", folder_count=200, folder_bytes=10**6)


def in_worker(serve: Callable[[int], None]) -> None:
    """Serve some requests in a forked process, and wait for its end."""
    worker = os.fork()
    if worker == 0:
        for number in range(20):
            serve(10**9 + number)
        os._exit(0)
    os.waitpid(worker, 0)


def main(statements: int, folder: Path) -> None:
    """Serve the requests, and print what they left."""
    engine, other = create_engine("sqlite://", poolclass=StaticPool), create_engine("sqlite://", poolclass=NullPool)
    profiler = SqlProfiler()
    with engine.begin() as connection:
        connection.exec_driver_sql("create table counter (value integer)")
    profiler.collect_statistics(max_fingerprints=50)

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        number = environ["number"]
        length = MAX_LENGTH if number % 100 == 0 else 10
        with engine.connect() as connection:
            connection.execute(QUERY, {"value": number}).all()
            connection.exec_driver_sql(f"select 1 as unique_{number}").all()
            connection.exec_driver_sql(f"select '{number:{length}}'").all()
            connection.exec_driver_sql(f"select 1 where 1 in ({', '.join('2' * (number % 40 + 1))})").all()
            connection.execute(text("insert into counter values (:value)"), [{"value": 1}, {"value": 2}])
            with connection.begin_nested():
                connection.execute(text("delete from counter"))
            with profiler.record("part"), profiler.timed("span"):
                connection.execute(QUERY, {"value": 1}).all()
                for _ in connection.execute(QUERY, {"value": 1}):
                    pass
            with other.connect() as own:
                own.execute(QUERY, {"value": 1}).all()
            with suppress(OperationalError):
                connection.exec_driver_sql("select missing").all()
            connection.commit()
        start_response("200 OK", [])
        return [b""]

    profiled = profiler.wsgi(application, folder=folder, mode="full", keep=KEEP, sampling=Sampling(rate=0.1))

    def serve(number: int) -> None:
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": f"/{number}", "number": number}
        for _ in profiled(environ, lambda *_: None):
            pass

    rss_bytes, blocks, files, size, scraped = [], [], 0, 0, 0
    number = 0
    for part in range(PARTS):
        for _ in range(statements // EACH // PARTS):
            number += 1
            serve(number)
        scraped = max(scraped, len(profiler.prometheus_text()))
        if part % 4 == 0:
            in_worker(serve)
        gc.collect()
        rss_bytes.append(psutil.Process().memory_info().rss)
        blocks.append(sys.getallocatedblocks())
        files = max(files, len(list(folder.iterdir())))
        size = max(size, sum(path.stat().st_size for path in folder.iterdir()))
    counted = sum(each.count for each in profiler.statistics())
    print(
        json.dumps(
            {
                "rss_bytes": rss_bytes,
                "blocks": blocks,
                "files": files,
                "bytes": size,
                "scraped_bytes": scraped,
                "counted": counted,
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
