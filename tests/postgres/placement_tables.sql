-- The tables that openstack-placement 16.0.0 makes in PostgreSQL, from its catalogue: columns, keys, indexes, names.

CREATE TABLE alembic_version (version_num varchar(32) CONSTRAINT alembic_version_pkc PRIMARY KEY);
INSERT INTO alembic_version VALUES ('a082b8bb98d0');

CREATE TABLE stamped (created_at timestamp, updated_at timestamp);

CREATE TABLE resource_providers (
    LIKE stamped,
    id serial PRIMARY KEY,
    uuid varchar(36) NOT NULL CONSTRAINT uniq_resource_providers0uuid UNIQUE,
    name varchar(200) CONSTRAINT uniq_resource_providers0name UNIQUE,
    generation integer,
    root_provider_id integer REFERENCES resource_providers,
    parent_provider_id integer REFERENCES resource_providers
);
CREATE INDEX resource_providers_root_provider_id_idx ON resource_providers (root_provider_id);
CREATE INDEX resource_providers_parent_provider_id_idx ON resource_providers (parent_provider_id);

CREATE TABLE inventories (
    LIKE stamped,
    id serial PRIMARY KEY,
    resource_provider_id integer NOT NULL,
    resource_class_id integer NOT NULL,
    total integer NOT NULL,
    reserved integer NOT NULL,
    min_unit integer NOT NULL,
    max_unit integer NOT NULL,
    step_size integer NOT NULL,
    allocation_ratio double precision NOT NULL,
    CONSTRAINT uniq_inventories0resource_provider_resource_class UNIQUE (resource_provider_id, resource_class_id)
);
CREATE INDEX inventories_resource_class_id_idx ON inventories (resource_class_id);

CREATE TABLE allocations (
    LIKE stamped,
    id serial PRIMARY KEY,
    resource_provider_id integer NOT NULL,
    consumer_id varchar(36) NOT NULL,
    resource_class_id integer NOT NULL,
    used integer NOT NULL
);
CREATE INDEX allocations_resource_provider_class_used_idx
    ON allocations (resource_provider_id, resource_class_id, used);
CREATE INDEX allocations_resource_class_id_idx ON allocations (resource_class_id);
CREATE INDEX allocations_consumer_id_idx ON allocations (consumer_id);

CREATE TABLE resource_classes (
    LIKE stamped,
    id serial PRIMARY KEY,
    name varchar(255) NOT NULL CONSTRAINT uniq_resource_classes0name UNIQUE
);

CREATE TABLE traits (
    LIKE stamped,
    id serial PRIMARY KEY,
    name varchar(255) NOT NULL CONSTRAINT uniq_traits0name UNIQUE
);

CREATE TABLE resource_provider_traits (
    LIKE stamped,
    trait_id integer REFERENCES traits,
    resource_provider_id integer REFERENCES resource_providers,
    PRIMARY KEY (trait_id, resource_provider_id)
);
CREATE INDEX resource_provider_traits_resource_provider_trait_idx
    ON resource_provider_traits (resource_provider_id, trait_id);

CREATE TABLE placement_aggregates (
    LIKE stamped,
    id serial PRIMARY KEY,
    uuid varchar(36) CONSTRAINT uniq_placement_aggregates0uuid UNIQUE
);

CREATE TABLE resource_provider_aggregates (
    LIKE stamped,
    resource_provider_id integer,
    aggregate_id integer,
    PRIMARY KEY (resource_provider_id, aggregate_id)
);
CREATE INDEX resource_provider_aggregates_aggregate_id_idx ON resource_provider_aggregates (aggregate_id);

CREATE TABLE projects (
    LIKE stamped,
    id serial PRIMARY KEY,
    external_id varchar(255) NOT NULL CONSTRAINT uniq_projects0external_id UNIQUE
);

CREATE TABLE users (
    LIKE stamped,
    id serial PRIMARY KEY,
    external_id varchar(255) NOT NULL CONSTRAINT uniq_users0external_id UNIQUE
);

CREATE TABLE consumer_types (
    LIKE stamped,
    id serial PRIMARY KEY,
    name varchar(255) NOT NULL CONSTRAINT uniq_consumer_types0name UNIQUE
);

CREATE TABLE consumers (
    LIKE stamped,
    id serial PRIMARY KEY,
    uuid varchar(36) NOT NULL CONSTRAINT uniq_consumers0uuid UNIQUE,
    project_id integer NOT NULL,
    user_id integer NOT NULL,
    generation integer NOT NULL DEFAULT 0,
    consumer_type_id integer REFERENCES consumer_types
);
CREATE INDEX consumers_project_id_uuid_idx ON consumers (project_id, uuid);
CREATE INDEX consumers_project_id_user_id_uuid_idx ON consumers (project_id, user_id, uuid);
CREATE INDEX consumers_consumer_type_id_idx ON consumers (consumer_type_id);

DROP TABLE stamped;
