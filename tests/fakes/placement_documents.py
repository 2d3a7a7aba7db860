"""Documents with allocation candidates."""

from typing import Any


def document(*roots: str, summaries: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Return a document with a candidate per root, on its child, and the summaries of both."""
    return {
        "allocation_requests": [
            {"allocations": {f"{root}-child": {"resources": {"VCPU": 1}}}, "mappings": {"": [f"{root}-child"]}}
            for root in roots
        ],
        "provider_summaries": {
            uuid: {"resources": {}, "traits": [], "root_provider_uuid": root}
            for root in summaries or roots
            for uuid in (root, f"{root}-child")
        },
    }
