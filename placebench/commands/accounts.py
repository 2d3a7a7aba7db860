"""What became of a load run's writes, in words: "sent 10 000, acknowledged 9595, found 9595, lost 0, doubled 0"."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from placebench import units

if TYPE_CHECKING:
    from placebench.experiment.write_check import WriteCheck


def accounts_in_words(made: "WriteCheck") -> Iterator[str]:
    """The sentence first, then the answers, then what is against them."""
    named = {name: getattr(made, name) for name in ("sent", "acknowledged", "found", "lost", "doubled")}
    yield ", ".join(f"{name} {units.count(count)}" for name, count in named.items() if count is not None)
    yield ", ".join(f"{status}: {units.count(count)}" for status, count in sorted(made.statuses.items()))
    if made.in_doubt_and_found is not None and made.in_doubt:
        yield f"in doubt {units.count(made.in_doubt)}, of which {units.count(made.in_doubt_and_found)} found"
    if made.refused_and_found:
        yield f"refused and found all the same: {units.count(made.refused_and_found)}"
    if made.lost and not made.found:
        yield "not one acknowledged write is there: is --db the database that the service serves?"
    if made.reason:
        yield f"whether one was lost cannot be told: {made.reason}"
