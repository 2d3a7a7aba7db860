"""The versions document: what is spoken here. It asks no database, which makes it the benchmark's control."""

from werkzeug import Response

from placebench.reference.api import responses
from placebench.reference.api.call import Call
from placebench.reference.api.microversion import SPOKEN


def show(call: Call) -> Response:
    """GET /"""
    version = {
        "id": "v1.0",
        "max_version": str(SPOKEN),
        "min_version": str(SPOKEN),
        "status": "CURRENT",
        "links": [{"rel": "self", "href": call.prefix}],
    }
    return responses.document({"versions": [version]})
