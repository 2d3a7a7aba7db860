"""When `shapes` reads who is in which aggregate: always, or where the request or a sharing provider asks for it."""

from placebench.reference.query import CandidateRequest
from placebench.reference.steps.optimization import Optimization, Way


def always(_request: CandidateRequest) -> bool:
    """For each request; 1 round trip."""
    return True


def where_asked_for(request: CandidateRequest) -> bool:
    """For those with member_of; where somebody shares it is read anyway, since aggregates say with whom."""
    return any(group.member_of or group.not_member_of for group in request.groups)


OPTIMIZATION = Optimization(
    name="unshared",
    step="memberships",
    of=("shapes",),
    plain=Way("always", always),
    better=Way("where_asked_for", where_asked_for),
    why="An aggregate matters to member_of and to sharing; providers that differ in it alone are otherwise alike.",
    source="Placement reads the sharing providers first, and takes a shortcut when there are none.",
    request="/allocation_candidates?resources=DISK_GB:10,VCPU:1,MEMORY_MB:256",
    metric="cpu_s",
    on="flat-perfload",
    topology="flat-perfload",
)
