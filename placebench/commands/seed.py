"""`placebench seed`: migrate the database that --db names, fill it with a topology, and say what is in it."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from placebench import limits, units
from placebench.commands import values
from placebench.commands.console import print_json, print_result, progress, say
from placebench.errors import DatabaseError

if TYPE_CHECKING:
    from placebench.seeding import SeedReceipt

HELP = "migrate a database and fill it with a topology"
_VARIABLE = "PLACEBENCH_DATABASE_URL"


def configure(parser: ArgumentParser) -> None:
    """Which topology, how much of it, by which way, into which database."""
    parser.add_argument(
        "--topology", default="nested-perfload", metavar="NAME", help="a topology's name, or the path of its .toml file"
    )
    parser.add_argument(
        "--trees",
        type=values.whole(0, limits.TREES),
        metavar="N",
        help="how often the tree is repeated; 0: the schema only",
    )
    parser.add_argument(
        "--utilization",
        type=values.share,
        metavar="0..1",
        help="of the inventories by consumers, whatever the topology says",
    )
    parser.add_argument("--seed", type=values.seed, default=1, metavar="S", help="the same seed gives the same rows")
    parser.add_argument("--loader", default="copy", metavar="copy|sql|http", help="how the rows get in (default: copy)")
    parser.add_argument("--db", type=values.text, metavar="URL", help=f"the database (default: ${_VARIABLE})")
    parser.add_argument("--reset", action="store_true", help="empty Placement's tables first, whoever filled them")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="REVISION",
        help="an optional revision too: covering_indexes, kept_usages (which some variants need)",
    )
    parser.add_argument(
        "--api-url",
        type=values.service_url,
        metavar="URL",
        help="for --loader http: a server that serves this database",
    )
    parser.add_argument("--json", action="store_true", help="print the receipt as JSON")


def run(arguments: Namespace) -> int:
    """Seed; prints the receipt."""
    from placebench.runtime.postgres import check_database, normalise_url
    from placebench.seeding import count_consumers_and_allocations, find_topology, migrate_options, seed

    topology = find_topology(
        arguments.topology, trees=arguments.trees, seed=arguments.seed, utilization=arguments.utilization
    )
    url = normalise_url(_named(arguments.db))
    check_database(url)
    with _api(arguments, url) as api_url, progress("providers", topology.providers) as advance:
        receipt = seed(
            topology,
            url,
            loader=arguments.loader,
            reset=arguments.reset,
            api_url=api_url,
            progress=lambda done, _: advance(done),
            notice=say,
        )
    migrate_options(url, arguments.option)
    used = count_consumers_and_allocations(url) if topology.trees and topology.is_used else (0, 0)
    _print(receipt, *used, as_json=arguments.json)
    return 0


def _named(url: str | None) -> str:
    named = url or os.environ.get(_VARIABLE)
    if not named:
        raise DatabaseError(f"which database? give --db postgresql://user:password@host/name, or set {_VARIABLE}")
    return named


@contextmanager
def _api(arguments: Namespace, url: str) -> Iterator[str | None]:
    """The address of the API that by_http speaks to: the named one, or our own service for as long as it takes."""
    if arguments.loader != "http" or arguments.api_url or arguments.trees == 0:
        yield arguments.api_url
        return
    from placebench.runtime.wsgi_servers import ServerSpec, serve
    from placebench.seeding import migrate

    migrate(url)
    with serve(ServerSpec(database_url=url, variant="tuned", processes=2, threads=4)) as server:
        say(f"the reference service answers at {server.url}")
        yield server.url


def _print(receipt: "SeedReceipt", consumers: int, allocations: int, *, as_json: bool) -> None:
    if as_json:
        print_json({**receipt.to_json(), "consumers": consumers, "allocations": allocations})
        return
    used = f", {units.count(consumers)} consumers with {units.count(allocations)} allocations" if consumers else ""
    print_result(
        f"{receipt.topology}, {units.count(receipt.trees)} trees, seed {receipt.seed}, by_{receipt.loader}:"
        f" {units.count(receipt.providers)} providers, {units.count(receipt.inventories)} inventories,"
        f" {units.count(receipt.provider_traits)} traits and {units.count(receipt.provider_aggregates)} aggregates"
        f" of providers{used} in {units.duration(receipt.elapsed_s)}; digest {receipt.digest}"
    )
