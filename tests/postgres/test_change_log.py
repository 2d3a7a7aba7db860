"""The change log: who writes what is seen, by whichever way, and stays until everybody who reads has seen it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, text

from placebench.errors import DatabaseError
from placebench.lab.inventory import tables
from placebench.lab.inventory.seeding import find_topology, migrate, seed
from placebench.runtime.postgres import Server

STOCK = "(resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit, step_size, allocation_ratio)"
OF_THIRD = "DELETE FROM inventories WHERE resource_provider_id = 3"
EVERY_TABLE = ", ".join(table.name for table in tables.metadata.sorted_tables)

Open = Callable[[str], Connection]


@pytest.fixture(scope="module")
def url(server: Server) -> Iterator[str]:
    """A database with the log, for all tests of this module, as a superuser."""
    server.create_database("placebench_test_log")
    made = server.admin_url("placebench_test_log")
    migrate(made)
    yield made
    server.drop_database("placebench_test_log")


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """1 ─ 2 and 3: two trees; an empty log that nobody reads."""
    made = create_engine(url, isolation_level="AUTOCOMMIT")
    run(
        made,
        f"TRUNCATE {EVERY_TABLE};"
        "INSERT INTO resource_providers (id, uuid, name, generation, root_provider_id, parent_provider_id)"
        " VALUES (1, 'a', 'a', 0, 1, NULL), (2, 'b', 'b', 0, 1, 1), (3, 'c', 'c', 0, 3, NULL);"
        f"INSERT INTO inventories {STOCK} VALUES (2, 0, 4, 0, 1, 4, 1, 1), (3, 0, 4, 0, 1, 4, 1, 1);"
        "INSERT INTO traits (id, name) VALUES (1, 'CUSTOM_RED');"
        "TRUNCATE placebench_changes, placebench_readers",
    )
    yield made
    made.dispose()


@pytest.fixture
def connect(url: str) -> Iterator[Open]:
    """A function that opens a connection in an isolation level; all are closed after the test."""
    made = create_engine(url)
    with ExitStack() as stack:
        stack.callback(made.dispose)
        yield lambda level: stack.enter_context(made.connect().execution_options(isolation_level=level))


def run(engine: Engine, statements: str) -> None:
    """What somebody does, committed."""
    with engine.connect() as connection:
        connection.exec_driver_sql(statements)


def logged(engine: Engine) -> list[tuple[Any, ...]]:
    """What stands in the log: kind, first and last id."""
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT DISTINCT kind, first_id, last_id FROM placebench_changes ORDER BY 1, 2"))
        return [tuple(row) for row in rows]


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ("UPDATE inventories SET total = 5 WHERE resource_provider_id = 2", [("provider", 2, 2)]),
        ("UPDATE inventories SET resource_provider_id = 1 WHERE resource_provider_id = 2", [1, 2]),
        ("DELETE FROM inventories", [("provider", 2, 2), ("provider", 3, 3)]),
        ("DELETE FROM inventories WHERE false", []),
        ("INSERT INTO allocations VALUES (now(), now(), 1, 3, 'c', 0, 1)", [3]),
        ("INSERT INTO resource_provider_traits VALUES (now(), now(), 1, 2)", [2]),
        ("INSERT INTO resource_provider_aggregates VALUES (now(), now(), 3, 1)", [3]),
        ("UPDATE resource_providers SET generation = generation + 1, name = name || 'x'", []),
        ("UPDATE resource_providers SET root_provider_id = 2, parent_provider_id = NULL WHERE id = 2", [1, 2]),
        ("UPDATE resource_providers SET uuid = 'x' WHERE id = 2", [1, 2]),
        ("DELETE FROM resource_providers WHERE id = 2", [1, 2]),
        ("INSERT INTO traits (id, name) VALUES (2, 'CUSTOM_BLUE')", [("trait", 2, 2)]),
        ("UPDATE resource_classes SET name = 'CUSTOM_X' WHERE id = 20", [("class", 20, 20)]),
        ("INSERT INTO placement_aggregates (id, uuid) VALUES (7, 'x')", [("aggregate", 7, 7)]),
        ("UPDATE consumers SET generation = 1", []),
        ("BEGIN; DELETE FROM inventories; ROLLBACK", []),
        (f"BEGIN; SAVEPOINT s; DELETE FROM inventories; ROLLBACK TO s; {OF_THIRD}; COMMIT", [3]),
        ("SET session_replication_role = replica; DELETE FROM inventories; RESET session_replication_role", [2, 3]),
    ],
)
def test_what_a_statement_touched_is_logged(engine: Engine, statements: str, expected: list[Any]) -> None:
    """By provider or name; of a provider's own row its root is, too, before and after; what no answer shows is not."""
    run(engine, "INSERT INTO resource_classes (id, name) VALUES (20, 'CUSTOM_OLD') ON CONFLICT DO NOTHING")
    run(engine, "TRUNCATE placebench_changes")

    run(engine, statements)

    assert [_as_logged(each) for each in expected] == logged(engine)


def _as_logged(each: Any) -> tuple[Any, ...]:
    """A number is a provider, a pair providers between two ids."""
    if isinstance(each, int):
        return ("provider", each, each)
    return each if len(each) == 3 else ("provider", *each)


def test_a_statement_of_many_rows_is_one_row_in_the_log(engine: Engine) -> None:
    """From 101 on it is the lowest and the highest id; so is a COPY of any length."""
    rows = f"INSERT INTO inventories {STOCK} SELECT id, 1, 4, 0, 1, 4, 1, 1 FROM generate_series(10, %s) AS id"

    run(engine, rows % 109)
    hundred = logged(engine)
    run(engine, "TRUNCATE placebench_changes; DELETE FROM inventories WHERE resource_class_id = 1")
    run(engine, "TRUNCATE placebench_changes")
    run(engine, rows % 110)

    assert len(hundred) == 100
    assert logged(engine) == [("provider", 10, 110)]


def test_a_writer_without_rights_on_the_log_is_seen(engine: Engine, connect: Open) -> None:
    """Placement may work as another role than the one that migrated."""
    run(engine, "DROP ROLE IF EXISTS placebench_plain; CREATE ROLE placebench_plain")
    run(engine, "GRANT SELECT, UPDATE ON inventories TO placebench_plain")
    try:
        run(engine, "SET ROLE placebench_plain; UPDATE inventories SET total = 1; RESET ROLE")
    finally:
        run(engine, "DROP OWNED BY placebench_plain; DROP ROLE placebench_plain")

    assert logged(engine) == [("provider", 2, 2), ("provider", 3, 3)]


def test_who_does_not_own_a_table_cannot_migrate(server: Server, database_url: str) -> None:
    """One line that says whose the table is; nothing is made."""
    engine = create_engine(database_url, isolation_level="AUTOCOMMIT")
    migrate(database_url, "0001")
    run(engine, "CREATE ROLE placebench_other LOGIN SUPERUSER PASSWORD 'x'; ALTER ROLE placebench_other NOSUPERUSER")
    run(engine, "GRANT ALL ON ALL TABLES IN SCHEMA public TO placebench_other; GRANT ALL ON SCHEMA public TO PUBLIC")
    own = create_engine(database_url).url
    other = own.set(username="placebench_other", password="x").render_as_string(hide_password=False)
    try:
        with pytest.raises(DatabaseError, match=f"triggers on allocations, and placebench_other .* as {own.username}"):
            migrate(other)
    finally:
        run(engine, "DROP OWNED BY placebench_other; DROP ROLE placebench_other")
        engine.dispose()


def look(connection: Connection, reader: str, since: str | None) -> Any:
    """What placebench_look says."""
    statement = text("SELECT * FROM placebench_look(CAST(:reader AS uuid), :since)")
    return connection.execute(statement, {"reader": reader, "since": since}).one()


def register(engine: Engine) -> Any:
    """A reader's id."""
    with engine.connect() as connection:
        return connection.scalar(text("SELECT placebench_register()::text"))


def renew(engine: Engine, reader: str) -> None:
    """The reader has seen everything, and prunes."""
    run(engine, f"SELECT placebench_renew('{reader}', pg_current_snapshot())")


def test_commits_out_of_order_are_seen_each_once(engine: Engine, connect: Open) -> None:
    """One that began first and commits last stands in the log before what was read already, and is found all the same;
    what a savepoint did counts as its transaction's."""
    early, late = connect("READ COMMITTED"), connect("READ COMMITTED")
    reader, at = register(engine), connect("REPEATABLE READ")
    early.execute(text("UPDATE inventories SET total = 9 WHERE resource_provider_id = 2"))
    with late.begin():
        late.execute(text("SAVEPOINT s"))
        late.execute(text("UPDATE inventories SET total = 9 WHERE resource_provider_id = 3"))

    def seen(since: str | None) -> tuple[str, str | None]:
        with at.begin():
            found = look(at, reader, since)
        return found.now, found.changes

    start = "1:1:"
    first, changes = seen(start)
    assert changes == "provider 3 3"
    second, changes = seen(first)
    assert changes is None
    early.commit()
    third, changes = seen(second)
    assert changes == "provider 2 2"
    assert seen(third)[1] is None


def test_nothing_is_pruned_that_a_reader_has_not_seen(engine: Engine) -> None:
    """The one that has seen least decides; one that was silent for five minutes does not count, and finds its entry
    gone; without readers what every running transaction sees is removed. The newest transaction stays."""
    slow, fast = register(engine), register(engine)
    run(engine, "UPDATE inventories SET total = 9 WHERE resource_provider_id = 2")
    renew(engine, fast)
    assert logged(engine) == [("provider", 2, 2)]
    run(engine, "UPDATE inventories SET total = 9 WHERE resource_provider_id = 3")
    renew(engine, fast)
    assert logged(engine) == [("provider", 2, 2), ("provider", 3, 3)]
    renew(engine, slow)
    assert logged(engine) == [("provider", 3, 3)]

    run(engine, "UPDATE inventories SET total = 8 WHERE resource_provider_id = 2")
    run(engine, f"UPDATE placebench_readers SET seen_at = seen_at - interval '6 minutes' WHERE id = '{slow}'")
    renew(engine, fast)
    assert logged(engine) == [("provider", 2, 2)]
    with engine.connect() as connection:
        assert not look(connection, slow, None).registered
        assert look(connection, fast, None).registered

    run(engine, "TRUNCATE placebench_readers; UPDATE inventories SET total = 7 WHERE resource_provider_id = 3")
    run(engine, "SELECT placebench_prune()")
    assert logged(engine) == [("provider", 3, 3)]


def test_an_old_transaction_keeps_only_its_own_changes_in_the_log(engine: Engine, connect: Open) -> None:
    """A session idle in a transaction that has written: what others write beside it is pruned but for the newest, and
    seen only once; what it wrote itself is seen when it commits."""
    old, reader, at = connect("READ COMMITTED"), register(engine), connect("REPEATABLE READ")
    old.execute(text("UPDATE inventories SET total = 9 WHERE resource_provider_id = 2"))

    def seen(since: str) -> tuple[str, str | None]:
        with at.begin():
            found = look(at, reader, since)
        return found.now, found.changes

    first, _ = seen("1:1:")
    run(engine, "UPDATE inventories SET total = 9 WHERE resource_provider_id = 3")
    second, changes = seen(first)
    assert changes == "provider 3 3"
    run(engine, "CREATE TABLE IF NOT EXISTS beside ()")
    third, changes = seen(second)
    assert changes is None
    renew(engine, reader)
    assert logged(engine) == [("provider", 3, 3)]
    old.commit()
    assert seen(third)[1] == "provider 2 2"
    assert logged(engine) == [("provider", 2, 2), ("provider", 3, 3)]


def test_who_prunes_keeps_what_it_wrote_itself(engine: Engine, connect: Open) -> None:
    """A writer prunes now and then: the rows of its own transaction stay, whether others go on beside it or not."""
    second, third = (f"UPDATE inventories SET total = 9 WHERE resource_provider_id = {each}" for each in (2, 3))
    run(engine, f"BEGIN; {second}; SELECT placebench_prune(); COMMIT")
    assert logged(engine) == [("provider", 2, 2)]

    run(engine, "TRUNCATE placebench_changes")
    connect("READ COMMITTED").execute(text("SELECT pg_current_xact_id()"))
    run(engine, f"BEGIN; {second}; SELECT placebench_prune(); {third}; COMMIT")

    assert logged(engine) == [("provider", 2, 2), ("provider", 3, 3)]


def test_a_writer_in_repeatable_read_prunes_nothing(engine: Engine, connect: Open) -> None:
    """There, to remove what another has removed is an error, which Placement must not meet."""
    run(engine, "UPDATE inventories SET total = 9 WHERE resource_provider_id = 2")

    with (writer := connect("REPEATABLE READ")).begin():
        writer.execute(text("SELECT placebench_prune()"))

    assert logged(engine) == [("provider", 2, 2)]


def test_a_log_that_is_published_is_pruned(engine: Engine) -> None:
    """CREATE PUBLICATION … FOR ALL TABLES has the log in it, and a table without replica identity refuses DELETE."""
    for provider in (2, 3):
        run(engine, f"UPDATE inventories SET total = 9 WHERE resource_provider_id = {provider}")
    run(engine, "CREATE PUBLICATION all_tables FOR ALL TABLES")

    run(engine, "SELECT placebench_prune()")
    run(engine, "DROP PUBLICATION all_tables")

    assert logged(engine) == [("provider", 3, 3)]


def test_rows_of_another_server_are_pruned(engine: Engine) -> None:
    """A restored dump holds transactions that this server has not come to."""
    run(engine, "INSERT INTO placebench_changes VALUES ('9000000000', 'provider', 1, 1)")

    reader = register(engine)
    with engine.connect() as connection:
        assert look(connection, reader, "1:1:").changes is None
    run(engine, "SELECT placebench_prune()")

    assert logged(engine) == []


def test_an_entry_does_not_count_in_a_copy_of_the_database(server: Server, database_url: str) -> None:
    """CREATE DATABASE TEMPLATE copies log, readers and triggers; there the reader has to begin anew."""
    seed(find_topology("nested-perfload", trees=1), database_url)
    engine = create_engine(database_url, isolation_level="AUTOCOMMIT")
    reader = register(engine)
    assert stands(engine, reader)
    engine.dispose()
    server.create_database("placebench_test_copied", template=engine.url.database)
    copy = create_engine(server.admin_url("placebench_test_copied"), isolation_level="AUTOCOMMIT")

    copied, anew = stands(copy, reader), register(copy)
    run(copy, "DELETE FROM inventories WHERE resource_provider_id = 2")
    with copy.connect() as connection:
        changes = look(connection, anew, "1:1:").changes
    copy.dispose()
    server.drop_database("placebench_test_copied")

    assert not copied
    assert "provider 2 2" in changes


@pytest.mark.parametrize(
    ("change", "back"),
    [
        (
            "ALTER TABLE allocations DISABLE TRIGGER placebench_insert",
            "ALTER TABLE allocations ENABLE ALWAYS TRIGGER placebench_insert",
        ),
        (
            "ALTER TABLE allocations ENABLE TRIGGER placebench_insert",
            "ALTER TABLE allocations ENABLE ALWAYS TRIGGER placebench_insert",
        ),
        ("ALTER TABLE traits RENAME TO other", "ALTER TABLE other RENAME TO traits"),
        ("CREATE SCHEMA other; ALTER TABLE traits SET SCHEMA other", "ALTER TABLE other.traits SET SCHEMA public"),
        ("CREATE TABLE child () INHERITS (traits)", "DROP TABLE child; ANALYZE traits"),
    ],
)
def test_while_writes_may_fire_no_trigger_nobody_can_register(engine: Engine, change: str, back: str) -> None:
    """And entries end at once; when all is as before they stay ended, for what was written meanwhile is in no log."""
    entry = register(engine)
    assert stands(engine, entry)

    run(engine, change)
    meanwhile = stands(engine, entry), register(engine)
    run(engine, back)

    assert meanwhile == (False, None)
    assert not stands(engine, entry)
    assert stands(engine, register(engine))
    run(engine, "DROP SCHEMA IF EXISTS other")


def test_the_entry_of_a_table_with_a_parent_ends_when_it_is_renewed(engine: Engine) -> None:
    """A statement that names the parent writes to the child, and fires the parent's triggers alone."""
    entry = register(engine)
    assert entry is not None
    run(engine, "CREATE TABLE parent (id integer NOT NULL); ALTER TABLE traits INHERIT parent")

    renew(engine, entry)
    inheriting = stands(engine, entry), register(engine)
    run(engine, "ALTER TABLE traits NO INHERIT parent; DROP TABLE parent")

    assert inheriting == (False, None)
    assert stands(engine, register(engine))


@pytest.mark.parametrize(
    "change",
    [
        "TRUNCATE allocations",
        "TRUNCATE placebench_changes",
        "ALTER TABLE inventories ALTER total TYPE integer USING total / 2",
    ],
)
def test_what_writes_without_a_trigger_ends_every_entry(engine: Engine, change: str) -> None:
    """TRUNCATE, of the log itself too, and a table that is written anew."""
    entry = register(engine)

    run(engine, change)

    assert not stands(engine, entry)
    assert stands(engine, register(engine))


def test_an_entry_stays_while_rows_change_and_tables_are_cleaned(engine: Engine) -> None:
    """VACUUM, ANALYZE and a new index are no reason to read everything again."""
    entry = register(engine)

    for statement in (
        "UPDATE inventories SET total = 9",
        "VACUUM FREEZE",
        "ANALYZE",
        "CREATE INDEX beside_idx ON inventories (total)",
        "DROP INDEX beside_idx",
    ):
        run(engine, statement)

    assert stands(engine, entry)


def stands(engine: Engine, reader: str | None) -> bool:
    """Whether the reader, who has not looked since it registered, has its entry still."""
    with engine.connect() as connection:
        return bool(look(connection, str(reader), "1:1:").registered)
