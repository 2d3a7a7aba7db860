"""Fills a database with a topology: what every loader promises, the receipt, and the digest of what was seeded.

The door is `seed`; `migrate` makes the schema alone, `add_standard_names` adds what every Placement knows, and
`data_digest` says what a database holds.
"""

from placebench.seeding.connection import continue_ids, reading
from placebench.seeding.digest import Content, consumers_and_allocations, content, data_digest, expected_content
from placebench.seeding.loaders import Loader, Meter, Progress, Target, loader_named, topology_named
from placebench.seeding.migration import has_change_log, migrate, migrate_options, options_at
from placebench.seeding.name_ids import Ids, Owner, add_standard_names, ids_for
from placebench.seeding.receipt import SeedReceipt, receipt_of
from placebench.seeding.rows import Rows, rows_of
from placebench.seeding.seeder import seed

__all__ = [
    "Content",
    "Ids",
    "Loader",
    "Meter",
    "Owner",
    "Progress",
    "Rows",
    "SeedReceipt",
    "Target",
    "add_standard_names",
    "consumers_and_allocations",
    "content",
    "continue_ids",
    "data_digest",
    "expected_content",
    "has_change_log",
    "ids_for",
    "loader_named",
    "migrate",
    "migrate_options",
    "options_at",
    "reading",
    "receipt_of",
    "rows_of",
    "seed",
    "topology_named",
]
