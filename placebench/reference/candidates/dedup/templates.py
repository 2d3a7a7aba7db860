"""A candidate as text with holes, for every tree that has it: the key piece is `Part`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.candidates.dedup.backtracking import Anchor, Combination
from placebench.reference.candidates.dedup.tree_index import Tree

Pieces = tuple[str | int, ...]  # text, or the place in the tree whose uuid belongs there


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One allocation request; compared by identity."""

    pieces: Pieces
    gives: bool  # a provider of the anchor's tree gives something
    guest_roots: frozenset[int]  # of the trees of guests that give something
    shared: bool  # all of its providers share, so that another anchor may have the same candidate
    identity: tuple[object, ...]  # with places of the tree, if it is shared

    def identity_in(self, tree: Tree) -> object:
        """What two candidates are equal in, whatever their anchors."""
        amounts, mappings = self.identity
        return (
            frozenset((_named(tree, key), *asked) for key, *asked in amounts),  # type: ignore[attr-defined]
            tuple(frozenset(_named(tree, key) for key in keys) for keys in mappings),  # type: ignore[attr-defined]
        )


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Parts that the same trees have, and what is asked of all of them again and again."""

    parts: tuple[Part, ...]
    gives: bool  # a provider of the anchor's tree gives something to one of them
    shared: bool  # one of them may be another anchor's too
    guest_roots: frozenset[int]

    @classmethod
    def of(cls, parts: Iterable[Part]) -> "Batch":
        """These together."""
        parts = tuple(parts)
        guests = frozenset[int]().union(*(part.guest_roots for part in parts))
        return cls(parts, any(part.gives for part in parts), any(part.shared for part in parts), guests)


def part_of(anchor: Anchor, request: CandidateRequest, combination: Combination) -> Part:
    """The candidate that the combination makes."""
    own = len(anchor.matters)
    given: dict[int, dict[str, int]] = {}
    for group, option in zip(request.groups, combination, strict=True):
        for nth, (name, amount) in enumerate(group.resources):
            resources = given.setdefault(option[nth if len(option) > 1 else 0], {})
            resources[name] = resources.get(name, 0) + amount
    names = {position: guest.uuid for position, guest in enumerate(anchor.guests, own)}
    mapped = [dict.fromkeys(option) for option in combination]
    positions = {position for option in combination for position in option}
    return Part(
        _pieces(request, given, mapped, names),
        any(position < own for position in given),
        frozenset(anchor.guests[position - own].root_id for position in given if position >= own),
        all(anchor.matter(position).shares for position in positions),
        _identity(given, mapped, names),
    )


def _identity(
    given: Mapping[int, Mapping[str, int]], mapped: Sequence[Iterable[int]], names: Mapping[int, str]
) -> tuple[object, ...]:
    amounts = [(names.get(key, key), *asked) for key, resources in given.items() for asked in resources.items()]
    return amounts, [[names.get(key, key) for key in keys] for keys in mapped]


def _named(tree: Tree, key: str | int) -> str:
    return key if isinstance(key, str) else tree[key]


def _pieces(
    request: CandidateRequest,
    given: Mapping[int, Mapping[str, int]],
    mapped: Sequence[Iterable[int]],
    names: Mapping[int, str],
) -> Pieces:
    """`,{"allocations":{...},"mappings":{...}}`: the comma parts it from the one before."""
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
    return joined([*raw, "}}"])


def joined(raw: Iterable[str | int]) -> Pieces:
    """The pieces with neighbouring texts made one."""
    pieces: list[str | int] = []
    for piece in raw:
        last = pieces[-1] if pieces else 0
        if isinstance(piece, str) and isinstance(last, str):
            pieces[-1] = last + piece
        else:
            pieces.append(piece)
    return tuple(pieces)


def filled(pieces: Pieces, trees: Sequence[Tree]) -> list[str]:
    """The text for each tree in pieces: the template repeated, its holes filled column by column, without a loop."""
    text = [piece if isinstance(piece, str) else "" for piece in pieces] * len(trees)
    columns: dict[int, list[str]] = {}
    for hole, piece in enumerate(pieces):
        if isinstance(piece, int):
            if piece not in columns:
                columns[piece] = [tree[piece] for tree in trees]
            text[hole :: len(pieces)] = columns[piece]
    return text
