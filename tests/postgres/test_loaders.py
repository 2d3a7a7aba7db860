"""Every loader on PostgreSQL: the same data by each way, all or nothing, and every trouble told in one line."""

import threading
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from placebench.errors import DatabaseError, SeedError
from placebench.lab.inventory.seeding import SeedReceipt, data_digest, expected_content, find_topology, migrate, seed
from placebench.runtime.postgres import Server

TOPOLOGIES = ("nested-perfload", "flat-perfload", "partly-used")


@pytest.fixture
def own_topology(tmp_path: Path) -> Path:
    """A topology of nothing but custom names: one provider with two classes and a trait."""
    path = tmp_path / "custom.toml"
    path.write_text(
        'request = "/allocation_candidates?resources=CUSTOM_SLOT:1"\n[[providers]]\nname = "cn"\n'
        'traits = ["CUSTOM_NEW"]\ninventories.CUSTOM_SLOT = { total = 3, allocation_ratio = 1.5 }\n'
        "inventories.CUSTOM_PORT = { total = 3 }"
    )
    return path


def run(engine: Engine, statements: str) -> None:
    """Several statements in one transaction."""
    with engine.begin() as connection:
        connection.exec_driver_sql(statements)


def rows(engine: Engine, query: str) -> list[tuple[object, ...]]:
    """The rows of a query."""
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def empty() -> str:
    """The digest of a database without providers."""
    return expected_content(find_topology("nested-perfload", trees=0)).digest


@pytest.mark.long
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_all_loaders_write_the_same(database_url: str, api_url: str, name: str) -> None:
    """Each way gives the digest that the topology itself has; the receipts differ in loader and time alone."""
    topology = find_topology(name, trees=5)

    receipts = [
        seed(topology, database_url, loader=loader, reset=True, api_url=api_url) for loader in ("copy", "sql", "http")
    ]

    assert {receipt.digest for receipt in receipts} == {expected_content(topology).digest}
    assert [receipt.loader for receipt in receipts] == ["copy", "sql", "http"]
    assert len({(each.providers, each.inventories, each.provider_traits) for each in receipts}) == 1


def test_custom_names_are_made(database_url: str, api_url: str, own_topology: Path) -> None:
    """Classes and a trait that no server knows, by all three loaders."""
    topology = find_topology(str(own_topology), trees=3)

    digests = {
        seed(topology, database_url, loader=loader, reset=True, api_url=api_url).digest
        for loader in ("http", "copy", "sql")
    }

    assert digests == {expected_content(topology).digest}


def test_copy_leaves_keys_and_indexes_as_they_were(database_url: str, engine: Engine) -> None:
    """Also those that somebody else added, and a foreign key that points to a table of ours."""
    migrate(database_url)
    run(
        engine,
        "CREATE INDEX extra ON inventories (total) WHERE reserved > 0;"
        "CREATE TABLE guests (provider integer REFERENCES resource_providers ON DELETE CASCADE)",
    )
    catalogue = (
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype <> 'n'"
        " UNION ALL SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1, 2, 3"
    )
    before = rows(engine, catalogue)

    seed(find_topology("nested-perfload", trees=2), database_url, loader="copy")

    assert rows(engine, catalogue) == before


@pytest.mark.parametrize("loader", ["copy", "sql"])
def test_ids_go_on_after_those_of_the_loader(database_url: str, engine: Engine, loader: str) -> None:
    """Somebody who inserts afterwards gets the next id from the sequence."""
    seed(find_topology("nested-perfload", trees=2), database_url, loader=loader)

    assert rows(
        engine,
        "INSERT INTO resource_providers (uuid, name) VALUES ('u', 'n') RETURNING id, created_at IS NULL",
    ) == [(15, True)]
    assert rows(engine, "SELECT nextval('inventories_id_seq'), count(*) FROM inventories WHERE created_at IS NULL") == [
        (19, 0)
    ]


@pytest.mark.parametrize("loader", ["copy", "sql", "http"])
def test_providers_of_others_are_refused_and_stay(database_url: str, engine: Engine, loader: str) -> None:
    """The line says how many rows there are, and what would empty them."""
    migrate(database_url)
    run(engine, "INSERT INTO resource_providers (uuid, name) VALUES ('u', 'n')")

    with pytest.raises(SeedError, match="holds 1 resource_providers that no receipt of placebench names"):
        seed(find_topology("nested-perfload", trees=2), database_url, loader=loader, api_url="http://127.0.0.1:1")

    assert rows(engine, "SELECT uuid, name FROM resource_providers") == [("u", "n")]


def test_traits_and_classes_that_nobody_uses_are_no_providers_of_others(database_url: str, engine: Engine) -> None:
    """A Placement adds its own when it starts."""
    migrate(database_url)
    run(engine, "INSERT INTO traits (name) VALUES ('HW_NUMA_ROOT'), ('HW_NOBODY_HAS')")

    receipt = seed(find_topology("nested-perfload", trees=2), database_url)

    assert receipt.digest == data_digest(database_url)


def test_reset_removes_what_others_wrote(database_url: str, engine: Engine) -> None:
    """Consumers and allocations, too."""
    migrate(database_url)
    run(
        engine,
        "INSERT INTO resource_providers (uuid, name) VALUES ('u', 'n');"
        "INSERT INTO consumers (uuid, project_id, user_id) VALUES ('c', 1, 1);"
        "INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, used) VALUES (1, 'c', 0, 1)",
    )
    said: list[str] = []

    receipt = seed(find_topology("nested-perfload", trees=2), database_url, reset=True, notice=said.append)

    assert said == ["removed 1 allocations, 1 consumers, 1 resource_providers"]
    assert receipt.digest == data_digest(database_url)


def test_reset_does_not_follow_into_tables_of_others(database_url: str, engine: Engine) -> None:
    """A table that refers to providers is not emptied with them: nothing is."""
    seed(find_topology("nested-perfload", trees=1), database_url)
    run(engine, "CREATE TABLE guests AS SELECT id AS provider FROM resource_providers")
    run(engine, "ALTER TABLE guests ADD FOREIGN KEY (provider) REFERENCES resource_providers")

    with pytest.raises(DatabaseError, match="cannot truncate a table referenced in a foreign key constraint"):
        seed(find_topology("nested-perfload", trees=2), database_url, reset=True)

    assert rows(engine, "SELECT count(*) FROM guests JOIN resource_providers ON id = provider") == [(7,)]


@pytest.mark.parametrize("loader", ["copy", "sql"])
@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        ("RAISE EXCEPTION USING ERRCODE = '53100', MESSAGE = 'could not extend file: No space left'", "No space left"),
        ("PERFORM pg_terminate_backend(pg_backend_pid())", "terminating connection|server closed the connection"),
    ],
    ids=["disk full", "connection lost"],
)
def test_trouble_in_the_middle_leaves_nothing(
    database_url: str, engine: Engine, loader: str, trouble: str, message: str
) -> None:
    """Providers are in, inventories fail: one line, no row, every key in its place, and the next run does well."""
    migrate(database_url)
    run(
        engine,
        f"CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {trouble}; RETURN NEW; END $$;"
        "CREATE TRIGGER trouble BEFORE INSERT ON inventories FOR EACH ROW EXECUTE FUNCTION trouble()",
    )
    topology = find_topology("nested-perfload", trees=300)

    with pytest.raises(DatabaseError, match=message) as caught:
        seed(topology, database_url, loader=loader)
    left = data_digest(database_url)
    run(engine, "DROP TRIGGER trouble ON inventories")
    receipt = seed(topology, database_url, loader=loader)

    assert "\n" not in str(caught.value)
    assert left == empty()
    assert rows(engine, "SELECT count(*) FROM pg_constraint WHERE contype = 'f'") == [(5,)]
    assert receipt.providers == 2100


@pytest.mark.parametrize("loader", ["copy", "sql"])
def test_an_interrupt_in_the_middle_leaves_nothing(database_url: str, loader: str) -> None:
    """Ctrl-C arrives while rows are written."""

    def interrupt(done: int, _: int) -> None:
        if done > 1000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        seed(find_topology("nested-perfload", trees=300), database_url, loader=loader, progress=interrupt)

    assert data_digest(database_url) == empty()


@pytest.mark.long
def test_a_run_by_http_that_stopped_is_in_the_way(database_url: str, api_url: str) -> None:
    """What it wrote stays, no receipt names it, and --reset makes room."""
    topology = find_topology("nested-perfload", trees=4)

    def interrupt(_: int, __: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        seed(topology, database_url, loader="http", api_url=api_url, progress=interrupt)
    with pytest.raises(SeedError, match="that no receipt of placebench names: give --reset"):
        seed(topology, database_url, loader="http", api_url=api_url)

    assert seed(topology, database_url, loader="http", api_url=api_url, reset=True).providers == 28


def test_a_server_of_another_database_is_noticed(server: Server, api_url: str, own_topology: Path) -> None:
    """by_http wrote all it had to, but not here."""
    other = server.create_database("placebench_test_another")
    try:
        with pytest.raises(SeedError, match="wrote 0 of 1 providers: does the server serve this database"):
            seed(find_topology(str(own_topology), trees=1), other, loader="http", api_url=api_url)
    finally:
        server.drop_database("placebench_test_another")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://127.0.0.1:1", "http://127.0.0.1:1 does not respond: .*refused"),
        ("127.0.0.1:1", "'127.0.0.1:1' is not the URL of a service, such as http://"),
        ("{}/nowhere", "PUT .*/nowhere/traits/CUSTOM_FOO responded 404"),
    ],
)
def test_a_server_that_does_not_help_is_named(database_url: str, api_url: str, address: str, message: str) -> None:
    """Nobody there, no address, no Placement."""
    with pytest.raises(SeedError, match=message):
        seed(find_topology("nested-perfload", trees=1), database_url, loader="http", api_url=address.format(api_url))


def test_a_role_without_rights_is_told_in_one_line(database_url: str, engine: Engine) -> None:
    """The tables belong to another role."""
    migrate(database_url)
    role = database_url.rpartition("/")[2]
    run(engine, f"CREATE ROLE {role} LOGIN PASSWORD 'secret'; GRANT ALL ON SCHEMA public TO {role}")
    url = engine.url.set(username=role, password="secret").render_as_string(hide_password=False)
    try:
        with pytest.raises(DatabaseError, match="permission denied for table") as caught:
            seed(find_topology("nested-perfload", trees=1), url)
    finally:
        run(engine, f"DROP OWNED BY {role}; DROP ROLE {role}")

    assert "secret" not in str(caught.value)


def test_two_at_once_seed_once(database_url: str) -> None:
    """The second waits, and finds what it would have written."""
    topology = find_topology("nested-perfload", trees=20)
    receipts: list[SeedReceipt] = []
    threads = [threading.Thread(target=lambda: receipts.append(seed(topology, database_url))) for _ in range(2)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(receipts) == 2
    assert receipts[0] == receipts[1]
