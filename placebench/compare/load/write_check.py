"""Lost-write check of a load run: compares acknowledged, refused and doubtful writes with the database's contents."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import NotRequired, TypedDict, TypeVar

from sqlalchemy import bindparam, text

from placebench.compare.keep.records import WriteCheck
from placebench.compare.what.http_request import Reply, get
from placebench.decoding import decode_json
from placebench.errors import DatabaseError, LoadError
from placebench.loadgen.write_log import Allocations, LoggedWrite
from placebench.runtime.postgres import open_connection

_NO_RESPONSE = "no response"


@dataclass(frozen=True)
class Holding:
    """The allocations that a consumer has after the load."""

    allocations: Allocations
    generation: int | None
    """The consumer's generation: 1 after one write, None if it has no allocations."""


def check_writes(writes: Iterable[LoggedWrite], held: Mapping[str, Holding] | str) -> WriteCheck:
    """Compare the writes with the consumers' holdings.

    held: the holdings of each consumer that has any, or a text that says why they could not be read.
    """
    writes = list(writes)
    sorts = Counter(_sort(write.status) for write in writes)
    answers = {
        "sent": len(writes),
        "statuses": dict(Counter(write.status or _NO_RESPONSE for write in writes)),
        "acknowledged": sorts["acknowledged"],
        "refused": sorts["refused"],
        "in_doubt": sorts["in_doubt"],
    }
    if isinstance(held, str):
        return WriteCheck(**answers, reason=held)  # type: ignore[arg-type]  # each is of its field's type
    histories: dict[str, list[LoggedWrite]] = {}
    for write in writes:
        histories.setdefault(write.consumer, []).append(write)
    seen = Counter[str]()
    for consumer, history in histories.items():
        seen.update(_verdicts(history, held.get(consumer)))
    return WriteCheck(
        **answers,  # type: ignore[arg-type]
        found=sorts["acknowledged"] - seen["lost"],
        lost=seen["lost"],
        doubled=seen["doubled"],
        refused_and_found=seen["refused_and_found"],
        in_doubt_and_found=seen["in_doubt_and_found"],
    )


def _sort(status: str | None) -> str:
    kinds = {"2": "acknowledged", "4": "refused"}
    return kinds.get((status or "")[:1], "in_doubt")


def _verdicts(history: list[LoggedWrite], holding: Holding | None) -> Iterable[str]:
    """Yield the verdicts on the outcome of a claim and its release, if there was one; nothing if it is as expected."""
    claim, release = history[0], history[1] if len(history) > 1 else None
    last = release if release is not None and _sort(release.status) != "refused" else claim
    if holding is not None and (holding.generation, holding.allocations) != (1, claim.claimed):
        yield "doubled"
    if _sort(last.status) == "in_doubt":
        if (holding is None) == (last is release):
            yield "in_doubt_and_found"
    elif _sort(last.status) == "refused":
        if holding is not None:
            yield "refused_and_found"
    elif (holding is None) != (last is release):
        yield "lost"


_T = TypeVar("_T")

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


def read_holdings(consumers: Collection[str], *, url: str, database_url: str | None) -> dict[str, Holding] | str:
    """Return the holdings of each consumer that has any, or why service or database do not respond for 30 s.

    database_url: the database to read, 1000 consumers per round trip; by default GET /allocations/{consumer} is sent to
    *url* for each consumer.
    """

    def read(consumer: str) -> Holding | None:
        return _patiently(lambda: holding_of(get(url, f"/allocations/{consumer}"), consumer))

    try:
        if database_url is not None:
            return _patiently(lambda: _in_the_database(consumers, database_url))
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = zip(consumers, pool.map(read, consumers), strict=True)
            return {consumer: holding for consumer, holding in found if holding is not None}
    except _NOT_NOW as error:
        return " ".join(str(error).split())


def _patiently(read: Callable[[], _T]) -> _T:
    """Call *read* until it succeeds, for at most 30 s, so that a service or database may come back."""
    give_up_at = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return read()
        except _NOT_NOW:
            if time.monotonic() > give_up_at:
                raise
        time.sleep(_PAUSE_S)


def _in_the_database(consumers: Collection[str], database_url: str) -> dict[str, Holding]:
    """Read the holdings; the amounts of duplicate rows are summed, so that they differ from the claimed amounts."""
    found: dict[str, Holding] = {}
    ordered = list(consumers)
    with open_connection(database_url) as connection:
        for start in range(0, len(ordered), _BATCH):
            part = ordered[start : start + _BATCH]
            for consumer, provider, name, used, generation in connection.execute(_QUERY, {"consumers": part}):
                amounts = found.setdefault(consumer, Holding({}, generation)).allocations.setdefault(provider, {})
                amounts[name] = amounts.get(name, 0) + used
    return found


def holding_of(reply: Reply, consumer: str) -> Holding | None:
    """Return the holding in a reply to GET /allocations/{consumer}, or None for no allocations.

    Raises LoadError unless the status is 200.
    """
    if reply.status != HTTPStatus.OK:
        raise LoadError(f"GET /allocations/{consumer} has status {reply.status}, expected 200")
    document = decode_json(reply.body, _Held, f"GET /allocations/{consumer}", error=LoadError)
    allocations = {provider: entry["resources"] for provider, entry in document["allocations"].items()}
    return Holding(allocations, document.get("consumer_generation")) if allocations else None
