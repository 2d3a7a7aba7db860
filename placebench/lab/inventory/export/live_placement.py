"""Read a live Placement, through its public API (4 requests per provider) or from its database (5 queries).

`read_api` and `read_database` return `PlacementData`: the providers, and the allocations of each consumer.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, NotRequired, TypedDict, TypeVar

import urllib3
from sqlalchemy import Connection, inspect

from placebench.addresses import service_address
from placebench.decoding import Amount, Count, decode_json
from placebench.errors import DatabaseError, ExportError
from placebench.lab.inventory import tables
from placebench.lab.inventory.seeding import SELECTS, read_only_connection
from placebench.lab.inventory.topology import Inventory

_CONCURRENCY = 8
_TIMEOUT_S = 60.0
_T = TypeVar("_T")


@dataclass(frozen=True)
class LiveProvider:
    """One resource provider, with the UUIDs of its parent and its aggregates."""

    uuid: str
    parent_uuid: str | None
    inventories: tuple[Inventory, ...]
    traits: frozenset[str]
    aggregates: frozenset[str]


class LiveAllocation(NamedTuple):
    """An amount of one resource class of one provider."""

    provider_uuid: str
    resource_class: str
    amount: int


@dataclass(frozen=True)
class PlacementData:
    """All providers, and the allocations of each consumer by the consumer's UUID."""

    providers: tuple[LiveProvider, ...]
    consumers: Mapping[str, tuple[LiveAllocation, ...]]


class _ProviderDocument(TypedDict):
    uuid: str
    parent_provider_uuid: NotRequired[str | None]


class _Listed(TypedDict):
    resource_providers: list[_ProviderDocument]


class _Amounts(TypedDict):
    total: Count
    reserved: Count
    min_unit: Count
    max_unit: Count
    step_size: Count
    allocation_ratio: Amount


class _Inventories(TypedDict):
    inventories: dict[str, _Amounts]


class _Traits(TypedDict):
    traits: list[str]


class _Aggregates(TypedDict):
    aggregates: list[str]


class _Claim(TypedDict):
    resources: dict[str, Count]


class _Allocations(TypedDict):
    allocations: dict[str, _Claim]


class _Read(NamedTuple):
    """One provider, and its allocations by consumer."""

    provider: LiveProvider
    allocations: dict[str, list[LiveAllocation]]


class _Api:
    """A client that sends GET requests to one Placement server."""

    def __init__(self, url: str, token: str) -> None:
        self._url = service_address(url, error=ExportError).geturl().rstrip("/")
        headers = {"Accept": "application/json", "OpenStack-API-Version": "placement latest", "X-Auth-Token": token}
        retries = urllib3.Retry(total=2, redirect=0, status=0)
        self._pool = urllib3.PoolManager(
            maxsize=_CONCURRENCY, block=True, headers=headers, timeout=_TIMEOUT_S, retries=retries
        )

    def get(self, path: str, kind: type[_T]) -> _T:
        """Return the document at *path* as a *kind*; raise ExportError for any other response, or none."""
        try:
            response = self._pool.request("GET", self._url + path)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise ExportError(f"{self._url} does not respond: {getattr(error, 'reason', error)}") from error
        if response.status in (401, 403):
            raise ExportError(f"{self._url} responded {response.status}: give a --token that it takes (noauth2: admin)")
        if response.status == 404 and path.count("/") > 1:
            raise ExportError(f"{self._url}{path} is gone: the data changed while it was read, run it again")
        if response.status != 200:
            raise ExportError(f"GET {self._url}{path} responded {response.status}: expected Placement")
        return decode_json(response.data, kind, f"GET {self._url}{path}", error=ExportError)


def read_api(url: str, token: str, progress: Callable[[int, int], None]) -> PlacementData:
    """Return the data that the API serves; *progress* is called with the numbers of providers read and in total.

    Raises ExportError if the server does not respond, refuses the token, or is not a Placement.
    """
    api = _Api(url, token)
    listed = api.get("/resource_providers", _Listed)["resource_providers"]
    reads: list[_Read] = []
    threads = ThreadPoolExecutor(_CONCURRENCY, thread_name_prefix="export")
    try:
        for read in threads.map(lambda each: _read(api, each), listed):
            reads.append(read)
            progress(len(reads), len(listed))
    finally:
        threads.shutdown(cancel_futures=True)
    consumers: defaultdict[str, list[LiveAllocation]] = defaultdict(list)
    for read in reads:
        for consumer, allocations in read.allocations.items():
            consumers[consumer] += allocations
    return PlacementData(
        tuple(read.provider for read in reads),
        {consumer: tuple(allocations) for consumer, allocations in consumers.items()},
    )


def _read(api: _Api, listed: _ProviderDocument) -> _Read:
    uuid = listed["uuid"]
    at = f"/resource_providers/{uuid}"
    provider = LiveProvider(
        uuid,
        listed.get("parent_provider_uuid"),
        tuple(
            Inventory(name, **amounts)
            for name, amounts in api.get(f"{at}/inventories", _Inventories)["inventories"].items()
        ),
        frozenset(api.get(f"{at}/traits", _Traits)["traits"]),
        frozenset(api.get(f"{at}/aggregates", _Aggregates)["aggregates"]),
    )
    return _Read(
        provider,
        {
            consumer: [LiveAllocation(uuid, name, amount) for name, amount in entry["resources"].items()]
            for consumer, entry in api.get(f"{at}/allocations", _Allocations)["allocations"].items()
        },
    )


def read_database(url: str) -> PlacementData:
    """Return the data in the database, from one snapshot if the database supports it; nothing is written or migrated.

    Raises DatabaseError if the database does not respond or is not that of a Placement.
    """
    with read_only_connection(url) as connection:
        if not inspect(connection).has_table(tables.resource_providers.name):
            raise DatabaseError("the database has no table resource_providers: expected the database of a Placement")
        return _placement_data(connection)


def _placement_data(connection: Connection) -> PlacementData:
    inventories, traits, aggregates = (
        _group_by_first(connection.execute(SELECTS[table]))
        for table in ("inventories", "provider_traits", "provider_aggregates")
    )
    consumers: defaultdict[str, list[LiveAllocation]] = defaultdict(list)
    for uuid, consumer, name, amount in connection.execute(SELECTS["allocations"]):
        consumers[consumer].append(LiveAllocation(uuid, name, amount))
    return PlacementData(
        tuple(
            LiveProvider(
                uuid,
                parent_uuid,
                tuple(Inventory(*amounts) for amounts in inventories[uuid]),
                frozenset(name for (name,) in traits[uuid]),
                frozenset(aggregate for (aggregate,) in aggregates[uuid]),
            )
            for uuid, _name, parent_uuid, _root in connection.execute(SELECTS["providers"])
        ),
        {consumer: tuple(allocations) for consumer, allocations in consumers.items()},
    )


def _group_by_first(rows: Iterable[Any]) -> defaultdict[str, list[tuple[Any, ...]]]:
    groups: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for key, *rest in rows:
        groups[key].append(tuple(rest))
    return groups
