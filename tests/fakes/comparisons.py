"""A comparison that nobody measured: `comparison`."""

from typing import Any

from placebench.stats import Comparison
from placebench.stats.verdict import FASTER


def comparison(**changed: Any) -> Comparison:
    """change takes 20 % less CPU than base, in 12 replicates; with these fields changed."""
    fields: dict[str, Any] = {
        "baseline": "base",
        "variant": "change",
        "metric": "cpu_s",
        "ratio": 0.8,
        "low": 0.79,
        "high": 0.81,
        "confidence": 0.95,
        "replicates": 12,
        "invalidated": 0,
        "verdict": FASTER,
        "detectable": 0.0117,
        "margin": 0.01,
        "reason": "",
        "log_ratios": (-0.2,) * 12,
    }
    return Comparison(**{**fields, **changed})
