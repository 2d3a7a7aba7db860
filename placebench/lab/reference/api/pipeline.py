"""The reference service as a WSGI application: the steps that each request and each response pass through.

The main function is `make_app`.
"""

import html
import logging
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from typing import Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import orjson
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from werkzeug import Request, Response
from werkzeug.exceptions import HTTPException
from werkzeug.http import http_date

from placebench.errors import VariantError
from placebench.lab.reference.api import microversion
from placebench.lab.reference.api.call import BODY_LIMIT, JSON, Call
from placebench.lab.reference.api.routes import find_route
from placebench.lab.reference.domain.problems import (
    BadRequest,
    Forbidden,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    Problem,
    ServiceUnavailable,
    Unauthorized,
    Unexpected,
    UriTooLong,
)
from placebench.lab.reference.domain.settings import DEFAULTS, ServiceSettings
from placebench.lab.reference.store.database import Database, ReplicatedDatabase
from placebench.lab.reference.variants import variant
from placebench.telemetry.requests import WATCH_KEY

log = logging.getLogger(__name__)

_SINCE_CODES: Final = 23  # minor version since which an error document has a code
_SINCE_DATES: Final = 15  # minor version since which a document has a date
POSITION_HEADER: Final = "X-Placebench-WAL-Position"
"""A header for replicas: in a response, the WAL position after its write; in a request, the one that it must see."""
_POSITION: Final = re.compile(r"[0-9A-F]{1,8}/[0-9A-F]{1,8}", re.ASCII)
_MEDIA_RANGE: Final = re.compile(r"[^\s/;,]+/[^\s/;,]+\s*(;.*)?", re.DOTALL)
_PART_BYTES: Final = 2**16
_PATHS_WITHOUT_TOKEN: Final = frozenset({"/", ""})


def _respond(call: Call) -> Response:
    """Return the response to the call; log an unexpected exception and return a 500 for it."""
    try:
        for step in _REQUEST_STEPS:
            step(call)
        response = _handle(call)
    except Problem as problem:
        if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            cause = " ".join(str(problem.__cause__).split())
            log.error("%s: %s %s failed: %s", call.request_id, call.request.method, call.request.path, cause)
        response = _error_response(problem, call)
    except Exception:  # This is the outermost frame: even a bug must produce a response and a log entry.
        log.exception("%s: %s %s failed", call.request_id, call.request.method, call.request.path)
        response = _error_response(Unexpected("an unexpected error: it is in the log under this request id"), call)
    for finish in _RESPONSE_STEPS:
        finish(call, response)
    return response


def _handle(call: Call) -> Response:
    """Return the handler's response, and give the handler's duration to telemetry if it is on.

    If the database connection was lost during a GET, call the handler once more. Raises ServiceUnavailable if it was
    lost again, or during another method, whose writes raise CommitUnconfirmed themselves if they may be stored.
    """
    assert call.handler is not None, "_route is a step before, and finds a handler or raises"
    watch = call.request.environ.get(WATCH_KEY)
    started = time.perf_counter()
    try:
        try:
            return call.handler(call, **call.names)
        except DBAPIError as error:
            if call.request.method != "GET" or not error.connection_invalidated:
                raise
        return call.handler(call, **call.names)
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise
        raise ServiceUnavailable("the connection to the database was lost: try again later") from error
    finally:
        if watch is not None:
            watch.handler_s = time.perf_counter() - started


def _error_response(problem: Problem, call: Call) -> Response:
    """Return the problem as a JSON error document, or as HTML or plain text by the Accept header, as in Placement."""
    header = call.request.headers.get("Accept", "")
    offered = ("text/html", JSON) if "text/html" in header else (JSON, "text/html")
    kind: str | None = JSON if not header else "text/html"  # HTML for a malformed header, as in Placement
    if _is_media_ranges(header):
        kind = call.request.accept_mimetypes.best_match(offered)
    if kind == JSON:
        with_code = call.version is not None and call.minor >= _SINCE_CODES
        content = orjson.dumps(problem.to_json(call.request_id, with_code=with_code))
        return Response(content, status=problem.status, headers=problem.headers, mimetype=JSON)
    title = f"{problem.status.value} {problem.title}"
    text = f"{title}\n\n{problem.detail}\n"
    if kind is not None:
        detail = html.escape(problem.detail)
        text = f"<html><head><title>{title}</title></head><body><h1>{title}</h1><p>{detail}</p></body></html>\n"
    return Response(text, status=problem.status, headers=problem.headers, mimetype=kind or "text/plain")


def _is_media_ranges(accept: str) -> bool:
    """Return whether the header names at least one media range, and all of them are well formed."""
    return bool(accept) and all(_MEDIA_RANGE.fullmatch(each.strip()) for each in accept.split(",") if each.strip())


def _check_uri_length(call: Call) -> None:
    """Raise UriTooLong for a query over 32 KB: uWSGI passes an empty QUERY_STRING then, but the whole REQUEST_URI."""
    query = call.request.environ.get("REQUEST_URI", "").partition("?")[2]
    if query and not call.request.environ.get("QUERY_STRING"):
        raise UriTooLong(f"the query has {len(query)} characters: expected 32000 at most")


def _authenticate(call: Call) -> None:
    """Raise Unauthorized without a token, except for `/`; accept any user, as Placement's noauth2 does."""
    if (
        call.request.environ.get("PATH_INFO", "") not in _PATHS_WITHOUT_TOKEN
        and "X-Auth-Token" not in call.request.headers
    ):
        raise Unauthorized("x-auth-token: expected `USER` or `USER:PROJECT`, got none; send `x-auth-token: admin`")


def _read_microversion(call: Call) -> None:
    call.version = microversion.parse_microversion(call.request.headers.get(microversion.HEADER))


def _read_position(call: Call) -> None:
    """Choose the database by the WAL position that the request must see; raise BadRequest for an invalid position."""
    after = call.request.headers.get(POSITION_HEADER)
    if after is not None and not _POSITION.fullmatch(after):
        raise BadRequest(
            f"{POSITION_HEADER}: expected a position as a response has it, such as 0/3000148, got {after!r}"
        )
    call.database = call.database.for_request(after)


def _check_content_headers(call: Call) -> None:
    """Raise BadRequest for a body without a content type; the handler that reads the body checks which type it is."""
    length = call.request.headers.get("Content-Length", "")
    if length and not (length.isascii() and length.isdigit()):
        raise BadRequest(f"content-length: expected a number, got {length!r}")
    if length.strip("0") and not call.request.headers.get("Content-Type"):
        raise BadRequest(f"a body needs a content-type: send `content-type: {JSON}`")


def _route(call: Call) -> None:
    """Set the handler for the path and method, and the roles that may call it.

    Raises MethodNotAllowed if the path does not have this method, and NotFound for an unknown path or one that did not
    exist yet in the requested version.
    """
    # werkzeug converts methods to upper case and merges slashes, which HTTP and Placement distinguish.
    method, path = call.request.environ["REQUEST_METHOD"], call.request.environ.get("PATH_INFO", "")
    found = None if "\0" in path or path.startswith("//") else find_route(call.request.path)
    assert call.version is not None, "_read_microversion is a step before"
    if found is None:
        raise NotFound(f"nothing is served at {call.request.path}")
    handlers = found.route.handlers
    if method not in handlers:
        allow = ", ".join(handlers)
        detail = f"{method} is not served at {call.request.path}: expected {allow}"
        raise MethodNotAllowed(detail, headers={"Allow": allow})
    if call.version.minor < found.route.since:
        raise NotFound(f"nothing is served at {call.request.path} in microversion {call.version}")
    call.handler, call.names, call.roles = handlers[method], found.names, found.route.roles
    if (watch := call.request.environ.get(WATCH_KEY)) is not None:
        watch.route = found.route.path


def _authorize(call: Call) -> None:
    """Set the user's roles, and raise Forbidden if none of them may use the route.

    `X-Roles` lists the roles; without it the user `admin` has the role admin. As in Placement's policy, a system-wide
    role (`OpenStack-System-Scope`) gives no access to a project.
    """
    user = call.request.headers.get("X-Auth-Token", "").partition(":")[0]
    call.held_roles = call.request.headers.get("X-Roles", user if user == "admin" else "").split(",")
    is_systems = "HTTP_OPENSTACK_SYSTEM_SCOPE" in call.request.environ
    if call.roles and (is_systems or call.roles.isdisjoint(call.held_roles)):
        needed = " or ".join(sorted(call.roles))
        raise Forbidden(
            f"user {user!r} may not do this without the role {needed} in a project: send x-auth-token admin or x-roles"
        )


def _check_accept(call: Call) -> None:
    """Raise NotAcceptable for a GET whose Accept header does not accept JSON.

    As in Placement, a malformed header accepts everything. `GET /` is never refused.
    """
    header = call.request.headers.get("Accept", "")
    if header == JSON or call.request.method != "GET" or not _is_media_ranges(header) or call.request.path == "/":
        return
    if not call.request.accept_mimetypes.best_match([JSON]) or not header.strip(", "):
        raise NotAcceptable(f"accept: only {JSON} is served, got {header}")


def _add_request_id(call: Call, response: Response) -> None:
    """Add the request id, under which the log has this request."""
    response.headers["X-Openstack-Request-Id"] = call.request_id


def _add_microversion(call: Call, response: Response) -> None:
    """Add the version of the response, and `Vary`, so that HTTP caches keep responses of different versions apart."""
    response.headers["Vary"] = microversion.HEADER
    if call.version is not None:
        response.headers[microversion.HEADER] = f"{microversion.SERVICE} {call.version}"


def _add_position(call: Call, response: Response) -> None:
    """Add the WAL position after this request's write, which the client can send with its next read."""
    if call.database.position is not None:
        response.headers[POSITION_HEADER] = call.database.position


def _add_date(call: Call, response: Response) -> None:
    """Add the current time as Last-Modified, and no-cache, to a document; Placement uses its rows' newest timestamp."""
    is_document = response.status_code in (HTTPStatus.OK, HTTPStatus.CREATED) and response.mimetype == JSON
    if (is_document or (call.dated and response.status_code < HTTPStatus.BAD_REQUEST)) and call.minor >= _SINCE_DATES:
        response.headers["Cache-Control"] = "no-cache"
        response.headers["Last-Modified"] = _http_date(int(time.time()))


@lru_cache(maxsize=1)
def _http_date(unix_s: int) -> str:
    return http_date(unix_s)


_REQUEST_STEPS: Final[tuple[Callable[[Call], None], ...]] = (
    _check_uri_length,
    _authenticate,
    _read_microversion,
    _read_position,
    _check_content_headers,
    _route,
    _check_accept,
    _authorize,
)
_RESPONSE_STEPS: Final[tuple[Callable[[Call, Response], None], ...]] = (
    _add_request_id,
    _add_microversion,
    _add_position,
    _add_date,
)


def make_app(
    engine: Engine, variant_name: str, settings: ServiceSettings = DEFAULTS, *, readers: Engine | None = None
) -> WSGIApplication:
    """Return the service on this engine's database, with the named variant; open no connection yet.

    readers: the engine of the replicas that requests read from; None: requests read from *engine*.

    Raises VariantError for an unknown variant and for one that this database does not support, and MissingExtraError if
    the variant needs a package that is not installed.
    """
    chosen = variant(variant_name)
    if chosen.postgresql_only and engine.dialect.name != "postgresql":
        raise VariantError(
            f"the variant {variant_name} is for PostgreSQL, but the database is of {engine.dialect.name}"
        )
    single = chosen.implementations.transaction
    database = Database(engine, single) if readers is None else ReplicatedDatabase(engine, readers, single)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ, populate_request=False)  # else it refers to itself, through environ
        request.max_content_length = BODY_LIMIT
        response = _respond(Call(request, database, chosen, settings))
        if environ.get("CONTENT_LENGTH") and "stream" not in vars(request):  # no handler has read the body
            # A server that closes a connection with unread bytes resets it, and the client may lose the response.
            with suppress(HTTPException, OSError):
                while request.stream.read(_PART_BYTES):
                    pass
        return response(environ, start_response)

    return app
