"""Resource providers: the nodes of the trees."""

from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Connection
from werkzeug import Response

from placebench.reference.api import responses, validation
from placebench.reference.api.call import Call
from placebench.reference.store import provider_filters, providers, trees
from placebench.reference.store.providers import Provider

LINKS: Final = ("inventories", "usages", "aggregates", "traits", "allocations")

_name = validation.text(200, minimum=1)
_parent = validation.nullable(validation.uuid)
new_provider = validation.record({"name": _name}, {"uuid": validation.dashed_uuid, "parent_provider_uuid": _parent})
changed_provider = validation.record({"name": _name}, {"parent_provider_uuid": _parent})


def index(call: Call) -> Response:
    """GET /resource_providers: those that meet every filter in the query string."""
    chosen = provider_filters.parse(call.parameters(provider_filters.NAMES))
    with call.database.snapshot() as connection:
        found = providers.matching(connection, provider_filters.conditions(connection, chosen))
    return responses.document({"resource_providers": [_document(call, provider) for provider in found]})


def create(call: Call) -> Response:
    """POST /resource_providers: a new one, in a tree of its own or below a parent."""
    content = new_provider(call.body(), "body")
    uuid, name, parent = content.get("uuid", str(uuid4())), content["name"], content.get("parent_provider_uuid")
    made = call.database.write(lambda connection: trees.create(connection, uuid=uuid, name=name, parent_uuid=parent))
    return responses.document(_document(call, made), location=_url(call, made.uuid))


def show(call: Call, uuid: str) -> Response:
    """GET /resource_providers/{uuid}"""
    with call.database.one_statement() as connection:
        return responses.document(_document(call, providers.found(connection, uuid)))


def update(call: Call, uuid: str) -> Response:
    """PUT /resource_providers/{uuid}: another name and, if parent_provider_uuid is given, another place."""
    body = call.body()

    def work(connection: Connection) -> Provider:
        providers.id_and_generation(connection, uuid)
        content = changed_provider(body, "body")
        if "parent_provider_uuid" in content:
            trees.move(connection, uuid, content["parent_provider_uuid"])
        providers.rename(connection, uuid, content["name"])
        return providers.found(connection, uuid)

    return responses.document(_document(call, call.database.write(work)))


def delete(call: Call, uuid: str) -> Response:
    """DELETE /resource_providers/{uuid}: with its inventories, traits and aggregates, if nothing stands on it."""
    call.database.write(lambda connection: trees.remove(connection, uuid))
    return responses.nothing()


def _document(call: Call, provider: Provider) -> dict[str, Any]:
    url = _url(call, provider.uuid)
    links = [{"rel": "self", "href": url}, *({"rel": rel, "href": f"{url}/{rel}"} for rel in LINKS)]
    return {
        "uuid": provider.uuid,
        "name": provider.name,
        "generation": provider.generation,
        "parent_provider_uuid": provider.parent_uuid,
        "root_provider_uuid": provider.root_uuid,
        "links": links,
    }


def _url(call: Call, uuid: str) -> str:
    return f"{call.prefix}/resource_providers/{uuid}"
