"""The published figures of `matching.py` beside this one: requests for many devices, and hosts that a limit names."""

import statistics
from collections.abc import Sequence
from typing import Any

from figures import figure, raw, source, table, where_measured

from placebench import units

_LABELS = {
    "placement": "Placement 16.0.0",
    "wide": "the same, `optimize_for_wide_provider_trees`",
    "changed": "the same, with [three changes](#what-placement-could-take)",
}
_BOUNDS_S = {10: 0.05, 1000: 1.0, None: 1.0}
"""The times that are aimed at, by limit."""


def _cases(program: str, limit: int | None) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = raw("matching.json")["cases"]
    return [each for each in cases if (each["program"], each["limit"]) == (program, limit)]


def _slowest(cases: Sequence[dict[str, Any]], bound_s: float) -> str:
    """The slowest response, how many took longer than the bound, and how many never came."""
    medians = [statistics.median(each["wall_s"]) for each in cases if not each["timed_out"]]
    late, missing = sum(each > bound_s for each in medians), sum(each["timed_out"] for each in cases)
    if not cases:
        return "–"
    slowest = units.duration(max(medians)) if medians else "–"
    return f"{slowest} ({late} of {len(cases)}{f'; {missing} without a response' if missing else ''})"


@figure
@where_measured("matching.json")
def matching_times() -> str:
    """A row for each program: its slowest responses with each limit."""
    programs = dict.fromkeys(each["program"] for each in raw("matching.json")["cases"])
    rows = [
        (_LABELS.get(name, f"`{name}`"), *(_slowest(_cases(name, limit), bound) for limit, bound in _BOUNDS_S.items()))
        for name in sorted(programs, key=[*_LABELS, "tuned", "dedup", "cached"].index)
    ]
    head = ("`limit=10`", "`limit=1000`", "No limit, up to 10,000 candidates")
    bounds = (f"{name} (over {units.duration(bound)})" for name, bound in zip(head, _BOUNDS_S.values(), strict=True))
    return table(f"| Program | {' | '.join(bounds)} |", rows)


@figure
@where_measured("matching.json")
def matching_charts() -> str:
    """Both charts, and where they come from."""
    pictures = [
        f"![Time over groups, {where}](../results/{name}.svg)"
        for name, where in (
            ("matching-devices", "16 devices below the host"),
            ("matching-nodes", "16 devices of two NUMA nodes"),
        )
    ]
    about = f"Medians, n = {raw('matching.json')['n']}: {matching_source()}"
    return "\n\n".join(["", *pictures, about, ""])


def matching_source() -> str:
    """Date and machine; the link is one from a page of docs/lab."""
    return source("matching.json").replace("(matching.json)", "(../results/matching.json)")


@figure
@where_measured("spread.json")
def spread_under_a_limit() -> str:
    """A row for each program: hosts named, claims refused, and times."""
    made = raw("spread.json")
    rows = [
        (
            _LABELS.get(name, f"`{name}`"),
            f"{each['hosts']} of {made['named_of']}",
            f"{each['refused']} of {each['claims']}",
            units.duration(statistics.median(each["wall_s"])),
        )
        for name, each in made["programs"].items()
    ]
    return table("| Program | Hosts named | Claims refused | Time with `limit=10` |", rows)
