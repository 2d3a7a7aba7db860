"""The reference service as a WSGI application: each request's way in and its response's way out.

The main function is `make_app`.
"""

import logging
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import orjson
from sqlalchemy import Engine
from werkzeug import Request, Response

from placebench.errors import VariantError
from placebench.reference.api import microversion
from placebench.reference.api.call import BODY_LIMIT, JSON, Call
from placebench.reference.api.problems import (
    BadRequest,
    Forbidden,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    Problem,
    Unauthorized,
    Unexpected,
    UriTooLong,
)
from placebench.reference.api.routes import find
from placebench.reference.settings import DEFAULTS, Settings
from placebench.reference.store.database import Database
from placebench.reference.variants import variant
from placebench.telemetry.telemeter import WATCH_KEY

log = logging.getLogger(__name__)

NO_TOKEN_NEEDED: Final = frozenset({"/", ""})


def travel(call: Call) -> Response:
    """The response to the call, whatever happens on the way: an exception that nobody expected is logged and a 500."""
    try:
        for step in WAY_IN:
            step(call)
        response = handled(call)
    except Problem as problem:
        response = error_response(problem, call)
    except Exception:  # This is the outermost frame: a bug must still be answered, and be in the log.
        log.exception("%s: %s %s failed", call.request_id, call.request.method, call.request.path)
        response = error_response(Unexpected("an unexpected error: it is in the log under this request id"), call)
    for finish in WAY_OUT:
        finish(call, response)
    return response


def handled(call: Call) -> Response:
    """What the handler answers; telemetry, where it is on, is told how long that took."""
    assert call.handler is not None, "routed is a step of WAY_IN and finds a handler or raises"
    watch = call.request.environ.get(WATCH_KEY)
    if watch is None:
        return call.handler(call, **call.names)
    started = time.perf_counter()
    try:
        return call.handler(call, **call.names)
    finally:
        watch.handler_s = time.perf_counter() - started


def error_response(problem: Problem, call: Call) -> Response:
    """The problem as JSON error document."""
    content = orjson.dumps(problem.to_json(call.request_id))
    return Response(content, status=problem.status, headers=problem.headers, mimetype=JSON)


def whole(call: Call) -> None:
    """uWSGI hands over a query of more than 32 KB as empty, and the URI as it came: UriTooLong then."""
    asked = call.request.environ.get("REQUEST_URI", "").partition("?")[2]
    if asked and not call.request.environ.get("QUERY_STRING"):
        raise UriTooLong(f"the query has {len(asked)} characters: expected 32000 at most")


def authenticated(call: Call) -> None:
    """noauth2: whoever names a user is believed. Unauthorized without a token; `/` needs none."""
    if call.request.path not in NO_TOKEN_NEEDED and "X-Auth-Token" not in call.request.headers:
        raise Unauthorized("x-auth-token: expected `USER` or `USER:PROJECT`, got none; send `x-auth-token: admin`")


def versioned(call: Call) -> None:
    """The microversion that the request asks for."""
    call.version = microversion.asked_for(call.request.headers.get(microversion.HEADER))


def declared(call: Call) -> None:
    """A body needs a content type; which one it must be, the handler knows that reads it."""
    length = call.request.headers.get("Content-Length", "")
    if length and not (length.isascii() and length.isdigit()):
        raise BadRequest(f"content-length: expected a number, got {length!r}")
    if length.strip("0") and not call.request.headers.get("Content-Type"):
        raise BadRequest(f"a body needs a content-type: send `content-type: {JSON}`")


def routed(call: Call) -> None:
    """The handler of path and method, and the roles that may call it.

    Raises NotFound, also where the path did not exist yet in the version asked for; VersionNotAcceptable where it
    existed, in a form that is not spoken here; MethodNotAllowed with the methods that the path has.
    """
    found = find(call.request.path) if "\0" not in call.request.path else None
    assert call.version is not None, "versioned is an earlier step of WAY_IN"
    if found is None or call.version.minor < found.route.since:
        raise NotFound(f"nothing is served at {call.request.path} in microversion {call.version}")
    if call.version != microversion.SPOKEN and not found.route.in_every_version:
        raise microversion.not_spoken(call.version)
    handlers = found.route.handlers
    if call.request.method not in handlers:
        allow = ", ".join(handlers)
        detail = f"{call.request.method} is not served at {call.request.path}: expected {allow}"
        raise MethodNotAllowed(detail, headers={"Allow": allow})
    call.handler, call.names, call.roles = handlers[call.request.method], found.names, found.route.roles
    if (watch := call.request.environ.get(WATCH_KEY)) is not None:
        watch.route = found.route.path


def authorized(call: Call) -> None:
    """The user `admin` has the role admin, `X-Roles` names others; Forbidden without one that the route asks for."""
    user = call.request.headers.get("X-Auth-Token", "").partition(":")[0]
    roles = call.request.headers.get("X-Roles", user if user == "admin" else "")
    if call.roles and call.roles.isdisjoint(roles.split(",")):
        needed = " or ".join(sorted(call.roles))
        raise Forbidden(
            f"user {user!r} may not do this without the role {needed}: x-auth-token admin, or x-roles, has it"
        )


def acceptable(call: Call) -> None:
    """Who asks for a document must take JSON."""
    accepted = call.request.accept_mimetypes
    if call.request.method == "GET" and accepted and not accepted.best_match([JSON]):
        raise NotAcceptable(f"accept: only {JSON} is served, got {accepted.to_header()}")


def identified(call: Call, response: Response) -> None:
    """The id under which the log has this request."""
    response.headers["X-Openstack-Request-Id"] = call.request_id


def stamped(call: Call, response: Response) -> None:
    """The version that was answered in, so that a cache keeps versions apart."""
    response.headers["Vary"] = microversion.HEADER
    if call.version is not None:
        response.headers[microversion.HEADER] = f"{microversion.SERVICE} {call.version}"


def dated(_call: Call, response: Response) -> None:
    """A document is dated now and not to be kept: Placement gives its rows' newest stamp, where they have one."""
    if response.status_code in (HTTPStatus.OK, HTTPStatus.CREATED) and response.mimetype == JSON:
        response.headers["Cache-Control"] = "no-cache"
        response.last_modified = datetime.now(UTC)


WAY_IN: Final[tuple[Callable[[Call], None], ...]] = (
    whole,
    authenticated,
    versioned,
    declared,
    routed,
    authorized,
    acceptable,
)
WAY_OUT: Final[tuple[Callable[[Call, Response], None], ...]] = (identified, stamped, dated)


def make_app(engine: Engine, variant_name: str, settings: Settings = DEFAULTS) -> WSGIApplication:
    """The service over this engine's database, answering candidates in the named variant; makes no connection.

    Raises VariantError with the names that exist, and for a variant that this database cannot have; MissingExtraError
    for one that needs a package.
    """
    chosen = variant(variant_name)
    if chosen.postgresql_only and engine.dialect.name != "postgresql":
        raise VariantError(
            f"the variant {variant_name} is for PostgreSQL, but the database is of {engine.dialect.name}"
        )
    database = Database(engine, chosen.implementations.transaction)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        request.max_content_length = BODY_LIMIT
        return travel(Call(request, database, chosen, settings))(environ, start_response)

    return app
