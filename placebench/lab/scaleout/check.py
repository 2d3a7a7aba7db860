"""Check that a service on several hosts is consistent: claims, a read after each write, and a fault meanwhile.

The main function is `check_scale_out`; `FAULTS` has the faults. Each consumer is written by one session, which reads
the consumer after each acknowledged write. All requests are recorded, and `history_check` searches the record for
anomalies; the final state is read from the tables.
"""

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from placebench.compare.load.write_check import holding_of, read_holdings
from placebench.compare.what.http_request import HEADERS, Reply, fetch, send
from placebench.errors import LoadError
from placebench.lab.reference.api.pipeline import POSITION_HEADER
from placebench.lab.scaleout.cluster import ScaleOut
from placebench.lab.scaleout.history_check import HistoryCheck, HistoryLog, Operation, check_history, read_history
from placebench.loadgen.write_log import Allocations
from placebench.runtime.postgres.cluster import Cluster, ClusterNode, Who

Note = Callable[[str], None]
INTERRUPTED: Final = "interrupted"
_MAX_HELD_CLAIMS: Final = 4
_AWAY_S: Final = 1.0
_CUT_S: Final = 3.0
_POLL_S: Final = 0.05
_PAUSE_S: Final = 0.05
_DISTURBED_AT: Final = 1 / 3
_WHO: Final = {"project_id": "placebench", "user_id": "placebench", "consumer_type": "INSTANCE"}


@dataclass(frozen=True)
class ScaleOutCheck:
    """The result of a check: anomalies in responses, and the outcome of the writes."""

    history: HistoryCheck
    errors: dict[str, int]
    """Number of requests without a successful response, by method and status or exception."""
    elapsed_s: float
    longest_without_write_s: float
    """The longest time without an acknowledged write, including the start and the end; seconds mean unavailability."""
    longest_without_read_s: float
    events: list[tuple[float, str]]
    """Time in seconds since the start, and description, of each action on a part."""


def check_scale_out(
    url: str,
    database_url: str,
    request: str,
    path: Path,
    *,
    claims: int,
    sessions: int = 4,
    with_position: bool = True,
    disturb: Callable[[Note], None] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> ScaleOutCheck:
    """Let *sessions* clients make *claims* claims in total, release most of them later, and read after each write.

    url: URL of the service. database_url: the database in which writes are looked up at the end. request: path and
    query of the candidates to claim. path: the file of the history. with_position: whether a read sends the position of
    the session's last write. disturb: is called after a third of the claims, with a function that records what it does.

    Ctrl-C ends the check early: the result covers the claims until then, and its last event is INTERRUPTED.
    Raises LoadError if the service offers no candidates, and any exception of *disturb*.
    """
    offered = [each["allocations"] for each in json.loads(fetch(url, request).body)["allocation_requests"]]
    if not offered:
        raise LoadError(f"no candidates to claim at {request}: seed more trees with --trees")
    claiming = _Claims(claims)
    log = HistoryLog(path)
    began_s = time.perf_counter()
    events: list[tuple[float, str]] = []

    def note(what: str) -> None:
        events.append((time.perf_counter() - began_s, what))

    with ThreadPoolExecutor(sessions) as pool:
        try:
            clients = [_Session(number, url, log, with_position=with_position) for number in range(sessions)]
            running = [pool.submit(each.run, claiming, offered[each.number :: sessions]) for each in clients]
            while not all(each.done() for each in running):
                progress(claiming.made)
                if disturb and claiming.made >= claims * _DISTURBED_AT:
                    disturb(note)
                    disturb = None
                time.sleep(_POLL_S)
            for each in running:
                each.result()
        except KeyboardInterrupt:
            note(INTERRUPTED)
        finally:
            claiming.stop()
    log.close()
    operations = read_history(path)
    ended_s = max((each.ended_s or 0.0 for each in operations), default=began_s)  # the repair may take longer
    held = read_holdings({each.consumer for each in operations}, url=url, database_url=database_url)
    errors: Counter[str] = Counter()
    for operation in operations:
        if not operation.is_acknowledged:
            method = "GET" if operation.kind == "read" else "DELETE" if operation.value is None else "PUT"
            errors[f"{method} {operation.status or 'interrupted'}"] += 1
    return ScaleOutCheck(
        check_history(operations, held),
        dict(errors),
        ended_s - began_s,
        _longest_without("write", operations, began_s, ended_s),
        _longest_without("read", operations, began_s, ended_s),
        events,
    )


class _Claims:
    """The number of claims that all sessions together still have to make."""

    def __init__(self, count: int) -> None:
        self.made = 0
        self._left = count
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Take one claim; return False if none is left."""
        with self._lock:
            self._left -= 1
            self.made += self._left >= 0
            return self._left >= 0

    def stop(self) -> None:
        """End the check: no further claim can be taken."""
        with self._lock:
            self._left = 0


class _Session:
    """One client, which sends one request at a time and remembers the position of its last write."""

    def __init__(self, number: int, url: str, log: HistoryLog, *, with_position: bool) -> None:
        self.number = number
        self._url = url
        self._log = log
        self._with_position = with_position
        self._position: str | None = None

    def run(self, claims: _Claims, offered: list[dict[str, Any]]) -> None:
        """Claim the offered candidates in turn for new consumers; hold a few claims, and release the oldest."""
        held: deque[str] = deque()
        for allocations in cycle(offered):
            if not claims.take():
                return
            consumer = str(uuid4())
            claimed: Allocations = {provider: entry["resources"] for provider, entry in allocations.items()}
            body: Mapping[str, Any] = {"allocations": allocations, "consumer_generation": None, **_WHO}
            if self._write(consumer, claimed, json.dumps(body).encode()):
                self._read(consumer)
                held.append(consumer)
            if len(held) > _MAX_HELD_CLAIMS and self._write(oldest := held.popleft(), None, b""):
                self._read(oldest)

    def _write(self, consumer: str, claimed: Allocations | None, body: bytes) -> bool:
        """Send a write; return whether it was acknowledged."""
        write = Operation(self.number, "write", consumer, claimed, time.perf_counter())
        number = self._log.sent(write)
        headers = {**HEADERS, "Content-Type": "application/json"} if body else HEADERS
        status, reply = self._send("DELETE" if claimed is None else "PUT", consumer, headers, body)
        self._log.ended(replace(write, ended_s=time.perf_counter(), status=status), number)
        if reply is None or reply.status != HTTPStatus.NO_CONTENT:
            time.sleep(_PAUSE_S)  # a service that is away does not get thousands of requests per second
            return False
        if self._with_position:
            self._position = dict(reply.headers).get(POSITION_HEADER)
        return True

    def _read(self, consumer: str) -> None:
        read = Operation(self.number, "read", consumer, None, time.perf_counter())
        more = {POSITION_HEADER: self._position} if self._position else {}
        status, reply = self._send("GET", consumer, {**HEADERS, **more})
        ended_s = time.perf_counter()
        if reply is None or reply.status != HTTPStatus.OK:
            self._log.ended(replace(read, ended_s=ended_s, status=status))
            time.sleep(_PAUSE_S)
            return
        holding = holding_of(reply, consumer)
        seen = None if holding is None else holding.allocations
        self._log.ended(replace(read, value=seen, ended_s=ended_s, status=status))

    def _send(
        self, method: str, consumer: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[str, Reply | None]:
        """Return the status or the exception's name, and the reply if there was one."""
        try:
            reply = send(self._url, method, f"/allocations/{consumer}", headers=headers, body=body)
        except OSError as error:
            return type(error).__name__, None
        return str(reply.status), reply


def _longest_without(kind: str, operations: Iterable[Operation], began_s: float, ended_s: float) -> float:
    """Return the longest time without a successful response to a request of *kind*."""
    succeeded = (each.ended_s for each in operations if each.kind == kind and each.is_acknowledged and each.ended_s)
    return max(after - before for before, after in pairwise([began_s, *sorted(succeeded), ended_s]))


def _kill_host(scaled: ScaleOut, note: Note) -> None:
    scaled.kill_host(0)
    note("host1 killed")
    time.sleep(_AWAY_S)
    scaled.restart_host(0)
    note("host1 is back")


def _kill_replica(scaled: ScaleOut, note: Note) -> None:
    replica = scaled.cluster.replicas[0]
    scaled.cluster.kill(replica)
    note(f"{replica.name} killed")
    time.sleep(_AWAY_S)
    scaled.cluster.restart(replica)
    note(f"{replica.name} is back")


def _slow_replica(scaled: ScaleOut, note: Note) -> None:
    replica = scaled.cluster.replicas[0]
    with scaled.cluster.replay_paused(replica):
        note(f"{replica.name} applies nothing")
        time.sleep(_CUT_S)
    note(f"{replica.name} goes on")


def _kill_primary(scaled: ScaleOut, note: Note) -> None:
    """Kill the primary and promote a replica; the former primary rejoins as a replica."""
    former = _replace_primary(scaled.cluster, note)
    _rejoin(scaled.cluster, former, note)


def _cut(scaled: ScaleOut, note: Note, *, who: Who) -> None:
    with _cut_off(scaled.cluster, who, note):
        pass


def _cut_then_kill(scaled: ScaleOut, note: Note) -> None:
    """Kill the primary while the replicas lack some of the writes that it acknowledged."""
    with _cut_off(scaled.cluster, "nodes", note):
        former = _replace_primary(scaled.cluster, note)
    _rejoin(scaled.cluster, former, note)


@contextmanager
def _cut_off(cluster: Cluster, who: Who, note: Note) -> Iterator[None]:
    """Block the network between the primary and *who* for some seconds, and further until the block ends."""
    primary = cluster.primary
    with cluster.cut_off(primary, who):
        note(f"{primary.name}, the primary, cut off from {who}")
        time.sleep(_CUT_S)
        yield
    note(f"{primary.name} is reached by {who} again")


def _replace_primary(cluster: Cluster, note: Note) -> ClusterNode:
    former = cluster.primary
    cluster.kill(former)
    note(f"{former.name}, the primary, killed")
    note(f"{cluster.promote().name} is the primary")
    return former


def _rejoin(cluster: Cluster, former: ClusterNode, note: Note) -> None:
    cluster.rejoin(former)
    note(f"{former.name} is a replica")


@dataclass(frozen=True)
class Fault:
    """A fault that is inflicted on a scaled-out service during a check, and repaired at its end."""

    inflict: Callable[[ScaleOut, Note], None]
    of_database: bool = True
    """Whether the fault needs a replica."""
    of_network: bool = False
    """Whether the fault needs a cluster whose network can be cut."""


FAULTS: Final[Mapping[str, Fault]] = {
    "kill-host": Fault(_kill_host, of_database=False),
    "kill-replica": Fault(_kill_replica),
    "kill-primary": Fault(_kill_primary),
    "slow-replica": Fault(_slow_replica),
    "cut-hosts": Fault(partial(_cut, who="services"), of_database=False, of_network=True),
    "cut-replicas": Fault(partial(_cut, who="nodes"), of_network=True),
    "cut-then-kill": Fault(_cut_then_kill, of_network=True),
}
