"""The difference of two arms by statement: what is asked more often, less often, not any more, or only now.

The key piece is `statement_changes`. PostgreSQL counted both arms alike, so that foreign programs compare with ours.
"""

from dataclasses import dataclass

from placebench.experiment.records import StatementCount, WirePass
from placebench.profiler.fingerprint import normalised

_NONE = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class StatementChange:
    """One statement of one mean request; 0 calls on the side that does not know it."""

    sql: str
    calls: tuple[float, float]
    """Baseline, variant; as the others."""
    rows: tuple[float, float]
    exec_s: tuple[float, float]
    """In the server."""

    @property
    def state(self) -> str:
        """Whether it is "new", "gone", "changed" in its calls or rows, or the "same"."""
        if not self.calls[0] or not self.calls[1]:
            return "new" if not self.calls[0] else "gone"
        return "same" if self.calls[0] == self.calls[1] and self.rows[0] == self.rows[1] else "changed"


def statement_changes(before: WirePass, after: WirePass) -> tuple[StatementChange, ...]:
    """Each statement of either, those that are not the same first, then by their time in the server."""
    left, right = _by_fingerprint(before), _by_fingerprint(after)
    made = []
    for key in dict.fromkeys((*left, *right)):
        sql = (right.get(key) or left[key])[0]
        then, now = (side[key][1] if key in side else _NONE for side in (left, right))
        made.append(StatementChange(sql, *zip(then, now, strict=True)))
    return tuple(sorted(made, key=lambda each: (each.state == "same", -max(each.exec_s))))


def _by_fingerprint(counted: WirePass) -> dict[str, tuple[str, tuple[float, float, float]]]:
    """Text, and calls, rows and seconds, by the text that only the shape of the statement decides."""
    found: dict[str, tuple[str, tuple[float, float, float]]] = {}
    for each in counted.by_statement:
        key = normalised(each.sql)
        sql, sums = found.get(key, (each.sql, _NONE))
        found[key] = sql, _added(sums, each)
    return found


def _added(sums: tuple[float, float, float], each: StatementCount) -> tuple[float, float, float]:
    return sums[0] + each.calls, sums[1] + each.rows, sums[2] + each.exec_s
