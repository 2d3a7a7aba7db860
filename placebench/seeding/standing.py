"""What stands in a database before it is seeded: nothing, the same, or something that is in the way.

The key pieces are `standing_receipt` and `empty`.
"""

from sqlalchemy import Connection, func, select, text

from placebench import tables
from placebench.errors import SeedError
from placebench.seeding.content import Content, content
from placebench.seeding.receipt import SeedReceipt, stored_receipt

# Children before parents. Traits and classes stay: a Placement puts its own there when it starts, and only then.
_SEEDED = (
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


def standing_receipt(connection: Connection, expected: Content) -> SeedReceipt | None:
    """The stored receipt if the database holds just what is expected, None if it holds no provider and no consumer.

    Raises SeedError for everything else, with what was found.
    """
    found, receipt = content(connection), stored_receipt(connection)
    if receipt and found.digest == receipt.digest == expected.digest:
        return receipt
    if found.count("providers") == found.count("consumers") == 0:
        return None
    raise SeedError(f"{_described(found, receipt)}: give --reset to empty it, or take another database")


def _described(found: Content, receipt: SeedReceipt | None) -> str:
    holds = f"the database holds {found.count('providers')} resource providers"
    if receipt is None:
        return f"{holds} and {found.count('consumers')} consumers that no receipt of placebench names"
    seeded = f"{receipt.topology}, {receipt.trees} trees, seed {receipt.seed}"
    if found.digest == receipt.digest:
        return f"{holds} of another seeding ({seeded})"
    return f"{holds} that are no longer what was seeded ({seeded})"


def empty(connection: Connection) -> str:
    """Remove every provider, consumer, allocation and receipt; returns, in one line, what was removed.

    Tables of others that refer to these are not followed: the database refuses then, and nothing is removed.
    """
    counts = {table.name: connection.scalar(select(func.count()).select_from(table)) or 0 for table in _SEEDED}
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"TRUNCATE {', '.join(counts)}"))
    else:
        for table in _SEEDED:
            connection.execute(table.delete())
    removed = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return f"removed {removed or 'nothing: the tables were empty'}"
