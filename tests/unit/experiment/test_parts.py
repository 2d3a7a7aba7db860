"""A part that fails is tried once more and then named; answers that differ and an interrupt end the run at once."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from placebench.errors import GateFailedError, LoadError, ServerError
from placebench.experiment.parts import Parts
from placebench.experiment.records import FailedPart, RunHead
from placebench.experiment.run_folder import KeptHead


@pytest.fixture
def kept(tmp_path: Path) -> KeptHead:
    """The head of a run in its first moment."""
    head = RunHead(
        name="a-run",
        started_at="2026-11-21T15:00:00+00:00",
        status="running",
        request="/",
        topology="nested-perfload",
        trees=1,
        seed=1,
        variants=["tuned"],
        receipt={},
        manifest={},
        settings={},
        same_responses={},
    )
    return KeptHead(tmp_path, head)


def ends(*outcomes: BaseException | None) -> Callable[[], None]:
    """A part that ends so each time that it is made; None: well."""
    left: Iterator[BaseException | None] = iter(outcomes)

    def make() -> None:
        if (error := next(left)) is not None:
            raise error

    return make


def on_disk(kept: KeptHead, folder: Path) -> list[FailedPart]:
    """The failed parts as a reader of the folder sees them; the same as in memory."""
    read = RunHead.load(folder / "run.json").failed_parts
    assert read == kept.head.failed_parts
    return read


def test_a_part_that_fails_twice_is_named_with_the_last_reason(kept: KeptHead, tmp_path: Path) -> None:
    """Each failure is a note; an error that is not ours says its kind."""
    notes: list[str] = []

    Parts(kept, notes.append).make(
        "profile", "tuned", ends(ServerError("a worker\ndied"), ConnectionResetError("gone"))
    )

    assert on_disk(kept, tmp_path) == [FailedPart("profile", "tuned", "ConnectionResetError: gone")]
    assert notes == [
        "tuned profile failed, it is tried once more: a worker died",
        "tuned profile failed, the run goes on without it: ConnectionResetError: gone",
    ]


def test_a_part_that_fails_once_is_not_missing(kept: KeptHead, tmp_path: Path) -> None:
    """The reason of the first attempt stays; a part that is well at once leaves nothing."""
    parts = Parts(kept, print)

    parts.make("count", "naive", ends(None))
    parts.make("count", "tuned", ends(LoadError("no answer"), None))

    assert on_disk(kept, tmp_path) == [FailedPart("count", "tuned", "no answer", made_again=True)]


def test_a_later_sitting_makes_what_was_missing(kept: KeptHead, tmp_path: Path) -> None:
    """A part that failed twice and is made when the run is resumed is no longer missing."""
    Parts(kept, print).make("count", "tuned", ends(LoadError("one"), LoadError("two")))

    Parts(kept, print).make("count", "tuned", ends(None))

    assert on_disk(kept, tmp_path) == [FailedPart("count", "tuned", "two", made_again=True)]


@pytest.mark.parametrize("fatal", [GateFailedError("the answers differ"), KeyboardInterrupt()])
def test_what_ends_the_run_in_the_second_attempt(kept: KeptHead, tmp_path: Path, fatal: BaseException) -> None:
    """It passes, and the reason why there was a second attempt is on the disk."""
    with pytest.raises(type(fatal)):
        Parts(kept, print).make("open load", "tuned", ends(ServerError("a worker died"), fatal))

    assert on_disk(kept, tmp_path) == [FailedPart("open load", "tuned", "a worker died")]


def test_answers_that_differ_are_not_asked_again(kept: KeptHead) -> None:
    """One attempt, and nothing is named: the run ends."""
    with pytest.raises(GateFailedError):
        Parts(kept, print).make("count", "tuned", ends(GateFailedError("the answers differ")))

    assert kept.head.failed_parts == []
