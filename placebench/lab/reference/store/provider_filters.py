"""The filters of GET /resource_providers: name, uuid, in_tree, resources, required, member_of.

The main functions are `parse_filters`, which does not use the database, and `conditions`. A filter applies to each
provider by itself: sharing providers and the aggregates of roots do not matter for other providers.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, false, func, literal, select

from placebench.lab.inventory.tables import (
    allocations,
    inventories,
    placement_aggregates,
    resource_provider_aggregates,
    resource_provider_traits,
    resource_providers,
)
from placebench.lab.reference.domain.candidates_query import RequestGroup, parse_group
from placebench.lab.reference.domain.problems import BadRequest
from placebench.lab.reference.domain.validation import MAX_INTEGER
from placebench.lab.reference.store.name_tables import RESOURCE_CLASSES, TRAITS
from placebench.lab.reference.store.queries import is_one_or_has_no_remainder

NAMES: Final = ("in_tree", "member_of", "name", "required", "resources", "uuid")

_DASHED: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_OWN: Final = resource_providers.c


@dataclass(frozen=True, slots=True)
class ProviderFilters:
    """The filters that a provider must meet; an empty string or group is not a filter."""

    name: str
    uuid: str
    in_tree: str
    group: RequestGroup  # resources, traits and aggregates


def parse_filters(parameters: Mapping[str, list[str]]) -> ProviderFilters:
    """Return the filters in the query parameters; raise BadRequest for an invalid one.

    If name, uuid, in_tree or resources is repeated, the last value is used and the others are not checked.
    """
    last = {name: values[-1] for name, values in parameters.items()}
    for name in ("in_tree", "uuid"):
        if name in last and not _DASHED.fullmatch(last[name]):
            raise BadRequest(f"{name}: expected a UUID with its dashes, got {last[name]!r}")
    several = {name: parameters.get(name, []) for name in ("required", "member_of")}
    group = parse_group({"resources": parameters.get("resources", [])[-1:], **several})
    return ProviderFilters(last.get("name", ""), last.get("uuid", ""), last.get("in_tree", ""), group)


def conditions(connection: Connection, chosen: ProviderFilters) -> list[ColumnElement[bool]]:
    """Return the filters as conditions on resource_providers; up to 6 statements.

    Raises BadRequest for an unknown trait or class, in Placement's order: if the tree is unknown, traits and classes
    are not checked; if no provider has the required traits, neither forbidden ones nor classes are; if no provider is
    in the aggregates, classes are not.
    """
    group = chosen.group
    if chosen.in_tree and _nobody_is_left(
        connection, [_OWN.uuid == chosen.in_tree, _OWN.root_provider_id.is_not(None)]
    ):
        return [false()]
    trait_ids = TRAITS.ids(connection, frozenset[str]().union(*group.required))
    required = [_has_any_trait([trait_ids[name] for name in names]) for names in group.required]
    if _nobody_is_left(connection, required):
        return [false()]
    forbidden_ids = TRAITS.ids(connection, group.forbidden)
    members = [_is_in_any_aggregate(uuids) for uuids in group.member_of]
    if _nobody_is_left(connection, members):
        return [false()]
    class_ids = RESOURCE_CLASSES.ids(connection, [name for name, _ in group.resources])
    own: list[ColumnElement[bool]] = []
    if chosen.name:
        own.append(_OWN.name == chosen.name)
    if chosen.uuid:
        own.append(_OWN.uuid == chosen.uuid)
    if chosen.in_tree:
        member = resource_providers.alias("member")
        root = select(member.c.root_provider_id).where(member.c.uuid == chosen.in_tree).scalar_subquery()
        own.append(_OWN.root_provider_id == root)
    return [
        *own,
        *required,
        *members,
        *(_has_capacity(class_ids[name], amount) for name, amount in group.resources),
        *(~_has_any_trait([forbidden_ids[name]]) for name in group.forbidden),
        *(~_is_in_any_aggregate({uuid}) for uuid in group.not_member_of),
    ]


def _nobody_is_left(connection: Connection, wanted: Sequence[ColumnElement[bool]]) -> bool:
    """Return whether no provider meets the conditions (False if there are none).

    SELECT id FROM resource_providers WHERE ... LIMIT 1
    """
    return bool(wanted) and connection.scalar(select(_OWN.id).where(*wanted).limit(1)) is None


def _has_capacity(class_id: int, amount: int) -> ColumnElement[bool]:
    """Return the condition that a provider has capacity for the amount of the class.

    id IN (SELECT resource_provider_id FROM inventories WHERE resource_class_id = :class_id AND
    :amount + coalesce((SELECT sum(used) FROM allocations ...), 0) <= (total - reserved) * allocation_ratio
    AND :amount BETWEEN min_unit AND max_unit AND (step_size = 1 OR :amount % step_size = 0))
    """
    if amount > MAX_INTEGER:
        return false()
    stock, taken = inventories.c, allocations.c
    same = (taken.resource_provider_id == stock.resource_provider_id) & (taken.resource_class_id == class_id)
    used = select(func.coalesce(func.sum(taken.used), 0)).where(same).scalar_subquery()
    having = select(stock.resource_provider_id).where(
        stock.resource_class_id == class_id,
        used + amount <= (stock.total - stock.reserved) * stock.allocation_ratio,
        stock.min_unit <= amount,
        stock.max_unit >= amount,
        is_one_or_has_no_remainder(stock.step_size, literal(amount)),
    )
    return _OWN.id.in_(having)


def _has_any_trait(trait_ids: Collection[int]) -> ColumnElement[bool]:
    """Return the condition that a provider has one of the traits.

    id IN (SELECT resource_provider_id FROM resource_provider_traits WHERE trait_id IN :trait_ids)
    """
    own = resource_provider_traits.c
    return _OWN.id.in_(select(own.resource_provider_id).where(own.trait_id.in_(trait_ids)))


def _is_in_any_aggregate(uuids: Collection[str]) -> ColumnElement[bool]:
    """Return the condition that a provider is in one of the aggregates.

    id IN (SELECT resource_provider_id FROM resource_provider_aggregates JOIN placement_aggregates ON
    placement_aggregates.id = aggregate_id WHERE uuid IN :uuids)
    """
    own, aggregate = resource_provider_aggregates.c, placement_aggregates.c
    members: Select[Any] = select(own.resource_provider_id).join(placement_aggregates, aggregate.id == own.aggregate_id)
    return _OWN.id.in_(members.where(aggregate.uuid.in_(uuids)))
