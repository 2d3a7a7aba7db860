"""The aggregates of one provider."""

from sqlalchemy import Connection
from werkzeug import Response

from placebench.reference import answers, checks
from placebench.reference.call import Call
from placebench.reference.store import aggregates, providers

new_aggregates = checks.record(
    {
        "resource_provider_generation": checks.any_integer,
        "aggregates": checks.array(checks.uuid, unique=True),
    }
)


def show(call: Call, uuid: str) -> Response:
    """GET /resource_providers/{uuid}/aggregates"""
    with call.database.snapshot() as connection:
        provider_id, generation = providers.id_and_generation(connection, uuid)
        return _answer(aggregates.of_provider(connection, provider_id), generation)


def replace(call: Call, uuid: str) -> Response:
    """PUT /resource_providers/{uuid}/aggregates: just these; the generation moves on in any case."""
    content = new_aggregates(call.body(), "body")

    def work(connection: Connection) -> int:
        provider = providers.locked_at(connection, uuid, content["resource_provider_generation"])
        return aggregates.replace(connection, provider, content["aggregates"])

    return _answer(content["aggregates"], call.database.write(work))


def _answer(uuids: list[str], generation: int) -> Response:
    return answers.document({"aggregates": uuids, "resource_provider_generation": generation})
