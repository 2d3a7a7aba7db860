"""Requests of a load run: sent with a number that the server's telemetry repeats, and kept among the samples.

`send_request` sends a `LoadRequest` and gives its `Outcome`.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import geventhttpclient.client
from locust.contrib.fasthttp import FastHttpSession, FastResponse

from placebench.loadgen.samples import LoadSamples
from placebench.loadgen.write_log import Allocations, WriteLog
from placebench.telemetry.telemeter import REQUEST_HEADER, Telemeter

_HEADERS = {
    "X-Auth-Token": "admin",
    "OpenStack-API-Version": "placement 1.39",
    # The bytes of the body are the bytes on the wire.
    "Accept-Encoding": "identity",
}
_JSON_HEADERS = {**_HEADERS, "Content-Type": "application/json"}
_MAX_MESSAGE = 300

# The library sends a GET, PUT or DELETE again by itself when the connection closed before the response. A claim that
# was written is then refused, and a request without a response counts as one with it.
geventhttpclient.client.IDEMPOTENT_METHODS = frozenset()


@dataclass(frozen=True)
class LoadRequest:
    """One request."""

    path: str
    method: str = "GET"
    content: Any = None
    """Goes as JSON, unless it is None."""
    expected: Collection[str] = ("200",)
    """The statuses that are no failure."""
    name: str | None = None
    """What locust counts it under; None: its path without the query."""
    write: tuple[str, Allocations | None] | None = None
    """Of a write, for the write log: the consumer, and what it is to have."""


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
    headers = _HEADERS if request.content is None else _JSON_HEADERS
    request_number = telemeter.next_request() if telemeter is not None else None
    sent_s = samples.send(due_s)
    with client.request(
        request.method,
        request.path,
        name=request.name or path,
        data=None if request.content is None else json.dumps(request.content),
        headers=headers if request_number is None else {**headers, REQUEST_HEADER: str(request_number)},
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


def _read_outcome(response: FastResponse, expected: Collection[str]) -> Outcome:
    """What came back; a status that is not among *expected* is a failure, and so is a 200 whose body broke off."""
    body, status = response.content or b"", str(response.status_code)
    error = getattr(response, "error", None)
    if status in expected and (error is None or status != "200"):
        return Outcome(status, body, failure=None, has_response=True)
    if response.status_code:
        message = f"status {status}: {body.decode(errors='replace')}"
        return Outcome(status, body, failure=_shorten(message), has_response=True)
    name = type(error).__name__
    return Outcome(name, b"", failure=_shorten(f"{name}: {error}"), has_response=False)


def _shorten(text: str) -> str:
    return " ".join(text.split())[:_MAX_MESSAGE]
