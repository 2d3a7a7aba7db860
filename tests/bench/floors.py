"""What no service can be cheaper than, for the requests of some data: `floors`.

`bytes`: uWSGI sends a body that was made before, as long as the median response. `read`: psycopg2 reads the rows of the
five tables, and nothing is done with them. `json`: orjson writes the documents of the responses from objects.
"""

import json
import os
import statistics
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
from data_sets import Data
from server_cpu import server_cpu
from sqlalchemy import create_engine

from placebench.compare.what.http_request import fetch
from placebench.compare.what.variants import Variant, read_variants
from placebench.lab.inventory.topology import Topology
from placebench.meters.meters import backend_cpu_between, read_backends
from placebench.runtime.application_servers import serve
from placebench.runtime.postgres import Server

FAKES = Path(__file__).parents[1] / "fakes"
REQUESTS = 20
_TABLES = (
    "SELECT id, uuid, parent_provider_id, root_provider_id FROM resource_providers",
    "SELECT resource_provider_id, resource_class_id, total, reserved, max_unit, allocation_ratio FROM inventories",
    "SELECT resource_provider_id, trait_id FROM resource_provider_traits",
    "SELECT resource_provider_id, aggregate_id FROM resource_provider_aggregates",
    "SELECT resource_provider_id, resource_class_id, sum(used) FROM allocations GROUP BY 1, 2",
)


def floors(server: Server, data: Data, topology: Topology, *, repeats: int, seed: int) -> dict[str, list[float]]:
    """Milliseconds of CPU a request, a value a repeat."""
    url = server.create_database("of_floors", template=f"bench_{data.name}")
    calls = (call.path for call in data.requests(topology, seed) if "allocation_candidates" in call.path)
    with TemporaryDirectory() as folder:
        _, dedup = read_variants(["tuned", "dedup"])
        with serve(dedup.spec(url, hash_seed=1, log=Path(folder) / "dedup")) as served:
            bodies = [fetch(served.url, path).body for path in islice(calls, REQUESTS)]
        size = round(statistics.median(map(len, bodies)))
        found = {
            "bytes": [_bytes(url, size, Path(folder)) for _ in range(repeats)],
            "read": [_read(url) for _ in range(repeats)],
            "json": [_json([json.loads(body) for body in bodies]) for _ in range(repeats)],
        }
    server.drop_database("of_floors")
    return found


def _bytes(url: str, size: int, folder: Path) -> float:
    path = os.pathsep.join([str(FAKES), os.environ.get("PYTHONPATH", "")])
    variables = {"PYTHONPATH": path, "CONSTANT_BODY_BYTES": str(size)}
    transport = Variant("bytes", module="constant_body:application", variables=variables, ours=False)
    with serve(transport.spec(url, hash_seed=1, log=folder / "bytes")) as served:
        fetch(served.url, "/")
        cpu_s = server_cpu(served, url)
        for _ in range(REQUESTS * 5):
            fetch(served.url, "/")
        taken_s = cpu_s()
    assert taken_s is not None
    return taken_s / (REQUESTS * 5) * 1e3


def _read(url: str) -> float:
    engine = create_engine(url)
    with engine.connect() as connection:
        cursor = connection.connection.cursor()

        def read(times: int) -> None:
            for statement in _TABLES * times:
                cursor.execute(statement)
                cursor.fetchall()

        read(1)
        before = read_backends(url)
        own_s = _process_s(lambda: read(REQUESTS))
        backend_s = backend_cpu_between(before, read_backends(url))
    engine.dispose()
    assert backend_s is not None
    return (own_s + backend_s) / REQUESTS * 1e3


def _json(documents: list[object]) -> float:
    return _process_s(lambda: [orjson.dumps(each) for each in documents]) / len(documents) * 1e3


def _process_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
