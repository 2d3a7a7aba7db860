"""Samples and telemetry of an ordinary locustfile; `placebench load --locustfile` passes this file to locust before it.

The locustfile decides what is sent, when, and by whom, as under plain locust. This module sees its requests through
locust's events.
"""

from argparse import Namespace
from typing import Any
from urllib.parse import urlsplit

from locust import events
from locust.env import Environment
from locust.runners import WorkerRunner

from placebench.loadgen import connections
from placebench.loadgen.options import DEFAULT_TIME_S
from placebench.loadgen.session import LoadSession

_STOP_S = 30.0
"""Seconds that tasks under way at the end may take."""
_UNUSED = {
    "candidates_path": "/",
    "requests_file": None,
    "login_file": None,
    "requests": None,
    "warmup": 0,
    "rate": 1.0,
    "max_concurrent": 1,
    "seed": 1,
    "response_timeout": _STOP_S,
    "insecure": 0,
}
"""Options of our own locustfiles, which an ordinary locustfile may define with another meaning."""


class LocustfileSession(LoadSession):
    """The run of an ordinary locustfile: its users run as under plain locust, and each request event is a sample."""

    def __init__(self) -> None:
        super().__init__("closed", "/")
        events.request.add_listener(self._on_request)  # type: ignore[no-untyped-call]
        events.spawning_complete.add_listener(self._on_spawning_complete)  # type: ignore[no-untyped-call]

    def _on_command_line(self, parser: Any, **_: object) -> None:
        for name in ("samples-file", "telemetry"):
            parser.add_argument(f"--placebench-{name}", dest=name.replace("-", "_"))
        parser.add_argument("--placebench-measure-s", dest="measure_s", type=float)

    def _read_options(self, parsed: Namespace) -> None:
        own = {name: getattr(parsed, name) for name in ("samples_file", "telemetry", "measure_s")}
        super()._read_options(Namespace(**_UNUSED, **own, num_users=parsed.num_users))

    def _configure_users(self, environment: Environment) -> None:
        """Leave the users unchanged; give a run without a `LoadTestShape` an end, and its tasks time to finish."""
        parsed = environment.parsed_options
        environment.stop_timeout = getattr(parsed, "stop_timeout", None) or _STOP_S
        if environment.shape_class is not None:
            self.samples.users = 0
        elif parsed is not None and parsed.measure_s is None:
            parsed.measure_s = DEFAULT_TIME_S
            self._read_options(parsed)

    def _end_users(self, environment: Environment) -> None:
        runner = environment.runner
        if isinstance(runner, WorkerRunner):
            runner.stop()
            self._hand_over()
        elif runner is not None:
            runner.quit()

    def _on_spawning_complete(self, user_count: int, **_: object) -> None:
        self.samples.users = max(self.samples.users, user_count)

    def _on_request(
        self,
        request_type: str,
        name: str,
        response_time: float,
        response_length: int,
        exception: BaseException | None = None,
        response: Any = None,
        url: str = "",
        **_: object,
    ) -> None:
        """Record a request of any client that locust reports; requests that began before the load are left out."""
        samples = self.samples
        if samples.zero is None or (sent_s := samples.now_s() - response_time / 1000) < 0:
            return
        status = str(getattr(response, "status_code", 0) or (type(exception).__name__ if exception else "ok"))
        failure = None
        if exception is not None:
            code, failure = getattr(response, "status_code", 0), f"{type(exception).__name__}: {exception}"
            failure = " ".join(failure.split())[:300]
            failure = f"status {code}: {failure}" if code else failure
        samples.sent += 1
        samples.end(
            sent_s,
            sent_s + response_time / 1000,
            due_s=None,
            status=status,
            body_bytes=response_length or 0,
            failure=failure,
        )
        samples.repeats = connections.all_others.repeats
        if self._telemeter is not None and self._telemeter.ready():
            path = self._telemeter.patterns.of(urlsplit(url or name).path)
            started, number = samples.zero + sent_s, self._telemeter.next_request()
            self._telemeter.duration(
                "client", started, response_time / 1000, request=number, verb=request_type, path=path, status=status
            )


session = LocustfileSession()
