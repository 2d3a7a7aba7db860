"""Exceptions for the errors of a request, each with an HTTP status and Placement's error code.

A handler raises a `Problem`, which `pipeline.py` turns into the JSON error document. Placement's detail begins with a
stock sentence for the status; ours is the message alone. Two phrases are Placement's own, since nova reads them to
decide what to do after a 409: "consumer generation conflict" and "Conflicting resource provider name:".
"""
# ruff: noqa: N818 - these are HTTP's names of the statuses, which werkzeug's exceptions have too.

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar

UNDEFINED = "placement.undefined_code"
_CONCURRENT_UPDATE = "placement.concurrent_update"


class Problem(Exception):
    """An error response: status, title, detail, code, and additional headers."""

    status: ClassVar[HTTPStatus] = HTTPStatus.INTERNAL_SERVER_ERROR

    def __init__(self, detail: str, *, code: str = UNDEFINED, headers: Mapping[str, str] | None = None) -> None:
        """detail: a sentence for people; code: a stable code for programs; headers: added to the response."""
        super().__init__(detail)
        self.detail = detail
        self.code = code
        self.headers = dict(headers or {})

    @property
    def title(self) -> str:
        """HTTP's phrase for the status, such as "Not Found"."""
        return self.status.phrase

    def to_json(self, request_id: str, *, with_code: bool = True) -> dict[str, Any]:
        """Return the error document of the request with this id; microversions before 1.23 have no codes."""
        code = {"code": self.code} if with_code else {}
        return {"errors": [{**self._members(), **code, "request_id": request_id}]}

    def _members(self) -> dict[str, Any]:
        return {"status": self.status.value, "title": self.title, "detail": self.detail}


class BadRequest(Problem):
    """The request cannot be understood, or is for something that is never allowed."""

    status = HTTPStatus.BAD_REQUEST


class Unauthorized(Problem):
    """The request names no user."""

    status = HTTPStatus.UNAUTHORIZED


class Forbidden(Problem):
    """The user may not do this."""

    status = HTTPStatus.FORBIDDEN


class NotFound(Problem):
    """The path does not exist, or the database has nothing with the name in the path."""

    status = HTTPStatus.NOT_FOUND


class MethodNotAllowed(Problem):
    """The path does not have this method; the header `Allow` lists the methods that it has."""

    status = HTTPStatus.METHOD_NOT_ALLOWED


class NotAcceptable(Problem):
    """The client accepts no JSON."""

    status = HTTPStatus.NOT_ACCEPTABLE


class VersionNotAcceptable(NotAcceptable):
    """The client requests a microversion that is not served; the error document has the range that is."""

    def __init__(self, detail: str, *, min_version: str, max_version: str) -> None:
        """min_version and max_version: the range of versions that is served, such as "1.0" and "1.39"."""
        super().__init__(detail)
        self.min_version = min_version
        self.max_version = max_version

    def _members(self) -> dict[str, Any]:
        return {**super()._members(), "min_version": self.min_version, "max_version": self.max_version}


class Conflict(Problem):
    """The request is well formed, but the state of the database does not allow it."""

    status = HTTPStatus.CONFLICT


class ConcurrentUpdate(Conflict):
    """Another client has changed the data; the client should read the generation again and retry."""

    def __init__(self, detail: str) -> None:
        """detail: a sentence for people."""
        super().__init__(detail, code=_CONCURRENT_UPDATE)


class ContentTooLarge(Problem):
    """The body is longer than this service reads."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class UriTooLong(Problem):
    """The path and query are longer than the WSGI server passes to the application."""

    status = HTTPStatus.REQUEST_URI_TOO_LONG


class UnsupportedMediaType(Problem):
    """The body is not declared as JSON."""

    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE


class ServiceUnavailable(Problem):
    """No connection to the database is possible, or none lasts; nothing was written."""

    status = HTTPStatus.SERVICE_UNAVAILABLE


class CommitUnconfirmed(Problem):
    """The connection to the database was lost during or just after a commit; the detail says what is known."""

    status = HTTPStatus.INTERNAL_SERVER_ERROR


class Unexpected(Problem):
    """A bug: the traceback is in the log, under the request id of the document."""

    status = HTTPStatus.INTERNAL_SERVER_ERROR
