"""The section of the bench that looks for an answer of `cached` that naive does not give: `bench_staleness`.

Requests in three threads share a picture, while psql's transactions overlap, and the reference service and, where its
environment is there, the real Placement write to the same database. Each request asks both variants in one transaction.
"""

import argparse
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from meddlers import CLOUD, QUERIES, Meddler, Service, compare, meddling, send_to
from sqlalchemy import create_engine, text

from placebench.lab.inventory.seeding import migrate
from placebench.lab.reference.store.database import Database
from placebench.runtime.postgres import open_server

REQUESTERS = 3
SHOWN = 5


def bench_staleness(arguments: argparse.Namespace, say: Callable[..., None], _: Callable[..., str]) -> None:
    """Ends with exit code 1 after a difference."""
    with ExitStack() as stack:
        url = stack.enter_context(open_server()).create_database("bench_staleness")
        migrate(url)
        engine = create_engine(url, pool_size=REQUESTERS + 2)
        stack.callback(engine.dispose)
        with engine.begin() as connection:
            connection.execute(text(CLOUD))
        seed = random.SystemRandom().randrange(10_000)
        meddler = Meddler(url, seed)
        stack.callback(meddler.close)
        writers: list[Any] = [meddler, Service(send_to(engine), seed)]
        if arguments.placement_python:
            writers.append(Service(_to_placement(stack, arguments.placement_python, url), seed, first=3000))
        began = time.perf_counter()
        with meddling(*writers) as go_on:
            differing = _ask(Database(engine), arguments.requests, go_on)
    say(f"staleness, seed {seed}", "count")
    say("requests asked of both", arguments.requests)
    say("requests a second", round(arguments.requests / (time.perf_counter() - began)))
    say("answers that differ", len(differing))
    for way, count in sorted(meddler.done.items()):
        say(f"psql: {way}", count)
    for name, writer in zip(("reference service", "Placement"), writers[1:], strict=False):
        say(f"{name}: writes", writer.steps)
    if differing:
        raise SystemExit("\n".join(differing[:SHOWN]))


def _ask(database: Database, count: int, go_on: Callable[[], None]) -> list[str]:
    """So many requests, each a random one; what differs."""
    differing: list[str] = []

    def ask(number: int) -> None:
        chance = random.Random(number)
        for _ in range(number, count, REQUESTERS):
            go_on()
            query = chance.choice(QUERIES)
            if seen := compare(database, query, naive_first=chance.random() < 0.2):
                differing.append(f"{query}: {seen}")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(REQUESTERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return differing


def _to_placement(stack: ExitStack, python: str, url: str) -> Callable[[str, str, Any], Any]:
    """What sends to the real Placement, in a process of its own; the oracle knows how."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "oracle"))
    from programs import Request, placement

    program = stack.enter_context(placement(python, url))
    return lambda method, path, body: program.ask(Request(method, path, body=body)).document
