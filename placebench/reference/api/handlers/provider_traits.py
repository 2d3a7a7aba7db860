"""The traits of one provider."""

from sqlalchemy import Connection
from werkzeug import Response

from placebench.reference.api import responses, validation
from placebench.reference.api.call import Call
from placebench.reference.api.validation import LONGEST
from placebench.reference.store import providers, traits

new_traits = validation.record(
    {
        "resource_provider_generation": validation.any_integer,
        "traits": validation.array(validation.text(LONGEST, minimum=1)),
    }
)


def show(call: Call, uuid: str) -> Response:
    """GET /resource_providers/{uuid}/traits"""
    with call.database.snapshot() as connection:
        provider_id, generation = providers.id_and_generation(connection, uuid)
        return _answer(traits.of_provider(connection, provider_id), generation)


def replace(call: Call, uuid: str) -> Response:
    """PUT /resource_providers/{uuid}/traits: just these; the generation moves on only if that changes something."""
    content = new_traits(call.body(), "body")
    names = sorted(set(content["traits"]))

    def work(connection: Connection) -> Response:
        provider = providers.locked(connection, uuid)
        providers.check_generation(provider, content["resource_provider_generation"])
        return _answer(names, traits.replace(connection, provider, names))

    return call.database.write(work)


def clear(call: Call, uuid: str) -> Response:
    """DELETE /resource_providers/{uuid}/traits: none, whatever the generation."""
    call.database.write(lambda connection: traits.replace(connection, providers.locked(connection, uuid), []))
    return responses.nothing()


def _answer(names: list[str], generation: int) -> Response:
    return responses.document({"traits": names, "resource_provider_generation": generation})
