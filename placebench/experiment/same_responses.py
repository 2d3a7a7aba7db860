"""Do all variants respond alike? Every distinct response is compared with the baseline's first one."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from placebench.errors import GateFailedError
from placebench.experiment.canonical_response import (
    Answer,
    OtherAnswer,
    ask,
    breach,
    difference,
    fetch,
    first_difference,
    read_answer,
)
from placebench.experiment.client_process import body_file
from placebench.experiment.records import Block
from placebench.reference.variants import variant as chosen
from placebench.runtime.wsgi_servers import ServerSpec, serve


class AnswerGate:
    """What the variants of one comparison may answer to its request.

    A request with a limit leaves it open which candidates come back: then an answer is legal when it is a part of the
    baseline's whole one (`placebench.experiment.canonical_response.breach`).
    """

    def __init__(self, request: str, *, save: Callable[..., None]) -> None:
        """save: is given `same_responses=` as it stands after each variant, for the head of the run."""
        self._request, self._whole_request, self._limit = request, *_without_limit(request)
        self._save = save
        self._whole: Answer | OtherAnswer | None = None
        self._expected: Answer | OtherAnswer | None = None
        self._accepted: set[str] = set()
        self._checked: list[str] = []

    def meet(self, name: str, url: str) -> None:
        """Ask the variant *name* once, before any load; the first variant's answer is what all are held to."""
        self.hear(name, lambda request: ask(url, request).body)

    def hear(self, name: str, asked: Callable[[str], bytes]) -> None:
        """As `meet`, of a variant that answers *asked* (a request) with a body."""
        if self._whole is None:
            self._whole = read_answer(asked(self._whole_request))
        self._check(name, read_answer(asked(self._request)))

    @property
    def results(self) -> int:
        """How many candidates an answer holds; 0 before the first, and for what is no answer with candidates."""
        return self._expected.candidate_count if isinstance(self._expected, Answer) else 0

    def check(self, blocks: Sequence[Block], answers: Path) -> None:
        """Hold every answer of *blocks*, whose bodies lie in the folder *answers*, to the first one.

        Raises GateFailedError with the first difference.
        """
        for block in blocks:
            self.hold(block.variant, block.responses, answers)

    def hold(self, name: str, digests: Iterable[str], answers: Path) -> None:
        """The same for these answers of *name*."""
        for digest in digests:
            if digest not in self._accepted:
                self._check(name, read_answer(body_file(answers, digest).read_bytes()))

    def all_met(self) -> None:
        """Every variant was asked; where each has a request of its own, there was nothing to hold them to."""
        self._save(same_responses=self._document(equal=True, difference=None))

    def stop(self, what: str) -> GateFailedError:
        """The error that ends the run, with *what* differs kept in its head."""
        self._save(same_responses=self._document(equal=False, difference=what))
        return GateFailedError(f"{what}; no speed is printed")

    def _check(self, name: str, answer: Answer | OtherAnswer) -> None:
        if self._expected is None:
            self._expected = answer
        if name not in self._checked:
            self._checked.append(name)
        if found := self._difference(answer):
            raise self.stop(f"{name} answers differently from {self._checked[0]}: {found}")
        self._accepted.add(answer.digest)
        self._save(same_responses=self._document(equal=True, difference=None))

    def _difference(self, answer: Answer | OtherAnswer) -> str | None:
        if self._limit is not None and isinstance(self._whole, Answer) and isinstance(answer, Answer):
            return breach(self._whole, answer, self._limit)
        assert self._expected is not None
        return difference(self._expected, answer)

    def _document(self, *, equal: bool, difference: str | None) -> dict[str, Any]:
        first = self._expected
        return {
            "checked": list(self._checked),
            "equal": equal,
            "allocation_requests": first.candidate_count if isinstance(first, Answer) else None,
            "provider_summaries": len(first.summaries) if isinstance(first, Answer) else None,
            "digest": first.digest if first else None,
            "difference": difference,
        }


def _without_limit(request: str) -> tuple[str, int | None]:
    """The request without its limit, and the limit; None for one that has none or is no number."""
    parts = urlsplit(request)
    asked = parse_qsl(parts.query, keep_blank_values=True)
    limits = [value for name, value in asked if name == "limit"]
    if len(limits) != 1 or not limits[0].isdecimal():
        return request, None
    rest = urlencode([pair for pair in asked if pair[0] != "limit"], safe=":,!")
    return f"{parts.path}?{rest}" if rest else parts.path, int(limits[0])


class Agreement:
    """Remembers the first answer to each request, and holds every other one to it."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[str, bytes]] = {}
        """Who answered first, and what."""
        self._known: set[tuple[str, bytes]] = set()

    def hold(self, name: str, request: str, body: bytes) -> None:
        """*name* answered *body*; raises GateFailedError where it says something else than the first answer did.

        Bytes that were seen before cost a digest. A request with a limit has many legal answers and is not held.
        """
        key = (request, hashlib.sha256(body).digest())
        if key in self._known or "limit" in parse_qs(urlsplit(request).query):
            return
        first, expected = self._first.setdefault(request, (name, body))
        if differs := difference(read_answer(expected), read_answer(body)):
            raise GateFailedError(f"{name} answers differently from {first}, no speed is printed: {differs}")
        self._known.add(key)


@dataclass(frozen=True)
class Verified:
    """What one variant answered to one request."""

    variant: str
    request: str
    candidates: int
    summaries: int
    digest: str
    difference: str | None
    """The first difference from the first variant's answer; None when it is the same."""


def verify_variants(database_url: str, requests: Sequence[str], variants: Sequence[str]) -> Iterator[Verified]:
    """Ask each variant for each request, in turn; the first variant's answers are what the others are held to."""
    expected: dict[str, Answer] = {}
    for variant in variants:
        processes, threads = chosen(variant).worker.workers or (1, 1)
        spec = ServerSpec(database_url=database_url, variant=variant, processes=processes, threads=threads)
        with serve(spec) as server:
            for request in requests:
                answer = fetch(server.url, request)
                yield Verified(
                    variant=variant,
                    request=request,
                    candidates=answer.candidate_count,
                    summaries=len(answer.summaries),
                    digest=answer.digest,
                    difference=first_difference(expected.setdefault(request, answer), answer),
                )
