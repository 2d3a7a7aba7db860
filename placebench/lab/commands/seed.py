"""`placebench lab seed`: create the schema in the database of --db, and fill it with an inventory data set."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placebench import units
from placebench.commands import STARTS_SERVERS, Command, options
from placebench.commands.output import emit, progress, say, warn
from placebench.errors import UsageError
from placebench.paths import resource_folder

if TYPE_CHECKING:
    from placebench.lab.inventory.seeding import SeedReceipt


@dataclass(frozen=True)
class SeedOptions:
    """The options of `placebench lab seed`."""

    output: options.OutputOptions
    data: options.DataOptions
    loader: str | None
    db: str | None
    reset: bool
    yes: bool
    option: tuple[str, ...]
    api_url: str | None


def _configure(parser: ArgumentParser) -> None:
    options.add_topology(parser)
    options.add_utilization(parser)
    options.add_size(parser, at_least=0)
    parser.add_argument(
        "--loader", metavar="copy|sql|http", help="how the rows are written (default: copy; on MariaDB: sql)"
    )
    options.add_database(parser, f"database (default: ${options.DATABASE_VARIABLE})")
    parser.add_argument(
        "--reset",
        action="store_true",
        help="empty Placement's tables first; rows that placebench did not seed are removed after a confirmation",
    )
    parser.add_argument("--yes", action="store_true", help="with --reset: confirmed")
    revisions = sorted(path.stem for path in (resource_folder("schema") / "options").glob("*.py"))
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        choices=revisions,
        metavar="REVISION",
        help=f"optional revision of the schema: {', '.join(revisions)}, for some variants; may be repeated",
    )
    parser.add_argument(
        "--api-url",
        type=options.service_url,
        metavar="URL",
        help="with --loader http: a service on this database (default: one is started)",
    )
    options.add_output(parser)


def _run(given: SeedOptions) -> int:
    from placebench.lab.inventory.seeding import count_consumers_and_allocations, find_topology, migrate_options, seed
    from placebench.runtime.mariadb import mariadb_url
    from placebench.runtime.postgres import check_database, normalise_url

    data = given.data
    topology = find_topology(data.topology, trees=data.trees, seed=data.seed, utilization=data.utilization)
    named = options.database_url(given.db)
    on_mariadb = mariadb_url(named)
    url = on_mariadb or normalise_url(named)
    if on_mariadb is None:
        check_database(url)
    if given.reset and not given.yes:
        _confirm_reset(url)
    with _api(given, url) as api_url, progress("providers", topology.providers) as advance:
        receipt = seed(
            topology,
            url,
            loader=given.loader or ("copy" if on_mariadb is None else "sql"),
            reset=given.reset,
            api_url=api_url,
            progress=lambda done, _: advance(done),
            notice=say,
        )
    migrate_options(url, given.option)
    used = count_consumers_and_allocations(url) if topology.trees and topology.is_used else (0, 0)
    _emit(given.output, receipt, *used)
    return 0


def _confirm_reset(url: str) -> None:
    """Require a confirmation before deleting rows that placebench did not seed; raise UsageError without one."""
    from placebench.lab.inventory.seeding import foreign_rows
    from placebench.runtime.postgres.connection import describe

    if not (found := foreign_rows(url)):
        return
    rows = ", ".join(f"{units.count(count)} in {table}" for table, count in found.items())
    held = f"{describe(url)} holds rows that placebench did not seed, or that changed since: {rows}"
    if not sys.stdin.isatty():
        raise UsageError(f"{held}; --reset would remove them, so nothing was done: give --yes too, or another --db")
    warn(f"{held}\nType yes to remove them all:")
    if sys.stdin.readline().strip().lower() != "yes":
        raise UsageError("nothing was removed: expected yes")


@contextmanager
def _api(given: SeedOptions, url: str) -> Iterator[str | None]:
    """Yield the URL of the API that `by_http` writes to: the given one, or that of a service started for it."""
    if given.loader != "http" or given.api_url or given.data.trees == 0:
        yield given.api_url
        return
    from placebench.lab.inventory.seeding import migrate
    from placebench.runtime.application_servers import serve
    from placebench.runtime.running_server import ServerSpec

    migrate(url)
    with serve(ServerSpec(database_url=url, variant="tuned", processes=2, threads=4)) as server:
        say(f"the reference service is at {server.url}")
        yield server.url


def _emit(output: options.OutputOptions, receipt: "SeedReceipt", consumers: int, allocations: int) -> None:
    used = f", {units.count(consumers)} consumers with {units.count(allocations)} allocations" if consumers else ""
    emit(
        output,
        text=lambda: (
            f"{receipt.topology}, {units.numbered(receipt.trees, 'tree')}, seed {receipt.seed}, by_{receipt.loader}:"
            f" {units.count(receipt.providers)} providers, {units.count(receipt.inventories)} inventories,"
            f" {units.count(receipt.provider_traits)} traits and {units.count(receipt.provider_aggregates)} aggregates"
            f" of providers{used} in {units.duration(receipt.elapsed_s)}; digest {receipt.digest}"
        ),
        document=lambda: {**receipt.to_json(), "consumers": consumers, "allocations": allocations},
    )


COMMANDS = {"lab seed": Command(_configure, _run, options=SeedOptions, needs_linux=STARTS_SERVERS)}
