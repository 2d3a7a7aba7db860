"""The Universal Scalability Law fitted to throughput against the number of workers, hosts or users: `fit_scalability`.

    X(N) = λ N / (1 + σ (N - 1) + κ N (N - 1))

λ is the throughput of one, σ the share that cannot be done at the same time (contention), κ the cost of agreeing for
each pair (crosstalk), which makes throughput fall again beyond its peak at N = √((1 - σ) / κ). N / X is linear in
1 / λ, σ / λ and κ / λ, so the fit is least squares with weights, errors being relative; every figure is a ratio of two
linear ones and has Fieller's interval, which is exact for normal errors and open where the data bound it on one side
only. The parameters are not forced to be positive: σ below 0 is more than linear growth.

Sources: Gunther 1993, 2007 (the law); Fieller 1954 (intervals of ratios); Abramowitz & Stegun 1964, 26.7 (Student's t).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from placebench.errors import TooFewReplicatesError
from placebench.stats.hodges_lehmann import ConfidenceInterval

_Vector = tuple[float, float, float]
_Matrix = tuple[_Vector, _Vector, _Vector]
_PARAMETERS = 3
_FEWEST = 6
_REWEIGHTED = 5
_BISECTIONS = 60


@dataclass(frozen=True)
class Scalability:
    """A fitted law; intervals are open (infinite) on a side that the measurements do not bound."""

    coefficients: _Vector
    """1 / λ, σ / λ and κ / λ."""
    covariance: _Matrix
    """Of the coefficients."""
    noise: float
    """Relative standard deviation of a measurement around the law; what does not fit the law is in it."""
    largest: float
    """The largest N that was fitted: beyond it a prediction is an extrapolation."""
    n: int
    """Measurements."""
    confidence: float

    @property
    def throughput_of_one(self) -> ConfidenceInterval:
        """λ, in the unit of the throughput."""
        return self._ratio((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), 1.0)

    @property
    def contention(self) -> ConfidenceInterval:
        """σ."""
        return self._ratio((0.0, 1.0, 0.0), (1.0, 0.0, 0.0))

    @property
    def crosstalk(self) -> ConfidenceInterval:
        """κ."""
        return self._ratio((0.0, 0.0, 1.0), (1.0, 0.0, 0.0))

    @property
    def peak(self) -> ConfidenceInterval:
        """The N of the highest throughput: infinite if it never falls, 0 where σ >= 1; below 1 one worker is best."""
        squared = self._ratio((1.0, -1.0, 0.0), (0.0, 0.0, 1.0))
        estimate, low, high = (math.sqrt(max(each, 0.0)) for each in (squared.estimate, squared.low, squared.high))
        one, contention, crosstalk = self.coefficients
        if crosstalk <= 0:
            estimate, low, high = math.inf, low if squared.high > 0 else math.inf, math.inf
        if contention >= one:
            estimate = low = 0.0
        return ConfidenceInterval(estimate, low, high, self.confidence)

    def predict(self, workers: float, *, repeats: int = 1) -> ConfidenceInterval:
        """Throughput at N = *workers*, with the interval for the mean of so many new measurements there."""
        row = _row(workers)
        expected = _dot(row, self.coefficients)
        variance = _quadratic(self.covariance, row, row) + (self.noise * expected) ** 2 / repeats
        half = self._deviate * math.sqrt(variance)
        middle, low, high = (
            workers / each if each > 0 else math.inf for each in (expected, expected + half, expected - half)
        )
        return ConfidenceInterval(middle, low, high, self.confidence)

    @property
    def _deviate(self) -> float:
        return _student(self.confidence, self.n - _PARAMETERS)

    def _ratio(self, above: _Vector, below: _Vector, constant: float = 0.0) -> ConfidenceInterval:
        """(constant + above·θ) / (below·θ): all ratios r for which above·θ - r below·θ may be -constant."""
        t = self._deviate**2
        top, bottom = constant + _dot(above, self.coefficients), _dot(below, self.coefficients)
        quadratic = bottom**2 - t * _quadratic(self.covariance, below, below)
        half_linear = top * bottom - t * _quadratic(self.covariance, above, below)
        rest = top**2 - t * _quadratic(self.covariance, above, above)
        discriminant = half_linear**2 - quadratic * rest
        estimate = top / bottom if bottom else math.inf
        if not quadratic or discriminant < 0:
            return ConfidenceInterval(estimate, -math.inf, math.inf, self.confidence)
        first, second = sorted((half_linear + sign * math.sqrt(discriminant)) / quadratic for sign in (1, -1))
        if quadratic > 0:
            return ConfidenceInterval(estimate, first, second, self.confidence)
        # What is excluded lies between the roots; of the ratios from 0 on, those above them are left.
        low = second if first < 0 < second else -math.inf
        return ConfidenceInterval(estimate, low, math.inf, self.confidence)


def fit_scalability(measured: Sequence[tuple[float, float]], *, confidence: float = 0.95) -> Scalability:
    """Fit the law to (N, throughput) pairs, each an independent measurement, several for each N.

    Raises TooFewReplicatesError for fewer than six measurements or three different N, ValueError for a throughput or
    an N that is not above 0. The intervals assume errors that are relative, normal and independent.
    """
    different = {workers for workers, _ in measured}
    if len(measured) < _FEWEST or len(different) < _PARAMETERS:
        raise TooFewReplicatesError(
            f"inconclusive: {len(measured)} measurements of {len(different)} sizes, {_FEWEST} of {_PARAMETERS} needed"
        )
    if not all(workers > 0 and throughput > 0 for workers, throughput in measured):
        raise ValueError("a size and its throughput have to be above 0")
    rows = [_row(workers) for workers, _ in measured]
    taken = [workers / throughput for workers, throughput in measured]
    expected = taken
    for _ in range(_REWEIGHTED):
        inverse, fitted = _least_squares(rows, taken, [each**-2 for each in expected])
        expected = [max(_dot(row, fitted), min(taken) / 2) for row in rows]
    residuals = [(seen - each) / each for seen, each in zip(taken, expected, strict=True)]
    variance = sum(each * each for each in residuals) / (len(measured) - _PARAMETERS)
    first, second, third = (_times(row, variance) for row in inverse)
    covariance = (first, second, third)
    return Scalability(fitted, covariance, math.sqrt(variance), max(different), len(measured), confidence)


def _row(workers: float) -> _Vector:
    return 1.0, workers - 1, workers * (workers - 1)


def _least_squares(
    rows: Sequence[_Vector], values: Sequence[float], weights: Sequence[float]
) -> tuple[_Matrix, _Vector]:
    """The inverse of the weighted normal matrix, and the solution."""
    weighted = list(zip(weights, rows, values, strict=True))
    matrix = [[sum(w * row[i] * row[j] for w, row, _ in weighted) for j in range(3)] for i in range(3)]
    inverse = _inverse(matrix)
    right = (
        sum(w * row[0] * value for w, row, value in weighted),
        sum(w * row[1] * value for w, row, value in weighted),
        sum(w * row[2] * value for w, row, value in weighted),
    )
    return inverse, (_dot(inverse[0], right), _dot(inverse[1], right), _dot(inverse[2], right))


def _inverse(matrix: Sequence[Sequence[float]]) -> _Matrix:
    """Of a symmetric matrix of three rows, by its cofactors."""
    (a, b, c), (_, d, e), (_, _, f) = matrix
    first: _Vector = (d * f - e * e, c * e - b * f, b * e - c * d)
    determinant = a * first[0] + b * first[1] + c * first[2]
    second: _Vector = (first[1], a * f - c * c, b * c - a * e)
    third: _Vector = (first[2], second[2], a * d - b * b)
    return _times(first, 1 / determinant), _times(second, 1 / determinant), _times(third, 1 / determinant)


def _times(vector: _Vector, by: float) -> _Vector:
    return vector[0] * by, vector[1] * by, vector[2] * by


def _dot(one: _Vector, other: _Vector) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _quadratic(matrix: _Matrix, one: _Vector, other: _Vector) -> float:
    return _dot(one, (_dot(matrix[0], other), _dot(matrix[1], other), _dot(matrix[2], other)))


@lru_cache(maxsize=64)
def _student(confidence: float, freedom: int) -> float:
    """The deviate that Student's t with so many degrees of freedom stays within with *confidence*."""
    low, high = 0.0, math.pi / 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if _within(middle, freedom) >= confidence else (middle, high)
    return math.tan(low) * math.sqrt(freedom)


def _within(angle: float, freedom: int) -> float:
    """P(|t| <= √freedom tan(angle)): a finite series for whole degrees of freedom."""
    is_odd = freedom % 2
    term, total = math.cos(angle) if is_odd else 1.0, 0.0
    for number in range(1, freedom // 2 + 1):
        total += term
        factor = 2 * number - 1 + is_odd
        term *= math.cos(angle) ** 2 * factor / (factor + 1)
    within = math.sin(angle) * total
    return 2 / math.pi * (angle + within) if is_odd else within
