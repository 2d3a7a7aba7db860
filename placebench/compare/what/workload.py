"""The workload of each variant of a comparison: requests with their weights, a login, and how responses are compared.

The main class is `Workload`, which is sent to the client process as JSON. `read_workload` makes one from the keys of a
plan and the requests of the command line; `ServiceApi` has the defaults of services of one kind.
"""

import hashlib
import json
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, structs

from placebench.addresses import REQUEST, check_request
from placebench.compare.keep.documents import WorkloadDocument
from placebench.compare.what.canonical_response import DEFAULT_RULES, ResponseRules, parse_path
from placebench.compare.what.recorded_requests import HarTable, read_har
from placebench.compare.what.request_mix import MixTable, read_mix
from placebench.compare.what.routes import path_template
from placebench.errors import PlacebenchError
from placebench.http_session import SAFE_METHODS, Request, content_type
from placebench.masking import HIDDEN, mask, mask_document

_MAX_CYCLE = 1000
_BEARER = "Authorization: Bearer {token}"


class SentRequest(Struct, frozen=True):
    """One request as it is sent."""

    method: str
    path: str
    """Path and query."""
    headers: dict[str, str] = {}
    body: bytes = b""
    expect_status: int | None = None
    """The only accepted status; by default every status below 400 is accepted."""
    label: str = ""
    """The label under which its responses are compared, unique in a workload."""
    route: str = ""
    """The name of the requests that are judged together, such as GET /orders/{id}."""

    def accepts(self, status: int) -> bool:
        """Return whether a response with this status counts as a success."""
        return status < 400 if self.expect_status is None else status == self.expect_status

    @property
    def expected(self) -> str:
        """A text that names the accepted statuses."""
        return "below 400" if self.expect_status is None else str(self.expect_status)


class LoginRequest(SentRequest, frozen=True):
    """A request of a login, and where its response has the token."""

    token: str = ""
    """JSON path of the token; if empty, `access_token` is used if the response has one."""
    token_header: str = ""
    """Header of the response that holds the token."""
    send: str = _BEARER
    """Header that sends the token with later requests."""


class Workload(Struct, frozen=True, kw_only=True):
    """The requests that are sent to each variant, over and over."""

    calls: tuple[SentRequest, ...] = ()
    cycle: tuple[int, ...] = ()
    """The order in which the calls are sent, as indexes into `calls`."""
    script: str = ""
    """A function as module:name, or the path of a locustfile, instead of calls; one iteration is a cycle."""
    folder: str = ""
    """The folder of the script."""
    seed: int = 1
    """Seed of the script's random numbers."""
    login: tuple[LoginRequest, ...] = ()
    """Requests that are sent once after each start of a server."""
    rules: ResponseRules = DEFAULT_RULES
    notes: tuple[str, ...] = ()
    """Notes for readers of the report, such as what was left out of a recorded session."""
    leaves_out: bool = False
    """Whether routes whose responses differ are left out, instead of ending the run."""
    rules_of_requests: dict[str, ResponseRules] = {}
    """Rules of single requests, by their labels, in place of `rules`."""

    def rules_of(self, label: str) -> ResponseRules:
        """Return the rules by which the responses to a request are compared."""
        return self.rules_of_requests.get(label, self.rules)

    def route_of(self, label: str) -> str:
        """Return the route of a request; of a script's request its label."""
        return next((call.route for call in self.calls if call.label == label), label)

    @property
    def title(self) -> str:
        """The workload in one line."""
        if self.script:
            return self.script
        labels = [call.label for call in self.calls]
        return labels[0] if len(labels) == 1 else f"{len(labels)} requests: {', '.join(labels)}"

    @property
    def cycle_labels(self) -> list[str]:
        """The labels of a cycle's requests, in order; empty for a script."""
        return [self.calls[number].label for number in self.cycle]

    @property
    def writes(self) -> bool:
        """Whether the requests may change data, so that each variant must be sent the same number of them."""
        return bool(self.script) or any(call.method not in SAFE_METHODS for call in self.calls)

    def without(self, routes: Collection[str]) -> "Workload":
        """Return the workload without the requests of these routes."""
        kept = [number for number, call in enumerate(self.calls) if call.route not in routes]
        places = {number: place for place, number in enumerate(kept)}
        cycle = tuple(places[number] for number in self.cycle if number in places)
        return structs.replace(self, calls=tuple(self.calls[number] for number in kept), cycle=cycle)

    def to_json(self) -> WorkloadDocument:
        """Return the workload for the head of a run, with a digest in place of bodies and headers.

        The digest does not depend on secrets: nobody can find a password by trying, and a new token does not change it.
        """
        plain = mask_document(msgspec.to_builtins(self))
        for shown, call in zip((*plain["calls"], *plain["login"]), (*self.calls, *self.login), strict=True):
            shown["body"] = mask(call.body.decode(errors="surrogateescape"))
        for shown in plain["login"]:
            shown["body"] = HIDDEN
        weights = Counter(self.cycle)
        return {
            "script": self.script,
            "requests": [
                {"request": call.label, "weight": weights[number], "expected": call.expected, "route": call.route}
                for number, call in enumerate(self.calls)
            ],
            "cycle": list(self.cycle),
            "login": [call.label for call in self.login],
            "same_responses": {
                name: value
                for name, value in json.loads(msgspec.json.encode(self.rules)).items()
                if value or name == "off"
            },
            "notes": list(self.notes),
            "digest": hashlib.sha256(json.dumps(plain).encode()).hexdigest(),
        }


@dataclass(frozen=True)
class ServiceApi:
    """Defaults for requests to services of one kind, for keys that a plan leaves out."""

    headers: Mapping[str, str] = field(default_factory=dict)
    expect_status: int | None = None
    rules: ResponseRules = DEFAULT_RULES

    def workload(self, *paths: str) -> Workload:
        """Return a workload of GET requests that accepts only the expected status, by default 200."""
        status = self.expect_status or 200
        calls = tuple(
            SentRequest("GET", path, dict(self.headers), expect_status=status, label=path, route=_route("GET", path))
            for path in paths
        )
        return Workload(calls=calls, cycle=tuple(range(len(calls))), rules=self.rules)


_PLAIN_API = ServiceApi()


class RequestTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One table of [[requests]]."""

    path: Annotated[str, Meta(pattern=f"^{REQUEST}$")]
    method: Annotated[str, Meta(pattern="^[A-Za-z]+$")] = "GET"
    headers: dict[str, str] = {}
    body: str | None = None
    """The body as text."""
    content: Any = msgspec.field(default=msgspec.UNSET, name="json")
    """The body as a value that is sent as JSON; in a plan, the key is `json`."""
    expect_status: Annotated[int, Meta(ge=100, le=599)] | None = None
    weight: Annotated[int, Meta(ge=1, le=_MAX_CYCLE)] = 1
    name: str = ""
    """The request's name in the report; by default its method and path."""
    route: str = ""
    """The name of the requests that are judged together; by default the method, and the path without its ids."""

    def request(self) -> Request:
        """Return the request of this table; raises PlacebenchError if it has two bodies."""
        if self.content is not msgspec.UNSET:
            if self.body is not None:
                raise PlacebenchError(f"{self.method} {self.path} has a body and json: expected one of them")
            body = msgspec.json.encode(self.content)
        else:
            body = (self.body or "").encode()
        kind = "application/json" if self.content is not msgspec.UNSET else content_type(body)
        typed = any(name.lower() == "content-type" for name in self.headers)
        headers = {"Content-Type": kind, **self.headers} if kind and not typed else self.headers
        return Request(self.method.upper(), self.path, headers, body)


class LoginTable(RequestTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One request of the table [login]."""

    token: str = ""
    token_header: str = ""
    send: Annotated[str, Meta(pattern=r"^[^:\s]+: .*\{token\}")] = _BEARER


class WorkloadKeys(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys of a plan that say which requests are sent."""

    request: str | None = None
    """A single request, written as on the command line."""
    workload: Annotated[str, Meta(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")] | None = None
    """A function that sends requests with a client, as module:name."""
    locustfile: str | None = None
    har: HarTable | str | None = None
    """A session that a browser recorded, as the path of a HAR file or a table."""
    requests_from: MixTable | str | None = None
    """An access log, a HAR file or an OpenAPI document, whose requests are sent as a weighted mix."""
    routes: Literal["", "keep-going"] = ""
    """Whether routes whose responses differ are left out, instead of ending the run."""
    requests: list[RequestTable | str] = []
    login: LoginTable | list[LoginTable | str] | str = []
    same_responses: ResponseRules | None = None


@dataclass(frozen=True)
class _Weighted:
    """A request of a plan, with its weight in a cycle."""

    request: Request
    expect_status: int | None = None
    weight: int = 1
    name: str = ""
    route: str = ""


def read_workload(
    keys: WorkloadKeys,
    *,
    source: str,
    folder: Path = Path(),
    seed: int,
    requests: Sequence[Request] = (),
    login: Sequence[Request] = (),
    api: ServiceApi = _PLAIN_API,
    default: str | None = None,
) -> Workload:
    """Return the workload of the *keys* of the plan *source*; the requests of the command line override the plan's.

    folder: the folder of the plan's files. seed: for the order of requests with weights, and for a script.
    api: the defaults of the variants' kind of service. default: the request that is sent if neither plan nor command
    line has any. Raises PlacebenchError for keys that conflict, or if there is no request.
    """
    rules = keys.same_responses or api.rules
    rules.check(f"{source}: same_responses")
    logins, notes = _login(keys, login, source, folder), list[str]()
    given = [_Weighted(each) for each in requests] or _plan_requests(keys, source)
    if keys.har is not None and not given:
        table = HarTable(keys.har) if isinstance(keys.har, str) else keys.har
        recorded, notes = read_har(table, folder, [Request(each.method, each.path) for each in logins])
        given = [_Weighted(each.request, each.expect_status) for each in recorded]
    if keys.requests_from is not None and not given:
        mix = MixTable(keys.requests_from) if isinstance(keys.requests_from, str) else keys.requests_from
        mixed, notes = read_mix(mix, folder, [Request(each.method, each.path) for each in logins])
        given = [_Weighted(each.request, each.expect_status, each.weight, route=each.route) for each in mixed]
    if script := "" if given else keys.workload or keys.locustfile or "":
        return Workload(script=script, folder=str(folder.absolute()), seed=seed, login=logins, rules=rules)
    if not given and default is not None:
        given = [_Weighted(Request.parse(default))]
    if not given:
        raise PlacebenchError("no request: give --request 'GET /orders', or [[requests]] in the plan")
    calls = _calls(given, api.headers, api.expect_status)
    cycle = _cycle([each.weight for each in given], seed)
    return Workload(
        calls=calls, cycle=cycle, login=logins, rules=rules, notes=tuple(notes), leaves_out=keys.routes == "keep-going"
    )


def _route(method: str, path: str) -> str:
    return f"{method} {path_template(path)}"


def _plan_requests(keys: WorkloadKeys, source: str) -> list[_Weighted]:
    sources = ("request", "requests", "workload", "locustfile", "har", "requests_from")
    if len(given := [name for name in sources if getattr(keys, name)]) > 1:
        raise PlacebenchError(f"{source}: {' and '.join(given)}: expected one of them")
    return [
        _Weighted(Request.parse(each))
        if isinstance(each, str)
        else _Weighted(each.request(), each.expect_status, each.weight, each.name, each.route)
        for each in ([keys.request] if keys.request is not None else keys.requests)
    ]


def _calls(
    given: Sequence[_Weighted], headers: Mapping[str, str], expect_status: int | None
) -> tuple[SentRequest, ...]:
    """Return the requests as they are sent, each with its own label: a label's second request gets "#2"."""
    calls: list[SentRequest] = []
    seen: Counter[str] = Counter()
    for each in given:
        request = each.request
        plain = request.method == "GET" and not request.body
        label = mask(each.name or (request.path if plain else f"{request.method} {request.path}"))
        seen[label] += 1
        calls.append(
            SentRequest(
                method=request.method,
                path=check_request(request.path),
                headers={**headers, **request.headers},
                body=request.body,
                expect_status=each.expect_status or expect_status,
                label=label if seen[label] == 1 else f"{label} #{seen[label]}",
                route=mask(each.route or each.name or _route(request.method, request.path)),
            )
        )
    return tuple(calls)


def _cycle(weights: Sequence[int], seed: int) -> tuple[int, ...]:
    """Return the indexes of the requests, each as often as its weight says, in a random order if the weights differ."""
    common = gcd(*weights)
    order = [number for number, weight in enumerate(weights) for _ in range(weight // common)]
    if len(order) > _MAX_CYCLE:
        raise PlacebenchError(
            f"the weights of the requests add up to {len(order)}: expected {_MAX_CYCLE} at most; round them"
        )
    if len(order) > len(weights):
        random.Random(seed).shuffle(order)
    return tuple(order)


def _login(keys: WorkloadKeys, given: Sequence[Request], source: str, folder: Path) -> tuple[LoginRequest, ...]:
    tables = keys.login if isinstance(keys.login, list) else [keys.login]
    made = []
    for each in given or tables:
        table = each if isinstance(each, LoginTable) else LoginTable(path="/")
        request = each.request() if isinstance(each, LoginTable) else each
        request = Request.read(request, folder) if isinstance(request, str) else request
        if table.token and parse_path(table.token) is None:
            raise PlacebenchError(f"{source}: login.token {table.token!r}: expected a JSON path such as $.access_token")
        if table.token and table.token_header:
            raise PlacebenchError(f"{source}: login.token and login.token_header: expected exactly one of them")
        made.append(
            LoginRequest(
                method=request.method,
                path=check_request(request.path),
                headers=dict(request.headers),
                body=request.body,
                expect_status=table.expect_status,
                label=str(request),
                token=table.token,
                token_header=table.token_header,
                send=table.send,
            )
        )
    return tuple(made)
