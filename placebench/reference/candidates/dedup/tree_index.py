"""The provider trees of a database, identical ones once: `TreeIndex`.

Providers with equal inventories, traits and aggregates are one `ProviderClass`, and trees of equal providers in equal
places one `TreeClass`. An index can be changed tree by tree, so it may serve one request or be kept.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from placebench.reference.optimizations.serialization import by_orjson
from placebench.reference.store.candidate_queries import SHARING_TRAIT

ROOT: Final = -1  # as the parent of a root

TreeUuids = Sequence[str]  # of a tree's providers, as JSON text with its quotes, in the order of the tree's class


class ClassInventory(NamedTuple):
    """A provider's inventory of one class, and what is used of it."""

    class_name: str
    capacity: int
    used: int
    min_unit: int
    max_unit: int
    step_size: int


class ProviderClass:
    """A provider without its uuid and place; compared by identity, since an index holds each only once."""

    __slots__ = ("aggregates", "inventories", "shares", "text", "traits")

    def __init__(
        self, inventories: tuple[ClassInventory, ...], traits: tuple[str, ...], aggregates: frozenset[str], text: str
    ) -> None:
        """text: what a summary has between the uuid of its provider and that of the parent."""
        self.inventories = inventories
        self.traits = traits
        self.aggregates = aggregates
        self.shares = SHARING_TRAIT in traits
        self.text = text


class TreeClass:
    """A tree without its uuids: the classes of its providers, the root first, and the position of each one's parent."""

    __slots__ = ("aggregates", "parents", "providers", "shares", "trees")

    def __init__(self, providers: tuple[ProviderClass, ...], parents: tuple[int, ...]) -> None:
        """A class without trees."""
        self.providers = providers
        self.parents = parents
        self.shares = any(each.shares for each in providers)
        self.aggregates = frozenset[str]().union(*[each.aggregates for each in providers])
        self.trees: dict[int, TreeUuids] = {}  # by the ids of their roots


class TreeIndex:
    """Trees by their classes, and which names exist."""

    def __init__(self) -> None:
        """An empty index."""
        self.provider_classes: dict[object, ProviderClass] = {}
        self._json = _JsonTexts()
        self.tree_classes: dict[object, TreeClass] = {}  # that have a tree
        self.class_of: dict[int, TreeClass] = {}  # of each tree, by the id of its root
        self.sharing: dict[int, TreeClass] = {}  # of these, the trees with a provider that shares
        self.traits: set[str] = set()  # names that exist; those that nobody requested may be missing
        self.resource_classes: set[str] = set()
        self.roots_of_named: dict[str, int] = {}  # the root above each provider that an in_tree names, if there is one

    def intern_provider(
        self, inventories: tuple[ClassInventory, ...], traits: tuple[str, ...], aggregates: frozenset[str]
    ) -> ProviderClass:
        """Return the class of providers with these contents, the same object each time."""
        key = inventories, traits, aggregates
        found = self.provider_classes.get(key)
        if found is None:
            found = self.provider_classes[key] = ProviderClass(*key, self._summary_text(inventories, traits))
        return found

    def intern_tree(self, providers: tuple[ProviderClass, ...], parents: tuple[int, ...]) -> TreeClass:
        """Return the class of trees of these providers, the same object as long as it has a tree, which `put` adds."""
        return self.tree_classes.get((providers, parents)) or TreeClass(providers, parents)

    def put(self, root_id: int, tree_class: TreeClass, tree: TreeUuids) -> None:
        """Add a tree, or replace it."""
        if root_id in self.class_of:
            self.remove(root_id)
        if not tree_class.trees:
            self.tree_classes[tree_class.providers, tree_class.parents] = tree_class
        tree_class.trees[root_id] = tree
        self.class_of[root_id] = tree_class
        if tree_class.shares:
            self.sharing[root_id] = tree_class

    def remove(self, root_id: int) -> None:
        """Remove the tree of this root, if there is one."""
        tree_class = self.class_of.pop(root_id, None)
        if tree_class is None:
            return
        del tree_class.trees[root_id]
        self.sharing.pop(root_id, None)
        if not tree_class.trees:
            del self.tree_classes[tree_class.providers, tree_class.parents]

    def forget_unused(self) -> None:
        """Forget the provider classes that no tree has any more."""
        used = {provider for each in self.tree_classes.values() for provider in each.providers}
        self.provider_classes = {key: each for key, each in self.provider_classes.items() if each in used}

    def _summary_text(self, inventories: Iterable[ClassInventory], traits: tuple[str, ...]) -> str:
        json = self._json
        resources = ",".join(
            [f'{json[name]}:{{"capacity":{capacity},"used":{used}}}' for name, capacity, used, *_ in inventories]
        )
        return f':{{"resources":{{{resources}}},"traits":{json[traits]},"parent_provider_uuid":'


class _JsonTexts(dict[str | tuple[str, ...], str]):
    """The JSON of each name or list of names, written once: they are far fewer than distinct providers."""

    def __missing__(self, value: str | tuple[str, ...]) -> str:
        text = self[value] = by_orjson(value).decode()
        return text
