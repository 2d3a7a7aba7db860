"""One request of a load run and what came back of it, kept among the samples.

The door is `exchange`. Anything but status 200 with a whole body is a failure, whose message is kept.
"""

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

import geventhttpclient.client
from locust.contrib.fasthttp import FastHttpSession, FastResponse

from placebench.telemetry.numbered import Numbered
from placebench.telemetry.samples import Samples
from placebench.telemetry.telemeter import Telemeter

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
