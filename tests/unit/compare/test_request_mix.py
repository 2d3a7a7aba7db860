"""A weighted mix of requests: from an access log, a HAR file and an OpenAPI document."""

import json
from pathlib import Path
from typing import Any

import pytest

from placebench.compare.what.request_mix import MixTable
from placebench.compare.what.routes import RouteFinder, path_template
from placebench.compare.what.workload import LoginTable, Workload, WorkloadKeys, read_workload
from placebench.errors import PlacebenchError


def read(folder: Path, table: MixTable | str, **keys: Any) -> Workload:
    """The mix as a workload."""
    return read_workload(WorkloadKeys(requests_from=table, **keys), source="plan.toml", folder=folder, seed=1)


def log(folder: Path, *requests: str) -> None:
    """A log of these requests, each "METHOD /path STATUS"."""
    lines = ['1.2.3.4 - - [x] "{} {} HTTP/1.1" {} 5\n'.format(*each.split()) for each in requests]
    (folder / "access.log").write_text("".join(lines))


def weights(workload: Workload) -> dict[str, int]:
    """How often a cycle has each route."""
    routes = [workload.calls[number].route for number in workload.cycle]
    return {route: routes.count(route) for route in dict.fromkeys(call.route for call in workload.calls)}


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/orders/17?full=1", "/orders/{id}"),
        ("/items/3f2b8c1e-7a64-4b0c-9d8e-0c1f2a3b4c5d/parts", "/items/{id}/parts"),
        ("/blobs/9f86d081884c7d65", "/blobs/{id}"),
        ("/days/2024-05-01", "/days/{id}"),
        ("/tickets/ABC-123", "/tickets/{id}"),
        ("/u/01ARZ3NDEKTSV4RRFFQ69G5FAV", "/u/{id}"),
        ("/api/v2/orders", "/api/v2/orders"),
        ("/about-our-company-and-history", "/about-our-company-and-history"),
        ("/", "/"),
    ],
)
def test_ids_of_a_path_are_one_name(path: str, route: str) -> None:
    """Numbers, UUIDs, digests and days are ids; versions and words are not."""
    assert route == path_template(path)


def test_what_differs_in_many_paths_is_a_name() -> None:
    """Slugs of a shop look like words, but there are more than 20; a template of the user's own stays."""
    finder = RouteFinder(["/help/{page}"])
    paths = [*(f"/shop/{letter}-shirt" for letter in "abcdefghijklmnopqrstuvwxyz"), "/help/me", "/cart", "/login"]

    routes = finder.merged({finder.route(path) for path in paths})

    assert {"/shop/{name}", "/help/{page}", "/cart", "/login"} == set(routes.values())


def test_routes_have_the_weights_of_their_frequency(tmp_path: Path) -> None:
    """60, 30 and 10 % of the requests are 6, 3 and 1 of a cycle of 10, in the most frequent requests of each."""
    orders = [f"GET /orders/{number} 200" for number in (1, 1, 1, 2, 2, 3)]
    log(tmp_path, *(orders * 10), *(["GET /orders 200"] * 30), *(["GET /search?q=x 200"] * 10))

    made = read(tmp_path, MixTable("access.log", cycle=10))

    assert {"GET /orders/{id}": 6, "GET /orders": 3, "GET /search": 1} == weights(made)
    assert {"/orders/1": 3, "/orders/2": 2, "/orders/3": 1} == {
        call.path: made.cycle.count(place) for place, call in enumerate(made.calls) if "{id}" in call.route
    }
    assert ("access.log: a mix of 3 routes, by 100 of 100 requests",) == made.notes


def test_only_what_reads_is_sent_and_the_rest_is_named(tmp_path: Path) -> None:
    """Methods that write, failed requests, static files, the login's and lines without a request."""
    log(
        tmp_path,
        "GET /a 200",
        "HEAD /a 304",
        "POST /a 201",
        "POST /b 201",
        "PUT /a/1 200",
        "GET /x 500",
        "GET /i.png 200",
    )
    with (tmp_path / "access.log").open("a") as file:
        file.write("restarted\n")

    made = read(tmp_path, "access.log", login=LoginTable(path="/b", method="POST", body="name=me"))

    assert [("/a", 200), ("HEAD /a", None)] == [(call.label, call.expect_status) for call in made.calls]
    (note,) = made.notes
    assert note == (
        "access.log: a mix of 2 routes, by 2 of 7 requests; not sent: 1 POST, which may write; 1 of the login; "
        "1 PUT, which may write; 1 that had the status 500; 1 for static files; 1 in lines without a request"
    )


def test_rare_routes_are_sent_once_and_those_without_a_place_are_named(tmp_path: Path) -> None:
    """A cycle of three has the three most frequent of four routes."""
    log(tmp_path, *(["GET /a 200"] * 96), *(["GET /b 200"] * 2), "GET /c 200", "GET /d 200")

    made = read(tmp_path, MixTable("access.log", cycle=3))

    assert {"GET /a": 2, "GET /b": 1, "GET /c": 1} == weights(made)
    assert made.notes[1:] == (
        "1 route with 1.0 % of the requests left out, because a cycle has 3: GET /d",
        "sent once in a cycle, which is more often than in the file: GET /b, GET /c",
    )


def test_a_har_file_is_a_mix_too(tmp_path: Path) -> None:
    """With its headers, and by the rules of recorded sessions."""
    entries = [
        {
            "request": {"method": method, "url": f"http://shop{path}", "headers": [{"name": "Accept", "value": "x/y"}]},
            "response": {"status": 200, "content": {}},
        }
        for method, path in [("GET", "/orders/1"), ("GET", "/orders/2"), ("GET", "/a.css"), ("POST", "/orders")]
    ]
    (tmp_path / "session.har").write_text(json.dumps({"log": {"entries": entries}}))

    made = read(tmp_path, "session.har")

    assert {"GET /orders/{id}": 2} == weights(made)
    assert {"Accept": "x/y"} == made.calls[0].headers
    assert made.notes == (
        "session.har: a mix of 1 route, by 2 of 4 requests; not sent: 1 for static files; 1 POST, which may write",
    )


def test_a_har_file_of_a_proxy_on_windows_is_read(tmp_path: Path) -> None:
    """It begins with a byte order mark, and has null as the type of a response without a body."""
    response = {"status": 204, "content": {"mimeType": None}}
    har = {"log": {"entries": [{"request": {"method": "GET", "url": "http://shop/a"}, "response": response}]}}
    (tmp_path / "export.json").write_text(json.dumps(har), encoding="utf-8-sig")

    assert {"GET /a": 1} == weights(read(tmp_path, "export.json"))


OPENAPI = {
    "openapi": "3.1.0",
    "servers": [{"url": "https://shop.example/api"}],
    "paths": {
        "/orders/{id}": {
            "parameters": [
                {"name": "id", "in": "path", "required": True, "schema": {"$ref": "#/components/schemas/Id"}}
            ],
            "get": {"parameters": [{"name": "full", "in": "query", "schema": {"type": "boolean"}, "example": True}]},
            "delete": {},
        },
        "/orders": {
            "get": {
                "parameters": [{"name": "state", "in": "query", "required": True, "schema": {"enum": ["new", "old"]}}]
            },
            "post": {
                "requestBody": {
                    "content": {
                        "application/json": {"schema": {"properties": {"item": {"type": "string", "example": "pen"}}}}
                    }
                }
            },
        },
    },
    "components": {"schemas": {"Id": {"type": "integer", "minimum": 7}}},
}


def test_an_openapi_document_is_a_request_for_each_operation(tmp_path: Path) -> None:
    """Examples, enumerated values and minima of the document; what was made up is named."""
    (tmp_path / "openapi.json").write_text(json.dumps(OPENAPI))

    made = read(tmp_path, "openapi.json")
    writing = read(tmp_path, MixTable("openapi.json", methods=("POST",)))

    assert [
        ("/api/orders/7?full=true", "GET /api/orders/{id}"),
        ("/api/orders?state=new", "GET /api/orders"),
    ] == [(call.path, call.route) for call in made.calls]
    assert "values without an example in the document were made up: id of /api/orders/{id}" in made.notes
    assert [("/api/orders", b'{"item": "pen"}')] == [(call.path, call.body) for call in writing.calls]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('1.2.3.4 - - [x] "POST /a HTTP/1.1" 200 5', "no request is left to send: 1 POST, which may write"),
        ('{"openapi": "3.0.0", "paths": {}}', "no operation in paths"),
        ('{"openapi": "3.0.0",\n"paths": 1}', "no object with paths: expected an OpenAPI document"),
    ],
)
def test_a_file_without_requests_is_one_line(content: str, message: str, tmp_path: Path) -> None:
    """What was seen, and why it is not sent."""
    (tmp_path / "file").write_text(content)

    with pytest.raises(PlacebenchError, match=message):
        read(tmp_path, "file")
