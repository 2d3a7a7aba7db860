"""The provider trees of a database, grouped so that identical trees are stored once: `TreeIndex`.

Trees have the same `TreeLayout` if their providers, place by place, have inventories of the same classes and the same
traits, whatever the amounts. Trees of one layout with equal amounts and aggregates form one `TreeClass`. An index can
be changed tree by tree, so it can be made for one request or kept.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final, NamedTuple
from weakref import WeakSet, WeakValueDictionary

from placebench.lab.reference.candidates.dedup.pieces import TreeTexts, join_pieces
from placebench.lab.reference.candidates.results import Body, by_orjson
from placebench.lab.reference.store.candidate_queries import SHARING_TRAIT

ROOT: Final = -1  # the value for the parent of a root
MAX_KEPT_PROVIDERS: Final = 50_000
"""The number of providers up to which an index keeps summaries and groupings; the summaries take some 15 MB then."""


class InventoryType(NamedTuple):
    """An inventory without its amounts: class, min_unit and step_size."""

    class_name: str
    min_unit: int
    step_size: int


class ProviderType:
    """A provider without uuid, place, amounts and aggregates; compared by identity, as an index has each type once."""

    __slots__ = ("__weakref__", "inventories", "shares", "trait_set", "traits")

    def __init__(self, inventories: tuple[InventoryType, ...], traits: tuple[str, ...]) -> None:
        """Make the type of providers with these inventories and traits."""
        self.inventories = inventories
        self.traits = traits
        self.trait_set = frozenset(traits)
        self.shares = SHARING_TRAIT in traits


class TreeLayout:
    """A tree without uuids, amounts and aggregates; an index has each layout only once."""

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
        """providers: the types of the providers, the root first. parents: the place of each provider's parent."""
        self.providers = providers
        self.parents = parents
        self.shares = any(each.shares for each in providers)
        self.inventories = [(place, each) for place, provider in enumerate(providers) for each in provider.inventories]
        self.summaries = join_pieces(_summaries(providers, parents))  # pieces to be filled with the texts of a tree
        self.classes: dict[object, TreeClass] = {}  # the classes that have at least one tree
        self.written: dict[str, str] = {}  # summaries of trees that were in a response, by the uuids of their roots
        self.alike: dict[
            Hashable, list[AlikeTrees]
        ] = {}  # groupings by what they depend on in a request; until a tree changes
        self._amounts: dict[int, list[int]] = {}  # results of `amounts` by inventory number; until a tree changes

    def forget(self) -> None:
        """Drop groupings and amounts, because a tree is added, changed or removed."""
        self.alike.clear()
        self._amounts.clear()

    def amounts(self, number: int) -> list[int]:
        """Return the amounts that the inventory with this number can give in any tree, in ascending order."""
        if number not in self._amounts:
            self._amounts[number] = sorted({each.most[number] for each in self.classes.values()})
        return self._amounts[number]


def _summaries(providers: Sequence[ProviderType], parents: Iterable[int]) -> Iterator[str | int]:
    """Yield the pieces of `,"...":{"resources":{...},"traits":[...],...}` for each provider."""
    for place, (provider, parent) in enumerate(zip(providers, parents, strict=True)):
        yield from (",", place, ':{"resources":{', len(providers) + place, '},"traits":')
        yield from (by_orjson(provider.traits).decode(), ',"parent_provider_uuid":')
        yield "null" if parent == ROOT else parent
        yield from (',"root_provider_uuid":', 0, "}")


class TreeClass:
    """Trees of one layout with equal amounts and aggregates."""

    __slots__ = ("aggregates", "key", "layout", "most", "providers", "resources", "trees")

    def __init__(
        self,
        layout: TreeLayout,
        most: tuple[int, ...],
        resources: tuple[str, ...],
        aggregates: tuple[frozenset[str], ...],
    ) -> None:
        """Make a class without trees.

        Args:
            layout: The layout of the trees.
            most: The largest amount that each of the layout's inventories can give: min(unused capacity, max_unit).
            resources: The resources in each provider's summary, as JSON text.
            aggregates: The aggregates of each provider.
        """
        self.layout = layout
        self.most = most
        self.resources = resources
        self.aggregates = aggregates
        self.key = most, resources, aggregates
        self.providers: list[Any] | None = None  # what `providers_of` returns, where an index keeps it
        self.trees: dict[int, TreeTexts] = {}  # the texts of the trees by root id


class AlikeTrees(NamedTuple):
    """Trees of one layout that differ only in their texts, as far as a request is concerned."""

    example: TreeClass
    trees: Collection[TreeTexts]
    root_id: int
    """The root id of the single tree, if in_tree names the tree or it has sharing providers; else -1."""


@dataclass(slots=True)
class Names:
    """Names of traits and classes that exist; a name that no provider has and no request used may be missing."""

    traits: set[str] = field(default_factory=set)
    resource_classes: set[str] = field(default_factory=set)
    roots_of_named: dict[str, int] = field(default_factory=dict)
    """The root id for each uuid that in_tree named, if such a provider exists."""

    def update(self, others: "Names") -> None:
        """Add the names in *others*."""
        self.traits |= others.traits
        self.resource_classes |= others.resource_classes
        self.roots_of_named |= others.roots_of_named


class TreeIndex:
    """Trees grouped by layout and class, and the names that exist."""

    def __init__(self) -> None:
        self._provider_types: WeakValueDictionary[object, ProviderType] = WeakValueDictionary()
        self.layouts: dict[object, TreeLayout] = {}  # the layouts that have at least one tree
        self.class_of: dict[int, TreeClass] = {}  # the class of each tree by root id
        self.sharing: dict[int, TreeClass] = {}  # the classes of the trees with a sharing provider, by root id
        self.provider_count = 0
        self._roots: list[int] = []
        self._added: set[int] = set()  # roots that `_roots` lacks
        self._removed: set[int] = set()  # roots that only `_roots` has
        self._root_of: dict[str, int] | None = None  # the root id of each provider by its quoted uuid, once needed
        self.names = Names()
        self._lent: WeakSet[Iterator[bytes]] = WeakSet()  # bodies that read from the index while they are sent

    @property
    def is_lent(self) -> bool:
        """Whether a body reads from the index while it is sent, so that the index must not be changed."""
        return bool(self._lent)

    def lend(self, body: Body) -> Body:
        """Return the body; if it has parts, which read from the index, the index is lent while they are referenced."""
        if isinstance(body, bytes):
            return body
        parts = (part for part in body)
        self._lent.add(parts)
        return parts

    @property
    def roots(self) -> Sequence[int]:
        """The ids of all roots in ascending order; sorted anew only if there are others than before."""
        if self._added or self._removed:
            self._roots = sorted(self.class_of)
            self._added.clear()
            self._removed.clear()
        return self._roots

    def root_of(self, uuid: str) -> int | None:
        """Return the root id of the tree with this provider; None if there is none."""
        if self._root_of is None:
            self._root_of = {}
            for root_id, tree_class in self.class_of.items():
                uuids = tree_class.trees[root_id][: len(tree_class.layout.providers)]
                self._root_of.update(zip(uuids, repeat(root_id)))
        return self._root_of.get(f'"{uuid}"')

    def intern_provider(self, inventories: tuple[InventoryType, ...], traits: tuple[str, ...]) -> ProviderType:
        """Return the type of providers with these inventories and traits; the same object while it is in use."""
        key = inventories, traits
        found = self._provider_types.get(key)
        if found is None:
            found = self._provider_types[key] = ProviderType(inventories, traits)
        return found

    def intern_tree(self, providers: tuple[ProviderType, ...], parents: tuple[int, ...]) -> TreeLayout:
        """Return the layout of trees with these providers and parents; the same object once `put` has added a tree."""
        return self.layouts.get((providers, parents)) or TreeLayout(providers, parents)

    def put(self, root_id: int, tree_class: TreeClass, uuids: Sequence[str]) -> None:
        """Add a tree, which must not be in the index yet."""
        layout = tree_class.layout
        if not tree_class.trees:
            if not layout.classes:
                self.layouts[layout.providers, layout.parents] = layout
            tree_class = layout.classes.setdefault(tree_class.key, tree_class)
        layout.forget()
        self.provider_count += len(uuids)
        tree_class.trees[root_id] = [*uuids, *tree_class.resources]
        self.class_of[root_id] = tree_class
        if self._root_of is not None:
            self._root_of.update(zip(uuids, repeat(root_id)))
        if root_id in self._removed:
            self._removed.remove(root_id)
        else:
            self._added.add(root_id)
        if layout.shares:
            self.sharing[root_id] = tree_class

    def remove(self, root_id: int) -> None:
        """Remove the tree with this root, if the index has it."""
        tree_class = self.class_of.pop(root_id, None)
        if tree_class is None:
            return
        if root_id in self._added:
            self._added.remove(root_id)
        else:
            self._removed.add(root_id)
        layout = tree_class.layout
        layout.forget()
        self.provider_count -= len(layout.providers)
        texts = tree_class.trees.pop(root_id)
        layout.written.pop(texts[0], None)
        if self._root_of is not None:
            for uuid in texts[: len(layout.providers)]:
                if self._root_of.get(uuid) == root_id:  # else another tree has this provider by now
                    del self._root_of[uuid]
        self.sharing.pop(root_id, None)
        if not tree_class.trees:
            del layout.classes[tree_class.key]
            if not layout.classes:
                del self.layouts[layout.providers, layout.parents]
