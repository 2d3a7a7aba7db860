"""A Placement as it stands: every provider with what belongs to it, and what each consumer has; read, not yet changed.

The key piece is `Cloud`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from placebench.topology import Inventory


@dataclass(frozen=True)
class Provider:
    """One resource provider, with the UUIDs of its parent and its aggregates."""

    uuid: str
    parent_uuid: str | None
    inventories: tuple[Inventory, ...]
    traits: frozenset[str]
    aggregates: frozenset[str]


class Allocation(NamedTuple):
    """So much of one class of one provider."""

    provider_uuid: str
    resource_class: str
    amount: int


@dataclass(frozen=True)
class Cloud:
    """All providers, and the allocations of each consumer by its UUID."""

    providers: tuple[Provider, ...]
    consumers: Mapping[str, tuple[Allocation, ...]]
