"""Database URLs: what users write becomes what SQLAlchemy needs; what cannot work is one line without the password."""

from pathlib import Path
from venv import EnvBuilder

import pytest

from placebench.errors import DatabaseError
from placebench.runtime.postgres import check_database, normalise_url
from placebench.runtime.postgres.connection import (
    describe,
    open_connection,
    own_url,
    plain_url,
    sqlalchemy_url,
    with_database,
)


@pytest.mark.parametrize(
    ("written", "normalised"),
    [
        ("postgres://u:p@h/db", "postgresql+psycopg2://u:p@h/db"),
        ("postgresql://u:p@h:5433/db", "postgresql+psycopg2://u:p@h:5433/db"),
        ("postgresql+psycopg2://u:p@h/db", "postgresql+psycopg2://u:p@h/db"),
        (" postgresql://h/db\n", "postgresql+psycopg2://h/db"),
        ("postgresql://[::1]:5432/db", "postgresql+psycopg2://[::1]:5432/db"),
        ("postgresql://u:p@h/db?sslmode=disable", "postgresql+psycopg2://u:p@h/db?sslmode=disable"),
        ("postgresql://u:p%40s%2Fs%3Aw%25@h/db", "postgresql+psycopg2://u:p%40s%2Fs%3Aw%25@h/db"),
        ("postgresql://u:p:w@h/db", "postgresql+psycopg2://u:p%3Aw@h/db"),
        ("postgresql://u@/db?host=/var/run/pg", "postgresql+psycopg2://u@/db?host=%2Fvar%2Frun%2Fpg"),
    ],
)
def test_a_url_gets_its_driver(written: str, normalised: str) -> None:
    """The driver is named; password, port, query and socket stay what they were, and a second time changes nothing."""
    assert normalise_url(written) == normalised
    assert normalise_url(normalised) == normalised


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("", "cannot be read"),
        ("secret", "cannot be read"),
        ("localhost:5432/secret", "cannot be read"),
        ("postgresql:/secret", "cannot be read"),
        ("postgresql://u:secret@h:port/db", "cannot be read"),
        ("postgresql://u:se@cret@h/db", "two @"),
        ("mysql://u:secret@h/db", "begins with mysql://"),
        ("sqlite:///secret", "begins with sqlite://"),
        ("http://u:secret@h/db", "begins with http://"),
        ("postgresql+psycopg://u:secret@h/db", r"begins with postgresql\+psycopg://"),
        ("postgresql+asyncpg://u:secret@h/db", r"begins with postgresql\+asyncpg://"),
    ],
)
def test_what_is_no_url_of_ours(written: str, complaint: str) -> None:
    """One line says what is wrong and shows neither the URL nor a part of the password."""
    with pytest.raises(DatabaseError, match=complaint) as caught:
        normalise_url(written)

    assert not any(part in str(caught.value) for part in ("secret", "cret", "\n"))


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("postgresql://u:secret@127.0.0.1:1/db", r"u@127.0.0.1:1/db: .*Connection refused"),
        ("postgresql://u:secret@/db?host=/nowhere", r"u@/nowhere/db: .*No such file or directory"),
        ("postgresql://u:secret@127.0.0.1/db?colour=red", r'invalid connection option "colour"'),
    ],
)
def test_a_url_that_does_not_answer(url: str, complaint: str) -> None:
    """The error is one line with user, host, port, database and the driver's reason, and without the password."""
    with pytest.raises(DatabaseError, match=complaint) as caught:
        check_database(url)

    assert not any(part in str(caught.value) for part in ("secret", "\n"))


def test_a_url_as_a_message_shows_it() -> None:
    """User, host, port and database; neither the password nor the query, which may hold one too."""
    url = normalise_url("postgresql://u:secret@h:5433/db?password=secret")

    assert describe(url) == "u@h:5433/db"


def test_another_database_of_the_same_server() -> None:
    """Only the database changes."""
    url = with_database("postgresql+psycopg2://u:p%40w@h:5433/db?sslmode=disable", "other")

    assert url == "postgresql+psycopg2://u:p%40w@h:5433/other?sslmode=disable"


def test_the_url_of_a_server_of_ours() -> None:
    """It is already what `normalise_url` makes."""
    url = own_url("pass/word", 5433)

    assert url == "postgresql+psycopg2://postgres:pass%2Fword@127.0.0.1:5433/postgres" == normalise_url(url)


PLAIN = "postgresql://u:p%40w@h:5433/db?sslmode=disable"


def test_a_server_that_does_not_respond_is_named_with_what_was_seen() -> None:
    """Without the password, and without the question of libpq that follows each address."""
    with (
        pytest.raises(DatabaseError, match=r"^me@127\.0\.0\.1:1/x: connection to server [^\n;]*refused$"),
        open_connection(normalise_url("postgresql://me:hunter2@127.0.0.1:1/x")),
    ):
        pass


NAMED = "postgresql+psycopg2://u:p%40w@h:5433/db?sslmode=disable"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("sqlalchemy", "others", "expected"),
    [
        (None, [], PLAIN),
        (None, ["psycopg2"], PLAIN),
        ("2.0.44", ["psycopg2"], PLAIN),
        ("2.1.0b1", ["psycopg2"], NAMED),
        ("2.10", ["psycopg2"], NAMED),
        ("2.1.9", ["psycopg2", "psycopg"], NAMED),
        ("2.1.9", ["psycopg"], PLAIN),
        ("2.1.9", ["asyncpg"], PLAIN),
    ],
)
def test_applications_get_the_url_that_their_environment_reads(
    sqlalchemy: str | None, others: list[str], expected: str, tmp_path: Path
) -> None:
    """SQLAlchemy's names the driver where 2.1 would take psycopg 3 for psycopg2; the plain one never does."""
    assert PLAIN == plain_url(NAMED)
    EnvBuilder(with_pip=False, symlinks=True).create(tmp_path / "venv")
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    for name in others:
        (packages / name).mkdir()
    if sqlalchemy:
        (packages / "sqlalchemy").mkdir()
        described = packages / f"sqlalchemy-{sqlalchemy}.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: SQLAlchemy\nVersion: {sqlalchemy}\n")

    assert sqlalchemy_url(NAMED, str(tmp_path / "venv" / "bin" / "python")) == expected
    assert sqlalchemy_url("sqlite:///x.db") == "sqlite:///x.db"
