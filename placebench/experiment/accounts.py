"""What became of the writes of a load run: acknowledged, refused or in doubt, and what of it is in the tables.

The key piece is `account`, which compares the ledger with what the consumers hold in the end. No input or output.

A write that was acknowledged (2xx) must be found. One that was refused (4xx) must not. After a 5xx, and where no answer
came, both are right. Nobody but the run writes for its consumers, and each has one claim and at most one release.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from placebench.telemetry.ledger import Allocations, Write

NO_ANSWER = "no answer"


@dataclass(frozen=True)
class Holding:
    """What a consumer has in the end."""

    allocations: Allocations
    generation: int | None
    """1 after one write; None where it has nothing."""


@dataclass(frozen=True)
class Accounts:
    """Writes counted; `reason` says why they could not be looked for, and then what was found is None."""

    sent: int
    statuses: dict[str, int]
    """Answers to writes; `no answer` for those without."""
    acknowledged: int
    refused: int
    in_doubt: int
    found: int | None = None
    """Acknowledged writes that stand in the tables."""
    lost: int | None = None
    """Acknowledged writes that do not."""
    doubled: int | None = None
    """Claims that stand there more than once."""
    refused_and_found: int | None = None
    in_doubt_and_found: int | None = None
    reason: str = ""

    @property
    def well(self) -> bool | None:
        """Whether nothing is lost, doubled or there against the answer; None where nobody could look."""
        if self.lost is None:
            return None
        return not (self.lost or self.doubled or self.refused_and_found)


def account(writes: Iterable[Write], held: Mapping[str, Holding] | str) -> Accounts:
    """The accounts of a run. held: by consumer, those with nothing left out; or why that could not be read."""
    writes = list(writes)
    sorts = Counter(_sort(write.status) for write in writes)
    answers = {
        "sent": len(writes),
        "statuses": dict(Counter(write.status or NO_ANSWER for write in writes)),
        "acknowledged": sorts["acknowledged"],
        "refused": sorts["refused"],
        "in_doubt": sorts["in_doubt"],
    }
    if isinstance(held, str):
        return Accounts(**answers, reason=held)  # type: ignore[arg-type]  # each is of its field's type
    seen = Counter[str]()
    for history in _by_consumer(writes):
        seen.update(_verdicts(history, held.get(history[0].consumer)))
    return Accounts(
        **answers,  # type: ignore[arg-type]
        found=sorts["acknowledged"] - seen["lost"],
        lost=seen["lost"],
        doubled=seen["doubled"],
        refused_and_found=seen["refused_and_found"],
        in_doubt_and_found=seen["in_doubt_and_found"],
    )


def _sort(status: str | None) -> str:
    kinds = {"2": "acknowledged", "4": "refused"}
    return kinds.get((status or "")[:1], "in_doubt")


def _by_consumer(writes: Iterable[Write]) -> Iterable[list[Write]]:
    histories: dict[str, list[Write]] = {}
    for write in writes:
        histories.setdefault(write.consumer, []).append(write)
    return histories.values()


def _verdicts(history: list[Write], holding: Holding | None) -> Iterable[str]:
    """What is to be said of a claim and its release, if there was one."""
    claim, release = history[0], history[1] if len(history) > 1 else None
    last = release if release is not None and _sort(release.status) != "refused" else claim
    if holding is not None and not _once(claim, holding):
        yield "doubled"
    if _sort(last.status) == "in_doubt":
        if (holding is None) == (last is release):
            yield "in_doubt_and_found"
    elif _sort(last.status) == "refused":
        if holding is not None:
            yield "refused_and_found"
    elif (holding is None) != (last is release):
        yield "lost"


def _once(claim: Write, holding: Holding) -> bool:
    return holding.generation == 1 and holding.allocations == claim.claimed
