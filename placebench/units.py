"""Numbers as human-readable text; numbers are rounded in this module only."""

import math

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
NOT_MEASURED = "not measured"
_HALF_A_NANOSECOND = 0.5e-9


def count(value: float | None) -> str:
    """Return a count with thin spaces between thousands: 2583049 → '2 583 049'; None → 'not measured'."""
    return NOT_MEASURED if value is None else f"{value:,.0f}".replace(",", "\u202f")


def numbered(value: float, noun: str) -> str:
    """Return a count or a mean of counts with its noun: (1, 'test') → '1 test', (2, 'test') → '2 tests'."""
    return f"{average(value)} {noun}{'' if value == 1 else 's'}"


def average(value: float | None) -> str:
    """Return a mean of counts: 29.0 → '29', 29.333 → '29.3', 7000.2 → '7 000'; None → 'not measured'."""
    if value is None or value == round(value) or abs(value) >= 1000:
        return count(value)
    return significant(value)


def duration(seconds: float | None) -> str:
    """Return a duration with three significant digits: 0.0123 → '12.3 ms'; below half a nanosecond '0 s'."""
    if seconds is None:
        return NOT_MEASURED
    if abs(seconds) < _HALF_A_NANOSECOND:
        return "0 s"
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        number = significant(seconds / scale)
        if abs(float(number)) >= 1:  # of the rounded number: 0.9996 s are 1.00 s, not 1000 ms
            return f"{number} {unit}"
    return f"{significant(seconds / 1e-6)} µs"


def signed_duration(seconds: float) -> str:
    """Return a change of a duration with its sign: −0.0123 → '−12.3 ms'."""
    return ("−" if seconds <= -_HALF_A_NANOSECOND else "+") + duration(abs(seconds))


def size(byte_count: float | None) -> str:
    """Return a size in binary units with three significant digits: 2583049 → '2.46 MiB'."""
    if byte_count is None:
        return NOT_MEASURED
    value = float(byte_count)
    for unit in _BINARY:
        number = f"{value:.0f}" if unit == "B" else significant(value)
        if abs(float(number)) < 1024 or unit == _BINARY[-1]:
            return f"{number} {unit}"
        value /= 1024
    raise AssertionError("unreachable: the last unit takes every size")


MIB = 2**20
"""Bytes per MiB; axes of sizes are in MiB, so that their ticks are round numbers in the displayed unit."""


def mebibytes(value: float) -> str:
    """Return a size given in MiB as text: 50.0 → '50.0 MiB'."""
    return size(value * MIB)


def rate(per_second: float | None) -> str:
    """Return a rate: 12.345 → '12.3 /s'."""
    return NOT_MEASURED if per_second is None else f"{significant(per_second)} /s"


def percent(share: float | None, *, digits: int = 3) -> str:
    """Return a share as a percentage: 0.3217 → '32.2 %'."""
    return NOT_MEASURED if share is None else f"{significant(share * 100, digits=digits)} %"


def round_percent(share: float) -> str:
    """Return a configured share without trailing zeros: 0.95 → '95 %', 0.9779 → '97.79 %'."""
    return f"{share * 100:.4g} %"


def whole_percent(share: float) -> str:
    """Return a share as a whole percentage: 0.697 → '70 %'."""
    return f"{share * 100:.0f} %"


def signed_percent(ratio: float, *, digits: int = 2) -> str:
    """Return a ratio (variant over baseline) as a signed change: 0.9 → '−10 %', 1.021 → '+2.1 %'."""
    difference = (ratio - 1) * 100
    sign = "−" if difference < 0 else "+"
    return f"{sign}{significant(abs(difference), digits=digits)} %"


def unbroken(text: str) -> str:
    """Return *text* with no-break spaces within '95 % CI' and 'n = 30', so that lines do not break there."""
    return text.replace(" %", "\u00a0%").replace("% CI", "%\u00a0CI").replace("n = ", "n\u00a0=\u00a0")


def ratio(value: float | None) -> str:
    """Return a ratio with four significant digits: 0.32168 → '0.3217'; None → 'none'."""
    return "none" if value is None else significant(value, digits=4)


def probability(value: float | None) -> str:
    """Return a p value with two significant digits: 0.0006836 → '0.00068'; below 0.0001 '< 0.0001'; None → 'none'."""
    if value is None:
        return "none"
    return "< 0.0001" if value < 1e-4 else significant(value, digits=2)


def times(factor: float) -> str:
    """Return a ratio as a factor: 3.141 → '3.14 ×'."""
    return f"{significant(factor)} ×"


def distinct_digits(*values: float) -> list[str]:
    """Return numbers with as few significant digits (2 to 5) as make them distinct: 0.97, 0.96 → '0.97', '0.96'."""
    for digits in range(2, 5):
        texts = [significant(value, digits=digits) for value in values]
        if len(set(texts)) == len(set(values)):
            return texts
    return [significant(value, digits=5) for value in values]


def brief(text: str) -> str:
    """Return the text of a round number, such as a tick label, without trailing zeros: '1.50 s' → '1.5 s'."""
    number, _, unit = text.partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def significant(value: float, *, digits: int = 3) -> str:
    """Return *value* with *digits* significant digits, without an exponent; whole digits are kept: 1234.5 → '1234'."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return f"{value:.{max(0, digits - 1 - exponent)}f}"
