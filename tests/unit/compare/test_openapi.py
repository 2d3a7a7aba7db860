"""The requests of OpenAPI documents: parameters, bodies, servers and references, as the specification has them."""

import json
from pathlib import Path
from typing import Any

import pytest

from placebench.compare.what.openapi import DescribedRequest, read_openapi
from placebench.compare.what.request_mix import MixTable, read_mix
from placebench.errors import PlacebenchError


def described(folder: Path, document: dict[str, Any] | str) -> list[DescribedRequest]:
    """The requests of a document, given as an object or as YAML."""
    path = folder / "openapi.yaml"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return read_openapi(path)


def paths(folder: Path, parameter: dict[str, Any], **document: Any) -> list[str]:
    """The paths that are sent for GET /{it} with one parameter of this name."""
    given = {"name": "it", "required": True, **parameter}
    route = "/{it}" if given["in"] == "path" else "/"
    item = {"get": {"parameters": [given]}}
    return [each.request.path for each in described(folder, {"paths": {route: item}, **document})]


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({"type": "integer"}, "1"),
        ({"type": "integer", "exclusiveMinimum": 7}, "8"),
        ({"type": "integer", "minimum": 7, "exclusiveMinimum": True}, "8"),
        ({"type": "integer", "minimum": 6.5}, "7"),
        ({"type": "integer", "maximum": 0}, "0"),
        ({"type": "integer", "exclusiveMaximum": 0}, "-1"),
        ({"type": "integer", "minimum": 3, "multipleOf": 5}, "5"),
        ({"type": "number", "minimum": 0.5}, "0.5"),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, "0.5"),
        ({"type": "string", "minLength": 3}, "aaa"),
        ({"anyOf": [{"const": "new"}, {"const": "old"}]}, "new"),
        ({"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 4}]}, "4"),
        ({"type": ["null", "boolean"]}, "true"),
        ({"type": "string", "format": "date", "minLength": 3}, "2024-01-01"),
        ({"type": "integer", "minimum": "many"}, "1"),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, "1,1"),
        ({"allOf": [{"type": "integer", "example": 7}]}, "7"),
    ],
)
def test_a_made_up_value_keeps_to_the_limits_of_its_schema(schema: dict[str, Any], sent: str, tmp_path: Path) -> None:
    """Otherwise the application would respond with 422, and the route would be left out."""
    assert [f"/{sent}"] == paths(tmp_path, {"in": "path", "schema": schema})


@pytest.mark.parametrize(
    ("parameter", "query"),
    [
        ({"schema": {"type": "array", "items": {"enum": ["sold", "new"]}}}, "it=sold"),
        ({"example": [1, 2]}, "it=1&it=2"),
        ({"example": [1, 2], "explode": False}, "it=1%2C2"),
        ({"example": [1, 2], "style": "pipeDelimited"}, "it=1%7C2"),
        ({"example": {"a": 1, "b": True}}, "a=1&b=true"),
        ({"example": {"a": 1}, "style": "deepObject"}, "it%5Ba%5D=1"),
        ({"content": {"application/json": {"example": {"a": 1}}}}, "it=%7B%22a%22%3A+1%7D"),
        ({"type": "array", "items": {"type": "string", "default": "sold"}, "collectionFormat": "multi"}, "it=sold"),
        ({"type": "array", "x-example": [1, 2], "collectionFormat": "multi"}, "it=1&it=2"),
        ({"type": "array", "x-example": [1, 2]}, "it=1%2C2"),
        ({"examples": {"first": {"$ref": "#/components/examples/Four"}}}, "it=4"),
    ],
)
def test_lists_and_objects_in_a_query_have_the_style_of_their_parameter(
    parameter: dict[str, Any], query: str, tmp_path: Path
) -> None:
    """Exploded by default in OpenAPI 3, and joined by commas in Swagger 2."""
    components = {"examples": {"Four": {"value": 4}}}

    assert [f"/?{query}"] == paths(tmp_path, {"in": "query", **parameter}, components=components)


@pytest.mark.parametrize(
    "parameter",
    [
        {"in": "query", "required": False, "schema": {"type": "string", "default": None}},
        {"in": "header", "name": "Authorization", "example": "Bearer x"},
        {"in": "header", "name": "accept"},
        {"in": "cookie", "example": "x"},
    ],
)
def test_what_is_no_parameter_of_the_request_is_not_sent(parameter: dict[str, Any], tmp_path: Path) -> None:
    """A default of null says that the parameter is left out; the login has the credentials."""
    given = {"name": "it", "required": True, **parameter}
    (made,) = described(tmp_path, {"paths": {"/": {"get": {"parameters": [given]}}}})

    assert ("/", {}, ()) == (made.request.path, made.request.headers, made.invented)


@pytest.mark.parametrize(
    ("servers", "path"),
    [
        ({"document": "https://shop.example/v1/"}, "/v1/x"),
        ({"document": "api/v1"}, "/api/v1/x"),
        ({"document": "https://a/v1", "item": "//b/v2"}, "/v2/x"),
        ({"document": "https://a/v1", "item": "https://b/v2", "operation": "/"}, "/x"),
        ({"document": "https://{host}:{port}/{base}"}, "/v7/x"),
    ],
)
def test_the_path_begins_with_that_of_the_innermost_server(servers: dict[str, str], path: str, tmp_path: Path) -> None:
    """Variables in its URL have their defaults."""
    variables = {"base": {"default": "v7"}}
    given = {place: {"servers": [{"url": url, "variables": variables}]} for place, url in servers.items()}
    item = {**given.get("item", {}), "get": given.get("operation", {})}

    (made,) = described(tmp_path, {"paths": {"/x": item}, **given.get("document", {})})

    assert path == made.request.path


def test_references_are_followed_into_other_files(tmp_path: Path) -> None:
    """Each is relative to the file that has it."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "orders.yaml").write_text(
        "Orders:\n  get:\n    parameters:\n      - $ref: 'id.json'\n"
        "      - {name: size, in: query, schema: {$ref: '#/Size'}}\nSize: {enum: [9]}\n"
    )
    (tmp_path / "shop" / "id.json").write_text('{"name": "id", "in": "path", "schema": {"default": 3}}')
    document = {"paths": {"/orders/{id}": {"$ref": "shop/orders.yaml#/Orders"}}}

    assert ["/orders/3?size=9"] == [each.request.path for each in described(tmp_path, document)]


def test_a_schema_that_refers_to_itself_ends(tmp_path: Path) -> None:
    """Three times, which would be some billion objects in a depth of 20."""
    node = {"$ref": "#/Node"}
    fields = {"name": {"type": "string"}, "left": node, "right": node, "other": node}
    body = {"content": {"application/json": {"schema": {"$ref": "#/Node"}}}}
    document = {"paths": {"/x": {"post": {"requestBody": body}}}, "Node": {"properties": fields}}

    assert [b'{"name": "a"}'] == [each.request.body for each in described(tmp_path, document)]


def test_dates_of_yaml_are_sent_as_they_are_written(tmp_path: Path) -> None:
    """A reader of YAML makes objects of them, which are neither text nor JSON."""
    (made,) = described(
        tmp_path,
        "paths:\n  /x/{day}:\n    put:\n      parameters: [{name: day, in: path, example: 2024-05-01}]\n"
        "      requestBody: {content: {application/json: {example: {at: 2024-05-01T10:00:00Z}}}}\n",
    )

    assert ("/x/2024-05-01", b'{"at": "2024-05-01T10:00:00Z"}') == (made.request.path, made.request.body)


@pytest.mark.parametrize(
    ("operation", "kind", "body"),
    [
        ({"application/json; charset=utf-8": {"example": {"a": 1}}}, "application/json", b'{"a": 1}'),
        ({"application/vnd.api+json": {"example": [1]}}, "application/vnd.api+json", b"[1]"),
        (
            {"application/x-www-form-urlencoded": {"schema": {"properties": {"a": {"default": True}}}}},
            "application/x-www-form-urlencoded",
            b"a=true",
        ),
    ],
)
def test_bodies_are_json_or_a_form(operation: dict[str, Any], kind: str, body: bytes, tmp_path: Path) -> None:
    """Both with the media type that the document names."""
    (made,) = described(tmp_path, {"paths": {"/x": {"post": {"requestBody": {"content": operation}}}}})

    assert (kind, body) == (made.request.headers["Content-Type"], made.request.body)


def test_a_form_of_swagger_2_is_the_body(tmp_path: Path) -> None:
    """Its fields are parameters."""
    fields = [{"name": name, "in": "formData", "type": "integer", "required": True} for name in ("a", "b")]
    (made,) = described(tmp_path, {"swagger": "2.0", "paths": {"/x": {"post": {"parameters": fields}}}})

    assert b"a=1&b=1" == made.request.body


def test_an_operation_with_another_body_is_left_out_and_named(tmp_path: Path) -> None:
    """A file to upload is not made up."""
    upload = {"requestBody": {"content": {"multipart/form-data": {"schema": {}}}}}
    (tmp_path / "openapi.json").write_text(
        json.dumps({"openapi": "3.1.0", "paths": {"/x": {"get": {}, "post": upload}}})
    )

    mixed, notes = read_mix(MixTable("openapi.json", methods=("GET", "POST")), tmp_path)

    assert ["GET /x"] == [each.route for each in mixed]
    assert "openapi.json: a mix of 1 route, by 1 of 2 requests; not sent: 1 with a body of multipart/form-data" in notes


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("#/components/parameters/Id", "'components' is not there"),
        ("other.yaml#/Id", "other.yaml: cannot be read: No such file"),
    ],
)
def test_a_reference_to_nothing_is_one_line(reference: str, message: str, tmp_path: Path) -> None:
    """With the place that is missing."""
    with pytest.raises(PlacebenchError, match=message):
        described(tmp_path, {"paths": {"/x": {"get": {"parameters": [{"$ref": reference}]}}}})


@pytest.mark.parametrize("indent", [None, 2])
def test_a_document_is_known_by_its_keys_wherever_they_are(indent: int | None, tmp_path: Path) -> None:
    """A generator that sorts them writes paths behind megabytes of components."""
    document = {"components": {"x": "y" * 100_000}, "openapi": "3.1.0", "paths": {"/x": {"get": {}}}}
    (tmp_path / "api").write_text(json.dumps(document, indent=indent))

    mixed, _ = read_mix(MixTable("api"), tmp_path)

    assert ["GET /x"] == [each.route for each in mixed]
