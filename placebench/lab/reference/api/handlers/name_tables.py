"""Handlers of traits (qualities of providers) and resource classes (kinds of resources)."""

from http import HTTPStatus
from typing import Any, Final

from sqlalchemy import ColumnElement
from werkzeug import Response

from placebench.lab.inventory.tables import traits
from placebench.lab.reference.api import responses
from placebench.lab.reference.api.call import Call
from placebench.lab.reference.domain import validation
from placebench.lab.reference.domain.problems import BadRequest, Conflict
from placebench.lab.reference.domain.validation import MAX_NAME_LENGTH, check_custom
from placebench.lab.reference.store.name_tables import (
    RESOURCE_CLASSES,
    TRAITS,
    NameTable,
    is_associated,
    read_resource_classes,
    read_traits,
)

_SINCE_ENSURED: Final = 7
_NEW_CLASS = validation.record({"name": validation.text(MAX_NAME_LENGTH)})


def list_traits(call: Call) -> Response:
    """GET /traits: list all traits, or filter them by ?name=in:A,B, ?name=startswith:P and ?associated=true|false.

    A name with another operation is not a filter, as in Placement.
    """
    parameters = call.parameters({"name", "associated"})
    conditions: list[ColumnElement[bool]] = []
    if "name" in parameters:
        value = parameters["name"][-1]
        operation, colon, operand = value.partition(":")
        if not colon:
            raise BadRequest(f"name: expected in:NAME,NAME or startswith:PREFIX, got {value!r}")
        if operation == "in":
            conditions.append(traits.c.name.in_(operand.split(",")))
        elif operation == "startswith":
            conditions.append(traits.c.name.startswith(operand, autoescape=True))
    if "associated" in parameters:
        value = parameters["associated"][-1]
        if value.lower() not in ("true", "false"):
            raise BadRequest(f"associated: expected true or false, got {value!r}")
        conditions.append(is_associated(wanted=value.lower() == "true"))
    with call.database.one_statement() as connection:
        return responses.document({"traits": read_traits(connection, conditions)})


def show_trait(call: Call, name: str) -> Response:
    """GET /traits/{name}: return 204 if the trait exists."""
    with call.database.one_statement() as connection:
        TRAITS.check(connection, name)
    call.dated = True
    return responses.empty()


def ensure_trait(call: Call, name: str) -> Response:
    """PUT /traits/{name}: create the trait (201) unless it exists (204)."""
    call.dated = True
    return _ensure(call, TRAITS, name, f"{call.prefix}/traits/{name}")


def delete_trait(call: Call, name: str) -> Response:
    """DELETE /traits/{name}: delete a trait that no provider has."""
    call.database.write(lambda connection: TRAITS.delete(connection, name))
    return responses.empty()


def list_resource_classes(call: Call) -> Response:
    """GET /resource_classes: list all resource classes."""
    with call.database.one_statement() as connection:
        names = read_resource_classes(connection)
    return responses.document({"resource_classes": [_document(call, name) for name in names]})


def create_resource_class(call: Call) -> Response:
    """POST /resource_classes: create a resource class; raise Conflict if it exists."""
    name = check_custom("resource class", _NEW_CLASS(call.body(), "body")["name"])
    if not call.database.write(lambda connection: RESOURCE_CLASSES.ensure(connection, name)):
        raise Conflict(f"resource class {name} exists already")
    return responses.empty(status=HTTPStatus.CREATED, location=_url(call, name))


def show_resource_class(call: Call, name: str) -> Response:
    """GET /resource_classes/{name}: show a resource class."""
    with call.database.one_statement() as connection:
        RESOURCE_CLASSES.check(connection, name)
    return responses.document(_document(call, name))


def ensure_resource_class(call: Call, name: str) -> Response:
    """PUT /resource_classes/{name}: create the class (201) unless it exists (204); before 1.7, rename it."""
    if call.minor < _SINCE_ENSURED:
        new_name = check_custom("resource class", _NEW_CLASS(call.body(), "body")["name"])
        call.database.write(lambda connection: RESOURCE_CLASSES.rename(connection, name, new_name))
        return responses.document(_document(call, new_name))
    return _ensure(call, RESOURCE_CLASSES, name, _url(call, name))


def delete_resource_class(call: Call, name: str) -> Response:
    """DELETE /resource_classes/{name}: delete a resource class that no inventory has."""
    call.database.write(lambda connection: RESOURCE_CLASSES.delete(connection, name))
    return responses.empty()


def _ensure(call: Call, names: NameTable, name: str, location: str) -> Response:
    check_custom(names.noun, name)
    made = call.database.write(lambda connection: names.ensure(connection, name))
    return responses.empty(status=HTTPStatus.CREATED if made else HTTPStatus.NO_CONTENT, location=location)


def _document(call: Call, name: str) -> dict[str, Any]:
    return {"name": name, "links": [{"rel": "self", "href": _url(call, name)}]}


def _url(call: Call, name: str) -> str:
    return f"{call.prefix}/resource_classes/{name}"
