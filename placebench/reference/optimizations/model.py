"""The objects of the search, an object a provider as in Placement: with a __dict__, with __slots__, or versioned."""

from dataclasses import dataclass
from typing import TypeVar

from placebench.reference.optimizations.optimization import Extra, Implementation, Optimization

_T = TypeVar("_T")


@dataclass(eq=False)
class Provider:
    """A resource provider and its place in its tree."""

    id: int
    uuid: str
    parent_id: int | None
    root_id: int


@dataclass(eq=False)
class Stock:
    """What a provider has of one resource class."""

    class_id: int
    capacity: int
    used: int
    max_unit: int


@dataclass(eq=False)
class Summary:
    """What the document says of a provider."""

    provider: Provider
    stocks: list[Stock]
    traits: list[str]


@dataclass(eq=False)
class Resource:
    """An amount of a resource class taken from a provider."""

    provider_id: int
    class_id: int
    amount: int


@dataclass(eq=False)
class Candidate:
    """Resources that belong together: what solves one group at an anchor, or all groups."""

    anchor_id: int  # root of the tree that the solution belongs to; sharing providers have several
    resources: list[Resource]
    mappings: dict[str, tuple[int, ...]]  # the providers of each group, by suffix


@dataclass(frozen=True, slots=True)
class Model:
    """The classes that one variant makes its objects from."""

    provider: type[Provider]
    stock: type[Stock]
    summary: type[Summary]
    resource: type[Resource]
    candidate: type[Candidate]


def _with_slots(plain: type[_T]) -> type[_T]:
    """The same class once more, its fields in slots: what dataclass(slots=True) makes of it."""
    body = {name: value for name, value in vars(plain).items() if name not in {"__dict__", "__weakref__"}}
    return type(plain.__name__, (), {**body, "__slots__": tuple(plain.__annotations__)})


PLAIN_ATTRIBUTES = Model(Provider, Stock, Summary, Resource, Candidate)

SLOTS = Model(
    _with_slots(Provider),
    _with_slots(Stock),
    _with_slots(Summary),
    _with_slots(Resource),
    _with_slots(Candidate),
)


def _versioned() -> Model:
    from placebench.reference.optimizations.versioned_objects import versioned_model

    return versioned_model()


OPTIMIZATION = Optimization(
    name="slots",
    step="model",
    baseline=Implementation("plain_attributes", PLAIN_ATTRIBUTES),
    alternative=Implementation("slots", SLOTS),
    further=(
        Implementation("versioned_objects", _versioned, extra=Extra("versionedobjects", "oslo_versionedobjects")),
    ),
    why="Tens of thousands of objects live for one request: fewer bytes each, and less for GC to traverse.",
    source="Placement 5d3243f4 (August 2019).",
    metric="cpu_s",
)
