"""What the databases themselves say of functions and strings, beside what the profiler takes them for."""

from typing import Any

import psycopg2
import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url

from placebench.profiler import SqlProfiler
from placebench.profiler.model.sql_tokens import redacted
from placebench.profiler.model.statement_facts import statement_facts
from placebench.runtime.mariadb import MariaDbServer


def test_no_volatile_function_of_postgresql_is_taken_for_a_stable_one(database_url: str) -> None:
    """Each one that users may call is known to be volatile, or is not known at all."""
    with psycopg2.connect(database_url.replace("+psycopg2", "")) as connection, connection.cursor() as cursor:
        cursor.execute("""
            select distinct proname from pg_proc join pg_type on pg_type.oid = prorettype
            where pronamespace = 'pg_catalog'::regnamespace and provolatile = 'v' and prokind = 'f'
              and typname not in ('trigger', 'event_trigger', 'internal')
              and proname <> 'set_config'
        """)
        names = [name for (name,) in cursor.fetchall()]
    connection.close()
    facts = {name: statement_facts(f"select {name}(1)", "postgresql") for name in names}

    assert {"nextval", "random", "clock_timestamp", "pg_try_advisory_lock"} <= set(names)
    assert [name for name, each in facts.items() if each.volatile is None and each.unknown_function is None] == []
    assert len([name for name, each in facts.items() if each.volatile]) > len(names) / 2


@pytest.mark.parametrize("driver", ["pymysql", "MySQLdb"])
def test_strings_of_mysql_are_left_out(driver: str, mariadb: MariaDbServer) -> None:
    """Between double quotes, behind an escaped quote and in comments; the server takes them for what they are."""
    pytest.importorskip(driver)
    engine = create_engine(make_url(mariadb.database(f"text_of_{driver}")).set(drivername=f"mysql+{driver.lower()}"))
    profiler = SqlProfiler(engine)
    with profiler.record("strings") as recording, engine.connect() as connection:
        rows = connection.exec_driver_sql(
            "select 'it\\'s s3cret', \"a\\\"s3cret\" # it's s3cret\n, 0x733363726574"
        ).all()
    profiler.remove()
    engine.dispose()

    assert [tuple(row) for row in rows] == [("it's s3cret", 'a"s3cret', b"s3cret")]
    assert [statement.sql for statement in recording.statements if "select ?" in statement.sql] == [
        "select ?, ? # ?\n, ?"
    ]


def test_strings_of_postgresql_are_left_out(database_url: str) -> None:
    """Those that the server takes for strings, numbers or comments, at once."""
    texts: dict[str, Any] = {
        "E'it\\'s s3cret'": "it's s3cret",
        "$tag$it's $$ s3cret$tag$": "it's $$ s3cret",
        "/* a /* b */ s3cret */ 1": 1,
        "'a\\' || 's3cret'": "a\\s3cret",
        "4111_1111": 4111_1111,
        "U&'s3cret'": "s3cret",
    }
    with psycopg2.connect(database_url.replace("+psycopg2", "")) as connection, connection.cursor() as cursor:
        for text, value in texts.items():
            cursor.execute(f"select {text}")
            assert cursor.fetchone() == (value,)
            shown = redacted(f"select {text}", "postgresql")
            assert ("s3cret" in shown, "1111" in shown) == (False, False)
    connection.close()
