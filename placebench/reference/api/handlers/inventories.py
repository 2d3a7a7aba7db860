"""The inventories of one provider."""

from http import HTTPStatus
from typing import Any, Final

from sqlalchemy import Connection
from werkzeug import Response

from placebench.reference.api import responses, validation
from placebench.reference.api.call import Call
from placebench.reference.api.problems import BadRequest
from placebench.reference.api.validation import ANY_CLASS, LONGEST
from placebench.reference.store import inventories, providers
from placebench.reference.store.inventories import Inventory

DEFAULTS: Final = {
    "reserved": 0,
    "min_unit": 1,
    "max_unit": validation.MAX_INTEGER,
    "step_size": 1,
    "allocation_ratio": 1.0,
}
GREATEST_RATIO: Final = 3.40282e38

_class = validation.text(LONGEST, pattern=ANY_CLASS)
_total = {"total": validation.integer(1)}
_generation = {"resource_provider_generation": validation.any_integer}
_rest = {
    "reserved": validation.integer(0),
    "min_unit": validation.integer(1),
    "max_unit": validation.integer(1),
    "step_size": validation.integer(1),
    "allocation_ratio": validation.number(GREATEST_RATIO),
}
one_of_all = validation.record(_total, _rest | _generation)
one_more = validation.record(_total | {"resource_class": _class}, _rest | _generation)
one_changed = validation.record(_total | _generation, _rest)
all_of_them = validation.record(_generation | {"inventories": validation.mapping(_class, one_of_all)})


def index(call: Call, uuid: str) -> Response:
    """GET /resource_providers/{uuid}/inventories"""
    with call.database.snapshot() as connection:
        provider_id, generation = providers.id_and_generation(connection, uuid)
        return _answer_all(inventories.of_provider(connection, provider_id), generation)


def replace(call: Call, uuid: str) -> Response:
    """PUT /resource_providers/{uuid}/inventories: just these; the generation moves on in any case."""
    body = call.body()

    def work(connection: Connection) -> Response:
        provider = providers.locked(connection, uuid)
        content = all_of_them(body, "body")
        providers.check_generation(provider, content["resource_provider_generation"])
        wanted = {name: completed(name, given) for name, given in content["inventories"].items()}
        return _answer_all(wanted, inventories.replace(connection, provider, wanted))

    return call.database.write(work)


def create(call: Call, uuid: str) -> Response:
    """POST /resource_providers/{uuid}/inventories: one more, whatever the generation."""
    body = call.body()

    def work(connection: Connection) -> Response:
        provider = providers.locked(connection, uuid)
        content = one_more(body, "body")
        name = content.pop("resource_class")
        inventory = completed(name, content)
        generation = inventories.add(connection, provider, name, inventory)
        location = f"{call.prefix}/resource_providers/{uuid}/inventories/{name}"
        return _answer_one(inventory, generation, status=HTTPStatus.CREATED, location=location)

    return call.database.write(work)


def clear(call: Call, uuid: str) -> Response:
    """DELETE /resource_providers/{uuid}/inventories: all of them, whatever the generation."""
    call.database.write(lambda connection: inventories.replace(connection, providers.locked(connection, uuid), {}))
    return responses.nothing()


def show(call: Call, uuid: str, resource_class: str) -> Response:
    """GET /resource_providers/{uuid}/inventories/{resource_class}"""
    with call.database.snapshot() as connection:
        provider_id, generation = providers.id_and_generation(connection, uuid)
        present = inventories.of_provider(connection, provider_id)
    if resource_class not in present:
        raise inventories.missing(uuid, resource_class)
    return _answer_one(present[resource_class], generation)


def update(call: Call, uuid: str, resource_class: str) -> Response:
    """PUT /resource_providers/{uuid}/inventories/{resource_class}"""
    body = call.body()

    def work(connection: Connection) -> Response:
        provider = providers.locked(connection, uuid)
        content = one_changed(body, "body")
        providers.check_generation(provider, content["resource_provider_generation"])
        inventory = completed(resource_class, content)
        return _answer_one(inventory, inventories.change(connection, provider, resource_class, inventory))

    return call.database.write(work)


def delete(call: Call, uuid: str, resource_class: str) -> Response:
    """DELETE /resource_providers/{uuid}/inventories/{resource_class}: if nothing is allocated of it."""
    call.database.write(
        lambda connection: inventories.remove(connection, providers.locked(connection, uuid), resource_class)
    )
    return responses.nothing()


def completed(name: str, given: dict[str, Any]) -> Inventory:
    """The inventory with every field; BadRequest if its capacity is negative."""
    full = filled(given)
    if int((full["total"] - full["reserved"]) * full["allocation_ratio"]) < 0:
        raise BadRequest(f"inventory of {name}: its capacity, (total - reserved) * allocation_ratio, is negative")
    return full


def filled(given: dict[str, Any]) -> Inventory:
    """The inventory with every field."""
    full = DEFAULTS | given
    return {field: full[field] for field in inventories.FIELDS}


def _answer_all(present: dict[str, Any], generation: int) -> Response:
    return responses.document({"resource_provider_generation": generation, "inventories": present})


def _answer_one(
    inventory: Inventory, generation: int, *, status: HTTPStatus = HTTPStatus.OK, location: str | None = None
) -> Response:
    content = {"resource_provider_generation": generation, **inventory}
    return responses.document(content, status=status, location=location)
