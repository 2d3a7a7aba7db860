"""Seeding: write a topology into a database, with a receipt and a digest of the written data.

The main function is `seed`. `migrate` only creates the schema, `add_standard_names` adds the names that every Placement
has, and `data_digest` returns the digest of a database.
"""

from placebench.lab.inventory.seeding.connection import (
    advance_id_sequence,
    applied_options,
    has_change_log,
    migrate,
    migrate_options,
    read_only_connection,
)
from placebench.lab.inventory.seeding.digest import (
    SELECTS,
    Content,
    count_consumers_and_allocations,
    data_digest,
    expected_content,
    read_content,
)
from placebench.lab.inventory.seeding.loaders import Loader, Progress, ProgressMeter, Target, find_loader, find_topology
from placebench.lab.inventory.seeding.rows import Ids, Owner, Rows, add_standard_names, ensure_ids, table_rows
from placebench.lab.inventory.seeding.seeder import SeedReceipt, foreign_rows, read_receipt, seed

__all__ = [
    "SELECTS",
    "Content",
    "Ids",
    "Loader",
    "Owner",
    "Progress",
    "ProgressMeter",
    "Rows",
    "SeedReceipt",
    "Target",
    "add_standard_names",
    "advance_id_sequence",
    "applied_options",
    "count_consumers_and_allocations",
    "data_digest",
    "ensure_ids",
    "expected_content",
    "find_loader",
    "find_topology",
    "foreign_rows",
    "has_change_log",
    "migrate",
    "migrate_options",
    "read_content",
    "read_only_connection",
    "read_receipt",
    "seed",
    "table_rows",
]
