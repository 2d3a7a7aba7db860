"""What is said of a history: its steps by commit, whatever their subjects hold, and what is not known."""

import math
from pathlib import Path

from msgspec.structs import replace

from placebench.history import Blessing, Failure, History, HistoryEntry, Measured, series_of
from placebench.report import history_report, render_html, render_text

REFERENCE = "f" * 40
SUBJECT = "Say <b>hello</b> | twice"


def name_of(number: int) -> str:
    """The hash of a commit."""
    return f"{number:02x}" + "0" * 38


def entry(number: int, ratio: float) -> HistoryEntry:
    """Measured to ±0.5 %."""
    measured = Measured(ratio=ratio, low=ratio * math.exp(-0.005), high=ratio * math.exp(0.005), replicates=12)
    return HistoryEntry(
        commit=name_of(number),
        subject=SUBJECT,
        reference=REFERENCE,
        reference_name="v1",
        measured_at="2026-11-22T10:00:00+00:00",
        request="/orders",
        metrics={"cpu_s": measured},
        machine={},
        versions={},
    )


ENTRIES = [entry(number, 1.0 if number < 8 else 1.1) for number in range(16)]
UNTIL = name_of(8)


def test_a_regression_is_named_by_its_commits() -> None:
    """In the first sentence by number, below it with both commits; the page shows a subject as text."""
    history = History(ENTRIES)
    report = history_report(Path("/h/h.jsonl"), history, [series_of(history, "cpu_s")])
    page = render_html(report)

    assert report.headline == "1 regression in 17 commits against reference v1."
    assert report.notices == [f"Regression: server CPU +10 % between 070000000000 and {UNTIL[:12]} ({SUBJECT})"]
    assert [check.outcome for check in report.checks] == ["failed"]
    assert "<b>hello" not in page
    assert "Say &lt;b&gt;hello" in page
    assert f"from {UNTIL[:12]} (+10 %, regression)" in page  # in the picture


def test_a_metric_that_too_few_commits_have_is_undecided() -> None:
    """The headline names it, and no gate of it passes; without any other metric there is no verdict."""
    history = History(ENTRIES[:1])
    cpu, wall = (series_of(history, metric) for metric in ("cpu_s", "wall_s"))
    both, alone = (history_report(Path("/h/h.jsonl"), history, series) for series in ([cpu, wall], [wall]))

    assert both.headline == "No regression in 2 commits against reference v1; undecided: wall time."
    assert ["passed", "inconclusive"] == [check.outcome for check in both.checks]
    assert alone.headline == "No verdict in 0 commits against reference v1; undecided: wall time."


def test_an_accepted_step_says_why() -> None:
    """It is not a regression any more."""
    history = History([*ENTRIES, Blessing(commit=UNTIL, metric=None, reason="orders have items", blessed_at="")])
    report = history_report(Path("/h/h.jsonl"), history, [series_of(history, "cpu_s")])

    assert report.headline == "No regression in 17 commits against reference v1."
    assert report.notices[0].endswith("; accepted: orders have items")
    assert report.document["metrics"]["cpu_s"]["steps"][0]["regression"] is False


def test_what_was_not_measured_is_said() -> None:
    """A commit that did not start, and an empty history."""
    failure = Failure(commit=UNTIL, subject="x", reference=REFERENCE, measured_at="", reason="it does not start")
    history = History([failure])
    report = history_report(Path("/h/h.jsonl"), history, [series_of(history, "cpu_s")])

    assert report.headline.startswith("No commit has been measured yet")
    assert [check.outcome for check in report.checks] == ["inconclusive"]
    assert "080000000000 (x) could not be measured: it does not start" in render_text(report)


def test_a_history_of_counts_shows_its_commits() -> None:
    """After -n 0 there is no CPU: the terminal has a row per commit, and the check of CPU is not measured."""
    entries = [replace(each, metrics={"statements": each.metrics["cpu_s"]}) for each in ENTRIES]
    history = History(entries)
    report = history_report(Path("/h/h.jsonl"), history, [series_of(history, name) for name in ("cpu_s", "statements")])

    (commits,) = report.overview
    assert [*(name_of(number) for number in reversed(range(16))), "f" * 40] == [each.commit for each in commits.rows]
    assert "not measured" == report.checks[0].measured


def test_the_page_of_a_history_is_no_page_of_a_run() -> None:
    """It lies beside the file: no command for runs makes it again, and no list of runs is above it."""
    history = History(ENTRIES)
    page = render_html(history_report(Path("/h/h.jsonl"), history, [series_of(history, "cpu_s")]))

    assert "report open" not in page
    assert "../index.html" not in page
