"""The answer from PostgreSQL, nothing kept between requests: the key piece is `answer_by_dedup`.

Which trees are read is decided here: all at once where all may have a candidate; a few at a time, ever more, where the
search ends at a limit; and in an answer too long to be held part by part, twice, since summaries follow requests.
"""

from collections.abc import Callable, Iterator
from typing import Final

from sqlalchemy import Connection

from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.candidates.dedup import selection
from placebench.reference.candidates.dedup.fetch import ALL_TREES, fetch, fetch_names
from placebench.reference.candidates.dedup.plans import pools
from placebench.reference.candidates.dedup.relevance import Demands
from placebench.reference.candidates.dedup.selection import Choice, Chosen
from placebench.reference.candidates.dedup.solver import document, knows_names, solve, written
from placebench.reference.candidates.dedup.statements import Trees, largest_id, roots_sharing
from placebench.reference.candidates.dedup.tree_index import Picture
from placebench.reference.candidates.results import Body
from placebench.reference.settings import DEFAULTS, Settings
from placebench.reference.variants import Implementations

HELD: Final = 200_000  # ids of providers; more are read part by part
FEWEST: Final = 8  # trees that are read at once
GROWTH: Final = 8


def answer_by_dedup(
    connection: Connection, request: CandidateRequest, implementations: Implementations, settings: Settings
) -> Body:
    """The JSON body; 5 to 9 round trips, 5 more for each further part of the trees.

    Raises BadRequest for names that do not exist, unless the answer is empty before they matter.
    """
    reading = _Reading(connection, request, implementations)
    choice = Choice(request, settings)
    if implementations.reach(choice):
        return reading.first_found(choice, settings)
    last = largest_id(connection)
    if last > HELD and choice.left is None and not settings.randomize:
        return reading.in_parts(last)
    return reading.whole(settings)


class _Reading:
    def __init__(self, connection: Connection, request: CandidateRequest, implementations: Implementations) -> None:
        self._connection = connection
        self._request = request
        self._likeness = implementations.likeness
        self._aggregates = implementations.memberships(request)

    def whole(self, settings: Settings) -> Body:
        """From all trees at once."""
        picture = self._picture(ALL_TREES)
        fetch_names(self._connection, picture, self._request)
        return solve(picture, self._request, settings, self._likeness)

    def first_found(self, choice: Choice, settings: Settings) -> Body:
        """From as few trees as have enough candidates, beside those with a sharing provider, who may be guests."""
        picture, chosen, demands = self._sharing(), Chosen(), self._demands()
        last, count = 0, max(FEWEST, min(choice.left or 0, HELD))
        while choice.left:
            roots = fetch(self._connection, picture, Trees.after(last, count), aggregates=self._aggregates)
            if not last:
                fetch_names(self._connection, picture, self._request)
                if not knows_names(picture, self._request):
                    return self.whole(settings)
            if not roots:
                break
            choice.choose(pools(picture, demands, roots), chosen)
            last, count = roots[-1], count * GROWTH
        return written(picture, chosen)

    def in_parts(self, last: int) -> Body:
        """From some trees after the other, with none held; all at once where guests or unknown names take part."""
        picture = self._sharing()
        fetch_names(self._connection, picture, self._request)
        if picture.sharing or not knows_names(picture, self._request):
            return self.whole(DEFAULTS)
        named = picture.named

        def parts(write: Callable[[Chosen, Picture], Iterator[list[str]]]) -> Iterator[list[str]]:
            for first in range(0, last + 1, HELD):
                part = self._picture(Trees.between(first, first + HELD - 1))
                part.named = named
                chosen = Choice(self._request, DEFAULTS).choose(pools(part, self._demands()))
                yield from write(chosen, part)

        return document(parts(lambda chosen, _: selection.requests(chosen)), parts(selection.summaries))

    def _sharing(self) -> Picture:
        """With the trees that have a sharing provider; 1 round trip, 5 more if there are any."""
        roots = roots_sharing(self._connection)
        return self._picture(Trees.of(roots)) if roots else Picture()

    def _demands(self) -> Demands:
        return Demands(self._request, self._likeness)

    def _picture(self, trees: Trees) -> Picture:
        picture = Picture()
        fetch(self._connection, picture, trees, aggregates=self._aggregates)
        return picture
