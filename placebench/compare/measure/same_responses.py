"""Check of equal responses by all variants: `SameResponses` compares each response with the first to its request."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from placebench.compare.keep.documents import SameResponsesDocument
from placebench.compare.load.client_process import body_file, read_response
from placebench.compare.what.canonical_response import (
    DEFAULT_RULES,
    DocumentResponse,
    Response,
    ResponseRules,
    difference,
    find_values,
    parse_response,
)
from placebench.compare.what.http_request import fetch
from placebench.errors import GateFailedError

_HEADER, _TEXT = re.compile(r"header ([\w-]+) "), re.compile(r"\$ is |byte \d+ of the body")
_PATH = re.compile(r"\$(?:\.\w+|\[[^\]]+\])+")


@dataclass
class _Expected:
    """The responses accepted for one request."""

    whole_request: str
    """The request without its limit."""
    limit: int | None
    variant: str = ""
    """The variant whose response came first."""
    first: Response | None = None
    whole: Response | None = None
    """The first variant's response to `whole_request`, if the request has a limit."""
    accepted: set[str] = field(default_factory=set)
    """Canonical digests of accepted responses, and digests of the bytes of accepted bodies."""

    def difference(self, response: Response, tolerance: float) -> str | None:
        """Return how *response* differs from an accepted response, or None."""
        assert self.first is not None
        if self.limit is None:
            return difference(self.first, response, tolerance)
        if self.whole is None:
            return None
        if isinstance(self.whole, DocumentResponse) or isinstance(response, DocumentResponse):
            return difference(self.first, response)
        return self.whole.limit_violation(response, self.limit)


class SameResponses:
    """Compares the responses of a run's variants with those of the first variant, by the rules.

    For some kinds of responses, a request with a limit may return any part of the whole response. Such a response is
    accepted if it is a part of the first variant's whole response, or if the whole response was never requested.
    """

    def __init__(self, save: Callable[..., object] = lambda **_: None, rules: ResponseRules = DEFAULT_RULES) -> None:
        """save: called with `same_responses=`, for the head of the run, when the result of the comparison changes."""
        self.rules = rules
        self._save = save
        self._unmatched = [*rules.ignore, *rules.unordered]
        self._expected: dict[str, _Expected] = {}
        self._calls: tuple[str, list[str]] | None = None
        """The variant that ran the script first, and its requests."""
        self._checked: list[str] = []
        self._saved: SameResponsesDocument = {}

    def request(self, name: str, request: str, url: str) -> int:
        """Send *request* once to the variant *name* at *url*, before any load, and compare its response.

        Returns the number of requests sent: two if the whole response, without the limit, had to be requested first.
        """
        return self.request_by(name, request, lambda each: fetch(url, each).body)

    def request_by(self, name: str, request: str, send: Callable[[str], bytes]) -> int:
        """Work like `request`, but send requests by *send*, which returns the body of the response."""
        expected = self._expectation(request)
        needs_whole = expected.limit is not None and expected.whole is None
        if needs_whole:
            expected.whole = parse_response(send(expected.whole_request), self.rules)
        self._check(name, request, parse_response(send(request), self.rules))
        return 1 + needs_whole

    def check(self, name: str, request: str, body: bytes) -> None:
        """Compare one response; known bytes cost only a digest. Raises GateFailedError if the response differs."""
        bytes_digest = hashlib.sha256(body).hexdigest()
        if name not in self._checked or bytes_digest not in self._expectation(request).accepted:
            self._check(name, request, parse_response(body, self.rules))
            self._expectation(request).accepted.add(bytes_digest)

    def check_bodies(self, name: str, request: str, digests: Iterable[str], folder: Path) -> None:
        """Compare the responses to one request, given by their canonical digests; their bodies are in *folder*."""
        for digest in digests:
            if name not in self._checked or digest not in self._expectation(request).accepted:
                self._mark_paths_seen(body_file(folder, digest))
                self._check(name, request, read_response(folder, digest, self.rules))

    def check_all(self, name: str, responses: Mapping[str, Iterable[str]], folder: Path) -> None:
        """Compare the responses to several requests as `check_bodies` does; *responses* has digests by request."""
        for request, digests in responses.items():
            self.check_bodies(name, request, digests, folder)

    def check_calls(self, name: str, calls: Sequence[str]) -> None:
        """Raise GateFailedError if the script sent other requests to this variant than to the first one."""
        if not self._calls:
            self._calls = (name, list(calls))
        first, expected = self._calls
        for number, (wanted, seen) in enumerate(zip_longest(expected, calls, fillvalue="none")):
            if wanted != seen:
                raise self.error(
                    f"request {number + 1} of the workload is {seen} to {name}, and {wanted} to {first}: a workload "
                    "sends each variant the same"
                )

    def unmatched(self) -> list[str]:
        """Return the JSON paths of the rules that have matched no response."""
        return list(self._unmatched)

    def first_difference(self, name: str, request: str, response: Response) -> str | None:
        """Return how *response* differs from the first to *request*, or None; the first one becomes the reference."""
        expected = self._expectation(request)
        if expected.first is None:
            expected.variant, expected.first = name, response
        return expected.difference(response, self.rules.tolerance)

    def first_response(self, request: str) -> Response | None:
        """Return the response that later ones to *request* are compared with; None before the first one."""
        return self._expectation(request).first

    def save_equal(self) -> None:
        """Save that no difference was found, even if nothing was compared because each variant has its own request."""
        if (document := self._document(None)) != self._saved:
            self._save(same_responses=document)
            self._saved = document

    def error(self, what: str) -> GateFailedError:
        """Save in the run's head *what* differs, and return the error that ends the run."""
        self._save(same_responses=self._document(what))
        return GateFailedError(f"{what}; no speed is printed")

    def _mark_paths_seen(self, path: Path) -> None:
        """Remove the rules' paths that match the body in the file *path* from the unmatched paths."""
        if self._unmatched:
            with suppress(ValueError, RecursionError):
                document = json.loads(path.read_bytes())
                self._unmatched = [each for each in self._unmatched if next(find_values(each, document), None) is None]

    def _expectation(self, request: str) -> _Expected:
        if request not in self._expected:
            kind = self.rules.kind
            self._expected[request] = _Expected(*(kind.without_limit(request) if kind else (request, None)))
        return self._expected[request]

    def _check(self, name: str, request: str, response: Response) -> None:
        if name not in self._checked:
            self._checked.append(name)
        if found := self.first_difference(name, request, response):
            which = f" to {request}" if len(self._expected) > 1 else ""
            first = self._expectation(request).variant
            than = "each time" if first == name else f"from {first}"
            raise self.error(f"{name} responds{which} differently {than}: {found}{self._remedy(found)}")
        self._expectation(request).accepted.add(response.digest)
        self.save_equal()

    def _remedy(self, found: str) -> str:
        """Return how the plan can allow a difference at a JSON path, in a header or in a text; empty if it cannot."""
        if self.rules.kind:
            return ""
        if path := _PATH.match(found):
            places = re.sub(r"\[\d+\]", "[*]", path[0])
            rule = f'ignore = ["{places}"]'
        elif header := _HEADER.match(found):
            rule = f'ignore_headers = ["{header[1]}"]'
        elif _TEXT.match(found):
            rule = "ignore_text = ['a regular expression']"
        else:
            return ""
        return f"; if that may differ, as after a request that writes: same_responses.{rule}"

    def _document(self, found: str | None) -> SameResponsesDocument:
        first = next((each.first for each in self._expected.values()), None)
        counts = {} if first is None or isinstance(first, DocumentResponse) else first.counts
        return {
            "checked": list(self._checked),
            "equal": None if self.rules.off and found is None else found is None,
            "allocation_requests": counts.get("allocation_requests"),
            "provider_summaries": counts.get("provider_summaries"),
            "digest": first.digest if first else None,
            "off": self.rules.off,
            "difference": found,
        }
