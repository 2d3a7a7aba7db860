"""Loads a topology by SQLAlchemy Core: many rows an INSERT, on PostgreSQL, SQLite and MariaDB alike.

All in the one transaction of the caller; keys and indexes are kept up row by row.
"""

from itertools import islice

from placebench.lab.inventory.seeding import (
    Progress,
    ProgressMeter,
    Target,
    advance_id_sequence,
    ensure_ids,
    table_rows,
)
from placebench.lab.inventory.topology import Topology

_TREES_IN_BATCH = 200


def load(topology: Topology, target: Target, progress: Progress) -> None:
    """Write the topology table by table: one execution for each batch of trees, about a thousand rows per statement."""
    connection = target.connection
    parts = table_rows(topology, ensure_ids(connection, topology))
    meter = ProgressMeter(progress, topology, passes=len(parts))
    for part in parts:
        # INSERT INTO <table> (created_at, …) VALUES (…), (…), and so on
        trees = iter(part.trees)
        while batch := list(islice(trees, _TREES_IN_BATCH)):
            values = [dict(zip(part.columns, row, strict=True)) for tree in batch for row in tree]
            if values:
                connection.execute(part.table.insert(), values)
            meter.step(len(batch))
        advance_id_sequence(connection, part.table)
