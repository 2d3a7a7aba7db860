"""Allocations, usages and the reshaper: what consumers have of providers."""

from typing import Any
from uuid import UUID

from werkzeug import Response

from placebench.reference.api import responses, validation
from placebench.reference.api.call import Call
from placebench.reference.api.handlers.inventories import ALL_INVENTORIES, complete_inventory
from placebench.reference.api.problems import BadRequest
from placebench.reference.api.validation import ANY_CLASS, LONGEST
from placebench.reference.store import allocations, claims, inventories, providers
from placebench.reference.store.consumers import ConsumerClaim
from placebench.reference.store.inventories import NewInventories

_UUID_TEXT = validation.text(36, pattern="[0-9a-fA-F-]{36}")
_NAME = validation.text(LONGEST, minimum=1)
_CLASS = validation.text(LONGEST, minimum=1, pattern=ANY_CLASS)
_RESOURCES = validation.mapping(_CLASS, validation.at_least(1), minimum=1)
_ALLOCATION = validation.record({"resources": _RESOURCES}, {"generation": validation.any_integer})
_MAPPINGS = validation.mapping(validation.text(LONGEST), validation.array(validation.uuid, minimum=1), minimum=1)
_OF_CONSUMER = validation.record(
    {
        "allocations": validation.mapping(_UUID_TEXT, _ALLOCATION),
        "project_id": _NAME,
        "user_id": _NAME,
        "consumer_generation": validation.nullable(validation.any_integer),
        "consumer_type": _CLASS,
    },
    {"mappings": _MAPPINGS},
)
_OF_CONSUMERS = validation.mapping(_UUID_TEXT, _OF_CONSUMER, minimum=1)


def show_allocations(call: Call, consumer_uuid: str) -> Response:
    """GET /allocations/{consumer_uuid}: an unknown consumer has none."""
    with call.database.snapshot() as connection:
        return responses.document(allocations.read_consumer_allocations(connection, consumer_uuid))


def replace_allocations(call: Call, consumer_uuid: str) -> Response:
    """PUT /allocations/{consumer_uuid}: all that the consumer is to have; nothing, to take it all away."""
    if not validation.looks_like_uuid(consumer_uuid):
        raise BadRequest(f"consumer {consumer_uuid}: expected a UUID")
    claim = _claim(str(UUID(consumer_uuid)), _OF_CONSUMER(call.body(), "body"))
    claims.WRITERS[call.settings.claims](call.database, claim)
    return responses.empty()


def replace_several(call: Call) -> Response:
    """POST /allocations: all that several consumers are to have, together or not at all."""
    several = [_claim(consumer, content) for consumer, content in _OF_CONSUMERS(call.body(), "body").items()]
    call.database.write(lambda connection: claims.write_claims(connection, several))
    return responses.empty()


def delete_allocations(call: Call, consumer_uuid: str) -> Response:
    """DELETE /allocations/{consumer_uuid}: all of them, whatever the generation."""
    call.database.write(lambda connection: allocations.delete_allocations(connection, consumer_uuid))
    return responses.empty()


def show_provider_allocations(call: Call, uuid: str) -> Response:
    """GET /resource_providers/{uuid}/allocations: by consumer."""
    with call.database.snapshot() as connection:
        provider_id, generation = providers.read_id_and_generation(connection, uuid)
        found = allocations.read_provider_allocations(connection, provider_id)
    return responses.document({"allocations": found, "resource_provider_generation": generation})


def _claim(consumer: str, content: dict[str, Any]) -> ConsumerClaim:
    """The claim that a checked body makes."""
    return ConsumerClaim(
        consumer=consumer,
        generation=content["consumer_generation"],
        project=content["project_id"],
        user=content["user_id"],
        consumer_type=content["consumer_type"],
        allocations={provider: entry["resources"] for provider, entry in content["allocations"].items()},
    )


_TYPE = validation.text(LONGEST, minimum=1, pattern=f"{ANY_CLASS}|all|unknown")


def show_provider_usages(call: Call, uuid: str) -> Response:
    """GET /resource_providers/{uuid}/usages: of each class that it has an inventory of."""
    with call.database.snapshot() as connection:
        provider_id, generation = providers.read_id_and_generation(connection, uuid)
        found = allocations.read_provider_usages(connection, provider_id)
    return responses.document({"resource_provider_generation": generation, "usages": found})


def show_project_usages(call: Call) -> Response:
    """GET /usages?project_id=P, with user_id and consumer_type if wanted: by type of consumer."""
    given = {name: values[-1] for name, values in call.parameters({"project_id", "user_id", "consumer_type"}).items()}
    if "project_id" not in given:
        raise BadRequest("project_id: expected as query parameter, got none")
    project = _NAME(given["project_id"], "project_id")
    user = _NAME(given["user_id"], "user_id") if "user_id" in given else None
    kind = _TYPE(given["consumer_type"], "consumer_type") if "consumer_type" in given else None
    with call.database.snapshot() as connection:
        found = allocations.read_project_usages(connection, project, user=user, consumer_type=kind)
    return responses.document({"usages": found})


_RESHAPED = validation.record(
    {
        "inventories": validation.mapping(_UUID_TEXT, ALL_INVENTORIES, minimum=1),
        "allocations": validation.mapping(_UUID_TEXT, _OF_CONSUMER),
    }
)


def reshape(call: Call) -> Response:
    """POST /reshaper: the final inventories of some providers, and the allocations that move with them.

    A capacity may be negative here, as in Placement, which refuses that in the calls on inventories alone.
    """
    content = _RESHAPED(call.body(), "body")
    stocks = {
        uuid: NewInventories(
            generation=given["resource_provider_generation"],
            inventories={name: complete_inventory(inventory) for name, inventory in given["inventories"].items()},
        )
        for uuid, given in content["inventories"].items()
    }
    several = [_claim(consumer, given) for consumer, given in content["allocations"].items()]
    call.database.write(lambda connection: inventories.reshape(connection, stocks, several))
    return responses.empty()
