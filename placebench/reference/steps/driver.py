"""Which driver speaks to PostgreSQL: psycopg2, or psycopg 3."""

from sqlalchemy import URL

from placebench.errors import DatabaseError
from placebench.reference.steps.optimization import Extra, Optimization, Way


def driver_of_the_url(url: URL) -> URL:
    """The driver that the URL names; psycopg2, which the extra bench brings, where it names none."""
    return url.set(drivername="postgresql+psycopg2") if url.drivername in ("postgres", "postgresql") else url


def psycopg3(url: URL) -> URL:
    """psycopg 3, whatever driver the URL names: parameters go beside the text, often used statements are prepared."""
    if url.get_backend_name() not in ("postgres", "postgresql"):
        raise DatabaseError(f"driver:psycopg3 is for PostgreSQL, but the database is of {url.get_backend_name()}")
    return url.set(drivername="postgresql+psycopg")


def _by_psycopg3() -> object:
    return psycopg3


OPTIMIZATION = Optimization(
    name="driver",
    step="driver",
    plain=Way("psycopg2", driver_of_the_url),
    others=(Way("psycopg3", _by_psycopg3, extra=Extra("psycopg3", "psycopg"), postgresql_only=True),),
    why="psycopg2 puts values into the text; psycopg 3 sends them separately and prepares repeated statements.",
    source="psycopg's own documentation names both differences; which one weighs more depends on rows and lists.",
    metric="cpu_s",
    place="deployment",
)
