"""What is used of each provider and class, summed by triggers on the allocations in a table of its own.

Every writer of allocations fires them, Placement too; TRUNCATE as well. A row whose last allocation went says 0.
"""

import sqlalchemy as sa
from alembic import op
from alembic.util import CommandError

revision = "usage_totals"
down_revision = None
branch_labels = None
depends_on = None

ADD = """
CREATE FUNCTION placebench_add_usage(provider integer, class integer, more bigint) RETURNS void LANGUAGE sql AS $$
  INSERT INTO placebench_usages AS kept (resource_provider_id, resource_class_id, used) VALUES (provider, class, more)
  ON CONFLICT (resource_provider_id, resource_class_id) DO UPDATE SET used = kept.used + excluded.used
$$
"""
KEEP = """
CREATE FUNCTION placebench_keep_usages() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    TRUNCATE placebench_usages;
    RETURN NULL;
  END IF;
  IF TG_OP <> 'INSERT' THEN
    PERFORM placebench_add_usage(OLD.resource_provider_id, OLD.resource_class_id, -OLD.used::bigint);
  END IF;
  IF TG_OP <> 'DELETE' THEN
    PERFORM placebench_add_usage(NEW.resource_provider_id, NEW.resource_class_id, NEW.used);
  END IF;
  RETURN NULL;
END
$$
"""
ROWS = """
CREATE TRIGGER placebench_keep_usages AFTER INSERT OR UPDATE OR DELETE ON allocations
FOR EACH ROW EXECUTE FUNCTION placebench_keep_usages()
"""
TRUNCATED = """
CREATE TRIGGER placebench_empty_usages AFTER TRUNCATE ON allocations
FOR EACH STATEMENT EXECUTE FUNCTION placebench_keep_usages()
"""
FILL = """
INSERT INTO placebench_usages (resource_provider_id, resource_class_id, used)
SELECT resource_provider_id, resource_class_id, sum(used) FROM allocations
GROUP BY resource_provider_id, resource_class_id
"""


def upgrade() -> None:
    """Make the table, fill it while nobody else writes, and keep it from then on."""
    if op.get_context().dialect.name != "postgresql":
        raise CommandError("usage_totals is for PostgreSQL: its triggers are written in PL/pgSQL")
    op.execute("LOCK TABLE allocations IN SHARE ROW EXCLUSIVE MODE")
    op.create_table(
        "placebench_usages",
        sa.Column("resource_provider_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("resource_class_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("used", sa.BigInteger, nullable=False),
    )
    for statement in (ADD, KEEP, ROWS, TRUNCATED, FILL):
        op.execute(statement)


def downgrade() -> None:
    """Take triggers, functions and table away."""
    op.execute("DROP TRIGGER placebench_keep_usages ON allocations")
    op.execute("DROP TRIGGER placebench_empty_usages ON allocations")
    op.execute("DROP FUNCTION placebench_keep_usages()")
    op.execute("DROP FUNCTION placebench_add_usage(integer, integer, bigint)")
    op.drop_table("placebench_usages")
