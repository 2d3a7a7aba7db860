"""What stands in a database before it is seeded: nothing, the same, or something that is in the way.

The key pieces are `standing_receipt` and `empty`.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future

from sqlalchemy import Connection, Table, func, select, text

from placebench import tables
from placebench.errors import SeedError
from placebench.seeding.content import Content, content
from placebench.seeding.receipt import SeedReceipt, stored_receipt

_OCCUPIED = (
    tables.resource_providers,
    tables.inventories,
    tables.resource_provider_traits,
    tables.resource_provider_aggregates,
    tables.consumers,
    tables.allocations,
)
# Children before parents. Traits and classes stay: a Placement puts its own there when it starts, and only then.
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


def standing_receipt(connection: Connection, expected: Callable[[], Future[Content]]) -> SeedReceipt | None:
    """The stored receipt if the database holds just what is expected, None if it holds nothing.

    Raises SeedError for everything else, with what was found.
    """
    rows = _counted(connection, _OCCUPIED)
    if not rows:
        return None
    digest, receipt = content(connection).digest, stored_receipt(connection)
    if receipt and digest == receipt.digest == expected().result().digest:
        return receipt
    raise SeedError(f"the database holds {rows} {_owner(digest, receipt)}: give --reset to empty it, or another --db")


def _owner(digest: str, receipt: SeedReceipt | None) -> str:
    if receipt is None:
        return "that no receipt of placebench names"
    seeded = f"{receipt.topology}, {receipt.trees} trees, seed {receipt.seed}"
    return f"of {seeded}" if digest == receipt.digest else f"that are no longer what was seeded ({seeded})"


def empty(connection: Connection) -> str:
    """Remove every provider, consumer, allocation and receipt; returns, in one line, what was removed.

    Tables of others that refer to these are not followed: the database refuses then, and nothing is removed.
    """
    removed = _counted(connection, _EMPTIED)
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"TRUNCATE {', '.join(table.name for table in _EMPTIED)}"))
    else:
        for table in _EMPTIED:
            connection.execute(table.delete())
    return f"removed {removed or 'nothing: the tables were empty'}"


def _counted(connection: Connection, counted: Iterable[Table]) -> str:
    """The tables that have rows, as text: "7000 resource_providers, 9000 inventories"; a query for each table."""
    counts = ((connection.scalar(select(func.count()).select_from(table)), table.name) for table in counted)
    return ", ".join(f"{count} {name}" for count, name in counts if count)
