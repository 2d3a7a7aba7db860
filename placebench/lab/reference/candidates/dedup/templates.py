"""Candidates as JSON text with holes, for every tree that has them: `CandidateTemplate`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from placebench.lab.reference.candidates.dedup.anchors import Anchor, Combination
from placebench.lab.reference.candidates.dedup.pieces import Pieces, TreeTexts, join_pieces
from placebench.lab.reference.candidates.results import by_orjson
from placebench.lab.reference.domain.candidates_query import CandidateRequest

# The holes, classes and amounts of what is given; the holes of each group's mapping.
_Identity = tuple[list[tuple[int, str, int]], list[list[int]]]


@dataclass(frozen=True, slots=True, eq=False)
class CandidateTemplate:
    """One allocation request of equal anchors; compared by identity."""

    pieces: Pieces  # a hole is where the tree's texts have the uuid that belongs there
    gives: bool  # a provider of the anchor's tree gives something
    sharing: frozenset[int]  # the holes of sharing providers that give something
    shared: bool  # all of its providers share, so that another anchor may have the same candidate
    identity: _Identity

    def identity_in(self, tree: TreeTexts) -> object:
        """Return what equal candidates have in common, whatever their anchors."""
        amounts, mappings = self.identity
        return (
            frozenset((tree[hole], name, amount) for hole, name, amount in amounts),
            tuple(frozenset(tree[hole] for hole in holes) for holes in mappings),
        )


@dataclass(frozen=True, slots=True, eq=False)
class TemplateBatch:
    """Candidates that the same trees have, and what is needed of all of them time and again."""

    templates: tuple[CandidateTemplate, ...]
    gives: bool  # a provider of the anchor's tree gives something to one of them
    shared: bool  # one of them may be another anchor's too
    sharing: frozenset[int]

    @classmethod
    def of(cls, templates: Iterable[CandidateTemplate]) -> "TemplateBatch":
        """Return these as one batch."""
        templates = tuple(templates)
        sharing = frozenset[int]().union(*(each.sharing for each in templates))
        return cls(templates, any(each.gives for each in templates), any(each.shared for each in templates), sharing)


def make_template(anchor: Anchor, request: CandidateRequest, combination: Combination) -> CandidateTemplate:
    """Return the candidate that the combination makes."""
    own = len(anchor.relevances)
    # A hole is a position in the tree, or beyond it, as the tree has as many resources between.
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
    """`,{"allocations":{...},"mappings":{...}}`: the comma templates it from the one before."""
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
