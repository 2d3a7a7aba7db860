"""The report of `placebench study workers`, on made-up measurements."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fake_survey import VALUES, measured_again, write_survey

from placebench.compare.keep.records import Measurement
from placebench.report import build_report
from placebench.report.renderers import render_html, render_markdown
from placebench.results import Run
from placebench.study.overheads import nothing_counted

ONE: Mapping[str, Any] = {"way": "threads", "workers": 1}
TWO: Mapping[str, Any] = {"way": "forks", "workers": 2}


def run(folder: Path, *elapsed_s: tuple[float, float], **values: Any) -> Run:
    """A run with the seconds of one thread and of two forks in each repeat; values: further ones, of the forks."""
    usual = VALUES["study-workers"]
    made = []
    for repeat, (one, two) in enumerate(elapsed_s):
        made.append(Measurement(dict(ONE), repeat, {**usual, "elapsed_s": one}))
        made.append(Measurement(dict(TWO), repeat, {**usual, **values, "elapsed_s": two}))
    write_survey(folder, "study-workers", repeats=len(elapsed_s))
    return measured_again(folder, made, points=[dict(ONE), dict(TWO)])


def test_rows_are_compared_within_each_repeat(tmp_path: Path) -> None:
    """A machine that is slower by and by changes no ratio: half of the time in each repeat is 0.5 with no width."""
    report = build_report(run(tmp_path, *((seconds, seconds / 2) for seconds in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0))))

    first, second = report.document["rows"]
    ratios = [round(second[name], 12) for name in ("ratio", "ratio_low", "ratio_high")]
    assert ([0.5, 0.5, 0.5], None) == (ratios, first["ratio"])
    assert report.headline == (
        "forks x 2 did the jobs in 0.5000 [95 % CI 0.5000, 0.5000; n = 6] of the time of threads x 1, in 50.0 MiB of "
        "memory (PSS) instead of 50.0 MiB."
    )


def test_five_replicates_decide_nothing(tmp_path: Path) -> None:
    """The report says how many would."""
    report = build_report(run(tmp_path, *[(2.0, 1.0)] * 5))

    assert report.headline.startswith(
        "Inconclusive: 5 replicates, 6 needed. The fastest of the others, forks x 2, took 0.5000 of the time of threads"
    )
    assert report.document["rows"][1]["ratio_low"] is None


def test_an_interval_around_one_shows_nothing(tmp_path: Path) -> None:
    """The ratios lie on both sides of 1."""
    report = build_report(run(tmp_path, *[(2.0, 1.9), (2.0, 2.1)] * 3))

    assert report.headline.startswith(
        "Nothing was shown to be faster than threads x 1; the fastest of the others were forks x 2, in "
    )


def test_different_numbers_of_results_are_a_line(tmp_path: Path) -> None:
    """Such workers have not done the same."""
    same, different = (
        build_report(run(tmp_path / str(results), *[(2.0, 1.0)] * 6, results=results)) for results in (80, 79)
    )

    assert ([], 1) == (list(same.summary), len(different.summary))
    assert "threads x 1: 80" in different.summary[0]
    assert "forks x 2: 79" in different.summary[0]


def test_combinations_that_failed_alone_are_named_each(tmp_path: Path) -> None:
    """One thread and two forks failed: nothing is said of two threads."""
    made = [Measurement(point, 0, {}, "killed") for point in (dict(ONE), dict(TWO))]
    write_survey(tmp_path, "study-workers", repeats=1)

    report = build_report(measured_again(tmp_path, made, points=[dict(ONE), dict(TWO)]))

    assert "way threads, workers 1; way forks, workers 2: killed" in render_markdown(report)


def test_a_pattern_that_counts_nothing_is_a_line() -> None:
    """A column of zeros could be the truth, or a wrong pattern; the line has what was returned, without secrets."""
    nothing = ({"rows": "1"}, [Measurement({}, 0, {"results": 0, "uncounted": '\'{"orders": [1], "token": "s3"}\''})])
    other = ({"rows": "2"}, [Measurement({}, 0, {"results": 0})])
    some = ({"rows": "3"}, [Measurement({}, 0, {"results": 0}), Measurement({}, 1, {"results": 4})])

    said = [list(nothing_counted(found, "$.items[*]")) for found in ([nothing, other], [some, nothing], [some], [])]

    seen = 'compare the pattern with what was returned, \'{"orders": [1], "token": "***"}\'.'
    assert [
        [f"--count $.items[*] counted no result: {seen}"],
        [f"--count $.items[*] counted no result with rows 1: {seen}"],
        [],
        [],
    ] == said
    assert [] == list(nothing_counted([nothing], ""))


def test_no_column_is_about_results_that_were_not_counted(tmp_path: Path) -> None:
    """Without --count."""
    made = run(tmp_path, *[(2.0, 1.0)] * 6, results=None)
    made.head.settings["count"] = ""

    report = build_report(made)

    assert "results" not in {column.name for column in report.overview[0].columns}
    assert "results" not in render_markdown(report).split("Environment")[0]
    assert "threads x 1" in render_html(report)
