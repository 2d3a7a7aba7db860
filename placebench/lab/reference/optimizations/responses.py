"""Whether responses are computed each time, or kept in a cache service for all workers of one database."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection

from placebench.lab.reference.candidates.implementations import ResponseSource
from placebench.lab.reference.candidates.results import Body
from placebench.lab.reference.domain.optimization import OBJECTS, Extra, Implementation, Optimization


def _compute_each(compute: Callable[[], Body], _connection: Connection, _key: Any, _cache_url: str) -> Body:
    """Keep none."""
    return compute()


def _from_redis() -> ResponseSource:
    from placebench.lab.reference.candidates.shared_responses import respond_from_redis

    return respond_from_redis


RESPONSES = Optimization(
    name="responses",
    field="responses",
    algorithms=(OBJECTS, "dedup"),
    baseline=Implementation("computed", _compute_each),
    further=(
        Implementation("redis", _from_redis, extra=Extra("redis", "redis"), postgresql_only=True, cache_server=True),
    ),
    why="Workers that share a cache service compute a response once for all of them; a hit costs one statement, which "
    "reads the revision of the data, and the transfer of the body.",
    source="A cache service beside the database is what web applications add first; `cached` keeps responses in the "
    "worker instead.",
    metric="cpu_s",
)
