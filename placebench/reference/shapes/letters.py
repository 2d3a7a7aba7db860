"""What the words of `spelling` are made of, and the kind of provider that a word spells: the key piece is `kind_of`."""

from collections.abc import Iterable, Sequence
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


def kind_of(picture: Picture, letters: Sequence[Letter]) -> Kind:
    """The provider that the letters spell; what is used of a class that it has no inventory of does not count."""
    used = {letter.class_name: letter.amount for letter in letters if isinstance(letter, Used)}
    stocks = (_stock(letter, used) for letter in letters if isinstance(letter, Inventory))
    traits = (letter.trait for letter in letters if isinstance(letter, Holds))
    return picture.kind(tuple(stocks), tuple(sorted(traits)), _aggregates(letters))


def parents_of(words: Iterable[Sequence[Letter]]) -> tuple[int, ...]:
    """The position of each provider's parent in its tree."""
    steps = (letters[0] for letters in words)
    return tuple(place - step for place, step in enumerate(steps) if isinstance(step, int))


def _stock(inventory: Inventory, used: dict[str, int]) -> Stock:
    """With what can be given in all, truncated as Placement truncates it."""
    capacity = int((inventory.total - inventory.reserved) * inventory.allocation_ratio)
    return Stock(inventory.class_name, capacity, used.get(inventory.class_name, 0), *inventory[-3:])


def _aggregates(letters: Iterable[Letter]) -> frozenset[str]:
    return frozenset(letter.aggregate for letter in letters if isinstance(letter, Joins))
