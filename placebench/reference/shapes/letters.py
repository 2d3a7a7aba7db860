"""What the words of `spelling` are made of, and the kind of provider that a word spells: the key piece is `kind_of`."""

from collections.abc import Iterable
from typing import NamedTuple

from placebench.reference.shapes.picture import Kind, Picture, Stock


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


Letter = int | Stock | Used | Holds | Joins  # the first one: how many places before it the provider's parent stands


def kind_of(picture: Picture, letters: Iterable[Letter]) -> Kind:
    """The provider that the letters spell; what is used of a class that it has no inventory of does not count."""
    stocks, traits, aggregates = [], [], []
    used: dict[str, int] = {}
    for letter in letters:
        if isinstance(letter, Stock):
            stocks.append(letter)
        elif isinstance(letter, Holds):
            traits.append(letter.trait)
        elif isinstance(letter, Used):
            used[letter.class_name] = letter.amount
        elif isinstance(letter, Joins):
            aggregates.append(letter.aggregate)
    if used:
        stocks = [each._replace(used=used[each.class_name]) if each.class_name in used else each for each in stocks]
    return picture.kind(tuple(stocks), tuple(sorted(traits)), frozenset(aggregates))


def stock_of(
    class_name: str,
    total: int,
    reserved: int,
    allocation_ratio: float,
    min_unit: int,
    max_unit: int,
    step_size: int,
) -> Stock:
    """A row of inventories as a stock that nothing is used of yet; its capacity truncated as Placement truncates it."""
    return Stock(class_name, int((total - reserved) * allocation_ratio), 0, min_unit, max_unit, step_size)
