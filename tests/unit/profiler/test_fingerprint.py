"""Fingerprints: the same for what differs only in values; and literals kept out of recordings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placebench.profiler.model.normalised_sql import normalised
from placebench.profiler.model.shortened_sql import one_line, query_summary, shortened
from placebench.profiler.model.sql_tokens import redacted
from placebench.profiler.model.statement_facts import statement_facts

SAME = [
    ("select a from t where b = 1", "SELECT a  FROM t\n WHERE b=2"),
    ("select 'it''s'", "select 'x'"),
    ("select E'a\\'b' from t", "select 'c' from t"),
    ("select $q$it's$q$", "select 'x'"),
    ('select * from t where a = "x"', "select * from t where a = 'y'"),
    ("select 1 -- one\nfrom t", "select 2 /* two */ from t"),
    ("select 1 /*route='/a'*/", "select 1"),
    ("select a from t where b in (1)", "select a from t where b in (1, 2, -3)"),
    ("select a from t where b in (%(b_1)s, %(b_2)s)", "select a from t where b in (%(b_1)s)"),
    ("select a from t where b IN (__[POSTCOMPILE_b_1])", "select a from t where b IN (%(b_1_1)s, %(b_1_2)s)"),
    ("insert into t values (1, 'a')", "insert into t values (2, 'b'), (3, 'c'), (4, 'd')"),
    ("select :a::int", "select :b::int"),
    ("select 1.5e3", "select .5"),
    ("select a from t where b in (%s::uuid)", "select a from t where b in (%s::uuid, %s::uuid, %s)"),
    ("select a from t where b in ($1::INTEGER)", "select a from t where b in ($1::INTEGER, $2::INTEGER)"),
    ("select a from t where b in (NULL, 1)", "select a from t where b in (1, true, null)"),
    (
        "select a from t where b in (DATE '2026-01-01')",
        "select a from t where b in (date '2026-01-01', DATE '2026-01-02')",
    ),
    (
        "select a from t where b in (cast(? as uuid))",
        "select a from t where b in (cast(? as uuid), cast(? as numeric(10, 2)))",
    ),
    ("select a from t where b in (?::double precision[])", "select a from t where b in ('a'::s.t, +2)"),
    ("select a from t where (b, c) in ((1, 2))", "select a from t where (b, c) in ((1, 2), (3, 4))"),
    ("select a from t where b = any(array[1])", "select a from t where b = any(ARRAY[1, 2])"),
    ("select array[[1, 2], [3, 4]]", "select array[1]"),
    ("insert into t values (%s::int, 1)", "insert into t values (%s::int, null), (2, DATE '2026-01-01')"),
    ("insert into t values (1, now())", "insert into t values (1, now()), (2, now())"),
    ("values (1, (2), f(3)), (1, 2, 3)", "values (1, (2), f(3)), (1, (2), f(3)), (1, 2, 3)"),
]

DIFFERENT = [
    ("select a from t", "select b from t"),
    ('select a from "T"', 'select a from "t"'),
    ("select a from t where b in (1)", "select a from t where b = 1"),
    ("select a from t where b in (c, d)", "select a from t where b in (c)"),
    ("select f(1, 2)", "select f(1)"),
    ("select f(1, 2, 3, 4)", "select f(1, 2, 3)"),
    ("select a from t where b in (lower('a'), lower('b'))", "select a from t where b in (lower('a'))"),
    ("select a from t where b in (select 'a')", "select a from t where b in ('a')"),
    ("select a from t where b in (1, 2, c)", "select a from t where b in (1, c)"),
    ("select a from t where b in (1, 2, 3, c)", "select a from t where b in (1, 2, c)"),
    ("select a[1]", "select a[1, 2]"),
    ("insert into t values (1, 2)", "insert into t values (1)"),
    ("insert into t values (1, a)", "insert into t values (1, a), (1, b)"),
    ("select a from t1", "select a from t2"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_values_comments_case_and_list_lengths_do_not_count(one: str, other: str) -> None:
    """Both texts are the same statement."""
    assert statement_facts(one).fingerprint == statement_facts(other).fingerprint


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_names_and_shape_count(one: str, other: str) -> None:
    """The texts are different statements."""
    assert statement_facts(one).fingerprint != statement_facts(other).fingerprint


def test_a_list_of_a_thousand_is_one_placeholder() -> None:
    """The normalised text does not grow with the list."""
    values = ", ".join(f"%(id_{number})s" for number in range(1000))

    assert normalised(f"SELECT x FROM t WHERE id IN ({values})") == "select x from t where id in ( ? )"


def test_a_fingerprint_is_sixteen_digits_and_stable() -> None:
    """Recordings of different processes can be compared."""
    assert statement_facts("select 1").fingerprint == "b9a4c90ce4157373"


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("select * from t where name = 'secret' and n = 42", "select * from t where name = ? and n = ?"),
        ("select * from t1 where a = %(a_1)s and b = $2", "select * from t1 where a = %(a_1)s and b = $2"),
        ("select date'2026-01-01', E'a\\'b'", "select date?, ?"),
        ('select "t"."col 1" from "t"', 'select "t"."col 1" from "t"'),
        ("select 'cut off in the mid", "select ?"),
        ("select /*+ SeqScan(t) */ a -- 'x'\nfrom t /* 1 */", "select /*+ SeqScan(t) */ a -- ?\nfrom t /* ? */"),
    ],
)
def test_literals_are_redacted_and_names_and_placeholders_are_not(sql: str, shown: str) -> None:
    """What may be a secret is a question mark."""
    assert redacted(sql) == shown


@given(st.text(max_size=200))
def test_any_text_has_a_fingerprint(sql: str) -> None:
    """No text, however broken, raises."""
    assert len(statement_facts(sql).fingerprint) == 16


@given(st.text(alphabet=st.characters(exclude_characters="\x00"), max_size=40))
def test_no_string_literal_survives(secret: str) -> None:
    """Whatever stands between quotes is gone from the redacted text."""
    literal = secret.replace("'", "''")

    assert redacted(f"select '{literal}' from t", "postgresql") == "select ? from t"


@pytest.mark.parametrize(
    ("sql", "step"),
    [
        ("SAVEPOINT sa_savepoint_1", "SAVEPOINT"),
        ("RELEASE SAVEPOINT sa_savepoint_1", "RELEASE"),
        ("ROLLBACK TO SAVEPOINT sa_savepoint_1", "ROLLBACK TO"),
        ("ROLLBACK WORK TO SAVEPOINT x", "ROLLBACK TO"),
        ("rollback;", "ROLLBACK"),
        ("COMMIT", "COMMIT"),
        ("start transaction read only", "BEGIN"),
        ("prepare transaction 'x'", "PREPARE"),
        ("prepare x as select 1", None),
        ("\n    COMMIT", "COMMIT"),
        (" commit", "COMMIT"),
        ("/* x */ COMMIT;", "COMMIT"),
        ("-- rollback\nEND", "COMMIT"),
        ("ABORT;", "ROLLBACK"),
        ("  start\ttransaction", "BEGIN"),
        ("\nBEGIN IMMEDIATE", "BEGIN"),
        ("begin;", "BEGIN"),
        ("begin pkg.refresh(1); end;", None),
        ("end loop", None),
        ("begin; select 1; commit", None),
        ("commit;; -- done", "COMMIT"),
        ("start slave", None),
        ("/* commit */ select 1", None),
        ("select 1", None),
        ("", None),
    ],
)
def test_transaction_steps_are_told_from_statements(sql: str, step: str | None) -> None:
    """By their first words, SQLAlchemy's own savepoints and hand-written ones alike."""
    assert statement_facts(sql).step == step


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        (
            'SELECT "u"."id",\n "u"."name", "u"."mail" FROM "u" WHERE "u"."id" = %s',
            'SELECT "u"."id", … FROM "u" WHERE "u"."…',
        ),
        ("select a, (select count(*) from b), c, d from t", "select a, … from t"),
        ("SELECT coalesce(a, b), c, d, e, f, g, h FROM t", "SELECT coalesce(a, b), … FROM t"),
        ("INSERT INTO t (a, b, c, d, e, f, g, h, i, j) VALUES", "INSERT INTO t (a, b, c, d, e, f, g, h, …"),
        ("SELECT a, b FROM t", "SELECT a, b FROM t"),
        ("SELECT a, b FROM t WHERE c = %s AND d=1;", "SELECT a, b FROM t WHERE c = %s AND d=1;"),
        ("SELECT 'a, b' || c, d, e, f, g, h, i FROM t", "SELECT 'a, b' || c, … FROM t"),
        ('SELECT "a, b", c, d, e, f, g, h, i, j FROM t', 'SELECT "a, b", … FROM t'),
        ("SELECT 'a(', b, c, d, e, f, g, h, i, j FROM t", "SELECT 'a(', … FROM t"),
        ('SELECT "it\'s", b, c, d, e, f, g, h, i, j FROM t', 'SELECT "it\'s", … FROM t'),
        ("SELECT 'a\"(', b, c, d, e, f, g, h, i, j FROM t", "SELECT 'a\"(', … FROM t"),
        ("INSERT INTO t (a, b) SELECT a, b, c, d FROM u", "INSERT INTO t (a, b) SELECT a, b, c, d …"),
        ("UPDATE t SET a = u.a, b = u.b, c = u.c FROM u", "UPDATE t SET a = u.a, b = u.b, c = u.c …"),
        ("SELECT count(*) FROM t WHERE a = %(a)s OR b = %(b)s", "SELECT count(*) FROM t WHERE a = %(a)s …"),
        ("SELECT pg_advisory_lock(%(first)s, %(second)s)", "SELECT pg_advisory_lock(%(first)s, %(se…"),
        ("SELECT a FROM t, u WHERE t.a = u.a AND u.b = 1", "SELECT a FROM t, u WHERE t.a = u.a AND …"),
        ('SELECT ")", extract(year FROM a), b FROM t', 'SELECT ")", … FROM t'),
        ("SELECT a), b, c, d, e, f, g, h, i, (j, k FROM t", "SELECT a), b, c, d, e, f, g, h, i, (j, …"),
        ("SELECT a, b), c, d, e, f, g, h, i, j, k FROM t", "SELECT a, b), c, d, e, f, g, h, i, j, k…"),
        ("SELECT f(a, extract(year FROM a, b, c FROM t", "SELECT f(a, extract(year FROM a, b, c F…"),
        ("SELECT 'a, extract(year FROM a), b, c FROM t", "SELECT 'a, extract(year FROM a), b, c F…"),
        ('SELECT "a, extract(year FROM a), b, c FROM t', 'SELECT "a, extract(year FROM a), b, c F…'),
    ],
)
def test_columns_are_left_out_before_tables_and_conditions(sql: str, shown: str) -> None:
    """Only where the statement is too long, and where it can be told which words are columns."""
    assert shortened(sql, 40) == shown


def test_a_long_list_is_short_for_eyes() -> None:
    """Even one that was cut in the middle; what is not a list stays."""
    assert one_line("select a\n from t where id in (%(a_1)s, %(a_2)s, %(a_3)s, %(a_4)s) and b = %(b)s") == (
        "select a from t where id in (%(a_1)s, …) and b = %(b)s"
    )
    assert one_line("select a from t where id in (?, ?, ?, ?, ?, %(cut") == "select a from t where id in (?, …)"
    assert one_line("select f(?, ?)") == "select f(?, ?)"


KINDS = [
    ("select 1", "read", None),
    ("/* view */ -- x\n  (SELECT a FROM t)", "read", None),
    ("select * from t for update", "read", None),
    ("with x as (select 'delete from t') select * from x", "read", None),
    ("with x as (delete from t returning *) select * from x", "delete", "t"),
    ('INSERT INTO public."Orders" VALUES (1)', "insert", "orders"),
    ("insert or ignore into t values (1)", "insert", "t"),
    ("update only t set a = 1", "update", "t"),
    ("DELETE FROM t", "delete", "t"),
    ("merge into t using s on true when matched then do nothing", "merge", "t"),
    ("create table t as select 1", "other", None),
    ("call f()", "other", None),
    ("XA COMMIT 'a'", "other", None),
    ("SELECT pg_advisory_unlock_all();\nCLOSE ALL;", "other", None),
    ("select ';a' from t; ", "read", None),
    ("PRAGMA foreign_keys = ON", "setting", ""),
    ("/* mlflow */ pragma main.cache_size(-2000);", "setting", ""),
    ("PRAGMA foreign_keys", "read", ""),
    ("PRAGMA main.table_xinfo('t')", "read", ""),
    ("SET LOCAL statement_timeout = 100", "setting", None),
    ("reset search_path", "setting", None),
    ("select set_config('app.tenant', %s, true)", "setting", None),
    # As asyncpg turns jit off before it looks up a type.
    ("SELECT\n current_setting('jit') AS cur,\n set_config('jit', $1, false) AS new", "setting", None),
    ("select name from set_config('app.tenant', 'a', true) as name", "read", None),
    ("select current_setting('app.tenant')", "read", None),
    ("SET search_path = a; INSERT INTO t VALUES (1)", "other", "t"),
    ("insert into t values (1); insert into u values (1)", "insert", None),
    ("with x as (select 1) select * from t for update", "read", None),
    ("select * from t for update skip locked", "read", None),
    ("with x as (select 1) select * from t for no key update skip locked", "read", None),
    ("with x as (select 1) select t.update, t.delete from t", "read", None),
    ("with x as (select 1) insert into s.T select * from x", "insert", "t"),
    ("with x as (select 1) (select 1)", "read", None),
    (";with x (a) as (select 1) update t set a = 1", "update", "t"),
    ("with recursive x as materialized (update t set a = 1 returning a), y as (select 1) select 1", "update", "t"),
    ("with x as (delete from t returning *) insert into u select * from x", "delete", None),
    ("with x as (delete from t returning *) insert into t select * from x", "delete", "t"),
    ("update t, u set t.a = u.a", "update", None),
    ("update t set a = 1, b = 2", "update", "t"),
    ("delete x from t as x", "delete", None),
    ("delete from t using u where t.a = u.a", "delete", "t"),
    ("update or ignore t set a = 1", "update", "t"),
    ("replace into t values (1)", "insert", "t"),
    ("create trigger x after insert on t begin update u set a = 1; end", "other", None),
    ("notify a", "other", ""),
    ("notify a; delete from t", "other", "t"),
    ("notify a; call f()", "other", None),
    ('\nCREATE LOCAL TEMP TABLE IF NOT EXISTS "Hides" (a int)', "other", "hides"),
    ("copy (select a\nfrom t) to stdout", "other", ""),
    ("copy t from stdin", "other", None),
    ("\n # load the orders\n SELECT 1", "read", None),
    ("", "other", None),
]


@pytest.mark.parametrize(("sql", "kind", "table"), KINDS)
def test_reads_are_told_from_writes(sql: str, kind: str, table: str | None) -> None:
    """By the first word, and after WITH by the writes in it, a setting by more; the table of a write is known."""
    facts = statement_facts(sql)

    assert (facts.kind, facts.table) == (kind, table)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM songs, artists AS a WHERE songs.id = 'x from y'", "SELECT songs artists"),
        ("INSERT INTO shipping (a, b) SELECT a, b FROM orders JOIN c ON x = y", "INSERT shipping SELECT orders c"),
        ("insert into t (a) values (?) on conflict do update set a = 1", "insert t"),
        ('UPDATE ONLY "public"."t" SET a = 1 WHERE b IN (SELECT id FROM x)', 'UPDATE "public"."t" SELECT x'),
        ("SELECT extract(year FROM d), a IS DISTINCT FROM b FROM t ORDER BY a, b FOR UPDATE", "SELECT t"),
        ("/* from a */ CREATE TABLE IF NOT EXISTS t (a int)", "CREATE t"),
        ("SELECT 1", "SELECT"),
        ("BEGIN", "BEGIN"),
        ("SELECT a FROM (SELECT b FROM x, y) AS z, w", "SELECT SELECT x y w"),
        ("SELECT f(a, b) FROM s.t, u.v AS w JOIN LATERAL g(x, y) ON true", "SELECT s.t u.v g"),
        ("WITH c AS (SELECT a FROM t) SELECT a FROM c WHERE a = b.c", "SELECT t SELECT c"),
        ("SELECT a FROM t WHERE b IN (1, 2) UNION SELECT c FROM `u`", "SELECT t SELECT `u`"),
        ("DELETE FROM t USING u WHERE t.a = u.a", "DELETE t"),
        ("INSERT INTO t VALUES (1, 2)", "INSERT t"),
        ("TRUNCATE TABLE a, b", "TRUNCATE a b"),
        ("call f(1)", "call f"),
        ("call f().g()", "call f"),
        ("SELECT a % b FROM t", "SELECT t"),
        ("", ""),
    ],
)
def test_a_summary_has_operations_and_tables(sql: str, expected: str) -> None:
    """In their order and as they were written, without values, columns and functions."""
    assert query_summary(sql) == expected


def test_a_summary_is_cut_between_words() -> None:
    """At 255 characters, as OpenTelemetry recommends."""
    summary = query_summary("SELECT * FROM " + ", ".join(f"table_{number}" for number in range(100)))

    assert len(summary) <= 255
    assert summary.endswith(" table_27")
    assert query_summary(f"SELECT * FROM {'a' * 248}, b") == f"SELECT {'a' * 248}"
    assert query_summary(f"SELECT * FROM {'a' * 248}") == f"SELECT {'a' * 248}"
    assert query_summary(f"SELECT * FROM {'a' * 249}, b") == "SELECT"


@pytest.mark.parametrize(
    ("sql", "volatile", "unknown"),
    [
        ("select nextval('s')", "nextval()", None),
        ("SELECT pg_catalog.setval('s', 1)", "setval()", None),
        ("select pg_try_advisory_xact_lock(7), f(1)", "pg_try_advisory_xact_lock()", None),
        ("select pg_notify('c', 'x')", "pg_notify()", None),
        ("select * from pg_stat_activity", "pg_stat_activity", None),
        ("select count(*) from jobs where a = f(b, random())", "random()", None),
        ("select id from jobs for update skip locked limit 1", "for update", None),
        ("select a from t for no key update", "for no", None),
        ("select seq.nextval from dual", "nextval", None),
        ("select get_lock('x', 1)", "get_lock()", None),
        ("select \"nextval\"('s')", "nextval()", None),
        ('select * from "pg_stat_activity"', "pg_stat_activity", None),
        ('select "Take"(1)', "take()", None),
        ("select * from take_jobs(5) as job", "take_jobs()", None),
        ("select a from app.take_jobs(5) as job join t on t.id = job.id", None, "take_jobs()"),
        ("select take(a) from app.t", None, "take()"),
        ("select current_timestamp", "current_timestamp", None),
        ("select next value for s", "next value", None),
        ("select id from jobs with (updlock, readpast)", "readpast", None),
        ("select last_insert_rowid()", "last_insert_rowid()", None),
        ("select take_job(lower('A'))", "take_job()", None),
        ("select count(*), max(a) from t where b in (1) and exists (select 1) and (c or d)", None, None),
        ("select random, nextval from t", None, None),
        ("select a::varchar(10), cast(b as numeric(1, 2)), row_number() over (order by a) from t", None, None),
        ("insert into t values (nextval('s'))", None, None),
        ("select a from t where due < current_timestamp", None, "current_timestamp"),
        ("show server_version", None, None),
    ],
)
def test_functions_whose_result_changes_are_known(sql: str, volatile: str | None, unknown: str | None) -> None:
    """A read with one of them may find something else each time, or of no table but an unknown function."""
    facts = statement_facts(sql, "postgresql")

    assert (facts.volatile, facts.unknown_function) == (volatile, unknown)


@pytest.mark.parametrize(
    ("sql", "volatile"),
    [
        ("show global status like 'Threads%'", "show status"),
        ("show full processlist", "show processlist"),
        ("show count(*) warnings", "show count"),
        ("show tables", None),
        ("select @@warning_count", "@@warning_count"),
        ("select @@session.in_transaction", "@@in_transaction"),
        ("select @@sql_mode, t.identity from t", None),
        ("pragma main.data_version", "pragma data_version"),
        ("pragma table_info('status')", None),
    ],
)
def test_what_the_server_tells_of_itself_changes(sql: str, volatile: str | None) -> None:
    """SHOW, system variables and PRAGMA: the state of the server or the session, but not its settings."""
    assert statement_facts(sql, "sqlite" if sql.startswith("pragma") else "mysql").volatile == volatile


@pytest.mark.parametrize(
    ("sql", "step"),
    [
        ("begin; insert into t values (1); commit", "COMMIT"),
        ("commit; begin; select 1", "BEGIN"),
        ("insert into t values (1); rollback to a; select 1", None),
        ("rollback; select 1", "ROLLBACK"),
        ("select 1; select 2", None),
        ("create trigger a after insert on t begin select 1; end", None),
        ("create table t (a int); commit", "COMMIT"),
        ("commit", None),
    ],
)
def test_several_statements_have_a_last_step(sql: str, step: str | None) -> None:
    """The last of them that begins or ends a transaction; the END of a block does not."""
    assert statement_facts(sql).last_step == step
