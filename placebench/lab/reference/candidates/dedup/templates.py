"""Candidates as JSON text with holes, which are filled for each tree that has the candidate: `CandidateTemplate`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from placebench.lab.reference.candidates.dedup.anchors import Anchor, Combination
from placebench.lab.reference.candidates.dedup.pieces import Pieces
from placebench.lab.reference.candidates.memo import Memo
from placebench.lab.reference.candidates.results import by_orjson
from placebench.lab.reference.domain.candidates_query import CandidateRequest

_NONE: Final = frozenset[int]()


@dataclass(frozen=True, slots=True, eq=False)
class CandidateTemplate:
    """An allocation request as JSON with holes, for all trees whose anchors are equal; compared by identity."""

    pieces: Pieces  # a hole is the number of the uuid in the texts of a tree
    gives: bool  # whether a provider of the anchor's tree gives resources
    sharing: frozenset[int]  # the holes of the sharing providers that give resources
    shared: tuple[int, ...] | None
    """The holes of the provider of each group, or of each class of the spreading group, if all providers share.

    Another anchor may have the same candidate; it has the same uuids in these holes then, and no other candidate has.
    """


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
        shared = any(each.shared is not None for each in templates)
        return cls(templates, any(each.gives for each in templates), shared, sharing)


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
        mapped, every = [], list[int]()
        for group, option in zip(self._groups, combination, strict=True):
            # Holes of sharing providers are shifted: a tree's texts have resources between its uuids and theirs.
            holes = [each if each < own else own + each for each in option]
            every += holes
            mapped.append(list(dict.fromkeys(holes)) if len(holes) > 1 else holes)
            for nth, (name, amount) in enumerate(group.resources):
                resources = given.setdefault(holes[nth if len(holes) > 1 else 0], {})
                resources[name] = resources.get(name, 0) + amount
        shared = all(anchor.relevance(position).shares for option in combination for position in option)
        return CandidateTemplate(
            self._pieces(given, mapped),
            any(hole < own for hole in given),
            frozenset(hole for hole in given if hole >= own) if anchor.sharing else _NONE,
            tuple(every) if shared else None,
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
