"""Requests for the operations of an OpenAPI 3 or Swagger 2 document: `read_openapi`.

The document is JSON, or YAML if PyYAML is installed. References are followed, into other files too, but not to URLs.
"""

import codecs
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode

from placebench.errors import PlacebenchError
from placebench.http_session import Request

_METHODS = ("get", "head", "options", "trace", "post", "put", "patch", "delete")
_SENT_AS_IT_IS = "".join(map(chr, range(0x21, 0x7F)))
_IGNORED_HEADERS = {"accept", "content-type", "authorization"}
"""Headers that are no parameters, as the specification says: they follow from the body and from the login."""
_FORM = "application/x-www-form-urlencoded"
_BY_FORMAT = {
    "uuid": "00000000-0000-0000-0000-000000000001",
    "date": "2024-01-01",
    "date-time": "2024-01-01T00:00:00Z",
    "email": "me@example.org",
    "uri": "https://example.org/",
}
_BY_TYPE: Mapping[str, Any] = {"boolean": True, "object": {}, "null": None}
_MAX_REFERENCES = 20
_MAX_INVENTED_LENGTH = 1000
_SEPARATORS = {"spaceDelimited": " ", "pipeDelimited": "|", "ssv": " ", "tsv": "\t", "pipes": "|"}


class DescribedRequest(NamedTuple):
    """The request of one operation of an OpenAPI document."""

    route: str
    """The operation's path below that of the server, with names in braces."""
    request: Request
    invented: tuple[str, ...] = ()
    """Names of parameters, and "body", for which the document has no example, so that their values were made up."""
    other_body: str = ""
    """Media type of the body if it is neither JSON nor a form, so that the request lacks it."""


def read_openapi(path: Path) -> list[DescribedRequest]:
    """Return a request for each operation of the document in a file, in its order.

    Values are the document's examples, defaults and first enumerated values, and made up by type otherwise; optional
    parameters are sent if they have an example. Raises PlacebenchError for a file that is not an OpenAPI
    document, and for a reference to a place or a file that does not exist.
    """
    document = _Document(path)
    made = []
    for route, given in document.root["paths"].items():
        item = document.resolve(given)
        for method in _METHODS if str(route).startswith("/") else ():
            if isinstance(operation := item.get(method), dict):
                made.append(_described(document, str(route), item, method, operation))
    if not made:
        raise PlacebenchError(f"{path}: no operation in paths: expected some, such as /orders with get")
    return made


class _Document:
    """An OpenAPI document with the files that it refers to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[Path, Any] = {}
        self._examples: dict[str, tuple[Any, bool]] = {}
        self.root = self._file(path)
        if not isinstance(self.root, dict) or not isinstance(self.root.get("paths"), dict):
            raise PlacebenchError(f"{path}: no object with paths: expected an OpenAPI document")

    def _file(self, path: Path) -> Any:
        """Return the content of a file, whose references have become those of absolute paths."""
        if path not in self._files:
            content = _read(path)
            waiting, seen = [content], set[int]()
            while waiting:  # YAML's aliases may form a cycle
                place = waiting.pop()
                if not isinstance(place, dict | list) or id(place) in seen:
                    continue
                seen.add(id(place))
                waiting += place.values() if isinstance(place, dict) else place
                if isinstance(place, dict) and isinstance(reference := place.get("$ref"), str):
                    name, _, pointer = reference.partition("#")
                    if "://" not in name:
                        place["$ref"] = f"{path.parent / unquote(name) if name else path}#{pointer}"
            self._files[path] = content
        return self._files[path]

    def resolve(self, given: object) -> Mapping[str, Any]:
        """Return an object of the document with its reference followed; empty for a URL, and for anything else."""
        for _ in range(_MAX_REFERENCES):
            if not isinstance(given, dict):
                return {}
            reference = given.get("$ref")
            if not isinstance(reference, str):
                return given
            name, _, pointer = reference.rpartition("#")
            if "://" in name:
                return {}
            place = self._file(Path(name))
            for step in unquote(pointer).split("/")[1:]:
                key = step.replace("~1", "/").replace("~0", "~")
                if not isinstance(place, dict) or key not in place:
                    raise PlacebenchError(f"{self._path}: $ref {name}#{pointer}: {key!r} is not there")
                place = place[key]
            given = place
        return {}

    def example(self, given: object) -> tuple[Any, bool]:
        """Return a value for a parameter, a body or a schema, and whether the document has it.

        The value of a schema that refers to itself is None at the second time.
        """
        reference = given.get("$ref") if isinstance(given, dict) else None
        if not isinstance(reference, str):
            return self._example(self.resolve(given))
        if reference not in self._examples:
            self._examples[reference] = None, False
            self._examples[reference] = self._example(self.resolve(given))
        return self._examples[reference]

    def _example(self, given: Mapping[str, Any]) -> tuple[Any, bool]:
        values = [given.get(key) for key in ("example", "x-example", "default", "const")]
        examples = given.get("examples")
        if isinstance(examples, dict):
            values += [self.resolve(each).get("value") for each in examples.values()]
        for several in (examples, given.get("enum")):
            values += several if isinstance(several, list) else []
        if (known := next((value for value in values if value is not None), None)) is not None:
            return known, True
        if "schema" in given:
            return self.example(given["schema"])
        for key in ("oneOf", "anyOf"):
            parts = given.get(key)
            parts = [each for each in parts if each != {"type": "null"}] if isinstance(parts, list) else []
            if parts:
                return self.example(parts[0])
        if given.get("allOf") or isinstance(given.get("properties"), dict):
            return self._object(given)
        if given.get("type") == "array":
            value, is_known = self.example(given.get("items"))
            count = given.get("minItems")
            return [value] * (min(count, _MAX_INVENTED_LENGTH) if isinstance(count, int) and count > 1 else 1), is_known
        return _invented(given), False

    def _object(self, schema: Mapping[str, Any]) -> tuple[Any, bool]:
        """Return an object with the required properties of all parts, and with those that have an example.

        All properties of a part without `required` count as required.
        """
        whole, is_known = dict[str, Any](), True
        parts = schema.get("allOf")
        for part in parts if isinstance(parts, list) else ():
            value, known = self.example(part)
            if not isinstance(value, dict):
                return value, known
            whole, is_known = whole | value, is_known and known
        properties, required = schema.get("properties"), schema.get("required")
        for name, given in properties.items() if isinstance(properties, dict) else ():
            value, known = self.example(given)
            if known or (name in required if isinstance(required, list) else value is not None):
                whole[name], is_known = value, is_known and known
        return whole, is_known


def _read(path: Path) -> Any:
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise PlacebenchError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as found:
        try:
            yaml: Any = import_module("yaml")
        except ImportError:
            raise PlacebenchError(f"{path}: no JSON ({found}), and YAML needs PyYAML: pip install pyyaml") from found
    # Dates stay texts, as in JSON.
    resolvers = {
        first: [(tag, pattern) for tag, pattern in each if not tag.endswith(":timestamp")]
        for first, each in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    try:
        return yaml.load(content, type("Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": resolvers}))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise PlacebenchError(f"{path}: neither JSON nor YAML: {' '.join(str(error).split())}") from error


def _base_path(document: _Document, *places: Mapping[str, Any]) -> str:
    """Return the path of the first server of the innermost place that names one; of Swagger 2, basePath."""
    for place in places:
        servers = place.get("servers")
        if isinstance(servers, list) and servers and isinstance(servers[0], dict):
            variables = servers[0].get("variables")
            url = str(servers[0].get("url", ""))
            for name, variable in variables.items() if isinstance(variables, dict) else ():
                url = url.replace(f"{{{name}}}", str(document.resolve(variable).get("default", "")))
            path = re.sub(r"^([^/]+:)?//[^/]*", "", url)
            break
    else:
        path = str(document.root.get("basePath", ""))
    path = path.strip("/")
    return f"/{path}" if path else ""


def _described(
    document: _Document, route: str, item: Mapping[str, Any], method: str, operation: Mapping[str, Any]
) -> DescribedRequest:
    route = path = _base_path(document, operation, item, document.root) + route
    query, headers, form, invented = list[tuple[str, str]](), dict[str, str](), dict[str, Any](), list[str]()
    content = document.resolve(operation.get("requestBody")).get("content")
    content = dict(content) if isinstance(content, dict) else {}
    for given in _parameters(document, item.get("parameters"), operation.get("parameters")):
        name, place = str(given.get("name", "")), given.get("in")
        if place == "body":
            content["application/json"] = given
        if place not in ("path", "query", "header", "formData"):
            continue
        if place == "header" and name.lower() in _IGNORED_HEADERS:
            continue
        if isinstance(described := given.get("content"), dict) and described:
            value, is_known = document.example(next(iter(described.values())))
            value = json.dumps(value, default=str)
        else:
            value, is_known = document.example(given)
        if place != "path" and not is_known and not given.get("required"):
            continue
        invented += [] if is_known else [name]
        if place == "path":
            path = path.replace(f"{{{name}}}", quote(_text(value), safe=","))
        elif place == "header":
            headers[name] = _text(value)
        elif place == "query":
            query += _pairs(given, name, value)
        else:
            form[name] = value
            content.setdefault("multipart/form-data" if given.get("type") == "file" else _FORM, {"example": form})
    if undescribed := re.findall(r"\{(.+?)\}", path):
        path = re.sub(r"\{.+?\}", "1", path)
        invented += undescribed
    kinds = {str(kind).partition(";")[0].strip().lower(): kind for kind in content}
    chosen = next((kind for kind in kinds if kind in ("application/json", "*/*") or kind.endswith("+json")), "")
    chosen = chosen or (_FORM if _FORM in kinds and "multipart/form-data" not in kinds else "")
    body = b""
    if chosen:
        value, is_known = document.example(content[kinds[chosen]])
        invented += [] if is_known else ["body"]
        is_form = chosen == _FORM and isinstance(value, dict)
        pairs = [pair for name, each in value.items() for pair in _pairs({}, name, each)] if is_form else []
        body = (urlencode(pairs) if is_form else json.dumps(value, default=str)).encode()
        headers["Content-Type"] = "application/json" if chosen == "*/*" else chosen
    target = path + ("&" if "?" in path else "?") * bool(query) + urlencode(query)
    request = Request(method.upper(), quote(target, safe=_SENT_AS_IT_IS), headers, body)
    return DescribedRequest(route, request, tuple(invented), "" if chosen else next(iter(kinds), ""))


def _parameters(document: _Document, *lists: object) -> Iterator[Mapping[str, Any]]:
    """Yield the parameters of an operation; its own override those of its path with the same name."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for each in lists:
        for given in each if isinstance(each, list) else ():
            parameter = document.resolve(given)
            found[str(parameter.get("name")), str(parameter.get("in"))] = parameter
    yield from found.values()


def _text(value: object) -> str:
    """Return a value as paths, queries and headers have it; lists and objects are joined by commas."""
    if isinstance(value, dict):
        value = [part for pair in value.items() for part in pair]
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _pairs(given: Mapping[str, Any], name: str, value: object) -> Sequence[tuple[str, str]]:
    """Return the names and values that a query has for a parameter, by its style or its collectionFormat."""
    style = str(given.get("style") or given.get("collectionFormat") or "")
    is_swagger_array = "collectionFormat" in given or given.get("type") == "array"
    is_exploded = given.get("explode", style == "multi" if is_swagger_array else style in ("", "form"))
    if isinstance(value, dict):
        if style == "deepObject":
            return [(f"{name}[{key}]", _text(each)) for key, each in value.items()]
        return [(str(key), _text(each)) for key, each in value.items()] if is_exploded else [(name, _text(value))]
    if not isinstance(value, list):
        return [(name, _text(value))]
    texts = [_text(each) for each in value]
    return [(name, text) for text in texts] if is_exploded else [(name, _SEPARATORS.get(style, ",").join(texts))]


def _invented(schema: Mapping[str, Any]) -> Any:
    """Return a value by the type, the format and the limits of a schema."""
    kind = schema.get("type", "string")
    kind = next((each for each in kind if each != "null"), "string") if isinstance(kind, list) else kind
    if kind in ("integer", "number"):
        return _number(schema, is_integer=kind == "integer")
    value = _BY_FORMAT.get(str(schema.get("format")), _BY_TYPE.get(str(kind), "a"))
    length = schema.get("minLength")
    return value.ljust(min(length, _MAX_INVENTED_LENGTH), "a") if value == "a" and isinstance(length, int) else value


def _number(schema: Mapping[str, Any], *, is_integer: bool) -> float:
    """Return a number for a schema: its minimum, else 1 or a lower maximum, rounded up to a multiple of multipleOf."""
    low, is_above = _limit(schema, "minimum", "exclusiveMinimum")
    high, is_below = _limit(schema, "maximum", "exclusiveMaximum")
    if is_integer:
        low = None if low is None else math.floor(low) + 1 if is_above else math.ceil(low)
        high = None if high is None else math.ceil(high) - 1 if is_below else math.floor(high)
    elif low is not None and is_above:
        low = low + 1 if high is None or low + 1 < high else (low + high) / 2
    elif high is not None and is_below:
        high = high - 1 if low is None or high - 1 > low else (low + high) / 2
    value = low if low is not None else 1 if high is None else min(1, high)
    step = schema.get("multipleOf")
    return math.ceil(value / step) * step if isinstance(step, int | float) and step > 0 else value


def _limit(schema: Mapping[str, Any], name: str, exclusive_name: str) -> tuple[float | None, bool]:
    """Return a limit of a schema, and whether it is excluded.

    exclusiveMinimum is the limit itself in OpenAPI 3.1, and true or false beside minimum in 3.0 and Swagger 2.
    """
    limit, exclusive = schema.get(name), schema.get(exclusive_name)
    if isinstance(exclusive, int | float) and not isinstance(exclusive, bool):
        return exclusive, True
    return (limit, exclusive is True) if isinstance(limit, int | float) else (None, False)
