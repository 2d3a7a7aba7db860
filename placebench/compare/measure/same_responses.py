"""Check of equal responses by all variants: `SameResponses` compares each response with the first to its request.

If some differ, `check_responses` sends all variants the same requests on fresh copies of the data, the first one twice.
What differs between the two responses of the first variant (times, random ids, CSRF tokens) is ignored from then on.
What differs otherwise, and what fails, is reported for all routes at once.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations, zip_longest
from pathlib import Path

from placebench.compare.keep.documents import SameResponsesDocument
from placebench.compare.load.client_process import body_file, read_response, responses_folder
from placebench.compare.measure.prepared_variants import PreparedVariants
from placebench.compare.what.canonical_response import (
    DEFAULT_RULES,
    DocumentResponse,
    Response,
    ResponseRules,
    difference,
    differences,
    find_values,
    parse_response,
)
from placebench.compare.what.http_request import fetch
from placebench.compare.what.variants import Variant
from placebench.compare.what.varying_places import VaryingPlaces, varying_places
from placebench.compare.what.workload import Workload
from placebench.errors import GateFailedError
from placebench.runtime.application_servers import serve

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
    digest: str | None = None
    """The digest under which the first response is on the disk; None if it is not there."""
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
        self._rules_of_requests: dict[str, ResponseRules] = {}
        self._routes: SameResponsesDocument = {}
        """What the head says beside: routes that were left out, places and tables that are not compared."""

    def begin_again(
        self, rules: Mapping[str, ResponseRules], *, varying: Mapping[str, list[str]], left_out: Mapping[str, str]
    ) -> None:
        """Forget all responses; from now on these *rules* are those of single requests, by their labels.

        varying: the places that the rules ignore, by route. left_out: why routes are not requested any more.
        """
        self._expected.clear()
        self._checked.clear()
        self._calls = None
        self._rules_of_requests = dict(rules)
        self._routes = {}
        if varying:
            self._routes["varying"] = dict(varying)
        if left_out:
            self._routes["left_out"] = dict(left_out)

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
                rules = self._rules_of_requests.get(request, self.rules)
                expected = self._expectation(request)
                expected.digest = expected.digest or digest
                self._check(name, request, read_response(folder, digest, rules))
                expected.accepted.add(digest)

    def learn(self, route: str, request: str, digests: Iterable[str], folder: Path) -> list[str]:
        """Ignore from now on what differs between the first variant's responses to a request, and return the places.

        For responses of the first variant alone, to a request that only reads: a time of day changes by the minute.
        """
        expected = self._expectation(request)
        rules = self._rules_of_requests.get(request, self.rules)
        new = [digest for digest in digests if digest not in expected.accepted]
        if not new or expected.digest is None or rules.off or self.rules.kind:
            return []
        first, found = read_response(folder, expected.digest, rules), VaryingPlaces()
        for response in (read_response(folder, digest, rules) for digest in new):
            if isinstance(first, DocumentResponse) and isinstance(response, DocumentResponse):
                found |= varying_places(first, response) or VaryingPlaces()
        if not found:
            return []
        self._rules_of_requests[request] = rules = found.added_to(rules)
        expected.first = read_response(folder, expected.digest, rules)
        expected.accepted = {expected.digest, expected.first.digest}
        varying = self._routes.setdefault("varying", {})
        varying[route] = sorted({*varying.get(route, []), *found.named()})
        return found.named()

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

    def name_changing_tables(self, tables: Sequence[str]) -> None:
        """Save in the run's head the *tables* that requests change in all variants alike."""
        self._routes["changing_tables"] = list(tables)
        self.save_equal()

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
            raise self.error(f"{name} responds{which} differently {than}: {found}{_remedy(self.rules, [found])}")
        self._expectation(request).accepted.add(response.digest)
        self.save_equal()

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
            **self._routes,
        }


def _remedy(rules: ResponseRules, places: Iterable[str]) -> str:
    """Return how the plan can allow differences at JSON paths, in headers or in a text; empty if it cannot."""
    paths, headers, texts = list[str](), list[str](), list[str]()
    for found in places if not rules.kind else ():
        if path := _PATH.match(found):
            paths.append(re.sub(r"\[\d+\]", "[*]", path[0]))
        elif header := _HEADER.match(found):
            headers.append(header[1])
        elif _TEXT.match(found):
            texts.append(found)
    made = [
        f"same_responses.{key} = {json.dumps(list(dict.fromkeys(names)), ensure_ascii=False)}"
        for key, names in (("ignore", paths), ("ignore_headers", headers))
        if names
    ]
    if texts and not made:
        made.append("same_responses.ignore_text = ['a regular expression']")
    return f"; if that may differ, as after a request that writes: {', '.join(made)}" if made else ""


_CYCLES = 2
_SHOWN_PLACES = 3
_HASH_SEEDS = 1, 2
"""PYTHONHASHSEED of the first and of the second process, so that the order of a set counts as varying."""


@dataclass
class ResponseCheck:
    """The outcome of sending the same requests to all variants."""

    varying: dict[str, VaryingPlaces] = field(default_factory=dict)
    """The places at which responses of the first variant vary, by route."""
    problems: dict[str, str] = field(default_factory=dict)
    """The differences or failures of routes, by route."""
    baseline_failed: bool = False
    """Whether a request to the first variant failed."""
    failed_alone: bool = True
    """Whether all problems are requests that failed, rather than responses that differ."""

    def rules(self, workload: Workload) -> dict[str, ResponseRules]:
        """Return the rules of the requests whose responses vary, by their labels."""
        labels = [call.label for call in workload.calls] or list(self.varying)
        found = {label: self.varying.get(workload.route_of(label)) for label in labels}
        return {label: places.added_to(workload.rules) for label, places in found.items() if places}

    @property
    def varying_names(self) -> dict[str, list[str]]:
        """The varying places for readers, by route."""
        return {route: places.named() for route, places in self.varying.items() if places}


@dataclass
class _Asked:
    """The responses of one process to each request, by label."""

    name: str
    responses: dict[str, list[str]]
    """Canonical digests of the distinct responses, by label."""
    failures: dict[str, str]
    """The first failure of each request that failed, by label."""


def can_check(workload: Workload) -> bool:
    """Return whether the responses are compared as documents, so that their differences have places."""
    return not workload.rules.kind and not workload.rules.off


def check_responses(prepared: PreparedVariants, fresh: Callable[[Variant], str]) -> ResponseCheck:
    """Send two cycles of requests to each variant with the same requests, and two to a second process of the first one.

    fresh: makes a copy of the data for a variant, which is named differently each time, and returns its URL. Takes a
    start of each variant, and one more. Raises ServerError for a variant that does not start, LoadError for a login
    that fails.
    """
    workload = prepared.workload
    variants = [each for each in prepared.variants if each.request is None]
    first, *others = variants
    asked = [_ask(prepared, first, fresh, hash_seed=seed) for seed in _HASH_SEEDS]
    asked += [_ask(prepared, each, fresh, hash_seed=_HASH_SEEDS[0]) for each in others]
    made = ResponseCheck()
    for label in dict.fromkeys(label for each in asked for label in (*each.responses, *each.failures)):
        route = workload.route_of(label)
        found = _varying(prepared, asked[:2], label)
        if found:
            made.varying[route] = made.varying.get(route, VaryingPlaces()) | found
    problems: defaultdict[str, list[str]] = defaultdict(list)
    for each in asked[2:] if len(asked) > 2 else asked[:1]:
        for label, problem in _problems(prepared, asked[0], each, made.rules(workload)).items():
            route = workload.route_of(label)
            made.baseline_failed |= label in asked[0].failures
            made.failed_alone &= label in each.failures or label in asked[0].failures
            if not problems[route]:
                problems[route].append(problem if label in (route, route.partition(" ")[2]) else f"{label}: {problem}")
    made.problems = {route: "; ".join(said) for route, said in problems.items()}
    return made


def _ask(prepared: PreparedVariants, variant: Variant, fresh: Callable[[Variant], str], *, hash_seed: int) -> _Asked:
    log = prepared.folder / "log" / f"server-{variant.name}.log"
    spec = variant.spec(fresh(replace(variant, name=f"{variant.name} {hash_seed}")), hash_seed=hash_seed, log=log)
    with prepared.client() as client, serve(spec) as server:
        driven = client.drive(server.url, prepared.workload, times=_CYCLES, login=True)
    labels = sorted((call.label for call in prepared.workload.calls), key=len, reverse=True)
    failures: dict[str, str] = {}
    for failure in driven.failures:
        label = next((each for each in labels if failure.startswith(f"{each}: ")), failure.partition(": ")[0])
        failures.setdefault(label, failure.removeprefix(f"{label}: "))
    return _Asked(variant.name, driven.responses, failures)


def _read(prepared: PreparedVariants, digests: Sequence[str], rules: ResponseRules) -> list[Response]:
    folder = responses_folder(prepared.folder)
    return [read_response(folder, digest, rules) for digest in digests]


def _varying(prepared: PreparedVariants, twice: Sequence[_Asked], label: str) -> VaryingPlaces:
    """Return the places at which the responses of the first variant's processes to one request differ.

    If requests write, later responses may rightly differ from earlier ones, so only processes that are asked the same
    from the beginning are compared, and only if each has one response.
    """
    seen = [each.responses.get(label, []) for each in twice]
    if prepared.workload.writes and any(len(digests) > 1 for digests in seen):
        return VaryingPlaces()
    distinct = list(dict.fromkeys(digest for digests in seen for digest in digests))
    responses = [
        each for each in _read(prepared, distinct, prepared.workload.rules) if isinstance(each, DocumentResponse)
    ]
    made = VaryingPlaces()
    for before, after in combinations(responses, 2):
        if found := varying_places(before, after):
            made |= found
    return made


def _problems(
    prepared: PreparedVariants, first: _Asked, other: _Asked, rules: Mapping[str, ResponseRules]
) -> dict[str, str]:
    """Return what is wrong with each request, by label: it fails, or its responses differ from the first one's."""
    found: dict[str, str] = {}
    for label in dict.fromkeys([*first.failures, *first.responses, *other.failures, *other.responses]):
        failing = [each for each in ((first, other) if first is not other else (first,)) if label in each.failures]
        if failing:
            names = " and ".join(dict.fromkeys(each.name for each in failing))
            found[label] = f"{names}: {failing[-1].failures[label]}"
            continue
        used = rules.get(label, prepared.workload.rules)
        before, after = (_read(prepared, each.responses.get(label, []), used) for each in (first, other))
        places = {
            place.partition(" is ")[0]: place  # a place whose value is another one each time is named once
            for response in (*before, *after)
            for place in differences(before[0], response, used.tolerance, at_most=_SHOWN_PLACES)
        }
        if places:
            remedy = _remedy(prepared.workload.rules, places.values())
            found[label] = f"{other.name} differs from {first.name}: {'; '.join(places.values())}{remedy}"
    return found
