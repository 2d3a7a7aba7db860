"""Which aggregates there are, and which provider is in which: by name, and by number where they repeat.

The key piece is `Membership`.
"""

from collections.abc import Iterable

from placebench.topology.identity import Identity
from placebench.topology.tree import Node


class Membership:
    """The aggregates of a cloud; with *every*, those of so many trees, and others of the next as many."""

    def __init__(self, nodes: Iterable[Node], trees: int, every: int | None, identity: Identity) -> None:
        self._every = every
        self._identity = identity
        names = {name for node in nodes for name in (*node.aggregates, *_some(node))}
        blocks = 1 if every is None else -(-trees // every)
        every_name = sorted(_numbered(name, block) for block in range(blocks) for name in names)
        self.uuids = {name: identity.uuid(f"aggregates/{name}") for name in every_name}
        """The ids of all, by name and sorted by it."""

    def common(self, node: Node) -> tuple[str, ...]:
        """The names of those that this provider is in in every tree."""
        return node.aggregates if self._every is None else ()

    def chosen(self, number: int, node: Node) -> list[str]:
        """The names of those that this provider of tree *number* is in beside the common ones."""
        some = node.some_aggregates
        chosen = some.chosen(self._identity.number(f"{number}/{node.path}/aggregates")) if some else []
        if self._every is None:
            return chosen
        return [_numbered(name, number // self._every) for name in (*node.aggregates, *chosen)]

    def varies(self, node: Node) -> bool:
        """Whether this provider may be in others in another tree."""
        return bool(node.some_aggregates) or (self._every is not None and bool(node.aggregates))


def _some(node: Node) -> tuple[str, ...]:
    return node.some_aggregates.names if node.some_aggregates else ()


def _numbered(name: str, block: int) -> str:
    """No name in a file has a slash."""
    return f"{name}/{block}" if block else name
