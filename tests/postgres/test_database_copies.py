"""Copies of a PostgreSQL database: they equal it, and nothing that it holds runs a program on the server's machine."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url
from statements import run

from placebench.compare.measure.databases import ScratchData
from placebench.compare.what.data_setup import OwnData
from placebench.compare.what.database_copies import dump_database, restore_database
from placebench.errors import DatabaseError
from placebench.meters.table_contents import read_tables
from placebench.runtime.postgres import Server, open_server

ATTACK = """
CREATE FUNCTION public.attack() RETURNS int LANGUAGE plpgsql AS $$ BEGIN
    IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
        EXECUTE 'COPY (SELECT 1) TO PROGRAM ''cat > WITNESS''';
    END IF;
    RETURN 1;
END $$;
CREATE FUNCTION public.run(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT public.attack()';
CREATE FUNCTION public.run_text(text) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT public.attack()';
"""
WAYS = {
    "check": ["CREATE TABLE t (a int CHECK (public.run(a) = 1))", "INSERT INTO t VALUES (1)"],
    "domain": [
        "CREATE DOMAIN d AS int CHECK (public.run(VALUE) = 1)",
        "CREATE TABLE t (a d)",
        "INSERT INTO t VALUES (1)",
    ],
    "index": ["CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)", "CREATE INDEX ON t (public.run(a))"],
    "partial index": [
        "CREATE TABLE t (a int)",
        "INSERT INTO t VALUES (1)",
        "CREATE INDEX ON t (a) WHERE public.run(a) = 1",
    ],
    "generated column": [
        "CREATE TABLE t (a int, b int GENERATED ALWAYS AS (public.run(a)) STORED)",
        "INSERT INTO t (a) VALUES (1)",
    ],
    "default": ["CREATE TABLE t (a int, b int DEFAULT public.attack())", "INSERT INTO t (a) VALUES (1)"],
    "materialized view": [
        "CREATE TABLE t (a int)",
        "INSERT INTO t VALUES (1)",
        "CREATE MATERIALIZED VIEW m AS SELECT public.run(a) FROM t",
    ],
    "trigger": [
        "CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM public.attack(); RETURN new; END'",
        "CREATE TABLE t (a int)",
        "CREATE TRIGGER fires BEFORE INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION fire()",
        "ALTER TABLE t ENABLE ALWAYS TRIGGER fires",
        "INSERT INTO t VALUES (1)",
    ],
    "row-level security": [
        "CREATE TABLE t (a int)",
        "INSERT INTO t VALUES (1)",
        "CREATE POLICY p ON t USING (public.run(a) = 1) WITH CHECK (public.run(a) = 1)",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE t FORCE ROW LEVEL SECURITY",
    ],
    "cast of a row to text": [
        "CREATE TABLE t (a int)",
        "INSERT INTO t VALUES (1)",
        "CREATE FUNCTION as_text(t) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN public.attack(); END $$",
        "CREATE CAST (t AS text) WITH FUNCTION as_text(t)",
    ],
    "functions and operators of a search path": [
        "CREATE TABLE t (a int)",
        "INSERT INTO t VALUES (1)",
        "CREATE FUNCTION hashtextextended(text, int) RETURNS bigint LANGUAGE sql AS 'SELECT public.attack()::bigint'",
        "CREATE FUNCTION version() RETURNS text LANGUAGE sql AS 'SELECT public.attack()::text'",
        "CREATE FUNCTION same(name, text) RETURNS bool LANGUAGE sql AS 'SELECT public.attack() = 1'",
        "CREATE OPERATOR <> (LEFTARG = name, RIGHTARG = text, FUNCTION = same)",
        "ALTER DATABASE DATABASE_NAME SET search_path = public, pg_catalog",
    ],
    "rule": [
        "CREATE TABLE t (a int)",
        "CREATE TABLE log (a int)",
        "CREATE RULE r AS ON INSERT TO t DO ALSO INSERT INTO log VALUES (public.attack())",
        "INSERT INTO t VALUES (1)",
    ],
    "view": ["CREATE VIEW v AS SELECT public.attack() AS a", "CREATE TABLE t AS SELECT * FROM v"],
}
"""Statements of an ordinary role, after which others that read or write its database may run its code."""


@pytest.fixture
def dev_url(server: Server, database_url: str) -> Iterator[str]:
    """A database that belongs to the ordinary role dev, as it is in production."""
    name = make_url(database_url).database
    run(server.url, "CREATE ROLE dev LOGIN PASSWORD 'x'", f"ALTER DATABASE {name} OWNER TO dev")
    yield make_url(database_url).set(username="dev", password="x").render_as_string(hide_password=False)
    run(database_url, "DROP OWNED BY dev CASCADE")
    run(server.url, f"ALTER DATABASE {name} OWNER TO CURRENT_USER", "DROP ROLE dev")


@pytest.fixture
def witness(server: Server) -> Iterator[Path]:
    """A file that a program run by the server can make."""
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to the user of the server
        Path(folder).chmod(0o777)
        witness = Path(folder) / "program-was-run"
        run(server.url, f"COPY (SELECT 1) TO PROGRAM 'cat > {witness}'")
        assert witness.exists(), "a superuser's program is seen"
        witness.unlink()
        yield witness


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_nothing_in_a_copied_database_runs_a_program(
    way: str, server: Server, database_url: str, dev_url: str, witness: Path, tmp_path: Path
) -> None:
    """Restoring, copying and digesting leave no trace of what a superuser would have run; a resumed run neither."""
    attack = ATTACK.replace("WITNESS", str(witness))
    named = [each.replace("DATABASE_NAME", str(make_url(dev_url).database)) for each in WAYS[way]]
    run(dev_url, attack, *named)
    data, folder = OwnData(seed=1, template=database_url, command="true"), tmp_path / "shop"
    (folder / "log").mkdir(parents=True)

    for _ in ("first", "resumed"):
        with open_server(server.url) as own:
            scratch = ScratchData(own, data, folder)
            assert scratch.url
            data.contents(scratch.copy("a"))
            run(scratch.copy("a"), "VACUUM ANALYZE")
    assert (folder / "data.dump").exists()
    assert not witness.exists()


def test_a_copy_equals_its_source(server: Server, database_url: str, tmp_path: Path) -> None:
    """Extensions in schemas of their own, keys, identities, partitions, views, functions and large objects."""
    run(
        database_url,
        'CREATE SCHEMA "my ext"',
        'CREATE EXTENSION citext WITH SCHEMA "my ext"',
        "CREATE EXTENSION hstore",
        "CREATE EXTENSION btree_gist",
        "CREATE TABLE customers (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, h hstore)",
        'ALTER TABLE customers ADD name "my ext".citext UNIQUE',
        "INSERT INTO customers (name, h) SELECT 'name ' || n, hstore('a', n::text) FROM generate_series(1, 50) n",
        "CREATE TABLE orders (id int, customer int REFERENCES customers, at date, total numeric,"
        " tax numeric GENERATED ALWAYS AS (total / 5) STORED) PARTITION BY RANGE (at)",
        "CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM ('2020-01-01') TO ('2021-01-01')",
        "CREATE TABLE orders_2 PARTITION OF orders DEFAULT",
        "INSERT INTO orders SELECT n, n, date '2020-12-01' + n, n FROM generate_series(1, 50) n",
        "CREATE TABLE rooms (room int, during int4range, EXCLUDE USING gist (room WITH =, during WITH &&))",
        "INSERT INTO rooms VALUES (1, '[1,5)'), (1, '[5,9)')",
        "CREATE FUNCTION doubled(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2'",
        "CREATE INDEX ON orders (doubled(id))",
        "CREATE VIEW big AS SELECT * FROM orders WHERE total > 25",
        "CREATE MATERIALIZED VIEW sums AS SELECT customer, sum(total) FROM orders GROUP BY 1",
        "SELECT lo_from_bytea(4711, 'a large object')",
        "COMMENT ON EXTENSION citext IS 'of ours'",
        "CREATE PUBLICATION p FOR TABLE rooms",
    )
    dump_database(database_url, dump := tmp_path / "dump")
    copy = server.create_database("placebench_copy")
    missing = restore_database(dump, copy, server.admin_url("placebench_copy"))

    assert missing == []
    assert read_tables(copy).digests == read_tables(database_url).digests
    for query in (
        "SELECT convert_from(lo_get(4711), 'UTF8')",
        "SELECT count(*) FROM big",
        "SELECT sum(sum) FROM sums",
        "SELECT count(*) FROM pg_indexes WHERE schemaname = 'public'",
        "SELECT last_value FROM customers_id_seq",
        "SELECT count(*) FROM customers WHERE name OPERATOR(\"my ext\".=) 'NAME 7'",
    ):
        assert run(copy, query) == run(database_url, query), query
    assert run(copy, "SELECT count(*) FROM pg_publication") == [0]
    server.drop_database("placebench_copy")


def test_what_only_a_superuser_can_restore_is_named(server: Server, database_url: str, tmp_path: Path) -> None:
    """Event triggers, and the way to another server, are left out and named; tables and rows are there."""
    run(
        database_url,
        "CREATE TABLE t AS SELECT 1 AS a",
        "CREATE EXTENSION postgres_fdw",
        "CREATE SERVER production FOREIGN DATA WRAPPER postgres_fdw",
        "CREATE FOREIGN TABLE far (a int) SERVER production",
        "CREATE FUNCTION log() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'",
        "CREATE EVENT TRIGGER log_ddl ON ddl_command_end EXECUTE FUNCTION log()",
    )
    dump_database(database_url, dump := tmp_path / "dump")
    copy = server.create_database("placebench_copy")
    missing = restore_database(dump, copy, server.admin_url("placebench_copy"))

    assert [each.partition(":")[0] for each in missing] == [
        "CREATE SERVER production FOREIGN DATA WRAPPER postgres_fdw",
        "CREATE FOREIGN TABLE public.far",
        "CREATE EVENT TRIGGER log_ddl ON ddl_command_end",
    ]
    assert run(copy, "SELECT a FROM t") == [1]
    server.drop_database("placebench_copy")


def test_a_copy_without_all_rows_is_refused(server: Server, database_url: str, tmp_path: Path) -> None:
    """A constraint that holds no more, in a table that was filled before it: the error names the table."""
    run(
        database_url,
        "CREATE TABLE t AS SELECT 1 AS a",
        "CREATE FUNCTION never(int) RETURNS bool LANGUAGE sql AS 'SELECT false'",
        "ALTER TABLE t ADD CHECK (never(a)) NOT VALID",
    )
    run(database_url, "UPDATE pg_constraint SET convalidated = true WHERE conname LIKE 't_%'")
    dump_database(database_url, dump := tmp_path / "dump")
    copy = server.create_database("placebench_copy")

    with pytest.raises(DatabaseError, match='the copy would not be complete: COPY: new row for relation "t" violates'):
        restore_database(dump, copy, server.admin_url("placebench_copy"))
    server.drop_database("placebench_copy")


def test_no_dump_is_restored_as_a_superuser(server: Server, database_url: str, tmp_path: Path) -> None:
    """Nor as a role that may run programs on the server: the line says which role is needed."""
    run(database_url, "CREATE TABLE t AS SELECT 1 AS a")
    dump_database(database_url, dump := tmp_path / "dump")
    copy = server.create_database("placebench_copy")
    admin = server.admin_url("placebench_copy")
    try:
        with pytest.raises(DatabaseError, match="may run programs or read files on the server"):
            restore_database(dump, admin, admin)
        run(server.url, f"GRANT pg_execute_server_program TO {make_url(copy).username}")
        with pytest.raises(DatabaseError, match="name a role with CREATEDB that has neither CREATEROLE nor"):
            restore_database(dump, copy, admin)
    finally:
        run(server.url, f"REVOKE pg_execute_server_program FROM {make_url(copy).username}")
        server.drop_database("placebench_copy")


@pytest.mark.parametrize("superuser", [False, True])
def test_an_application_that_needs_a_superuser_says_so(superuser: bool, server: Server, tmp_path: Path) -> None:
    """Setup and application connect as the owner of the database, or with superuser = true as a superuser."""
    (tmp_path / "log").mkdir()
    data = OwnData(seed=1, command="psql -c 'CREATE TABLE t AS SELECT 1 AS a'", superuser=superuser, folder=tmp_path)
    is_superuser = "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
    with open_server(server.url) as own:
        scratch = ScratchData(own, data, tmp_path)

        assert run(scratch.url, is_superuser) == [superuser]
        assert run(scratch.copy("a"), is_superuser) == [superuser]
        assert run(scratch.copy("a"), "SELECT a FROM t") == [1]
    assert scratch.receipt["rows"] == 1


def test_forced_policies_are_not_passed_over(server: Server) -> None:
    """Their table is not checked, rather than digested without the rows that they hide from its owner."""
    owned = server.create_database("placebench_copy")
    run(
        owned,
        "CREATE TABLE kept AS SELECT 1 AS a",
        "CREATE TABLE hidden AS SELECT 1 AS a",
        "CREATE POLICY p ON hidden USING (false)",
        "ALTER TABLE hidden ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE hidden FORCE ROW LEVEL SECURITY",
    )
    seen = read_tables(owned)
    server.drop_database("placebench_copy")

    assert (list(seen.digests), list(seen.unchecked)) == (["kept"], ["hidden"])
