"""What every response has, and what stops a request before its handler."""

import logging
from typing import Any

import pytest
from werkzeug.test import EnvironBuilder, run_wsgi_app

from placebench.lab.reference.api import pipeline
from placebench.lab.reference.api.call import Call

HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}


def test_the_versions_document_needs_neither_token_nor_version(service: Any) -> None:
    """GET / tells everybody which microversions are served: Placement's."""
    response = service.client.get("/")

    assert response.status_code == 200
    assert response.json == {
        "versions": [
            {
                "id": "v1.0",
                "min_version": "1.0",
                "max_version": "1.39",
                "status": "CURRENT",
                "links": [{"rel": "self", "href": ""}],
            }
        ]
    }


def test_a_document_is_marked_with_version_request_and_time(service: Any) -> None:
    """A 200 says which microversion it is, may not be cached, and bears a request id."""
    headers = service.send("GET", "/resource_providers").headers

    assert headers["OpenStack-API-Version"] == "placement 1.39"
    assert headers["Vary"] == "openstack-api-version"
    assert headers["Content-Type"] == "application/json"
    assert headers["Cache-Control"] == "no-cache"
    assert headers["Last-Modified"].endswith("GMT")
    assert headers["X-Openstack-Request-Id"].startswith("req-")


def test_an_error_is_one_json_document(service: Any) -> None:
    """The document has status, title, detail, code and the request id of the header."""
    response = service.send("GET", "/resource_providers/nobody")

    assert response.json == {
        "errors": [
            {
                "status": 404,
                "title": "Not Found",
                "detail": "no resource provider nobody",
                "code": "placement.undefined_code",
                "request_id": response.headers["X-Openstack-Request-Id"],
            }
        ]
    }


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X-Auth-Token": "admin"}, 200),
        ({"X-Auth-Token": "admin:project"}, 200),
        ({"X-Auth-Token": "somebody", "X-Roles": "reader,service"}, 200),
        ({"X-Auth-Token": "somebody"}, 403),
        ({"X-Auth-Token": "somebody:admin"}, 403),
        ({}, 401),
    ],
)
def test_only_an_administrator_is_served(service: Any, headers: dict[str, str], status: int) -> None:
    """No token is 401, a token without the role is 403."""
    response = service.client.get("/resource_providers", headers={"OpenStack-API-Version": "placement 1.39", **headers})

    assert response.status_code == status


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("placement 1.39", 200),
        ("placement latest", 200),
        ("PLACEMENT 1.39", 200),
        ("placement 1.10, compute 2.1, placement 1.39", 200),
        ("placement 1.40", 406),
        ("placement 2.0", 406),
        ("placement 1.38", 200),
        ("placement 1.10", 200),
        ("placement 1.9", 404),
        ("compute 2.1", 404),
        ("", 404),
        ("placement newest", 400),
        ("placement 1", 400),
    ],
)
def test_the_microversion_decides_whether_candidates_exist(service: Any, version: str, status: int) -> None:
    """Candidates exist since 1.10, up to 1.39; no version is 1.0."""
    path = "/allocation_candidates?resources=VCPU:1"

    assert service.send("GET", path, headers={"OpenStack-API-Version": version}).status_code == status


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("1." + "9" * 4000, 406),
        ("999999999999999999999.1", 406),
        ("1.-1", 406),
        ("+1.1_0", 200),
        ("1. 10", 200),
        ("1." + "9" * 5000, 400),
        ("1.1.1", 400),
        ("LATEST", 400),
    ],
)
def test_a_version_is_two_numbers_as_python_reads_them(service: Any, version: str, status: int) -> None:
    """Any that is not served is a 406, and what are no two numbers a 400 without a code, for the version is unknown."""
    response = service.send("GET", "/resource_providers", headers={"OpenStack-API-Version": f"placement {version}"})

    assert response.status_code == status
    assert status == 200 or "code" not in response.json["errors"][0]
    assert len(response.data) < 500


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("application/json", "application/json"),
        ("*/*", "application/json"),
        ("text/html;q=0.1,application/json", "application/json"),
        ("text/html", "text/html; charset=utf-8"),
        ("text/html,application/json", "text/html; charset=utf-8"),
        (";;;", "text/html; charset=utf-8"),
        ("image/png", "text/plain; charset=utf-8"),
    ],
)
def test_an_error_has_the_type_that_the_client_accepts(service: Any, accept: str, kind: str) -> None:
    """JSON, HTML without a character of the client's that HTML would read, or plain text; a PATCH is a 405."""
    environ = EnvironBuilder("/traits", headers={**HEADERS, "Accept": accept}).get_environ()
    response = service.client.open({**environ, "REQUEST_METHOD": "<b>"})

    assert (response.status_code, response.headers["Content-Type"]) == (405, kind)
    assert ("<b>" in response.text) == ("html" not in kind)


def test_a_version_that_is_not_spoken_is_refused_with_the_range(service: Any) -> None:
    """A 406 for the version says which versions are spoken."""
    response = service.send("GET", "/resource_providers", headers={"OpenStack-API-Version": "placement 1.40"})

    error = response.json["errors"][0]
    assert (error["status"], error["min_version"], error["max_version"]) == (406, "1.0", "1.39")


@pytest.mark.parametrize("path", ["/nothing", "/traits/", "/resource_providers/x/y", "/%00", "/traits/%00", "/%ff%fe"])
def test_an_unknown_path_is_not_found(service: Any, path: str) -> None:
    """A path that no route has is 404, a trailing slash or a strange byte too."""
    assert service.outcome("GET", path) == (404, "placement.undefined_code")


@pytest.mark.parametrize("path", ["//", "//traits"])
def test_two_slashes_are_not_one(service: Any, path: str) -> None:
    """They lead nowhere, and need a token."""
    environs = [{**EnvironBuilder(headers=headers).get_environ(), "PATH_INFO": path} for headers in (HEADERS, {})]

    statuses = [run_wsgi_app(service.client.application, environ)[1] for environ in environs]

    assert statuses == ["404 NOT FOUND", "401 UNAUTHORIZED"]


@pytest.mark.parametrize("method", ["POST", "PATCH", "HEAD", "OPTIONS", "BREW", "get", "Put"])
def test_another_method_is_told_which_ones_there_are(service: Any, method: str) -> None:
    """A 405 lists the methods of the path in Allow."""
    environ = EnvironBuilder("/resource_providers/x/aggregates", headers=HEADERS).get_environ()
    response = service.client.open({**environ, "REQUEST_METHOD": method})  # as it was sent, not in upper case

    assert (response.status_code, response.headers["Allow"]) == (405, "GET, PUT")


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/json", 200),
        ("*/*", 200),
        ("application/*;q=0.1", 200),
        ("text/html", 406),
        (",", 406),
        (";;;", 200),
        ("a, text/html", 200),
    ],
)
def test_a_client_must_take_json(service: Any, accept: str, status: int) -> None:
    """Accept without JSON is 406; a header that is not well-formed accepts all."""
    assert service.send("GET", "/traits", headers={"Accept": accept}).status_code == status


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b'{"name": "a"}', "application/json", 200),
        (b'{"name": "a"}', "application/json; charset=utf-8", 200),
        (b'{"name": "a"}', "text/plain", 415),
        (b'{"name": "a"}', None, 400),
        (b"", None, 415),
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b'{"name": "\xff"}', "application/json", 400),
        (b'{"name": "\\ud800"}', "application/json", 400),
        (b'{"name": NaN}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
    ],
)
def test_a_body_must_be_json_and_say_so(service: Any, body: bytes, content_type: str | None, status: int) -> None:
    """No declaration is 400, another one 415, and what is no JSON 400."""
    headers = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
    response = service.client.post("/resource_providers", data=body, content_type=content_type, headers=headers)

    assert response.status_code == status


def test_a_body_may_be_long_but_not_endless(service: Any) -> None:
    """More than 64 MiB are refused by their declared length, unread."""
    headers = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
    declared = {"CONTENT_LENGTH": str(64 * 1024 * 1024 + 1)}
    response = service.client.post("/resource_providers", json={}, headers=headers, environ_overrides=declared)

    assert response.status_code == 413


def test_a_bug_is_answered_and_logged(
    service: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception that nobody expected is a 500 document without its text, and a traceback in the log."""

    def broken(_call: Call) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(pipeline, "_REQUEST_STEPS", (broken,))
    with caplog.at_level(logging.ERROR):
        response = service.send("GET", "/")

    error = response.json["errors"][0]
    assert (error["status"], error["title"]) == (500, "Internal Server Error")
    assert "secret" not in response.text
    assert error["request_id"] in caplog.text
    assert "ZeroDivisionError: secret" in caplog.text


@pytest.mark.parametrize("opening", ["[", '{"name":', '{"allocations":'])
@pytest.mark.parametrize("path", ["/resource_providers", "/allocations"])
def test_a_body_of_deeply_nested_arrays_is_a_bad_request(service: Any, path: str, opening: str) -> None:
    """Of 1020 arrays in each other the parser makes lists, which Python cannot write; 2000 are too many for it."""
    closing = "}" if opening[0] == "{" else "]"
    bodies = [f"{opening}{'[' * depth}{']' * depth}{closing}" for depth in (10, 900, 1020, 2000)]

    sent = [service.client.post(path, data=each, content_type="application/json", headers=HEADERS) for each in bodies]

    assert [response.status_code for response in sent] == [400] * 4
