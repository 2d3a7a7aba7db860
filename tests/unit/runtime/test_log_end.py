"""The end of a log in a message, with the line that names the failure."""

import re

import pytest

from placebench.runtime.supervisor import log_end

GUNICORN = """\
[2026-11-30 18:00:00 +0000] [7] [INFO] Starting gunicorn 27.0.1
[2026-11-30 18:00:01 +0000] [8] [ERROR] Exception in worker process
Traceback (most recent call last):
  File "/srv/shop/wsgi.py", line 3, in <module>
    raise ImproperlyConfigured("no SHOP_KEY")
shop.settings.ImproperlyConfigured: no SHOP_KEY
[2026-11-30 18:00:01 +0000] [8] [INFO] Worker exiting (pid: 8)
[2026-11-30 18:00:01 +0000] [7] [ERROR] Worker (pid:8) exited with code 3
[2026-11-30 18:00:01 +0000] [7] [ERROR] Shutting down: Master
[2026-11-30 18:00:01 +0000] [7] [ERROR] Reason: Worker failed to boot.
"""
POSTGRESQL = """\
2026-11-30 18:00:00.000 UTC [5] PANIC:  could not write to file "pg_wal/xlogtemp.5": No space left on device
2026-11-30 18:00:00.010 UTC [1] LOG:  server process (PID 5) was terminated by signal 6: Aborted
2026-11-30 18:00:00.020 UTC [1] LOG:  terminating any other active server processes
2026-11-30 18:00:00.030 UTC [9] FATAL:  the database system is in recovery mode
2026-11-30 18:00:00.040 UTC [1] LOG:  all server processes terminated; reinitializing
2026-11-30 18:00:00.050 UTC [1] LOG:  shutting down due to startup process failure
2026-11-30 18:00:00.060 UTC [1] LOG:  database system is shut down
"""
SQLALCHEMY = """\
Traceback (most recent call last):
  File "fill.py", line 9, in <module>
    session.execute(text("SELECT 1 FROM pears"))
sqlalchemy.exc.ProgrammingError: (psycopg.errors.UndefinedTable) relation "pears" does not exist
LINE 1: SELECT 1 FROM pears
                      ^
[SQL: SELECT 1 FROM pears]
(Background on this error at: https://sqlalche.me/e/21/f405)
"""
PSQL = """\
psql:setup.sql:7: ERROR:  column "a" does not exist
LINE 1: INSERT INTO pears SELECT a
                                 ^
DETAIL:  There is a column named "b".
HINT:  Perhaps you meant "b".
"""


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (GUNICORN, "shop.settings.ImproperlyConfigured: no SHOP_KEY"),
        (POSTGRESQL, POSTGRESQL.partition("\n")[0]),
        (SQLALCHEMY, SQLALCHEMY.splitlines()[3]),
        (PSQL, PSQL.partition("\n")[0]),
    ],
    ids=["gunicorn", "postgresql", "sqlalchemy", "psql"],
)
def test_the_line_that_names_the_failure_is_shown(log: str, cause: str) -> None:
    """Before the last four lines if it is above them, and once if it is one of them."""
    said = log_end(log)
    cut = log_end(log.partition(cause)[0] + cause)

    assert said.startswith(f"its log has: {cause}; the end of its log: ")
    assert [line.rstrip() for line in log.splitlines()[-4:]] == said.partition("the end of its log: ")[2].split(" | ")
    assert cut.startswith("the end of its log: ")
    assert cut.endswith(cause)


def test_of_several_exceptions_the_last_is_shown() -> None:
    """The one that ended the program, and not the one that it was raised from."""
    chained = "Traceback (most recent call last):\n  File 'a'\nKeyError: 'a'\n\nDuring handling, another occurred:\n\n"
    said = log_end(f"{chained}Traceback (most recent call last):\n  File 'b'\nshop.Wrong: b\n" + "bye\n" * 4)

    assert said == "its log has: shop.Wrong: b; the end of its log: bye | bye | bye | bye"


@pytest.mark.parametrize(
    "log", ["", "\n \n", "a\n" * 9, "a terror\n" * 9, "  + Exception Group Traceback (most\nb\n" * 9]
)
def test_without_such_a_line_there_is_only_the_end(log: str) -> None:
    """An empty log is said to be empty."""
    assert re.match(r"the end of its log: (\(empty\)|a|a terror|  \+)", log_end(log))
