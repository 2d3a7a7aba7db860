"""Reads requests that were recorded, by a browser in a HAR file (`read_har`) or by a server (`read_access_log`).

From a HAR file static files, other hosts, cookies and credentials are left out, and the omissions are reported.
Developer tools of browsers and Playwright write such files (HAR 1.2). Of access logs the common and the combined format
are known (Apache, nginx, gunicorn, Traefik, Envoy), lines with such a request in them (uvicorn, hypercorn, Werkzeug,
Django's runserver, uWSGI, HAProxy, load balancers of AWS) or with its words and no quotes (Tornado, Sanic, Express,
Gin), lines of JSON or name=value (Heroku's router, lograge, Go) with the names that nginx, Caddy, Traefik, Envoy,
uvicorn, pino, Serilog, the Elastic Common Schema, OpenTelemetry and clouds use, and the extended format of the W3C
(IIS, CloudFront). A log has neither the bodies nor the headers of requests.
"""

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from io import BufferedIOBase
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from msgspec import Meta, Struct, field

from placebench.decoding import read_json
from placebench.errors import PlacebenchError
from placebench.http_session import Request

_STATIC_TYPE = re.compile(r"(image|font|audio|video)/|text/css|(text|application)/(x-)?javascript|application/wasm")
_STATIC_PATH = re.compile(
    r"\.(css|js|mjs|map|png|jpe?g|gif|svg|ico|webp|avif|woff2?|ttf|otf|mp4|webm|mp3|wasm)$", re.IGNORECASE
)
_CREDENTIALS = {"authorization", "cookie", "x-csrftoken", "x-xsrf-token", "x-csrf-token"}
_OF_THE_CONNECTION = re.compile(
    r":|(host|connection|keep-alive|proxy-.*|transfer-encoding|trailer|upgrade|expect|content-length|accept-encoding|origin|referer|dnt|te|pragma|cache-control|priority|"
    r"upgrade-insecure-requests|user-agent|if-.*|sec-.*)$",
    re.IGNORECASE,
)
_SENT_AS_IT_IS = "".join(map(chr, range(0x21, 0x7F)))
_NOT_MODIFIED = 304
_MAX_TARGET = 60_000
"""uWSGI, uvicorn and hypercorn take some 64 KB for the first line and the headers together, other servers less."""
TOO_LONG = f"with a path and query of more than {_MAX_TARGET:,} characters"
_SHOWN_HOSTS = 3
_OVER_HTTP = ("http", "https")
_ELSEWHERE = "to other hosts"
WITHOUT_CREDENTIALS = "with cookies or credentials, which were removed"


class HarTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The table [har] of a plan."""

    file: str
    host: str = ""
    """Pattern of the hosts whose requests are sent; by default the first request's host."""
    paths: tuple[str, ...] = ()
    """Patterns of the paths that are sent, such as /api/*; by default all paths."""
    static: bool = False
    """Whether requests for static files are sent too."""


class _Pair(Struct):
    name: str
    value: str | None = ""


class _PostData(Struct):
    text: str | None = ""
    params: list[_Pair] | None = None
    mime_type: str | None = field(name="mimeType", default="")


class _Request(Struct):
    method: Annotated[str, Meta(pattern="^[A-Za-z]+$")]
    url: str
    headers: list[_Pair] | None = None
    post_data: _PostData | None = field(name="postData", default=None)


class _Content(Struct):
    mime_type: str | None = field(name="mimeType", default="")


class _Response(Struct):
    status: int
    content: _Content | None = None


class _Entry(Struct):
    """One request; some programs write null for what is empty or never came."""

    request: _Request
    response: _Response | None = None
    from_cache: str | None = field(name="_fromCache", default=None)
    """Chrome: the cache that served it, such as "disk", so that no server saw it."""


class _Log(Struct):
    entries: list[_Entry]


class _Har(Struct):
    log: _Log


@dataclass(frozen=True)
class HarRequest:
    """One request of the session. expect_status: the recorded status; None: any status below 400."""

    request: Request
    expect_status: int | None


def read_har(table: HarTable, folder: Path, login: Sequence[Request] = ()) -> tuple[list[HarRequest], list[str]]:
    """Return the requests of the session in order, and notes on the omitted requests, as `har_requests` does.

    Raises PlacebenchError also if no request is left to send.
    """
    made, left_out, without_credentials = har_requests(table, folder, login)
    said = [f"{count} {reason}" for reason, count in left_out.items()]
    said += [f"{without_credentials} {WITHOUT_CREDENTIALS}"] if without_credentials else []
    whole = len(made) + left_out.total()
    if not made:
        path = folder / table.file
        raise PlacebenchError(f"{path}: none of {whole} requests is left to send: {'; '.join(said) or 'none'}")
    return made, ["; ".join([f"{table.file}: {len(made)} of {whole} recorded requests are sent", *said])]


def har_requests(
    table: HarTable, folder: Path, login: Sequence[Request] = ()
) -> tuple[list[HarRequest], Counter[str], int]:
    """Return the requests of the session in order, the number of the omitted ones by reason, and of those with cookies.

    login: the requests of the plan's login, which are left out of the session. Cookies and credentials are removed.
    Raises PlacebenchError for a file that is not a HAR file.
    """
    path = folder / table.file
    entries = read_json(path, _Har, error=PlacebenchError).log.entries
    addresses = [_split(each.request.url) for each in entries]
    pattern = table.host or _first_host(entries, addresses)
    logins = {(each.method, each.path.partition("?")[0]) for each in login}
    left_out: Counter[str] = Counter()
    elsewhere: Counter[str] = Counter()
    made, without_credentials = [], 0
    for entry, address in zip(entries, addresses, strict=True):
        if reason := _why_left_out(entry, address, pattern, table, logins):
            left_out[reason] += 1
            if reason == _ELSEWHERE:
                elsewhere[address.netloc] += 1
            continue
        status = entry.response.status if entry.response else None
        request = _request(entry.request, address)
        made.append(HarRequest(request, None if status == _NOT_MODIFIED else status))
        without_credentials += any(each.name.lower() in _CREDENTIALS for each in entry.request.headers or ())
    if count := left_out.pop(_ELSEWHERE, 0):
        left_out[f"{_ELSEWHERE} ({', '.join(name for name, _ in elsewhere.most_common(_SHOWN_HOSTS))})"] = count
    return made, left_out, without_credentials


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # such as http://[
        return SplitResult("", "", url, "", "")


def _first_host(entries: Sequence[_Entry], addresses: Sequence[SplitResult]) -> str:
    """Return the host of the first request over HTTP that is not a redirect, as to www.shop.example."""
    hosts = [
        (entry.response is not None and 300 <= entry.response.status < 400, address.netloc)
        for entry, address in zip(entries, addresses, strict=True)
        if address.scheme in _OVER_HTTP
    ]
    return next((host for is_redirect, host in hosts if not is_redirect), hosts[0][1] if hosts else "")


def is_too_long(target: str) -> bool:
    """Return whether a path with its query is longer than servers take."""
    return len(target) > _MAX_TARGET


def is_static(path: str) -> bool:
    """Return whether a path, without its query, is that of a static file."""
    return bool(_STATIC_PATH.search(path))


def _why_left_out(
    entry: _Entry, address: SplitResult, pattern: str, table: HarTable, logins: set[tuple[str, str]]
) -> str:
    method = entry.request.method.upper()
    if address.scheme not in _OVER_HTTP:
        return f"of {address.scheme or 'no'} URLs"
    if not fnmatch(address.netloc, pattern):
        return _ELSEWHERE
    if table.paths and not any(fnmatch(address.path, each) for each in table.paths):
        return "to other paths"
    if entry.response is None or entry.response.status < 200:
        return "without a response"
    if entry.from_cache:
        return "that the browser's cache served"
    if is_too_long(f"{address.path}?{address.query}"):
        return TOO_LONG
    if method == "OPTIONS":
        return "preflight requests"
    if (method, address.path) in logins:
        return "of the login"
    mime = (entry.response.content.mime_type if entry.response.content else "") or ""
    if not table.static and (_STATIC_TYPE.match(mime) or is_static(address.path)):
        return "for static files"
    return ""


def _request(recorded: _Request, address: SplitResult) -> Request:
    path = f"{address.path or '/'}?{address.query}" if address.query else address.path or "/"
    headers = {
        each.name.title(): each.value or ""
        for each in recorded.headers or ()
        if each.name.lower() not in _CREDENTIALS and not _OF_THE_CONNECTION.match(each.name)
    }
    data, body = recorded.post_data, b""
    if data is not None and (data.mime_type or "").startswith("application/x-www-form-urlencoded"):
        pairs = parse_qsl(data.text or "", keep_blank_values=True)
        pairs = pairs or [(each.name, each.value or "") for each in data.params or ()]
        # Django's token is sent as a header.
        body = urlencode([pair for pair in pairs if pair[0] != "csrfmiddlewaretoken"]).encode()
    elif data is not None:
        body = (data.text or "").encode()
    return Request(recorded.method.upper(), quote(path, safe=_SENT_AS_IT_IS), headers, body)


_METHOD = "GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|TRACE|CONNECT|PROPFIND|REPORT|QUERY"
_QUOTED = re.compile(rf'"({_METHOD}) (\S+)(?: (?:HTTP/)?[\d.]+)?" (\d{{3}})\b')
_UNQUOTED = re.compile(
    rf'(?:^|[\s"])({_METHOD}) +"?(/\S*?|https?://\S+?)"?(?: +(?:HTTP/)?(?:[123]\.\d|[23]))?"? +"?([1-5]\d\d)\b'
)
"""Formats without quotes around the request: of Express, Sanic, Quart, and some of nginx's."""
_STATUS_FIRST = re.compile(rf'[\s/]([1-5]\d\d) (?:\|.*\| |\d+ )?({_METHOD}) +"?(/[^\s"]*|https?://[^\s"]+)')
"""Tornado, Gin and Squid."""
_COLOR = re.compile(r"\x1b\[[\d;]*m")
_UWSGI = re.compile(rf"\] ({_METHOD}) (\S+) => .*\(HTTP/[\d.]+ (\d{{3}})\)")
_LOAD_BALANCER = re.compile(rf' (?:[-\d.]+ ){{3}}(\d{{3}}|-) (?:\d{{3}}|-) \d+ \d+ "({_METHOD}) (\S+)')
"""AWS: the times in three parts, the status of the balancer and of the target, and the bytes of both directions."""
_HAPROXY = re.compile(
    rf' [-+\d]+(?:/[-+\d]+){{4}} (-?\d+) \+?\d+ \S+ \S+ \S{{4}} \d+/.*"({_METHOD}) (\S+)[^"]*"(?: \d+/[^"]*)?$'
)
"""With the errors and the parameters of TLS after the request, in the format of HTTPS."""
_PAIR = re.compile(r'(?:^|(?<=\s))([\w.-]+)=(?:"((?:[^"\\]|\\.)*)"|(\S*))')
_REQUEST_LINE = re.compile(rf"({_METHOD}) (\S+)(?: HTTP/[\d.]+)?$")
_ESCAPED = re.compile(r"\\x([0-9A-Fa-f]{2})|\\([\"\\])")
"""How nginx (`\\x22`) and Apache (`\\"`) write characters of a request that would end the quotes."""

_METHODS = (
    "method",
    "request_method",
    "RequestMethod",
    "http.request.method",
    "http_method",
    "requestMethod",
    "httpMethod",
    "ClientRequestMethod",
    "verb",
    "http.method",
    "cs-method",
)
_TARGETS = (
    "uri",
    "request_uri",
    "RequestPath",
    "url.original",
    "requestUrl",
    "requestUri",
    "ClientRequestURI",
    "url",
    "path",
    "url.path",
    "http.target",
    "cs-uri-stem",
)
_QUERIES = ("query", "query_string", "args", "url.query", "requestQuery", "cs-uri-query")
_STATUSES = (
    "status",
    "status_code",
    "DownstreamStatus",
    "OriginStatus",
    "http.response.status_code",
    "response_status",
    "response_code",
    "statusCode",
    "httpStatus",
    "StatusCode",
    "http.status_code",
    "code",
    "EdgeResponseStatus",
    "sc-status",
)
_LINES = ("request", "request_line", "message", "msg", "log", "event.original")
"""Names of values that hold a request as text: its first line, or a whole line of a log."""
_INSIDE = ("request", "req", "res", "http", "httpRequest", "properties", "scope", "attributes")
"""Names of objects that hold some of the values above, as `request` does in a log of Caddy."""
_SHOWN_LETTERS = 120


class LoggedRequest(NamedTuple):
    """One request of an access log."""

    method: str
    target: str
    """Path and query, percent-encoded."""
    status: int | None
    """The status of the response; None if the line has none."""


def read_access_log(path: Path) -> Iterator[LoggedRequest | None]:
    """Yield the request of each line of an access log, and None for a line without one; empty lines are skipped.

    A file that ends in .gz is decompressed. An array of JSON objects, which `gcloud logging read` writes, is read as
    their lines. Raises PlacebenchError if the file cannot be read, or if none of its lines
    has a request.
    """
    first, found, fields = "", False, list[str]()
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for raw in _objects_of_array(file) or file:
                if not (line := raw.decode(errors="replace").strip()):
                    continue
                first = first or line
                if line.startswith("#"):  # the extended format of the W3C; the names may change within a file
                    fields = line.split()[1:] if line.startswith("#Fields:") else fields
                    continue
                named = dict(zip(fields, line.split(), strict=False))
                request = _of_document({k: v for k, v in named.items() if v != "-"}) if fields else read_line(line)
                found = found or request is not None
                yield request
    except (OSError, EOFError) as error:
        raise PlacebenchError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not found:
        seen = f"its first line is {first[:_SHOWN_LETTERS]!r}" if first else "it is empty"
        raise PlacebenchError(
            f"{path}: no line has a request, {seen}: expected an access log in the common, combined or extended "
            "format, of HAProxy or a load balancer of AWS, or lines of JSON or name=value with method, uri and status"
        )


def _objects_of_array(file: BufferedIOBase) -> list[bytes]:
    """Return the objects of a JSON array, one line each; if the file is no such array, [] at the file's start."""
    head, documents = file.readline().strip(), None
    file.seek(0)
    if head == b"[" or head.startswith(b"[{"):
        with suppress(ValueError, RecursionError):
            documents = json.load(file)
        file.seek(0)
    return [json.dumps(each).encode() for each in documents] if isinstance(documents, list) else []


def read_line(line: str) -> LoggedRequest | None:
    """Return the request of one line of an access log; None if there is none."""
    line = _COLOR.sub("", line).strip()
    at = line.find("{")
    if at >= 0 and line.endswith("}"):  # a service manager may have put a time in front
        try:
            document = json.loads(line[at:])
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict):
            return _of_document(document)
    if made := _of_text(line):
        return made
    pairs = {each[1]: each[3] if each[2] is None else each[2] for each in _PAIR.finditer(line)}
    return _of_document(pairs) if pairs else None


def _of_text(line: str) -> LoggedRequest | None:
    if found := _QUOTED.search(line) or _UWSGI.search(line):
        return _made(found[1], found[2], int(found[3]))
    if found := _LOAD_BALANCER.search(line) or _HAPROXY.search(line):
        return _made(found[2], found[3], _status(found[1]))
    if found := _UNQUOTED.search(line):
        return _made(found[1], found[2], int(found[3]))
    found = _STATUS_FIRST.search(line)
    return _made(found[2], found[3], int(found[1])) if found else None


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
            if made := read_line(text):
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
    """Return the request; None for a target that is not a path, as of CONNECT."""
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
