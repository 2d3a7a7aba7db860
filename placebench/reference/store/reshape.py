"""Inventories and allocations changed together: what moves from one provider to another never stands on nothing.

The key piece is `reshape`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Connection

from placebench.reference.api.problems import BadRequest
from placebench.reference.store import claims, consumers, inventories
from placebench.reference.store.consumers import Claim
from placebench.reference.store.inventories import Inventory
from placebench.reference.store.providers import Locked, check_generation, matching
from placebench.tables import resource_providers

NOT_FOUND: Final = "placement.resource_provider.not_found"


@dataclass(frozen=True, slots=True)
class Stock:
    """All the inventories that a provider is to have in the end, and the generation that the client last saw."""

    generation: int
    inventories: Mapping[str, Inventory]


def reshape(connection: Connection, stocks: Mapping[str, Stock], several: Sequence[Claim]) -> None:
    """Give the providers their inventories and the consumers their allocations, together or not at all.

    New inventories come first, beside the old ones; then the allocations move; then the old ones go. A provider's
    generation moves on at each of these. Raises what `claims.write` and `inventories.replace` raise, and BadRequest
    with a code of its own for an unknown provider among the stocks.
    """
    _check_stocks(connection, stocks)
    known = consumers.hold(connection, several)
    held = claims.hold(connection, several, stocks)
    consumers.settle(connection, several, known)
    for uuid, stock in stocks.items():
        check_generation(held[uuid], stock.generation)
        if stock.inventories:
            present = inventories.of_provider(connection, held[uuid].id)
            held[uuid] = _stocked(connection, held[uuid], {**present, **stock.inventories})
    held |= claims.allocate(connection, several, held)
    for uuid, stock in stocks.items():
        _stocked(connection, held[uuid], stock.inventories)


def _check_stocks(connection: Connection, stocks: Mapping[str, Stock]) -> None:
    """The first provider that is missing or has another generation is told before any other fault.

    In the order of the request, as in Placement. Nothing is locked yet, so that generations are looked at again later.
    """
    known = {each.uuid: each for each in matching(connection, [resource_providers.c.uuid.in_(stocks)])}
    for uuid, stock in stocks.items():
        if uuid not in known:
            raise BadRequest(f"inventories: no resource provider {uuid}", code=NOT_FOUND)
        check_generation(known[uuid], stock.generation)


def _stocked(connection: Connection, provider: Locked, wanted: Mapping[str, Inventory]) -> Locked:
    return replace(provider, generation=inventories.replace(connection, provider, wanted))
