"""The operators' table, from measurements that a reader can check by hand."""

from pathlib import Path

import pytest
from failed_points import REASON, with_failures
from fake_survey import VALUES, write_survey
from reports import document_of, text_of

from placebench import results
from placebench.experiment.records import Measurement, append_lines
from placebench.results import Run


def operators_run(folder: Path, cpu_s: list[float]) -> Run:
    """A base of 4 s for 4 requests, and limit=10 with these CPU times, a repeat each."""
    write_survey(folder, "operators", repeats=len(cpu_s))
    (folder / "measurements.jsonl").unlink()
    for repeat, seconds in enumerate(cpu_s):
        for setting, spent_s in (("as installed", 4.0), ("limit=10", seconds)):
            values = {**VALUES["operators"], "cpu_s": spent_s}
            append_lines(
                folder / "measurements.jsonl", [Measurement({"topology": "cern", "setting": setting}, repeat, values)]
            )
    return results.load(folder)


def test_a_change_has_its_interval_from_six_repeats_on(tmp_path: Path) -> None:
    """Half the CPU in each of six repeats is half; the base is compared with nothing; five repeats have no limits."""
    base, limit = document_of(operators_run(tmp_path / "six", [2.0] * 6))["rows"]

    assert (1.0, None) == (base["cpu_s_per_request"], base["cpu_ratio"])
    assert pytest.approx((0.5, 0.5, 0.5)) == (limit["cpu_ratio"], limit["cpu_ratio_low"], limit["cpu_ratio_high"])
    assert (3.0, 1.0, 24, 0) == tuple(
        limit[name] for name in ("latency_s", "throughput_per_s", "requests", "unanswered")
    )
    five = document_of(operators_run(tmp_path / "five", [2.0] * 5))
    assert (pytest.approx(0.5), None) == (five["rows"][1]["cpu_ratio"], five["rows"][1]["cpu_ratio_low"])
    assert "limit=10" not in five["headline"]


def test_requests_without_a_response_are_counted_and_no_time_is_shown(tmp_path: Path) -> None:
    """A setting with which a client waits in vain has no CPU per request, and the summary says so."""
    folder = write_survey(tmp_path / "run", "operators", repeats=1)
    (folder / "measurements.jsonl").unlink()
    nothing = dict.fromkeys(("candidates", "hosts", "elapsed_s", "latency_s", "cpu_s"))
    values = {"requests": 4, "unanswered": 4, **nothing}
    append_lines(
        folder / "measurements.jsonl", [Measurement({"topology": "gpu-hosts", "setting": "as installed"}, 0, values)]
    )
    run = results.load(folder)

    (row,) = document_of(run)["rows"]

    assert (4, 4, None, None, None) == tuple(
        row[name] for name in ("unanswered", "requests", "cpu_s_per_request", "latency_s", "hosts")
    )
    assert "4 of 4 requests" in text_of(run)


def test_points_that_failed_have_a_reason(tmp_path: Path) -> None:
    """Whichever they are."""
    for failed, rows in with_failures(write_survey(tmp_path / "run", "operators")):
        assert failed == [row["reason"] for row in rows].count(REASON)
