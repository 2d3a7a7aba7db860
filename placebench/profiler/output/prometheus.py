"""Statement statistics in Prometheus's text format, version 0.0.4: `write_prometheus_text`.

Durations are a histogram, so that a server can add up processes and compute percentiles over any time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from placebench.profiler.model.shortened_sql import one_line
from placebench.profiler.model.statement_statistics import StatementStatistics

_BUCKETS_S = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_MAX_SQL_LENGTH = 200
_DURATION = "placebench_sql_statement_duration_seconds"


def write_prometheus_text(statistics: Sequence[StatementStatistics], *, max_fingerprints: int) -> str:
    """Return the text of a scrape; samples have the label `fingerprint`, and *max_fingerprints* is a gauge."""
    histograms, texts = [], []
    for each in statistics:
        labels = {"fingerprint": each.fingerprint}
        for bound, within in zip(_BUCKETS_S, each.counts_within(_BUCKETS_S), strict=True):  # counts are cumulative
            histograms.append(f"{_DURATION}_bucket{_labels({**labels, 'le': str(bound)})} {within}")
        histograms.append(f"{_DURATION}_bucket{_labels({**labels, 'le': '+Inf'})} {each.count}")
        histograms.append(f"{_DURATION}_sum{_labels(labels)} {each.total_s!r}")
        histograms.append(f"{_DURATION}_count{_labels(labels)} {each.count}")
        sql = one_line(each.sql)
        sql = sql if len(sql) <= _MAX_SQL_LENGTH else f"{sql[: _MAX_SQL_LENGTH - 1]}…"
        texts.append(f"placebench_sql_statement_info{_labels({**labels, 'sql': sql})} 1")
    lines = [
        *_family(_DURATION, "histogram", "Time inside the driver, execute and fetch, by statement fingerprint."),
        *histograms,
        *_family("placebench_sql_rows_total", "counter", "Rows returned, or touched by a write; where drivers tell."),
        *_samples("placebench_sql_rows_total", statistics, lambda each: each.row_count),
        *_family("placebench_sql_errors_total", "counter", "Executions that raised an exception."),
        *_samples("placebench_sql_errors_total", statistics, lambda each: each.error_count),
        *_family("placebench_sql_statement_info", "gauge", "Text of a fingerprint, without its literals."),
        *texts,
        *_family("placebench_sql_fingerprints_limit", "gauge", 'Fingerprints counted apart; all more are "other".'),
        f"placebench_sql_fingerprints_limit {max_fingerprints}",
    ]
    return "\n".join(lines) + "\n"


def _family(name: str, kind: str, meaning: str) -> tuple[str, str]:
    return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"


def _samples(
    name: str, statistics: Iterable[StatementStatistics], value: Callable[[StatementStatistics], int | None]
) -> Iterable[str]:
    """Yield one sample per fingerprint whose value is known."""
    for each in statistics:
        if (known := value(each)) is not None:
            yield f"{name}{_labels({'fingerprint': each.fingerprint})} {known}"


def _labels(labels: Mapping[str, str]) -> str:
    shown = []
    for name, value in labels.items():
        escaped = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        shown.append(f'{name}="{escaped}"')
    return "{" + ",".join(shown) + "}"
