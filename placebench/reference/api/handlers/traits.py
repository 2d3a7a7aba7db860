"""Traits: what a provider can be, or cannot."""

from collections.abc import Mapping
from http import HTTPStatus

from sqlalchemy import ColumnElement
from werkzeug import Response

from placebench.reference.api import responses
from placebench.reference.api.call import Call
from placebench.reference.api.problems import BadRequest
from placebench.reference.api.validation import check_custom
from placebench.reference.store import traits


def index(call: Call) -> Response:
    """GET /traits: all of them, or those that ?name=in:A,B, ?name=startswith:P and ?associated=true|false leave."""
    conditions = _conditions(call.parameters({"name", "associated"}))
    with call.database.one_statement() as connection:
        return responses.document({"traits": traits.named(connection, conditions)})


def show(call: Call, name: str) -> Response:
    """GET /traits/{name}: 204 if it is there."""
    with call.database.one_statement() as connection:
        if not traits.exists(connection, name):
            raise traits.unknown(name)
    return responses.nothing()


def ensure(call: Call, name: str) -> Response:
    """PUT /traits/{name}: 201 if it was made now, 204 if it was there."""
    check_custom("trait", name)
    made = call.database.write(lambda connection: traits.ensure(connection, name))
    status = HTTPStatus.CREATED if made else HTTPStatus.NO_CONTENT
    return responses.nothing(status=status, location=f"{call.prefix}/traits/{name}")


def delete(call: Call, name: str) -> Response:
    """DELETE /traits/{name}: if no provider has it."""
    call.database.write(lambda connection: traits.remove(connection, name))
    return responses.nothing()


def _conditions(parameters: Mapping[str, list[str]]) -> list[ColumnElement[bool]]:
    conditions = []
    if "name" in parameters:
        conditions += _by_name(parameters["name"][-1])
    if "associated" in parameters:
        conditions.append(traits.associated(wanted=_truth(parameters["associated"][-1])))
    return conditions


def _by_name(value: str) -> list[ColumnElement[bool]]:
    """An operation that is neither `in` nor `startswith` leaves all traits, as in Placement."""
    operation, colon, operand = value.partition(":")
    if not colon:
        raise BadRequest(f"name: expected in:NAME,NAME or startswith:PREFIX, got {value!r}")
    if operation == "in":
        return [traits.with_name_in(operand.split(","))]
    return [traits.with_prefix(operand)] if operation == "startswith" else []


def _truth(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise BadRequest(f"associated: expected true or false, got {value!r}")
    return value.lower() == "true"
