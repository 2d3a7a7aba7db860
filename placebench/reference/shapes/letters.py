"""What the words of `spelling` are made of, and the kind of provider that a word spells: the key piece is `kind_of`."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from placebench.reference.shapes.picture import Kind, Picture, Stock


class Inventory(NamedTuple):
    """A row of inventories, without its provider."""

    class_name: str
    total: int
    reserved: int
    allocation_ratio: float
    min_unit: int
    max_unit: int
    step_size: int


class Used(NamedTuple):
    """What is used of a class."""

    class_name: str
    amount: int


class Holds(NamedTuple):
    """A trait."""

    trait: str


class Joins(NamedTuple):
    """An aggregate, by its uuid."""

    aggregate: str


Letter = int | Inventory | Used | Holds | Joins  # the first one: how many places before it the provider's parent stands


def kind_of(picture: Picture, letters: Iterable[Letter]) -> Kind:
    """The provider that the letters spell; what is used of a class that it has no inventory of does not count."""
    inventories, traits, aggregates = [], [], []
    used: dict[str, int] = {}
    for letter in letters:
        if isinstance(letter, Inventory):
            inventories.append(letter)
        elif isinstance(letter, Holds):
            traits.append(letter.trait)
        elif isinstance(letter, Used):
            used[letter.class_name] = letter.amount
        elif isinstance(letter, Joins):
            aggregates.append(letter.aggregate)
    stocks = tuple([_stock(inventory, used) for inventory in inventories])
    return picture.kind(stocks, tuple(sorted(traits)), frozenset(aggregates))


def _stock(inventory: Inventory, used: Mapping[str, int]) -> Stock:
    """With what can be given in all, truncated as Placement truncates it."""
    name, total, reserved, allocation_ratio, min_unit, max_unit, step_size = inventory
    capacity = int((total - reserved) * allocation_ratio)
    return Stock(name, capacity, used.get(name, 0), min_unit, max_unit, step_size)
