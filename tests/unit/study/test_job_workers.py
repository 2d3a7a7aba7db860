"""The program that does jobs: how it counts their results."""

import json
from typing import Any

import pytest

from placebench.runtime.standalone.job_workers import JobError, result_counter

ORDERS = {"orders": [{"id": 1, "lines": [7, 8]}, {"id": 2, "lines": []}], "total": 12, "more": {"a-b": True}}
ORDERS |= {"one": [{"id": 17}], "mean": 3.0, "share": 0.5}


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("$.orders[*]", 2),
        ("$.orders[0].lines[*]", 2),
        ("$.orders[*].lines", 2),
        ("$.orders[*].lines[*]", 2),
        ("$.total", 12),
        ("$.mean", 3),
        ("$.share", 1),
        ("$.orders", 2),
        ("$.orders[0].lines", 2),
        ("$.orders[1].lines", 0),
        ("$.one[*]", 1),
        ("$.one[*].id", 1),
        ("$.more.a-b", 1),
        ("$.more.*", 1),
        ("$.nothing", 0),
        ("$.orders[5]", 0),
        ("$", 1),
        ('"id"', 3),
        (r'"total": (\d+)', 12),
        (r'"id": (\d+)', 20),
        ("nothing", 0),
    ],
)
def test_results_are_counted(pattern: str, count: int) -> None:
    """Matches are counted; a path to one whole number or list, and a group of digits, are numbers of results."""
    text = json.dumps(ORDERS)

    assert [count, count] == [result_counter(pattern)(text), result_counter(pattern)(text.encode())]


def test_a_path_reads_values_as_json_has_them() -> None:
    """A function may return Python values instead of their JSON."""
    value: Any = {"orders": (1, 2, 3)}

    assert [3, 3] == [result_counter("$.orders[*]")(each) for each in (value, json.dumps(value))]


@pytest.mark.parametrize(
    ("pattern", "returned", "said"),
    [
        ("$.orders", b"3 orders", "--count $.orders: expected JSON, saw '3 orders'"),
        ("$.orders", "x" * 200, f"--count $.orders: expected JSON, saw '{'x' * 120}…'"),
        (r"([\d,]+) orders", "1,234 orders", r"--count ([\d,]+) orders: the group matched '1,234', expected digits"),
    ],
)
def test_what_cannot_be_counted_is_shown(pattern: str, returned: str | bytes, said: str) -> None:
    """Its beginning, with what was expected."""
    with pytest.raises(JobError) as error:
        result_counter(pattern)(returned)

    assert said == str(error.value)


@pytest.mark.parametrize("pattern", ["$orders", "$.orders[", "$..orders", "$.orders[?(@.id)]", "(", "(a)(b)"])
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    """Rather than counted as nothing."""
    with pytest.raises(ValueError, match=r"not a JSON path|not a regular expression|groups"):
        result_counter(pattern)
