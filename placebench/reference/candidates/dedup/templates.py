"""Candidates as JSON text with holes, for every tree that has them: `CandidateTemplate`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.candidates.dedup.anchors import Anchor, Combination
from placebench.reference.candidates.dedup.tree_index import TreeUuids

_Pieces = tuple[str | int, ...]  # text, or the place in the tree whose uuid belongs there


@dataclass(frozen=True, slots=True, eq=False)
class CandidateTemplate:
    """One allocation request of equal anchors; compared by identity."""

    pieces: _Pieces
    gives: bool  # a provider of the anchor's tree gives something
    sharing_roots: frozenset[int]  # of the trees of sharing providers that give something
    shared: bool  # all of its providers share, so that another anchor may have the same candidate
    identity: tuple[object, ...]  # with places of the tree, if it is shared

    def identity_in(self, tree: TreeUuids) -> object:
        """Return what equal candidates have in common, whatever their anchors."""
        amounts, mappings = self.identity
        return (
            frozenset((_uuid_of(tree, key), *amount) for key, *amount in amounts),  # type: ignore[attr-defined]
            tuple(frozenset(_uuid_of(tree, key) for key in keys) for keys in mappings),  # type: ignore[attr-defined]
        )


@dataclass(frozen=True, slots=True, eq=False)
class TemplateBatch:
    """Candidates that the same trees have, and what is needed of all of them time and again."""

    templates: tuple[CandidateTemplate, ...]
    gives: bool  # a provider of the anchor's tree gives something to one of them
    shared: bool  # one of them may be another anchor's too
    sharing_roots: frozenset[int]

    @classmethod
    def of(cls, templates: Iterable[CandidateTemplate]) -> "TemplateBatch":
        """Return these as one batch."""
        templates = tuple(templates)
        sharing = frozenset[int]().union(*(each.sharing_roots for each in templates))
        return cls(templates, any(each.gives for each in templates), any(each.shared for each in templates), sharing)


def make_template(anchor: Anchor, request: CandidateRequest, combination: Combination) -> CandidateTemplate:
    """Return the candidate that the combination makes."""
    own = len(anchor.relevances)
    given: dict[int, dict[str, int]] = {}
    for group, option in zip(request.groups, combination, strict=True):
        for nth, (name, amount) in enumerate(group.resources):
            resources = given.setdefault(option[nth if len(option) > 1 else 0], {})
            resources[name] = resources.get(name, 0) + amount
    names = {position: provider.uuid for position, provider in enumerate(anchor.sharing, own)}
    mapped = [dict.fromkeys(option) for option in combination]
    positions = {position for option in combination for position in option}
    return CandidateTemplate(
        _pieces(request, given, mapped, names),
        any(position < own for position in given),
        frozenset(anchor.sharing[position - own].root_id for position in given if position >= own),
        all(anchor.relevance(position).shares for position in positions),
        _identity(given, mapped, names),
    )


def _identity(
    given: Mapping[int, Mapping[str, int]], mapped: Sequence[Iterable[int]], names: Mapping[int, str]
) -> tuple[object, ...]:
    amounts = [(names.get(key, key), *amount) for key, resources in given.items() for amount in resources.items()]
    return amounts, [[names.get(key, key) for key in keys] for keys in mapped]


def _uuid_of(tree: TreeUuids, key: str | int) -> str:
    return key if isinstance(key, str) else tree[key]


def _pieces(
    request: CandidateRequest,
    given: Mapping[int, Mapping[str, int]],
    mapped: Sequence[Iterable[int]],
    names: Mapping[int, str],
) -> _Pieces:
    """`,{"allocations":{...},"mappings":{...}}`: the comma templates it from the one before."""
    raw: list[str | int] = [',{"allocations":{']
    for count, (position, resources) in enumerate(given.items()):
        raw += ["," if count else "", names.get(position, position)]
        raw.append(':{"resources":' + json.dumps(resources, separators=(",", ":")) + "}")
    raw.append('},"mappings":{')
    for count, (group, positions) in enumerate(zip(request.groups, mapped, strict=True)):
        raw.append(("," if count else "") + json.dumps(group.suffix) + ":[")
        for nth, position in enumerate(positions):
            raw += ["," if nth else "", names.get(position, position)]
        raw.append("]")
    return join_pieces([*raw, "}}"])


def join_pieces(raw: Iterable[str | int]) -> _Pieces:
    """Join neighbouring texts into one."""
    pieces: list[str | int] = []
    for piece in raw:
        last = pieces[-1] if pieces else 0
        if isinstance(piece, str) and isinstance(last, str):
            pieces[-1] = last + piece
        else:
            pieces.append(piece)
    return tuple(pieces)


def fill_pieces(pieces: _Pieces, trees: Sequence[TreeUuids]) -> list[str]:
    """Return the text for each tree in pieces: repeated, and its holes filled column by column, without a loop."""
    text = [piece if isinstance(piece, str) else "" for piece in pieces] * len(trees)
    columns: dict[int, list[str]] = {}
    for hole, piece in enumerate(pieces):
        if isinstance(piece, int):
            if piece not in columns:
                columns[piece] = [tree[piece] for tree in trees]
            text[hole :: len(pieces)] = columns[piece]
    return text
