"""The provider trees of a database by their layouts, identical ones once: `TreeIndex`.

Trees whose providers have inventories of the same classes and the same traits, in the same places, are of one
`TreeLayout`, whatever the amounts. Those of one layout with equal amounts and aggregates are one `TreeClass`. An index
can be changed tree by tree, so it may serve one request or be kept.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from placebench.lab.reference.candidates.dedup.pieces import TreeTexts, join_pieces
from placebench.lab.reference.candidates.results import by_orjson
from placebench.lab.reference.store.candidate_queries import SHARING_TRAIT

ROOT: Final = -1  # as the parent of a root
MAX_KEPT_PROVIDERS: Final = 50_000
"""An index of more keeps nothing beside the trees. The summaries of that many take some 15 MB."""


class InventoryType(NamedTuple):
    """A provider's inventory of one class without its amounts."""

    class_name: str
    min_unit: int
    step_size: int


class ProviderType:
    """A provider without its uuid, place, amounts and aggregates; compared by identity, as an index holds each once."""

    __slots__ = ("__weakref__", "inventories", "shares", "traits")

    def __init__(self, inventories: tuple[InventoryType, ...], traits: tuple[str, ...]) -> None:
        """Take what its inventories are and its traits."""
        self.inventories = inventories
        self.traits = traits
        self.shares = SHARING_TRAIT in traits


class TreeLayout:
    """A tree without its uuids, amounts and aggregates; an index holds each only once."""

    __slots__ = (
        "_amounts",
        "alike",
        "classes",
        "inventories",
        "parents",
        "providers",
        "shares",
        "summaries",
        "written",
    )

    def __init__(self, providers: tuple[ProviderType, ...], parents: tuple[int, ...]) -> None:
        """providers: the root first. parents: the position of each one's parent."""
        self.providers = providers
        self.parents = parents
        self.shares = any(each.shares for each in providers)
        self.inventories = [(place, each) for place, provider in enumerate(providers) for each in provider.inventories]
        self.summaries = join_pieces(_summaries(providers, parents))  # filled with the texts of a tree
        self.classes: dict[object, TreeClass] = {}  # that have a tree
        self.written: dict[str, str] = {}  # the summaries of trees that a response had, by the uuids of their roots
        self.alike: dict[
            Hashable, list[AlikeTrees]
        ] = {}  # by what of a request makes trees alike; until a tree changes
        self._amounts: dict[int, list[int]] = {}  # the amounts of an inventory, by its number, in their order; likewise

    def forget(self) -> None:
        """A tree is added, changed or removed."""
        self.alike.clear()
        self._amounts.clear()

    def amounts(self, number: int) -> list[int]:
        """Return what this inventory can give in any of the trees, in ascending order."""
        if number not in self._amounts:
            self._amounts[number] = sorted({each.most[number] for each in self.classes.values()})
        return self._amounts[number]


def _summaries(providers: Sequence[ProviderType], parents: Iterable[int]) -> Iterator[str | int]:
    """`,"...":{"resources":{...},"traits":[...],...}` for each provider."""
    for place, (provider, parent) in enumerate(zip(providers, parents, strict=True)):
        yield from (",", place, ':{"resources":{', len(providers) + place, '},"traits":')
        yield from (by_orjson(provider.traits).decode(), ',"parent_provider_uuid":')
        yield "null" if parent == ROOT else parent
        yield from (',"root_provider_uuid":', 0, "}")


class TreeClass:
    """Trees of one layout with equal amounts and aggregates."""

    __slots__ = ("aggregates", "key", "layout", "most", "resources", "trees")

    def __init__(
        self,
        layout: TreeLayout,
        most: tuple[int, ...],
        resources: tuple[str, ...],
        aggregates: tuple[frozenset[str], ...],
    ) -> None:
        """A class without trees.

        Args:
            layout: The layout.
            most: What each of the layout's inventories can give at once: by what is unused, and by max_unit.
            resources: Those of each provider's summary.
            aggregates: Those of each provider.
        """
        self.layout = layout
        self.most = most
        self.resources = resources
        self.aggregates = aggregates
        self.key = most, resources, aggregates
        self.trees: dict[int, TreeTexts] = {}  # by the ids of their roots


class AlikeTrees(NamedTuple):
    """Trees of one layout that are one to a request, but for their texts."""

    example: TreeClass
    trees: Collection[TreeTexts]
    root_id: int
    """The id of the one tree's root, if in_tree names the tree or it has sharing providers; else -1."""


@dataclass(slots=True)
class Names:
    """Names that exist; those that nobody has and nobody requested may be missing."""

    traits: set[str] = field(default_factory=set)
    resource_classes: set[str] = field(default_factory=set)
    roots_of_named: dict[str, int] = field(default_factory=dict)
    """The root above each provider that an in_tree names, if there is one."""

    def update(self, others: "Names") -> None:
        """Add the others."""
        self.traits |= others.traits
        self.resource_classes |= others.resource_classes
        self.roots_of_named |= others.roots_of_named


class TreeIndex:
    """Trees by their layouts and classes, and which names exist."""

    def __init__(self) -> None:
        """An empty index."""
        self._provider_types: WeakValueDictionary[object, ProviderType] = WeakValueDictionary()
        self.layouts: dict[object, TreeLayout] = {}  # that have a tree
        self.class_of: dict[int, TreeClass] = {}  # of each tree, by the id of its root
        self.sharing: dict[int, TreeClass] = {}  # of these, the trees with a provider that shares
        self.provider_count = 0
        self.names = Names()

    def intern_provider(self, inventories: tuple[InventoryType, ...], traits: tuple[str, ...]) -> ProviderType:
        """Return the type of providers with these, the same object as long as it is used."""
        key = inventories, traits
        found = self._provider_types.get(key)
        if found is None:
            found = self._provider_types[key] = ProviderType(inventories, traits)
        return found

    def intern_tree(self, providers: tuple[ProviderType, ...], parents: tuple[int, ...]) -> TreeLayout:
        """Return the layout of these trees, the same object as long as it has a tree, which `put` adds."""
        return self.layouts.get((providers, parents)) or TreeLayout(providers, parents)

    def put(self, root_id: int, tree_class: TreeClass, uuids: Sequence[str]) -> None:
        """Add a tree that is not there."""
        layout = tree_class.layout
        if not tree_class.trees:
            if not layout.classes:
                self.layouts[layout.providers, layout.parents] = layout
            tree_class = layout.classes.setdefault(tree_class.key, tree_class)
        layout.forget()
        self.provider_count += len(uuids)
        tree_class.trees[root_id] = [*uuids, *tree_class.resources]
        self.class_of[root_id] = tree_class
        if layout.shares:
            self.sharing[root_id] = tree_class

    def remove(self, root_id: int) -> None:
        """Remove the tree of this root, if there is one."""
        tree_class = self.class_of.pop(root_id, None)
        if tree_class is None:
            return
        layout = tree_class.layout
        layout.forget()
        self.provider_count -= len(layout.providers)
        layout.written.pop(tree_class.trees.pop(root_id)[0], None)
        self.sharing.pop(root_id, None)
        if not tree_class.trees:
            del layout.classes[tree_class.key]
            if not layout.classes:
                del self.layouts[layout.providers, layout.parents]
