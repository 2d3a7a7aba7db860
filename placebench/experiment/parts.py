"""Parts of a run that may fail without ending it: each is tried once more, then named with its reason.

The main class is `Parts`. A counted, profiled or open-loop pass is such a part, and so is the comparison of `perfload`.
A pass that is timed in a closed loop is not: what follows is measured and read against it.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError

from placebench.errors import GateFailedError, PlacebenchError
from placebench.experiment.records import FailedPart
from placebench.experiment.replicate import reason_of
from placebench.experiment.run_folder import KeptHead

T = TypeVar("T")
Say = Callable[[str], None]
FAILURES = (PlacebenchError, SQLAlchemyError, OSError)
"""What a part may fail with; GateFailedError is among them, and always ends the run."""


def nobody(_: str) -> None:
    """Listens to no step and no note."""


def try_twice(what: str, make: Callable[[], T], note: Say, *, keep: Say = nobody) -> T:
    """Return what *make* returns, at its second call where the first one fails.

    what: is made, for the *note* that it is tried once more; keep: is given the first reason. Raises what the second
    call raises, and GateFailedError at once: answers that differ do not agree the next time.
    """
    try:
        return make()
    except GateFailedError:
        raise
    except FAILURES as error:
        reason = reason_of(error)
        keep(reason)
        note(f"{what} failed, it is tried once more: {reason}")
        return make()


class Parts:
    """The parts of one run; those that failed are kept in its head."""

    def __init__(self, kept: KeptHead, note: Say) -> None:
        """note: is told of each failure as it happens."""
        self._kept = kept
        self._note = note

    def make(self, part: str, variant: str, make: Callable[[], object]) -> None:
        """Make a part, and name it where it failed twice.

        The first failure is kept too, so that a run which is interrupted in the second attempt says why there was one.
        """
        try:
            try_twice(f"{variant} {part}", make, self._note, keep=partial(self._keep, part, variant))
        except GateFailedError:
            raise
        except FAILURES as error:
            self.name(part, variant, reason_of(error))
        else:
            made = [replace(each, made_again=True) if _is(each, part, variant) else each for each in self._failed]
            self._kept.save(failed_parts=made)

    def name(self, part: str, variant: str, reason: str) -> None:
        """Keep in the head of the run that this part is missing, and why."""
        self._keep(part, variant, reason)
        self._note(f"{variant} {part}".strip() + f" failed, the run goes on without it: {reason}")

    @property
    def _failed(self) -> list[FailedPart]:
        return self._kept.head.failed_parts

    def _keep(self, part: str, variant: str, reason: str) -> None:
        others = [each for each in self._failed if not _is(each, part, variant)]
        self._kept.save(failed_parts=[*others, FailedPart(part, variant, reason)])


def _is(each: FailedPart, part: str, variant: str) -> bool:
    return (each.part, each.variant) == (part, variant)
