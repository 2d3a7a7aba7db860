"""Handlers of the inventories of one provider."""

import re
from http import HTTPStatus
from typing import Any, Final

from sqlalchemy import Connection
from werkzeug import Response

from placebench.lab.reference.api import responses
from placebench.lab.reference.api.call import Call
from placebench.lab.reference.domain import validation
from placebench.lab.reference.domain.problems import BadRequest, MethodNotAllowed
from placebench.lab.reference.domain.validation import ANY_CLASS, MAX_NAME_LENGTH
from placebench.lab.reference.store import inventories, providers
from placebench.lab.reference.store.inventories import Inventory

_DEFAULTS: Final = {
    "reserved": 0,
    "min_unit": 1,
    "max_unit": validation.MAX_INTEGER,
    "step_size": 1,
    "allocation_ratio": 1.0,
}
_SINCE_ALL_RESERVED: Final = 26  # minor version since which a whole inventory may be reserved
_SINCE_CLEARED: Final = 5
_MAX_RATIO: Final = 3.40282e38

_CLASS = validation.text(MAX_NAME_LENGTH, pattern=ANY_CLASS)
_TOTAL = {"total": validation.integer(1)}
_GENERATION = {"resource_provider_generation": validation.any_integer}
_REST = {
    "reserved": validation.integer(0),
    "min_unit": validation.integer(1),
    "max_unit": validation.integer(1),
    "step_size": validation.integer(1),
    "allocation_ratio": validation.number(_MAX_RATIO),
}
_ONE_OF_ALL = validation.record(_TOTAL, _REST | _GENERATION)
_ONE_MORE = validation.record(_TOTAL | {"resource_class": _CLASS}, _REST | _GENERATION)
_ONE_CHANGED = validation.record(_TOTAL | _GENERATION, _REST)
ALL_INVENTORIES = validation.record(_GENERATION | {"inventories": validation.mapping(_CLASS, _ONE_OF_ALL)})


def list_inventories(call: Call, uuid: str) -> Response:
    """GET /resource_providers/{uuid}/inventories: list all inventories of the provider."""
    with call.database.read_at_once() as connection:
        generation, present = inventories.read_inventories(connection, uuid)
    return _respond_all(present, generation)


def replace_inventories(call: Call, uuid: str) -> Response:
    """PUT /resource_providers/{uuid}/inventories: replace all inventories; always increments the generation."""
    body = call.body()

    def work(connection: Connection) -> Response:
        provider = providers.lock_provider(connection, uuid)
        # Placement's schema does not look at inventories that are not named like a class: they are refused last.
        named = without_odd_names(body)
        providers.check_generation(provider, ALL_INVENTORIES(named, "body")["resource_provider_generation"])
        content = ALL_INVENTORIES(body, "body")
        wanted = {name: _checked_inventory(call, name, given) for name, given in content["inventories"].items()}
        return _respond_all(wanted, inventories.replace_inventories(connection, provider, wanted))

    return call.database.write(work)


def without_odd_names(body: Any) -> Any:
    """Return the body without the inventories whose names are not possible for a resource class."""
    if not isinstance(body, dict) or not isinstance(body.get("inventories"), dict):
        return body
    named = {name: given for name, given in body["inventories"].items() if re.fullmatch(ANY_CLASS, name)}
    return {**body, "inventories": named}


def create_inventory(call: Call, uuid: str) -> Response:
    """POST /resource_providers/{uuid}/inventories: add one inventory, without a check of the generation."""
    body = call.body()

    def work(connection: Connection) -> Response:
        provider = providers.lock_provider(connection, uuid)
        content = _ONE_MORE(body, "body")
        name = content.pop("resource_class")
        inventory = _checked_inventory(call, name, content)
        generation = inventories.add_inventory(connection, provider, name, inventory)
        location = f"{call.prefix}/resource_providers/{uuid}/inventories/{name}"
        return _respond_one(inventory, generation, status=HTTPStatus.CREATED, location=location)

    return call.database.write(work)


def clear_inventories(call: Call, uuid: str) -> Response:
    """DELETE /resource_providers/{uuid}/inventories: remove all inventories, without a check of the generation.

    Raises MethodNotAllowed before 1.5.
    """
    if call.minor < _SINCE_CLEARED:
        raise MethodNotAllowed("DELETE of all inventories is served since microversion 1.5")
    call.database.write(
        lambda connection: inventories.replace_inventories(connection, providers.lock_provider(connection, uuid), {})
    )
    return responses.empty()


def show_inventory(call: Call, uuid: str, resource_class: str) -> Response:
    """GET /resource_providers/{uuid}/inventories/{resource_class}: show one inventory."""
    with call.database.read_at_once() as connection:
        generation, present = inventories.read_inventories(connection, uuid)
    if resource_class not in present:
        raise inventories.unknown_inventory(uuid, resource_class)
    return _respond_one(present[resource_class], generation)


def update_inventory(call: Call, uuid: str, resource_class: str) -> Response:
    """PUT /resource_providers/{uuid}/inventories/{resource_class}: change one inventory."""
    body = call.body()

    def work(connection: Connection) -> Response:
        provider = providers.lock_provider(connection, uuid)
        content = _ONE_CHANGED(body, "body")
        providers.check_generation(provider, content["resource_provider_generation"])
        inventory = _checked_inventory(call, resource_class, content)
        return _respond_one(inventory, inventories.change_inventory(connection, provider, resource_class, inventory))

    return call.database.write(work)


def delete_inventory(call: Call, uuid: str, resource_class: str) -> Response:
    """DELETE /resource_providers/{uuid}/inventories/{resource_class}: remove an inventory that has no allocations."""
    call.database.write(
        lambda connection: inventories.delete_inventory(
            connection, providers.lock_provider(connection, uuid), resource_class
        )
    )
    return responses.empty()


def _checked_inventory(call: Call, name: str, given: dict[str, Any]) -> Inventory:
    """Return the inventory with all fields; raise BadRequest if its capacity is negative, or before 1.26 if it is 0."""
    full, least = complete_inventory(given), 0 if call.minor >= _SINCE_ALL_RESERVED else 1
    capacity = int((full["total"] - full["reserved"]) * full["allocation_ratio"])
    if capacity < least:
        raise BadRequest(
            f"inventory of {name}: its capacity, (total - reserved) * allocation_ratio, is {capacity},"
            f" expected {least} or more"
        )
    return full


def complete_inventory(given: dict[str, Any]) -> Inventory:
    """Return the inventory with all fields: missing ones get Placement's defaults."""
    full = _DEFAULTS | given
    return {field: full[field] for field in inventories.FIELDS}


def _respond_all(present: dict[str, Any], generation: int) -> Response:
    return responses.document({"resource_provider_generation": generation, "inventories": present})


def _respond_one(
    inventory: Inventory, generation: int, *, status: HTTPStatus = HTTPStatus.OK, location: str | None = None
) -> Response:
    content = {"resource_provider_generation": generation, **inventory}
    return responses.document(content, status=status, location=location)
