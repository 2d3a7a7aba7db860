"""JSON text with holes, filled for many trees at once: `Pieces`."""

from collections.abc import Iterable, Sequence

TreeTexts = Sequence[str]
"""What a tree's JSON has of its own: the uuid of each provider, with its quotes, then the resources of each.

For candidates the uuids of the sharing providers follow that the tree can use.
"""

Pieces = tuple[str | int, ...]
"""Text, or which of the tree's texts belongs there."""


def join_pieces(raw: Iterable[str | int]) -> Pieces:
    """Join neighbouring texts into one."""
    pieces: list[str | int] = []
    for piece in raw:
        last = pieces[-1] if pieces else 0
        if isinstance(piece, str) and isinstance(last, str):
            pieces[-1] = last + piece
        else:
            pieces.append(piece)
    return tuple(pieces)


def fill_pieces(pieces: Pieces, trees: Sequence[TreeTexts]) -> list[str]:
    """Return the text for each tree in pieces: repeated, and its holes filled column by column, without a loop."""
    text = [piece if isinstance(piece, str) else "" for piece in pieces] * len(trees)
    columns: dict[int, list[str]] = {}
    for hole, piece in enumerate(pieces):
        if isinstance(piece, int):
            if piece not in columns:
                columns[piece] = [tree[piece] for tree in trees]
            text[hole :: len(pieces)] = columns[piece]
    return text
