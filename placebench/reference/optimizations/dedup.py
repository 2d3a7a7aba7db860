"""The steps of `dedup` and `cached`: how many trees are read, what of them, and which are solved once for all."""

from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.candidates.dedup.relevance import same_provider_class, same_relevance
from placebench.reference.candidates.dedup.selection import Selection
from placebench.reference.optimizations.optimization import REFERENCE_REQUEST, Implementation, Optimization


def read_all_trees(_choice: Selection) -> bool:
    """Read all trees: the limit cuts what was found in them."""
    return False


def _read_few_trees(choice: Selection) -> bool:
    """Read a few where the first candidates are wanted, and not any, or the first ones of each tree."""
    return choice.left is not None and choice.depth_first


REACH = Optimization(
    name="few",
    field="reach",
    algorithms=("dedup",),
    baseline=Implementation("all_trees", read_all_trees),
    alternative=Implementation("few_trees", _read_few_trees),
    why="Ten candidates are in the first few trees, and the other thousand need not be read.",
    source="Placement searches all trees and applies limit last: 343 ms of CPU with limit=10, 472 without.",
    request=f"{REFERENCE_REQUEST}&limit=10",
    metric="cpu_s",
)


def _always_read(_request: CandidateRequest) -> bool:
    """Read them for each request; 1 round trip."""
    return True


def _read_if_requested(request: CandidateRequest) -> bool:
    """Read them with member_of; where a provider shares they are read anyway, since they say with whom."""
    return any(group.member_of or group.not_member_of for group in request.groups)


MEMBERSHIPS = Optimization(
    name="unshared",
    field="memberships",
    algorithms=("dedup",),
    baseline=Implementation("always", _always_read),
    alternative=Implementation("if_requested", _read_if_requested),
    why="An aggregate matters to member_of and to sharing; providers that differ in it alone are otherwise alike.",
    source="Placement reads the sharing providers first, and takes a shortcut when there are none.",
    request="/allocation_candidates?resources=DISK_GB:10,VCPU:1,MEMORY_MB:256",
    metric="cpu_s",
    data="flat-perfload",
    topology="flat-perfload",
)


LIKENESS = Optimization(
    name="alike",
    field="equivalence",
    algorithms=("dedup", "cached"),
    baseline=Implementation("equal", same_provider_class),
    alternative=Implementation("relevant", same_relevance),
    why="A thousand trees with five hundred different disks are 504 distinct trees, and four for a request.",
    source="Our measurement: one search for each distinct tree was 18× faster than Placement on equal trees, and "
    "3.5× on trees that differ.",
    metric="cpu_s",
    data="nested-perfload with disks that differ",
)
