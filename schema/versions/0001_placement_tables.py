"""The tables of OpenStack Placement 16.0.0, and placebench's own.

What Placement's own migration has made already is adopted: only what is missing is made, and its name is kept in
`placebench_created_tables`, so that the way back drops what this revision made and nothing else.
Like every revision this one is frozen: it draws its tables itself, whatever placebench.lab.inventory.tables becomes.
"""

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op
from alembic.util import CommandError
from sqlalchemy import Column, DateTime, Double, ForeignKey, Index, Integer, MetaData, String, UniqueConstraint

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# The ids of the standard classes are their places in this list; Placement counts on that.
STANDARD_CLASSES = (
    "VCPU",
    "MEMORY_MB",
    "DISK_GB",
    "PCI_DEVICE",
    "SRIOV_NET_VF",
    "NUMA_SOCKET",
    "NUMA_CORE",
    "NUMA_THREAD",
    "NUMA_MEMORY_MB",
    "IPV4_ADDRESS",
    "VGPU",
    "VGPU_DISPLAY_HEAD",
    "NET_BW_EGR_KILOBIT_PER_SEC",
    "NET_BW_IGR_KILOBIT_PER_SEC",
    "PCPU",
    "MEM_ENCRYPTION_CONTEXT",
    "FPGA",
    "PGPU",
    "NET_PACKET_RATE_KILOPACKET_PER_SEC",
    "NET_PACKET_RATE_EGR_KILOPACKET_PER_SEC",
    "NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC",
)

tables = MetaData()


def table(name: str, *items: sa.schema.SchemaItem) -> sa.Table:
    """One of Placement's tables: all of them begin with the two stamps."""
    return sa.Table(name, tables, Column("created_at", DateTime), Column("updated_at", DateTime), *items)


def named(name: str, column: str) -> sa.Table:
    """A table of nothing but an id and a unique name."""
    unique = UniqueConstraint(column, name=f"uniq_{name}0{column}")
    return table(name, Column("id", Integer, primary_key=True), Column(column, String(255), nullable=False), unique)


table(
    "resource_providers",
    Column("id", Integer, primary_key=True),
    Column("uuid", String(36), nullable=False),
    Column("name", String(200)),
    Column("generation", Integer),
    Column("root_provider_id", Integer, ForeignKey("resource_providers.id")),
    Column("parent_provider_id", Integer, ForeignKey("resource_providers.id")),
    UniqueConstraint("uuid", name="uniq_resource_providers0uuid"),
    UniqueConstraint("name", name="uniq_resource_providers0name"),
    Index("resource_providers_root_provider_id_idx", "root_provider_id"),
    Index("resource_providers_parent_provider_id_idx", "parent_provider_id"),
)
table(
    "inventories",
    Column("id", Integer, primary_key=True),
    Column("resource_provider_id", Integer, nullable=False),
    Column("resource_class_id", Integer, nullable=False),
    *(Column(name, Integer, nullable=False) for name in ("total", "reserved", "min_unit", "max_unit", "step_size")),
    Column("allocation_ratio", Double, nullable=False),
    UniqueConstraint(
        "resource_provider_id", "resource_class_id", name="uniq_inventories0resource_provider_resource_class"
    ),
    Index("inventories_resource_class_id_idx", "resource_class_id"),
)
table(
    "allocations",
    Column("id", Integer, primary_key=True),
    Column("resource_provider_id", Integer, nullable=False),
    Column("consumer_id", String(36), nullable=False),
    Column("resource_class_id", Integer, nullable=False),
    Column("used", Integer, nullable=False),
    Index("allocations_resource_provider_class_used_idx", "resource_provider_id", "resource_class_id", "used"),
    Index("allocations_resource_class_id_idx", "resource_class_id"),
    Index("allocations_consumer_id_idx", "consumer_id"),
)
resource_classes = named("resource_classes", "name")
named("traits", "name")
table(
    "resource_provider_traits",
    Column("trait_id", Integer, ForeignKey("traits.id"), primary_key=True),
    Column("resource_provider_id", Integer, ForeignKey("resource_providers.id"), primary_key=True),
    Index("resource_provider_traits_resource_provider_trait_idx", "resource_provider_id", "trait_id"),
)
table(
    "placement_aggregates",
    Column("id", Integer, primary_key=True),
    Column("uuid", String(36)),
    UniqueConstraint("uuid", name="uniq_placement_aggregates0uuid"),
)
table(
    "resource_provider_aggregates",
    Column("resource_provider_id", Integer, primary_key=True, autoincrement=False),
    Column("aggregate_id", Integer, primary_key=True, autoincrement=False),
    Index("resource_provider_aggregates_aggregate_id_idx", "aggregate_id"),
)
named("projects", "external_id")
named("users", "external_id")
named("consumer_types", "name")
table(
    "consumers",
    Column("id", Integer, primary_key=True),
    Column("uuid", String(36), nullable=False),
    Column("project_id", Integer, nullable=False),
    Column("user_id", Integer, nullable=False),
    Column("generation", Integer, nullable=False, server_default="0"),
    Column("consumer_type_id", Integer, ForeignKey("consumer_types.id")),
    UniqueConstraint("uuid", name="uniq_consumers0uuid"),
    Index("consumers_project_id_uuid_idx", "project_id", "uuid"),
    Index("consumers_project_id_user_id_uuid_idx", "project_id", "user_id", "uuid"),
    Index("consumers_consumer_type_id_idx", "consumer_type_id"),
)
receipts = sa.Table(
    "placebench_receipts",
    tables,
    Column("id", Integer, primary_key=True),
    Column("seeded_at", DateTime, nullable=False),
    Column("topology", String(200), nullable=False),
    Column("trees", Integer, nullable=False),
    Column("seed", sa.BigInteger, nullable=False),
    Column("loader", String(20), nullable=False),
    Column("providers", Integer, nullable=False),
    Column("inventories", Integer, nullable=False),
    Column("provider_traits", Integer, nullable=False),
    Column("provider_aggregates", Integer, nullable=False),
    Column("elapsed_s", Double, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("format_version", Integer, nullable=False),
)
created_tables = sa.Table("placebench_created_tables", tables, Column("name", String(64), primary_key=True))


def upgrade() -> None:
    """Make the tables that are missing, remember which, and add the standard classes that are missing."""
    connection = op.get_bind()
    there = set(sa.inspect(connection).get_table_names())
    refuse_strangers(connection, there)
    missing = [table for table in tables.sorted_tables if table.name not in there]
    tables.create_all(connection, tables=missing, checkfirst=False)
    connection.execute(created_tables.insert(), [{"name": table.name} for table in missing])
    add_standard_classes(connection)


def refuse_strangers(connection: sa.Connection, there: set[str]) -> None:
    """Stop when a table bears one of Placement's names and is none of Placement's: `users` is a common name."""
    inspector = sa.inspect(connection)
    for name in sorted(there & set(tables.tables)):
        lacking = set(tables.tables[name].columns.keys()) - {column["name"] for column in inspector.get_columns(name)}
        if lacking:
            columns = ", ".join(sorted(lacking))
            raise CommandError(f"the table {name} is not Placement's (it has no {columns}): take another database")


def add_standard_classes(connection: sa.Connection) -> None:
    """Insert each standard class that has no row yet, under the id that Placement would give it.

    With the time: rows with and without one in the same table make Placement's GET /resource_classes a 500.
    """
    there = set(connection.scalars(sa.select(resource_classes.c.name)))
    now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    missing = [
        {"id": place, "name": name, "created_at": now}
        for place, name in enumerate(STANDARD_CLASSES)
        if name not in there
    ]
    if missing:
        connection.execute(resource_classes.insert(), missing)


def downgrade() -> None:
    """Drop the tables that `upgrade` made, unless they hold providers that placebench did not seed."""
    connection = op.get_bind()
    ours = set(connection.scalars(sa.select(created_tables.c.name)))
    if "resource_providers" in ours:
        refuse_foreign_providers(connection)
    tables.drop_all(connection, tables=[table for table in tables.sorted_tables if table.name in ours])


def refuse_foreign_providers(connection: sa.Connection) -> None:
    """Stop when there are providers and no receipt: dropping the tables would lose somebody's rows."""
    providers = tables.tables["resource_providers"]
    found = connection.scalar(sa.select(sa.func.count()).select_from(providers)) or 0
    if found and not connection.scalar(sa.select(sa.func.count()).select_from(receipts)):
        raise CommandError(f"{found} resource providers that no receipt names would be lost: empty the tables first")
