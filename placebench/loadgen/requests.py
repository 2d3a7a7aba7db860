"""Requests of a load run: sent with a number that the server's telemetry repeats, and kept among the samples.

`send_request` sends a `LoadRequest` and gives its `Outcome`.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, Self, cast
from urllib.parse import urlsplit

import geventhttpclient.client
from locust.contrib.fasthttp import FastHttpSession, FastResponse

from placebench.http_session import Request
from placebench.loadgen.samples import LoadSamples
from placebench.loadgen.write_log import Allocations, WriteLog
from placebench.telemetry.telemeter import REQUEST_HEADER, Telemeter

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


def send_request(
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
