"""One load run inside a locust process: which requests are sent, when it ends, its samples, and the exit code.

A locustfile makes a `LoadSession`, and its user calls `get` or `send` (closed-loop) or `follow_schedule` (open-loop).
Each request carries a number that the server's telemetry repeats, and becomes a sample. The run waits for requests in
flight at the end; dropping them, as locust does, would drop the slow ones. With locust's --master, --worker and
--processes each worker makes its part of the load, and the master has all samples at the end.
"""

import os
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final, Self, cast
from urllib.parse import urlsplit

import gevent
from gevent.event import Event
from gevent.pool import Pool
from locust import FastHttpUser, events
from locust.contrib.fasthttp import FastHttpSession, LocustBadStatusCode, ResponseContextManager
from locust.env import Environment
from locust.exception import StopUser
from locust.runners import STATE_RUNNING, STATE_SPAWNING, LocalRunner, MasterRunner, WorkerRunner

from placebench.http_session import Request, Session, login_redirect
from placebench.loadgen import connections
from placebench.loadgen.distributed import MasterLink, WorkerLink
from placebench.loadgen.options import LoadOptions, LoadPart, add_options, arrivals
from placebench.loadgen.samples import LoadSamples
from placebench.loadgen.write_log import Allocations, WriteLog, write_log_path
from placebench.telemetry.requests import REQUEST_HEADER
from placebench.telemetry.telemeter import Telemeter

_EXIT_NO_SAMPLES = 1
_PAUSE_WITHOUT_RESPONSE_S = 0.1
_COUNT_EVERY_S = 0.5
_EXIT_LOST_WORKERS = 1
# Without compression, the size of the body is the number of bytes on the wire.
_UNPACKED = {"Accept-Encoding": "identity"}
PLACEMENT_HEADERS: Final = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39", **_UNPACKED}
_FIRST_ERROR = 400
_MAX_MESSAGE = 300

connections.install()


def candidates_path(default: str) -> str:
    """Return the request of the locustfiles for candidates: $PLACEBENCH_REQUEST, or the *default*."""
    return os.environ.get("PLACEBENCH_REQUEST") or default


class ResponseTimeoutError(OSError):
    """Raised when a response is not complete in time."""


@dataclass(frozen=True)
class LoadRequest:
    """One request, by default to Placement's API."""

    path: str
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=lambda: PLACEMENT_HEADERS)
    body: bytes = b""
    expected: Collection[str] | None = ("200",)
    """The statuses that count as success; None for all below 400."""
    name: str | None = None
    """The name under which locust counts the request; by default its path without the query."""
    write: tuple[str, Allocations | None] | None = None
    """The entry in the write log for a request that writes: the consumer, and the allocations that it should get."""

    @classmethod
    def of(cls, request: Request) -> Self:
        """Return a request to any service, with its own headers; a status of 400 or more is a failure."""
        return cls(
            request.path,
            request.method,
            {**_UNPACKED, **request.headers},
            request.body,
            expected=None,
            name=str(request),
        )


@dataclass(frozen=True)
class Outcome:
    """The outcome of one request."""

    status: str
    """The HTTP status, or the name of the exception if there was no response."""
    body: bytes
    failure: str | None
    has_response: bool
    """Whether there was a response, with any status."""


class LoadSession:
    """The load run of this locust process; registers its listeners with locust's events."""

    options: LoadOptions
    samples: LoadSamples

    def __init__(self, kind: str, path: str) -> None:
        """kind: "closed" or "open". path: the default request of the command line."""
        self._kind = kind
        self._path = path
        self._sessions: dict[FastHttpSession, Session] = {}
        """The session of each user that has logged in."""
        self._users_logged_in = 0
        self._logged_in = Event()
        """Set when all users have logged in, or when the load has no login."""
        self._warm = Event()
        self._stopping = Event()
        self._schedule_taken = False
        self._telemeter: Telemeter | None = None
        self._master: MasterLink | None = None
        self._worker: WorkerLink | None = None
        self.part = LoadPart()
        for hook, listener in (
            (events.init_command_line_parser, self._on_command_line),
            (events.init, self._on_init),
            (events.test_start, self._on_test_start),
            (events.test_stopping, self._on_test_stopping),
        ):
            hook.add_listener(listener)  # type: ignore[no-untyped-call]

    def get(self, client: FastHttpSession) -> None:
        """Send the next request of a closed-loop load; raises StopUser if there are no more."""
        self._log_in(client)
        if self._warmup_left:
            self._pause_without_response(self._warm_up(client))
        else:
            self.send(client, next(self._requests))

    def send(self, client: FastHttpSession, request: LoadRequest) -> Outcome:
        """Send *request* as part of a closed-loop load once the warm-up is over; a write is logged."""
        self._log_in(client)
        while self._warmup_left:
            self._warm_up(client)
        self._warm.wait()
        if not self._take():
            raise StopUser
        log = self.write_log if request.write else None
        outcome = self._send(client, request, self.samples, write_log=log, telemeter=self._telemeter)
        self._pause_without_response(outcome)
        return outcome

    @cached_property
    def write_log(self) -> WriteLog:
        """The log of this run's writes, beside the samples; without --samples-file it is discarded."""
        options = self.options
        path = write_log_path(options.samples_file) if options.samples_file else Path(os.devnull)
        return WriteLog(path, seed=options.seed, run=str(time.time_ns()), part=self.part.index)

    def follow_schedule(self, client: FastHttpSession, job: Callable[[float], object] | None = None) -> None:
        """Send the whole schedule of an open-loop load in the first user that calls; every user then raises StopUser.

        A request is sent when it is due, whatever the outcome of earlier requests, while fewer than
        options.max_concurrent are in flight. Otherwise it waits and counts as missed, but its latency still runs from
        when it was due. With several processes, this process sends its part of the schedule. job: called with the
        offset instead of sending a request; it sends its requests by `send_part`, and records one sample itself.
        """
        if self._schedule_taken:
            raise StopUser
        self._schedule_taken = True
        self._log_in(client)
        while self._warmup_left:
            self._warm_up(client)
        self._warm.wait()
        pool, options = Pool(self.options.max_concurrent), self.options
        schedule = zip(
            islice(arrivals(options.rate_per_s, options.seed), options.requests), self._requests, strict=False
        )
        for due_s, request in self.part.select(schedule, options.seed):
            if not self._wait_for(due_s):
                break
            if job:
                pool.spawn(job, due_s)
            else:
                pool.spawn(self._send, client, request, self.samples, due_s=due_s, telemeter=self._telemeter)
        self._stopping.set()
        pool.join()
        raise StopUser

    def send_part(self, client: FastHttpSession, request: LoadRequest) -> Outcome:
        """Send a request of a job, which is not a separate sample."""
        return self._send(client, request, self._parts, telemeter=self._telemeter)

    def _log_in(self, client: FastHttpSession) -> None:
        """Send the login of this user, which is in no figure, and wait for the others; raises StopUser if it fails."""
        if self.options.login and client not in self._sessions:
            self._sessions[client] = Session()
            for request in self.options.login:
                outcome = self._send(client, LoadRequest.of(request), self._parts)
                if outcome.failure is not None:
                    print(f"LoginError: login {request}: {outcome.failure}")  # noqa: T201  where locust's errors go
                    self._end_now(at_once=False)
                    raise StopUser
                self._sessions[client].keep_access_token(outcome.body)
            self._users_logged_in += 1
            # A worker learns its number of users only when it starts them.
            if self._users_logged_in == (1 if self._kind == "open" else cast(Any, self._runner).target_user_count):
                self._logged_in.set()
                if not self._warmup_left:
                    self._begin()
        self._logged_in.wait()

    def _send(
        self,
        client: FastHttpSession,
        request: LoadRequest,
        samples: LoadSamples,
        *,
        due_s: float | None = None,
        write_log: WriteLog | None = None,
        telemeter: Telemeter | None = None,
    ) -> Outcome:
        """Send the request and read the response; a write is logged before it is sent, and its status afterwards.

        due_s: the offset at which it is due in an open-loop load. telemeter: records the duration of the request, which
        then carries a number that the server's telemetry repeats.
        """
        number = write_log.sent(*request.write) if write_log is not None and request.write else None
        path = urlsplit(request.path).path
        if telemeter is not None and not telemeter.ready():
            telemeter = None
        request_number = telemeter.next_request() if telemeter is not None else None
        numbered = {} if request_number is None else {REQUEST_HEADER: str(request_number)}
        session = self._sessions.get(client)
        if session is not None:
            numbered |= session.headers(request.method)
        limit_s = self.options.response_timeout_s
        sent_s = samples.send(due_s)
        with (
            # The outcome of a logged write is checked later; sending it twice would hide that outcome.
            connections.sending(may_repeat=request.write is None) as sending,
            gevent.Timeout(limit_s, ResponseTimeoutError(f"no whole response within {limit_s:g} s")),
            client.request(
                request.method,
                request.path,
                name=request.name or path,
                data=cast(str, request.body or None),  # bytes are sent as they are
                headers={**numbered, **request.headers},
                catch_response=True,
                allow_redirects=False,
            ) as response,
        ):
            ended_s = samples.now_s()
            outcome = _read_outcome(response, request)
            if session is not None and response.headers:
                session.keep_cookies(response.headers.items())
            if outcome.failure is None:
                response.success()
            else:
                response.failure(outcome.failure)
        if write_log is not None and number is not None and outcome.has_response:
            write_log.responded(number, outcome.status)
        size = len(outcome.body)
        samples.end(
            sent_s,
            ended_s,
            due_s=due_s,
            status=outcome.status,
            body_bytes=size,
            failure=outcome.failure,
            repeats=sending.repeats,
        )
        if telemeter is not None and request_number is not None:
            telemeter.duration(
                "client",
                (samples.zero or 0.0) + sent_s,
                ended_s - sent_s,
                request=request_number,
                verb=request.method,
                path=telemeter.patterns.of(path),
                status=outcome.status,
            )
        return outcome

    def _wait_for(self, due_s: float) -> bool:
        """Wait until the offset *due_s*; return False if the run ends earlier."""
        end_s = self.options.measure_s
        if self._stopping.is_set() or (end_s is not None and due_s >= end_s):
            return False
        return not self._stopping.wait(timeout=max(0.0, due_s - self.samples.now_s()))

    def _take(self) -> bool:
        """Return whether another request may be sent; the last request of --requests ends the run."""
        if self._stopping.is_set():
            return False
        if self._requests_left is not None:
            self._requests_left -= 1
            if self._requests_left == 0:
                self._stopping.set()
        return True

    def _warm_up(self, client: FastHttpSession) -> Outcome:
        self._warmup_left -= 1
        outcome = self._send(client, next(self._requests), self._warmup)
        if self._warmup.completed == self._warmup_wanted:
            self._begin()
        return outcome

    def _pause_without_response(self, outcome: Outcome) -> None:
        """Pause after a request without response, so that an unreachable server does not get thousands per second."""
        if not outcome.has_response:
            gevent.sleep(_PAUSE_WITHOUT_RESPONSE_S)

    def _begin(self) -> None:
        """End the warm-up and begin to count: at once, or in a worker when the master says so."""
        if self._worker is not None:
            self._worker.report_ready()
        else:
            self._begin_at(None)

    def _begin_at(self, at: float | None) -> None:
        self.samples.begin(at)
        self._parts.begin(at)
        if self._requests_left == 0:  # fewer requests than processes
            self._stopping.set()
        self._warm.set()

    def _on_command_line(self, parser: Any, **_: object) -> None:
        add_options(parser, path=self._path)

    def _on_init(self, environment: Environment, **_: object) -> None:
        parsed = cast(Namespace, environment.parsed_options)
        self._read_options(parsed)
        runner = environment.runner
        if isinstance(runner, MasterRunner):
            log = write_log_path(self.options.samples_file) if self.options.samples_file else None
            self._master = MasterLink(runner, self.samples, log)
            if self._kind == "open":
                # One user sends all of a worker's requests, so each worker needs one.
                def add_user(**_: object) -> None:
                    parsed.num_users = max(parsed.num_users or 1, len(runner.clients) + 1)
                    parsed.spawn_rate = max(parsed.spawn_rate or 1, parsed.num_users)

                events.worker_connect.add_listener(add_user)  # type: ignore[no-untyped-call]
        elif isinstance(runner, WorkerRunner):
            self._worker = WorkerLink(runner, begin=self._begin_at, end=self._end_now)
            if self.options.samples_file is None:
                self._scratch = tempfile.TemporaryDirectory(prefix="placebench-worker-")
                parsed.samples_file = f"{self._scratch.name}/samples.json"
                self._read_options(parsed)
        if self.options.telemetry is not None:
            self._telemeter = Telemeter(self.options.telemetry, role="client")
        # Must run before the runner's own listeners: afterwards no message can be sent.
        events.quitting.add_listener(self._on_quitting)  # type: ignore[no-untyped-call]
        # locust times its -t on a clock that was last read before the imports: without this it ends a second early.
        gevent.get_hub().loop.update_now()
        environment.stop_timeout = parsed.stop_timeout or self.options.response_timeout_s
        self._configure_users(environment)

    def _read_options(self, parsed: Namespace) -> None:
        """Read the options of this process's *part* of the load."""
        self.options = LoadOptions.of(parsed)
        self._requests = cycle(
            [LoadRequest.of(each) for each in self.options.workload] or [LoadRequest(self.options.path)]
        )
        requests = self.options.requests if self._kind == "closed" else None  # the schedule ends by itself
        self._requests_left = None if requests is None else self.part.share(requests)
        self._warmup_left = self.part.share(self.options.warmup)
        self._warmup_wanted = self._warmup_left
        self.samples = self._new_samples(parsed)
        self._warmup = self._new_samples(parsed)
        self._parts = self._new_samples(parsed)

    def _configure_users(self, environment: Environment) -> None:
        for user in environment.user_classes:
            if issubclass(user, FastHttpUser):
                user.network_timeout = user.connection_timeout = self.options.response_timeout_s
                user.concurrency = self.options.max_concurrent
                user.insecure = self.options.insecure

    def _new_samples(self, parsed: Namespace) -> LoadSamples:
        rate_per_s = self.options.rate_per_s if self._kind == "open" else None
        return LoadSamples(self._kind, parsed.num_users or 1, rate_per_s, self.options.seed)

    def _on_test_start(self, environment: Environment, **_: object) -> None:
        if self._master is not None:
            self._start_workers(environment, self._master)
            return
        if self._worker is not None and not self._take_part(environment, self._worker):
            return
        self._warmup.begin()
        self._parts.begin()
        self._runner = environment.runner
        if not self.options.login:
            self._logged_in.set()
            if not self._warmup_left:
                self._begin()

        def end() -> None:
            self._warm.wait()
            self._stopping.wait(timeout=self.options.measure_s)
            self._stopping.set()
            self._end_users(environment)

        gevent.spawn(end)
        if self.options.samples_file:
            gevent.spawn(self._write_count)

    def _start_workers(self, environment: Environment, master: MasterLink) -> None:
        runner = cast(MasterRunner, environment.runner)
        users, workers = runner.target_user_count, len(runner.clients.ready)
        self.samples.users = users
        if workers > users:
            print(f"{users} users for {workers} workers: give one to each at least (--users)")  # noqa: T201
            environment.process_exit_code = _EXIT_NO_SAMPLES
            gevent.spawn(runner.quit)
            return
        master.assign_parts()
        gevent.spawn(master.run)
        if self.options.samples_file:
            gevent.spawn(self._write_count, runner)

    def _take_part(self, environment: Environment, worker: WorkerLink) -> bool:
        """Read the options again, now the master's; return False for a worker that connected after the start.

        The worker's files keep the paths that it was started with, numbered by its part.
        """
        if worker.part is None:
            self._end_now(at_once=False)
            return False
        own, self.part = self.options, worker.part
        self._read_options(cast(Namespace, environment.parsed_options))
        samples_file = own.samples_file
        if samples_file is not None:
            samples_file = samples_file.with_suffix(f".{self.part.index}{samples_file.suffix}")
        self.options = replace(self.options, samples_file=samples_file, telemetry=own.telemetry)
        self._configure_users(environment)
        return True

    def _end_users(self, environment: Environment) -> None:
        """Wait until the users, which send no further request, have ended, and hand over this process's samples."""
        runner = environment.runner
        if isinstance(runner, LocalRunner) and runner.state in (STATE_SPAWNING, STATE_RUNNING):
            # The users end by themselves. If quit() waited for them, its inspect.stack() would delay the last requests
            # by 20 to 50 ms, in which no response is read.
            runner.user_greenlets.join(timeout=environment.stop_timeout)
            environment.stop_timeout = 0.0
            runner.quit()
        elif isinstance(runner, WorkerRunner):
            runner.user_greenlets.join(timeout=environment.stop_timeout)
            self._hand_over()

    def _hand_over(self, *, at_once: bool = False) -> None:
        """Write a worker's samples to its file, and send them to the master."""
        if self._worker is not None and self._worker.part is not None and self.options.samples_file:
            self.samples.save(self.options.samples_file)
            self._worker.hand_over(self.samples, write_log_path(self.options.samples_file), at_once=at_once)

    def _write_count(self, master: MasterRunner | None = None) -> None:
        """Write the number of ended requests to a file beside the samples, from which progress is shown.

        locust's master knows the number from its workers, the warm-up included.
        """
        if self.options.samples_file:
            count_file = self.options.samples_file.with_suffix(".count")
            while True:
                count_file.write_text(str(master.stats.total.num_requests if master else self.samples.completed))
                gevent.sleep(_COUNT_EVERY_S)

    def _end_now(self, at_once: bool) -> None:
        """End the load early; at_once: do not wait for the requests in flight."""
        self._stopping.set()
        self._logged_in.set()
        self._warm.set()
        if at_once:
            self._hand_over(at_once=True)

    def _on_test_stopping(self, environment: Environment, **_: object) -> None:
        self._end_now(at_once=False)
        if self._master is not None:
            self._master.collect(at_once=False, limit_s=environment.stop_timeout or 0.0)

    def _on_quitting(self, environment: Environment, **_: object) -> None:
        """Save the samples at the end of the run, also after Ctrl-C and SIGTERM, without waiting for anything else."""
        environment.stop_timeout = 0.0
        if self._telemeter is not None:
            self._telemeter.close()
        if self._worker is not None:
            self._hand_over(at_once=True)
        if "write_log" in vars(self):
            self.write_log.close()
        if self._worker is not None:
            return  # the master sees the failures of all its workers, and whether there were samples
        lost = 0
        if self._master is not None:
            self._master.collect(at_once=True)
            lost = self._master.note_lost_workers()
        if self.options.samples_file:
            self.samples.save(self.options.samples_file)
        if self.samples.completed == 0:
            print("no samples: not one request ended")  # noqa: T201  where locust's own output goes
            environment.process_exit_code = _EXIT_NO_SAMPLES
        elif lost:
            print(f"{lost} workers were lost: their requests are in no figure")  # noqa: T201
            environment.process_exit_code = _EXIT_LOST_WORKERS
        elif self.samples.failures:
            environment.process_exit_code = cast(Namespace, environment.parsed_options).exit_code_on_error


def _read_outcome(response: ResponseContextManager, request: LoadRequest) -> Outcome:
    """Return the outcome; an unexpected status, an incomplete response and a redirect to a login page are failures."""
    expected = request.expected
    status, error = str(response.status_code), response.request_meta["exception"]
    if not response.status_code:
        return Outcome(type(error).__name__, b"", _shorten(f"{type(error).__name__}: {error}"), has_response=False)
    if error is not None and not isinstance(error, LocustBadStatusCode):
        broke_off = f"status {status}, then {type(error).__name__}: {error}"
        return Outcome(status, b"", _shorten(broke_off), has_response=True)
    body = response.content or b""
    location = response.headers.get("location") if expected is None and response.headers else None
    if location and (page := login_redirect(request.path, response.status_code, str(location))):
        failure = f"status {status} to the login page {page}, expected the response of a user who is logged in"
        return Outcome(status, body, _shorten(failure), has_response=True)
    if response.status_code < _FIRST_ERROR if expected is None else status in expected:
        return Outcome(status, body, failure=None, has_response=True)
    message = f"status {status}: {body.decode(errors='replace')}"
    return Outcome(status, body, failure=_shorten(message), has_response=True)


def _shorten(text: str) -> str:
    return " ".join(text.split())[:_MAX_MESSAGE]
