"""What one request knows while its candidates are searched: catalog, filters, provider trees and their summaries."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection

from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.api.problems import BadRequest
from placebench.reference.optimizations import Ways
from placebench.reference.optimizations.model import Model, Provider, Stock, Summary
from placebench.reference.optimizations.search import Stocks
from placebench.reference.settings import DEFAULTS, Settings
from placebench.reference.store.candidate_queries import (
    SHARING_TRAIT,
    Catalog,
    Reader,
    all_roots,
    anchors_of_sharing,
    everything_of_trees,
    holders_of_traits,
    providers_of_trees,
    read_catalog,
    stocks_of_trees,
    traits_of_trees,
)

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


class NothingFitsError(Exception):
    """No candidate can come any more: the answer is empty, and errors that later groups hold stay unseen."""


@dataclass(slots=True)
class Search:
    """The request, the variant's ways, the operator's settings, and what was read for it so far."""

    request: CandidateRequest
    ways: Ways
    settings: Settings
    reader: Reader
    catalog: Catalog
    forest: Forest
    sharing: Mapping[int, list[int]]  # sharing providers, each with the anchors its aggregates give it
    allowed_roots: Collection[int] | None = None  # None: all
    root_of: dict[int, int] = field(default_factory=dict)  # of every provider in a solution
    stocks: Stocks = field(default_factory=dict)  # of the classes that several groups ask for, if not of more

    def anchors(self, provider_id: int) -> Collection[int]:
        """The roots that the provider can serve: of its own tree, and if it shares, of others; each once."""
        own = self.root_of[provider_id]
        shared = self.sharing.get(provider_id)
        if shared is None and self.allowed_roots is None:
            return (own,)
        roots = dict.fromkeys((own, *(shared or ())))
        return [root_id for root_id in roots if self.is_allowed(root_id)]

    def is_allowed(self, root_id: int) -> bool:
        """Whether root_required lets this tree be an anchor."""
        return self.allowed_roots is None or root_id in self.allowed_roots

    def trait_ids(self, names: Iterable[str]) -> list[int]:
        """The ids of traits; BadRequest with all that do not exist."""
        known = self.catalog.trait_ids
        if unknown := sorted(set(names) - known.keys()):
            raise BadRequest(f"no such traits: {', '.join(unknown)}")
        return [known[name] for name in names]


def open_search(connection: Connection, request: CandidateRequest, ways: Ways, settings: Settings = DEFAULTS) -> Search:
    """A search that knows all names, who shares, and which roots are allowed; 3 round trips, up to 6.

    Raises BadRequest for unknown traits in root_required, NothingFitsError when no root meets it.
    """
    reader = Reader(connection, ways.rows, ways.binding, ways.roots, ways.totals)
    catalog = read_catalog(reader)
    forest = Forest(reader, catalog, ways.model, ways.trees)
    search = Search(request, ways, settings, reader, catalog, forest, _sharing(reader, catalog))
    if request.root_required or request.root_forbidden:
        search.allowed_roots = _allowed_roots(search)
    return search


def _sharing(reader: Reader, catalog: Catalog) -> Mapping[int, list[int]]:
    trait_id = catalog.trait_ids.get(SHARING_TRAIT)
    if trait_id is None:
        return {}
    return anchors_of_sharing(reader, holders_of_traits(reader, [trait_id])[trait_id])


def _allowed_roots(search: Search) -> Collection[int]:
    required = search.trait_ids(search.request.root_required)
    forbidden = search.trait_ids(search.request.root_forbidden)
    holders = holders_of_traits(search.reader, [*required, *forbidden])
    collection = search.ways.collection
    wanted = [collection(holders[trait_id]) for trait_id in required]
    unwanted = collection(holder for trait_id in forbidden for holder in holders[trait_id])
    roots = [
        root_id
        for root_id in all_roots(search.reader)
        if root_id not in unwanted and all(root_id in holding for holding in wanted)
    ]
    if not roots:
        raise NothingFitsError
    return collection(roots)
