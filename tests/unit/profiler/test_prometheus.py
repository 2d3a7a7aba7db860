"""The text for Prometheus, read by Prometheus's own Python parser."""

import pytest
from sqlalchemy.engine import Engine

from placebench.profiler import SqlProfiler, StatementStatistics, write_prometheus_text

parser = pytest.importorskip("prometheus_client.parser")
DURATION = "placebench_sql_statement_duration_seconds"


def parsed(text: str) -> dict[str, object]:
    """The families of metrics by name."""
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


def test_the_text_is_what_prometheus_reads() -> None:
    """Types and names; cumulative buckets that end with the count; labels with quotes, backslashes and line ends."""
    nasty = 'select "a\\b"\nfrom t'
    statistics = StatementStatistics("f1", nasty, error_count=0)
    for seconds in (0.00015, 0.0002, 0.3, 20.0):
        statistics.add(seconds, 5, failed=seconds > 1)

    families = parsed(write_prometheus_text([statistics], max_fingerprints=7))

    assert {name: family.type for name, family in families.items()} == {
        DURATION: "histogram",
        "placebench_sql_rows": "counter",
        "placebench_sql_errors": "counter",
        "placebench_sql_statement_info": "gauge",
        "placebench_sql_fingerprints_limit": "gauge",
    }
    buckets = {s.labels["le"]: s.value for s in families[DURATION].samples if s.name.endswith("_bucket")}
    assert (buckets["0.0001"], buckets["0.0002"], buckets["0.5"], buckets["10.0"], buckets["+Inf"]) == (0, 2, 3, 3, 4)
    assert list(buckets.values()) == sorted(buckets.values())
    sums = {s.name.removeprefix(DURATION): s.value for s in families[DURATION].samples if "le" not in s.labels}
    assert sums == {"_sum": pytest.approx(20.30035), "_count": 4}
    (info,) = families["placebench_sql_statement_info"].samples
    assert info.labels == {"fingerprint": "f1", "sql": 'select "a\\b" from t'}
    (rows,) = families["placebench_sql_rows"].samples
    assert (rows.name, rows.value, rows.labels) == ("placebench_sql_rows_total", 20, {"fingerprint": "f1"})


def test_rows_that_nobody_counted_have_no_sample() -> None:
    """Not 0, which would be a figure."""
    statistics = StatementStatistics("COMMIT", "COMMIT")
    statistics.add(0.001, None, failed=False)

    assert parsed(write_prometheus_text([statistics], max_fingerprints=1))["placebench_sql_rows"].samples == []


def test_the_number_of_series_is_bounded(profiler: SqlProfiler, engine: Engine) -> None:
    """Twenty samples of each fingerprint at most, however many the program makes up; long texts are cut."""
    profiler.collect_statistics(max_fingerprints=3)
    with engine.connect() as connection:
        for number in range(50):
            connection.exec_driver_sql(f"select 1 as c{number}" + " -- x" * 100).all()

    families = parsed(profiler.prometheus_text())

    samples = [sample for family in families.values() for sample in family.samples]
    assert {sample.labels["fingerprint"] for sample in samples if sample.labels} >= {"other"}
    assert len(samples) <= 4 * 22 + 1
    assert max(len(sample.labels.get("sql", "")) for sample in samples) <= 200
