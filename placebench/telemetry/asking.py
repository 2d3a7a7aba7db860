"""Requests of a load that are more than a GET of one path: `ask` sends one and keeps it among the samples."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from locust.contrib.fasthttp import FastHttpSession

from placebench.telemetry.exchange import HEADERS, Outcome, outcome_of
from placebench.telemetry.ledger import Allocations, Ledger
from placebench.telemetry.numbered import Numbered
from placebench.telemetry.samples import Samples
from placebench.telemetry.telemeter import Telemeter

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
