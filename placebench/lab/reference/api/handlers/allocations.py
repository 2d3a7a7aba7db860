"""Handlers of allocations (the resources of providers that consumers have), usages and the reshaper."""

from typing import Any, Final
from uuid import UUID

from werkzeug import Response

from placebench.lab.reference.api import responses
from placebench.lab.reference.api.call import Call
from placebench.lab.reference.api.handlers.inventories import (
    ALL_INVENTORIES,
    complete_inventory,
    without_odd_names,
)
from placebench.lab.reference.api.microversion import NEWEST, SINCE_BY_PROVIDER
from placebench.lab.reference.domain import validation
from placebench.lab.reference.domain.problems import BadRequest, Forbidden
from placebench.lab.reference.domain.validation import ANY_CLASS, MAX_NAME_LENGTH, Check
from placebench.lab.reference.store import allocations, claims, inventories, providers
from placebench.lab.reference.store.consumers import ConsumerClaim
from placebench.lab.reference.store.inventories import NewInventories

_UUID_TEXT = validation.text(36, pattern="[0-9a-fA-F-]{36}")
_NAME = validation.text(MAX_NAME_LENGTH, minimum=1)
_CLASS = validation.text(MAX_NAME_LENGTH, minimum=1, pattern=ANY_CLASS)
_RESOURCES = validation.mapping(_CLASS, validation.at_least(1), minimum=1)
_ALLOCATION = validation.record({"resources": _RESOURCES}, {"generation": validation.any_integer})
_MAPPINGS = validation.mapping(
    validation.text(MAX_NAME_LENGTH), validation.array(validation.uuid, minimum=1), minimum=1
)
_LISTED = validation.record(
    {"resource_provider": validation.record({"uuid": validation.uuid}), "resources": _RESOURCES}
)
_SINCE_OWNERS: Final = 8  # a project and a user
_SINCE_GENERATION: Final = 28
_SINCE_MAPPINGS: Final = 34
_SINCE_TYPE: Final = 38
_NO_OWNER: Final = "00000000-0000-0000-0000-000000000000"  # Placement's default of incomplete_consumer_project_id


def _of_consumer(minor: int, *, may_be_empty: bool) -> Check[dict[str, Any]]:
    """Return the check of a body with one consumer's new allocations, in the form of the minor version."""
    minimum = 0 if may_be_empty else 1
    if minor < SINCE_BY_PROVIDER:
        required: dict[str, Check[Any]] = {"allocations": validation.array(_LISTED, minimum=minimum)}
    else:
        required = {"allocations": validation.mapping(_UUID_TEXT, _ALLOCATION, minimum=minimum)}
    if minor >= _SINCE_OWNERS:
        required |= {"project_id": _NAME, "user_id": _NAME}
    if minor >= _SINCE_GENERATION:
        required["consumer_generation"] = validation.nullable(validation.any_integer)
    if minor >= _SINCE_TYPE:
        required["consumer_type"] = _CLASS
    return validation.record(required, {"mappings": _MAPPINGS} if minor >= _SINCE_MAPPINGS else {})


_OF_CONSUMER: Final = [_of_consumer(minor, may_be_empty=True) for minor in range(NEWEST.minor + 1)]
_OF_ONE_CONSUMER: Final = [
    _of_consumer(minor, may_be_empty=minor >= _SINCE_GENERATION) for minor in range(NEWEST.minor + 1)
]
_OF_CONSUMERS: Final = [validation.mapping(_UUID_TEXT, check, minimum=1) for check in _OF_CONSUMER]


ADMINISTRATION: Final = frozenset({"admin", "service"})
READER: Final = "reader"
_SINCE_SHOWN: Final = {
    "allocations": 0,
    "project_id": SINCE_BY_PROVIDER,
    "user_id": SINCE_BY_PROVIDER,
    "consumer_generation": _SINCE_GENERATION,
    "consumer_type": _SINCE_TYPE,
}


def show_allocations(call: Call, consumer_uuid: str) -> Response:
    """GET /allocations/{consumer_uuid}: show the consumer's allocations; none for an unknown consumer."""
    with call.database.read_at_once() as connection:
        found = allocations.read_consumer_allocations(connection, consumer_uuid)
    return responses.document({name: value for name, value in found.items() if call.minor >= _SINCE_SHOWN[name]})


def replace_allocations(call: Call, consumer_uuid: str) -> Response:
    """PUT /allocations/{consumer_uuid}: replace all allocations of the consumer; a body without any removes them."""
    if not validation.looks_like_uuid(consumer_uuid):
        raise BadRequest(f"consumer {consumer_uuid}: expected a UUID")
    claim = _claim(str(UUID(consumer_uuid)), _OF_ONE_CONSUMER[call.minor](call.body(), "body"))
    claims.WRITERS[call.settings.claims](call.database, claim)
    return responses.empty()


def replace_several(call: Call) -> Response:
    """POST /allocations: replace all allocations of several consumers in one transaction."""
    several = [
        _claim(consumer, content) for consumer, content in _OF_CONSUMERS[call.minor](call.body(), "body").items()
    ]
    call.database.write(lambda connection: claims.write_claims(connection, several))
    return responses.empty()


def delete_allocations(call: Call, consumer_uuid: str) -> Response:
    """DELETE /allocations/{consumer_uuid}: remove all allocations of the consumer without a check of its generation."""
    allocations.delete_allocations(call.database, consumer_uuid)
    return responses.empty()


def show_provider_allocations(call: Call, uuid: str) -> Response:
    """GET /resource_providers/{uuid}/allocations: show the allocations on the provider by consumer."""
    with call.database.snapshot() as connection:
        provider_id, generation = providers.read_id_and_generation(connection, uuid)
        found = allocations.read_provider_allocations(connection, provider_id)
    if call.minor < _SINCE_GENERATION:
        found = {consumer: {"resources": entry["resources"]} for consumer, entry in found.items()}
    return responses.document({"allocations": found, "resource_provider_generation": generation})


def _claim(consumer: str, content: dict[str, Any]) -> ConsumerClaim:
    """Return the claim in a checked body; fields that its microversion does not have get Placement's defaults."""
    given = content["allocations"]
    if isinstance(given, list):
        given = {entry["resource_provider"]["uuid"]: entry for entry in given}
    return ConsumerClaim(
        consumer=consumer,
        generation=content.get("consumer_generation"),
        project=content.get("project_id", _NO_OWNER),
        user=content.get("user_id", _NO_OWNER),
        consumer_type=content.get("consumer_type"),
        allocations={provider: entry["resources"] for provider, entry in given.items()},
        any_generation="consumer_generation" not in content,
    )


_TYPE = validation.text(MAX_NAME_LENGTH, minimum=1, pattern=f"{ANY_CLASS}|all|unknown")


def show_provider_usages(call: Call, uuid: str) -> Response:
    """GET /resource_providers/{uuid}/usages: show the amount in use of each class in the provider's inventories."""
    with call.database.read_at_once() as connection:
        generation, found = allocations.read_provider_usages(connection, uuid)
    return responses.document({"resource_provider_generation": generation, "usages": found})


def show_project_usages(call: Call) -> Response:
    """GET /usages?project_id=P: show the project's amounts in use, since 1.38 by consumer type.

    The optional parameters are user_id and consumer_type. A user with the role reader only may see only the user's own
    project.
    """
    allowed = {"project_id", "user_id", *(["consumer_type"] if call.minor >= _SINCE_TYPE else [])}
    given = {name: values[-1] for name, values in call.parameters(allowed).items()}
    headers = call.request.headers
    token_user, _, own = headers.get("X-Auth-Token", "").partition(":")
    own = headers.get("X-Project-Id", own or token_user)
    if not ADMINISTRATION.intersection(call.held_roles) and given.get("project_id") != own:
        raise Forbidden(f"a {READER} may see the usages of his own project only")
    if "project_id" not in given:
        raise BadRequest("project_id: expected as query parameter, got none")
    project = _NAME(given["project_id"], "project_id")
    user = _NAME(given["user_id"], "user_id") if "user_id" in given else None
    kind = _TYPE(given["consumer_type"], "consumer_type") if "consumer_type" in given else None
    by_type = call.minor >= _SINCE_TYPE
    with call.database.snapshot() as connection:
        found = allocations.read_project_usages(
            connection, project, user=user, consumer_type=kind if by_type else allocations.ALL_TYPES
        )
    if not by_type:
        together = found.get(allocations.ALL_TYPES, {})
        return responses.document({"usages": {name: used for name, used in together.items() if name.isupper()}})
    return responses.document({"usages": found})


_RESHAPED: Final = [
    validation.record(
        {
            "inventories": validation.mapping(_UUID_TEXT, ALL_INVENTORIES, minimum=1),
            "allocations": validation.mapping(_UUID_TEXT, check),
        }
    )
    for check in _OF_CONSUMER
]


def reshape(call: Call) -> Response:
    """POST /reshaper: replace the inventories of some providers together with the allocations that move with them.

    A capacity may be negative here, as in Placement: only requests on inventories reject that.
    """
    body = named = call.body()
    if isinstance(body, dict) and isinstance(body.get("inventories"), dict):
        named = {**body, "inventories": {uuid: without_odd_names(each) for uuid, each in body["inventories"].items()}}
    content = _RESHAPED[call.minor](named, "body")
    if named != body:  # as for one provider, such names are refused after generations
        generations = {uuid: each["resource_provider_generation"] for uuid, each in content["inventories"].items()}
        with call.database.read_at_once() as connection:
            inventories.check_generations(connection, generations)
        _RESHAPED[call.minor](body, "body")
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
