"""No request, however malformed, gets a 5xx, and every error in JSON is the error document."""

import json
import logging
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any
from wsgiref.types import WSGIApplication

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, insert
from werkzeug.test import EnvironBuilder, run_wsgi_app

from placebench.lab.inventory import tables
from placebench.lab.reference.api.pipeline import make_app
from placebench.lab.reference.api.routes import ROUTES
from placebench.runtime.postgres import Server

PROVIDER = "00000000-0000-4000-8000-000000000001"
AGGREGATE = "00000000-0000-4000-8000-000000000050"
HEADERS = {"X-Auth-Token": "admin", "X-Roles": "admin,service", "OpenStack-API-Version": "placement 1.39"}
Request = dict[str, Any]

STRANGE = ["", "\0", "a\0b", "\n", "%", "_", "'", "null", "é☃😀", "x" * 300, "-1", "1e9", "9" * 40, "٣", "in:", "!"]
NAMES = ["VCPU", "CUSTOM_A", "HW_CPU_X86_AVX", "NO", PROVIDER, AGGREGATE, PROVIDER.upper(), f"urn:uuid:{PROVIDER}"]
NUMBERS = [0, 1, -1, 2**31 - 1, 2**31, 2**63, 2**64, 10**400, 1.0, 0.5, -0.0, 3.4e38, 1e39, True, False, None]
INVENTORY = ["total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio", "resource_class"]
PROVIDERS = [
    "name",
    "uuid",
    "parent_provider_uuid",
    "resource_provider_generation",
    "inventories",
    "traits",
    "aggregates",
]
CLAIMS = ["allocations", "resources", "project_id", "user_id", "consumer_generation", "consumer_type", "mappings"]
KEYS = [*PROVIDERS, *INVENTORY, *CLAIMS, "VCPU", "CUSTOM_A", PROVIDER]
GROUPS = [f"{name}{suffix}" for name in ("resources", "required", "member_of", "in_tree") for suffix in ("", "_A", "1")]
PARAMETERS = [
    *GROUPS,
    "project_id",
    "user_id",
    "consumer_type",
    "name",
    "uuid",
    "associated",
    "group_policy",
    "limit",
    "root_required",
    "same_subtree",
]

texts = st.sampled_from(STRANGE + NAMES) | st.text(max_size=20)
values = st.recursive(
    st.sampled_from(NUMBERS) | texts | st.integers() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | texts, inner, max_size=6),
    max_leaves=12,
)
bodies = st.none() | st.binary(max_size=40) | values.map(lambda value: json.dumps(value).encode())
AMOUNTS = ["VCPU:1", "VCPU:99999999999999999999", "VCPU:\u0663", "CUSTOM_A:1,VCPU:2", "NO:1", "VCPU:1\0"]
SETS = ["in:VCPU,NO", f"in:{AGGREGATE},{PROVIDER}", f"!{AGGREGATE}", "!NO", "HW_CPU_X86_AVX,!NO", "in:\0", "_A", "none"]
query_values = texts | st.sampled_from(AMOUNTS + SETS)
queries = st.binary(max_size=30) | st.lists(st.tuples(st.sampled_from(PARAMETERS), query_values), max_size=5).map(
    lambda pairs: "&".join(f"{name}={value}" for name, value in pairs).encode()
)
segments = st.sampled_from(NAMES + STRANGE) | st.text(max_size=10)
methods = st.sampled_from(["GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "get", "", "\xff"])
headers = st.fixed_dictionaries(
    {},
    optional={
        "HTTP_X_AUTH_TOKEN": st.sampled_from(["admin", "", ":", "\xff"]),
        "HTTP_OPENSTACK_API_VERSION": st.sampled_from(
            ["placement 1.39", "placement 1." + "9" * 5000, "\xff", ",", "x y"]
        ),
        "HTTP_ACCEPT": st.sampled_from(["*/*", "", ";;;", "a/b;q=\xff", "," * 50, "application/json;q=nan"]),
        "CONTENT_TYPE": st.sampled_from(["application/json", "", "\xff", "application/json;charset=\xff", ";"]),
        "CONTENT_LENGTH": st.sampled_from(["0", "", "-1", "x", "9" * 30, "\xb2", "1"]),
        "HTTP_TRANSFER_ENCODING": st.just("chunked"),
        "HTTP_HOST": st.sampled_from(["", "\xff", "a b", "[::1"]),
        "SCRIPT_NAME": st.sampled_from(["", "/placement", "\xff"]),
        "REQUEST_URI": st.sampled_from(["", "?", "/x?" + "a" * 40_000, "/\xff?\xff"]),
        "HTTP_X_ROLES": st.sampled_from(["", ",", "reader", "\xff", "admin," * 500]),
        "SERVER_PROTOCOL": st.sampled_from(["HTTP/1.0", "HTTP/9.9", ""]),
    },
)


@st.composite
def paths(draw: st.DrawFn) -> bytes:
    """The path of a route with anything for its names, or anything at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=30))
    path = draw(st.sampled_from([route.path for route in ROUTES]))
    for name in ("<uuid>", "<name>", "<resource_class>", "<consumer_uuid>"):
        path = path.replace(name, draw(segments))
    return path.encode()


CLAIM = {
    "allocations": {PROVIDER: {"resources": {"VCPU": 1}}},
    "project_id": "project",
    "user_id": "user",
    "consumer_generation": None,
    "consumer_type": "INSTANCE",
    "mappings": {"": [PROVIDER]},
}
STOCK = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8, "reserved": 1, "min_unit": 1}}}
GOOD: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/resource_providers", {"name": "new", "uuid": AGGREGATE, "parent_provider_uuid": PROVIDER}),
    ("PUT", f"/resource_providers/{PROVIDER}", {"name": "other", "parent_provider_uuid": None}),
    ("PUT", f"/resource_providers/{PROVIDER}/inventories", STOCK),
    ("POST", f"/resource_providers/{PROVIDER}/inventories", {"resource_class": "VCPU", "total": 8, "max_unit": 4}),
    ("PUT", f"/resource_providers/{PROVIDER}/inventories/VCPU", {"resource_provider_generation": 0, "total": 8}),
    (
        "PUT",
        f"/resource_providers/{PROVIDER}/traits",
        {"resource_provider_generation": 0, "traits": ["HW_CPU_X86_AVX"]},
    ),
    (
        "PUT",
        f"/resource_providers/{PROVIDER}/aggregates",
        {"resource_provider_generation": 0, "aggregates": [AGGREGATE]},
    ),
    ("POST", "/resource_classes", {"name": "CUSTOM_B"}),
    ("PUT", f"/allocations/{AGGREGATE}", CLAIM),
    ("POST", "/allocations", {AGGREGATE: CLAIM}),
    ("POST", "/reshaper", {"inventories": {PROVIDER: STOCK}, "allocations": {AGGREGATE: CLAIM}}),
]


@st.composite
def spoiled(draw: st.DrawFn, value: Any) -> Any:
    """The value with anything in place of itself, of some of its members, or of their names."""
    if draw(st.integers(0, 7)) == 0:
        return draw(values)
    if isinstance(value, dict):
        names = st.sampled_from(KEYS + STRANGE)
        return {draw(names) if draw(st.integers(0, 15)) == 0 else k: draw(spoiled(v)) for k, v in value.items()}
    return [draw(spoiled(each)) for each in value] if isinstance(value, list) else value


@st.composite
def spoiled_requests(draw: st.DrawFn) -> Request:
    """A good request with a body that is not, or not in the version that is requested."""
    method, path, body = draw(st.sampled_from(GOOD))
    version = {"HTTP_OPENSTACK_API_VERSION": f"placement 1.{draw(st.integers(0, 39))}"}
    return {
        "method": method,
        "path": path.encode(),
        "body": json.dumps(draw(spoiled(body))).encode(),
        "environ": version if draw(st.booleans()) else {},
    }


@pytest.fixture(scope="module")
def app(server: Server) -> Iterator[WSGIApplication]:
    """The service over a database with a provider, an aggregate, a trait and two classes."""
    engine = create_engine(server.create_database("placebench_test_robustness"))
    tables.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(tables.resource_classes).values([{"id": 0, "name": "VCPU"}]))
        connection.execute(insert(tables.resource_classes).values([{"id": 10_000, "name": "CUSTOM_A"}]))
        connection.execute(insert(tables.traits).values(name="HW_CPU_X86_AVX"))
    made = make_app(engine, "tuned")
    body = json.dumps({"name": "one", "uuid": PROVIDER}).encode()
    assert outcome(made, {"method": "POST", "path": b"/resource_providers", "body": body})[0] == 200
    yield made
    engine.dispose()
    server.drop_database("placebench_test_robustness")


def outcome(app: WSGIApplication, request: Request) -> tuple[int, bytes]:
    """The status and body of the response, the request's bytes going in as a WSGI server hands them over."""
    body = request.get("body")
    environ = EnvironBuilder(headers=HEADERS).get_environ()
    environ |= {
        "REQUEST_METHOD": request["method"],
        "PATH_INFO": request["path"].decode("latin-1"),
        "QUERY_STRING": request.get("query", b"").decode("latin-1"),
        "wsgi.input": BytesIO(body or b""),
    }
    if body is not None:
        environ |= {"CONTENT_LENGTH": str(len(body)), "CONTENT_TYPE": "application/json"}
    chunks, status, _ = run_wsgi_app(app, environ | request.get("environ", {}))
    return int(status.split()[0]), b"".join(chunks)


def faults(app: WSGIApplication, request: Request, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What is wrong with the response: a status of 5xx, errors in the log, an error that is no document of its form."""
    status, content = outcome(app, request)
    found = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    if status >= 500:
        found.append(f"status {status}: {caplog.text}")
    if status >= 400 and request["method"] != "HEAD" and content[:1] == b"{":  # the client accepts JSON
        (error,) = json.loads(content)["errors"]
        members = {"status", "title", "detail", "request_id"}  # and since 1.23 a code
        if not members <= set(error) or error["status"] != status:
            found.append(f"status {status} with the error {error}")
    return found


any_request = st.fixed_dictionaries(
    {"method": methods, "path": paths()}, optional={"query": queries, "body": bodies, "environ": headers}
)


def often(examples: int) -> Callable[[Any], Any]:
    """Settings for this many examples; the database keeps what the examples write, which only widens the test."""
    quick = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=examples, deadline=None, suppress_health_check=quick)


@often(300)
@given(request=any_request)
def test_any_request_is_answered(app: WSGIApplication, caplog: pytest.LogCaptureFixture, request: Request) -> None:
    """Bytes in the path, in headers, in the query and in the body."""
    assert faults(app, request, caplog) == []


@often(300)
@given(query=queries)
def test_any_query_for_candidates_is_answered(
    app: WSGIApplication, caplog: pytest.LogCaptureFixture, query: bytes
) -> None:
    """Every parameter with anything for a value."""
    request = {"method": "GET", "path": b"/allocation_candidates", "query": query}

    assert faults(app, request, caplog) == []


@pytest.mark.long
@often(400)
@given(request=spoiled_requests())
def test_any_body_is_answered(app: WSGIApplication, caplog: pytest.LogCaptureFixture, request: Request) -> None:
    """A good body with anything at some places in it."""
    assert faults(app, request, caplog) == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/resource_providers", {"name": "nul \0"}),
        ("/resource_providers", {"name": "surrogate \ud800"}),
        (f"/resource_providers/{PROVIDER}/inventories", {"resource_class": "VCPU", "total": 10**400}),
        (f"/resource_providers/{PROVIDER}/inventories", {"resource_class": "VCPU", "total": float("nan")}),
    ],
)
def test_what_postgresql_cannot_hold_is_a_bad_request(app: WSGIApplication, path: str, body: Any) -> None:
    """NUL characters, lone surrogates, numbers beyond the column."""
    request = {"method": "POST", "path": path.encode(), "body": json.dumps(body).encode()}

    assert outcome(app, request)[0] == 400
