"""The recordings of a command that its report shows, a few per route (`KeptRecordings`), and tables of the routes."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from placebench import units
from placebench.profiler.recording import Recording

MAX_PER_ROUTE = 50
MAX_KEPT = 1_000
_SHOWN_ROUTES = 25


class KeptRecordings:
    """Keeps the last recordings of each route, 50 at most, and 1000 in all."""

    def __init__(self) -> None:
        self._routes: dict[tuple[str, str], deque[Recording]] = {}
        self._kept = 0
        self._units_of_work = self._programs = 0

    def add(self, recording: Recording) -> None:
        """Keep a recording in place of an older one of its route, or of the one with most."""
        route = self._routes.setdefault((recording.kind, recording.name), deque(maxlen=MAX_PER_ROUTE))
        self._kept += len(route) < MAX_PER_ROUTE
        route.append(recording)
        if self._kept > MAX_KEPT:
            key = max(self._routes, key=lambda each: len(self._routes[each]))
            self._routes[key].popleft()
            self._kept -= 1
            if not self._routes[key]:
                del self._routes[key]
        is_program = recording.kind == "program"
        self._programs += is_program
        self._units_of_work += not is_program

    def by_route(self) -> list[Recording]:
        """Return one merged recording per route."""
        return [Recording.merge(each, name=name) for (_, name), each in self._routes.items()]

    def merged(self, name: str) -> Recording:
        """Merge the kept recordings of units of work into one, or, if there are none, those of whole programs.

        Raises ProfilerError if there are none.
        """
        chosen = [each for (kind, _), each in self._routes.items() if (kind == "program") != bool(self._units_of_work)]
        merged = Recording.merge((recording for each in chosen for recording in each), name=name)
        if (count := self._units_of_work or self._programs) > merged.requests:
            kept, all_of_them = units.count(merged.requests), units.count(count)
            merged.notes = (*merged.notes, f"{kept} of {all_of_them} recordings are here: the last ones of each route")
        return merged


def routes_text(routes: Iterable[Mapping[str, Any]]) -> str:
    """Return the routes of a journal as a table for a terminal."""
    rows = list(routes)
    lines = [f"{'count':>8}  {'p50':>9}  {'p95':>9}  {'statements':>10}  {'SQL':>6}  route"]
    for row in rows[:_SHOWN_ROUTES]:
        cells = _cells(row)
        failed = f"  ({units.count(row['errors'])} failed)" if row["errors"] else ""
        lines.append(
            f"{cells[0]:>8}  {cells[1]:>9}  {cells[2]:>9}  {cells[3]:>10}  {cells[4]:>6}  {row['name']}{failed}"
        )
    if len(rows) > _SHOWN_ROUTES:
        lines.append(f"and {units.numbered(len(rows) - _SHOWN_ROUTES, 'route')} that took less")
    return "\n".join(lines)


def routes_markdown(routes: Iterable[Mapping[str, Any]]) -> str:
    """Return the routes of a journal as a table in Markdown."""
    lines = ["| Route | Count | p50 | p95 | Statements | SQL |", "| --- | --- | --- | --- | --- | --- |"]
    for row in routes:
        name = row["name"].replace("|", "\\|").replace("`", "'")
        lines.append(f"| {' | '.join((f'`{name}`', *_cells(row)))} |")
    return "\n".join(lines)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return count, p50, p95, statements per recording, and the share of SQL."""
    share = row["sql_s"] / row["total_s"] if row["total_s"] else None
    times = units.duration(row["p50_s"]), units.duration(row["p95_s"])
    return units.count(row["count"]), *times, units.average(row["statements"]), units.percent(share)
