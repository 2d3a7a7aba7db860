"""Database URLs as the user writes them, as SQLAlchemy needs them, and as a message may show them."""

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from placebench.errors import DatabaseError

DRIVER = "postgresql+psycopg2"
SUPERUSER = "postgres"
MAINTENANCE = "postgres"
_OUR_DRIVERS = {"postgres", "postgresql", DRIVER}
_EXAMPLE = "postgresql://user:password@host:5432/database"


def normalise_url(url: str) -> str:
    """The same URL with the driver named: SQLAlchemy 2.1 reads a bare `postgresql://` as psycopg 3.

    Raises DatabaseError, which never shows the URL (it may hold a password), for what is no URL of a PostgreSQL.
    """
    parsed = _parse(url)
    if parsed.drivername not in _OUR_DRIVERS:
        raise DatabaseError(
            f"the database URL begins with {parsed.drivername}://, but placebench works on PostgreSQL through "
            f"psycopg2: write it as {_EXAMPLE}"
        )
    return parsed.set(drivername=DRIVER).render_as_string(hide_password=False)


def describe(url: str) -> str:
    """The URL as a message shows it: `user@host:5432/database`, without the password and the query."""
    parsed = make_url(url)
    host = parsed.host or _first(parsed.query.get("host")) or "localhost"
    port = f":{parsed.port}" if parsed.port else ""
    user = f"{parsed.username}@" if parsed.username else ""
    return f"{user}{host}{port}/{parsed.database or ''}"


def own_url(password: str, port: int) -> str:
    """The URL of the maintenance database of a server of ours."""
    host = "127.0.0.1"
    return URL.create(DRIVER, SUPERUSER, password, host, port, MAINTENANCE).render_as_string(hide_password=False)


def with_database(url: str, name: str) -> str:
    """The URL of the database *name* on the same server."""
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url.strip())
    except (ArgumentError, ValueError):
        raise DatabaseError(f"the database URL cannot be read: expected the form {_EXAMPLE}") from None
    if "@" in (parsed.host or ""):
        raise DatabaseError("the database URL has two @: write the one in the password as %40")
    return parsed


def _first(value: str | tuple[str, ...] | None) -> str:
    return (value if isinstance(value, str) else value[0]) if value else ""
