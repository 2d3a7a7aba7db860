"""The revision of what candidates come from, for responses that several programs keep in a cache service.

A revision is text, read in the snapshot of a request: the newest transaction in the change log that the snapshot shows,
and those up to it that it does not show because they were running. Two snapshots with the same revision show the same:
every transaction up to the newest one is over in both or in neither, and none after it has written. So no writer waits
for another one, as it would at a counter in one row. The log must keep its newest transaction for that: an empty log
would make two states alike.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# Without a revision where the reader has no entry any more: the server, a table or a trigger is not what it was.
REVISION = """
CREATE FUNCTION placebench_revision(reader uuid, OUT now text, OUT registered boolean, OUT holds boolean,
    OUT revision text) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    newest xid8;
BEGIN
    SELECT seen.now, seen.registered, seen.holds INTO now, registered, holds
    FROM {schema}.placebench_look(reader, NULL) AS seen;
    IF NOT registered THEN
        RETURN;
    END IF;
    SELECT xact INTO newest FROM {schema}.placebench_changes
    WHERE xact < pg_snapshot_xmax(now::pg_snapshot) ORDER BY xact DESC LIMIT 1;
    revision := concat_ws(':', newest, (
        SELECT string_agg(running::text, ',') FROM pg_snapshot_xip(now::pg_snapshot) AS running WHERE running <= newest
    ));
END $$
"""
# As the revision 0002 has it, but for the newest one.
PRUNE = """
CREATE OR REPLACE FUNCTION placebench_prune() RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' AND pg_try_advisory_xact_lock(7362651119) THEN
        DELETE FROM {schema}.placebench_readers WHERE seen_at < clock_timestamp() - interval '5 minutes';
        DELETE FROM {schema}.placebench_changes
        WHERE xact <> pg_current_xact_id() AND {but_the_newest}
        (xact >= pg_snapshot_xmax(pg_current_snapshot()) OR xact < coalesce(
            (SELECT pg_snapshot_xmax(seen) AS after_seen FROM {schema}.placebench_readers ORDER BY after_seen LIMIT 1),
            pg_snapshot_xmax(pg_current_snapshot())
        ) AND NOT EXISTS (SELECT FROM {schema}.placebench_readers WHERE NOT pg_visible_in_snapshot(xact, seen)));
    END IF;
END $$
"""
BUT_THE_NEWEST = """xact IS DISTINCT FROM (
            SELECT xact FROM {schema}.placebench_changes
            WHERE xact < pg_snapshot_xmax(pg_current_snapshot()) OR xact = pg_current_xact_id()
            ORDER BY xact DESC LIMIT 1
        ) AND"""


def upgrade() -> None:
    """Make the function, and let the log keep its newest transaction; nothing where there is no log."""
    if has_log():
        run(PRUNE.replace("{but_the_newest}", BUT_THE_NEWEST))
        run(REVISION)


def downgrade() -> None:
    """Drop the function; the log is pruned as before."""
    if has_log():
        run("DROP FUNCTION placebench_revision(uuid)")
        run(PRUNE.replace("{but_the_newest}", ""))


def has_log() -> bool:
    """Whether the revision before has made one here."""
    if op.get_bind().dialect.name != "postgresql":
        return False
    return op.get_bind().scalar(sa.text("SELECT to_regproc('placebench_look') IS NOT NULL")) is True


def run(statement: str) -> None:
    """The statement in the schema of the tables."""
    schema = op.get_bind().scalar(sa.text("SELECT quote_ident(current_schema())"))
    op.get_bind().exec_driver_sql(statement.format(schema=schema).replace("%", "%%"))
