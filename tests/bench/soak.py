"""A long life of an application in production: memory of the process and size of its folder; prints JSON.

    python soak.py STATEMENTS FOLDER

Requests of 10 statements on SQLite. Every tenth is recorded into FOLDER, which may hold 200 recordings of 1 MB; every
statement is counted, some have texts that never come again, some fail; now and then Prometheus's text is read and a
worker is forked, serves 20 requests and ends. `rss_bytes` is the memory after each of 20 parts; the first is after
one part, when all is loaded; `blocks` is how many blocks Python had allocated then, which grow with a leak and not with
what is free between others. `files` and `bytes` are the most that the folder held after a part.
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
from sqlalchemy.pool import StaticPool

from placebench import SqlProfiler
from placebench.profiler import Keep, Sampling

PARTS = 20
EACH = 10
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
    engine = create_engine("sqlite://", poolclass=StaticPool)
    profiler = SqlProfiler(engine)
    profiler.collect_statistics(max_fingerprints=50)

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        number = environ["number"]
        with engine.connect() as connection:
            for value in range(EACH - 2):
                connection.execute(QUERY, {"value": value}).all()
            connection.exec_driver_sql(f"select 1 as unique_{number}").all()
            with suppress(OperationalError):
                connection.exec_driver_sql("select missing").all()
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
