"""The Universal Scalability Law in a report: fitted to throughput by size, and checked at a size that it has not seen.

`scalability_row` is a row of the tables that `scalability_tables` makes, `scalability_curve` the law as a line.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from placebench import units
from placebench.errors import TooFewReplicatesError
from placebench.report.model import Column, Table
from placebench.report.study_report import interval_columns, measured
from placebench.stats import ConfidenceInterval
from placebench.stats.scalability import Scalability, fit_scalability

_CHECKED_FROM = 4
"""So many sizes are three for the fit and one to check it."""
_CURVE_STEPS = 40
_CAPTION = (
    "Universal Scalability Law, X(N) = λ N / (1 + σ (N - 1) + κ N (N - 1)), with 95 % intervals; a dash is not bounded "
    "by the measurements, and with a peak below 1 one is best. Checked at the largest number where four were measured, "
    "which the fit has not seen, else at twice the largest: both are extrapolations. Their interval is for the mean of "
    "as many new measurements."
)


def scalability_tables(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    """The table of the laws, or none where there is no row. columns: what tells the rows apart, beside `of`."""
    table = Table("Scalability", [*columns, *_COLUMNS], list(rows), id="scalability", caption=_CAPTION)
    return [table] if rows else []


def scalability_row(sizes: Mapping[int, Sequence[float]]) -> dict[str, Any] | None:
    """The fit, and its check; None where too little was measured. sizes: throughput per second, by N.

    The largest number is left out of the fit where four or more were measured, and what was measured there is beside
    what the law extrapolates; else that is done for twice the largest number, with nothing beside it.
    """
    fitted = _fitted_sizes(sizes)
    law = _fit(sizes)
    if law is None:
        return None
    largest = max(sizes)
    is_checked = largest not in fitted
    checked_at = largest if is_checked else 2 * largest
    predicted = law.predict(checked_at, repeats=len(sizes[largest]))
    return {
        "fitted": fitted,
        "n": law.n,
        **_bounded("lambda_per_s", law.throughput_of_one),
        **_bounded("sigma", law.contention),
        **_bounded("kappa", law.crosstalk),
        **_bounded("peak", law.peak),
        "checked_at": checked_at,
        **_bounded("predicted_per_s", predicted),
        "measured_per_s": fmean(sizes[largest]) if is_checked else None,
    }


def scalability_curve(sizes: Mapping[int, Sequence[float]]) -> list[tuple[float, float]]:
    """The fitted law from the smallest to the largest N as (N, throughput); empty where too little was measured."""
    law = _fit(sizes)
    if law is None:
        return []
    first, last = min(sizes), max(sizes)
    where = (first + (last - first) * step / _CURVE_STEPS for step in range(_CURVE_STEPS + 1))
    return [(each, law.predict(each).estimate) for each in where]


def _fit(sizes: Mapping[int, Sequence[float]]) -> Scalability | None:
    try:
        return fit_scalability([(size, each) for size in _fitted_sizes(sizes) for each in sizes[size]])
    except TooFewReplicatesError:
        return None


def _fitted_sizes(sizes: Mapping[int, Sequence[float]]) -> list[int]:
    return sorted(sizes)[: -1 if len(sizes) >= _CHECKED_FROM else None]


def _bounded(name: str, interval: ConfidenceInterval) -> dict[str, float | None]:
    """The estimate and its limits; None for those that are open."""
    named = {name: interval.estimate, f"{name}_low": interval.low, f"{name}_high": interval.high}
    return {each: value if math.isfinite(value) else None for each, value in named.items()}


_COLUMNS = (
    measured("of", "N is the number of"),
    measured("fitted", "fitted on", lambda sizes: ", ".join(map(str, sizes))),
    measured("n", "n", units.count),
    *interval_columns("lambda_per_s", "", "λ", units.rate),
    *interval_columns("sigma", "", "σ", units.significant),
    *interval_columns("kappa", "", "κ", units.significant),
    *interval_columns("peak", "", "peak at N", units.significant),
    measured("checked_at", "checked at N", units.count),
    *interval_columns("predicted_per_s", "", "extrapolated", units.rate),
    measured("measured_per_s", "measured", units.rate),
)
