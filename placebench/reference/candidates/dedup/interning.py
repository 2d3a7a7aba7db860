"""Providers interned by content: equal inventories, traits and aggregates get one provider class."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from placebench.reference.candidates.dedup.tree_index import Kind, Picture, Stock


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


UNBORN = 0  # the word without letters, of whom nobody named at the start


class Spelling:
    """Words by provider; each word is the number of a letter and of the word before it."""

    def __init__(self, first: Sequence[Letter], provider_ids: Iterable[int]) -> None:
        """Each provider with its first letter."""
        self._letters: list[Letter] = [UNBORN]
        self._before = [UNBORN]
        begun = {letter: self.longer(UNBORN, letter) for letter in dict.fromkeys(first)}
        self.words = defaultdict(int, zip(provider_ids, map(begun.__getitem__, first), strict=True))

    def add(self, letter: Letter, provider_ids: Sequence[int]) -> None:
        """One more letter for these providers, who get each letter once; without a loop of Python's own."""
        words, longer = self.words, _Longer(self, letter)
        words.update(zip(provider_ids, map(longer.__getitem__, map(words.__getitem__, provider_ids)), strict=True))

    def longer(self, word: int, letter: Letter) -> int:
        """A new word."""
        self._letters.append(letter)
        self._before.append(word)
        return len(self._letters) - 1

    def letters(self, word: int) -> list[Letter]:
        """Those of the word, the first one first."""
        found = []
        while word != UNBORN:
            found.append(self._letters[word])
            word = self._before[word]
        return found[::-1]


class _Longer(dict[int, int]):
    """The word that each word becomes with the letter."""

    def __init__(self, spelling: Spelling, letter: Letter) -> None:
        self._spelling = spelling
        self._letter = letter

    def __missing__(self, word: int) -> int:
        longer = self[word] = self._spelling.longer(word, self._letter)
        return longer
