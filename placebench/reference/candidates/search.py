"""What one request knows while its candidates are searched: the key piece is `Search`."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection

from placebench.reference.candidates.forest import Forest
from placebench.reference.lookups.catalog import SHARING_TRAIT, Catalog, read_catalog
from placebench.reference.lookups.members import anchors_of_sharing, holders_of_traits
from placebench.reference.lookups.reader import Reader
from placebench.reference.lookups.trees import all_roots
from placebench.reference.problems import BadRequest
from placebench.reference.query import CandidateRequest
from placebench.reference.settings import DEFAULTS, Settings
from placebench.reference.steps import Ways
from placebench.reference.steps.usages import Stocks


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
