"""Reads a session that a browser recorded as a HAR file into requests for a comparison: `read_har`.

Static files, other hosts, cookies and credentials are left out, and the omissions are reported. Developer tools of
browsers and Playwright write such files (HAR 1.2).
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

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
    r":|(host|connection|content-length|accept-encoding|origin|referer|dnt|te|pragma|cache-control|priority|"
    r"upgrade-insecure-requests|user-agent|if-.*|sec-.*)$",
    re.IGNORECASE,
)
_SENT_AS_IT_IS = "".join(map(chr, range(0x21, 0x7F)))
_NOT_MODIFIED = 304
_SHOWN_HOSTS = 3


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
    value: str = ""


class _PostData(Struct):
    text: str = ""
    params: list[_Pair] = []
    mime_type: str = field(name="mimeType", default="")


class _Request(Struct):
    method: Annotated[str, Meta(pattern="^[A-Za-z]+$")]
    url: str
    headers: list[_Pair] = []
    post_data: _PostData | None = field(name="postData", default=None)


class _Content(Struct):
    mime_type: str = field(name="mimeType", default="")


class _Response(Struct):
    status: int
    content: _Content = field(default_factory=_Content)


class _Entry(Struct):
    request: _Request
    response: _Response


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
    """Return the requests of the session in order, and notes on the omitted requests.

    login: the requests of the plan's login, which are left out of the session. Raises PlacebenchError for a file that
    is not a HAR file, or that has no request to send.
    """
    path = folder / table.file
    entries = read_json(path, _Har, error=PlacebenchError).log.entries
    hosts = [urlsplit(each.request.url).netloc for each in entries]
    pattern = table.host or (hosts[0] if hosts else "")
    logins = {(each.method, each.path.partition("?")[0]) for each in login}
    left_out: Counter[str] = Counter()
    elsewhere: Counter[str] = Counter()
    made = []
    for entry, host in zip(entries, hosts, strict=True):
        if reason := _why_left_out(entry, host, pattern, table, logins):
            left_out[reason] += 1
            if reason == "to other hosts":
                elsewhere[host] += 1
            continue
        status = entry.response.status
        made.append(HarRequest(_request(entry.request), None if status == _NOT_MODIFIED else status))
        names = {each.name.lower() for each in entry.request.headers}
        left_out["with cookies or credentials, which were removed"] += bool(names & _CREDENTIALS)
    said = [f"{count} {reason}" for reason, count in left_out.items() if count]
    if elsewhere:
        shown = ", ".join(name for name, _ in elsewhere.most_common(_SHOWN_HOSTS))
        said = [each.replace("to other hosts", f"to other hosts ({shown})") for each in said]
    if not made:
        raise PlacebenchError(f"{path}: none of {len(entries)} requests is left to send: {'; '.join(said) or 'none'}")
    return made, [f"{table.file}: {len(made)} of {len(entries)} recorded requests are sent; {'; '.join(said)}"]


def is_static(path: str) -> bool:
    """Return whether a path, without its query, is that of a static file."""
    return bool(_STATIC_PATH.search(path))


def _why_left_out(entry: _Entry, host: str, pattern: str, table: HarTable, logins: set[tuple[str, str]]) -> str:
    parts = urlsplit(entry.request.url)
    method = entry.request.method.upper()
    if not fnmatch(host, pattern):
        return "to other hosts"
    if table.paths and not any(fnmatch(parts.path, each) for each in table.paths):
        return "to other paths"
    if parts.scheme not in ("http", "https") or entry.response.status < 200:
        return "without a response"
    if method == "OPTIONS":
        return "preflight requests"
    if (method, parts.path) in logins:
        return "of the login"
    mime = entry.response.content.mime_type
    if not table.static and (_STATIC_TYPE.match(mime) or is_static(parts.path)):
        return "for static files"
    return ""


def _request(recorded: _Request) -> Request:
    parts = urlsplit(recorded.url)
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    headers = {
        each.name.title(): each.value
        for each in recorded.headers
        if each.name.lower() not in _CREDENTIALS and not _OF_THE_CONNECTION.match(each.name)
    }
    data, body = recorded.post_data, b""
    if data is not None and data.mime_type.startswith("application/x-www-form-urlencoded"):
        pairs = parse_qsl(data.text, keep_blank_values=True) or [(each.name, each.value) for each in data.params]
        # Django's token is sent as a header.
        body = urlencode([pair for pair in pairs if pair[0] != "csrfmiddlewaretoken"]).encode()
    elif data is not None:
        body = data.text.encode()
    return Request(recorded.method.upper(), quote(path, safe=_SENT_AS_IT_IS), headers, body)
