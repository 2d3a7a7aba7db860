"""The grammar of gates: what a text states, and what is refused in one line."""

import pytest

from placebench.errors import UsageError
from placebench.gates import BYTES, COUNT, SECONDS, Gate, Outcome, parse_gate

METRICS = {"statements": COUNT, "cpu_s": SECONDS, "p95": SECONDS, "bytes_sent": BYTES, "slow_share": COUNT}


@pytest.mark.parametrize(
    ("text", "relation", "value", "is_ratio"),
    [
        ("statements <= 10", "<=", 10.0, False),
        (" statements<1e1 ", "<", 10.0, False),
        ("cpu_s < 0.2", "<", 0.2, False),
        ("cpu_s < 200ms", "<", 0.2, False),
        ("p95 <= 500ms", "<=", 0.5, False),
        ("p95 <= 1.5 s", "<=", 1.5, False),
        ("bytes_sent < 2KiB", "<", 2048.0, False),
        ("bytes_sent > 1e3", ">", 1000.0, False),
        ("cpu_s < 1.03x", "<", 1.03, True),
        ("cpu_s < +3%", "<", 1.03, True),
        ("cpu_s >= -10%", ">=", 0.9, True),
        ("statements <= +0%", "<=", 1.0, True),
    ],
)
def test_a_gate(text: str, relation: str, value: float, is_ratio: bool) -> None:
    """A value comes in the metric's own unit, a change as a ratio."""
    gate = parse_gate(text, METRICS, ratios=True)

    assert (relation, is_ratio, text) == (gate.operator, gate.is_ratio, gate.text)
    assert pytest.approx(value, rel=1e-15) == gate.value


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("latency > 3", "no metric 'latency': expected one of statements, cpu_s, p95, bytes_sent"),
        ("statements", "expected METRIC <, <=, > or >= NUMBER and its unit, METRIC one of statements, "),
        ("statements = 3", "expected METRIC"),
        ("statements > 1.2.3", "expected METRIC"),
        ("statements > nan", "expected METRIC"),
        ("statements > 1e999", "out of range"),
        ("statements > -1", "out of range"),
        ("statements < 3ms", "statements has no unit"),
        ("p95 < 500", "p95 is in one of us, ms, s"),
        ("p95 < 500min", "p95 is in one of us, ms, s"),
        ("cpu_s < 3%", r"expected \+3% for that much more than the base, or a ratio such as 1.03x"),
        ("slow_share < 1%", r"expected 0.01 for that share of all, \+1% for that much more than the base"),
        ("cpu_s >= -100%", "out of range"),
        ("cpu_s < 0x", "out of range"),
        ("", "expected METRIC"),
    ],
)
def test_what_is_no_gate(text: str, seen: str) -> None:
    """One line with what was expected, however long the text is."""
    with pytest.raises(UsageError, match=seen):
        parse_gate(text, METRICS, ratios=True)
    with pytest.raises(UsageError, match=r"x{60} …'"):
        parse_gate("x" * 500, METRICS)


def test_a_ratio_needs_a_base() -> None:
    """One run has nothing to be a ratio of."""
    with pytest.raises(UsageError, match="no base"):
        parse_gate("statements <= 1x", METRICS)


@pytest.mark.parametrize(
    ("relation", "low", "high", "outcome"),
    [
        ("<=", 0.9, 1.0, "passed"),
        ("<=", 0.9, 1.1, "inconclusive"),
        ("<=", 1.1, 1.2, "failed"),
        ("<", 0.9, 1.0, "inconclusive"),
        ("<", 1.0, 1.0, "failed"),
        (">=", 1.0, 1.0, "passed"),
        (">=", 0.8, 0.9, "failed"),
        (">", 1.1, 1.2, "passed"),
        ("<=", None, None, "inconclusive"),
    ],
)
def test_an_interval_is_within_beyond_or_neither(
    relation: str, low: float | None, high: float | None, outcome: Outcome
) -> None:
    """The limit itself belongs to one side."""
    assert outcome == Gate("cpu_s", relation, 1.0, "x", True, "").outcome(low, high)
