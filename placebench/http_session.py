"""A request as a user enters it (`Request`), and the cookies and access token that a client keeps (`Session`).

The profiler uses both for an application in its own process, the comparison for an application behind HTTP.
"""

import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import mktime_tz, parsedate_tz
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from placebench.errors import PlacebenchError
from placebench.masking import mask_request

SAFE_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE")
_LOGIN_PAGES = frozenset(("login", "signin", "logon", "sso"))
_CSRF_HEADERS = {"csrftoken": "X-CSRFToken", "XSRF-TOKEN": "X-XSRF-TOKEN"}
"""The cookies with which Django and others protect forms from CSRF, and the headers in which they expect the value."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; the path includes the query."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the request written as "GET /x?y=1", "/x", or 'POST /x BODY'; "@FILE" stands for a file with the body.

        The content type is set for a body that looks like JSON or a form. Raises PlacebenchError if *text* is not a
        request.
        """
        given = f"GET {text}" if text.startswith("/") else text
        method, path, body = (*given.split(maxsplit=2), "", "", "")[:3]
        if not method.isalpha() or not path.startswith("/"):
            raise PlacebenchError(
                f"request {mask_request(text)!r}: expected a method and a path, such as 'GET /orders?page=2'"
            )
        content = read_body(body.strip())
        kind = content_type(content)
        return cls(method.upper(), path, {"Content-Type": kind} if kind else {}, content)

    @classmethod
    def read(cls, text: str, folder: Path = Path()) -> Self:
        """Return the request from the text, file or environment variable that *text* names (see `read_text`).

        A password in a file or a variable does not show in the list of processes. Raises PlacebenchError like `parse`.
        """
        return cls.parse(read_text(text, folder))

    def __str__(self) -> str:
        return f"{self.method} {self.path.partition('?')[0]}"


class Session:
    """The cookies that an application has set, and the access token from a login."""

    def __init__(self) -> None:
        self.token_headers: dict[str, str] = {}
        """The headers that carry the access token, once there was a login with a token."""
        self._cookies: dict[str, str] = {}

    def headers(self, method: str) -> dict[str, str]:
        """Return the headers of the next request, including CSRF protection for methods that may change data."""
        headers = dict(self.token_headers)
        if self._cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        if method not in SAFE_METHODS:
            headers |= {_CSRF_HEADERS[name]: self._cookies[name] for name in _CSRF_HEADERS if name in self._cookies}
        return headers

    def keep_cookies(self, headers: Iterable[tuple[str, str]]) -> None:
        """Store the cookies that a response sets, and delete those that it expires.

        A value may contain any character but a semicolon, and is returned unchanged (RFC 6265, section 5.2).
        """
        for header, text in headers:
            if header.lower() != "set-cookie":
                continue
            pair, *attributes = text.split(";")
            name, equals, value = (part.strip(" \t") for part in pair.partition("="))
            if not equals or not name:
                continue
            self._cookies.pop(name, None)
            if not _has_expired(attributes):
                self._cookies[name] = value

    def keep_access_token(self, body: bytes) -> None:
        """Store the access token of an OAuth2 login, if the response body has one."""
        try:
            token = json.loads(body).get("access_token")
        except (ValueError, AttributeError, RecursionError):
            return
        if isinstance(token, str):
            self.token_headers = {"Authorization": f"Bearer {token}"}


def login_redirect(path: str, status: int, location: str) -> str:
    """Return the path of the login page to which a response redirects, or an empty string if it does not.

    path: the path that was requested. A page is a login page by a segment of its path, such as /accounts/login/ or
    /users/sign_in. A login page that redirects to itself, as one that adds a slash does, is not one.
    """
    target = urlsplit(location).path
    if status // 100 != 3 or target.rstrip("/") == urlsplit(path).path.rstrip("/"):
        return ""
    segments = (re.sub(r"[-_]|\.\w+$", "", segment.lower()) for segment in target.split("/"))
    return target if not _LOGIN_PAGES.isdisjoint(segments) else ""


def _has_expired(attributes: Iterable[str]) -> bool:
    """Return whether attributes of a cookie delete it: Max-Age if present, else Expires; invalid values are ignored."""
    split = (each.partition("=") for each in attributes)
    given = {name.strip(" \t").lower(): value.strip(" \t") for name, _, value in split}
    if re.fullmatch(r"-?[0-9]+", given.get("max-age", "")):
        return given["max-age"].startswith("-") or not given["max-age"].strip("0")
    expires = parsedate_tz(given.get("expires", ""))
    try:
        return expires is not None and mktime_tz(expires) <= time.time()
    except (ValueError, OverflowError):  # no day of the calendar
        return False


def parse_header(text: str) -> dict[str, str]:
    """Return the header written as 'NAME: VALUE'; raise PlacebenchError if *text* is not a header."""
    name, colon, value = text.partition(":")
    if not colon:
        raise PlacebenchError(f"header {text!r}: expected 'NAME: VALUE'")
    return {name.strip(): value.strip()}


def read_text(text: str, folder: Path = Path()) -> str:
    """Return the text, the content of the file in "@FILE" (relative to *folder*), or the variable in "env:NAME".

    Raises PlacebenchError if the file or variable does not exist.
    """
    if text.startswith("@"):
        return read_body(f"@{folder / text[1:]}").decode(errors="replace").strip()
    name = text.removeprefix("env:")
    if name == text:
        return text
    if not (given := os.environ.get(name, "").strip()):
        raise PlacebenchError(f"{text!r}: the variable {name} is not set, or empty: expected a login or a header in it")
    return given


def read_body(text: str) -> bytes:
    """Return the text, or the content of the file in "@FILE"; raise PlacebenchError if the file cannot be read."""
    if not text.startswith("@"):
        return text.encode()
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise PlacebenchError(f"{text!r} cannot be read: {error.strerror}") from error


def content_type(body: bytes) -> str:
    """Return the default content type of a body; empty if it is neither JSON nor a form."""
    if body[:1] in (b"{", b"["):
        return "application/json"
    return "application/x-www-form-urlencoded" if b"=" in body and not body[:1].isspace() else ""
