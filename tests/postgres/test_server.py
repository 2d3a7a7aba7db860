"""A server to work on: what it may create and drop, on a server of ours and on one that the user named."""

from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from statements import run

from placebench.errors import DatabaseError, UndecidedError
from placebench.runtime.postgres import Server, check_database, open_server

NAME = "placebench_test_named"


def databases(server: Server) -> set[object]:
    """The names of all databases on the server."""
    return set(run(server.url, "SELECT datname FROM pg_database"))


@pytest.fixture
def named(server: Server) -> Iterator[Server]:
    """The server of the session as if the user had named it."""
    with open_server(server.url.replace("postgresql+psycopg2://", "postgres://")) as opened:
        yield opened


@pytest.fixture
def clerk_url(server: Server, database_url: str) -> Iterator[str]:
    """A database in which a role without any rights is the guest."""
    run(
        server.url,
        "DROP ROLE IF EXISTS placebench_clerk",
        "CREATE ROLE placebench_clerk LOGIN PASSWORD 'filing'",
        f"REVOKE CREATE ON DATABASE {make_url(database_url).database} FROM PUBLIC",
    )
    run(database_url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    url = make_url(database_url).set(username="placebench_clerk", password="filing")
    yield url.render_as_string(hide_password=False)
    run(server.url, "DROP ROLE placebench_clerk")


def test_a_server_says_what_it_is(server: Server) -> None:
    """Its version in words and as a number, as the server itself tells them."""
    assert run(server.url, "SHOW server_version_num") == [str(server.version_number)]
    assert server.version.split(".")[0] == str(server.version_number // 10000)


def test_a_fresh_database_is_empty_and_usable(database_url: str) -> None:
    """`check_database` has nothing against it and returns the version number."""
    assert run(database_url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [0]
    assert check_database(database_url) >= 120000


def test_a_database_can_be_a_copy(server: Server, database_url: str) -> None:
    """Rows of the template are in the copy, and stay there when the template changes."""
    run(database_url, "CREATE TABLE flavour AS SELECT 'vanilla' AS name")
    server.create_database("placebench_test_copy", template=str(make_url(database_url).database))
    run(database_url, "DROP TABLE flavour")
    copied = run(server.admin_url("placebench_test_copy"), "SELECT name FROM flavour")
    server.drop_database("placebench_test_copy")

    assert copied == ["vanilla"]


def test_a_name_that_needs_quoting(server: Server) -> None:
    """Whatever is in the label, it is the beginning of a name and nothing else."""
    label = 'placebench_test_"; %s :x é'
    name = make_url(server.create_database(label)).database
    there = name in databases(server)
    server.drop_database(label)

    assert name is not None
    assert (name.startswith(label), there, name in databases(server)) == (True, True, False)


def test_long_labels_are_cut_and_stay_apart(server: Server) -> None:
    """PostgreSQL would cut a name of more than 63 bytes, here in the middle of a letter, and two become one."""
    labels = [f"{'é' * 30}{number}" for number in range(2)]
    names = [str(make_url(server.create_database(label)).database) for label in labels]
    there = set(names) <= databases(server)
    for label in labels:
        server.drop_database(label)

    assert (len(set(names)), there, max(len(name.encode()) for name in names) <= 63) == (2, True, True)


def test_a_template_that_postgresql_would_cut(server: Server) -> None:
    """A name of more than 63 bytes is refused: PostgreSQL would take the one that its beginning names."""
    with pytest.raises(DatabaseError, match="1 to 63 bytes"):
        server.create_database(NAME, template="x" * 64)


def test_a_database_that_somebody_else_made(server: Server) -> None:
    """One that bears the name of our label is neither replaced nor, later, dropped as ours."""
    run(server.url, f"CREATE DATABASE {NAME}")
    try:
        with pytest.raises(DatabaseError, match=f"'{NAME}' was not created by this run"):
            server.drop_database(NAME)
        server.create_database(NAME)
        server.drop_database(NAME)

        assert NAME in databases(server)
    finally:
        run(server.url, f"DROP DATABASE {NAME}")


def test_a_label_that_is_used_again(server: Server) -> None:
    """The database that this object made under it before is gone, and the new one is empty."""
    before = databases(server)
    run(server.create_database(NAME), "CREATE TABLE flavour AS SELECT 'vanilla' AS name")
    url = server.create_database(NAME)
    made = databases(server) - before
    tables = run(url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
    server.drop_database(NAME)

    assert (made, tables, databases(server)) == ({make_url(url).database}, [0], before)


def test_a_database_that_lost_our_mark(server: Server) -> None:
    """Somebody keeps it for himself by another comment: it stays."""
    name = make_url(url := server.create_database(NAME)).database
    (mark,) = run(server.url, f"SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = '{name}'")
    run(server.url, f"COMMENT ON DATABASE {name} IS 'the accounts of 2019'")
    try:
        with pytest.raises(DatabaseError, match=f"'{name}' lost the mark of this run, so it stays"):
            server.drop_database(NAME)
        assert run(url, "SELECT 1") == [1]
    finally:
        run(server.url, f"COMMENT ON DATABASE {name} IS '{mark}'")
        server.drop_database(NAME)


def test_a_template_that_is_not_there(server: Server) -> None:
    """The server's reason is the line, and there is nothing to drop afterwards."""
    with pytest.raises(DatabaseError, match='template database "no_such" does not exist'):
        server.create_database(NAME, template="no_such")
    with pytest.raises(DatabaseError, match="was not created by this run"):
        server.drop_database(NAME)


def test_dropping_ends_the_connections_to_it(server: Server) -> None:
    """A database is dropped under a client that still holds a connection."""
    engine = create_engine(server.create_database(NAME))
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        server.drop_database(NAME)
        connection.invalidate()
    engine.dispose()

    assert engine.url.database not in databases(server)


def test_a_named_server_loses_only_what_we_created(server: Server, database_url: str) -> None:
    """`stop` drops the databases that this object created, and no other."""
    before = databases(server)
    named = open_server(server.url)
    url = named.create_database(NAME)
    during = databases(server)
    named.stop()
    named.stop()

    assert (named.kind, during - before, databases(server)) == ("named", {make_url(url).database}, before)


def test_a_database_on_a_named_server_is_set_for_measuring(server: Server) -> None:
    """Parallel workers and JIT are off in what we create there, a copy too, and as they were in all else."""
    if server.kind == "named":
        pytest.skip("settings are for a server of ours")
    asked = "SELECT setting FROM pg_settings WHERE name IN ('jit', 'max_parallel_workers_per_gather') ORDER BY name"
    with (
        open_server(settings={"jit": "on", "max_parallel_workers_per_gather": "2"}) as stock,
        open_server(stock.url) as named,
    ):
        made = named.create_database("placebench_made")
        copied = named.create_database("placebench_copied", template="placebench_made")
        found = [run(url, asked) for url in (made, copied, named.url, stock.create_database("of_a_variant"))]

    assert found == [["off", "0"], ["off", "0"], ["on", "2"], ["on", "2"]]


def test_a_database_that_stays_behind_is_named(named: Server) -> None:
    """When `stop` cannot drop a database, it says which one, also if the run has failed with another error."""
    name = make_url(named.create_database(NAME)).database
    run(named.url, f"ALTER DATABASE {name} IS_TEMPLATE true")
    try:
        stayed = rf"db clean --server URL --yes` drops .*\({name}, \w+\): .*cannot drop a template database"
        with pytest.raises(DatabaseError, match=stayed):
            named.stop()
        with pytest.raises(UndecidedError, match=rf"^3 in a row are invalid; .*{stayed}"), named:
            raise UndecidedError("3 in a row are invalid")
    finally:
        run(named.url, f"ALTER DATABASE {name} IS_TEMPLATE false")


def test_the_environment_can_name_the_server(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """$PLACEBENCH_DATABASE_URL is used when no URL is given."""
    monkeypatch.setenv("PLACEBENCH_DATABASE_URL", server.url)

    with open_server() as opened:
        assert (opened.kind, opened.url) == ("named", server.url)


def test_settings_are_not_for_a_named_server(server: Server) -> None:
    """Nobody's postgresql.conf is changed by us."""
    with pytest.raises(DatabaseError, match="leave --db out"):
        open_server(server.url, settings={"work_mem": "8MB"})


def test_a_role_that_may_not_create_databases(clerk_url: str) -> None:
    """It is told what it lacks before anything is tried."""
    with open_server(clerk_url) as opened, pytest.raises(DatabaseError, match=r"placebench_clerk@.*give it CREATEDB"):
        opened.create_database(NAME)


def test_a_role_that_may_not_create_tables(clerk_url: str) -> None:
    """`check_database` names the right that is missing, and not the password."""
    with pytest.raises(DatabaseError, match=r"may not make tables in the schema public.*GRANT CREATE") as caught:
        check_database(clerk_url)

    assert "filing" not in str(caught.value)


def test_a_database_that_only_reads(database_url: str) -> None:
    """A standby, or a database set to read only, is not a place to seed."""
    run(database_url, f"ALTER DATABASE {make_url(database_url).database} SET default_transaction_read_only = on")

    with pytest.raises(DatabaseError, match="is read-only"):
        check_database(database_url)


def test_a_wrong_password_is_refused(server: Server) -> None:
    """A URL with another password does not get in, and the line does not show the password."""
    wrong = make_url(server.url).set(password="sesame").render_as_string(hide_password=False)

    with pytest.raises(DatabaseError, match="password authentication failed") as caught:
        check_database(wrong)

    assert "sesame" not in str(caught.value)
