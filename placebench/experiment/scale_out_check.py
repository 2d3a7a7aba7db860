"""Whether a service on several hosts responds rightly: claims, reads after them, and a part that is killed meanwhile.

The main function is `check_scale_out`; `kill_and_restore` is the fault. Each consumer is a register with one writer,
its session. So the history has one rule: a read of the session must have what its last acknowledged write of this
consumer wrote. What is there in the end is looked up in the tables.
"""

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from placebench.errors import LoadError
from placebench.experiment.http_request import HEADERS, fetch, send
from placebench.experiment.write_check import WriteCheck, check_writes, holding_of, read_holdings
from placebench.loadgen.write_log import Allocations, WriteLog, read_write_log
from placebench.reference.api.pipeline import POSITION_HEADER
from placebench.runtime.scale_out import ScaleOut

Note = Callable[[str], None]
_HELD_AT_MOST: Final = 4
_AWAY_S: Final = 1.0
_POLL_S: Final = 0.05
_PAUSE_S: Final = 0.05
_DISTURBED_AT: Final = 1 / 3
_WHO: Final = {"project_id": "placebench", "user_id": "placebench", "consumer_type": "INSTANCE"}


@dataclass(frozen=True)
class ScaleOutCheck:
    """What clients saw, and what became of their writes."""

    writes: WriteCheck
    reads: int
    """Those with a response that could be judged: after an acknowledged write."""
    stale: int
    """Reads that did not show the last acknowledged write of their session."""
    errors: dict[str, int]
    """Requests without a right response, by method and status or exception."""
    elapsed_s: float
    longest_without_write_s: float
    """The longest time in which no write was acknowledged, from the start on: unavailability, where it is seconds."""
    longest_without_read_s: float
    events: list[tuple[float, str]]
    """What was done to a part, and when, in seconds from the start."""

    @property
    def passed(self) -> bool | None:
        """Whether no read was stale and no write lost or doubled; None where nobody could look for the writes."""
        return False if self.stale else self.writes.passed


def check_scale_out(
    url: str,
    database_url: str,
    request: str,
    folder: Path,
    *,
    claims: int,
    sessions: int = 4,
    with_position: bool = True,
    disturb: Callable[[Note], None] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> ScaleOutCheck:
    """Let *sessions* clients make so many *claims* at once, releasing most of them later, and read after each write.

    url: of the service. database_url: where the writes are looked up in the end. request: path and query of the
    candidates that are claimed. folder: of the write log. with_position: whether a read carries the position of the
    session's last write. disturb: is called after a third of the claims, and says what it does.

    Raises LoadError where the service offers no candidates, and what *disturb* raises.
    """
    offered = [each["allocations"] for each in json.loads(fetch(url, request).body)["allocation_requests"]]
    if not offered:
        raise LoadError(f"no candidates to claim at {request}: seed more trees with --trees")
    path = folder / "scale-out.writes.jsonl"
    log = WriteLog(path, seed=0, run=str(time.time_ns()))
    history = _History(url, log, claims, with_position=with_position)
    events: list[tuple[float, str]] = []
    with ThreadPoolExecutor(sessions) as pool:
        try:
            running = [pool.submit(_run_session, history, offered[number::sessions]) for number in range(sessions)]
            while not all(each.done() for each in running):
                progress(history.claimed)
                if disturb and history.claimed >= claims * _DISTURBED_AT:
                    disturb(lambda what: events.append((history.now_s(), what)))
                    disturb = None
                time.sleep(_POLL_S)
            for each in running:
                each.result()
        finally:
            history.stop()
    log.close()
    writes = read_write_log(path)
    held = read_holdings({write.consumer for write in writes}, url=url, database_url=database_url)
    return history.result(check_writes(writes, held), events)


@dataclass
class _History:
    """What all sessions saw; each has its own consumers, and the lock is for the counts."""

    url: str
    log: WriteLog
    left: int
    with_position: bool
    claimed: int = 0
    reads: int = 0
    stale: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._began_s = time.perf_counter()
        self._last = {"write": 0.0, "read": 0.0}
        self._longest = {"write": 0.0, "read": 0.0}

    def now_s(self) -> float:
        """Since the start."""
        return time.perf_counter() - self._began_s

    def take(self) -> bool:
        """Whether another claim may be made."""
        with self._lock:
            self.left -= 1
            self.claimed += self.left >= 0
            return self.left >= 0

    def stop(self) -> None:
        """No further claims."""
        with self._lock:
            self.left = 0

    def write(self, consumer: str, claimed: Allocations | None, body: Any) -> tuple[bool, str | None]:
        """Send a write; whether it was acknowledged, and its position."""
        method = "DELETE" if claimed is None else "PUT"
        with self._lock:
            number = self.log.sent(consumer, claimed)
        content = b"" if body is None else json.dumps(body).encode()
        headers = {**HEADERS, **({"Content-Type": "application/json"} if content else {})}
        try:
            reply = send(self.url, method, f"/allocations/{consumer}", headers=headers, body=content)
        except OSError as error:
            self._fail(method, type(error).__name__)
            return False, None
        with self._lock:
            self.log.responded(number, str(reply.status))
        if reply.status != HTTPStatus.NO_CONTENT:
            self._fail(method, str(reply.status))
            return False, None
        self._succeed("write")
        return True, dict(reply.headers).get(POSITION_HEADER)

    def read(self, consumer: str, expected: Allocations | None, position: str | None) -> None:
        """Read after an acknowledged write, and judge what comes."""
        more = {POSITION_HEADER: position} if position and self.with_position else {}
        try:
            reply = send(self.url, "GET", f"/allocations/{consumer}", headers={**HEADERS, **more})
        except OSError as error:
            self._fail("GET", type(error).__name__)
            return
        if reply.status != HTTPStatus.OK:
            self._fail("GET", str(reply.status))
            return
        holding = holding_of(reply, consumer)
        self._succeed("read")
        with self._lock:
            self.reads += 1
            self.stale += (None if holding is None else holding.allocations) != expected

    def result(self, writes: WriteCheck, events: list[tuple[float, str]]) -> ScaleOutCheck:
        """All of it, at the end."""
        elapsed_s = self.now_s()
        longest = {name: max(gap, elapsed_s - self._last[name]) for name, gap in self._longest.items()}
        return ScaleOutCheck(
            writes, self.reads, self.stale, dict(self.errors), elapsed_s, longest["write"], longest["read"], events
        )

    def _succeed(self, kind: str) -> None:
        with self._lock:
            now_s = self.now_s()
            self._longest[kind] = max(self._longest[kind], now_s - self._last[kind])
            self._last[kind] = now_s

    def _fail(self, method: str, what: str) -> None:
        with self._lock:
            self.errors[f"{method} {what}"] += 1
        time.sleep(_PAUSE_S)  # a service that is away does not get thousands of requests per second


def _run_session(history: _History, offered: list[dict[str, Any]]) -> None:
    """Claim candidates by turns for new consumers; keep a few of them, and release the oldest."""
    held: deque[str] = deque()
    for allocations in cycle(offered):
        if not history.take():
            return
        consumer = history.log.new_consumer()
        claimed: Allocations = {provider: entry["resources"] for provider, entry in allocations.items()}
        body: Mapping[str, Any] = {"allocations": allocations, "consumer_generation": None, **_WHO}
        acknowledged, position = history.write(consumer, claimed, body)
        if acknowledged:
            history.read(consumer, claimed, position)
            held.append(consumer)
        if len(held) > _HELD_AT_MOST:
            oldest = held.popleft()
            acknowledged, position = history.write(oldest, None, None)
            if acknowledged:
                history.read(oldest, None, position)


def kill_and_restore(scaled: ScaleOut, part: str, note: Note) -> None:
    """Kill a "replica" or a "host" and start it again a second later.

    Or the "primary": a replica is promoted at once, and the former primary becomes a replica of it.
    """
    cluster = scaled.cluster
    if part == "host":
        scaled.kill_host(0)
        note("host1 killed")
        time.sleep(_AWAY_S)
        scaled.restart_host(0)
        note("host1 is back")
    elif part == "replica":
        replica = cluster.replicas[0]
        cluster.kill(replica)
        note(f"{replica.name} killed")
        time.sleep(_AWAY_S)
        cluster.restart(replica)
        note(f"{replica.name} is back")
    else:
        former = cluster.primary
        cluster.kill(former)
        note(f"{former.name}, the primary, killed")
        note(f"{cluster.promote().name} is the primary")
        cluster.rejoin(former)
        note(f"{former.name} is a replica")
