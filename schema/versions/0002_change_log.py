"""The change log: which providers each transaction has touched, for readers that keep an index between requests.

Triggers on every table that candidates come from write to `placebench_changes`, whoever the writer is: a row for each
id that a statement touched, or one row with the lowest and the highest where it touched many. A row bears the id of its
top-level transaction, so `placebench_look` finds what a reader's last snapshot did not show and its present one does.
What fires no trigger of ours (TRUNCATE, DDL, a trigger that is disabled) changes the catalog, whose version it returns.
Readers are registered in `placebench_readers`; what all of them have seen is removed by `placebench_prune`.
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
ALTER TABLE placebench_changes REPLICA IDENTITY FULL;
COMMENT ON TABLE placebench_changes IS
    'xact touched rows of kind (provider, trait, class, aggregate) with ids from first_id to last_id';
CREATE UNLOGGED TABLE placebench_readers (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    seen pg_snapshot NOT NULL DEFAULT pg_current_snapshot(),
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    server_start timestamptz NOT NULL DEFAULT pg_postmaster_start_time(),
    file text NOT NULL,
    tables tid[] NOT NULL,
    triggers tid[] NOT NULL,
    written_by xid[] NOT NULL
);
COMMENT ON TABLE placebench_readers IS
    'who keeps a cache of the providers, up to which snapshot, and by what it knows that this is still its database:'
    ' the start of the server, the file of this table, the catalog''s rows of the watched tables and their triggers;'
    ' unlogged, so that crash recovery empties it: what a reader saw may be lost then, and transaction ids used again'
"""

# In READ COMMITTED only: elsewhere it is an error to remove what somebody else has removed, and writers call this, too.
# A reader that registers after this has looked takes its first snapshot later still, so it misses nothing.
# Rows with transaction ids yet to come were written by another server: they came with a dump. The writer's own id may
# be one of those by its snapshot, which was taken before it had an id or while none after it was over.
PRUNE = """
CREATE FUNCTION placebench_prune() RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' AND pg_try_advisory_xact_lock(7362651119) THEN
        DELETE FROM {schema}.placebench_readers WHERE seen_at < clock_timestamp() - interval '5 minutes';
        DELETE FROM {schema}.placebench_changes
        WHERE xact <> pg_current_xact_id() AND (xact >= pg_snapshot_xmax(pg_current_snapshot()) OR xact < coalesce(
            (SELECT pg_snapshot_xmax(seen) AS after_seen FROM {schema}.placebench_readers ORDER BY after_seen LIMIT 1),
            pg_snapshot_xmax(pg_current_snapshot())
        ) AND NOT EXISTS (SELECT FROM {schema}.placebench_readers WHERE NOT pg_visible_in_snapshot(xact, seen)));
    END IF;
END $$
"""

# No row while writes may fire no trigger: one is missing or disabled, or a table has another in its place, a child, a
# parent or a subscription (its worker fires no statement's trigger).
WATCHED_ROWS = """
CREATE FUNCTION placebench_watched() RETURNS TABLE (tables tid[], triggers tid[], written_by xid[])
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH tables AS (
        SELECT oid, ctid, xmin FROM pg_class WHERE relname = ANY ('{{{tables}}}')
        AND relnamespace = '{schema}'::regnamespace AND relkind = 'r' AND NOT relhassubclass
    ), triggers AS (
        SELECT ctid, xmin FROM pg_trigger WHERE tgrelid IN (SELECT oid FROM tables)
        AND tgname = ANY ('{{{triggers}}}') AND tgenabled = 'A'
    )
    SELECT (SELECT array_agg(ctid) FROM tables), (SELECT array_agg(ctid) FROM triggers),
        ARRAY(SELECT xmin FROM tables UNION SELECT xmin FROM triggers)
    WHERE (SELECT count(*) FROM tables) + (SELECT count(*) FROM triggers) = {rows}
    AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid IN (SELECT oid FROM tables))
    AND NOT EXISTS (SELECT FROM pg_subscription_rel WHERE srrelid IN (SELECT oid FROM tables))
$$
"""

# NULL while writes may fire no trigger; an entry that was made before ends when it is renewed.
REGISTER = """
CREATE FUNCTION placebench_register() RETURNS uuid LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO {schema}.placebench_readers (file, tables, triggers, written_by)
    SELECT pg_relation_filepath('{schema}.placebench_readers'), * FROM {schema}.placebench_watched() RETURNING id
$$;
CREATE FUNCTION placebench_renew(reader uuid, seen_now pg_snapshot) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM {schema}.placebench_readers
    WHERE id = reader AND NOT EXISTS (SELECT FROM {schema}.placebench_watched());
    UPDATE {schema}.placebench_readers SET seen = seen_now, seen_at = clock_timestamp() WHERE id = reader;
    PERFORM {schema}.placebench_prune();
END $$
"""

# One round trip; planned once a connection, which is most of what it would cost. Where no transaction has ended since,
# nothing but the reader's entry is read.
# registered: whether the reader has an entry, made in this database since the server's start, of whose catalog rows
# none has a newer version. TRUNCATE, a trigger that is disabled or enabled, a table that is renamed, rewritten or gets
# its first child each make one; in the old one's place there may be another row, but of another transaction.
# holds: the transaction sees nothing that is not in this snapshot.
# changes: of the transactions that `since` does not show, those that were running are looked up by their ids, so that
# the rows in between, which an old transaction may keep for long, are not read at each request.
LOOK = """
CREATE FUNCTION placebench_look(reader uuid, since text,
    OUT now text, OUT registered boolean, OUT holds boolean, OUT changes text) LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    entry record;
    seen pg_snapshot;
BEGIN
    now := pg_current_snapshot();
    holds := current_setting('transaction_isolation') = 'repeatable read' AND pg_current_xact_id_if_assigned() IS NULL;
    registered := false;
    IF pg_is_in_recovery() THEN
        RETURN;
    END IF;
    SELECT tables, triggers, written_by INTO entry FROM {schema}.placebench_readers WHERE id = reader
    AND server_start = pg_postmaster_start_time() AND file = pg_relation_filepath(tableoid);
    registered := FOUND;
    IF NOT registered OR now = since THEN
        RETURN;
    END IF;
    seen := since;
    SELECT {rows} =
        (SELECT count(*) FROM pg_class WHERE ctid = ANY (entry.tables) AND xmin = ANY (entry.written_by)) +
        (SELECT count(*) FROM pg_trigger WHERE ctid = ANY (entry.triggers) AND xmin = ANY (entry.written_by)),
        string_agg(concat_ws(' ', kind, first_id, last_id), ',') INTO registered, changes FROM (
        SELECT DISTINCT kind, first_id, last_id FROM {schema}.placebench_changes
        WHERE xact = ANY (ARRAY(SELECT pg_snapshot_xip(seen)))
        OR xact >= pg_snapshot_xmax(seen) AND xact < pg_snapshot_xmax(now::pg_snapshot) LIMIT 1001
    ) AS unseen;
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
}
FUNCTIONS = (
    *(f"{name}()" for name in (*IDS, "placebench_prune", "placebench_watched", "placebench_register")),
    "placebench_renew(uuid, pg_snapshot)",
    "placebench_look(uuid, text)",
)


def upgrade() -> None:
    """Make the log, its functions and its triggers."""
    connection = op.get_bind()
    if not can_log(connection):
        return
    refuse_tables_of_others(connection)
    schema = connection.scalar(sa.text("SELECT quote_ident(current_schema())"))
    tables = (*WATCHED, "placebench_changes")
    placed = {
        "schema": schema,
        "tables": ",".join(tables),
        "triggers": ",".join(f"placebench_{event}" for event in EVENTS),
        "rows": len(tables) + len(WATCHED) * len(EVENTS),
    }
    run(LOG)
    for function in (PRUNE, WATCHED_ROWS, REGISTER, LOOK):
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
    """A trigger for each way to change rows; ALWAYS: also for writers with session_replication_role = replica."""
    for event, rows in EVENTS.items():
        name = f"{function}_update" if event == "update" else function
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
    """Statements as they are."""
    op.get_bind().exec_driver_sql(statements.replace("%", "%%"))
