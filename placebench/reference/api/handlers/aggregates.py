"""The aggregates of one provider."""

from sqlalchemy import Connection
from werkzeug import Response

from placebench.reference.api import responses, validation
from placebench.reference.api.call import Call
from placebench.reference.store import aggregates, providers

new_aggregates = validation.record(
    {
        "resource_provider_generation": validation.any_integer,
        "aggregates": validation.array(validation.uuid, unique=True),
    }
)


def show(call: Call, uuid: str) -> Response:
    """GET /resource_providers/{uuid}/aggregates"""
    with call.database.snapshot() as connection:
        provider_id, generation = providers.id_and_generation(connection, uuid)
        return _answer(aggregates.of_provider(connection, provider_id), generation)


def replace(call: Call, uuid: str) -> Response:
    """PUT /resource_providers/{uuid}/aggregates: just these; the generation moves on in any case."""
    body = call.body()

    def work(connection: Connection) -> Response:
        provider = providers.locked(connection, uuid)
        content = new_aggregates(body, "body")
        providers.check_generation(provider, content["resource_provider_generation"])
        return _answer(content["aggregates"], aggregates.replace(connection, provider, content["aggregates"]))

    return call.database.write(work)


def _answer(uuids: list[str], generation: int) -> Response:
    return responses.document({"aggregates": uuids, "resource_provider_generation": generation})
