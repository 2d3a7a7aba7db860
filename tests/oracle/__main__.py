"""`tox -e oracle`: our answers beside those of the real Placement, on random clouds, from a printed seed.

    python tests/oracle --placement-python PATH [--seed N] [--seconds N] [--queries N]

Rounds of random clouds and queries go by turns to several pairs of programs, until enough queries for candidates were
compared, or the time is over and at least one was. A disagreement is shrunk by hypothesis to the smallest cloud and
query that still show it, is printed with who is right by the specification, and ends the run with exit code 1.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle
from tempfile import TemporaryDirectory
from typing import Any

from cloud import clouds, ensure_names
from forms import compare_forms
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from programs import Ours, placement
from queries import queries
from reading import Reading
from sqlalchemy import Engine, create_engine
from tally import DisagreementError, Tally
from writing import Writing, operations

from placebench.errors import ServerError
from placebench.lab.inventory import tables
from placebench.lab.inventory.seeding import migrate
from placebench.lab.reference.variants import (
    ALGORITHMS,
    algorithms_leave_one_out,
    cumulative,
    further_alternatives,
    leave_one_out,
    missing_extra,
    variant,
)
from placebench.runtime.cache_server import start_cache_server
from placebench.runtime.postgres import open_server

SHARED_RESPONSES = "dedup+responses:redis"
BETWEEN_WRITES = ("tuned", "dedup", "cached")
CLOUDS = 40  # to be asked, a round
CHANGED_CLOUDS = 8
QUERIES = 16  # of a cloud, at most
OPERATIONS = 12

Round = Callable[[int], None]


def main() -> int:
    """Compare until told to stop; 1 for a disagreement."""
    arguments = parsed()
    tally, began = Tally(), time.monotonic()
    print(f"seed {arguments.seed}: run this again with --seed {arguments.seed}", flush=True)
    with opened(arguments.placement_python, tally) as kinds:
        for number, one_round in enumerate(cycle(kinds)):
            try:
                one_round(arguments.seed * 1_000_000 + number)
            except DisagreementError as disagreement:
                print(disagreement)
                break
            if tally.reads >= arguments.queries or (tally.reads and time.monotonic() - began > arguments.seconds):
                break
    print("\n".join(tally.lines()))
    print(f"seconds: {time.monotonic() - began:.0f}")
    return 1 if tally.closed else 0


def parsed() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--placement-python", required=True, type=os.path.abspath, metavar="PATH", help="a Python with Placement 16.0.0"
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000), help="default: any")
    parser.add_argument("--seconds", type=float, default=570, help="no round begins after these (default: 570)")
    parser.add_argument("--queries", type=int, default=6000, help="no round begins after these (default: 6000)")
    return parser.parse_args()


@contextmanager
def opened(python: str, tally: Tally) -> Iterator[list[Round]]:
    """The kinds of rounds, each with its own Placement and database."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="placebench-oracle-"))
        server = stack.enter_context(open_server())
        cache_url = opened_cache(stack)

        def program(url: str, **options: str) -> tuple[Engine, Any]:
            engine = prepared(url)
            stack.callback(engine.dispose)
            return engine, stack.enter_context(placement(python, url, **options))

        def reading(name: str, url: str, *, wide: bool = False, names: Sequence[str] = ()) -> Reading:
            engine, theirs = program(url, workarounds__optimize_for_wide_provider_trees=str(wide))
            names = names or (
                "tuned",
                *ALGORITHMS,
                SHARED_RESPONSES,
                *algorithms_leave_one_out(),
                *cumulative()[:-1],
                *leave_one_out(),
                *further_alternatives(),
                "dedup+totals:by_trigger",
            )
            ours = {
                name: Ours(engine, name, cache_url if name == SHARED_RESPONSES else "")
                for name in names
                if can_answer(engine, name) and (cache_url or name != SHARED_RESPONSES)
            }
            return Reading(name, engine, theirs, ours, tally, wide)

        def writing(name: str, url: str, our_url: str) -> Writing:
            engine, theirs = program(url)
            ours = prepared(our_url)
            stack.callback(ours.dispose)
            return Writing(name, engine, theirs, ours, Ours(ours), tally)

        _, their_forms = program(f"sqlite:///{folder}/forms")
        our_forms = Ours(prepared(f"sqlite:///{folder}/our_forms"))

        yield [
            lambda _number: compare_forms(their_forms, our_forms, tally),
            round_of_reads(reading("Placement on SQLite", f"sqlite:///{folder}/reads")),
            round_of_reads(reading("Placement on PostgreSQL", server.create_database("oracle_reads"))),
            round_of_writes(
                writing("Placement on SQLite", f"sqlite:///{folder}/writes", server.create_database("oracle_ours"))
            ),
            round_of_reads(reading("Placement on SQLite, for wide trees", f"sqlite:///{folder}/wide", wide=True)),
            round_of_reads_between_writes(
                reading("Placement on PostgreSQL", server.create_database("oracle_changes"), names=BETWEEN_WRITES)
            ),
            round_of_reads(reading("Placement on PostgreSQL", server.create_database("oracle_more_reads"))),
            round_of_writes(
                writing(
                    "Placement on PostgreSQL",
                    server.create_database("oracle_writes"),
                    server.create_database("oracle_ours_again"),
                )
            ),
        ]


def opened_cache(stack: ExitStack) -> str:
    """The URL of a cache service of our own; empty where none is installed, which is said."""
    try:
        cache = start_cache_server()
    except ServerError as error:
        print(f"left out: {SHARED_RESPONSES}, {error}")
        return ""
    stack.callback(cache.stop)
    return cache.url


def can_answer(engine: Engine, name: str) -> bool:
    """Whether the variant has all that it needs on this database, as it is after our migrations."""
    if missing_extra(name):
        return False
    needed = variant(name)
    return not needed.revisions and (engine.name == "postgresql" or not needed.postgresql_only)


def prepared(url: str) -> Engine:
    """An engine over our tables with the names that clouds are made of."""
    engine = create_engine(url)
    if engine.name == "postgresql":
        migrate(url)
    else:
        tables.metadata.create_all(engine)
    with engine.begin() as connection:
        ensure_names(connection)
    return engine


def examples(number: int, count: int) -> Callable[[Any], Any]:
    """Random examples from one seed, and the search for the smallest one."""

    def decorate(test: Any) -> Any:
        chosen = settings(
            max_examples=count,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )
        return seed(number)(chosen(test))

    return decorate


def round_of_reads(reading: Reading) -> Round:
    """Clouds, each asked some queries."""
    often = [name for name in ("tuned", *ALGORITHMS, SHARED_RESPONSES) if name in reading.ours]
    variants = st.sampled_from(often * (len(reading.ours) // len(often)) + list(reading.ours))

    def run(number: int) -> None:
        @examples(number, CLOUDS)
        @given(st.data())
        def one(data: st.DataObject) -> None:
            cloud = data.draw(clouds())
            asked = st.tuples(queries(cloud), variants)
            reading.compare(cloud, data.draw(st.lists(asked, min_size=1, max_size=QUERIES)))

        one()

    return run


def round_of_reads_between_writes(reading: Reading) -> Round:
    """Clouds, each changed by some operations with a query to each variant after each of them."""
    writers = st.sampled_from([None, *reading.ours])

    def run(number: int) -> None:
        @examples(number, CHANGED_CLOUDS)
        @given(st.data())
        def one(data: st.DataObject) -> None:
            cloud = data.draw(clouds())
            asked = st.tuples(operations(of_names=False), writers, queries(cloud))
            reading.compare_between_writes(cloud, data.draw(st.lists(asked, min_size=1, max_size=OPERATIONS)))

        one()

    return run


def round_of_writes(writing: Writing) -> Round:
    """Clouds, each changed by some operations."""

    def run(number: int) -> None:
        @examples(number, CHANGED_CLOUDS)
        @given(clouds(), st.lists(operations(), min_size=1, max_size=OPERATIONS))
        def one(cloud: Any, asked: Any) -> None:
            writing.compare(cloud, asked)

        one()

    return run


if __name__ == "__main__":
    sys.exit(main())
