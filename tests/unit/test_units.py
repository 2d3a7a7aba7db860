"""Numbers for eyes."""

import math

import pytest

from placebench import units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "not measured"),
        (0, "0 s"),
        (9.76e-19, "0 s"),
        (-0.49e-9, "0 s"),
        (0.5e-9, "0.000500 µs"),
        (0.0000123, "12.3 µs"),
        (0.0123, "12.3 ms"),
        (0.0009994, "999 µs"),
        (0.0009996, "1.00 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (-0.9996, "-1.00 s"),
        (1.5, "1.50 s"),
        (75.04, "75.0 s"),
    ],
)
def test_a_duration_has_its_natural_unit(seconds: float | None, text: str) -> None:
    """Three significant digits in s, ms or µs; what was not measured is never 0."""
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-0.0123, "−12.3 ms"), (0.0, "+0 s"), (-9.76e-19, "+0 s"), (1e-6, "+1.00 µs")]
)
def test_a_change_of_a_duration_has_a_sign(seconds: float, text: str) -> None:
    """What no clock sees is no change."""
    assert text == units.signed_duration(seconds)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 statements"), (1, "1 statement"), (1.5, "1.50 statements"), (2, "2 statements")]
)
def test_one_of_a_thing_is_in_the_singular(value: float, text: str) -> None:
    """Of a mean of counts too."""
    assert units.numbered(value, "statement") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1023.6, "1.00 KiB"),
        (1_047_552, "1023 KiB"),
        (1_048_570, "1.00 MiB"),
        (1_073_741_800, "1.00 GiB"),
        (2_583_049, "2.46 MiB"),
        (None, "not measured"),
    ],
)
def test_a_size_has_binary_units(value: float | None, text: str) -> None:
    """Bytes are whole, larger units have three digits."""
    assert units.size(value) == text


def test_a_count_has_thin_thousands() -> None:
    """Thousands are set apart by a narrow space that does not break."""
    assert units.count(2583049) == "2\u202f583\u202f049"


@pytest.mark.parametrize(("ratio", "text"), [(0.9, "−10 %"), (1.021, "+2.1 %"), (1.0, "+0 %"), (0.321, "−68 %")])
def test_a_ratio_reads_as_a_signed_change(ratio: float, text: str) -> None:
    """Below one is less, above one is more."""
    assert units.signed_percent(ratio) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.5, "1234"),
        (12.345, "12.3"),
        (0.01234, "0.0123"),
        (0, "0"),
        (-3.14159, "-3.14"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_significant_digits_without_exponents(value: float, text: str) -> None:
    """Three digits that say something; whole digits are kept."""
    assert units.significant(value) == text


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((3.14, 3.02, 3.21), ["3.1", "3.0", "3.2"]),
        ((3.14, 3.11, 3.17), ["3.14", "3.11", "3.17"]),
        ((0.5, 0.5, 0.5), ["0.50", "0.50", "0.50"]),
    ],
)
def test_an_estimate_and_its_limits_are_rounded_alike(values: tuple[float, ...], texts: list[str]) -> None:
    """As few digits as tell the numbers apart, the same for all of them."""
    assert units.distinct_digits(*values) == texts


@pytest.mark.parametrize(
    ("value", "text"), [(0.0006836, "0.00068"), (0.125, "0.12"), (1.0, "1.0"), (3e-7, "< 0.0001"), (None, "none")]
)
def test_a_probability_has_two_digits(value: float | None, text: str) -> None:
    """More would be read as more than it is."""
    assert units.probability(value) == text


def test_an_interval_does_not_break_between_lines() -> None:
    """The level stays with its unit and 'CI', and the number of replicates with its name; other spaces may break."""
    text = units.unbroken("−77 % CPU [95 % CI −77.3, −76.4; n = 30]")

    assert text == "−77\u00a0% CPU [95\u00a0%\u00a0CI −77.3, −76.4; n\u00a0=\u00a030]"
