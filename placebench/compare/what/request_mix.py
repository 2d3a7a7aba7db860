"""A weighted mix of requests from a file of real traffic or a description of an API: `read_mix`.

The file is an access log, a HAR file or an OpenAPI document. Requests are grouped by route, and each route gets a share
of a cycle that is its share of the file's requests; the requests of a route are its most frequent ones.
"""

import codecs
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

from placebench import units
from placebench.compare.what.openapi import read_openapi
from placebench.compare.what.recorded_requests import (
    TOO_LONG,
    WITHOUT_CREDENTIALS,
    HarTable,
    har_requests,
    is_static,
    is_too_long,
    read_access_log,
)
from placebench.compare.what.routes import RouteFinder
from placebench.errors import PlacebenchError
from placebench.http_session import SAFE_METHODS, Request

_PER_CYCLE = 40
"""Requests of a cycle by default: a block of a tenth of a second holds a cycle of requests of some milliseconds."""
_MAX_EXAMPLES = 1000
"""Maximum number of different requests of a route that are remembered while a log is read."""
_MAX_NAMED = 5
_NOT_MODIFIED, _FAILED = 304, 400
_HEAD_BYTES = 2**16
_YAML_VERSION = re.compile(rb"""^["']?(openapi|swagger)["']?\s*:""", re.MULTILINE)


class MixTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The table [requests_from] of a plan."""

    file: str
    format: Literal["", "log", "har", "openapi"] = ""
    """What the file is; by default that is found out from its content."""
    methods: tuple[Annotated[str, Meta(pattern="^[A-Z]+$")], ...] = SAFE_METHODS
    """The methods that are sent; by default those that only read."""
    routes: tuple[Annotated[str, Meta(pattern="^/")], ...] = ()
    """Templates of routes, such as /shop/{slug}, beside those that are found by ids."""
    host: str = ""
    """As in the table [har]; for a HAR file alone."""
    paths: tuple[str, ...] = ()
    """Patterns of the paths that are sent, such as /api/*; by default all paths."""
    static: bool = False
    """Whether requests for static files are sent too."""
    cycle: Annotated[int, Meta(ge=1, le=1000)] = _PER_CYCLE
    """About how many requests a cycle has."""


@dataclass(frozen=True)
class MixedRequest:
    """One request of a mix."""

    request: Request
    route: str
    """The method and the path with names for its ids, such as "GET /orders/{id}"."""
    weight: int
    expect_status: int | None = None


class _Example(NamedTuple):
    """A request as a file has it, without its frequency."""

    method: str
    path: str
    status: int | None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass
class _Traffic:
    """The requests of a file by route, with their frequencies."""

    frequency: Counter[str] = field(default_factory=Counter)
    """The number of requests by route."""
    examples: defaultdict[str, Counter[_Example]] = field(default_factory=lambda: defaultdict(Counter))
    left_out: Counter[str] = field(default_factory=Counter)
    """The number of requests that are not sent, by reason."""
    notes: list[str] = field(default_factory=list)
    whole: int = 0
    """The number of all requests of the file."""

    def add(self, route: str, example: _Example) -> None:
        self.frequency[route] += 1
        kept = self.examples[route]
        if example in kept or len(kept) < _MAX_EXAMPLES:
            kept[example] += 1

    def merge(self, names: Mapping[str, str]) -> None:
        """Give the routes these names; routes with the same name become one."""
        frequency, examples = self.frequency, self.examples
        self.frequency, self.examples = Counter(), defaultdict(Counter)
        for route, count in frequency.items():
            self.frequency[names[route]] += count
            self.examples[names[route]].update(examples[route])


def read_mix(table: MixTable, folder: Path, login: Sequence[Request] = ()) -> tuple[list[MixedRequest], list[str]]:
    """Return the requests of the mix with their weights, and notes on what was left out.

    folder: the folder that the file's path is relative to. login: the requests of the plan's login, which are left out.
    Raises PlacebenchError for a file that cannot be read, or that has no request to send.
    """
    path = folder / table.file
    kind = table.format or _kind_of(path)
    traffic = {"log": _of_log, "har": _of_har, "openapi": _of_openapi}[kind](table, folder, login)
    if kind != "openapi":
        finder = RouteFinder(table.routes)
        merged = finder.merged({route.partition(" ")[2] for route in traffic.frequency})
        traffic.merge(
            {each: f"{each.partition(' ')[0]} {merged[each.partition(' ')[2]]}" for each in traffic.frequency}
        )
    reasons = "; ".join(f"{units.count(count)} {reason}" for reason, count in traffic.left_out.most_common())
    if not traffic.frequency:
        raise PlacebenchError(f"{path}: no request is left to send: {reasons or 'it has none'}")
    weights, rare = _weights(traffic.frequency, table.cycle)
    mixed = [each for route, slots in weights.items() for each in _of_route(route, traffic.examples[route], slots)]
    kept = sum(traffic.frequency[route] for route in weights)
    said = f"{table.file}: a mix of {units.numbered(len(weights), 'route')}, by {units.count(kept)} of "
    notes = [f"{said}{units.numbered(traffic.whole, 'request')}{f'; not sent: {reasons}' if reasons else ''}"]
    if rare:
        share = sum(traffic.frequency[route] for route in rare) / sum(traffic.frequency.values())
        notes.append(
            f"{units.numbered(len(rare), 'route')} with {units.percent(share, digits=2)} of the requests left out, "
            f"because a cycle has {table.cycle}: {named(rare)}"
        )
    if once := [route for route in weights if traffic.frequency[route] * table.cycle < sum(traffic.frequency.values())]:
        notes.append(f"sent once in a cycle, which is more often than in the file: {named(once)}")
    return mixed, [*notes, *traffic.notes]


def named(routes: Sequence[str]) -> str:
    """Return the first few routes as text, and the number of the others."""
    rest = len(routes) - _MAX_NAMED
    return ", ".join(routes[:_MAX_NAMED]) + (f" and {units.count(rest)} more" if rest > 0 else "")


def _weights(frequency: Counter[str], cycle: int) -> tuple[dict[str, int], list[str]]:
    """Return how often each route is in a cycle, at least once, and the rarest routes, for which it has no place.

    The places are assigned by the largest-remainder method.
    """
    ordered = [route for route, _ in frequency.most_common()]
    kept, rare = ordered[:cycle], ordered[cycle:]
    whole = sum(frequency[route] for route in kept)
    shares = {route: frequency[route] * cycle / whole for route in kept}
    weights = {route: max(1, int(share)) for route, share in shares.items()}
    by_remainder = sorted(kept, key=lambda route: shares[route] - int(shares[route]), reverse=True)
    for route in by_remainder[: max(0, cycle - sum(weights.values()))]:
        weights[route] += 1
    return weights, rare


def _of_route(route: str, examples: Counter[_Example], slots: int) -> Iterator[MixedRequest]:
    """Yield the route's most frequent requests, which share its places in a cycle by their frequencies."""
    by_text = {repr(each): each for each in examples}
    weights, _ = _weights(Counter({text: examples[each] for text, each in by_text.items()}), slots)
    for text, weight in weights.items():
        example = by_text[text]
        request = Request(example.method, example.path, dict(example.headers), example.body)
        yield MixedRequest(request, route, weight, None if example.status == _NOT_MODIFIED else example.status)


def _kind_of(path: Path) -> Literal["log", "har", "openapi"]:
    """Return what a file is: lines of a log, or the one document of a HAR file or an OpenAPI document."""
    if path.suffix in (".yaml", ".yml"):
        return "openapi"
    if path.suffix == ".har":
        return "har"
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES).removeprefix(codecs.BOM_UTF8)
            if not head.lstrip().startswith(b"{"):
                return "openapi" if _YAML_VERSION.search(head) else "log"
            file.seek(0)
            first = file.readline().removeprefix(codecs.BOM_UTF8)
            try:
                document = json.loads(first)
            except ValueError:  # a document of several lines, unless it is a broken line of a log
                document = json.loads(first + file.read())
    except OSError as error:
        raise PlacebenchError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        return "log"
    if isinstance(document.get("log"), dict) and "entries" in document["log"]:
        return "har"
    return "openapi" if "paths" in document and ("openapi" in document or "swagger" in document) else "log"


def _of_log(table: MixTable, folder: Path, login: Sequence[Request]) -> _Traffic:
    made, finder = _Traffic(), RouteFinder(table.routes)
    logins = {(each.method, each.path.partition("?")[0]) for each in login}
    without_body = False
    for line in read_access_log(folder / table.file):
        if line is None:
            made.left_out["in lines without a request"] += 1
            continue
        made.whole += 1
        plain = line.target.partition("?")[0]
        if is_too_long(line.target):
            made.left_out[TOO_LONG] += 1
            continue
        if reason := _why_not(line.method, plain, line.status, table, logins):
            made.left_out[reason] += 1
            continue
        without_body |= line.method not in SAFE_METHODS
        made.add(f"{line.method} {finder.route(plain)}", _Example(line.method, line.target, line.status))
    if without_body:
        made.notes.append("a log has no bodies: requests that write are sent without one")
    return made


def _why_not(method: str, path: str, status: int | None, table: MixTable, logins: set[tuple[str, str]]) -> str:
    if (method, path) in logins:
        return "of the login"
    if method not in table.methods:
        return f"{method}, which may write" if method not in SAFE_METHODS else method
    if status is not None and status >= _FAILED:
        return f"that had the status {status}"
    if table.paths and not any(fnmatchcase(path, each) for each in table.paths):
        return "to other paths"
    return "for static files" if not table.static and is_static(path) else ""


def _of_har(table: MixTable, folder: Path, login: Sequence[Request]) -> _Traffic:
    made, finder = _Traffic(), RouteFinder(table.routes)
    session = HarTable(table.file, table.host, table.paths, table.static)
    recorded, made.left_out, without_credentials = har_requests(session, folder, login)
    made.whole = len(recorded) + made.left_out.total()
    made.notes += [f"{without_credentials} {WITHOUT_CREDENTIALS}"] if without_credentials else []
    for each in recorded:
        sent = each.request
        plain = sent.path.partition("?")[0]
        if reason := _why_not(sent.method, plain, each.expect_status, table, set()):
            made.left_out[reason] += 1
            continue
        example = _Example(sent.method, sent.path, each.expect_status, tuple(sent.headers.items()), sent.body)
        made.add(f"{sent.method} {finder.route(plain)}", example)
    return made


def _of_openapi(table: MixTable, folder: Path, login: Sequence[Request]) -> _Traffic:
    made = _Traffic()
    logins = {(each.method, each.path.partition("?")[0]) for each in login}
    invented = []
    for each in read_openapi(folder / table.file):
        made.whole += 1
        sent = each.request
        if reason := _why_not(sent.method, sent.path.partition("?")[0], None, table, logins):
            made.left_out[reason] += 1
            continue
        if each.other_body:
            made.left_out[f"with a body of {each.other_body}"] += 1
            continue
        invented += [f"{name} of {each.route}" for name in each.invented]
        made.add(
            f"{sent.method} {each.route}",
            _Example(sent.method, sent.path, None, tuple(sent.headers.items()), sent.body),
        )
    if invented:
        made.notes.append(f"values without an example in the document were made up: {named(invented)}")
    return made
