"""Reads requests from an OpenAPI document: one for each operation, with the examples that the document gives.

`read_openapi` reads OpenAPI 3 and Swagger 2, as JSON, or as YAML if PyYAML is installed.
"""

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from placebench.errors import PlacebenchError
from placebench.http_session import Request

_METHODS = ("get", "head", "options", "trace", "post", "put", "patch", "delete")
_BY_FORMAT = {
    "uuid": "00000000-0000-0000-0000-000000000001",
    "date": "2024-01-01",
    "date-time": "2024-01-01T00:00:00Z",
    "email": "me@example.org",
}
_BY_TYPE: Mapping[str, Any] = {"integer": 1, "number": 1, "boolean": True, "array": [], "object": {}, "string": "a"}
_MAX_DEPTH = 20


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
    parameters are sent if they have an example. Raises PlacebenchError for a file that is no OpenAPI document.
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
        content = path.read_bytes()
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
    """Yield the parameters of an operation; one of its own takes the place of its path's of the same name."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for each in lists:
        for given in each if isinstance(each, list) else ():
            parameter = _resolved(document, given)
            found[str(parameter.get("name")), str(parameter.get("in"))] = parameter
    yield from found.values()


def _example(document: Mapping[str, Any], given: Mapping[str, Any], depth: int = 0) -> tuple[Any, bool]:
    """Return a value for a parameter, a body or a schema, and whether the document has it."""
    for key in ("example", "default"):
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
    kind = given.get("type", "string")
    kind = next((each for each in kind if each != "null"), "string") if isinstance(kind, list) else kind
    value = _BY_FORMAT.get(str(given.get("format")), _BY_TYPE.get(str(kind), "a"))
    return given.get("minimum", value) if kind in ("integer", "number") else value, False


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
