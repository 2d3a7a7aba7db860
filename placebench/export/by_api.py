"""Reads a Placement through its public API: four requests a provider, over eight connections.

The key piece is `read_api`. What changes meanwhile is read as it is then; a provider that goes away ends the reading.
"""

import json
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import urllib3

from placebench.errors import ExportError
from placebench.export.live import Allocation, Cloud, Provider
from placebench.topology import Inventory

CONCURRENCY = 8
_TIMEOUT_S = 60.0
_AMOUNTS = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")


class _Read(NamedTuple):
    """One provider, and what each consumer has of it."""

    provider: Provider
    allocations: dict[str, list[Allocation]]


class _Api:
    """GET requests to one server."""

    def __init__(self, url: str, token: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise ExportError(f"{url!r} is no address of a Placement: expected http://host:port")
        self._url = url.rstrip("/")
        headers = {"Accept": "application/json", "OpenStack-API-Version": "placement latest", "X-Auth-Token": token}
        retries = urllib3.Retry(total=2, redirect=0, status=0)
        self._pool = urllib3.PoolManager(
            maxsize=CONCURRENCY, block=True, headers=headers, timeout=_TIMEOUT_S, retries=retries
        )

    def get(self, path: str) -> dict[str, Any]:
        """The document at the path. Raises ExportError for any other answer, and for none."""
        try:
            answer = self._pool.request("GET", self._url + path)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise ExportError(f"{self._url} does not answer: {getattr(error, 'reason', error)}") from error
        if answer.status in (401, 403):
            raise ExportError(f"{self._url} answered {answer.status}: give a --token that it takes (noauth2: admin)")
        if answer.status == 404 and path.count("/") > 1:
            raise ExportError(f"{self._url}{path} is gone: the cloud changed while it was read, run it again")
        try:
            return dict(json.loads(answer.data)) if answer.status == 200 else self._refused(path, answer.status)
        except (ValueError, TypeError):
            return self._refused(path, answer.status)

    def _refused(self, path: str, status: int) -> dict[str, Any]:
        raise ExportError(f"GET {self._url}{path} answered {status}, which is no answer of a Placement")


def read_api(url: str, token: str, progress: Callable[[int, int], None]) -> Cloud:
    """The cloud behind the API; *progress* is told how many providers of how many are read.

    Raises ExportError, in one line, for a server that does not answer, refuses the token, or is no Placement.
    """
    api = _Api(url, token)
    listed = api.get("/resource_providers").get("resource_providers")
    if not isinstance(listed, list):
        raise ExportError(f"{url} lists no resource_providers: it is no Placement")
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


def _read(api: _Api, listed: dict[str, Any]) -> _Read:
    uuid = listed["uuid"]
    parts = {
        part: api.get(f"/resource_providers/{uuid}/{part}")[part]
        for part in ("inventories", "traits", "aggregates", "allocations")
    }
    provider = Provider(
        uuid,
        listed.get("parent_provider_uuid"),
        tuple(Inventory(name, *(amounts[each] for each in _AMOUNTS)) for name, amounts in parts["inventories"].items()),
        frozenset(parts["traits"]),
        frozenset(parts["aggregates"]),
    )
    return _Read(
        provider,
        {
            consumer: [Allocation(uuid, name, amount) for name, amount in entry["resources"].items()]
            for consumer, entry in parts["allocations"].items()
        },
    )
