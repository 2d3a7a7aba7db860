"""Reads trees from PostgreSQL into a tree index (`fetch`), or only their rows, to be decoded later (`read_rows`)."""

from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection

from placebench.lab.reference.candidates.dedup import statements
from placebench.lab.reference.candidates.dedup.decode import DecodedTrees, decode_ids
from placebench.lab.reference.candidates.dedup.few_trees import NO_ROWS, read_few
from placebench.lab.reference.candidates.dedup.statements import Row, TreeRows, Trees, rows_of
from placebench.lab.reference.candidates.dedup.tree_index import Names, TreeIndex
from placebench.lab.reference.domain.candidates_query import CandidateRequest
from placebench.lab.reference.store.candidate_queries import SHARING_TRAIT

ALL_TREES: Final = Trees()


def fetch(
    connection: Connection,
    index: TreeIndex,
    trees: Trees = ALL_TREES,
    *,
    aggregates: bool = True,
    summed: bool = False,
) -> list[int]:
    """Read the trees that the connection's transaction sees into the index, and return their root ids.

    1 round trip for a few trees, otherwise 4, or 5 with aggregates. Providers below a provider without a root are
    skipped.

    Args:
        connection: The connection to read from.
        index: The index that gets the trees.
        trees: The trees to read.
        aggregates: Whether to read aggregates; they are read anyway if a provider shares.
        summed: As in `statements.select_usages`.

    Raises:
        DatabaseError: A uuid cannot be written into JSON as it is.
    """
    aggregates = aggregates or SHARING_TRAIT in index.names.traits
    rows = read_rows(connection, trees, aggregates=aggregates, summed=summed)
    index.names.update(names_in(rows))
    return list(DecodedTrees(rows, index).root_ids)


def read_rows(
    connection: Connection, trees: Trees = ALL_TREES, *, aggregates: bool = True, summed: bool = False
) -> TreeRows:
    """Return the rows of the trees, with the round trips and arguments of `fetch`."""
    if trees.are_few:
        few = read_few(connection, trees, aggregates=aggregates, summed=summed)
        return few if aggregates or not _share(few.traits) else read_few(connection, trees, summed=summed)
    (providers,) = rows_of(connection, statements.select_providers(trees.providers()))
    ids, _, _ = providers
    if ids is None:
        return NO_ROWS
    having = trees.having(decode_ids(ids))
    inventories = rows_of(connection, statements.select_inventories(having))
    traits = rows_of(connection, statements.select_traits(having))
    aggregates = aggregates or _share(traits)
    return TreeRows(
        providers,
        inventories,
        traits,
        rows_of(connection, statements.select_aggregates(having)) if aggregates else None,
        rows_of(connection, statements.select_usages(having, summed=summed)),
    )


def _share(traits: Iterable[Row]) -> bool:
    return any(name == SHARING_TRAIT for name, _ in traits)


def names_in(rows: TreeRows) -> Names:
    """Return the names of the traits and classes of the providers in these rows."""
    return Names({name for name, _ in rows.traits}, {name for _, name, *_ in rows.inventories})


def fetch_names(connection: Connection, names: Names, request: CandidateRequest) -> None:
    """Read names of the request that *names* lacks (traits, classes) and the roots of in_tree; up to 3 round trips."""
    named = {*request.root_required, *request.root_forbidden}
    named.update(name for group in request.groups for name in group.forbidden.union(*group.required))
    if unseen := named - names.traits:
        names.traits.update(statements.find_names(connection, "traits", unseen))
    if unseen := {name for group in request.groups for name, _ in group.resources} - names.resource_classes:
        names.resource_classes.update(statements.find_names(connection, "resource_classes", unseen))
    uuids = {group.in_tree for group in request.groups if group.in_tree is not None}
    if uuids:
        names.roots_of_named.update(statements.find_roots(connection, uuids))
