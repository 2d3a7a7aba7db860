"""The process that sends requests over HTTP, as one user or several at once: `Client`.

`placebench.compare.load.clients` starts it. It is its own process, so that reading and digesting share no interpreter
with the process that meters the server. Run as `python -m placebench.compare.load.client_process FOLDER`. `main` runs
on another machine (`placebench.compare.load.client_machine`), where nothing is written and responses come back with the
times.
"""

import base64
import hashlib
import json
import os
import re
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from placebench.compare.what.canonical_response import (
    Response,
    ResponseRules,
    compared_head,
    find_values,
    parse_response,
)
from placebench.compare.what.http_request import RESPONSE_LIMIT_S, Reply, send
from placebench.compare.what.scripted_workload import Script, WorkloadClient, load_script
from placebench.compare.what.workload import LoginRequest, SentRequest, Workload
from placebench.errors import FailedRequestsError, LoadError, NoResponseError
from placebench.http_session import Session, login_redirect
from placebench.runtime.line_process import serve_lines

_SILENCE_S, _CONNECT_LIMIT_S, _CONNECTIONS = 900, 10, 5
_UNTIL_SCHEDULE_S = 0.05
"""Time between the order to send requests on a schedule and its start, for the threads to be there."""


@dataclass
class Driven:
    """Results of one call of `drive`, over all its users."""

    wall_s: list[float] = field(default_factory=list)
    """Duration of each request, whether it got a response or failed; on a schedule from the moment it was due."""
    failures: list[str] = field(default_factory=list)
    is_hanging: bool = False
    """Whether a request got no response within the time limit, after which no other one was sent."""
    error_responses: int = 0
    """The number of failures with a response (or a failed check of a script), as opposed to lost connections."""
    body_bytes: int = 0
    elapsed_s: float = 0.0
    """Time from the first request, or from the start of the schedule, to the last response."""
    late_s: list[float] = field(default_factory=list)
    """How much later than it could each request on a schedule was sent; waiting for a free thread is not in it."""
    client_cpu_s: float = 0.0
    """CPU seconds that sending and reading took."""
    responses: dict[str, list[str]] = field(default_factory=dict)
    """Canonical digests of the distinct responses, by request."""
    cycle: int = 1
    """The number of requests after which the sequence repeats; all of them, if the iterations of a script differ."""
    calls: list[str] = field(default_factory=list)
    """The requests that a script sent, in order."""
    redirects: int = 0
    """The number of responses with a status from 300 to 399."""
    names: list[str] = field(default_factory=list)
    """Request names in order of first use: method and path without the query, as the profiler names recordings."""

    @property
    def digests(self) -> list[str]:
        """The canonical digests of the responses to all requests, sorted."""
        return sorted({digest for digests in self.responses.values() for digest in digests})

    def check(self) -> Self:
        """Raise FailedRequestsError with the first failure if a request failed; otherwise return this object.

        Raises NoResponseError if the last request got no response within the time limit.
        """
        if self.failures:
            counts = f"{len(self.failures)} of {len(self.wall_s)} requests failed"
            if self.is_hanging:
                raise NoResponseError(f"{counts}: {self.failures[-1]}")
            raise FailedRequestsError(f"{counts}: {self.failures[0]}")
        return self


def responses_folder(folder: Path) -> Path:
    """Return the folder of the response bodies of the run in *folder*, one file per digest; it is made if missing."""
    responses = folder / "responses"
    responses.mkdir(mode=0o700, exist_ok=True)
    return responses


def body_file(folder: Path, digest: str) -> Path:
    """Return the path of the response body with this canonical digest."""
    return folder / f"{digest}.body"


def write_response(folder: Path, digest: str, body: bytes, head: Mapping[str, Any]) -> None:
    """Save a response under its canonical digest, unless it is there."""
    path = body_file(folder, digest)
    if not path.exists():
        path.write_bytes(body)
        if head:
            path.with_suffix(".head").write_text(json.dumps(head))


def read_response(folder: Path, digest: str, rules: ResponseRules) -> Response:
    """Return the response with this canonical digest, read from *folder*."""
    path = body_file(folder, digest)
    head = path.with_suffix(".head")
    return parse_response(path.read_bytes(), rules, json.loads(head.read_bytes()) if head.exists() else {})


class Client:
    """Sends requests and stores the distinct responses; runs in the client process."""

    def __init__(self, folder: Path | None, *, clock: Callable[[], float] = time.perf_counter) -> None:
        """folder: gets each distinct response; None: responses are collected in `distinct`."""
        self._folder = folder
        self.distinct: list[tuple[str, bytes, Mapping[str, Any]]] = []
        """Canonical digest, body and head of each distinct response that is not yet transferred."""
        self._clock = clock
        self._canonical: dict[tuple[_Seen, ResponseRules], str] = {}
        """Canonical digest by the digest of the bytes and the compared part of the head, and by the rules."""
        self._sessions: dict[str, Session] = {}
        """Sessions by URL."""
        self._scripts: dict[str, Script] = {}
        self._iterations: dict[str, int] = {}
        """The number of iterations of the script since the login, by URL."""

    def drive(
        self,
        url: str,
        workload: Workload,
        *,
        times: int = 1,
        users: int = 1,
        login: bool = False,
        due_s: Sequence[float] = (),
    ) -> Driven:
        """Send the requests as `HttpClient.drive` says; canonical digests are computed after the timed part."""
        if login:
            self._sessions[url] = self._logged_in(url, workload)
            self._iterations[url] = 0
        sender = _Sender(url, workload, self._sessions.setdefault(url, Session()), self._clock)
        if workload.script:
            self._run_script(url, workload, sender, times=times, login=login)
            return self._driven(sender, workload, times)
        cycles = workload.cycle * times
        planned: Sequence[float | None] = due_s or [None] * len(cycles)
        waiting, lock = zip(cycles, planned, strict=True), threading.Lock()

        def use() -> None:
            while True:
                with lock:
                    number, offset_s = next(waiting, (None, None))
                if number is None or sender.driven.is_hanging:
                    return
                due = None
                if offset_s is not None:
                    free, due = self._clock(), started + offset_s
                    if free < due:
                        time.sleep(due - free)
                    sender.driven.late_s.append(self._clock() - max(free, due))
                sender.send(workload.calls[number], due=due)

        started, cpu_before = self._clock() + (_UNTIL_SCHEDULE_S if due_s else 0), time.process_time()
        if users == 1:
            use()
        else:
            threads = [threading.Thread(target=use) for _ in range(min(users, len(cycles)))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        sender.driven.elapsed_s = self._clock() - started
        if users > 1 or due_s:  # digests and locks too, which delay the other users
            sender.driven.client_cpu_s = time.process_time() - cpu_before
        return self._driven(sender, workload, times)

    def _run_script(self, url: str, workload: Workload, sender: "_Sender", *, times: int, login: bool) -> None:
        """Run the script *times* times; the requests that start its session are not counted."""
        script = self._scripts.get(workload.script)
        if script is None:
            script = self._scripts[workload.script] = load_script(workload.script, Path(workload.folder))
        if login:
            begin = _Sender(url, workload, self._sessions[url], self._clock)
            _attempt(
                workload.script, begin, lambda: script.start(url, WorkloadClient(begin.judged, f"{workload.seed}"))
            )
            begin.driven.check()
        started = self._clock()
        for _ in range(times):
            number = self._iterations[url] = self._iterations.get(url, 0) + 1
            client = WorkloadClient(sender.judged, f"{workload.seed} {number}")
            _attempt(workload.script, sender, partial(script.run, client))
        sender.driven.elapsed_s = self._clock() - started
        if not sender.driven.wall_s:
            sender.driven.check()
            raise LoadError(f"workload {workload.script!r} sent no request")

    def _driven(self, sender: "_Sender", workload: Workload, times: int) -> Driven:
        """Return the results with the canonical digests of the responses."""
        seen, requests = sender.driven, len(sender.driven.wall_s)
        seen.names, seen.cycle = list(sender.names), requests if requests % times else requests // times
        digests: dict[str, set[str]] = {}
        for (label, key), (body, head) in sender.bodies.items():
            digests.setdefault(label, set()).add(self._digest(key, body, head, workload.rules_of(label)))
        seen.responses = {label: sorted(each) for label, each in digests.items()}
        return seen

    def _logged_in(self, url: str, workload: Workload) -> Session:
        """Log in and return the session; raises LoadError if the login fails or its response lacks the token."""
        session = Session()
        for call in workload.login:
            try:
                reply = send(url, call.method, call.path, headers=_headers(url, call, session), body=call.body)
            except OSError as error:
                raise LoadError(f"login {call.label}: {error}") from error
            if failure := _failure(call, reply):
                raise LoadError(f"login {call.label}: {failure}")
            session.keep_cookies(reply.headers)
            if token := _token(call, reply):
                name, _, value = call.send.partition(":")
                session.token_headers = {name: value.strip().replace("{token}", token)}
            else:
                session.keep_access_token(reply.body)
        return session

    def _digest(self, key: "_Seen", body: bytes, head: dict[str, Any], rules: ResponseRules) -> str:
        if (key, rules) not in self._canonical:
            self._canonical[key, rules] = digest = parse_response(body, rules, head).digest
            if self._folder is None:
                self.distinct.append((digest, body, head))
            else:
                write_response(self._folder, digest, body, head)
        return self._canonical[key, rules]


def _failure(call: SentRequest, reply: Reply) -> str:
    """Return why a response has failed, with the start of its body unless that is markup; empty for a success.

    A redirect to a login page has failed, unless its status is the one that the workload names.
    """
    location = next((value for name, value in reply.headers if name.lower() == "location"), "")
    if call.expect_status is None and (page := login_redirect(call.path, reply.status, location)):
        return f"status {reply.status} to the login page {page}, expected the response of a user who is logged in"
    if call.accepts(reply.status):
        return ""
    said = " ".join(reply.body[:200].decode(errors="replace").split())
    wrong = f"status {reply.status}, expected {call.expected}"
    return wrong if not said or said.startswith("<") else f"{wrong}: {said}"


_Seen = tuple[bytes, tuple[Any, ...]]


class _Sender:
    """Sends the requests of one `drive` call, and collects the responses."""

    def __init__(self, url: str, workload: Workload, session: Session, clock: Callable[[], float]) -> None:
        self.driven = Driven()
        self.bodies: dict[tuple[str, _Seen], tuple[bytes, dict[str, Any]]] = {}
        """Distinct responses by the request's label and their bytes."""
        self._url = url
        self._rules_of = workload.rules_of
        self._session = session
        self._clock = clock
        self._lock = threading.Lock()
        self.names: dict[str, None] = {}
        """Request names in order of first use (see `Driven.names`)."""

    def send(self, call: SentRequest, *, due: float | None = None) -> Reply | None:
        """Send one request, whose duration counts from *due* if that is given; returns None if no response came."""
        cpu_before, started, reply = time.thread_time(), self._clock(), None
        try:
            headers = _headers(self._url, call, self._session)
            reply = send(self._url, call.method, call.path, headers=headers, body=call.body, timeout_s=RESPONSE_LIMIT_S)
            failure = _failure(call, reply)
        except TimeoutError:
            failure, self.driven.is_hanging = f"no response within {RESPONSE_LIMIT_S:g} s", True
        except OSError as error:
            failure = f"{type(error).__name__}: {error}"
        wall_s, cpu_s = self._clock() - (started if due is None else due), time.thread_time() - cpu_before
        head: dict[str, Any] = {}
        name = body = b""
        rules = self._rules_of(call.label)
        if reply:
            self._session.keep_cookies(reply.headers)
        if reply and not failure and not rules.off:
            plain = _without_own_port(reply, self._url)
            head, body = compared_head(reply.status, plain.headers, rules), plain.body
            name = hashlib.sha256(body).digest()
        with self._lock:
            self.driven.wall_s.append(wall_s)
            self.driven.client_cpu_s += cpu_s
            self.driven.redirects += reply is not None and reply.status // 100 == 3
            self.names[f"{call.method} {call.path.partition('?')[0]}"] = None
            if failure:
                self.driven.failures.append(f"{call.label}: {failure}")
                self.driven.error_responses += reply is not None
            elif reply:
                self.driven.body_bytes += len(reply.body)
                if name:
                    self.bodies.setdefault((call.label, (name, tuple(head.items()))), (body, head))
        return reply

    def judged(self, call: SentRequest) -> tuple[Reply, Callable[[str], None]]:
        """Send a request of a script; return its response and a function that sets or clears its failure.

        Raises LoadError if no response came.
        """
        self.driven.calls.append(call.label)
        failures = self.driven.failures
        before, errors_before = len(failures), self.driven.error_responses
        reply = self.send(call)
        if reply is None:
            raise LoadError(failures[-1])

        def judge(failure: str) -> None:
            del failures[before:]
            self.driven.error_responses = errors_before + bool(failure)
            if failure:
                failures.append(f"{call.label}: {failure}")

        return reply, judge


def _attempt(script: str, sender: _Sender, run: Callable[[], None]) -> None:
    """Run a part of a script; an exception counts as a failure unless one of its requests has already failed."""
    before = len(sender.driven.failures)
    try:
        run()
    except Exception as error:  # noqa: BLE001  it is the user's, whatever it is
        if len(sender.driven.failures) == before:
            sender.driven.failures.append(f"{script}: {type(error).__name__}: {error}")
            sender.driven.error_responses += 1


def _headers(url: str, call: SentRequest, session: Session) -> dict[str, str]:
    """Return the headers of a request; Host has no port, so that URLs in responses are the same for all variants."""
    headers = {"Accept-Encoding": "identity", **session.headers(call.method), **call.headers}
    if not any(name.lower() == "host" for name in headers):
        headers["Host"] = urlsplit(url).netloc.rpartition(":")[0]
    return headers


def _without_own_port(reply: Reply, url: str) -> Reply:
    """Return a reply without the port of the server in its own address, which differs between variants.

    An application that makes links from its own port, rather than from the header Host, has it in pages and redirects.
    """
    parts = urlsplit(url)
    names = dict.fromkeys([parts.hostname or "", "127.0.0.1", "localhost", "0.0.0.0"])
    body, headers = reply.body, reply.headers
    port = str(parts.port)
    texts = [body, *(value.encode() for _, value in headers)]
    # The digits alone are in many identifiers, and the search below takes a second for some megabytes.
    texts = [each for each in texts if port.encode() in each]
    marks = [f"{separator}{port}".encode() for separator in (":", "%3A", "%3a")]
    if not any(mark in each for each in texts for mark in marks):
        return reply
    own = re.compile(rf"(?:(?<![\w.-])|(?<=%2F))({'|'.join(map(re.escape, names))})(:|%3A){port}\b", re.IGNORECASE)
    in_bytes = re.compile(own.pattern.encode(), re.IGNORECASE)
    shown = [(name, own.sub(r"\1", value)) for name, value in headers]
    return replace(reply, body=in_bytes.sub(rb"\1", body), headers=shown)


def _token(call: LoginRequest, reply: Reply) -> str:
    """Return the token that the login names, or an empty string if it names none; raises LoadError if it is missing."""
    if call.token_header:
        found = [value for name, value in reply.headers if name.lower() == call.token_header.lower()]
        seen = f"no header {call.token_header}, only {', '.join(name for name, _ in reply.headers)}"
    elif call.token:
        try:
            document = json.loads(reply.body)
        except (ValueError, RecursionError):
            document = None
        found = [value for value in find_values(call.token, document) if isinstance(value, str) and value]
        keys = ", ".join(document) if isinstance(document, dict) else "no JSON object"
        seen = f"no text at {call.token}: it has {keys}"
    else:
        return ""
    if not found:
        raise LoadError(f"login {call.label}: its response has {seen}")
    return found[0]


def main(folder: Path | None = None) -> None:
    """Serve orders of `HttpClient` until the connection closes.

    folder: where responses are saved. None on another machine, where the process also ends after a long silence.
    """
    client, workloads = Client(folder), [Workload()]

    def respond(*, workload: Mapping[str, Any] | None = None, **order: Any) -> dict[str, Any]:
        if "peer" in order:
            return {"peer": os.environ.get("SSH_CONNECTION", "no address").split()[0]}
        if "connect" in order:
            return _connect(*order["connect"])
        if workload is not None:
            workloads[:] = [msgspec.convert(workload, Workload)]
        try:
            made = asdict(client.drive(workload=workloads[0], **order))
        except LoadError as error:
            made = {"error": str(error)}
        made["distinct"] = [(name, base64.b64encode(body).decode(), head) for name, body, head in client.distinct]
        client.distinct.clear()
        return made

    serve_lines(respond if folder is not None else _watched(respond))


def _watched(respond: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Make the process end when its standard input closes, or after a long silence, as when a cable is cut."""

    def end_with_input() -> None:  # also while a request is under way
        poller = select.poll()
        poller.register(0, select.POLLRDHUP)
        poller.poll()
        os._exit(1)

    threading.Thread(target=end_with_input, daemon=True).start()
    signal.alarm(_SILENCE_S)

    def respond_in_time(**order: Any) -> dict[str, Any]:
        signal.alarm(0)
        try:
            return respond(**order)
        finally:
            signal.alarm(_SILENCE_S)

    return respond_in_time


def _connect(address: str, port: int) -> dict[str, Any]:
    """Return how long connections to a port take, or why connecting failed."""
    connected_s = []
    for _ in range(_CONNECTIONS):
        started = time.perf_counter()
        try:
            socket.create_connection((address, port), timeout=_CONNECT_LIMIT_S).close()
        except OSError as error:
            return {"error": error.strerror or str(error)}
        connected_s.append(time.perf_counter() - started)
    return {"connected_s": connected_s}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
