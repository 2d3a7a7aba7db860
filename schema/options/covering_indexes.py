"""Indexes that hold every column which the search for candidates reads, so that it need not visit the tables."""

from alembic import op
from alembic.util import CommandError

revision = "covering_indexes"
down_revision = None
branch_labels = None
depends_on = None

AMOUNTS = ["total", "reserved", "allocation_ratio", "max_unit", "min_unit", "step_size"]
INDEXES = (
    # Whole trees, by the ids of their roots.
    ("placebench_trees_covering_idx", "resource_providers", ["root_provider_id"], ["id", "uuid", "parent_provider_id"]),
    # The root of a provider that is joined by its id.
    ("placebench_roots_covering_idx", "resource_providers", ["id"], ["root_provider_id"]),
    # Providers with capacity of a class, and what a provider has of each class.
    ("placebench_rooms_covering_idx", "inventories", ["resource_class_id", "resource_provider_id"], AMOUNTS),
    ("placebench_stocks_covering_idx", "inventories", ["resource_provider_id", "resource_class_id"], AMOUNTS),
    # Sums of a class; those of a provider have their index from Placement.
    ("placebench_sums_covering_idx", "allocations", ["resource_class_id", "resource_provider_id"], ["used"]),
)


def upgrade() -> None:
    """Make them; a second that takes no writes for a million inventories."""
    if op.get_context().dialect.name != "postgresql":
        raise CommandError("covering_indexes is for PostgreSQL: its indexes INCLUDE columns")
    for name, table, key, more in INDEXES:
        op.create_index(name, table, key, postgresql_include=more)


def downgrade() -> None:
    """Drop them."""
    for name, table, _, _ in INDEXES:
        op.drop_index(name, table_name=table)
