"""Requests of a load run: sent with a number that the server's telemetry repeats, and kept among the samples."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import geventhttpclient.client
from locust.contrib.fasthttp import FastHttpSession, FastResponse

from placebench.loadgen.samples import Samples
from placebench.loadgen.write_log import Allocations, Ledger
from placebench.telemetry.telemeter import REQUEST_HEADER, Telemeter


class Numbered:
    """One request on its way; without a telemeter it has no number and notes nothing."""

    def __init__(self, telemeter: Telemeter | None, verb: str, path: str) -> None:
        self._telemeter = telemeter if telemeter is not None and telemeter.ready() else None
        self._verb = verb
        self._path = path
        self._number = self._telemeter.next_request() if self._telemeter is not None else 0

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """*headers* with the number among them."""
        return {**headers, REQUEST_HEADER: str(self._number)} if self._telemeter is not None else dict(headers)

    def ended(self, samples: Samples, sent_s: float, ended_s: float, status: str) -> None:
        """It left and ended at these offsets of *samples*."""
        if self._telemeter is not None:
            self._telemeter.duration(
                "client",
                (samples.zero or 0.0) + sent_s,
                ended_s - sent_s,
                request=self._number,
                verb=self._verb,
                path=self._telemeter.patterns.of(self._path),
                status=status,
            )


HEADERS = {
    "X-Auth-Token": "admin",
    "OpenStack-API-Version": "placement 1.39",
    # The bytes of the body are the bytes on the wire.
    "Accept-Encoding": "identity",
}
_MESSAGE_CHARACTERS = 300

# The library sends a GET, PUT or DELETE again by itself when the connection closed before the answer. A claim that was
# written is then refused, and a request that got no answer counts as answered.
geventhttpclient.client.IDEMPOTENT_METHODS = frozenset()


def exchange(
    client: FastHttpSession,
    path: str,
    samples: Samples,
    due_s: float | None = None,
    *,
    telemeter: Telemeter | None = None,
) -> bool:
    """GET *path*, due at offset *due_s* in an open load; whether there was an answer, with whatever status.

    telemeter: is told how long it took, and its number is sent along, so that the server's telemetry bears it too.
    """
    numbered = Numbered(telemeter, "GET", urlsplit(path).path)
    headers = numbered.headers(HEADERS)
    sent_s = samples.send(due_s)
    with client.get(
        path, name=urlsplit(path).path, headers=headers, catch_response=True, allow_redirects=False
    ) as response:
        ended_s = samples.now_s()
        outcome = outcome_of(response)
        if outcome.failure is not None:
            response.failure(outcome.failure)
    samples.end(
        sent_s, ended_s, due_s=due_s, status=outcome.status, body_bytes=len(outcome.body), failure=outcome.failure
    )
    numbered.ended(samples, sent_s, ended_s, outcome.status)
    return outcome.answered


@dataclass(frozen=True)
class Outcome:
    """What became of one request."""

    status: str
    """The HTTP status, or the name of the exception that came in its place."""
    body: bytes
    failure: str | None
    answered: bool
    """Whether there was an answer, with whatever status."""


def outcome_of(response: FastResponse, *, well: Collection[str] = ("200",)) -> Outcome:
    """What came back; a status that is not among *well* is a failure, and so is a 200 whose body broke off."""
    body, status = response.content or b"", str(response.status_code)
    error = getattr(response, "error", None)
    if status in well and (error is None or status != "200"):
        return Outcome(status, body, failure=None, answered=True)
    if response.status_code:
        message = f"status {status}: {body.decode(errors='replace')}"
        return Outcome(status, body, failure=_short(message), answered=True)
    name = type(error).__name__
    return Outcome(name, b"", failure=_short(f"{name}: {error}"), answered=False)


def _short(text: str) -> str:
    return " ".join(text.split())[:_MESSAGE_CHARACTERS]


_AS_JSON = {**HEADERS, "Content-Type": "application/json"}


@dataclass(frozen=True)
class Asked:
    """One request."""

    path: str
    method: str = "GET"
    content: Any = None
    """Goes as JSON, unless it is None."""
    well: Collection[str] = ("200",)
    """The statuses that are no failure."""
    name: str | None = None
    """What locust counts it under; None: its path without the query."""
    write: tuple[str, Allocations | None] | None = None
    """Of a write, for the ledger: the consumer, and what it is to have."""


def ask(
    client: FastHttpSession, asked: Asked, samples: Samples, ledger: Ledger, *, telemeter: Telemeter | None = None
) -> Outcome:
    """Send the request and read the answer; a write is in the ledger before it leaves, and its answer when it came."""
    number = ledger.sent(*asked.write) if asked.write else None
    numbered = Numbered(telemeter, asked.method, urlsplit(asked.path).path)
    headers = numbered.headers(HEADERS if asked.content is None else _AS_JSON)
    sent_s = samples.send()
    with client.request(
        asked.method,
        asked.path,
        name=asked.name or urlsplit(asked.path).path,
        data=None if asked.content is None else json.dumps(asked.content),
        headers=headers,
        catch_response=True,
        allow_redirects=False,
    ) as response:
        ended_s = samples.now_s()
        outcome = outcome_of(response, well=asked.well)
        if outcome.failure is None:
            response.success()
        else:
            response.failure(outcome.failure)
    if number is not None and outcome.answered:
        ledger.answered(number, outcome.status)
    size = len(outcome.body)
    samples.end(sent_s, ended_s, due_s=None, status=outcome.status, body_bytes=size, failure=outcome.failure)
    numbered.ended(samples, sent_s, ended_s, outcome.status)
    return outcome
