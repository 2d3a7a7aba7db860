"""The plan that PostgreSQL ran, node by node: self time, estimated and actual rows, spills and buffers.

The main class is `PlanNode`, read by `read_plan` from the JSON of auto_explain or of EXPLAIN.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from placebench.profiler.model.sql_tokens import redacted

_CONDITIONS = ("Index Cond", "Recheck Cond", "Hash Cond", "Merge Cond", "Join Filter", "Filter", "One-Time Filter")
_MAX_CONDITION = 400
_MS = 1e-3
FOREIGN_KEY_SCAN = "Foreign Key Scan"
"""The kind of a node for the reads of a whole table that refers to changed parents; no node of PostgreSQL's."""


@dataclass(frozen=True, slots=True)
class PlanNode:
    """One node of a plan with the nodes below it; measured fields are None if the plan was only estimated.

    kind: the database's name of the node type, such as "Seq Scan" or "Nested Loop Semi Join".
    condition: its filters, constants as `?`.
    rows_expected, rows: rows of all loops together. PostgreSQL reports the mean per loop, rounded to 0.01 rows (to
        whole rows before version 18): rows is None if that is 0 in several loops.
    rows_removed: rows that a filter discarded; for a join, pairs of rows that its join filter discarded.
    elapsed_s: seconds of all loops and of the nodes below, summed over parallel workers: they may exceed the
        statement's time.
    blocks_hit, blocks_read: blocks of the shared buffers, with those of the nodes below.
    spilled_kb: kilobytes that this node wrote to disk: 0 if all stayed in memory, None for a node that writes none.
    may_stop: whether its rows may not have been read to the end: those of a server-side cursor, the inner rows of
        a nested loop for which one match is enough (PostgreSQL's "Inner Unique"), and those of a subquery in an
        expression, such as EXISTS or NOT IN.
    """

    kind: str
    relation: str | None = None
    index: str | None = None
    condition: str | None = None
    cost: float | None = None
    rows_expected: int | float = 0.0
    rows: float | None = None
    rows_removed: float | None = None
    loops: int | None = None
    elapsed_s: float | None = None
    blocks_hit: int | None = None
    blocks_read: int | None = None
    spilled_kb: int | None = None
    may_stop: bool = False
    children: tuple["PlanNode", ...] = ()

    @property
    def self_s(self) -> float | None:
        """The seconds spent in this node without the nodes below it; None for an estimate."""
        if self.elapsed_s is None:
            return None
        return max(0.0, self.elapsed_s - sum(child.elapsed_s or 0.0 for child in self.children))

    @property
    def estimate_error(self) -> float | None:
        """The factor between actual and expected rows, 1 or more in either direction; None if one is not known.

        It is computed per loop; the planner never expects less than one row, so half a row is not an error.
        """
        is_unknown = self.rows is None and (self.loops in (None, 1) or self.kind == FOREIGN_KEY_SCAN)
        if self.loops == 0 or is_unknown:
            return None
        low, high = sorted(max(rows / (self.loops or 1), 1.0) for rows in (self.rows or 0.0, self.rows_expected))
        return high / low

    @property
    def title(self) -> str:
        """The kind of the node with its index and table: "Index Scan using t_pkey on t"."""
        using = f" using {self.index}" if self.index else ""
        return f"{self.kind}{using}{f' on {self.relation}' if self.relation else ''}"

    @property
    def shape(self) -> str:
        """The plan without its numbers, equal for two executions of one plan."""
        below = ", ".join(child.shape for child in self.children)
        return f"{self.title} ({below})" if below else self.title

    def walk(self, depth: int = 0) -> Iterator[tuple[int, "PlanNode"]]:
        """Yield each node with its depth, this one first."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


class UnindexedKey(NamedTuple):
    """A foreign key without an index: the referring table, its columns, and about how many rows it has."""

    table: str
    columns: str
    row_count: float


def read_plan(text: str, *, values: bool = False, unindexed_keys: Mapping[str, UnindexedKey] = {}) -> PlanNode:
    """Return the plan in a document of auto_explain or EXPLAIN (FORMAT JSON), without query text and parameters.

    values: keep the constants in conditions, which may be secrets. unindexed_keys: by the names of their triggers; the
    scans of such a trigger are a node `FOREIGN_KEY_SCAN` below the first one. Raises ValueError if *text* is not such a
    document.
    """
    document = json.loads(text)
    if isinstance(document, list):
        document = document[0] if document else {}
    if not isinstance(document, dict) or "Plan" not in document:
        raise ValueError("no plan in this document")
    plan = _node(document["Plan"], values=values)
    checks = [
        PlanNode(
            kind=FOREIGN_KEY_SCAN,
            relation=key.table,
            condition=" and ".join(f"{column} = ?" for column in key.columns.split(", ")),
            rows_expected=key.row_count * trigger["Calls"],
            loops=int(trigger["Calls"]),
            elapsed_s=trigger.get("Time", 0.0) * _MS,
        )
        for trigger in document.get("Triggers", ())
        if (key := unindexed_keys.get(trigger.get("Trigger Name"))) is not None
    ]
    if not checks:
        return plan
    elapsed_s = (plan.elapsed_s or 0.0) + sum(check.elapsed_s or 0.0 for check in checks)
    return replace(plan, elapsed_s=elapsed_s, children=(*plan.children, *checks))


def _node(fields: Mapping[str, Any], *, values: bool, may_stop: bool = False) -> PlanNode:
    loops = fields.get("Actual Loops")
    condition = " and ".join(str(fields[key]) for key in _CONDITIONS if key in fields)[:_MAX_CONDITION]
    milliseconds = _of_all_loops(fields, "Actual Total Time")
    kind, operation, join = fields["Node Type"], fields.get("Operation"), fields.get("Join Type", "")
    is_first_match = kind == "Nested Loop" and fields.get("Inner Unique", False)
    if operation and kind == "ModifyTable":
        kind = f"{operation}"
    elif join.endswith(("Semi", "Anti")):  # these stop at the first match
        kind = f"{kind.removesuffix(' Join')} {join} Join"
    removals = (_of_all_loops(fields, f"Rows Removed by {name}") for name in ("Filter", "Join Filter"))
    removed = [rows for rows in removals if rows is not None]
    spilled = [kilobytes for part in (fields, *fields.get("Workers", ())) for kilobytes in _written(part)]
    return PlanNode(
        kind=kind,
        relation=fields.get("Relation Name") or fields.get("CTE Name") or fields.get("Function Name"),
        index=fields.get("Index Name"),
        condition=(condition if values else redacted(condition, "postgresql")) or None,
        cost=fields.get("Total Cost"),
        rows_expected=fields.get("Plan Rows", 0.0) * (loops or 1),
        rows=None if loops and loops > 1 and not fields.get("Actual Rows") else _of_all_loops(fields, "Actual Rows"),
        rows_removed=sum(removed) if removed else None,
        loops=loops,
        elapsed_s=None if milliseconds is None else milliseconds * _MS,
        blocks_hit=fields.get("Shared Hit Blocks"),
        blocks_read=fields.get("Shared Read Blocks"),
        spilled_kb=sum(spilled) if spilled else None,
        may_stop=may_stop,
        children=tuple(
            _node(child, values=values, may_stop=_may_stop(child, is_first_match=is_first_match))
            for child in fields.get("Plans", ())
        ),
    )


def _may_stop(fields: Mapping[str, Any], *, is_first_match: bool) -> bool:
    """Return whether the node above may need no more rows of this one after the first match."""
    relationship = fields.get("Parent Relationship")
    if relationship in ("InitPlan", "SubPlan"):
        return not fields.get("Subplan Name", "").startswith("CTE ")
    return is_first_match and relationship == "Inner"


def _of_all_loops(fields: Mapping[str, Any], key: str) -> float | None:
    """Return the total of a field that PostgreSQL gives as the mean over a node's loops."""
    value = fields.get(key)
    return None if value is None else float(value) * int(fields.get("Actual Loops", 1))


def _written(part: Mapping[str, Any]) -> Iterator[int]:
    """Yield the kilobytes that the leader or a worker wrote for a sort, an aggregate, a stored result or a hash."""
    if "Sort Space Used" in part:
        yield int(part["Sort Space Used"]) if part.get("Sort Space Type") == "Disk" else 0
    for groups in ("Full-sort Groups", "Pre-sorted Groups"):  # an incremental sort
        if groups in part:
            yield int(part[groups].get("Sort Space Disk", {}).get("Peak Sort Space Used", 0))
    if "Disk Usage" in part:
        yield int(part["Disk Usage"])
    if "Storage" in part:
        yield int(part.get("Maximum Storage", 0)) if part["Storage"] == "Disk" else 0
    if "Hash Batches" in part:
        # The blocks of a node are with those of the nodes below it.
        below = sum(int(child.get("Temp Written Blocks", 0)) for child in part.get("Plans", ()))
        own = int(part.get("Temp Written Blocks", 0)) - below
        yield max(0, own) * 8 if int(part["Hash Batches"]) > 1 else 0
