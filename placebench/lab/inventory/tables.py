"""The database tables in SQLAlchemy Core, with the names and columns of OpenStack Placement: both can serve the rows.

They are used by schema/env.py, the loaders and the reference service. Names, columns and keys are those of the tables
that openstack-placement 16.0.0 creates. Tables of our own have the prefix `placebench_`.
"""

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)

metadata = MetaData()

# Tables that only an optional revision creates (schema/options), and only the variant that needs it reads.
_option_metadata = MetaData()


def utc_now() -> datetime:
    """Return the time in the form of the tables: UTC without a zone, in whole seconds like Placement's own rows."""
    return datetime.now(UTC).replace(tzinfo=None, microsecond=0)


def _stamps() -> tuple[Column[object], ...]:
    return Column("created_at", DateTime, default=utc_now), Column("updated_at", DateTime, onupdate=utc_now)


resource_providers = Table(
    "resource_providers",
    metadata,
    *_stamps(),
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

inventories = Table(
    "inventories",
    metadata,
    *_stamps(),
    Column("id", Integer, primary_key=True),
    Column("resource_provider_id", Integer, nullable=False),
    Column("resource_class_id", Integer, nullable=False),
    Column("total", Integer, nullable=False),
    Column("reserved", Integer, nullable=False),
    Column("min_unit", Integer, nullable=False),
    Column("max_unit", Integer, nullable=False),
    Column("step_size", Integer, nullable=False),
    Column("allocation_ratio", Double, nullable=False),
    UniqueConstraint(
        "resource_provider_id", "resource_class_id", name="uniq_inventories0resource_provider_resource_class"
    ),
    Index("inventories_resource_class_id_idx", "resource_class_id"),
)

allocations = Table(
    "allocations",
    metadata,
    *_stamps(),
    Column("id", Integer, primary_key=True),
    Column("resource_provider_id", Integer, nullable=False),
    Column("consumer_id", String(36), nullable=False),
    Column("resource_class_id", Integer, nullable=False),
    Column("used", Integer, nullable=False),
    Index("allocations_resource_provider_class_used_idx", "resource_provider_id", "resource_class_id", "used"),
    Index("allocations_resource_class_id_idx", "resource_class_id"),
    Index("allocations_consumer_id_idx", "consumer_id"),
)

resource_classes = Table(
    "resource_classes",
    metadata,
    *_stamps(),
    Column("id", Integer, primary_key=True),
    Column("name", String(255), nullable=False),
    UniqueConstraint("name", name="uniq_resource_classes0name"),
)

traits = Table(
    "traits",
    metadata,
    *_stamps(),
    Column("id", Integer, primary_key=True),
    Column("name", String(255), nullable=False),
    UniqueConstraint("name", name="uniq_traits0name"),
)

resource_provider_traits = Table(
    "resource_provider_traits",
    metadata,
    *_stamps(),
    Column("trait_id", Integer, ForeignKey("traits.id"), primary_key=True, nullable=False),
    Column("resource_provider_id", Integer, ForeignKey("resource_providers.id"), primary_key=True, nullable=False),
    Index("resource_provider_traits_resource_provider_trait_idx", "resource_provider_id", "trait_id"),
)

placement_aggregates = Table(
    "placement_aggregates",
    metadata,
    *_stamps(),
    Column("id", Integer, primary_key=True),
    Column("uuid", String(36)),
    UniqueConstraint("uuid", name="uniq_placement_aggregates0uuid"),
)

resource_provider_aggregates = Table(
    "resource_provider_aggregates",
    metadata,
    *_stamps(),
    Column("resource_provider_id", Integer, primary_key=True, autoincrement=False, nullable=False),
    Column("aggregate_id", Integer, primary_key=True, autoincrement=False, nullable=False),
    Index("resource_provider_aggregates_aggregate_id_idx", "aggregate_id"),
)

projects = Table(
    "projects",
    metadata,
    *_stamps(),
    Column("id", Integer, primary_key=True),
    Column("external_id", String(255), nullable=False),
    UniqueConstraint("external_id", name="uniq_projects0external_id"),
)

users = Table(
    "users",
    metadata,
    *_stamps(),
    Column("id", Integer, primary_key=True),
    Column("external_id", String(255), nullable=False),
    UniqueConstraint("external_id", name="uniq_users0external_id"),
)

consumer_types = Table(
    "consumer_types",
    metadata,
    *_stamps(),
    Column("id", Integer, primary_key=True),
    Column("name", String(255), nullable=False),
    UniqueConstraint("name", name="uniq_consumer_types0name"),
)

consumers = Table(
    "consumers",
    metadata,
    *_stamps(),
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

placebench_receipts = Table(
    "placebench_receipts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("seeded_at", DateTime, nullable=False),
    Column("topology", String(200), nullable=False),
    Column("trees", Integer, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("loader", String(20), nullable=False),
    Column("providers", Integer, nullable=False),
    Column("inventories", Integer, nullable=False),
    Column("provider_traits", Integer, nullable=False),
    Column("provider_aggregates", Integer, nullable=False),
    Column("elapsed_s", Double, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("format_version", Integer, nullable=False),
)

_placebench_created_tables = Table("placebench_created_tables", metadata, Column("name", String(64), primary_key=True))

placebench_usages = Table(
    "placebench_usages",
    _option_metadata,
    Column("resource_provider_id", Integer, primary_key=True, autoincrement=False),
    Column("resource_class_id", Integer, primary_key=True, autoincrement=False),
    Column("used", BigInteger, nullable=False),
)
