"""The operators' table, from measurements that a reader can check by hand."""

from pathlib import Path

import pytest
from fake_survey import VALUES, measured_again, write_survey
from reports import document_of, text_of

from placebench.compare.keep.records import Measurement
from placebench.results import Run


def operators_run(folder: Path, cpu_s: list[float]) -> Run:
    """A base of 4 s for 4 requests, and limit=10 with these CPU times, a repeat each."""
    made = [
        Measurement({"topology": "cern", "setting": setting}, repeat, {**VALUES["operators"], "cpu_s": spent_s})
        for repeat, seconds in enumerate(cpu_s)
        for setting, spent_s in (("as installed", 4.0), ("limit=10", seconds))
    ]
    return measured_again(write_survey(folder, "operators", repeats=len(cpu_s)), made)


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
    nothing = dict.fromkeys(("candidates", "hosts", "elapsed_s", "latency_s", "cpu_s"))
    values = {"requests": 4, "unanswered": 4, **nothing}
    made = Measurement({"topology": "gpu-hosts", "setting": "as installed"}, 0, values)
    run = measured_again(write_survey(tmp_path / "run", "operators", repeats=1), [made])

    (row,) = document_of(run)["rows"]

    assert (4, 4, None, None, None) == tuple(
        row[name] for name in ("unanswered", "requests", "cpu_s_per_request", "latency_s", "hosts")
    )
    assert "4 of 4 requests" in text_of(run)
