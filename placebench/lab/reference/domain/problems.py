"""What can be wrong with a request, each with its HTTP status and the code that Placement gives it.

A handler raises a `Problem`, which `pipeline.py` makes the JSON error document. Placement's own detail opens with a
stock sentence for the status; ours is the message alone. Two phrases are Placement's, since nova decides by them what
to do after a 409: "consumer generation conflict" and "Conflicting resource provider name:".
"""
# ruff: noqa: N818 - these are the names that HTTP gives the statuses, and werkzeug its exceptions.

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar

UNDEFINED = "placement.undefined_code"
_CONCURRENT_UPDATE = "placement.concurrent_update"


class Problem(Exception):
    """A response that is an error document: status, title, detail, code, and headers that go with them."""

    status: ClassVar[HTTPStatus] = HTTPStatus.INTERNAL_SERVER_ERROR

    def __init__(self, detail: str, *, code: str = UNDEFINED, headers: Mapping[str, str] | None = None) -> None:
        """detail: one sentence for a person; code: stable, for a program; headers: added to the response."""
        super().__init__(detail)
        self.detail = detail
        self.code = code
        self.headers = dict(headers or {})

    @property
    def title(self) -> str:
        """The phrase that HTTP has for the status."""
        return self.status.phrase

    def to_json(self, request_id: str, *, with_code: bool = True) -> dict[str, Any]:
        """Return the error document of the request of this id; microversions before 1.23 have no codes."""
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
    """No such path, or nothing of that name in the database."""

    status = HTTPStatus.NOT_FOUND


class MethodNotAllowed(Problem):
    """The path exists, but not with this method; `Allow` says with which."""

    status = HTTPStatus.METHOD_NOT_ALLOWED


class NotAcceptable(Problem):
    """The client accepts no JSON."""

    status = HTTPStatus.NOT_ACCEPTABLE


class VersionNotAcceptable(NotAcceptable):
    """The client requests a microversion that is not served here; the document says which is."""

    def __init__(self, detail: str, *, min_version: str, max_version: str) -> None:
        """min_version and max_version: the range that is served, for instance "1.39"."""
        super().__init__(detail)
        self.min_version = min_version
        self.max_version = max_version

    def _members(self) -> dict[str, Any]:
        return {**super()._members(), "min_version": self.min_version, "max_version": self.max_version}


class Conflict(Problem):
    """The request is well formed and the state of the database forbids it."""

    status = HTTPStatus.CONFLICT


class ConcurrentUpdate(Conflict):
    """Another writer came first: read the generation again and try once more."""

    def __init__(self, detail: str) -> None:
        """detail: one sentence for a person."""
        super().__init__(detail, code=_CONCURRENT_UPDATE)


class ContentTooLarge(Problem):
    """The body is longer than this service reads."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class UriTooLong(Problem):
    """The path and query are longer than the server hands over."""

    status = HTTPStatus.REQUEST_URI_TOO_LONG


class UnsupportedMediaType(Problem):
    """The body is not declared as JSON."""

    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE


class ServiceUnavailable(Problem):
    """The database cannot be connected to; nothing was read or written."""

    status = HTTPStatus.SERVICE_UNAVAILABLE


class Unexpected(Problem):
    """A bug: the traceback is in the log, under the request id of the document."""

    status = HTTPStatus.INTERNAL_SERVER_ERROR
