"""A weighted mix of requests from a file of real traffic or a description of an API: `read_mix`.

The file is an access log, a HAR file or an OpenAPI document. Requests are grouped by route, and each route gets a share
of a cycle that is its share of the file's requests; the requests of a route are its most frequent ones. `read_openapi`
reads OpenAPI 3 and Swagger 2, as JSON, or as YAML if PyYAML is installed.
"""

import codecs
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from msgspec import Meta, Struct

from placebench import units
from placebench.compare.what.recorded_requests import (
    TOO_LONG,
    HarTable,
    is_static,
    is_too_long,
    read_access_log,
    read_har,
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
        """Count one request."""
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
    """Return how often a cycle has each route, at least once, and the rarest routes, for which it has no place.

    The places are dealt by the largest remainder.
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
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES).removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise PlacebenchError(f"{path}: cannot be read: {error.strerror}") from error
    start = head.lstrip()[:1]
    if path.suffix == ".har" or (start == b"{" and b'"log"' in head[:200] and b'"entries"' in head):
        return "har"
    is_document = start == b"{" and (b'"openapi"' in head or b'"swagger"' in head) and b'"paths"' in path.read_bytes()
    return "openapi" if is_document or head.startswith((b"openapi:", b"swagger:")) else "log"


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
    recorded, made.notes = read_har(session, folder, login)
    for each in recorded:
        made.whole += 1
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
        invented += [f"{name} of {each.route}" for name in each.invented]
        made.add(
            f"{sent.method} {each.route}",
            _Example(sent.method, sent.path, None, tuple(sent.headers.items()), sent.body),
        )
    if invented:
        made.notes.append(f"values without an example in the document were made up: {named(invented)}")
    return made


_METHODS = ("get", "head", "options", "trace", "post", "put", "patch", "delete")
_BY_FORMAT = {
    "uuid": "00000000-0000-0000-0000-000000000001",
    "date": "2024-01-01",
    "date-time": "2024-01-01T00:00:00Z",
    "email": "me@example.org",
}
_BY_TYPE: Mapping[str, Any] = {"boolean": True, "array": [], "object": {}, "string": "a"}
_MAX_DEPTH, _MAX_INVENTED_LENGTH = 20, 1000


class DescribedRequest(NamedTuple):
    """The request of one operation of an OpenAPI document."""

    route: str
    """The operation's path as the document writes it, with names in braces."""
    request: Request
    invented: tuple[str, ...]
    """Names of parameters for which the document has no example, so that their values were made up."""


def read_openapi(path: Path) -> list[DescribedRequest]:
    """Return a request for each operation of the document in a file, in its order.

    Values are the document's examples, defaults and first enumerated values, and made up by type otherwise; optional
    parameters are sent if they have an example. Raises PlacebenchError for a file that is not an OpenAPI document.
    """
    document = _read(path)
    base = _base_path(document)
    made = []
    for route, operations in document["paths"].items():
        for method in _METHODS:
            operation = operations.get(method) if isinstance(operations, dict) else None
            if isinstance(operation, dict):
                shared = operations.get("parameters", [])
                made.append(_described(document, base + route, method, operation, shared))
    if not made:
        raise PlacebenchError(f"{path}: no operation in paths: expected some, such as /orders with get")
    return made


def _read(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise PlacebenchError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as found:
        try:
            yaml: Any = import_module("yaml")
        except ImportError:
            raise PlacebenchError(f"{path}: no JSON ({found}), and YAML needs PyYAML: pip install pyyaml") from found
        try:
            document = yaml.safe_load(content)
        except (yaml.YAMLError, RecursionError) as error:
            raise PlacebenchError(f"{path}: neither JSON nor YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict) or not isinstance(document.get("paths"), dict):
        raise PlacebenchError(f"{path}: no object with paths: expected an OpenAPI document")
    return document


def _base_path(document: Mapping[str, Any]) -> str:
    """Return the path below which all paths of the document are: that of its first server."""
    servers = document.get("servers")
    if isinstance(servers, list) and servers and isinstance(servers[0], dict):
        path = urlsplit(str(servers[0].get("url", ""))).path
        return "" if "{" in path else path.rstrip("/")
    return str(document.get("basePath", "")).rstrip("/")


def _described(
    document: Mapping[str, Any], route: str, method: str, operation: Mapping[str, Any], shared: object
) -> DescribedRequest:
    path, query, headers, invented = route, list[tuple[str, str]](), dict[str, str](), list[str]()
    body = b""
    for given in _parameters(document, shared, operation.get("parameters", [])):
        name, place = str(given.get("name", "")), given.get("in")
        value, is_known = _example(document, given)
        if place == "body" and value is not None:
            body = json.dumps(value).encode()
        if place not in ("path", "query", "header") or (place != "path" and not is_known and not given.get("required")):
            continue
        invented += [] if is_known else [name]
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if place == "path":
            path = path.replace(f"{{{name}}}", quote(text, safe=""))
        elif place == "header":
            headers[name] = text
        else:
            query += [(name, str(each)) for each in (value if isinstance(value, list) else [text])]
    content = _resolved(document, operation.get("requestBody", {})).get("content")
    if isinstance(content, dict) and isinstance(media := content.get("application/json"), dict):
        body = json.dumps(_example(document, media)[0]).encode()
    if body:
        headers["Content-Type"] = "application/json"
    target = f"{path}?{urlencode(query)}" if query else path
    return DescribedRequest(route, Request(method.upper(), target, headers, body), tuple(invented))


def _parameters(document: Mapping[str, Any], *lists: object) -> Iterator[Mapping[str, Any]]:
    """Yield the parameters of an operation; its own override those of its path with the same name."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for each in lists:
        for given in each if isinstance(each, list) else ():
            parameter = _resolved(document, given)
            found[str(parameter.get("name")), str(parameter.get("in"))] = parameter
    yield from found.values()


def _example(document: Mapping[str, Any], given: Mapping[str, Any], depth: int = 0) -> tuple[Any, bool]:
    """Return a value for a parameter, a body or a schema, and whether the document has it."""
    for key in ("example", "default", "const"):
        if key in given:
            return given[key], True
    examples = given.get("examples")
    if isinstance(examples, dict) and examples:
        return _resolved(document, next(iter(examples.values()))).get("value"), True
    for values in (examples, given.get("enum")):
        if isinstance(values, list) and values:
            return values[0], True
    if depth > _MAX_DEPTH:
        return None, False
    if "schema" in given:
        return _example(document, _resolved(document, given["schema"]), depth + 1)
    for key in ("allOf", "oneOf", "anyOf"):
        if isinstance(parts := given.get(key), list) and parts:
            made = [_example(document, _resolved(document, part), depth + 1) for part in parts]
            if key == "allOf" and all(isinstance(value, dict) for value, _ in made):
                return {name: value for whole, _ in made for name, value in whole.items()}, all(it for _, it in made)
            return made[0]
    properties = given.get("properties")
    if isinstance(properties, dict):
        required = given.get("required", list(properties))
        fields = {
            name: _example(document, _resolved(document, properties.get(name, {})), depth + 1) for name in required
        }
        return {name: value for name, (value, _) in fields.items()}, all(it for _, it in fields.values())
    return _invented(given), False


def _invented(given: Mapping[str, Any]) -> Any:
    """Return a value by the type, the format and the lower limit of a schema."""
    kind = given.get("type", "string")
    kind = next((each for each in kind if each != "null"), "string") if isinstance(kind, list) else kind
    if kind in ("integer", "number"):
        least, above = given.get("minimum"), given.get("exclusiveMinimum")
        if isinstance(above, int | float) and not isinstance(above, bool):  # in OpenAPI 3.0 it is true or false
            return above + 1
        return least + (above is True) if isinstance(least, int | float) else 1
    value = _BY_FORMAT.get(str(given.get("format")), _BY_TYPE.get(str(kind), "a"))
    length = given.get("minLength")
    return value.ljust(min(length, _MAX_INVENTED_LENGTH), "a") if value == "a" and isinstance(length, int) else value


def _resolved(document: Mapping[str, Any], given: object) -> Mapping[str, Any]:
    """Return an object of the document with a reference of it followed; empty for anything else."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(given, dict):
            return {}
        reference = given.get("$ref")
        if not isinstance(reference, str):
            return given
        place: Any = document
        for step in reference.removeprefix("#/").split("/"):
            place = place.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(place, dict) else None
        given = place
    return {}
