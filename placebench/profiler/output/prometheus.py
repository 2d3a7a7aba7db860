"""Statement statistics in Prometheus's text format, version 0.0.4: `write_prometheus_text`.

Durations are a histogram, which servers can add up over processes and take percentiles of over any time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from placebench.profiler.model.fingerprint import one_line
from placebench.profiler.model.statement_statistics import StatementStatistics

_BUCKETS_S = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_MAX_SQL_LENGTH = 200
_DURATION = "placebench_sql_statement_duration_seconds"


def write_prometheus_text(statistics: Sequence[StatementStatistics], *, max_fingerprints: int) -> str:
    """The text that a scrape expects; every sample has the label `fingerprint`, of at most so many and "other"."""
    lines = [
        *_family(_DURATION, "histogram", "Time inside the driver, execute and fetch, by statement fingerprint."),
        *(line for each in statistics for line in _histogram(each)),
        *_family("placebench_sql_rows_total", "counter", "Rows returned, or touched by a write; where drivers tell."),
        *_samples("placebench_sql_rows_total", statistics, lambda each: each.row_count),
        *_family("placebench_sql_errors_total", "counter", "Executions that raised an exception."),
        *_samples("placebench_sql_errors_total", statistics, lambda each: each.error_count),
        *_family("placebench_sql_statement_info", "gauge", "Text of a fingerprint, without its literals."),
        *(
            f"placebench_sql_statement_info{_labels({'fingerprint': each.fingerprint, 'sql': _shown(each.sql)})} 1"
            for each in statistics
        ),
        *_family(
            "placebench_sql_fingerprints_limit",
            "gauge",
            'Fingerprints counted apart; all more are "other".',
        ),
        f"placebench_sql_fingerprints_limit {max_fingerprints}",
    ]
    return "\n".join(lines) + "\n"


def _family(name: str, kind: str, meaning: str) -> tuple[str, str]:
    return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"


def _histogram(each: StatementStatistics) -> Iterable[str]:
    """The samples of one histogram: the counts of buckets are cumulative."""
    count, labels = each.count, {"fingerprint": each.fingerprint}
    for bound, within in zip(_BUCKETS_S, each.counts_within(_BUCKETS_S), strict=True):
        yield f"{_DURATION}_bucket{_labels({**labels, 'le': str(bound)})} {within}"
    yield f"{_DURATION}_bucket{_labels({**labels, 'le': '+Inf'})} {count}"
    yield f"{_DURATION}_sum{_labels(labels)} {each.total_s!r}"
    yield f"{_DURATION}_count{_labels(labels)} {count}"


def _samples(
    name: str, statistics: Iterable[StatementStatistics], value: Callable[[StatementStatistics], int | None]
) -> Iterable[str]:
    """One sample of each fingerprint whose value is known."""
    for each in statistics:
        if (known := value(each)) is not None:
            yield f"{name}{_labels({'fingerprint': each.fingerprint})} {known}"


def _shown(sql: str) -> str:
    shown = one_line(sql)
    return shown if len(shown) <= _MAX_SQL_LENGTH else f"{shown[: _MAX_SQL_LENGTH - 1]}…"


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
