"""Every provider as a word: the letters that it has, in the order in which they are dealt out. Equal words are one.

The key piece is `Spelling`. A letter goes to many providers at once, and a provider's word is a number, so that to
spell costs a look into two dicts a letter, and two providers are compared by their numbers.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from placebench.reference.shapes.letters import Letter

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
