"""Reads requests from the access logs of web servers: `read_access_log`.

Known are the common and the combined format (Apache, nginx, gunicorn, Traefik), lines with such a request in them
(uvicorn, Werkzeug, Django's runserver, uWSGI), and lines of JSON with the names that nginx, Caddy, Traefik, uvicorn and
the Elastic Common Schema use. A log has neither the bodies nor the headers of requests.
"""

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from placebench.errors import PlacebenchError

_METHOD = "GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|TRACE|CONNECT|PROPFIND|REPORT|QUERY"
_QUOTED = re.compile(rf'"({_METHOD}) (\S+)(?: HTTP/[\d.]+)?" (\d{{3}})\b')
_UWSGI = re.compile(rf"\] ({_METHOD}) (\S+) => .*\(HTTP/[\d.]+ (\d{{3}})\)")
_REQUEST_LINE = re.compile(rf"({_METHOD}) (\S+)(?: HTTP/[\d.]+)?$")
_ESCAPED = re.compile(r"\\x([0-9A-Fa-f]{2})|\\([\"\\])")
"""How nginx (`\\x22`) and Apache (`\\"`) write characters of a request that would end the quotes."""
_SENT_AS_IT_IS = "".join(map(chr, range(0x21, 0x7F)))

_METHODS = ("method", "request_method", "RequestMethod", "http.request.method", "http_method", "requestMethod", "verb")
_TARGETS = ("uri", "request_uri", "RequestPath", "url.original", "requestUrl", "url", "path", "url.path")
_QUERIES = ("query", "query_string", "args", "url.query")
_STATUSES = (
    "status",
    "status_code",
    "DownstreamStatus",
    "OriginStatus",
    "http.response.status_code",
    "response_status",
)
_LINES = ("request", "request_line", "message", "msg", "log", "event.original")
"""Names of values that hold a request as text: its first line, or a whole line of a log."""
_INSIDE = ("request", "req", "http", "httpRequest", "scope")
"""Names of objects that hold some of the values above, as `request` does in a log of Caddy."""
_MAX_SHOWN = 120


class LoggedRequest(NamedTuple):
    """One request of an access log."""

    method: str
    target: str
    """Path and query, percent-encoded."""
    status: int | None
    """The status of the response; None if the line has none."""


def read_access_log(path: Path) -> Iterator[LoggedRequest | None]:
    """Yield the request of each line of an access log, and None for a line without one; empty lines are skipped.

    A file that ends in .gz is decompressed. Raises PlacebenchError if the file cannot be read, or if none of its lines
    has a request.
    """
    first, found = "", False
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for raw in file:
                if not (line := raw.decode(errors="replace").strip()):
                    continue
                first = first or line
                request = read_line(line)
                found = found or request is not None
                yield request
    except (OSError, EOFError) as error:
        raise PlacebenchError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not found:
        seen = f"its first line is {first[:_MAX_SHOWN]!r}" if first else "it is empty"
        raise PlacebenchError(
            f"{path}: no line has a request, {seen}: expected an access log in the common or combined format, or lines "
            "of JSON with method, uri and status"
        )


def read_line(line: str) -> LoggedRequest | None:
    """Return the request of one line of an access log; None if there is none."""
    at = line.find("{")
    if at >= 0 and line.endswith("}"):  # a service manager may have put a time in front
        try:
            document = json.loads(line[at:])
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict):
            return _of_document(document)
    return _of_text(line)


def _of_text(line: str) -> LoggedRequest | None:
    found = _QUOTED.search(line) or _UWSGI.search(line)
    return _made(found[1], found[2], int(found[3])) if found else None


def _of_document(document: Mapping[str, Any]) -> LoggedRequest | None:
    objects = [document, *(inner for name in _INSIDE if isinstance(inner := document.get(name), dict))]

    def first(names: tuple[str, ...], kind: type | tuple[type, ...]) -> Any:
        values = (_value(each, name) for name in names for each in objects)
        return next((each for each in values if isinstance(each, kind) and each != ""), None)

    status = _status(first(_STATUSES, (int, str)))
    method, target = first(_METHODS, str), first(_TARGETS, str)
    if method and target:
        query = first(_QUERIES, str)
        return _made(method.upper(), f"{target}?{query.lstrip('?')}" if query and "?" not in target else target, status)
    for text in (_value(document, name) for name in _LINES):
        if isinstance(text, str):
            if found := _REQUEST_LINE.match(text.strip()):
                return _made(found[1], found[2], status)
            if made := _of_text(text):
                return made
    return None


def _value(document: Mapping[str, Any], name: str) -> Any:
    """Return the value of a key; of a name with dots also that of nested objects."""
    if name in document or "." not in name:
        return document.get(name)
    value: Any = document
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _status(value: int | str | None) -> int | None:
    """Return the status of 200, "200" or "200 OK"."""
    digits = str(value).split(maxsplit=1)[0] if value is not None else ""
    return int(digits) if re.fullmatch(r"[1-5]\d\d", digits) else None


def _made(method: str, target: str, status: int | None) -> LoggedRequest | None:
    """Return the request; None for a target that is no path, as of CONNECT."""
    plain = _ESCAPED.sub(lambda each: chr(int(each[1], 16)) if each[1] else each[2], target)
    if "://" in plain.partition("?")[0]:
        try:
            parts = urlsplit(plain)
        except ValueError:
            return None
        plain = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    if not plain.startswith("/"):
        return None
    return LoggedRequest(method, quote(plain.partition("#")[0], safe=_SENT_AS_IT_IS), status)
