"""What consumers hold in the end: asked from the service, one by one, or read from its database at once.

The key piece is `holdings`. The database sees more: an allocation that stands there twice is one in a document.
"""

import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import NotRequired, TypedDict, TypeVar

from sqlalchemy import bindparam, text

from placebench.decoding import decode_json
from placebench.errors import DatabaseError, LoadError
from placebench.experiment.accounts import Holding
from placebench.experiment.requesting import get
from placebench.postgres import connected

T = TypeVar("T")

_AT_ONCE = 8
_BATCH = 1000
_PATIENCE_S = 30.0
_PAUSE_S = 0.2
_NOT_NOW = (DatabaseError, LoadError, OSError)
_QUERY = text("""
    SELECT a.consumer_id, p.uuid, r.name, a.used, c.generation
    FROM allocations a JOIN resource_providers p ON p.id = a.resource_provider_id
    JOIN resource_classes r ON r.id = a.resource_class_id LEFT JOIN consumers c ON c.uuid = a.consumer_id
    WHERE a.consumer_id IN :consumers""").bindparams(bindparam("consumers", expanding=True))


class _Resources(TypedDict):
    resources: dict[str, int]


class _Held(TypedDict):
    allocations: dict[str, _Resources]
    consumer_generation: NotRequired[int | None]


def holdings(consumers: Collection[str], *, url: str, database_url: str | None) -> dict[str, Holding] | str:
    """By consumer, those with nothing left out; the reason where service or database do not answer for 30 s.

    database_url: read from there, 1000 consumers a round trip; None: GET /allocations/{consumer} for each at *url*.
    """
    try:
        if database_url is None:
            return _at_the_service(consumers, url)
        return _patiently(lambda: _in_the_database(consumers, database_url))
    except _NOT_NOW as error:
        return " ".join(str(error).split())


def _patiently(ask: Callable[[], T]) -> T:
    """Ask again for 30 s where it is just coming back."""
    give_up_at = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return ask()
        except _NOT_NOW:
            if time.monotonic() > give_up_at:
                raise
        time.sleep(_PAUSE_S)


def _in_the_database(consumers: Collection[str], database_url: str) -> dict[str, Holding]:
    """Amounts of rows that stand there twice are added up, so that they differ from what was claimed."""
    found: dict[str, Holding] = {}
    with connected(database_url) as connection:
        for part in _parts(consumers):
            for consumer, provider, name, used, generation in connection.execute(_QUERY, {"consumers": part}):
                amounts = found.setdefault(consumer, Holding({}, generation)).allocations.setdefault(provider, {})
                amounts[name] = amounts.get(name, 0) + used
    return found


def _at_the_service(consumers: Collection[str], url: str) -> dict[str, Holding]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = zip(consumers, pool.map(lambda each: _patiently(lambda: _asked(url, each)), consumers), strict=True)
        return {consumer: holding for consumer, holding in found if holding is not None}


def _asked(url: str, consumer: str) -> Holding | None:
    reply = get(url, f"/allocations/{consumer}")
    if reply.status != HTTPStatus.OK:
        raise LoadError(f"GET /allocations/{consumer} was answered with {reply.status}, expected 200")
    document = decode_json(reply.body, _Held, f"GET /allocations/{consumer}", error=LoadError)
    allocations = {provider: entry["resources"] for provider, entry in document["allocations"].items()}
    return Holding(allocations, document.get("consumer_generation")) if allocations else None


def _parts(consumers: Collection[str]) -> Iterator[list[str]]:
    ordered = list(consumers)
    for start in range(0, len(ordered), _BATCH):
        yield ordered[start : start + _BATCH]
