"""One load run inside a locust process: which requests are sent, when it ends, its samples, and the exit code.

A locustfile makes a `LoadSession` and lets its user call `get` or `send` (closed-loop) or `follow_schedule`
(open-loop). Each request goes with a number that the server's telemetry repeats, and is kept among the samples. The
requests in flight at the end are waited for: to drop them, as locust does, drops the slow ones.
"""

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import cycle
from pathlib import Path
from typing import Any, Final, Self, cast
from urllib.parse import urlsplit

import gevent
import geventhttpclient.client
from gevent.event import Event
from gevent.pool import Pool
from locust import FastHttpUser, events
from locust.contrib.fasthttp import FastHttpSession, FastResponse
from locust.env import Environment
from locust.exception import StopUser
from locust.runners import STATE_RUNNING, STATE_SPAWNING, LocalRunner, MasterRunner, WorkerRunner

from placebench.http_session import Request
from placebench.loadgen.options import LoadOptions, add_options, arrivals
from placebench.loadgen.samples import LoadSamples
from placebench.loadgen.write_log import Allocations, WriteLog, write_log_path
from placebench.telemetry.telemeter import REQUEST_HEADER, Telemeter

_EXIT_NO_SAMPLES = 1
_PAUSE_WITHOUT_RESPONSE_S = 0.1
_COUNT_EVERY_S = 0.5
_COUNTED_IN_ONE_PROCESS = ("requests", "warmup", "samples_file")
_ONE_PROCESS = (
    "an open-loop load, --requests, --warmup and --samples-file count in one process: "
    "leave out --processes, --master and --worker"
)
# The bytes of the body are the bytes on the wire.
_UNPACKED = {"Accept-Encoding": "identity"}
PLACEMENT_HEADERS: Final = {
    "X-Auth-Token": "admin",
    "OpenStack-API-Version": "placement 1.39",
    **_UNPACKED,
}
_FIRST_ERROR = 400
_MAX_MESSAGE = 300

# The library sends a GET, PUT or DELETE again by itself when the connection closed before the response. A claim that
# was written is then refused, and a request without a response counts as one with it.
geventhttpclient.client.IDEMPOTENT_METHODS = frozenset()


def candidates_path(default: str) -> str:
    """What the locustfiles of candidates request: $PLACEBENCH_REQUEST, or the *default*."""
    return os.environ.get("PLACEBENCH_REQUEST") or default


@dataclass(frozen=True)
class LoadRequest:
    """One request, by default to Placement's API."""

    path: str
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=lambda: PLACEMENT_HEADERS)
    body: bytes = b""
    expected: Collection[str] | None = ("200",)
    """The statuses that are no failure; None: all below 400."""
    name: str | None = None
    """What locust counts it under; None: its path without the query."""
    write: tuple[str, Allocations | None] | None = None
    """Of a write, for the write log: the consumer, and what it is to have."""

    @classmethod
    def of(cls, request: Request) -> Self:
        """A request to any service: with its own headers, and a failure from status 400 on."""
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
    """What became of one request."""

    status: str
    """The HTTP status, or the name of the exception that came in its place."""
    body: bytes
    failure: str | None
    has_response: bool
    """Whether there was a response, with whatever status."""


class LoadSession:
    """The run that this locust process makes; registers itself with locust's events."""

    options: LoadOptions
    samples: LoadSamples

    def __init__(self, kind: str, path: str) -> None:
        """kind: "closed" or "open". path: what is requested unless the command line says otherwise."""
        self._kind = kind
        self._path = path
        self._warm = Event()
        self._stopping = Event()
        self._schedule_taken = False
        self._telemeter: Telemeter | None = None
        for hook, listener in (
            (events.init_command_line_parser, self._on_command_line),
            (events.init, self._on_init),
            (events.test_start, self._on_test_start),
            (events.test_stopping, self._on_test_stopping),
            (events.quitting, self._on_quitting),
        ):
            hook.add_listener(listener)  # type: ignore[no-untyped-call]

    def get(self, client: FastHttpSession) -> None:
        """Closed-loop load: the next request; raises StopUser when no more is to be sent."""
        if self._warmup_left:
            self._pause_without_response(self._warm_up(client))
        else:
            self.send(client, self._next_request())

    def send(self, client: FastHttpSession, request: LoadRequest) -> Outcome:
        """Closed-loop load: send any request, once the warm-up is over; a write goes into the write log."""
        while self._warmup_left:
            self._warm_up(client)
        self._warm.wait()
        if not self._take():
            raise StopUser
        log = self.write_log if request.write else None
        outcome = _send_request(client, request, self.samples, write_log=log, telemeter=self._telemeter)
        self._pause_without_response(outcome)
        return outcome

    @cached_property
    def write_log(self) -> WriteLog:
        """The log of this run's writes: beside the samples, or nowhere without --samples-file."""
        options = self.options
        path = write_log_path(options.samples_file) if options.samples_file else Path(os.devnull)
        return WriteLog(path, seed=options.seed, run=str(time.time_ns()))

    def follow_schedule(self, client: FastHttpSession, job: Callable[[float], object] | None = None) -> None:
        """Open-loop load: the whole schedule, by the first user that comes; every user raises StopUser in the end.

        A request is sent when it is due, whatever became of the ones before, as long as fewer than
        options.max_concurrent are in flight; else it waits, counts as missed, and its latency still runs from when it
        was due. job: is called with that offset instead of a request; it sends its requests by `send_part`, and is
        one sample, which it takes itself.
        """
        if self._schedule_taken:
            raise StopUser
        self._schedule_taken = True
        while self._warmup_left:
            self._warm_up(client)
        pool = Pool(self.options.max_concurrent)
        for due_s in arrivals(self.options.rate_per_s, self.options.seed):
            if not self._wait_for(due_s) or not self._take():
                break
            pool.spawn(job, due_s) if job else pool.spawn(self._send_due, client, self._next_request(), due_s)
        self._stopping.set()
        pool.join()
        raise StopUser

    def send_part(self, client: FastHttpSession, request: LoadRequest) -> Outcome:
        """Send a request of a job, which is not a sample of its own."""
        return _send_request(client, request, self._parts, telemeter=self._telemeter)

    def _send_due(self, client: FastHttpSession, request: LoadRequest, due_s: float) -> None:
        _send_request(client, request, self.samples, due_s=due_s, telemeter=self._telemeter)

    def _next_request(self) -> LoadRequest:
        return next(self._requests)

    def _wait_for(self, due_s: float) -> bool:
        """Until then; False when the run ends before."""
        end_s = self.options.measure_s
        if end_s is not None and due_s >= end_s:
            return False
        return not self._stopping.wait(timeout=max(0.0, due_s - self.samples.now_s()))

    def _take(self) -> bool:
        """Whether another request may be sent; the last one of --requests ends the run."""
        if self._stopping.is_set():
            return False
        if self._requests_left is not None:
            self._requests_left -= 1
            if self._requests_left == 0:
                self._stopping.set()
        return True

    def _warm_up(self, client: FastHttpSession) -> Outcome:
        self._warmup_left -= 1
        outcome = _send_request(client, self._next_request(), self._warmup)
        if self._warmup.completed == self.options.warmup:
            self._begin()
        return outcome

    def _pause_without_response(self, outcome: Outcome) -> None:
        """A server that is away does not get ten thousand requests per second."""
        if not outcome.has_response:
            gevent.sleep(_PAUSE_WITHOUT_RESPONSE_S)

    def _begin(self) -> None:
        self.samples.begin()
        self._parts.begin()
        self._warm.set()

    def _on_command_line(self, parser: Any, **_: object) -> None:
        add_options(parser, path=self._path)
        self._refuse_before_the_fork()

    def _on_init(self, environment: Environment, **_: object) -> None:
        parsed = cast(Namespace, environment.parsed_options)
        self.options = LoadOptions.of(parsed)
        self._requests = cycle(
            [LoadRequest.of(each) for each in self.options.workload] or [LoadRequest(self.options.path)]
        )
        self._refuse_several_processes(environment)
        self._requests_left = self.options.requests
        self._warmup_left = self.options.warmup
        self.samples = self._new_samples(parsed)
        self._warmup = self._new_samples(parsed)
        self._parts = self._new_samples(parsed)
        if self.options.telemetry is not None:
            self._telemeter = Telemeter(self.options.telemetry, role="client")
        # Locust times its -t on a clock that was last read before the imports: without this it ends a second early.
        gevent.get_hub().loop.update_now()
        environment.stop_timeout = parsed.stop_timeout or self.options.response_timeout_s
        for user in environment.user_classes:
            if issubclass(user, FastHttpUser):
                user.network_timeout = user.connection_timeout = self.options.response_timeout_s
                user.concurrency = self.options.max_concurrent

    def _new_samples(self, parsed: Namespace) -> LoadSamples:
        rate_per_s = self.options.rate_per_s if self._kind == "open" else None
        return LoadSamples(self._kind, parsed.num_users or 1, rate_per_s, self.options.seed)

    def _refuse_several_processes(self, environment: Environment) -> None:
        if self._needs_one_process(vars(environment.parsed_options)) and not isinstance(
            environment.runner, LocalRunner
        ):
            raise SystemExit(_ONE_PROCESS)

    def _refuse_before_the_fork(self) -> None:
        """The same by what was typed: once forked, a worker whose master has left would wait for ever."""
        typed = {argument.partition("=")[0] for argument in sys.argv[1:]}
        needs_one = {f"--{name.replace('_', '-')}": name for name in _COUNTED_IN_ONE_PROCESS}
        given = {name: option in typed for option, name in needs_one.items()}
        if self._needs_one_process(given) and typed & {"--processes", "--master", "--worker"}:
            raise SystemExit(_ONE_PROCESS)

    def _needs_one_process(self, options: Mapping[str, object]) -> bool:
        return self._kind == "open" or any(options[name] for name in _COUNTED_IN_ONE_PROCESS)

    def _on_test_start(self, environment: Environment, **_: object) -> None:
        self._warmup.begin()
        if not self._warmup_left:
            self._begin()
        gevent.spawn(self._end_the_run, environment)
        if self.options.samples_file:
            gevent.spawn(self._write_count)

    def _end_the_run(self, environment: Environment) -> None:
        self._warm.wait()
        self._stopping.wait(timeout=self.options.measure_s)
        self._stopping.set()
        runner = environment.runner
        if isinstance(runner, LocalRunner) and runner.state in (STATE_SPAWNING, STATE_RUNNING):
            # The users end by themselves. To let quit() wait for them would cost the last requests its inspect.stack(),
            # 20 to 50 ms in which no response is read.
            runner.user_greenlets.join(timeout=environment.stop_timeout)
            environment.stop_timeout = 0.0
            runner.quit()

    def _write_count(self) -> None:
        """Keep the number of ended requests in a file beside the samples, for whoever shows progress."""
        if self.options.samples_file:
            count_file = self.options.samples_file.with_suffix(".count")
            while True:
                count_file.write_text(str(self.samples.completed))
                gevent.sleep(_COUNT_EVERY_S)

    def _on_test_stopping(self, **_: object) -> None:
        self._stopping.set()
        self._warm.set()

    def _on_quitting(self, environment: Environment, **_: object) -> None:
        """The end, and also what Ctrl-C and SIGTERM come to: keep what there is, and wait for nothing any more."""
        environment.stop_timeout = 0.0
        if self.options.samples_file:
            self.samples.save(self.options.samples_file)
        if "write_log" in vars(self):
            self.write_log.close()
        if self._telemeter is not None:
            self._telemeter.close()
        if isinstance(environment.runner, WorkerRunner):
            return  # the master sees the failures of all its workers, and whether there were samples
        if self._completed(environment) == 0:
            print("no samples: not one request ended")  # noqa: T201  where locust's own output goes
            environment.process_exit_code = _EXIT_NO_SAMPLES
        elif self.samples.failures:
            environment.process_exit_code = cast(Namespace, environment.parsed_options).exit_code_on_error

    def _completed(self, environment: Environment) -> int:
        if isinstance(environment.runner, MasterRunner):
            return environment.runner.stats.total.num_requests
        return self.samples.completed


def _send_request(
    client: FastHttpSession,
    request: LoadRequest,
    samples: LoadSamples,
    *,
    due_s: float | None = None,
    write_log: WriteLog | None = None,
    telemeter: Telemeter | None = None,
) -> Outcome:
    """Send the request and read the response; a write is logged before it leaves, and its status when it came.

    due_s: the offset at which it is due in an open-loop load. telemeter: records how long the request took; its number
    is sent along, so that the server's telemetry has it too.
    """
    number = write_log.sent(*request.write) if write_log is not None and request.write else None
    path = urlsplit(request.path).path
    if telemeter is not None and not telemeter.ready():
        telemeter = None
    request_number = telemeter.next_request() if telemeter is not None else None
    sent_s = samples.send(due_s)
    with client.request(
        request.method,
        request.path,
        name=request.name or path,
        data=cast(str, request.body or None),  # bytes are sent as they are
        headers=request.headers if request_number is None else {**request.headers, REQUEST_HEADER: str(request_number)},
        catch_response=True,
        allow_redirects=False,
    ) as response:
        ended_s = samples.now_s()
        outcome = _read_outcome(response, request.expected)
        if outcome.failure is None:
            response.success()
        else:
            response.failure(outcome.failure)
    if write_log is not None and number is not None and outcome.has_response:
        write_log.responded(number, outcome.status)
    size = len(outcome.body)
    samples.end(sent_s, ended_s, due_s=due_s, status=outcome.status, body_bytes=size, failure=outcome.failure)
    if telemeter is not None and request_number is not None:
        _record(telemeter, request_number, request, (samples.zero or 0.0) + sent_s, ended_s - sent_s, outcome.status)
    return outcome


def _record(
    telemeter: Telemeter, number: int, request: LoadRequest, started: float, duration_s: float, status: str
) -> None:
    pattern = telemeter.patterns.of(urlsplit(request.path).path)
    telemeter.duration("client", started, duration_s, request=number, verb=request.method, path=pattern, status=status)


def _read_outcome(response: FastResponse, expected: Collection[str] | None) -> Outcome:
    """What came back; a status that is not among *expected* is a failure, and so is a 200 whose body broke off."""
    code = response.status_code
    body, status = response.content or b"", str(code)
    error = getattr(response, "error", None)
    is_expected = 0 < code < _FIRST_ERROR if expected is None else status in expected
    if is_expected and (error is None or status != "200"):
        return Outcome(status, body, failure=None, has_response=True)
    if code:
        message = f"status {status}: {body.decode(errors='replace')}"
        return Outcome(status, body, failure=_shorten(message), has_response=True)
    name = type(error).__name__
    return Outcome(name, b"", failure=_shorten(f"{name}: {error}"), has_response=False)


def _shorten(text: str) -> str:
    return " ".join(text.split())[:_MAX_MESSAGE]
