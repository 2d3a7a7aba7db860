"""Usages: what is used of a provider, and by a project."""

from werkzeug import Response

from placebench.reference.api import responses, validation
from placebench.reference.api.call import Call
from placebench.reference.api.problems import BadRequest
from placebench.reference.api.validation import ANY_CLASS, LONGEST
from placebench.reference.store import providers, usages

_name = validation.text(LONGEST, minimum=1)
_type = validation.text(LONGEST, minimum=1, pattern=f"{ANY_CLASS}|all|unknown")


def of_provider(call: Call, uuid: str) -> Response:
    """GET /resource_providers/{uuid}/usages: of each class that it has an inventory of."""
    with call.database.snapshot() as connection:
        provider_id, generation = providers.id_and_generation(connection, uuid)
        found = usages.of_provider(connection, provider_id)
    return responses.document({"resource_provider_generation": generation, "usages": found})


def of_project(call: Call) -> Response:
    """GET /usages?project_id=P, with user_id and consumer_type if wanted: by type of consumer."""
    given = {name: values[-1] for name, values in call.parameters({"project_id", "user_id", "consumer_type"}).items()}
    if "project_id" not in given:
        raise BadRequest("project_id: expected as query parameter, got none")
    project = _name(given["project_id"], "project_id")
    user = _name(given["user_id"], "user_id") if "user_id" in given else None
    kind = _type(given["consumer_type"], "consumer_type") if "consumer_type" in given else None
    with call.database.snapshot() as connection:
        found = usages.of_project(connection, project, user=user, consumer_type=kind)
    return responses.document({"usages": found})
