"""The classes of the search's objects, with __dict__, __slots__ or as versioned objects, and how objects are copied."""

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from placebench.lab.reference.domain.optimization import Extra, Implementation, Optimization

_T = TypeVar("_T")


@dataclass(eq=False)
class ProviderNode:
    """A resource provider and its place in its tree."""

    id: int
    uuid: str
    parent_id: int | None
    root_id: int


@dataclass(eq=False)
class ProviderInventory:
    """A provider's inventory of one resource class."""

    class_id: int
    capacity: int
    used: int
    max_unit: int


@dataclass(eq=False)
class ProviderSummary:
    """The summary of a provider in the response."""

    provider: ProviderNode
    inventories: list[ProviderInventory]
    traits: list[str]


@dataclass(eq=False)
class Resource:
    """An amount of a resource class taken from a provider."""

    provider_id: int
    class_id: int
    amount: int


@dataclass(eq=False)
class Candidate:
    """The resources that solve one group, or all groups, at an anchor."""

    anchor_id: int  # the root of the tree that the solution is for; sharing providers can serve several trees
    resources: list[Resource]
    mappings: dict[str, tuple[int, ...]]  # the providers of each group, by suffix


@dataclass(frozen=True, slots=True)
class Model:
    """The classes of a variant's objects."""

    provider: type[ProviderNode]
    inventory: type[ProviderInventory]
    summary: type[ProviderSummary]
    resource: type[Resource]
    candidate: type[Candidate]


def _with_slots(plain: type[_T]) -> type[_T]:
    """Return a copy of the class with its fields in slots, as dataclass(slots=True) would make it."""
    body = {name: value for name, value in vars(plain).items() if name not in {"__dict__", "__weakref__"}}
    return type(plain.__name__, (), {**body, "__slots__": tuple(plain.__annotations__)})


_PLAIN_ATTRIBUTES = Model(ProviderNode, ProviderInventory, ProviderSummary, Resource, Candidate)

_SLOTS = Model(
    _with_slots(ProviderNode),
    _with_slots(ProviderInventory),
    _with_slots(ProviderSummary),
    _with_slots(Resource),
    _with_slots(Candidate),
)


@cache
def _versioned_model() -> Model:
    """Return the classes made with oslo.versionedobjects, which is imported here since it needs 0.6 s and 15 MB."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the import of eventlet, a dependency, warns of deprecation
        from oslo_versionedobjects import base, fields

    integer = fields.IntegerField

    class Ids(fields.FieldType):  # type: ignore[misc]  # the optional library is not looked into
        """The type of a tuple of ids, which a set can contain, in contrast to a list of the library."""

        def coerce(self, _obj: Any, _attr: str, value: Any) -> tuple[int, ...]:
            return tuple(int(each) for each in value)

    def made(name: str, **kinds: Any) -> type[Any]:
        """Return a versioned class with these fields, whose arguments are the values in the order of the fields."""
        names = tuple(kinds)

        def init(self: Any, *values: Any) -> None:
            base.VersionedObject.__init__(self, **dict(zip(names, values, strict=True)))

        kind = type(name, (base.VersionedObject,), {"fields": kinds, "__init__": init})
        registered: type[Any] = base.VersionedObjectRegistry.register(kind)
        return registered

    return Model(
        provider=made(
            "ProviderNode", id=integer(), uuid=fields.UUIDField(), parent_id=integer(nullable=True), root_id=integer()
        ),
        inventory=made("ProviderInventory", class_id=integer(), capacity=integer(), used=integer(), max_unit=integer()),
        summary=made(
            "ProviderSummary",
            provider=fields.ObjectField("ProviderNode"),
            inventories=fields.ListOfObjectsField("ProviderInventory"),
            traits=fields.ListOfStringsField(),
        ),
        resource=made("Resource", provider_id=integer(), class_id=integer(), amount=integer()),
        candidate=made(
            "Candidate",
            anchor_id=integer(),
            resources=fields.ListOfObjectsField("Resource"),
            mappings=fields.Field(fields.Dict(fields.Field(Ids()))),
        ),
    )


MODEL = Optimization(
    name="slots",
    field="model",
    baseline=Implementation("plain_attributes", _PLAIN_ATTRIBUTES),
    alternative=Implementation("slots", _SLOTS),
    further=(
        Implementation("versioned_objects", _versioned_model, extra=Extra("versionedobjects", "oslo_versionedobjects")),
    ),
    why="Tens of thousands of objects live for one request: fewer bytes each, and less for GC to traverse.",
    source="Placement 5d3243f4 (August 2019).",
    metric="cpu_s",
)


def _without_copy_method(resource: type[Resource]) -> type[Resource]:
    """Return the class unchanged: copy.copy calls __reduce_ex__ and rebuilds the object from its state."""
    return resource


@cache
def _with_copy_method(resource: type[Resource]) -> type[Resource]:
    """Return a subclass with __copy__, which copy.copy calls instead."""
    return type(resource.__name__, (resource,), {"__slots__": (), "__copy__": _copy})


def _copy(self: Resource) -> Resource:
    return type(self)(self.provider_id, self.class_id, self.amount)


COPYING = Optimization(
    name="copies",
    field="copying",
    baseline=Implementation("copy_module", _without_copy_method),
    alternative=Implementation("copy_method", _with_copy_method),
    why="The copy protocol takes the object apart through pickle's hooks; a method that calls the class does not.",
    source="Placement 1a7d39be (August 2019). Our profile of Placement 16.0.0: under 1 % of a request is copying.",
    request="/allocation_candidates?resources_A=VCPU:1&resources_B=VCPU:1&resources_C=VCPU:1&group_policy=none",
    metric="cpu_s",
)
