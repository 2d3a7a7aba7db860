"""Handlers of resource providers, and of the traits and aggregates of one provider."""

from http import HTTPStatus
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Connection
from werkzeug import Response

from placebench.lab.reference.api import microversion, responses
from placebench.lab.reference.api.call import Call
from placebench.lab.reference.domain import validation
from placebench.lab.reference.domain.problems import BadRequest
from placebench.lab.reference.domain.validation import MAX_NAME_LENGTH
from placebench.lab.reference.store import name_tables, provider_filters, providers
from placebench.lab.reference.store.providers import StoredProvider

# The minor version since which a provider has each link.
_LINKS: Final = {"inventories": 0, "usages": 0, "aggregates": 1, "traits": 6, "allocations": 11}
_SINCE_TREES: Final = 14
_SINCE_RETURNED: Final = 20  # minor version since which POST returns the new provider
_SINCE_MOVES: Final = 37

_NAME = validation.text(200, minimum=1)
_PARENT = validation.nullable(validation.uuid)
_NEW_ROOT = validation.record({"name": _NAME}, {"uuid": validation.dashed_uuid})
_ANY_NAME = validation.text(200)  # as in Placement, a provider can be renamed to "", but not created with that name
_RENAMED = validation.record({"name": _ANY_NAME})
_NEW_PROVIDER = validation.record({"name": _NAME}, {"uuid": validation.dashed_uuid, "parent_provider_uuid": _PARENT})
_CHANGED_PROVIDER = validation.record({"name": _ANY_NAME}, {"parent_provider_uuid": _PARENT})


def list_providers(call: Call) -> Response:
    """GET /resource_providers: list the providers that meet all filters in the query string."""
    parameters = call.parameters(provider_filters.NAMES)
    microversion.check_filters(parameters, call.minor)
    chosen = provider_filters.parse_filters(parameters)
    with call.database.snapshot() as connection:
        found = providers.find_providers(connection, provider_filters.conditions(connection, chosen))
    return responses.document({"resource_providers": [_document(call, provider) for provider in found]})


def create_provider(call: Call) -> Response:
    """POST /resource_providers: create a provider as the root of a new tree or below a parent."""
    content = (_NEW_PROVIDER if call.minor >= _SINCE_TREES else _NEW_ROOT)(call.body(), "body")
    uuid, name, parent = content.get("uuid", str(uuid4())), content["name"], content.get("parent_provider_uuid")
    made = call.database.write(
        lambda connection: providers.create_provider(connection, uuid=uuid, name=name, parent_uuid=parent)
    )
    location = _url(call, made.uuid)
    if call.minor < _SINCE_RETURNED:
        return responses.empty(status=HTTPStatus.CREATED, location=location)
    return responses.document(_document(call, made), location=location)


def show_provider(call: Call, uuid: str) -> Response:
    """GET /resource_providers/{uuid}: show one provider."""
    with call.database.one_statement() as connection:
        return responses.document(_document(call, providers.read_provider(connection, uuid)))


def update_provider(call: Call, uuid: str) -> Response:
    """PUT /resource_providers/{uuid}: rename a provider and, if parent_provider_uuid is given, move it."""
    body = call.body()

    def work(connection: Connection) -> StoredProvider:
        providers.read_id_and_generation(connection, uuid)
        content = (_CHANGED_PROVIDER if call.minor >= _SINCE_TREES else _RENAMED)(body, "body")
        if "parent_provider_uuid" in content:
            wanted = content["parent_provider_uuid"]
            if call.minor < _SINCE_MOVES:  # before 1.37, only a root may be given a parent
                present = providers.read_provider(connection, uuid).parent_uuid
                if present not in (None, wanted):
                    raise BadRequest(
                        f"parent_provider_uuid: {uuid} has the parent {present}, which 1.37 and later can change"
                    )
            providers.move_provider(connection, uuid, wanted)
        providers.rename_provider(connection, uuid, content["name"])
        return providers.read_provider(connection, uuid)

    return responses.document(_document(call, call.database.write(work)))


def delete_provider(call: Call, uuid: str) -> Response:
    """DELETE /resource_providers/{uuid}: delete a provider that has no children and no allocations."""
    call.database.write(lambda connection: providers.delete_provider(connection, uuid))
    return responses.empty()


def _document(call: Call, provider: StoredProvider) -> dict[str, Any]:
    url = _url(call, provider.uuid)
    related = [{"rel": rel, "href": f"{url}/{rel}"} for rel, since in _LINKS.items() if call.minor >= since]
    tree = {"parent_provider_uuid": provider.parent_uuid, "root_provider_uuid": provider.root_uuid}
    return {
        "uuid": provider.uuid,
        "name": provider.name,
        "generation": provider.generation,
        **(tree if call.minor >= _SINCE_TREES else {}),
        "links": [{"rel": "self", "href": url}, *related],
    }


def _url(call: Call, uuid: str) -> str:
    return f"{call.prefix}/resource_providers/{uuid}"


_SINCE_AGGREGATES_GENERATION: Final = 19
_AGGREGATES = validation.array(validation.uuid, unique=True)
_NEW_AGGREGATES = validation.record({"resource_provider_generation": validation.any_integer, "aggregates": _AGGREGATES})


def show_aggregates(call: Call, uuid: str) -> Response:
    """GET /resource_providers/{uuid}/aggregates: list the UUIDs of the provider's aggregates."""
    with call.database.snapshot() as connection:
        provider_id, generation = providers.read_id_and_generation(connection, uuid)
        return _aggregates_response(call, name_tables.read_provider_aggregates(connection, provider_id), generation)


def replace_aggregates(call: Call, uuid: str) -> Response:
    """PUT /resource_providers/{uuid}/aggregates: replace the aggregates; since 1.19 it increments the generation."""
    body = call.body()

    def work(connection: Connection) -> Response:
        provider = providers.lock_provider(connection, uuid)
        if call.minor < _SINCE_AGGREGATES_GENERATION:
            wanted = _AGGREGATES(body, "body")
            name_tables.replace_aggregates(connection, provider, wanted)
            return _aggregates_response(call, wanted, provider.generation)
        content = _NEW_AGGREGATES(body, "body")
        wanted = content["aggregates"]
        providers.check_generation(provider, content["resource_provider_generation"])
        name_tables.replace_aggregates(connection, provider, wanted)
        return _aggregates_response(call, wanted, providers.advance_generation(connection, provider))

    return call.database.write(work)


def _aggregates_response(call: Call, uuids: list[str], generation: int) -> Response:
    seen = {"resource_provider_generation": generation} if call.minor >= _SINCE_AGGREGATES_GENERATION else {}
    return responses.document({"aggregates": uuids, **seen})


_NEW_TRAITS = validation.record(
    {
        "resource_provider_generation": validation.any_integer,
        "traits": validation.array(validation.text(MAX_NAME_LENGTH, minimum=1)),
    }
)


def show_traits(call: Call, uuid: str) -> Response:
    """GET /resource_providers/{uuid}/traits: list the names of the provider's traits."""
    with call.database.snapshot() as connection:
        provider_id, generation = providers.read_id_and_generation(connection, uuid)
        return _traits_response(name_tables.read_provider_traits(connection, provider_id), generation)


def replace_traits(call: Call, uuid: str) -> Response:
    """PUT /resource_providers/{uuid}/traits: replace the traits; increments the generation only if they change."""
    content = _NEW_TRAITS(call.body(), "body")
    names = sorted(set(content["traits"]))

    def work(connection: Connection) -> Response:
        provider = providers.lock_provider(connection, uuid)
        providers.check_generation(provider, content["resource_provider_generation"])
        return _traits_response(names, name_tables.replace_traits(connection, provider, names))

    return call.database.write(work)


def clear_traits(call: Call, uuid: str) -> Response:
    """DELETE /resource_providers/{uuid}/traits: remove all traits, without a check of the generation."""
    call.database.write(
        lambda connection: name_tables.replace_traits(connection, providers.lock_provider(connection, uuid), [])
    )
    return responses.empty()


def _traits_response(names: list[str], generation: int) -> Response:
    return responses.document({"traits": names, "resource_provider_generation": generation})
