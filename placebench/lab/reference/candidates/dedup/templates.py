"""Candidates as JSON text with holes, which are filled for each tree that has the candidate: `CandidateTemplate`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from placebench.lab.reference.candidates.dedup.anchors import Anchor, Combination
from placebench.lab.reference.candidates.dedup.pieces import Pieces, TreeTexts
from placebench.lab.reference.candidates.memo import Memo
from placebench.lab.reference.candidates.results import by_orjson
from placebench.lab.reference.domain.candidates_query import CandidateRequest

# The amounts of each class by the hole of their provider, and the holes of each group's mapping.
_Identity = tuple[Mapping[int, Mapping[str, int]], Sequence[Sequence[int]]]
_NONE: Final = frozenset[int]()


@dataclass(frozen=True, slots=True, eq=False)
class CandidateTemplate:
    """An allocation request as JSON with holes, for all trees whose anchors are equal; compared by identity."""

    pieces: Pieces  # a hole is the number of the uuid in the texts of a tree
    gives: bool  # whether a provider of the anchor's tree gives resources
    sharing: frozenset[int]  # the holes of the sharing providers that give resources
    shared: bool  # whether all of its providers share, so that another anchor may have the same candidate
    identity: _Identity | None  # None if it is not shared

    def identity_in(self, tree: TreeTexts) -> object:
        """Return a value that is equal for equal candidates, also at different anchors; only for one that is shared."""
        assert self.identity is not None
        given, mappings = self.identity
        return (
            frozenset((tree[hole], *amount) for hole, amounts in given.items() for amount in amounts.items()),
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


class TemplateMaker:
    """Makes the templates of a request's candidates; texts that many of them have are written once."""

    def __init__(self, request: CandidateRequest) -> None:
        """request: the request, with the groups that each combination has a part for."""
        self._groups = request.groups
        self._openings = [
            f"{',' if number else ''}{by_orjson(group.suffix).decode()}:["
            for number, group in enumerate(request.groups)
        ]
        self._resources: Memo[tuple[tuple[str, int], ...], str] = Memo(
            lambda amounts: f':{{"resources":{by_orjson(dict(amounts)).decode()}}}'
        )

    def make(self, anchor: Anchor, combination: Combination) -> CandidateTemplate:
        """Return the template of the candidate that the combination makes."""
        own = len(anchor.relevances)
        given: dict[int, dict[str, int]] = {}
        mapped = []
        for group, option in zip(self._groups, combination, strict=True):
            # Holes of sharing providers are shifted: a tree's texts have resources between its uuids and theirs.
            holes = [each if each < own else own + each for each in option]
            mapped.append(list(dict.fromkeys(holes)) if len(holes) > 1 else holes)
            for nth, (name, amount) in enumerate(group.resources):
                resources = given.setdefault(holes[nth if len(holes) > 1 else 0], {})
                resources[name] = resources.get(name, 0) + amount
        shared = all(anchor.relevance(position).shares for option in combination for position in option)
        return CandidateTemplate(
            self._pieces(given, mapped),
            any(hole < own for hole in given),
            frozenset(hole for hole in given if hole >= own) if anchor.sharing else _NONE,
            shared,
            (given, mapped) if shared else None,
        )

    def _pieces(self, given: Mapping[int, Mapping[str, int]], mapped: Sequence[Iterable[int]]) -> Pieces:
        """Return the pieces of `,{"allocations":{...},"mappings":{...}}`, with a comma after the candidate before."""
        pieces: list[str | int] = []
        text = ',{"allocations":{'
        for count, (hole, resources) in enumerate(given.items()):
            pieces += (f"{text}," if count else text, hole)
            text = self._resources[tuple(resources.items())]
        text += '},"mappings":{'
        for opening, holes in zip(self._openings, mapped, strict=True):
            text += opening
            for hole in holes:
                pieces += (text, hole)
                text = ","
            text = "]"
        return (*pieces, f"{text}}}}}")
