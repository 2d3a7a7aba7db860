"""A closed load for the bench from one thread and one epoll: the client that must not be the bottleneck.

The main parts are `drive` and, for a process of its own, `run_apart`. It sends bytes that were made before and reads to
the end of the connection, since uWSGI's --http-socket closes it: some 40 µs of CPU a request where the body is small.
"""

import json
import select
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

HEADERS = "Host: bench\r\nX-Auth-Token: admin\r\nOpenStack-API-Version: placement 1.39\r\n"
_CHUNK = 1 << 20


@dataclass
class Driven:
    """What came back of one load."""

    elapsed_s: float = 0.0
    cpu_s: float = 0.0  # of this client
    statuses: Counter[str] = field(default_factory=Counter)
    latency_s: list[float] = field(default_factory=list)
    body_bytes: int = 0

    def rate(self, status: str) -> float:
        """Answers a second with this status."""
        return self.statuses[status] / self.elapsed_s


@dataclass(slots=True)
class _Open:
    socket: socket.socket
    began: float
    status: str = ""
    received: int = 0


def drive(url: str, requests: Iterator[bytes], *, clients: int, seconds: float) -> Driven:
    """Each client sends the next request when its last one is answered; those under way at the end are waited for."""
    place = urlsplit(url)
    address, poll, chunk = (place.hostname, place.port), select.epoll(), bytearray(_CHUNK)
    view, seen, under_way = memoryview(chunk), Driven(), dict[int, _Open]()

    def send() -> None:
        made = socket.create_connection(address)
        under_way[made.fileno()] = _Open(made, time.perf_counter())
        made.sendall(next(requests))
        poll.register(made, select.EPOLLIN)

    began, cpu_before = time.perf_counter(), time.process_time()
    for _ in range(clients):
        send()
    while under_way:
        for descriptor, _ in poll.poll():
            one = under_way[descriptor]
            count = one.socket.recv_into(chunk)
            if count:
                one.status = one.status or bytes(view[9:12]).decode()
                one.received += count
                continue
            del under_way[descriptor]
            one.socket.close()
            now = time.perf_counter()
            seen.statuses[one.status or "none"] += 1
            seen.latency_s.append(now - one.began)
            seen.body_bytes += one.received
            if now - began < seconds:
                send()
    seen.elapsed_s, seen.cpu_s = time.perf_counter() - began, time.process_time() - cpu_before
    poll.close()
    return seen


def gets(request: str) -> Iterator[bytes]:
    """The same GET for ever."""
    return cycle([f"GET {request} HTTP/1.1\r\n{HEADERS}\r\n".encode()])


def claims(allocations: list[dict[str, Any]], first: int) -> Iterator[bytes]:
    """PUTs of new consumers, numbered from *first*, which take the allocations by turns."""
    who = {"project_id": "bench", "user_id": "bench", "consumer_type": "INSTANCE", "consumer_generation": None}
    kind = f"{HEADERS}Content-Type: application/json\r\n"
    bodies = [json.dumps({"allocations": each, **who}) for each in allocations]
    for number, body in enumerate(cycle(bodies), first):
        head = f"PUT /allocations/{UUID(int=number, version=4)} HTTP/1.1\r\n{kind}Content-Length: {len(body)}\r\n\r\n"
        yield (head + body).encode()


MAKERS: dict[str, Callable[..., Iterator[bytes]]] = {"gets": gets, "claims": claims}


def run_apart(url: str, *, maker: str, arguments: dict[str, Any], clients: int, seconds: float) -> Driven:
    """`drive` in a process of its own, so that nothing else of the bench shares its interpreter."""
    asked = {"url": url, "maker": maker, "arguments": arguments, "clients": clients, "seconds": seconds}
    ended = subprocess.run(
        [sys.executable, __file__], input=json.dumps(asked), stdout=subprocess.PIPE, text=True, check=True
    )
    said = json.loads(ended.stdout)
    return Driven(**{**said, "statuses": Counter(said["statuses"])})


def main() -> None:
    """One load, as it is asked for on stdin."""
    asked = json.load(sys.stdin)
    requests = MAKERS[asked["maker"]](**asked["arguments"])
    json.dump(vars(drive(asked["url"], requests, clients=asked["clients"], seconds=asked["seconds"])), sys.stdout)


if __name__ == "__main__":
    main()
