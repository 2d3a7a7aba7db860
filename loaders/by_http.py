"""Loads a topology through Placement's public API, so that it can load any server that has it.

Several threads take one tree after the other and make its providers in order, each with its inventories, traits and
aggregates: at most four requests a provider; then the consumers of the tree, many a request. There is no transaction
around it: a run that stops leaves what it wrote.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Any, TypedDict

import urllib3

from placebench.addresses import service_address
from placebench.decoding import decode_json
from placebench.errors import SeedError
from placebench.lab.inventory.seeding import Progress, ProgressMeter, Target
from placebench.lab.inventory.topology import (
    CONSUMER_TYPE,
    OWNER,
    Inventory,
    ResourceProvider,
    Takes,
    Topology,
    is_custom,
)

CONCURRENCY = 8
# The threads wait for each other after so many trees; what waits to be made stays small.
_TREES_AT_ONCE = 256
_TIMEOUT_S = 60.0
_CONSUMERS_AT_ONCE = 100
_HEADERS = {
    "Accept": "application/json",
    "Content-Type": "application/json",
    "OpenStack-API-Version": "placement 1.39",
    "X-Auth-Token": "admin",
}


class _Response(TypedDict, total=False):
    """What a response says of a provider, if it is about one."""

    generation: int
    resource_provider_generation: int


class Api:
    """Requests to one server, over connections that are kept when the server keeps them."""

    def __init__(self, url: str) -> None:
        """url: of the service; nothing is sent yet."""
        self._url = service_address(url, error=SeedError).geturl().rstrip("/")
        # A server that closes connections may close one just as it is taken again: that request was not seen.
        retries = urllib3.Retry(total=2, redirect=0, status=0, allowed_methods=None)
        self._pool = urllib3.PoolManager(
            maxsize=CONCURRENCY, block=True, headers=_HEADERS, timeout=_TIMEOUT_S, retries=retries
        )

    def send(self, method: str, path: str, body: dict[str, Any] | None = None) -> _Response:
        """Return the document of a successful response; raise SeedError for any other, and for none."""
        try:
            response = self._pool.request(
                method, self._url + path, body=None if body is None else json.dumps(body).encode()
            )
        except urllib3.exceptions.HTTPError as error:
            raise SeedError(f"{self._url} does not respond: {getattr(error, 'reason', error)}") from error
        if response.status >= 300:
            raise SeedError(f"{method} {self._url}{path} responded {response.status}: {_detail(response.data)}")
        request = f"{method} {self._url}{path}"
        return decode_json(response.data, _Response, request, error=SeedError) if response.data else {}


def load(topology: Topology, target: Target, progress: Progress) -> None:
    """Make every provider of the topology. Raises SeedError at the first response that is not a success."""
    if target.api_url is None:
        raise SeedError("loader by_http needs a server that serves the database: give its address with --api-url")
    api = Api(target.api_url)
    for name in filter(is_custom, topology.resource_classes):
        api.send("PUT", f"/resource_classes/{name}")
    for name in filter(is_custom, topology.traits):
        api.send("PUT", f"/traits/{name}")
    _make_trees(api, topology, ProgressMeter(progress, topology, passes=1))


def _make_trees(api: Api, topology: Topology, meter: ProgressMeter) -> None:
    threads = ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="by_http")
    try:
        for first in range(0, topology.trees, _TREES_AT_ONCE):
            numbers = range(first, min(first + _TREES_AT_ONCE, topology.trees))
            for _ in threads.map(partial(_make_tree, api, topology), numbers):
                meter.step(1)
    finally:
        threads.shutdown(cancel_futures=True)


def _make_tree(api: Api, topology: Topology, number: int) -> None:
    for provider in topology.tree(number):
        _make(api, provider)
    if topology.is_used:
        _claim(api, topology, number)


def _make(api: Api, provider: ResourceProvider) -> None:
    """One provider and what belongs to it; each response has the generation that the next request has to name."""
    made = {"uuid": provider.uuid, "name": provider.name}
    parent = {"parent_provider_uuid": provider.parent_uuid} if provider.parent_uuid else {}
    generation = api.send("POST", "/resource_providers", made | parent).get("generation")
    parts = {
        "inventories": {inventory.resource_class: _amounts(inventory) for inventory in provider.inventories},
        "traits": provider.traits,
        "aggregates": provider.aggregate_uuids,
    }
    for kind, content in parts.items():
        if content:
            body = {"resource_provider_generation": generation, kind: content}
            response = api.send("PUT", f"/resource_providers/{provider.uuid}/{kind}", body)
            generation = response.get("resource_provider_generation")


def _claim(api: Api, topology: Topology, number: int) -> None:
    """The allocations of the tree's consumers, a batch of them per request, which is written whole or not at all."""
    uuids = topology.uuids(number)
    whose = {"project_id": OWNER, "user_id": OWNER, "consumer_type": CONSUMER_TYPE, "consumer_generation": None}
    bodies = [
        (consumer, {"allocations": _allocations(takes, uuids), **whose})
        for consumer, takes in topology.consumers(number)
    ]
    for first in range(0, len(bodies), _CONSUMERS_AT_ONCE):
        api.send("POST", "/allocations", dict(bodies[first : first + _CONSUMERS_AT_ONCE]))


def _allocations(takes: Takes, uuids: list[str]) -> dict[str, Any]:
    allocations: dict[str, Any] = {}
    for place, name, amount in takes:
        allocations.setdefault(uuids[place], {"resources": {}})["resources"][name] = amount
    return allocations


def _amounts(inventory: Inventory) -> dict[str, Any]:
    amounts = asdict(inventory)
    del amounts["resource_class"]
    return amounts


def _detail(body: bytes) -> str:
    """What an error document says, or the beginning of a body that is none."""
    try:
        detail = str(json.loads(body)["errors"][0]["detail"])
    except (ValueError, LookupError, TypeError):
        detail = body.decode(errors="replace")
    return " ".join(detail.split())[:300]
