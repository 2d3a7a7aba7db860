"""Seed a database: migrate it, check its present content, load, verify, and store a receipt.

The main function is `seed`; it returns a `SeedReceipt`, which is stored as a row of `placebench_receipts`. A database
with other content is refused unless a reset is requested.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

from sqlalchemy import Connection, Table, func, inspect, select, text

from placebench.decoding import read_json
from placebench.errors import SeedError
from placebench.lab.inventory import tables
from placebench.lab.inventory.seeding.connection import exclusive_connection, migrate_connection
from placebench.lab.inventory.seeding.digest import Content, expected_content, read_content
from placebench.lab.inventory.seeding.loaders import Progress, Target, find_loader
from placebench.lab.inventory.seeding.rows import add_standard_names
from placebench.lab.inventory.tables import placebench_receipts, utc_now
from placebench.lab.inventory.topology import Topology, is_custom

_FORMAT_VERSION = 1


@dataclass(frozen=True)
class SeedReceipt:
    """The seeded data set, the loader, the seconds it took including indexes, and the digest of the data."""

    topology: str
    trees: int
    seed: int
    loader: str
    providers: int
    inventories: int
    provider_traits: int
    provider_aggregates: int
    elapsed_s: float
    digest: str
    format_version: int = _FORMAT_VERSION

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name, as plain values."""
        return asdict(self)

    def save(self, path: Path) -> None:
        """Write the receipt to the file *path*."""
        path.write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> SeedReceipt:
        """Return the receipt that `save` wrote; raise SeedError for any other file or format version."""
        receipt = read_json(path, cls, error=SeedError)
        if receipt.format_version != _FORMAT_VERSION:
            raise SeedError(f"{path}: format {receipt.format_version}, this placebench reads {_FORMAT_VERSION}")
        return receipt


def _load_receipt(connection: Connection) -> SeedReceipt | None:
    columns = [placebench_receipts.c[name] for name in SeedReceipt.__dataclass_fields__]
    row = connection.execute(select(*columns).order_by(placebench_receipts.c.id.desc()).limit(1)).one_or_none()
    return None if row is None else SeedReceipt(**row._mapping)


def read_receipt(url: str) -> SeedReceipt | None:
    """Return the receipt in the database at *url*, or None if there is none; nothing is written or migrated."""
    with exclusive_connection(url) as connection:
        if not inspect(connection).has_table(placebench_receipts.name):
            return None
        return _load_receipt(connection)


def foreign_rows(url: str) -> dict[str, int]:
    """Return, by table, the number of rows that a reset would delete and that placebench did not seed.

    The result is empty if the database holds exactly the data of its receipt. Nothing is written.
    """
    with exclusive_connection(url) as connection:
        there = set(inspect(connection).get_table_names())
        found = {
            table.name: count
            for table in _EMPTIED
            if table.name in there and (count := connection.scalar(select(func.count()).select_from(table)))
        }
        receipt = _load_receipt(connection) if placebench_receipts.name in found else None
        if receipt is None or read_content(connection).digest != receipt.digest:
            return found
        return {}


_OCCUPIED = (
    tables.resource_providers,
    tables.inventories,
    tables.resource_provider_traits,
    tables.resource_provider_aggregates,
    tables.consumers,
    tables.allocations,
)
# Children come before parents. Traits and classes are kept: Placement adds its own only at its start.
_EMPTIED = (
    tables.allocations,
    tables.consumers,
    tables.consumer_types,
    tables.projects,
    tables.users,
    tables.inventories,
    tables.resource_provider_traits,
    tables.resource_provider_aggregates,
    tables.placement_aggregates,
    tables.resource_providers,
    tables.placebench_receipts,
)


def _matching_receipt(connection: Connection, expected: Callable[[], Future[Content]]) -> SeedReceipt | None:
    """Return the stored receipt if the database holds exactly the expected data, None if it is empty.

    Raises SeedError, with the content found, in any other case.
    """
    rows = _count_rows(connection, _OCCUPIED)
    if not rows:
        return None
    digest, receipt = read_content(connection).digest, _load_receipt(connection)
    if receipt and digest == receipt.digest == expected().result().digest:
        return receipt
    owner = "that no receipt of placebench names"
    if receipt is not None:
        seeded = f"{receipt.topology}, {receipt.trees} trees, seed {receipt.seed}"
        owner = f"of {seeded}" if digest == receipt.digest else f"that are no longer what was seeded ({seeded})"
    raise SeedError(f"the database holds {rows} {owner}: give --reset to empty it, or another --db")


def _empty(connection: Connection) -> str:
    """Delete all providers, consumers, allocations and receipts; return a summary in one line.

    If tables of other programs refer to these, the database refuses the deletion and nothing is removed.
    """
    removed = _count_rows(connection, _EMPTIED)
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"TRUNCATE {', '.join(table.name for table in _EMPTIED)}"))
    else:
        unrelated = {"root_provider_id": None, "parent_provider_id": None}  # MariaDB checks them row by row
        connection.execute(tables.resource_providers.update().values(unrelated))
        for table in _EMPTIED:
            connection.execute(table.delete())
    return f"removed {removed or 'nothing: the tables were empty'}"


def _count_rows(connection: Connection, counted: Iterable[Table]) -> str:
    """Return the tables that have rows as text, such as "7000 resource_providers, 9000 inventories"."""
    counts = ((connection.scalar(select(func.count()).select_from(table)), table.name) for table in counted)
    return ", ".join(f"{count} {name}" for count, name in counts if count)


def seed(
    topology: Topology,
    url: str,
    *,
    loader: str = "copy",
    reset: bool = False,
    api_url: str | None = None,
    progress: Progress | None = None,
    notice: Callable[[str], None] | None = None,
) -> SeedReceipt:
    """Migrate the database and fill it with the topology; return the receipt, or the stored one if all data is there.

    A topology without trees creates only the schema and the standard names, whatever the tables hold. *reset* empties
    Placement's tables first, in one transaction, and calls *notice* with a summary. `by_copy` and `by_sql` write in one
    transaction, so that nothing remains if they fail. `by_http` cannot do that; the next run reports the incomplete
    data. Raises SeedError if the database holds other data, or if the written data differs from the topology;
    DatabaseError if the database does not respond, lacks permissions, is full, or is lost.
    """
    load = find_loader(loader)

    def tell(done: int, total: int) -> None:
        """Report progress; while PostgreSQL builds the indexes, this process can compute the expected content."""
        (progress or _ignore)(done, total)
        if done >= total:
            expected()

    with exclusive_connection(url) as connection, ThreadPoolExecutor(1) as beside:
        expected = cache(lambda: beside.submit(expected_content, topology))
        migrate_connection(connection)
        if reset:
            with connection.begin():
                removed = _empty(connection)
            (notice or _ignore)(removed)
        if not topology.trees:
            with connection.begin():
                add_standard_names(connection)
            return _receipt(topology, loader, expected().result(), elapsed_s=0.0)
        with connection.begin():
            receipt = _matching_receipt(connection, expected)
            # Users cannot create these, so `by_http` needs all of them, even those that os-traits lacks.
            add_standard_names(connection, [name for name in topology.traits if not is_custom(name)])
        if receipt:
            return receipt
        with connection.begin():
            started = perf_counter()
            load(topology, Target(connection, api_url), tell)
            elapsed_s = perf_counter() - started
            _verify(read_content(connection), expected().result(), loader)
            receipt = _receipt(topology, loader, expected().result(), elapsed_s=elapsed_s)
            connection.execute(placebench_receipts.delete())  # an older one
            connection.execute(placebench_receipts.insert(), {**receipt.to_json(), "seeded_at": utc_now()})
        # Update statistics, hint bits and the visibility map, so that the first measured query is like all others.
        if connection.dialect.name == "postgresql":
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM ANALYZE"))
    return receipt


def _verify(found: Content, expected: Content, loader: str) -> None:
    """Compare the written data with the topology table by table; raise SeedError if they differ."""
    unseen = loader == "http" and not found.count("providers")
    advice = "does the server serve this database?" if unseen else "run it again with --reset"
    for table, lines in expected.tables:
        if found.count(table) != lines.count:
            raise SeedError(f"loader by_{loader} wrote {found.count(table)} of {lines.count} {table}: {advice}")
    if found != expected:
        digests = f"its digest is {found.digest}, expected {expected.digest}"
        raise SeedError(f"loader by_{loader} wrote other data than the topology says ({digests}): {advice}")


def _receipt(topology: Topology, loader: str, content: Content, *, elapsed_s: float) -> SeedReceipt:
    return SeedReceipt(
        topology=topology.name,
        trees=topology.trees,
        seed=topology.seed,
        loader=loader,
        providers=content.count("providers"),
        inventories=content.count("inventories"),
        provider_traits=content.count("provider_traits"),
        provider_aggregates=content.count("provider_aggregates"),
        elapsed_s=elapsed_s,
        digest=content.digest,
    )


def _ignore(*_: object) -> None:
    pass
