"""Overheads over a control, from pairs: each measurement is compared with the control's in the same repeat."""

import math
from collections.abc import Sequence

from placebench.compare.keep.records import Measurement
from placebench.report.study_report import interval_figures
from placebench.stats import hodges_lehmann, median_interval
from placebench.stats.hodges_lehmann import MIN_REPLICATES, pseudo_median
from placebench.stats.verdict import INCONCLUSIVE, decide, minimum_detectable_effect

REFUSED = "refused: "
"""Begins the reason of a measurement whose figures are not shown, because its responses or data differ."""
EFFECT = ("ratio", "ratio_low", "ratio_high", "verdict", "replicates_needed")
OVERHEAD = ("control_s", "overhead_s", "overhead_low_s", "overhead_high_s", "times_the_control")


def paired_overhead(made: Sequence[Measurement], control: Sequence[Measurement], value: str) -> dict[str, float | None]:
    """Return the figures of OVERHEAD: medians over the repeats that both have, the overhead with its limits.

    value: the name of the measured seconds. All are None if no repeat has both.
    """
    against = {each.repeat: each.values[value] for each in control}
    pairs = [(each.values[value], against[each.repeat]) for each in made if each.repeat in against]
    if not pairs:
        return dict.fromkeys(OVERHEAD)
    return {
        "control_s": median_interval([before for _, before in pairs]).median,
        **interval_figures("overhead", "_s", median_interval([after - before for after, before in pairs])),
        "times_the_control": median_interval([after / before for after, before in pairs]).median,
    }


def paired_effect(
    made: Sequence[Measurement], control: Sequence[Measurement], value: str, *, margin: float
) -> dict[str, float | str | int | None]:
    """Return the ratio to the control in the same repeat, with its 95 % interval and the verdict.

    margin: the log ratio below which a change does not matter. `replicates_needed` is the number that would find a
    change of the size seen, but at least of the margin, in 4 of 5 runs; None if the verdict is clear, or the noise
    unknown. All are None if no repeat has both values.
    """
    against = {each.repeat: each.values[value] for each in control if each.values[value]}
    logs = [
        math.log(each.values[value] / against[each.repeat])
        for each in made
        if each.repeat in against and each.values[value]
    ]
    found: dict[str, float | str | int | None] = dict.fromkeys(EFFECT)
    if not logs:
        return found
    if len(logs) < MIN_REPLICATES:
        return {**found, "ratio": math.exp(pseudo_median(logs)), "replicates_needed": MIN_REPLICATES}
    interval = hodges_lehmann(logs)
    verdict = decide(interval, margin)
    detectable, needed = minimum_detectable_effect(logs), None
    if verdict == INCONCLUSIVE and detectable:
        target = max(abs(interval.estimate), margin)
        needed = max(len(logs) + 1, math.ceil(len(logs) * (detectable / target) ** 2))
    ratios = map(math.exp, (interval.estimate, interval.low, interval.high))
    return dict(zip(EFFECT, (*ratios, verdict, needed), strict=True))
