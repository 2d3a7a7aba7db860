"""Candidates as JSON text with holes, which are filled for each tree that has the candidate: `CandidateTemplate`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from placebench.lab.reference.candidates.dedup.anchors import Anchor, Combination
from placebench.lab.reference.candidates.dedup.pieces import Pieces, TreeTexts, join_pieces
from placebench.lab.reference.candidates.results import by_orjson
from placebench.lab.reference.domain.candidates_query import CandidateRequest

# The (hole, class, amount) of each allocated resource, and the holes of each group's mapping.
_Identity = tuple[list[tuple[int, str, int]], list[list[int]]]


@dataclass(frozen=True, slots=True, eq=False)
class CandidateTemplate:
    """An allocation request as JSON with holes, for all trees whose anchors are equal; compared by identity."""

    pieces: Pieces  # a hole is the number of the uuid in the texts of a tree
    gives: bool  # whether a provider of the anchor's tree gives resources
    sharing: frozenset[int]  # the holes of the sharing providers that give resources
    shared: bool  # whether all of its providers share, so that another anchor may have the same candidate
    identity: _Identity

    def identity_in(self, tree: TreeTexts) -> object:
        """Return a value that is equal for equal candidates, also at different anchors."""
        amounts, mappings = self.identity
        return (
            frozenset((tree[hole], name, amount) for hole, name, amount in amounts),
            tuple(frozenset(tree[hole] for hole in holes) for holes in mappings),
        )


@dataclass(frozen=True, slots=True, eq=False)
class TemplateBatch:
    """The candidates that a set of trees has, with facts about all of them together."""

    templates: tuple[CandidateTemplate, ...]
    gives: bool  # whether a provider of the anchor's tree gives resources to a candidate
    shared: bool  # whether another anchor may have the same candidate as one of these
    sharing: frozenset[int]  # the holes of the sharing providers that give resources to a candidate

    @classmethod
    def of(cls, templates: Iterable[CandidateTemplate]) -> "TemplateBatch":
        """Return a batch of these templates."""
        templates = tuple(templates)
        sharing = frozenset[int]().union(*(each.sharing for each in templates))
        return cls(templates, any(each.gives for each in templates), any(each.shared for each in templates), sharing)


def make_template(anchor: Anchor, request: CandidateRequest, combination: Combination) -> CandidateTemplate:
    """Return the template of the candidate that the combination makes."""
    own = len(anchor.relevances)
    # Holes of sharing providers are shifted: a tree's texts have the providers' resources between its uuids and theirs.
    options = [[each if each < own else own + each for each in option] for option in combination]
    given: dict[int, dict[str, int]] = {}
    for group, option in zip(request.groups, options, strict=True):
        for nth, (name, amount) in enumerate(group.resources):
            resources = given.setdefault(option[nth if len(option) > 1 else 0], {})
            resources[name] = resources.get(name, 0) + amount
    mapped = [list(dict.fromkeys(option)) for option in options]
    return CandidateTemplate(
        _pieces(request, given, mapped),
        any(hole < own for hole in given),
        frozenset(hole for hole in given if hole >= own),
        all(anchor.relevance(position).shares for option in combination for position in option),
        ([(hole, *amount) for hole, resources in given.items() for amount in resources.items()], mapped),
    )


def _pieces(
    request: CandidateRequest, given: Mapping[int, Mapping[str, int]], mapped: Sequence[Iterable[int]]
) -> Pieces:
    """Return the pieces of `,{"allocations":{...},"mappings":{...}}`; the comma separates it from the one before."""
    raw: list[str | int] = [',{"allocations":{']
    for count, (hole, resources) in enumerate(given.items()):
        raw += ["," if count else "", hole]
        raw.append(f':{{"resources":{by_orjson(resources).decode()}}}')
    raw.append('},"mappings":{')
    for count, (group, holes) in enumerate(zip(request.groups, mapped, strict=True)):
        raw.append(f"{',' if count else ''}{by_orjson(group.suffix).decode()}:[")
        for nth, hole in enumerate(holes):
            raw += ["," if nth else "", hole]
        raw.append("]")
    return join_pieces([*raw, "}}"])
