"""Any text is read in time and memory that grow with it, and nothing that may be a value stays in a recording."""

import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placebench.profiler.capture.auto_explain import PlanFeed
from placebench.profiler.capture.driver_recorder import _PING
from placebench.profiler.model.shortened_sql import one_line, query_summary, shortened
from placebench.profiler.model.sql_tokens import redacted, sql_tokens, with_numbered_placeholders
from placebench.profiler.model.statement_facts import statement_facts

DIALECTS = ("postgresql", "sqlite", "mysql", "mariadb", "oracle", "mssql", "some other", None)

# Texts of some n characters, each of which took exponential or quadratic time, or a mark in memory per character, in
# some form that a pattern for SQL has had.
SHAPES: dict[str, Callable[[int], str]] = {
    "blanks and a comment": lambda n: "\n" + " " * n + "# load the orders\n SELECT 1",
    "blanks": lambda n: " " * n,
    "brackets": lambda n: "(" * n,
    "square brackets": lambda n: "[" * n,
    "quotes": lambda n: "'" * n,
    "double quotes": lambda n: '"' * n,
    "backticks": lambda n: "`a" * (n // 2),
    "a literal": lambda n: "select '" + "x" * n + "'",
    "doubled quotes": lambda n: "select '" + "''" * (n // 2),
    "escaped quotes": lambda n: "select E'" + "\\'" * (n // 2),
    "backslashes": lambda n: "select '" + "\\" * n,
    "dollar quotes": lambda n: "select $a$" + "$a" * (n // 2),
    "q quotes": lambda n: "q'a" * (n // 3),
    "nested comments": lambda n: "/*" * (n // 2),
    "comments": lambda n: "/* a */ " * (n // 8),
    "dashes": lambda n: "-" * n,
    "hashes": lambda n: "#" * n,
    "a long list": lambda n: "select 1 where a in (" + "?, " * (n // 3) + "now())",
    "a list of casts": lambda n: "select 1 where a in (" + "?::int, " * (n // 8) + "?)",
    "nested lists": lambda n: "in (" * (n // 4),
    "nested arrays": lambda n: "array[" * (n // 6) + "x",
    "rows": lambda n: "insert into t values " + "(1, 'a'), " * (n // 10),
    "many writes": lambda n: "update a;" * (n // 9),
    "a write with many words": lambda n: "with a as (update " + "x " * (n // 2),
    "dots": lambda n: "select a from a" + ".a" * (n // 2),
    "digits": lambda n: "1" * n,
    "exponents": lambda n: "1e" * (n // 2),
    "a word": lambda n: "a" * n,
    "percent signs": lambda n: "%(" * (n // 2),
    "set_config": lambda n: "select set_config( " * (n // 18),
    "settings": lambda n: "set a.b to " + "c, " * (n // 3),
    "settings without a value": lambda n: "set " * (n // 4),
    "arguments": lambda n: "exec p " + "a, " * (n // 3),
    "brackets with quotes": lambda n: "['a" * (n // 3) + "]",
    "comments that are executed": lambda n: "/*!a*/*" * (n // 7),
    "lists that were cut": lambda n: "(?,?,?,?,x" * (n // 10) + ")",
}


def _read(sql: str, dialect: str | None) -> None:
    statement_facts(sql, dialect)
    redacted(sql, dialect)
    if len(sql) < 100_000:  # the others stop before the end of a long text
        query_summary(sql, dialect)
        shortened(sql, 160)
    _PING.match(sql)


def _cpu_seconds(sql: str, dialect: str | None) -> float:
    """The seconds of this thread alone, so that a busy machine changes little."""
    began = time.thread_time()
    _read(sql, dialect)
    return time.thread_time() - began


def _grows_linearly(shape: Callable[[int], str], dialect: str | None, small: int, large: int) -> bool:
    """Whether a text of *large* characters takes at most three times its share; quadratic growth has no good day."""
    for attempt in range(5):  # another text each time, which is not remembered
        ratio = large / small
        seconds = [_cpu_seconds(shape(size + 64 * attempt), dialect) for size in (small, large)]
        if seconds[1] < 0.05 or seconds[1] < 3 * ratio * seconds[0]:
            return True
    return False


@pytest.mark.parametrize("dialect", ["postgresql", "sqlite", "mysql", "oracle", "mssql", None])
def test_time_grows_with_the_text(dialect: str | None) -> None:
    """Eight times the text takes some eight times as long, whatever it consists of, and not sixty-four times."""
    slow = [name for name, shape in SHAPES.items() if not _grows_linearly(shape, dialect, 2_000, 16_000)]

    assert slow == []


@pytest.mark.parametrize(("name", "dialect"), list(zip(SHAPES, DIALECTS * 5, strict=False)))
def test_a_long_text_takes_its_share_of_time(name: str, dialect: str | None) -> None:
    """Each shape at 104,000 characters, with one of the dialects."""
    assert _grows_linearly(SHAPES[name], dialect, 13_000, 104_000)


@pytest.fixture
def allocations() -> Iterator[None]:
    """Around code whose memory is counted."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("literal", ["x", "''", "\\\\"])
@pytest.mark.usefixtures("allocations")
def test_a_literal_of_a_megabyte_needs_a_few_copies_of_itself(literal: str) -> None:
    """A pattern that keeps a mark for each character would need two hundred megabytes."""
    sql = f"select '{literal * (1_000_000 // len(literal))}'"
    tracemalloc.reset_peak()

    for dialect in ("postgresql", "mysql", None):
        _read(sql, dialect)

    assert tracemalloc.get_traced_memory()[1] < 6 * len(sql)


@pytest.mark.usefixtures("allocations")
def test_long_texts_are_not_kept() -> None:
    """Of 20 different texts of 330 kB no more is remembered than what was found out."""
    literals = ", ".join(f"'{number:033}'" for number in range(9_000))
    statement_facts("select 1")
    before = tracemalloc.get_traced_memory()[0]

    for number in range(20):
        sql = f"select * from t where a = {number} and id in ({literals})"
        statement_facts(sql, "sqlite")
        redacted(sql[:4000], "sqlite")

    del sql
    assert tracemalloc.get_traced_memory()[0] - before < 2_000_000


def test_a_plan_is_found_in_linear_time() -> None:
    """Neither a message that only looks like one nor a statement of a megabyte in it is searched again and again."""
    feed = PlanFeed()
    feed.enabled = True
    for size in (10_000, 1_000_000):
        assert not feed.offer("duration: 1 ms  plan: {" * (size // 23))
        assert feed.offer(f'duration: 1.5 ms  plan:\n{{"Query Text": "{"x" * size}"}}\n')
    assert [milliseconds for milliseconds, _ in feed.take()] == [1.5, 1.5]


PARTS = (
    """ ' '' \\ \\' " "" $ $a$ -- /* */ /*!1 # a E' q'[ ] [ ( ) , ? %s 1 1e select in values from ` . : :: \x00 é """
)
TRICKY = st.lists(st.sampled_from([*PARTS.split(" "), "\n", " "]), max_size=30).map("".join)


@given(TRICKY | st.text(max_size=100), st.sampled_from(DIALECTS))
def test_the_tokens_are_the_text(sql: str, dialect: str | None) -> None:
    """Whatever the text is, nothing of it is lost and nothing is added."""
    assert "".join(text for _, text in sql_tokens(sql, dialect)) == sql


@given(TRICKY | st.text(max_size=100), st.sampled_from(DIALECTS))
def test_any_text_can_be_read(sql: str, dialect: str | None) -> None:
    """However broken it is, it has its facts and can be shown."""
    assert len(statement_facts(sql, dialect).fingerprint) == 16
    assert len(query_summary(sql, dialect)) <= 255
    assert "\n" not in one_line(redacted(sql, dialect))


SECRET = "s3cret"
VALUES = {
    # Of all databases.
    "'s3cret'": DIALECTS,
    "'it''s s3cret'": DIALECTS,
    "'s3cret": DIALECTS,
    "N'it''s s3cret'": DIALECTS,
    "X'533363s3cret'": DIALECTS,
    "E'it\\'s s3cret'": ("postgresql", "mysql", "mariadb", None),
    "0x5333s3cret": DIALECTS,
    "/* 's3cret' */ 1": DIALECTS,
    "1 -- it's s3cret\n": DIALECTS,
    # Of some, and so of one that is not known.
    "'it\\'s s3cret'": ("mysql", "mariadb", None),
    '"s3cret"': ("sqlite", "mysql", "mariadb", None),
    '"it\'s s3cret"': ("sqlite", "mysql", "mariadb", None),
    '"a\\" s3cret"': ("mysql", "mariadb", None),
    '"it""s s3cret': ("sqlite", "mysql", "mariadb", None),
    "1 # it's s3cret\n": ("mysql", "mariadb", None),
    "/*!50000 's3cret' */": ("mysql", "mariadb", None),
    "/*!50000 'a*/ s3cret' */": ("mysql", "mariadb"),
    "--'a\ns3cret'": ("mysql", "mariadb", None),
    "_utf8mb4's3cret'": ("mysql", "mariadb", None),
    "/* a /* b */ s3cret */ 1": ("postgresql", "mssql", None),
    "$$it's s3cret$$": ("postgresql", None),
    "$tag$it's $$ s3cret$tag$": ("postgresql", None),
    "$tag$it's s3cret": ("postgresql", None),
    "U&'s3cret' UESCAPE '!'": ("postgresql", None),
    "B's3cret'": ("postgresql", "mysql", None),
    "q'[it's s3cret]'": ("oracle", None),
    "nq'!it's s3cret!'": ("oracle", None),
    "q'xit's s3cretx'": ("oracle", None),
}


@pytest.mark.parametrize("place", ["a = {}", "a in (1, {}, 2)", "f({})", "a between 1 and {}", "b.c like {}"])
@pytest.mark.parametrize("value", VALUES)
def test_values_are_left_out(value: str, place: str) -> None:
    """In each dialect that has them, and where the dialect is not known."""
    sql = f"select t.a from t where {place.replace('{}', value)}"

    for dialect in VALUES[value]:
        assert SECRET not in redacted(sql, dialect), dialect
        assert SECRET not in query_summary(sql, dialect), dialect


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("select a from t where card = 4111_1111_1111_1111 and b = .5e-3", "select a from t where card = ? and b = ?"),
        ("insert into t values (1, 'a'), (0b101, x'00')", "insert into t values (?, ?), (?, ?)"),
        ("PRAGMA key = s3cret", "PRAGMA key = ?"),
        ('PRAGMA main.hexkey("s3cret")', "PRAGMA main.hexkey(?)"),
        ("select 2fa.1st from 2fa where n = 1e5", "select 2fa.1st from 2fa where n = ?"),
        ('CREATE USER u IDENTIFIED WITH x AS "s3cret"', "CREATE USER u IDENTIFIED WITH x AS ?"),
        ('GRANT SELECT ON d.* TO u IDENTIFIED BY "s3cret"', "GRANT SELECT ON d.* TO u IDENTIFIED BY ?"),
        ('SELECT trim("s3cret" FROM "s3cret2") FROM t', "SELECT trim(? FROM ?) FROM t"),
        ('SELECT a FROM t WHERE a IS NOT "s3cret"', "SELECT a FROM t WHERE a IS NOT ?"),
        ("SELECT /*!40001 a */*'s3cret*/' /* s3cret */", "SELECT /*!40001 a */*? /* ? */"),
        ("SELECT 2/*a*/*3*/*s3cret*/4", "SELECT ?/* ? */*?*/* ? */?"),
        ('SELECT "s3cret" .5', "SELECT ? ?"),
        ("PREPARE p FROM \"SELECT 's3cret'\"", "PREPARE p FROM ?"),
    ],
)
def test_what_is_left_out_of_other_places(sql: str, shown: str) -> None:
    """Numbers of all forms, keys of SQLCipher, passwords of accounts; not a name that begins with a digit."""
    assert redacted(sql, "mysql") == shown


def test_a_literal_may_follow_a_number() -> None:
    """Its prefix is not part of the number, whose end decides where the literal ends."""
    assert redacted(r"select 1E'\'s3cret', 2 from t", "postgresql") == "select ??, ? from t"


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("select [a'b] 's3cret'", "select ?"),
        ("select [a`b] 's3cret' [c`d]", "select ?"),
        ("select a['k'], ARRAY['s3cret', 'it''s'] from t", "select a[?], ARRAY[?, ?] from t"),
    ],
)
def test_a_quote_between_brackets_of_an_unknown_dialect(sql: str, shown: str) -> None:
    """It may belong to a name, or begin a literal: what follows may be either. Two quotes belong to a literal."""
    assert redacted(sql) == shown


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("CREATE USER u IDENTIFIED BY s3cret ACCOUNT LOCK", "CREATE USER u IDENTIFIED BY ? ACCOUNT LOCK"),
        ('alter user u identified by "s3cret" replace s3cret', "alter user u identified by ? replace ?"),
        (
            "CREATE DATABASE LINK l CONNECT TO u IDENTIFIED BY s3cret",
            "CREATE DATABASE LINK l CONNECT TO u IDENTIFIED BY ?",
        ),
        ("SET app.token = s3cret", "SET app.token = ?"),
        ("/* a */ SET LOCAL app.token TO s3cret; SELECT a", "/* ? */ SET LOCAL app.token TO ?; SELECT a"),
        ("-- a\nPRAGMA key = s3cret", "-- ?\nPRAGMA key = ?"),
        ("UPDATE t SET a.b = c.d", "UPDATE t SET a.b = c.d"),
        ("UPDATE t\nSET a.b = c.d", "UPDATE t\nSET a.b = c.d"),
        ("SET search_path TO tenant, public", "SET search_path TO tenant, public"),
        ("SET SESSION my.token TO s3cret", "SET SESSION my.token TO ?"),
        ("BEGIN; SET my.token = s3cret; COMMIT", "BEGIN; SET my.token = ?; COMMIT"),
        ("SET application_name = s3cret", "SET application_name = ?"),
        ("SET LOCAL enable_seqscan = off", "SET LOCAL enable_seqscan = off"),
        ("SET TIME ZONE utc; SET ROLE jane", "SET TIME ZONE utc; SET ROLE jane"),
        ("ALTER ROLE r IN DATABASE d SET my.token TO s3cret", "ALTER ROLE r IN DATABASE d SET my.token TO ?"),
        ("ALTER SYSTEM SET my.token = s3cret", "ALTER SYSTEM SET my.token = ?"),
        ("ALTER DATABASE d SET log_line TO s3cret", "ALTER DATABASE d SET log_line TO ?"),
        (
            "CREATE FUNCTION f() RETURNS int SET a.b TO s3cret STABLE AS 'f'",
            "CREATE FUNCTION f() RETURNS int SET a.b TO ? STABLE AS ?",
        ),
        ("ALTER TABLE t ALTER COLUMN a SET DEFAULT b", "ALTER TABLE t ALTER COLUMN a SET DEFAULT b"),
        ("SET PASSWORD FOR jane = s3cret", "SET PASSWORD FOR jane = ?"),
        ("SET a.b = (SELECT c FROM d)", "SET a.b = (SELECT c FROM d)"),
        ("ATTACH 'file' AS d KEY s3cret", "ATTACH ? AS d KEY ?"),
        ("PRAGMA main.rekey(s3cret)", "PRAGMA main.rekey(?)"),
        ("PRAGMA journal_mode = wal", "PRAGMA journal_mode = wal"),
    ],
)
def test_passwords_and_settings_that_are_words(sql: str, shown: str, dialect: str | None) -> None:
    """Passwords, settings of an application and keys of SQLCipher need no quotes; columns and switches stay.

    The fingerprint, from which a short word could be guessed, does not depend on them either.
    """
    assert redacted(sql, dialect) == shown
    other = statement_facts(sql.replace("s3cret", "another"), dialect)
    assert statement_facts(sql, dialect).fingerprint == other.fingerprint


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("SET @a = s3cret, @b := s3cret", "SET @a = ?, @b := ?"),
        ("SET GLOBAL a = s3cret, SESSION b = ON", "SET GLOBAL a = ?, SESSION b = ON"),
        ("SET @@session.time_zone = utc, @@global.a = s3cret", "SET @@session.time_zone = utc, @@global.a = ?"),
        ("SET PASSWORD FOR jane@localhost = s3cret", "SET PASSWORD FOR jane@localhost = ?"),
        ("SET NAMES utf8mb4", "SET NAMES utf8mb4"),
    ],
)
def test_variables_of_mysql(sql: str, shown: str) -> None:
    """Several in one statement; names of variables stay."""
    assert redacted(sql, "mysql") == shown


@pytest.mark.parametrize("dialect", ["mssql", None])
@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("EXEC p s3cret", "EXEC p ?"),
        ("exec dbo.p s3cret, @a = s3cret, @b = @c OUTPUT", "exec dbo.p ?, @a = ?, @b = @c OUTPUT"),
        ("EXEC @r = dbo.p s3cret SELECT a FROM t", "EXEC @r = dbo.p ? SELECT a FROM t"),
        ("INSERT INTO t EXECUTE p s3cret EXEC q s3cret", "INSERT INTO t EXECUTE p ? EXEC q ?"),
        ("sp_addlogin jane, s3cret", "sp_addlogin ?, ?"),
        ("EXEC p; SELECT a FROM t", "EXEC p; SELECT a FROM t"),
        ("GRANT EXECUTE ON p TO jane", "GRANT EXECUTE ON p TO jane"),
        ("EXECUTE f(a)", "EXECUTE f(a)"),
    ],
)
def test_arguments_of_procedures(sql: str, shown: str, dialect: str | None) -> None:
    """A word is a string there in T-SQL; what may be a call of T-SQL is one where the dialect is not known."""
    assert redacted(sql, dialect) == shown


NAMES = [
    'SELECT "shop_order"."id", "shop_order"."total" AS "sum" FROM "shop_order" INNER JOIN "c" ON ("a"."b" = "c"."id")',
    'INSERT INTO "shop_order" ("a", "b") VALUES (%s, %s) ON CONFLICT ("a") DO UPDATE SET "b" = excluded."b"',
    'UPDATE "shop_order" SET "a" = %s, "b" = %s WHERE "shop_order"."id" IN (%s, %s)',
    'DELETE FROM "main"."shop_order" WHERE "shop_order"."id" = %s',
    'CREATE TABLE "t" ("id" integer NOT NULL PRIMARY KEY, "b" text REFERENCES "u" ("id"), UNIQUE ("id", "b"))',
    'CREATE UNIQUE INDEX "i" ON "t" ("a", "b")',
    'WITH RECURSIVE "c" ("a") AS (SELECT "t"."a" FROM "t") SELECT "c"."a" FROM "c"',
    'ALTER TABLE "t" ADD COLUMN "b" integer',
]
PERHAPS_NAMES = [
    'SELECT DISTINCT "a", "b" FROM "t" WHERE "a" = %s AND NOT "b" ORDER BY "a" DESC, "b" LIMIT %s',
    'SELECT "a" FROM "t" GROUP BY "a", "b" HAVING "a" > %s',
    'INSERT INTO "t" ("a") VALUES (%s) RETURNING "id", "a"',
    'ALTER TABLE "t" RENAME COLUMN "a" TO "b"',
]


@pytest.mark.parametrize("sql", NAMES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_quoted_names_stay(sql: str, dialect: str | None) -> None:
    """As SQLAlchemy and Django write them, in every dialect: where no string may stand."""
    assert redacted(sql, dialect) == sql


@pytest.mark.parametrize("sql", PERHAPS_NAMES)
@pytest.mark.parametrize("dialect", ["postgresql", "sqlite", "oracle", "mssql"])
def test_quoted_names_stay_where_strings_are_not_expected(sql: str, dialect: str) -> None:
    """On SQLite in the columns of a SELECT, in its order, and at the beginning of a condition."""
    assert redacted(sql, dialect) == sql


@pytest.mark.parametrize("dialect", ["oracle", "mysql", None])
def test_passwords_that_are_names_are_left_out(dialect: str | None) -> None:
    """Oracle's are words or texts between double quotes; names that only look alike stay."""
    statement = 'ALTER USER shop IDENTIFIED /* new */ BY hunter2 REPLACE "Hunter1" ACCOUNT UNLOCK'

    assert redacted(statement, dialect) == "ALTER USER shop IDENTIFIED /* ? */ BY ? REPLACE ? ACCOUNT UNLOCK"
    assert redacted("SELECT identified FROM t ORDER BY name", dialect) == "SELECT identified FROM t ORDER BY name"


def test_numbered_placeholders_leave_the_rest_of_a_statement_as_it_is() -> None:
    """Operators of two characters stay together, a named placeholder has one number, and a redacted literal is one."""
    sql = "SELECT a::int FROM t WHERE b <> ? AND c >= :low AND d || e = ? AND f < :low"

    assert ("SELECT a::int FROM t WHERE b <> $1 AND c >= $2 AND d || e = $3 AND f < $2", 3) == (
        with_numbered_placeholders(sql)
    )
    assert ("SELECT a FROM t WHERE b >= ?1 LIMIT ?2", 2) == (
        with_numbered_placeholders("SELECT a FROM t WHERE b >= @low LIMIT ?", "sqlite", mark="?")
    )


@pytest.mark.parametrize(
    ("sql", "row_count", "expected"),
    [
        ("SELECT a FROM t WHERE b = %s ORDER BY c LIMIT ?", 20, "SELECT a FROM t WHERE b = $1 ORDER BY c LIMIT 20"),
        ("SELECT a FROM t LIMIT /* page */ %(n)s OFFSET ?", 0, "SELECT a FROM t LIMIT /* page */ 1 OFFSET $1"),
        ("SELECT a FROM t fetch first ? rows only", 5, "SELECT a FROM t fetch first 5 rows only"),
        ("SELECT a FROM t LIMIT ?", None, "SELECT a FROM t LIMIT $1"),
        ("SELECT a FROM (SELECT a FROM t LIMIT ?) t LIMIT ?", 5, "SELECT a FROM (SELECT a FROM t LIMIT $1) t LIMIT $2"),
        ("SELECT a FROM t ORDER BY c NULLS FIRST LIMIT ?", 5, "SELECT a FROM t ORDER BY c NULLS FIRST LIMIT 5"),
    ],
)
def test_the_rows_that_were_returned_stand_for_a_limit(sql: str, row_count: int | None, expected: str) -> None:
    """For a limit that is not known, PostgreSQL expects a tenth of all rows, and chooses another plan."""
    assert expected == with_numbered_placeholders(sql, row_count=row_count)[0]
