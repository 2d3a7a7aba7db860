"""JSON text with holes, which are filled for many trees at once: `Pieces`."""

from collections.abc import Iterable, Sequence

TreeTexts = Sequence[str]
"""The texts in which a tree's JSON differs: the quoted uuid of each provider, then the resources of each provider.

For candidates, the uuids of the sharing providers that the tree can use follow.
"""

Pieces = tuple[str | int, ...]
"""Pieces of JSON: a str is text, an int is a hole that is filled with the tree's text of that number."""


def join_pieces(raw: Iterable[str | int]) -> Pieces:
    """Return the pieces with neighbouring texts joined."""
    pieces: list[str | int] = []
    for piece in raw:
        last = pieces[-1] if pieces else 0
        if isinstance(piece, str) and isinstance(last, str):
            pieces[-1] = last + piece
        else:
            pieces.append(piece)
    return tuple(pieces)


def fill_pieces(pieces: Pieces, trees: Sequence[TreeTexts]) -> list[str]:
    """Return the filled pieces of all trees, one after the other.

    Holes are filled column by column, for all trees at once, with assignments to slices.
    """
    text = [piece if isinstance(piece, str) else "" for piece in pieces] * len(trees)
    columns: dict[int, list[str]] = {}
    for hole, piece in enumerate(pieces):
        if isinstance(piece, int):
            if piece not in columns:
                columns[piece] = [tree[piece] for tree in trees]
            text[hole :: len(pieces)] = columns[piece]
    return text
