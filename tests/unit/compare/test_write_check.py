"""What is said of writes, from the write log and from what the consumers hold in the end."""

from pathlib import Path

import pytest

from placebench.compare.keep.records import WriteCheck
from placebench.compare.load.write_check import Holding, check_writes
from placebench.loadgen.write_log import LoggedWrite, WriteLog, read_write_log

ONE = {"rp": {"VCPU": 1}}
HELD = Holding(ONE, 1)


def claim(status: str | None) -> LoggedWrite:
    return LoggedWrite("c", ONE, status)


def release(status: str | None) -> LoggedWrite:
    return LoggedWrite("c", None, status)


@pytest.mark.parametrize(
    ("writes", "holding", "said"),
    [
        ([claim("204")], HELD, {}),
        ([claim("204")], None, {"lost": 1}),
        ([claim("204")], Holding({"rp": {"VCPU": 2}}, 1), {"doubled": 1}),
        ([claim("204")], Holding(ONE, 2), {"doubled": 1}),
        ([claim("409")], None, {}),
        ([claim("409")], HELD, {"refused_and_found": 1}),
        ([claim(None)], None, {}),
        ([claim("500")], HELD, {"in_doubt_and_found": 1}),
        ([claim("204"), release("204")], None, {}),
        ([claim("204"), release("204")], HELD, {"lost": 1}),
        ([claim("204"), release("404")], None, {"lost": 1}),
        ([claim("204"), release(None)], HELD, {}),
        ([claim("204"), release(None)], None, {"in_doubt_and_found": 1}),
    ],
)
def test_what_an_end_means(writes: list[LoggedWrite], holding: Holding | None, said: dict[str, int]) -> None:
    """An acknowledged write has to be found, a refused one not; after a 5xx and without an answer both are right."""
    made = check_writes(writes, {} if holding is None else {"c": holding})

    names = ("lost", "doubled", "refused_and_found", "in_doubt_and_found")
    assert dict.fromkeys(names, 0) | said == {name: getattr(made, name) for name in names}
    assert made.found == made.acknowledged - said.get("lost", 0)
    assert made.passed is not bool(said.keys() - {"in_doubt_and_found"})


def test_nobody_can_tell_where_nobody_answers() -> None:
    """What was answered stands; what was found is not known, which is neither well nor ill."""
    made = check_writes([claim("204"), LoggedWrite("d", ONE, None)], "nobody answers")

    expected = WriteCheck(
        2, {"204": 1, "no response": 1}, acknowledged=1, refused=0, in_doubt=1, reason="nobody answers"
    )
    assert expected == made
    assert made.passed is None


def test_a_write_log_that_was_cut_off(tmp_path: Path) -> None:
    """A write without a line for its answer, or with half of one, is in doubt; the consumers of two runs differ."""
    path = tmp_path / "log"
    log = WriteLog(path, seed=1, run="a")
    first, second = log.new_consumer(), log.new_consumer()
    log.responded(log.sent(first, ONE), "204")
    log.responded(log.sent(second, None), "204")
    path.write_text(path.read_text()[:-5])

    assert [LoggedWrite(first, ONE, "204"), LoggedWrite(second, None, None)] == read_write_log(path)
    other = WriteLog(tmp_path / "other", seed=1, run="b")
    assert first != other.new_consumer()
    for each in (log, other):
        each.close()
