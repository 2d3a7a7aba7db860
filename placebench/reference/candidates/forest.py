"""What one request has learnt of whole trees: their providers, stocks and summaries. The key piece is `Forest`."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from placebench.reference.lookups.catalog import Catalog
from placebench.reference.lookups.reader import Reader
from placebench.reference.lookups.trees import (
    everything_of_trees,
    providers_of_trees,
    stocks_of_trees,
    traits_of_trees,
)
from placebench.reference.steps.model import Model, Provider, Stock, Summary

TreesWay = Callable[["Forest", Collection[int]], Mapping[int, list[str]]]


class BrokenTreeError(Exception):
    """A provider stands below one that is in no tree: the way `denormalised` of the step `roots` will not do."""


class Forest:
    """Trees by the ids of their roots, filled by asking; asking again replaces what was known."""

    def __init__(self, reader: Reader, catalog: Catalog, model: Model, read_trees: TreesWay) -> None:
        """model: the classes that the objects are made from; read_trees: how whole trees are read."""
        self._reader = reader
        self._catalog = catalog
        self._model = model
        self._read_trees = read_trees
        self.providers: dict[int, Provider] = {}
        self.trees: dict[int, list[Provider]] = {}
        self.trees_stocks: dict[int, dict[int, list[Stock]]] = {}
        self.summaries: dict[int, list[Summary]] = {}

    def ask_providers(self, root_ids: Collection[int]) -> None:
        """Reads all providers of the trees; 1 round trip. Raises BrokenTreeError."""
        trees: dict[int, list[Provider]] = {root_id: [] for root_id in root_ids}
        make, providers, above = self._model.provider, self.providers, set[int | None](root_ids)
        for provider_id, uuid, parent_id, root_id in providers_of_trees(self._reader, root_ids):
            provider = providers[provider_id] = make(provider_id, uuid, parent_id, root_id)
            trees[root_id].append(provider)
            above.add(parent_id)
        self._check_whole(above)
        self.trees.update(trees)

    def know_providers(self, root_ids: Collection[int]) -> None:
        """Reads the providers of those trees that are not known yet; 1 round trip or none. Raises BrokenTreeError."""
        self.ask_providers([root_id for root_id in root_ids if root_id not in self.trees])

    def ask_stocks(self, root_ids: Collection[int]) -> None:
        """Reads all stocks of the trees; 1 round trip."""
        trees: dict[int, dict[int, list[Stock]]] = {root_id: {} for root_id in root_ids}
        make = self._model.stock
        rows = stocks_of_trees(self._reader, root_ids)
        for provider_id, root_id, class_id, total, reserved, allocation_ratio, max_unit, used in rows:
            stock = make(class_id, _capacity(total, reserved, allocation_ratio), used, max_unit)
            trees[root_id].setdefault(provider_id, []).append(stock)
        self.trees_stocks.update(trees)

    def stock(
        self, class_id: int, total: int, reserved: int, allocation_ratio: float, max_unit: int, used: int
    ) -> Stock:
        """What a row says of one class."""
        return self._model.stock(class_id, _capacity(total, reserved, allocation_ratio), used, max_unit)

    def ask_traits(self, root_ids: Collection[int]) -> dict[int, list[str]]:
        """Reads the names of the traits of each provider that has any; 1 round trip."""
        names = self._catalog.trait_names
        found: dict[int, list[str]] = defaultdict(list)
        for provider_id, trait_id in traits_of_trees(self._reader, root_ids):
            found[provider_id].append(names[trait_id])
        return found

    def ask_everything(self, root_ids: Collection[int]) -> dict[int, list[str]]:
        """Reads providers, stocks and traits of the trees at once, and gives the traits back; 1 round trip.

        Raises BrokenTreeError.
        """
        trees: dict[int, list[Provider]] = {root_id: [] for root_id in root_ids}
        stocks: dict[int, dict[int, dict[int, Stock]]] = {root_id: defaultdict(dict) for root_id in root_ids}
        traits: dict[int, dict[int, str]] = {}
        names, make, above = self._catalog.trait_names, self._model.provider, set[int | None](root_ids)
        rows = everything_of_trees(self._reader, root_ids)
        for provider_id, uuid, parent_id, root_id, trait_id, class_id, *amounts in rows:
            if provider_id not in traits:
                traits[provider_id] = {}
                provider = self.providers[provider_id] = make(provider_id, uuid, parent_id, root_id)
                trees[root_id].append(provider)
                above.add(parent_id)
            if trait_id is not None:
                traits[provider_id][trait_id] = names[trait_id]
            if class_id is not None and class_id not in stocks[root_id][provider_id]:
                stocks[root_id][provider_id][class_id] = self.stock(class_id, *amounts)
        self._check_whole(above)
        self.trees.update(trees)
        for root_id, of_tree in stocks.items():
            self.trees_stocks[root_id] = {key: list(each.values()) for key, each in of_tree.items()}
        return {key: list(each.values()) for key, each in traits.items()}

    def summarise(self, root_ids: Collection[int]) -> None:
        """Makes the summaries of the trees; 1 to 3 round trips, as the variant reads trees."""
        traits = self._read_trees(self, root_ids)
        make = self._model.summary
        for root_id in root_ids:
            stocks = self.trees_stocks[root_id]
            self.summaries[root_id] = [
                make(provider, stocks.get(provider.id, []), traits.get(provider.id, []))
                for provider in self.trees[root_id]
            ]

    def summaries_of(self, root_ids: Collection[int]) -> Iterator[Summary]:
        """The summaries of the trees, made now where they are not made yet; up to 3 round trips."""
        self.summarise([root_id for root_id in root_ids if root_id not in self.summaries])
        for root_id in root_ids:
            yield from self.summaries[root_id]

    def forget(self, root_ids: Iterable[int]) -> None:
        """Let go of what the summaries of the trees are made of."""
        for root_id in root_ids:
            del self.summaries[root_id], self.trees_stocks[root_id]

    def lineage(self, provider_id: int) -> Iterator[int]:
        """The provider and its ancestors, from the bottom up; its tree must be known."""
        above: int | None = provider_id
        while above is not None:
            yield above
            above = self.providers[above].parent_id

    def _check_whole(self, above: set[int | None]) -> None:
        """Whether the roots and parents of what was read are there; None is above a root."""
        if above.difference(self.providers, (None,)):
            raise BrokenTreeError


def _capacity(total: int, reserved: int, allocation_ratio: float) -> int:
    """What can be given in all, truncated as Placement truncates it."""
    return int((total - reserved) * allocation_ratio)
