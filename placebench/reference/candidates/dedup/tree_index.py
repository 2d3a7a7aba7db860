"""What the solver knows of the providers: every tree's shape, each shape once. The key piece is `Picture`.

Interned: providers with equal stocks, traits and aggregates are one `Kind`, trees of equal kinds in equal places one
`Shape`. A picture can be changed tree by tree, so it may serve one request or be kept.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from placebench.reference.optimizations.serialization import by_orjson
from placebench.reference.store.candidate_queries import SHARING_TRAIT

ROOT: Final = -1  # as the parent of a root

Tree = Sequence[str]  # the uuids of a tree's providers as JSON text with its quotes, in the order of the shape's kinds


class Stock(NamedTuple):
    """An inventory, and what is used of it."""

    class_name: str
    capacity: int
    used: int
    min_unit: int
    max_unit: int
    step_size: int


class Kind:
    """A provider without its uuid and place; compared by identity, since a picture holds each only once."""

    __slots__ = ("aggregates", "shares", "stocks", "text", "traits")

    def __init__(self, stocks: tuple[Stock, ...], traits: tuple[str, ...], aggregates: frozenset[str]) -> None:
        self.stocks = stocks
        self.traits = traits
        self.aggregates = aggregates
        self.shares = SHARING_TRAIT in traits
        self.text = _text(stocks, traits)


class Shape:
    """A tree without its uuids: the kinds of its providers, the root first, and the position of each one's parent."""

    __slots__ = ("kinds", "parents", "shares", "trees")

    def __init__(self, kinds: tuple[Kind, ...], parents: tuple[int, ...]) -> None:
        self.kinds = kinds
        self.parents = parents
        self.shares = any(kind.shares for kind in kinds)
        self.trees: dict[int, Tree] = {}  # by the ids of their roots

    @property
    def aggregates(self) -> frozenset[str]:
        """Those that a provider of the tree is in."""
        return frozenset[str]().union(*(kind.aggregates for kind in self.kinds))


class Picture:
    """Trees by their shapes, and which names there are."""

    def __init__(self) -> None:
        self.kinds: dict[object, Kind] = {}
        self.shapes: dict[object, Shape] = {}  # that have a tree
        self.shape_of: dict[int, Shape] = {}  # of each tree, by the id of its root
        self.sharing: dict[int, Shape] = {}  # of these, the trees with a provider that shares
        self.traits: set[str] = set()  # names that exist; those nobody asked for may be missing
        self.classes: set[str] = set()
        self.named: dict[str, int] = {}  # the root above each provider that an in_tree names, if there is one

    def kind(self, stocks: tuple[Stock, ...], traits: tuple[str, ...], aggregates: frozenset[str]) -> Kind:
        """The kind of these contents, the same object each time."""
        key = stocks, traits, aggregates
        found = self.kinds.get(key)
        if found is None:
            found = self.kinds[key] = Kind(*key)
        return found

    def shape(self, kinds: tuple[Kind, ...], parents: tuple[int, ...]) -> Shape:
        """The shape of these kinds, the same object as long as it has a tree; a new one has to be put."""
        return self.shapes.get((kinds, parents)) or Shape(kinds, parents)

    def put(self, root_id: int, shape: Shape, tree: Tree) -> None:
        """A tree that is new, or looks otherwise now."""
        if root_id in self.shape_of:
            self.remove(root_id)
        if not shape.trees:
            self.shapes[shape.kinds, shape.parents] = shape
        shape.trees[root_id] = tree
        self.shape_of[root_id] = shape
        if shape.shares:
            self.sharing[root_id] = shape

    def remove(self, root_id: int) -> None:
        """Without the tree of this root; nothing happens if it is not there."""
        shape = self.shape_of.pop(root_id, None)
        if shape is None:
            return
        del shape.trees[root_id]
        self.sharing.pop(root_id, None)
        if not shape.trees:
            del self.shapes[shape.kinds, shape.parents]

    def sweep(self) -> None:
        """Forget the kinds that no tree has any more."""
        used = {kind for shape in self.shapes.values() for kind in shape.kinds}
        self.kinds = {key: kind for key, kind in self.kinds.items() if kind in used}


def _text(stocks: Iterable[Stock], traits: tuple[str, ...]) -> str:
    """What stands in a provider's summary between its uuid and its parent's."""
    resources = {stock.class_name: {"capacity": stock.capacity, "used": stock.used} for stock in stocks}
    known = by_orjson({"resources": resources, "traits": traits}).decode()
    return f':{known[:-1]},"parent_provider_uuid":'
