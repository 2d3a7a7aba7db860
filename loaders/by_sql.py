"""Loads a topology by SQLAlchemy Core: many rows an INSERT, on PostgreSQL, SQLite and MariaDB alike.

All in the one transaction of the caller; keys and indexes are kept up row by row.
"""

from itertools import islice

from sqlalchemy import Connection

from placebench.seeding import Meter, Progress, Rows, Target, continue_ids, ids_for, rows_of
from placebench.topology import Topology

_TREES_IN_BATCH = 200


def load(topology: Topology, target: Target, progress: Progress) -> None:
    """Write the topology table by table; an execution for so many trees, about a thousand rows a statement."""
    connection = target.connection
    parts = rows_of(topology, ids_for(connection, topology))
    meter = Meter(progress, topology, passes=len(parts))
    for part in parts:
        _insert(connection, part, meter)
        continue_ids(connection, part.table)


def _insert(connection: Connection, rows: Rows, meter: Meter) -> None:
    """INSERT INTO <table> (created_at, …) VALUES (…), (…), …"""
    trees = iter(rows.trees)
    while batch := list(islice(trees, _TREES_IN_BATCH)):
        values = [dict(zip(rows.columns, row, strict=True)) for tree in batch for row in tree]
        if values:
            connection.execute(rows.table.insert(), values)
        meter.step(len(batch))
