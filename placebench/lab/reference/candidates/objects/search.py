"""The state of a search for candidates (`Search`), and the provider trees read for it (`Forest`)."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from placebench.lab.reference.candidates.combinations import InventoryKey, capacity
from placebench.lab.reference.candidates.objects.model import (
    Model,
    ProviderInventory,
    ProviderNode,
    ProviderSummary,
    Resource,
)
from placebench.lab.reference.domain.candidates_query import CandidateRequest, RequestGroup
from placebench.lab.reference.domain.problems import BadRequest
from placebench.lab.reference.domain.settings import ServiceSettings
from placebench.lab.reference.store.candidate_queries import (
    Catalog,
    Reader,
    read_tree_capacities,
    read_tree_inventories,
    read_tree_providers,
    read_tree_traits,
    read_trees_joined,
)

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TreeForm:
    """How whole trees are read, and the form that their summaries have.

    Attributes:
        summarise: Reads trees and returns their summaries by root id, one per provider.
        documents: Returns the documents of such summaries, by the provider's uuid.
    """

    summarise: Callable[["Forest", Collection[int]], Mapping[int, list[Any]]]
    documents: Callable[["Forest", Iterable[Any]], dict[str, Document]]


class BrokenTreeError(Exception):
    """A provider is below one that is in no tree, so the implementation `denormalised` of `roots` cannot be used."""


class Forest:
    """The trees that a request has read, by the ids of their roots; a tree that is read again is replaced."""

    def __init__(self, reader: Reader, catalog: Catalog, model: Model, tree_form: TreeForm) -> None:
        """model: the classes of the objects; tree_form: how the variant reads whole trees."""
        self._reader = reader
        self._catalog = catalog
        self._model = model
        self._tree_form = tree_form
        self.providers: dict[int, ProviderNode] = {}
        self.trees: dict[int, list[ProviderNode]] = {}
        self.inventories: dict[int, dict[int, list[ProviderInventory]]] = {}
        self.summaries: dict[int, list[Any]] = {}  # in the variant's form

    def read_providers(self, root_ids: Collection[int]) -> None:
        """Read all providers of the trees; 1 round trip. Raises BrokenTreeError."""
        trees: dict[int, list[ProviderNode]] = {root_id: [] for root_id in root_ids}
        make, providers, above = self._model.provider, self.providers, set[int | None](root_ids)
        for provider_id, uuid, parent_id, root_id in read_tree_providers(self._reader, root_ids):
            provider = providers[provider_id] = make(provider_id, uuid, parent_id, root_id)
            trees[root_id].append(provider)
            above.add(parent_id)
        self._check_unbroken(above)
        self.trees.update(trees)

    def ensure_providers(self, root_ids: Collection[int]) -> None:
        """Read the providers of the trees that are not known yet; 1 round trip or none. Raises BrokenTreeError."""
        self.read_providers([root_id for root_id in root_ids if root_id not in self.trees])

    def read_inventories(self, root_ids: Collection[int]) -> None:
        """Read all inventories of the trees; 1 round trip."""
        trees: dict[int, dict[int, list[ProviderInventory]]] = {root_id: {} for root_id in root_ids}
        make = self._model.inventory
        rows = read_tree_inventories(self._reader, root_ids)
        for provider_id, root_id, class_id, total, reserved, allocation_ratio, max_unit, used in rows:
            inventory = make(class_id, capacity(total, reserved, allocation_ratio), used, max_unit)
            trees[root_id].setdefault(provider_id, []).append(inventory)
        self.inventories.update(trees)

    def inventory(
        self, class_id: int, total: int, reserved: int, allocation_ratio: float, max_unit: int, used: int
    ) -> ProviderInventory:
        """Return the inventory in a row of the database."""
        return self._model.inventory(class_id, capacity(total, reserved, allocation_ratio), used, max_unit)

    def read_traits(self, root_ids: Collection[int]) -> dict[int, list[str]]:
        """Return the trait names of each provider in the trees that has any, by provider id; 1 round trip."""
        names = self._catalog.trait_names
        found: dict[int, list[str]] = defaultdict(list)
        for provider_id, trait_id in read_tree_traits(self._reader, root_ids):
            found[provider_id].append(names[trait_id])
        return found

    def read_joined(self, root_ids: Collection[int]) -> dict[int, list[str]]:
        """Read providers, inventories and traits of the trees with one join; 1 round trip.

        Returns the trait names by provider id. Raises BrokenTreeError.
        """
        trees: dict[int, list[ProviderNode]] = {root_id: [] for root_id in root_ids}
        inventories: dict[int, dict[int, dict[int, ProviderInventory]]] = {key: defaultdict(dict) for key in root_ids}
        traits: dict[int, dict[int, str]] = {}
        names, make, above = self._catalog.trait_names, self._model.provider, set[int | None](root_ids)
        rows = read_trees_joined(self._reader, root_ids)
        for provider_id, uuid, parent_id, root_id, trait_id, class_id, *amounts in rows:
            if provider_id not in traits:
                traits[provider_id] = {}
                provider = self.providers[provider_id] = make(provider_id, uuid, parent_id, root_id)
                trees[root_id].append(provider)
                above.add(parent_id)
            if trait_id is not None:
                traits[provider_id][trait_id] = names[trait_id]
            if class_id is not None and class_id not in inventories[root_id][provider_id]:
                inventories[root_id][provider_id][class_id] = self.inventory(class_id, *amounts)
        self._check_unbroken(above)
        self.trees.update(trees)
        for root_id, of_tree in inventories.items():
            self.inventories[root_id] = {key: list(each.values()) for key, each in of_tree.items()}
        return {key: list(each.values()) for key, each in traits.items()}

    def summary_objects(
        self, root_ids: Collection[int], traits: Mapping[int, list[str]]
    ) -> dict[int, list[ProviderSummary]]:
        """Return summaries, by root id, of trees whose providers and inventories have been read.

        traits: the trait names of each provider that has any, by provider id.
        """
        make, summaries = self._model.summary, {}
        for root_id in root_ids:
            inventories = self.inventories[root_id]
            summaries[root_id] = [
                make(provider, inventories.get(provider.id, []), traits.get(provider.id, []))
                for provider in self.trees[root_id]
            ]
        return summaries

    def documents_of_objects(self, summaries: Iterable[ProviderSummary]) -> dict[str, Document]:
        """Return the documents of the summaries, by the provider's uuid."""
        providers, class_names = self.providers, self._catalog.class_names
        return {
            summary.provider.uuid: {
                "resources": {
                    class_names[inventory.class_id]: {"capacity": inventory.capacity, "used": inventory.used}
                    for inventory in summary.inventories
                },
                "traits": summary.traits,
                "parent_provider_uuid": _uuid(providers, summary.provider.parent_id),
                "root_provider_uuid": _uuid(providers, summary.provider.root_id),
            }
            for summary in summaries
        }

    def summary_documents(self, root_ids: Collection[int]) -> dict[int, list[tuple[str, Document]]]:
        """Return (uuid, document) of each provider in the trees, by root id, made from rows; up to 3 round trips."""
        self.ensure_providers(root_ids)
        names, resources = self._catalog.class_names, defaultdict[int, Document](dict)
        rows = read_tree_capacities(self._reader, root_ids)
        for provider_id, class_id, total, reserved, allocation_ratio, used in rows:
            resources[provider_id][names[class_id]] = {
                "capacity": capacity(total, reserved, allocation_ratio),
                "used": used,
            }
        traits, providers, documents = self.read_traits(root_ids), self.providers, {}
        for root_id in root_ids:
            tree, root_uuid = self.trees[root_id], providers[root_id].uuid
            documents[root_id] = [
                (
                    provider.uuid,
                    {
                        "resources": resources.get(provider.id, {}),
                        "traits": traits.get(provider.id, []),
                        "parent_provider_uuid": _uuid(providers, provider.parent_id),
                        "root_provider_uuid": root_uuid,
                    },
                )
                for provider in tree
            ]
        return documents

    def summarise(self, root_ids: Collection[int]) -> None:
        """Make the summaries of the trees; 1 to 3 round trips, depending on how the variant reads trees."""
        self.summaries.update(self._tree_form.summarise(self, root_ids))

    def documents(self, root_ids: Collection[int]) -> dict[str, Document]:
        """Return the documents of all providers in the trees, by uuid; up to 3 round trips."""
        self.summarise([root_id for root_id in root_ids if root_id not in self.summaries])
        summaries = chain.from_iterable(self.summaries[root_id] for root_id in root_ids)
        return self._tree_form.documents(self, summaries)

    def forget(self, root_ids: Iterable[int]) -> None:
        """Remove the summaries and inventories of the trees, to free memory."""
        for root_id in root_ids:
            del self.summaries[root_id]
            self.inventories.pop(root_id, None)

    def lineage(self, provider_id: int) -> Iterator[int]:
        """Yield the ids of the provider and its ancestors, from the bottom up; its tree must have been read."""
        above: int | None = provider_id
        while above is not None:
            yield above
            above = self.providers[above].parent_id

    def _check_unbroken(self, above: set[int | None]) -> None:
        """Raise BrokenTreeError unless all of these parents and roots have been read (None is the parent of a root)."""
        if above.difference(self.providers, (None,)):
            raise BrokenTreeError


def _uuid(providers: Mapping[int, ProviderNode], provider_id: int | None) -> str | None:
    return None if provider_id is None else providers[provider_id].uuid


@dataclass(frozen=True, slots=True)
class SolutionForm:
    """The form that the solutions of one group have.

    Attributes:
        solutions: Returns the solutions by anchor; its arguments are the search, the group, its demands and placements.
        providers: Returns the providers of a solution, each once.
        combinations: The class that combines such solutions to candidates.
    """

    solutions: Callable[..., dict[int, list[Any]]]
    providers: Callable[[Any], tuple[int, ...]]
    combinations: Callable[..., Any]


class NothingFitsError(Exception):
    """No candidate is possible, so the response is empty and later groups are not checked for errors."""


@dataclass(slots=True)
class Search:
    """The state of a search: the request, the settings, the variant's implementations, and the data read so far."""

    request: CandidateRequest
    settings: ServiceSettings
    model: Model
    resource: type[Resource]  # the model's class, perhaps with the variant's __copy__
    collection: Callable[[Iterable[int]], Collection[int]]
    reader: Reader
    catalog: Catalog
    forest: Forest
    solution_form: SolutionForm
    contended: Mapping[str, int]  # the ids of the classes that more than one group requests, by name
    sharing: Mapping[int, list[int]]  # for each sharing provider, the roots of the trees that its aggregates reach
    allowed_roots: Collection[int] | None = None  # the roots that meet root_required; None: all
    root_of: dict[int, int] = field(default_factory=dict)  # root ids by provider id, for all providers in solutions
    inventories: dict[InventoryKey, ProviderInventory] = field(default_factory=dict)  # at least of contended classes
    solved: dict[RequestGroup, Any] = field(default_factory=dict)  # what was found for groups, where it is kept

    @property
    def serves_own_trees(self) -> bool:
        """Whether each provider serves its own tree and no other: none shares, and each root is allowed."""
        return not self.sharing and self.allowed_roots is None

    def anchors(self, provider_id: int) -> Collection[int]:
        """Return the allowed roots of the trees that the provider can serve: its own, and others if it shares."""
        own = self.root_of[provider_id]
        shared = self.sharing.get(provider_id)
        if shared is None and self.allowed_roots is None:
            return (own,)
        roots = dict.fromkeys((own, *(shared or ())))
        return [root_id for root_id in roots if self.is_allowed(root_id)]

    def is_allowed(self, root_id: int) -> bool:
        """Return whether the root meets root_required, so that its tree can be an anchor."""
        return self.allowed_roots is None or root_id in self.allowed_roots

    def trait_ids(self, names: Iterable[str]) -> list[int]:
        """Return the ids of the traits; raise BadRequest with the names of all unknown traits."""
        known = self.catalog.trait_ids
        if unknown := sorted(set(names) - known.keys()):
            raise BadRequest(f"no such traits: {', '.join(unknown)}")
        return [known[name] for name in names]
