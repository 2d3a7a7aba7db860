"""The comparison of each route of a mix of requests, by the wall time of its own requests: `route_results`."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from placebench import units
from placebench.compare.keep.records import Block
from placebench.report import effects
from placebench.report.figures import Figures, compared_rate, compared_users
from placebench.report.model import Column, Table
from placebench.stats import Comparison, compare_blocks
from placebench.stats.verdict import BELOW_MARGIN, EQUIVALENT, FASTER, INCONCLUSIVE, SLOWER

_NOTE = (
    "The wall time of the requests of each route, in the blocks of the mix: server CPU is known of whole blocks alone. "
    "The intervals of all routes of a pair hold together at 95 %, however many routes there are."
)
_MAX_NAMED = 3


@dataclass(frozen=True)
class RouteResult:
    """The comparison of two variants by the requests of one route."""

    route: str
    requests: int
    """How many of the requests of a cycle are the route's."""
    cycle: int
    comparison: Comparison

    @property
    def share(self) -> float:
        """The route's share of the requests."""
        return self.requests / self.cycle

    def to_json(self) -> dict[str, Any]:
        """Return the values that `--json` prints."""
        return {"route": self.route, "share": self.share, **self.comparison.to_json()}


def route_results(figures: Figures) -> list[RouteResult]:
    """Return the comparison of each pair by each route; empty for one route, for a script, and under load.

    Several users end their requests in any order, so that a block does not tell which time is whose.
    """
    workload, run = figures.run.head.settings.get("workload", {}), figures.run
    requests, order = workload.get("requests", []), workload.get("cycle", [])
    names = [requests[number].get("route") or requests[number]["request"] for number in order if number < len(requests)]
    names = [name for name in names if name not in figures.responses.left_out]
    routes = list(dict.fromkeys(names))
    if run.head.command != "compare" or len(routes) < 2 or compared_users(run) > 1 or compared_rate(run):
        return []
    is_sequential = bool(run.head.settings.get("sequential"))
    made = []
    for route in routes:
        places = [place for place, name in enumerate(names) if name == route]
        blocks = [_of_places(block, places, len(names)) for block in run.blocks]
        for pair in figures.pairs:
            compared = compare_blocks(blocks, *pair.pair, "wall_s", share=1 / len(routes), sequential=is_sequential)
            if compared.measured:
                made.append(RouteResult(route, len(places), len(names), compared))
    return sorted(made, key=_importance)


def _importance(result: RouteResult) -> tuple[int, float]:
    """Return a key that puts slower routes first, then faster ones, then the others by their share."""
    order = {SLOWER: 0, FASTER: 1}
    made = result.comparison
    if made.verdict in order and made.ratio:
        return order[made.verdict], -abs(math.log(made.ratio))
    return 2, -result.share


def _of_places(block: Block, places: Sequence[int], cycle: int) -> Block:
    """Return a block of the requests at these places of each cycle alone; unchanged if it has no whole cycles."""
    if block.invalid or block.cycle != cycle or len(block.wall_s) % cycle:
        return block
    wall_s = [block.wall_s[at + place] for at in range(0, len(block.wall_s), cycle) for place in places]
    return replace(block, wall_s=wall_s, cycle=len(places), requests=len(wall_s), cpu_s=None)


def route_sentences(figures: Figures, results: Sequence[RouteResult]) -> Iterator[str]:
    """Yield a sentence for each pair on its routes, and one on the routes that were left out."""
    for pair in dict.fromkeys(each.comparison.pair for each in results):
        own = [each for each in results if each.comparison.pair == pair]
        parts = []
        for verdict, said in ((SLOWER, "slower"), (FASTER, "faster")):
            if found := [each for each in own if each.comparison.verdict == verdict]:
                shown = [f"{each.route} {effects.effect_text(each.comparison, named=True)}" for each in found]
                rest = len(found) - _MAX_NAMED
                more = f", and {units.count(rest)} more" if rest > 0 else ""
                parts.append(f"{units.count(len(found))} {said} ({'; '.join(shown[:_MAX_NAMED])}{more})")
        same = sum(each.comparison.verdict in (EQUIVALENT, BELOW_MARGIN) for each in own)
        unknown = sum(each.comparison.verdict == INCONCLUSIVE for each in own)
        parts += [f"{units.count(same)} without a change that matters"] if same else []
        parts += [f"{units.count(unknown)} inconclusive"] if unknown else []
        which = f" of {figures.short_name(pair[1])}" if len(figures.pairs) > 1 else ""
        yield f"Of {units.numbered(len(own), 'route')}{which}: {', '.join(parts)}."
    if named := figures.responses.left_out:
        reasons = "; ".join(f"{route}: {reason}" for route, reason in named.items())
        yield f"{units.numbered(len(named), 'route')} left out: {reasons}."


def route_table(figures: Figures, results: Sequence[RouteResult]) -> Table:
    """Return the table of all routes of all pairs."""
    columns = [
        Column("route", lambda each: each.route),
        *([Column("variant", lambda each: figures.short_name(each.comparison.variant))] * (len(figures.pairs) > 1)),
        Column("of the requests", lambda each: units.percent(each.share, digits=2)),
        Column("baseline", lambda each: effects.value_text("wall_s", each.comparison.baseline_value)),
        Column("variant", lambda each: effects.value_text("wall_s", each.comparison.variant_value)),
        Column("wall time", lambda each: effects.effect_text(each.comparison)),
        Column("MDE", lambda each: effects.detectable_text(each.comparison), optional=True),
        Column("verdict", lambda each: _verdict(each.comparison)),
    ]
    return Table("Routes", columns, results, id="route-table", note=_NOTE)


def _verdict(made: Comparison) -> str:
    """Return the verdict; with too few replicates for an interval also how many are needed."""
    return effects.reason_text(made) if made.low is None and made.reason else effects.verdict_text(made)
