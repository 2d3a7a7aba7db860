"""Resource classes: what can be counted."""

from http import HTTPStatus
from typing import Any

from werkzeug import Response

from placebench.reference.api import responses, validation
from placebench.reference.api.call import Call
from placebench.reference.api.problems import Conflict
from placebench.reference.api.validation import LONGEST, check_custom
from placebench.reference.store import resource_classes

new_class = validation.record({"name": validation.text(LONGEST)})


def index(call: Call) -> Response:
    """GET /resource_classes: all of them."""
    with call.database.one_statement() as connection:
        names = resource_classes.every(connection)
    return responses.document({"resource_classes": [_document(call, name) for name in names]})


def create(call: Call) -> Response:
    """POST /resource_classes: a new one; Conflict if it is there."""
    name = check_custom("resource class", new_class(call.body(), "body")["name"])
    if not call.database.write(lambda connection: resource_classes.ensure(connection, name)):
        raise Conflict(f"resource class {name} exists already")
    return responses.nothing(status=HTTPStatus.CREATED, location=_url(call, name))


def show(call: Call, name: str) -> Response:
    """GET /resource_classes/{name}"""
    with call.database.one_statement() as connection:
        if not resource_classes.exists(connection, name):
            raise resource_classes.unknown(name)
    return responses.document(_document(call, name))


def ensure(call: Call, name: str) -> Response:
    """PUT /resource_classes/{name}: 201 if it was made now, 204 if it was there."""
    check_custom("resource class", name)
    made = call.database.write(lambda connection: resource_classes.ensure(connection, name))
    return responses.nothing(status=HTTPStatus.CREATED if made else HTTPStatus.NO_CONTENT, location=_url(call, name))


def delete(call: Call, name: str) -> Response:
    """DELETE /resource_classes/{name}: if no inventory has it."""
    call.database.write(lambda connection: resource_classes.remove(connection, name))
    return responses.nothing()


def _document(call: Call, name: str) -> dict[str, Any]:
    return {"name": name, "links": [{"rel": "self", "href": _url(call, name)}]}


def _url(call: Call, name: str) -> str:
    return f"{call.prefix}/resource_classes/{name}"
