"""Seeding where nothing is needed: by_sql into SQLite, the receipt, and the digest that tells data apart."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, func, select, text
from sqlalchemy.pool import NullPool

from placebench.errors import DatabaseError, SeedError
from placebench.lab.inventory import tables
from placebench.lab.inventory.seeding import (
    SeedReceipt,
    data_digest,
    expected_content,
    find_topology,
    foreign_rows,
    migrate,
    read_content,
    seed,
)

DIGEST_OF_TWO_TREES = "bf298a4d164c6830f4bfb584baa5105c"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database in a file that is not there yet."""
    return f"sqlite:///{tmp_path}/data.db"


@pytest.fixture
def seeded(url: str) -> Iterator[Engine]:
    """Two trees of the gate's, in SQLite."""
    seed(find_topology("nested-perfload", trees=2), url, loader="sql")
    engine = create_engine(url)
    yield engine
    engine.dispose()


def test_what_is_in_the_database_is_what_the_topology_says(seeded: Engine) -> None:
    """The database's digest and the topology's are the same literal, here and on every other machine."""
    with seeded.connect() as connection:
        found = read_content(connection)

    assert found == expected_content(find_topology("nested-perfload", trees=2))
    assert found.digest == DIGEST_OF_TWO_TREES
    assert [(table, lines.count) for table, lines in found.tables] == [
        ("providers", 14),
        ("inventories", 18),
        ("provider_traits", 8),
        ("provider_aggregates", 0),
        ("consumers", 0),
        ("allocations", 0),
    ]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE resource_providers SET name = 'other' WHERE id = 1",
        "UPDATE resource_providers SET parent_provider_id = 1 WHERE id = 4",
        "UPDATE resource_providers SET root_provider_id = 1 WHERE id = 8",
        "UPDATE inventories SET reserved = 1 WHERE id = 1",
        "UPDATE inventories SET allocation_ratio = 1.000001 WHERE id = 1",
        "UPDATE inventories SET resource_class_id = 10 WHERE id = 1",
        "DELETE FROM resource_provider_traits WHERE resource_provider_id = 1",
        (
            "INSERT INTO placement_aggregates VALUES (NULL, NULL, 1, 'a'); "
            "INSERT INTO resource_provider_aggregates VALUES (NULL, NULL, 1, 1)"
        ),
        "INSERT INTO consumers VALUES (NULL, NULL, 1, 'c', 1, 1, 0, NULL)",
        "INSERT INTO allocations VALUES (NULL, NULL, 1, 1, 'c', 0, 1)",
    ],
)
def test_a_change_that_a_request_can_see_changes_the_digest(seeded: Engine, url: str, change: str) -> None:
    """Names, places in the tree, amounts, traits, aggregates, consumers, allocations."""
    with seeded.begin() as connection:
        for statement in change.split("; "):
            connection.execute(text(statement))

    assert data_digest(url) != DIGEST_OF_TWO_TREES


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE resource_providers SET generation = 5, updated_at = '2026-01-01 00:00:00.000000'",
        "UPDATE inventories SET id = id + 1000",
        "INSERT INTO traits VALUES (NULL, NULL, 1000, 'HW_NOBODY_HAS')",
        "INSERT INTO resource_classes VALUES (NULL, NULL, 10000, 'CUSTOM_NOBODY_HAS')",
        "INSERT INTO placement_aggregates VALUES (NULL, NULL, 1, 'nobody is in it')",
    ],
)
def test_a_change_that_no_request_can_see_leaves_the_digest(seeded: Engine, url: str, change: str) -> None:
    """Generations, stamps, surrogate ids, and names that nobody uses."""
    with seeded.begin() as connection:
        connection.execute(text(change))

    assert data_digest(url) == DIGEST_OF_TWO_TREES


def test_the_same_again_does_nothing_and_gives_the_stored_receipt(url: str) -> None:
    """Even by another loader: the data is there."""
    topology = find_topology("flat-perfload", trees=3)
    first = seed(topology, url, loader="sql")

    assert seed(topology, url, loader="copy") == first


@pytest.mark.parametrize("other", [{"trees": 3}, {"trees": 2, "seed": 2}])
def test_another_seeding_is_in_the_way(seeded: Engine, url: str, other: dict[str, int]) -> None:
    """It is refused with what is there, and stays."""
    with pytest.raises(SeedError, match=r"holds 14 resource_providers, .* of nested-perfload, 2 trees, seed 1"):
        seed(find_topology("nested-perfload", **other), url, loader="sql")

    assert data_digest(url) == DIGEST_OF_TWO_TREES


def test_changed_data_is_in_the_way(seeded: Engine, url: str) -> None:
    """The receipt is there, but the data is no longer what it says."""
    with seeded.begin() as connection:
        connection.execute(text("UPDATE inventories SET total = 1"))

    with pytest.raises(SeedError, match="no longer what was seeded"):
        seed(find_topology("nested-perfload", trees=2), url, loader="sql")


def test_rows_of_others_are_told_from_our_own(seeded: Engine, url: str, tmp_path: Path) -> None:
    """What a receipt names is ours; once something changed, or without a receipt, all rows are somebody's."""
    assert foreign_rows(f"sqlite:///{tmp_path / 'empty.db'}") == {}
    assert foreign_rows(url) == {}

    with seeded.begin() as connection:
        connection.execute(text("UPDATE inventories SET total = 1"))
    changed = foreign_rows(url)
    with seeded.begin() as connection:
        connection.execute(text("DROP TABLE placebench_receipts"))

    assert (changed["resource_providers"], changed["placebench_receipts"]) == (14, 1)
    assert foreign_rows(url)["resource_providers"] == 14


def test_reset_empties_and_says_what_it_removed(seeded: Engine, url: str) -> None:
    """Then the other topology is there, alone."""
    said: list[str] = []

    receipt = seed(find_topology("flat-perfload", trees=1), url, loader="sql", reset=True, notice=said.append)

    assert said == ["removed 18 inventories, 8 resource_provider_traits, 14 resource_providers, 1 placebench_receipts"]
    assert (receipt.providers, receipt.inventories, receipt.digest) == (1, 3, data_digest(url))


def test_no_trees_make_the_schema_only(url: str) -> None:
    """The tables and the standard classes, no provider, no receipt."""
    receipt = seed(find_topology("nested-perfload", trees=0), url, loader="sql")

    with create_engine(url, poolclass=NullPool).connect() as connection:
        counts = [
            connection.scalar(select(func.count()).select_from(table))
            for table in (tables.resource_classes, tables.resource_providers, tables.placebench_receipts)
        ]
    assert receipt.providers == 0
    assert counts == [21, 0, 0]


def test_copy_needs_postgresql(url: str) -> None:
    """And says which loader does not."""
    with pytest.raises(SeedError, match="by_copy needs PostgreSQL, the database is sqlite: take by_sql"):
        seed(find_topology("nested-perfload", trees=1), url, loader="copy")

    assert data_digest(url) == expected_content(find_topology("nested-perfload", trees=0)).digest


def test_http_needs_a_server(url: str) -> None:
    """Without an address there is nobody to speak to."""
    with pytest.raises(SeedError, match="--api-url"):
        seed(find_topology("nested-perfload", trees=1), url, loader="http")


def test_progress_is_told_in_providers(url: str) -> None:
    """It rises to the end, whatever number of tables a provider is spread over."""
    seen: list[tuple[int, int]] = []

    seed(find_topology("nested-perfload", trees=400), url, loader="sql", progress=lambda *each: seen.append(each))

    assert [done for done, _ in seen] == [350, 700, 1050, 1400, 1750, 2100, 2450, 2800]
    assert {total for _, total in seen} == {2800}


@pytest.mark.parametrize("url", ["not a url", "", "postgresql://host:port/name", "nosuch://host/name"])
def test_a_url_that_is_none_is_told_in_one_line(url: str) -> None:
    """No traceback for a slip of the pen."""
    with pytest.raises(DatabaseError, match=r"no database URL: .* expected postgresql://user:password@host/name"):
        migrate(url)


RECEIPT = SeedReceipt(
    topology="nested-perfload",
    trees=2,
    seed=1,
    loader="copy",
    providers=14,
    inventories=18,
    provider_traits=8,
    provider_aggregates=0,
    elapsed_s=0.125,
    digest="0f" * 16,
)


def test_a_database_that_does_not_respond_is_named_as_a_user_writes_it() -> None:
    """Without the driver that placebench uses, and without the password."""
    with pytest.raises(DatabaseError, match=r"^postgresql://me:\*\*\*@127\.0\.0\.1:1/x: connection to server "):
        migrate("postgresql://me:hunter2@127.0.0.1:1/x")


def test_a_receipt_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    """Nothing is rounded and nothing is lost."""
    RECEIPT.save(tmp_path / "receipt.json")

    assert SeedReceipt.load(tmp_path / "receipt.json") == RECEIPT


@pytest.mark.parametrize("text", ["", "[]", '{"topology": "x"}', '{"unknown": 1}'])
def test_a_file_that_is_no_receipt_is_refused(tmp_path: Path, text: str) -> None:
    """A damaged file is the user's trouble, not a traceback."""
    path = tmp_path / "receipt.json"
    path.write_text(text)

    with pytest.raises(SeedError, match=r"/receipt\.json: "):
        SeedReceipt.load(path)


def test_a_receipt_of_a_later_format_is_refused(tmp_path: Path) -> None:
    """A field may mean something else there."""
    path = tmp_path / "receipt.json"
    RECEIPT.save(path)
    path.write_text(path.read_text().replace('"format_version": 1', '"format_version": 2'))

    with pytest.raises(SeedError, match="format 2, this placebench reads 1"):
        SeedReceipt.load(path)
