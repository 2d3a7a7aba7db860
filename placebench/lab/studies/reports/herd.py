"""The herd: claims refused with 409 per claim that succeeds, by the number of schedulers."""

from collections.abc import Mapping, Sequence
from typing import Any

from placebench import units
from placebench.compare.keep.records import Measurement
from placebench.lab.studies.herd import REFUSALS
from placebench.report.study_report import StudyResults, interval_columns, interval_figures, measured, valid_points
from placebench.results import Run
from placebench.stats import median_interval


def _number(value: float) -> str:
    return f"{value:.2f}"


_COLUMNS = (
    measured("topology", "inventory"),
    measured("schedulers", "schedulers", units.count),
    measured("randomized", "randomized", lambda value: "yes" if value else "no"),
    measured("n", "n", units.count),
    measured("conflicts_per_claim", "409 per claim", _number),
    measured("conflicts_low", "from", _number),
    measured("conflicts_high", "to", _number),
    measured("full_per_claim", "409: host full", _number),
    measured("updates_per_claim", "409: changed by others", _number),
    measured("requests_per_claim", "GET per claim", _number),
    measured("hosts", "hosts claimed", _number),
    *interval_columns("overcommitted", "", "hosts over capacity", _number),
)


def results(run: Run) -> StudyResults:
    """Return a row for each inventory, number of schedulers and order of candidates."""
    rows = [_row(point, made) for point, made in valid_points(run)]
    settings = run.head.settings
    return StudyResults(
        headline=_headline(rows),
        rows=rows,
        columns=_COLUMNS,
        notes=(
            f"Each measurement is {settings['claims']} claims that succeed, shared by the schedulers.",
            f"Placement has {settings['processes']} processes of {settings['threads']} threads.",
            "A scheduler claims the candidates in the order of the response until one succeeds.",
            "409: host full sends a scheduler to the next candidate; changed by others is tried again, as nova does.",
            "Hosts over capacity have more allocated than they have, by claims that Placement accepted.",
            "From and to: interval of the median over the repeats, 93.75 % with five.",
        ),
        limits=(
            "Schedulers that weigh hosts by more than their order: equal weights are assumed.",
            "A Placement of several machines: their processes have hash seeds, and so orders, of their own.",
            "Schedulers that do other work between candidates and claim: more of it means more conflicts.",
        ),
    )


def _row(point: Mapping[str, Any], made: Sequence[Measurement]) -> dict[str, Any]:
    def per_claim(*names: str) -> list[float]:
        return [sum(each.values[name] for name in names) / each.values["claims"] for each in made]

    refused = median_interval(per_claim(*REFUSALS))
    overcommitted = median_interval([each.values["overcommitted"] for each in made])
    return {
        **point,
        "n": refused.n,
        "conflicts_per_claim": refused.median,
        "conflicts_low": refused.low,
        "conflicts_high": refused.high,
        "confidence": refused.confidence,
        "full_per_claim": median_interval(per_claim("conflicts")).median,
        "updates_per_claim": median_interval(per_claim("updates")).median,
        "requests_per_claim": median_interval(per_claim("requests")).median,
        "hosts": median_interval([each.values["hosts"] for each in made]).median,
        **interval_figures("overcommitted", "", overcommitted),
    }


def _headline(rows: Sequence[Mapping[str, Any]]) -> str:
    """The largest number of schedulers on the first inventory, without and with randomization."""
    if not rows:
        return "The herd: nothing was measured."
    topology, most = rows[0]["topology"], max(row["schedulers"] for row in rows)
    found = {
        row["randomized"]: row["conflicts_per_claim"]
        for row in rows
        if (row["topology"], row["schedulers"]) == (topology, most)
    }
    said = ", ".join(
        f"{_number(found[randomized])} {how} randomize_allocation_candidates"
        for randomized, how in ((False, "without"), (True, "with"))
        if randomized in found
    )
    return f"Claims refused per claim with {most} schedulers on {topology}: {said or 'not measured'}."
