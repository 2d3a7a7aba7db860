"""A history read from its file: order, references that follow each other, what is accepted and what is not."""

import math
from pathlib import Path

import pytest

from placebench.errors import HistoryError
from placebench.history import Blessing, Failure, History, HistoryEntry, Measured, append_lines, series_of
from placebench.history.history_file import Line

OLD, NEW = "a" * 40, "b" * 40


def commit(number: int) -> str:
    """Hash of the commit with this number."""
    return f"{number:040x}"


def entry(name: str, ratio: float, *, reference: str = OLD, half: float = 0.008) -> HistoryEntry:
    """Measured with an interval of ±0.8 %."""
    measured = Measured(ratio=ratio, low=ratio * math.exp(-half), high=ratio * math.exp(half), replicates=12)
    return HistoryEntry(
        commit=name,
        subject=f"change {name[-2:]}",
        reference=reference,
        reference_name="v1" if reference == OLD else "v2",
        measured_at="2026-11-22T10:00:00+00:00",
        request="/orders",
        metrics={"cpu_s": measured},
        machine={"processor": "x", "cores": 2},
        versions={"placebench": "0.2.0"},
    )


def rising(by: float = 1.05) -> list[Line]:
    """Ten commits at the level of the reference, and ten above."""
    return [entry(commit(number), (1.0 if number < 10 else by) + 0.001 * (number % 3)) for number in range(20)]


ORDER = [commit(number) for number in range(20)]


def test_a_step_upwards_is_a_regression_between_two_commits() -> None:
    """It names the last commit before and the first after; entries may come in any order."""
    made = series_of(History(rising()[::-1]), "cpu_s", order=ORDER)

    (found,) = made.regressions
    assert (found.after, found.until, found.commits) == (commit(9), commit(10), (commit(10),))
    assert math.exp(found.step.change) == pytest.approx(1.05, abs=0.002)


def test_the_first_commit_alone_can_be_a_regression() -> None:
    """The reference is a point too, with the ratio 1 to itself; not where it is not a commit of the order."""
    lines = [entry(commit(1), 3.0)]
    made = series_of(History(lines), "cpu_s", order=[OLD, commit(1)])

    assert [(each.after, each.until) for each in made.regressions] == [(OLD, commit(1))]
    assert made.points[0].interval == (1.0, 1.0, 1.0)
    assert [each.commit for each in series_of(History(lines), "cpu_s", order=[commit(1)]).points] == [commit(1)]


def test_a_regression_that_was_reverted_stays_gone() -> None:
    """A later, wanted step is one of its own: neither before nor after it is accepted does the first come back."""
    levels = [1.0] * 10 + [3.0] * 10 + [1.0] * 10 + [2.0] * 10
    lines: list[Line] = [entry(commit(number), level) for number, level in enumerate(levels)]
    order = [commit(number) for number in range(40)]
    accepted = Blessing(commit=commit(30), metric=None, reason="wanted", blessed_at="")

    assert [commit(30)] == [each.until for each in series_of(History(lines), "cpu_s", order=order).regressions]
    assert () == series_of(History([*lines, accepted]), "cpu_s", order=order).regressions
    assert [commit(10)] == [each.until for each in series_of(History(lines[:20]), "cpu_s", order=order).regressions]


def test_a_regression_that_was_half_mended_stays() -> None:
    """The level came down, and is still more than the margin above the one before."""
    levels = [1.0] * 10 + [1.4] * 10 + [1.2] * 10
    lines: list[Line] = [entry(commit(number), level) for number, level in enumerate(levels)]

    made = series_of(History(lines), "cpu_s", order=[commit(number) for number in range(30)])

    assert [commit(10)] == [each.until for each in made.regressions]


def test_commits_that_were_not_measured_widen_the_range() -> None:
    """Nobody is blamed for the seven that lie between."""
    kept = [each for number, each in enumerate(rising()) if not 7 <= number < 14]

    (found,) = series_of(History(kept), "cpu_s", order=ORDER).regressions

    assert (found.after, found.until) == (commit(6), commit(14))


@pytest.mark.parametrize(
    ("lines", "regressions"),
    [
        ([Blessing(commit=commit(10), metric="cpu_s", reason="checks more", blessed_at="")], 0),
        ([Blessing(commit=commit(10), metric=None, reason="checks more", blessed_at="")], 0),
        ([Blessing(commit=commit(10), metric="statements", reason="another metric", blessed_at="")], 1),
        ([Blessing(commit=commit(5), metric="cpu_s", reason="another commit", blessed_at="")], 1),
    ],
)
def test_a_blessing_accepts_its_step(lines: list[Line], regressions: int) -> None:
    """The blessing accepts no other step."""
    made = series_of(History([*rising(), *lines]), "cpu_s", order=ORDER)

    assert len(made.steps) == 1
    assert len(made.regressions) == regressions


@pytest.mark.parametrize("ratio", [0.95, 1.005])
def test_less_and_next_to_nothing_are_no_regressions(ratio: float) -> None:
    """5 % less is a step and no regression; 0.5 % more is below the margin."""
    assert series_of(History(rising(ratio)), "cpu_s", order=ORDER).regressions == ()


def test_what_went_away_is_no_regression() -> None:
    """Up at the tenth commit, and repaired ten later."""
    repaired = [entry(commit(number), 1.0 + 0.001 * (number % 3)) for number in range(20, 30)]

    made = series_of(History([*rising(), *repaired]), "cpu_s", order=[commit(number) for number in range(30)])

    assert (len(made.steps), made.regressions) == (2, ())


def test_a_new_reference_is_linked_by_the_run_that_measured_both() -> None:
    """v1 takes 1.2 times v2: what took 1.0 of v1 takes 1.2 of v2, and the step stays where it is."""
    link = entry(OLD, 1.2, reference=NEW)
    after = [entry(commit(number), 1.05 * 1.2, reference=NEW) for number in range(20, 25)]

    made = series_of(History([*rising(), link, *after]), "cpu_s", order=[commit(number) for number in range(25)])

    assert len(made.points) == 25
    assert made.points[0].interval[0] == pytest.approx(1.2)
    assert [each.until for each in made.steps] == [commit(10)]
    assert ((), ()) == (made.left_out, made.unlinked)


def test_a_commit_that_becomes_the_reference_stays_in_the_series() -> None:
    """The step that it brought is still accepted at its hash."""
    reference = commit(10)
    lines = [*rising(), Blessing(commit=reference, metric=None, reason="checks more", blessed_at="")]
    link = [entry(OLD, 1 / 1.05, reference=reference), entry(commit(20), 1.0, reference=reference)]

    made = series_of(History([*lines, *link]), "cpu_s", order=[commit(number) for number in range(21)])

    assert [each.until for each in made.steps] == [reference]
    assert made.regressions == ()


def test_what_nothing_links_is_left_out() -> None:
    """Entries against a reference without a link, and those of another branch, are counted and not shown."""
    after = [entry(commit(number), 1.0, reference=NEW) for number in range(20, 25)]

    made = series_of(History([*rising(), *after]), "cpu_s", order=[commit(number) for number in range(24)])

    assert 4 == len(made.points)
    assert [commit(24)] == [each.commit for each in made.left_out]
    assert [commit(number) for number in range(20)] == [each.commit for each in made.unlinked]


def test_entries_of_one_commit_are_one_point() -> None:
    """Two machines measured it: the precise one weighs more."""
    lines = [entry(commit(1), 1.0, half=0.001), entry(commit(1), 1.1, half=0.1)]

    _, point = series_of(History(lines), "cpu_s").points

    assert point.interval[0] == pytest.approx(1.0, abs=0.001)


def test_an_entry_without_an_interval_is_no_point() -> None:
    """Too few replicates."""
    bare = Measured(ratio=1.0, replicates=3)
    lines = [entry(commit(1), 1.0), replace_metrics(entry(commit(2), 1.0), bare)]

    assert [each.commit for each in series_of(History(lines), "cpu_s").points] == [OLD, commit(1)]


def replace_metrics(made: HistoryEntry, measured: Measured) -> HistoryEntry:
    """The entry with another CPU time."""
    fields = {name: getattr(made, name) for name in made.__struct_fields__}
    return HistoryEntry(**{**fields, "metrics": {"cpu_s": measured}})


def test_lines_are_appended_and_read_back(tmp_path: Path) -> None:
    """Lines of each kind are; what a kill cut short goes, and everything else stays byte for byte."""
    path = tmp_path / "history.jsonl"
    failure = Failure(commit=commit(3), subject="x", reference=OLD, measured_at="", reason="does not start")
    first = [entry(commit(1), 1.0), failure]
    append_lines(path, first)
    kept = path.read_bytes()
    path.write_bytes(kept + b'{"kind": "entry", "com')

    append_lines(path, [Blessing(commit=commit(1), metric=None, reason="x", blessed_at="")])

    assert path.read_bytes().startswith(kept)
    history = History.read(path)
    assert [type(each) for each in history.lines] == [HistoryEntry, Failure, Blessing]
    assert history.lines[:2] == first


def test_a_failure_that_was_measured_later_is_none() -> None:
    """An entry of the same commit takes its place."""
    failure = Failure(commit=commit(1), subject="x", reference=OLD, measured_at="", reason="does not start")

    assert History([failure]).failures == [failure]
    assert History([failure, entry(commit(1), 1.0)]).failures == []


@pytest.mark.parametrize("line", ['{"kind": "entry"}', '{"kind": "note"}', "[]", '{"kind": "bless", "commit": "HEAD"}'])
def test_a_line_that_is_none_of_ours_is_named(line: str, tmp_path: Path) -> None:
    """With the file and the number of the line."""
    path = tmp_path / "history.jsonl"
    append_lines(path, [entry(commit(1), 1.0)])
    path.write_text(path.read_text() + line + "\n")

    with pytest.raises(HistoryError, match=r"history\.jsonl: line 2"):
        History.read(path)
