"""Histories of one consumer with an anomaly of each kind planted, and right ones that look like it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from placebench.compare.load.write_check import Holding
from placebench.errors import LoadError
from placebench.lab.scaleout.history_check import HistoryCheck, HistoryLog, Operation, check_history, read_history
from placebench.loadgen.write_log import Allocations

ONE: Allocations = {"rp": {"VCPU": 1}}
PART: Allocations = {"rp": {}}
GONE: Mapping[str, Holding] = {}
HELD = {"c": Holding(ONE, 1)}
READ_AT_S = 9.0


def write(value: Allocations | None, began_s: float, status: str | None = "204") -> Operation:
    """By session 1, and a second long."""
    return Operation(1, "write", "c", value, began_s, began_s + 1 if status else None, status)


def read(value: Allocations | None, began_s: float = READ_AT_S, *, session: int = 1, status: str = "200") -> Operation:
    return Operation(session, "read", "c", value, began_s, began_s + 1, status)


CLAIM, RELEASE = write(ONE, 1), write(None, 3)


def anomalies(made: HistoryCheck) -> dict[str, int]:
    """Those that there are."""
    counts = {name: getattr(made, name) for name in ("stale", "backwards", "unwritten")}
    counts |= {name: getattr(made.writes, name) for name in ("lost", "doubled", "refused_and_found")}
    return {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize(
    ("operations", "held", "expected"),
    [
        pytest.param([CLAIM, read(ONE)], HELD, {}, id="its own write"),
        pytest.param([CLAIM, read(None)], HELD, {"stale": 1}, id="before its own write"),
        pytest.param([CLAIM, read(None, session=2)], HELD, {}, id="another session may be behind"),
        pytest.param([CLAIM, read(None, status="500")], HELD, {}, id="a read that failed saw nothing"),
        pytest.param([CLAIM, RELEASE, read(None)], GONE, {}, id="released"),
        pytest.param([CLAIM, RELEASE, read(ONE)], GONE, {"stale": 1}, id="before its own release"),
        pytest.param([CLAIM, read(ONE, 2), RELEASE, read(None)], GONE, {}, id="both versions in their order"),
        pytest.param(
            [CLAIM, RELEASE, read(None, 5, session=2), read(ONE, session=2)],
            *(GONE, {}),
            id="nothing may have been that before the claim",
        ),
        pytest.param(
            [CLAIM, read(ONE, 2, session=2), read(None, session=2)], HELD, {"backwards": 1}, id="seen, then gone"
        ),
        pytest.param(
            [CLAIM, read(ONE, 2, session=2), read(None, session=3)], HELD, {}, id="seen by another session than gone"
        ),
        pytest.param([CLAIM, read(ONE, 2), read(None)], HELD, {"stale": 1, "backwards": 1}, id="both at once"),
        pytest.param([CLAIM, read(PART)], HELD, {"unwritten": 1}, id="a part of what was written"),
        pytest.param([read(ONE, 0, session=2), write(ONE, 3)], HELD, {"unwritten": 1}, id="before it was written"),
        pytest.param([write(ONE, 1, "409"), read(ONE)], GONE, {"unwritten": 1}, id="a refused write is seen"),
        pytest.param([write(ONE, 1, None), read(ONE)], HELD, {}, id="a write in doubt may be seen"),
        pytest.param([write(ONE, 1, None), read(None)], HELD, {}, id="a write in doubt may come later"),
        pytest.param([CLAIM, write(None, 3, "500"), read(ONE)], GONE, {}, id="a release in doubt"),
        pytest.param([CLAIM], GONE, {"lost": 1}, id="acknowledged and not there"),
        pytest.param([CLAIM, RELEASE], HELD, {"lost": 1}, id="released and there"),
        pytest.param([CLAIM], {"c": Holding(ONE, 2)}, {"doubled": 1}, id="written twice"),
        pytest.param([write(ONE, 1, "409")], HELD, {"refused_and_found": 1}, id="refused and there"),
    ],
)
def test_an_anomaly_is_found_and_what_looks_like_it_is_none(
    operations: Sequence[Operation], held: Mapping[str, Holding], expected: dict[str, int]
) -> None:
    """Read-your-writes, monotonic reads, values from nowhere, lost and doubled writes."""
    made = check_history(operations, held)

    assert anomalies(made) == expected
    assert made.passed is not bool(expected)


def test_each_anomaly_counts_among_many_right_operations() -> None:
    """A hundred consumers, of which three are read before their claim, and two are gone in the end."""
    operations, held = [], {}
    for number in range(100):
        name = f"c{number}"
        seen = None if number < 3 else ONE
        operations += [replace(CLAIM, consumer=name), replace(read(seen), consumer=name)]
        if number > 1:
            held[name] = HELD["c"]

    made = check_history(operations, held)

    assert (made.reads, anomalies(made)) == (100, {"stale": 3, "lost": 2})


def test_without_the_tables_the_reads_are_checked_all_the_same() -> None:
    """Stale reads fail the check; without them nobody knows."""
    assert check_history([CLAIM, read(None)], "no response").passed is False
    assert check_history([CLAIM, read(ONE)], "no response").passed is None


def test_a_history_is_read_as_it_was_recorded(tmp_path: Path) -> None:
    """A write whose response never came is in doubt; the line that a kill cut short is left out."""
    path = tmp_path / "history.jsonl"
    log = HistoryLog(path)
    first = log.sent(replace(CLAIM, ended_s=None, status=None))
    log.sent(write(None, 3, None))
    log.ended(read(ONE, 2))
    log.ended(CLAIM, first)
    log.close()
    with path.open("a") as stream:
        stream.write('{"number": 4, "oper')

    assert read_history(path) == [CLAIM, write(None, 3, None), read(ONE, 2)]


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    """With the line."""
    path = tmp_path / "history.jsonl"
    path.write_text('{"number": 1}\n')

    with pytest.raises(LoadError, match="line 1"):
        read_history(path)
