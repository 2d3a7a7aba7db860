"""One request of a load run and what came back of it, kept among the samples.

The door is `exchange`. Anything but status 200 with a whole body is a failure, whose message is kept.
"""

from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from locust.contrib.fasthttp import FastHttpSession, FastResponse

from placebench.telemetry.samples import Samples

HEADERS = {
    "X-Auth-Token": "admin",
    "OpenStack-API-Version": "placement 1.39",
    # The bytes of the body are the bytes on the wire.
    "Accept-Encoding": "identity",
}
_MESSAGE_CHARACTERS = 300


def exchange(client: FastHttpSession, path: str, samples: Samples, due_s: float | None = None) -> bool:
    """GET *path*, due at offset *due_s* in an open load; whether there was an answer, with whatever status."""
    sent_s = samples.send(due_s)
    with client.get(
        path, name=urlsplit(path).path, headers=HEADERS, catch_response=True, allow_redirects=False
    ) as response:
        ended_s = samples.now_s()
        outcome = _outcome(response)
        if outcome.failure is not None:
            response.failure(outcome.failure)
    samples.end(
        sent_s, ended_s, due_s=due_s, status=outcome.status, body_bytes=outcome.body_bytes, failure=outcome.failure
    )
    return outcome.answered


@dataclass(frozen=True)
class _Outcome:
    status: str
    """The HTTP status, or the name of the exception that came in its place."""
    body_bytes: int
    failure: str | None
    answered: bool


def _outcome(response: FastResponse) -> _Outcome:
    body = response.content or b""
    error = getattr(response, "error", None)
    if response.status_code == HTTPStatus.OK and error is None:
        return _Outcome("200", len(body), failure=None, answered=True)
    if response.status_code:
        message = f"status {response.status_code}: {body.decode(errors='replace')}"
        return _Outcome(str(response.status_code), len(body), failure=_short(message), answered=True)
    name = type(error).__name__
    return _Outcome(name, 0, failure=_short(f"{name}: {error}"), answered=False)


def _short(text: str) -> str:
    return " ".join(text.split())[:_MESSAGE_CHARACTERS]
