"""The tables, in SQLAlchemy Core: OpenStack Placement's names and columns, so that both programs serve the same rows.

Read by schema/env.py, the loaders and the reference service. Source of names, columns and keys: the tables that
openstack-placement 16.0.0 makes. What is ours bears the prefix `placebench_`.
"""

from sqlalchemy import (
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


def _stamps() -> tuple[Column[object], ...]:
    return Column("created_at", DateTime), Column("updated_at", DateTime)


resource_providers = Table(
    "resource_providers",
    metadata,
    *_stamps(),
    Column("id", Integer, primary_key=True, nullable=False),
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
    Column("id", Integer, primary_key=True, nullable=False),
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
)

allocations = Table(
    "allocations",
    metadata,
    *_stamps(),
    Column("id", Integer, primary_key=True, nullable=False),
    Column("resource_provider_id", Integer, nullable=False),
    Column("consumer_id", String(36), nullable=False),
    Column("resource_class_id", Integer, nullable=False),
    Column("used", Integer, nullable=False),
)

resource_classes = Table(
    "resource_classes",
    metadata,
    *_stamps(),
    Column("id", Integer, primary_key=True, nullable=False),
    Column("name", String(255), nullable=False),
    UniqueConstraint("name", name="uniq_resource_classes0name"),
)

traits = Table(
    "traits",
    metadata,
    *_stamps(),
    Column("id", Integer, primary_key=True, nullable=False, autoincrement=True),
    Column("name", String(255), nullable=False),
    UniqueConstraint("name", name="uniq_traits0name"),
)

resource_provider_traits = Table(
    "resource_provider_traits",
    metadata,
    *_stamps(),
    Column("trait_id", Integer, ForeignKey("traits.id"), primary_key=True, nullable=False),
    Column("resource_provider_id", Integer, ForeignKey("resource_providers.id"), primary_key=True, nullable=False),
)

placement_aggregates = Table(
    "placement_aggregates",
    metadata,
    *_stamps(),
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("uuid", String(36)),
    UniqueConstraint("uuid", name="uniq_placement_aggregates0uuid"),
)

resource_provider_aggregates = Table(
    "resource_provider_aggregates",
    metadata,
    *_stamps(),
    Column("resource_provider_id", Integer, primary_key=True, nullable=False),
    Column("aggregate_id", Integer, primary_key=True, nullable=False),
)

projects = Table(
    "projects",
    metadata,
    *_stamps(),
    Column("id", Integer, primary_key=True, nullable=False, autoincrement=True),
    Column("external_id", String(255), nullable=False),
    UniqueConstraint("external_id", name="uniq_projects0external_id"),
)

users = Table(
    "users",
    metadata,
    *_stamps(),
    Column("id", Integer, primary_key=True, nullable=False, autoincrement=True),
    Column("external_id", String(255), nullable=False),
    UniqueConstraint("external_id", name="uniq_users0external_id"),
)

consumer_types = Table(
    "consumer_types",
    metadata,
    *_stamps(),
    Column("id", Integer, primary_key=True, nullable=False, autoincrement=True),
    Column("name", String(255), nullable=False),
    UniqueConstraint("name", name="uniq_consumer_types0name"),
)

consumers = Table(
    "consumers",
    metadata,
    *_stamps(),
    Column("id", Integer, primary_key=True, nullable=False, autoincrement=True),
    Column("uuid", String(36), nullable=False),
    Column("project_id", Integer, nullable=False),
    Column("user_id", Integer, nullable=False),
    Column("generation", Integer, nullable=False, server_default="0"),
    Column("consumer_type_id", Integer, ForeignKey("consumer_types.id")),
    UniqueConstraint("uuid", name="uniq_consumers0uuid"),
)
