"""The trees that `dedup` keeps follow every change that a later snapshot shows, and only that, whoever made it."""

from collections.abc import Iterator

import pytest
from meddlers import CLOUD, QUERIES, compare
from sqlalchemy import Engine, create_engine, event, text

from placebench.lab.inventory.seeding import migrate
from placebench.lab.reference.candidates.dedup.fetch import read_rows
from placebench.lab.reference.candidates.dedup.statements import ProvidersState, read_state
from placebench.lab.reference.candidates.dedup.versions import ShownVersion, TreeVersion
from placebench.lab.reference.store.database import Database

RENAMED = """
CREATE TABLE others (LIKE inventories INCLUDING ALL);
INSERT INTO others SELECT * FROM inventories;
UPDATE others SET total = 3;
SELECT 1
"""
DELETED = """
DELETE FROM resource_provider_traits WHERE resource_provider_id = 32;
DELETE FROM inventories WHERE resource_provider_id = 32;
DELETE FROM resource_providers WHERE id = 32
"""
SWAPPED_COLUMNS = """
ALTER TABLE inventories RENAME total TO old;
ALTER TABLE inventories RENAME reserved TO total;
ALTER TABLE inventories RENAME old TO reserved
"""


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """Twelve trees of four providers, one that shares; see `meddlers.CLOUD`."""
    migrate(database_url)
    made = create_engine(database_url)
    run(made, CLOUD)
    yield made
    made.dispose()


def run(engine: Engine, statements: str) -> None:
    """One transaction of another program for each statement."""
    for statement in statements.split(";\n"):
        with engine.begin() as connection:
            connection.exec_driver_sql(statement.replace("%", "%%"))


def version(engine: Engine, before: TreeVersion | None = None) -> TreeVersion | None:
    """The version that a new transaction sees, made from the one before if there is one."""
    with Database(engine).snapshot() as connection:
        state: ProvidersState = read_state(connection)
        assert state.seen is not None
        if before is not None:
            assert before.precedes(0, state)
            return before.follow(connection, state)
        rows = read_rows(connection)
        return TreeVersion.of(connection, rows, state.seen, summed=False, read_at_s=1)


@pytest.mark.parametrize(
    ("change", "roots"),
    [
        ("INSERT INTO consumers (uuid, project_id, user_id) VALUES ('c', 1, 1)", set()),
        ("UPDATE resource_providers SET generation = 7 WHERE id = 32", {30}),
        ("UPDATE inventories SET total = 2 WHERE resource_provider_id IN (31, 53)", {30, 50}),
        ("INSERT INTO resource_provider_traits (resource_provider_id, trait_id) VALUES (33, 5)", {30}),
        ("DELETE FROM inventories WHERE resource_provider_id = 31", {30}),
        (DELETED, {30}),
        ("UPDATE resource_provider_traits SET resource_provider_id = 61 WHERE resource_provider_id = 40", {40, 60}),
        ("UPDATE resource_providers SET root_provider_id = 40, parent_provider_id = 41 WHERE id = 33", {30, 40}),
        ("UPDATE resource_providers SET root_provider_id = 33, parent_provider_id = NULL WHERE id = 33", {30, 33}),
    ],
)
def test_only_trees_with_a_changed_provider_are_read_again(engine: Engine, change: str, roots: set[int]) -> None:
    """A provider that moves belongs to two trees; one that lost a row has no new one."""
    before = version(engine)
    run(engine, change)
    assert before is not None
    after = version(engine, before)

    assert after is not None
    assert after.read_again.keys() == roots
    assert after.base is before.base


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE resource_providers SET root_provider_id = NULL WHERE id = 33",
        "UPDATE traits SET name = 'CUSTOM_Z' WHERE id = 4",
        SWAPPED_COLUMNS,
        "CREATE TABLE more (LIKE inventories INCLUDING ALL);\nALTER TABLE more INHERIT inventories",
        "ALTER TABLE inventories ENABLE ROW LEVEL SECURITY",
    ],
)
def test_all_is_read_where_no_row_shows_what_changed(engine: Engine, change: str) -> None:
    """A provider without a root, another name, and what is done to a table."""
    before = version(engine)
    run(engine, change)
    assert before is not None

    assert version(engine, before) is None


def test_a_table_with_another_in_its_place_is_read(engine: Engine) -> None:
    """The other table is older than the kept rows, and has as many."""
    run(engine, RENAMED)
    before = version(engine)
    run(engine, "ALTER TABLE inventories RENAME TO gone;\nALTER TABLE others RENAME TO inventories")
    assert before is not None

    assert version(engine, before) is None


def test_one_row_less_and_one_more_are_noticed(engine: Engine) -> None:
    """A provider loses a trait and another one gains it, so that the table has as many rows as before."""
    database = Database(engine)
    assert compare(database, QUERIES[1], naive_first=False) is None
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM resource_provider_traits WHERE resource_provider_id = 20"))
        connection.execute(text("INSERT INTO resource_provider_traits (resource_provider_id, trait_id) VALUES (31, 4)"))

    assert [compare(database, query, naive_first=False) for query in QUERIES] == [None] * len(QUERIES)


def test_an_older_snapshot_gets_its_own_trees_after_a_newer_one(engine: Engine) -> None:
    """Two transactions by turns, between which there was a write; the version of each is shown again."""
    with engine.connect() as connection:
        old_rows = read_rows(connection)
    before = version(engine)
    run(engine, "UPDATE inventories SET total = 2 WHERE resource_provider_id = 31")
    assert before is not None
    after = version(engine, before)
    run(engine, "UPDATE resource_providers SET root_provider_id = 33, parent_provider_id = NULL WHERE id IN (33, 43)")
    assert after is not None
    last = version(engine, after)
    assert last is not None
    shown = ShownVersion(before)
    classes = []
    for each in (before, after, last, before, last, after):
        shown.show(each)
        fresh = ShownVersion(each)
        assert contents(shown) == contents(fresh)
        assert len(shown.index.layouts) == len(fresh.index.layouts)
        classes.append(contents(shown))

    assert before.base.rows == old_rows
    assert classes[0] == classes[3] != classes[1] == classes[5]
    assert classes[2] == classes[4]


def contents(shown: ShownVersion) -> dict[int, object]:
    """The texts of each tree by its root."""
    return {root_id: each.trees[root_id] for root_id, each in shown.index.class_of.items()}


def test_a_long_transaction_does_not_hide_later_rows(engine: Engine) -> None:
    """While a writer is open, the oldest transaction stays the same; what others commit is seen, and then its own."""
    database, query = Database(engine), "resources=VCPU:1"
    with engine.connect() as open_writer:
        open_writer.execute(text("UPDATE inventories SET total = 0 WHERE resource_provider_id = 11"))
        seen = [compare(database, query, naive_first=False)]
        for provider in (21, 31):
            run(engine, f"DELETE FROM inventories WHERE resource_provider_id = {provider}")
            seen.append(compare(database, query, naive_first=False))
        open_writer.commit()
    seen.append(compare(database, query, naive_first=False))

    assert seen == [None] * 4


def test_a_request_after_a_write_reads_what_changed(engine: Engine) -> None:
    """The state, the changes, and the four tables of one tree, with aggregates a fifth."""
    sent: list[str] = []
    database = Database(engine)
    assert compare(database, QUERIES[1], naive_first=False) is None
    run(engine, "UPDATE resource_providers SET generation = 7 WHERE id = 32")
    event.listen(engine, "before_cursor_execute", lambda *arguments: sent.append(arguments[2]))
    assert compare(database, QUERIES[1], naive_first=False) is None

    assert sum("= ANY ('{30}'" in statement and "WHERE root_provider_id" in statement for statement in sent) <= 2
    assert sum("FROM ONLY resource_providers" in statement for statement in sent) == 1
