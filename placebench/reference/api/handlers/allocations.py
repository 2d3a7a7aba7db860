"""Allocations: what consumers have of providers."""

from typing import Any
from uuid import UUID

from werkzeug import Response

from placebench.reference.api import responses, validation
from placebench.reference.api.call import Call
from placebench.reference.api.problems import BadRequest
from placebench.reference.api.validation import ANY_CLASS, LONGEST
from placebench.reference.store import allocations, claims, providers
from placebench.reference.store.consumers import Claim

uuid_text = validation.text(36, pattern="[0-9a-fA-F-]{36}")
_name = validation.text(LONGEST, minimum=1)
_class = validation.text(LONGEST, minimum=1, pattern=ANY_CLASS)
_resources = validation.mapping(_class, validation.at_least(1), minimum=1)
_allocation = validation.record({"resources": _resources}, {"generation": validation.any_integer})
_mappings = validation.mapping(validation.text(LONGEST), validation.array(validation.uuid, minimum=1), minimum=1)
of_one_consumer = validation.record(
    {
        "allocations": validation.mapping(uuid_text, _allocation),
        "project_id": _name,
        "user_id": _name,
        "consumer_generation": validation.nullable(validation.any_integer),
        "consumer_type": _class,
    },
    {"mappings": _mappings},
)
of_consumers = validation.mapping(uuid_text, of_one_consumer, minimum=1)


def show(call: Call, consumer_uuid: str) -> Response:
    """GET /allocations/{consumer_uuid}: an unknown consumer has none."""
    with call.database.snapshot() as connection:
        return responses.document(allocations.of_consumer(connection, consumer_uuid))


def replace(call: Call, consumer_uuid: str) -> Response:
    """PUT /allocations/{consumer_uuid}: all that the consumer is to have; nothing, to take it all away."""
    if not validation.looks_like_uuid(consumer_uuid):
        raise BadRequest(f"consumer {consumer_uuid}: expected a UUID")
    claim = claim_of(str(UUID(consumer_uuid)), of_one_consumer(call.body(), "body"))
    claims.WAYS[call.settings.claims](call.database, claim)
    return responses.nothing()


def replace_several(call: Call) -> Response:
    """POST /allocations: all that several consumers are to have, together or not at all."""
    several = [claim_of(consumer, content) for consumer, content in of_consumers(call.body(), "body").items()]
    call.database.write(lambda connection: claims.write(connection, several))
    return responses.nothing()


def delete(call: Call, consumer_uuid: str) -> Response:
    """DELETE /allocations/{consumer_uuid}: all of them, whatever the generation."""
    call.database.write(lambda connection: allocations.remove(connection, consumer_uuid))
    return responses.nothing()


def of_provider(call: Call, uuid: str) -> Response:
    """GET /resource_providers/{uuid}/allocations: by consumer."""
    with call.database.snapshot() as connection:
        provider_id, generation = providers.id_and_generation(connection, uuid)
        found = allocations.of_provider(connection, provider_id)
    return responses.document({"allocations": found, "resource_provider_generation": generation})


def claim_of(consumer: str, content: dict[str, Any]) -> Claim:
    """The claim that a checked body makes."""
    return Claim(
        consumer=consumer,
        generation=content["consumer_generation"],
        project=content["project_id"],
        user=content["user_id"],
        consumer_type=content["consumer_type"],
        allocations={provider: entry["resources"] for provider, entry in content["allocations"].items()},
    )
