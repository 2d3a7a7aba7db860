"""The change log: which providers each transaction has touched, for readers that keep a picture between requests.

Triggers on every table that candidates come from write to `placebench_changes`, whoever the writer is: a row for each
id that a statement touched, or one row with the lowest and the highest where it touched many. A row bears the id of its
top-level transaction, so `placebench_look` finds what a reader's last snapshot did not show and its present one does.
Readers stand in `placebench_readers`; what all of them have seen is removed by `placebench_prune`.
The functions act with their owner's rights: Placement's role and the service's need none on the log.
PostgreSQL from 13 only: elsewhere this revision makes nothing.
"""

import sqlalchemy as sa
from alembic import op
from alembic.util import CommandError

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

OLDEST_VERSION = (13,)  # of pg_current_xact_id
LINKED = ("inventories", "allocations", "resource_provider_traits", "resource_provider_aggregates")
NAMED = {"traits": "trait", "resource_classes": "class", "placement_aggregates": "aggregate"}
WATCHED = ("resource_providers", *LINKED, *NAMED)

LOG = """
CREATE TABLE placebench_changes (
    xact xid8 NOT NULL DEFAULT pg_current_xact_id(),
    kind text NOT NULL,
    first_id integer NOT NULL,
    last_id integer NOT NULL
);
CREATE INDEX placebench_changes_xact_idx ON placebench_changes (xact);
COMMENT ON TABLE placebench_changes IS
    'xact touched rows of kind (provider, trait, class, aggregate) with ids from first_id to last_id';
CREATE TABLE placebench_readers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    unseen_from xid8 NOT NULL DEFAULT pg_snapshot_xmin(pg_current_snapshot()),
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE placebench_readers IS
    'who keeps a picture of the providers: it has seen what every transaction before unseen_from changed'
"""

# In READ COMMITTED only: elsewhere it is an error to remove what somebody else has removed, and writers call this, too.
# A reader that registers after this has looked takes its first snapshot later still, so it misses nothing.
# Of transactions to come speak rows that another server wrote: they came with a dump. The writer's own transaction is
# one to come, too, by its snapshot, which was taken before it had an id or while none after it was over.
PRUNE = """
CREATE FUNCTION placebench_prune() RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' AND pg_try_advisory_xact_lock(7362651119) THEN
        DELETE FROM {schema}.placebench_readers WHERE seen_at < clock_timestamp() - interval '5 minutes';
        DELETE FROM {schema}.placebench_changes
        WHERE (xact >= pg_snapshot_xmax(pg_current_snapshot()) AND xact <> pg_current_xact_id()) OR xact < coalesce(
            (SELECT unseen_from FROM {schema}.placebench_readers ORDER BY unseen_from LIMIT 1),
            pg_snapshot_xmin(pg_current_snapshot()));
    END IF;
END $$
"""

# Where a reader's entry stands: another place after a restart, after a restore, and in a copy of the database.
HOME = "extract(epoch FROM pg_postmaster_start_time()) || ' ' || pg_relation_filepath(tableoid)"
REGISTER = """
CREATE FUNCTION placebench_register(OUT reader bigint, OUT registered_by xid8, OUT home text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO {schema}.placebench_readers DEFAULT VALUES
    RETURNING id, pg_current_xact_id(), {home} INTO reader, registered_by, home;
END $$;
CREATE FUNCTION placebench_renew(reader bigint, seen_before xid8) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE {schema}.placebench_readers SET unseen_from = seen_before, seen_at = clock_timestamp() WHERE id = reader;
    PERFORM {schema}.placebench_prune();
END $$;
CREATE FUNCTION placebench_is_watching() RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT count(*) = {triggers} FROM pg_trigger WHERE tgenabled = 'A' AND tgname = ANY ('{{{events}}}')
    AND tgrelid = ANY ('{{{watched}}}'::regclass[])
$$
"""

# One round trip; planned once a connection, which is most of what it would cost (42 µs of CPU instead of 79 µs).
# home: NULL without the reader's entry. holds: nothing that is not in this snapshot is seen by the transaction.
LOOK = """
CREATE FUNCTION placebench_look(reader bigint, since pg_snapshot,
    OUT now text, OUT home text, OUT holds boolean, OUT changes text) LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
    SELECT {home} INTO home FROM {schema}.placebench_readers WHERE id = reader;
    SELECT string_agg(concat_ws(' ', kind, first_id, last_id), ',') INTO changes FROM (
        SELECT DISTINCT kind, first_id, last_id FROM {schema}.placebench_changes
        WHERE xact >= pg_snapshot_xmin(since) AND xact < pg_snapshot_xmax(pg_current_snapshot())
        AND NOT pg_visible_in_snapshot(xact, since) LIMIT 1001
    ) AS unseen;
    now := pg_current_snapshot();
    holds := current_setting('transaction_isolation') = 'repeatable read' AND pg_current_xact_id_if_assigned() IS NULL;
END $$
"""

# A log that nobody reads any more is pruned by one writing statement in a thousand.
LOGGING = """
CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    row_count bigint;
    lowest integer;
    highest integer;
BEGIN
    SELECT count(*), min(id), max(id) INTO row_count, lowest, highest FROM ({ids}) AS ids;
    IF row_count > 100 THEN
        INSERT INTO {schema}.placebench_changes (kind, first_id, last_id) VALUES (TG_ARGV[0], lowest, highest);
    ELSIF row_count > 0 THEN
        INSERT INTO {schema}.placebench_changes (kind, first_id, last_id)
        SELECT DISTINCT TG_ARGV[0], id, id FROM ({ids}) AS ids;
    END IF;
    IF random() < 0.001 THEN
        PERFORM {schema}.placebench_prune();
    END IF;
    RETURN NULL;
END $$
"""
LOG_ALL = """
CREATE FUNCTION placebench_log_all() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO {schema}.placebench_changes (kind, first_id, last_id)
    VALUES (TG_ARGV[0], -2147483648, 2147483647);
    RETURN NULL;
END $$
"""
# Of a provider its root is logged as well, the old one and the new one: a reader finds the tree that it has left.
# Its generation and its name are in no candidate, and the generation moves with every change of what hangs on it.
PLACE = "id, uuid, root_provider_id, parent_provider_id"
MOVED = (
    f"SELECT {PLACE} FROM (SELECT {PLACE} FROM touched UNION ALL SELECT {PLACE} FROM replaced) AS places"
    f" GROUP BY {PLACE} HAVING count(*) = 1"
)
ID_AND_ROOT = "SELECT unnest(ARRAY[id, coalesce(root_provider_id, id)]) AS id FROM"
IDS = {
    "placebench_log_linked": "SELECT resource_provider_id AS id FROM touched",
    "placebench_log_linked_update": "SELECT resource_provider_id AS id FROM touched"
    " UNION ALL SELECT resource_provider_id FROM replaced",
    "placebench_log_providers": f"{ID_AND_ROOT} touched",
    "placebench_log_providers_update": f"{ID_AND_ROOT} ({MOVED}) AS moved",
    "placebench_log_names": "SELECT id FROM touched",
    "placebench_log_names_update": "SELECT id FROM touched UNION ALL SELECT id FROM replaced",
}
EVENTS = {
    "insert": "REFERENCING NEW TABLE AS touched",
    "delete": "REFERENCING OLD TABLE AS touched",
    "update": "REFERENCING NEW TABLE AS touched OLD TABLE AS replaced",
    "truncate": "",
}
FUNCTIONS = (
    *(f"{name}()" for name in (*IDS, "placebench_log_all", "placebench_prune", "placebench_is_watching")),
    "placebench_register()",
    "placebench_renew(bigint, xid8)",
    "placebench_look(bigint, pg_snapshot)",
)


def upgrade() -> None:
    """Make the log, its functions and its triggers."""
    connection = op.get_bind()
    if not can_log(connection):
        return
    refuse_tables_of_others(connection)
    schema = connection.scalar(sa.text("SELECT quote_ident(current_schema())"))
    placed = {
        "schema": schema,
        "home": HOME,
        "watched": ",".join(f"{schema}.{table}" for table in WATCHED),
        "events": ",".join(f"placebench_{event}" for event in EVENTS),
        "triggers": len(WATCHED) * len(EVENTS),
    }
    run(LOG)
    for function in (PRUNE, REGISTER, LOOK, LOG_ALL):
        run(function.format(**placed))
    for name, ids in IDS.items():
        run(LOGGING.format(schema=schema, name=name, ids=ids))
    watch("resource_providers", "placebench_log_providers", "provider")
    for table in LINKED:
        watch(table, "placebench_log_linked", "provider")
    for table, kind in NAMED.items():
        watch(table, "placebench_log_names", kind)


def can_log(connection: sa.Connection) -> bool:
    """Whether this database can have the log."""
    version = connection.dialect.server_version_info
    return connection.dialect.name == "postgresql" and version is not None and version >= OLDEST_VERSION


def refuse_tables_of_others(connection: sa.Connection) -> None:
    """Stop when our role is not the owner of a table: only owners may put triggers on, and take them away again."""
    query = sa.text(
        "SELECT relname, pg_get_userbyid(relowner), current_user FROM pg_class"
        " WHERE oid = ANY (CAST(:names AS regclass[])) AND NOT pg_has_role(relowner, 'USAGE') ORDER BY 1 LIMIT 1"
    )
    for table, owner, role in connection.execute(query, {"names": list(WATCHED)}):
        raise CommandError(
            f"the change log needs triggers on {table}, and {role} does not own it: run this as {owner},"
            f" or GRANT {owner} TO {role}"
        )


def watch(table: str, function: str, kind: str) -> None:
    """A trigger for each way to change the table; ALWAYS: also for writers with session_replication_role = replica."""
    for event, rows in EVENTS.items():
        name = {"update": f"{function}_update", "truncate": "placebench_log_all"}.get(event, function)
        run(
            f"CREATE TRIGGER placebench_{event} AFTER {event} ON {table} {rows} EXECUTE FUNCTION {name}('{kind}');"
            f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER placebench_{event}"
        )


def downgrade() -> None:
    """Drop the log; the triggers go with their functions."""
    if can_log(op.get_bind()):
        run(f"DROP FUNCTION IF EXISTS {', '.join(FUNCTIONS)} CASCADE")
        run("DROP TABLE IF EXISTS placebench_changes, placebench_readers")


def run(statements: str) -> None:
    """Statements as they stand."""
    op.get_bind().exec_driver_sql(statements.replace("%", "%%"))
