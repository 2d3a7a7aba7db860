"""Overheads over a control, from pairs: each measurement is compared with the control's in the same repeat."""

from collections.abc import Sequence

from placebench.compare.keep.records import Measurement
from placebench.report.study_report import interval_figures
from placebench.stats import median_interval

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
