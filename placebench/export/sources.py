"""Reads a live Placement through its public API (four requests per provider) or from its database (five queries)."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, NotRequired, TypedDict, TypeVar

import urllib3
from sqlalchemy import Connection, Select, inspect, select

from placebench import tables
from placebench.addresses import service_address
from placebench.decoding import Amount, Count, decode_json
from placebench.errors import DatabaseError, ExportError
from placebench.export.live_placement import Allocation, Cloud, Provider
from placebench.seeding import reading
from placebench.topology import Inventory

CONCURRENCY = 8
_TIMEOUT_S = 60.0
T = TypeVar("T")


class _Provider(TypedDict):
    uuid: str
    parent_provider_uuid: NotRequired[str | None]


class _Listed(TypedDict):
    resource_providers: list[_Provider]


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
    """One provider, and what each consumer has of it."""

    provider: Provider
    allocations: dict[str, list[Allocation]]


class _Api:
    """GET requests to one server."""

    def __init__(self, url: str, token: str) -> None:
        self._url = service_address(url, error=ExportError).geturl().rstrip("/")
        headers = {"Accept": "application/json", "OpenStack-API-Version": "placement latest", "X-Auth-Token": token}
        retries = urllib3.Retry(total=2, redirect=0, status=0)
        self._pool = urllib3.PoolManager(
            maxsize=CONCURRENCY, block=True, headers=headers, timeout=_TIMEOUT_S, retries=retries
        )

    def get(self, path: str, kind: type[T]) -> T:
        """The document at the path as a *kind*. Raises ExportError for any other answer, and for none."""
        try:
            answer = self._pool.request("GET", self._url + path)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise ExportError(f"{self._url} does not answer: {getattr(error, 'reason', error)}") from error
        if answer.status in (401, 403):
            raise ExportError(f"{self._url} answered {answer.status}: give a --token that it takes (noauth2: admin)")
        if answer.status == 404 and path.count("/") > 1:
            raise ExportError(f"{self._url}{path} is gone: the cloud changed while it was read, run it again")
        if answer.status != 200:
            raise ExportError(f"GET {self._url}{path} answered {answer.status}, which is no answer of a Placement")
        return decode_json(answer.data, kind, f"GET {self._url}{path}", error=ExportError)


def read_api(url: str, token: str, progress: Callable[[int, int], None]) -> Cloud:
    """The cloud behind the API; *progress* is told how many providers of how many are read.

    Raises ExportError, in one line, for a server that does not answer, refuses the token, or is no Placement.
    """
    api = _Api(url, token)
    listed = api.get("/resource_providers", _Listed)["resource_providers"]
    reads: list[_Read] = []
    threads = ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="export")
    try:
        for read in threads.map(lambda each: _read(api, each), listed):
            reads.append(read)
            progress(len(reads), len(listed))
    finally:
        threads.shutdown(cancel_futures=True)
    return Cloud(tuple(read.provider for read in reads), _by_consumer(reads))


def _by_consumer(reads: list[_Read]) -> dict[str, tuple[Allocation, ...]]:
    found: defaultdict[str, list[Allocation]] = defaultdict(list)
    for read in reads:
        for consumer, allocations in read.allocations.items():
            found[consumer] += allocations
    return {consumer: tuple(allocations) for consumer, allocations in found.items()}


def _read(api: _Api, listed: _Provider) -> _Read:
    uuid = listed["uuid"]
    at = f"/resource_providers/{uuid}"
    provider = Provider(
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
            consumer: [Allocation(uuid, name, amount) for name, amount in entry["resources"].items()]
            for consumer, entry in api.get(f"{at}/allocations", _Allocations)["allocations"].items()
        },
    )


_AMOUNTS = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")


def read_database(url: str) -> Cloud:
    """The cloud in the database, as of one moment where it keeps snapshots; nothing is written or migrated.

    Raises DatabaseError, in one line, for one that does not answer or is no Placement's.
    """
    with reading(url) as connection:
        if not inspect(connection).has_table(tables.resource_providers.name):
            raise DatabaseError("the database has no table resource_providers: expected the database of a Placement")
        return _cloud(connection)


def _cloud(connection: Connection) -> Cloud:
    provider = tables.resource_providers
    parent = provider.alias("parent")
    providers = select(provider.c.uuid, parent.c.uuid).outerjoin_from(
        provider, parent, parent.c.id == provider.c.parent_provider_id
    )
    inventories = _grouped(connection.execute(_inventories()))
    traits = _grouped(connection.execute(_traits()))
    aggregates = _grouped(connection.execute(_aggregates()))
    return Cloud(
        tuple(
            Provider(
                uuid,
                parent_uuid,
                tuple(Inventory(*amounts) for amounts in inventories[uuid]),
                frozenset(name for (name,) in traits[uuid]),
                frozenset(aggregate for (aggregate,) in aggregates[uuid]),
            )
            for uuid, parent_uuid in connection.execute(providers)
        ),
        {
            consumer: tuple(Allocation(*each) for each in found)
            for consumer, found in _grouped(connection.execute(_allocations())).items()
        },
    )


def _grouped(rows: Iterable[Any]) -> defaultdict[str, list[tuple[Any, ...]]]:
    """The rows by their first column."""
    found: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for key, *rest in rows:
        found[key].append(tuple(rest))
    return found


def _inventories() -> Select[Any]:
    provider, inventory, resource_class = tables.resource_providers, tables.inventories, tables.resource_classes
    return (
        select(provider.c.uuid, resource_class.c.name, *(inventory.c[name] for name in _AMOUNTS))
        .join_from(inventory, provider, provider.c.id == inventory.c.resource_provider_id)
        .join(resource_class, resource_class.c.id == inventory.c.resource_class_id)
    )


def _traits() -> Select[Any]:
    provider, trait, link = tables.resource_providers, tables.traits, tables.resource_provider_traits
    return (
        select(provider.c.uuid, trait.c.name)
        .join_from(link, provider, provider.c.id == link.c.resource_provider_id)
        .join(trait, trait.c.id == link.c.trait_id)
    )


def _aggregates() -> Select[Any]:
    provider, aggregate = tables.resource_providers, tables.placement_aggregates
    link = tables.resource_provider_aggregates
    return (
        select(provider.c.uuid, aggregate.c.uuid)
        .join_from(link, provider, provider.c.id == link.c.resource_provider_id)
        .join(aggregate, aggregate.c.id == link.c.aggregate_id)
    )


def _allocations() -> Select[Any]:
    provider, allocation, resource_class = tables.resource_providers, tables.allocations, tables.resource_classes
    return (
        select(allocation.c.consumer_id, provider.c.uuid, resource_class.c.name, allocation.c.used)
        .join_from(allocation, provider, provider.c.id == allocation.c.resource_provider_id)
        .join(resource_class, resource_class.c.id == allocation.c.resource_class_id)
    )
