"""Findings in the plans of statements, which mode "plans" records. `FINDERS` lists the finders."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from placebench import units
from placebench.profiler.analysis.findings.kinds import Finding, Kind, Limits, Statements, finding_at, in_one_request
from placebench.profiler.model.plan import FOREIGN_KEY_SCAN, PlanNode
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.statement import Statement

_QUALIFIER = re.compile(r"\b\w+\.(?=\w)")
_OFFSET = re.compile(r"\boffset\b", re.IGNORECASE)
# PostgreSQL does not count the rows of the first two, and guesses those of the others.
_KEEP_ROWS = frozenset({"Append", "Gather Merge", "LockRows", "Result", "Sort"})
_NOT_COUNTED = frozenset({"BitmapAnd", "BitmapOr", "Recursive Union", "WorkTable Scan"})


def _sequential_scans(statements: Statements, recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find sequential scans that read a whole table for a few rows: by a condition, or by a LIMIT after a sort."""
    statements = [replace(each, plan=each.plan and _with_whole_tables(each.plan)) for each in statements]
    yield from _found(
        "sequential scan",
        statements,
        recording,
        lambda node: node.kind == "Seq Scan" and _keeps_few(node, limits),
        lambda node: f"{units.count(_read(node))} rows of {node.relation} read for {_rows(node)}: {node.condition}",
        "create an index on the columns of the condition",
        count=_read,
    )

    def sorted_rows(limit: PlanNode) -> float:
        scan = _sorted_scan(limit)
        return 0.0 if scan is None or _keeps_few(scan, limits) else scan.rows or 0.0

    def is_found(node: PlanNode) -> bool:
        rows = sorted_rows(node)
        return rows >= limits.scanned_rows and (node.rows or 0.0) <= rows * limits.kept_share

    def title(node: PlanNode) -> str:
        scan = _sorted_scan(node)
        return f"{units.count(sorted_rows(node))} rows of {scan and scan.relation} read and sorted for {_rows(node)}"

    yield from _found(
        "sequential scan",
        [each for each in statements if each.facts.volatile != "random()"],  # no index has a random order
        recording,
        is_found,
        title,
        "create an index on the columns of ORDER BY",
        count=sorted_rows,
        with_nodes_below=True,
    )


def _sorted_scan(limit: PlanNode) -> PlanNode | None:
    """Return the sequential scan of which a LIMIT takes the first rows in some order; None for another node."""
    node, kinds = limit, list[str]()
    while len(node.children) == 1:
        kinds.append(node.kind)
        (node,) = node.children
    is_sorted = kinds[:1] == ["Limit"] and kinds.count("Sort") == 1 and {*kinds[1:]} <= _KEEP_ROWS
    return node if is_sorted and node.kind == "Seq Scan" else None


def _with_whole_tables(plan: PlanNode) -> PlanNode:
    """Return the plan with one scan in place of those of a table's partitions: below an Append, with one condition."""
    alike: dict[object, list[PlanNode]] = {}
    for child in map(_with_whole_tables, plan.children):
        is_part = plan.kind == "Append" and child.kind == "Seq Scan"
        alike.setdefault(_QUALIFIER.sub("", child.condition or "") if is_part else id(child), []).append(child)
    children: list[PlanNode] = []
    for scans in alike.values():
        if 1 < len(scans) == len({each.relation for each in scans}):
            whole = replace(
                scans[0],
                relation=f"{scans[0].relation} and {len(scans) - 1} more",
                rows=sum(each.rows or 0.0 for each in scans),
                rows_removed=sum(each.rows_removed or 0.0 for each in scans),
                elapsed_s=sum(each.elapsed_s or 0.0 for each in scans),
            )
            children.append(whole)
        else:
            children += scans
    return replace(plan, children=tuple(children))


def _keeps_few(node: PlanNode, limits: Limits) -> bool:
    is_large = bool(node.condition) and _read(node) >= limits.scanned_rows
    return is_large and (node.rows or 0.0) <= _read(node) * limits.kept_share


def _join_filters(statements: Statements, recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find nested loops that compare every row of one side with every row of the other, and keep few pairs."""
    return _found(
        "join filter",
        statements,
        recording,
        lambda node: node.kind.startswith("Nested Loop") and _keeps_few(node, limits),
        lambda node: f"{units.count(_read(node))} pairs of rows compared for {_rows(node)}: {node.condition}",
        "create an index on the joined column of the inner table, or join by equality",
        count=_read,
        with_nodes_below=True,
    )


def _unindexed_foreign_keys(statements: Statements, recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find deletes and updates of parents for which the whole referring table is read, once per parent."""
    return _found(
        "unindexed foreign key",
        statements,
        recording,
        lambda node: node.kind == FOREIGN_KEY_SCAN and node.rows_expected >= limits.scanned_rows,
        lambda node: (
            f"about {units.count(node.rows_expected)} rows of {node.relation} read to find those that refer to "
            f"{units.numbered(node.loops or 0, 'changed parent')}: {node.condition}"
        ),
        "create an index on the columns of the foreign key",
        count=lambda node: node.rows_expected,
    )


def _skipped_rows(statements: Statements, recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find pages that are reached by an OFFSET: the server reads all rows before them and throws them away."""

    def skipped_by(node: PlanNode) -> float:
        return (node.children[0].rows or 0.0) - (node.rows or 0.0)

    return _found(
        "skipped rows",
        [each for each in statements if _OFFSET.search(each.sql)],
        recording,
        lambda node: node.kind == "Limit" and len(node.children) == 1 and skipped_by(node) >= limits.skipped_rows,
        lambda node: f"{units.count(skipped_by(node))} rows read and skipped by OFFSET for {_rows(node)}",
        "page by the last key of the page before: WHERE key > :last ORDER BY key LIMIT n",
        count=skipped_by,
        with_nodes_below=True,
    )


def _row_estimate_errors(statements: Statements, _recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find row estimates that are far off, so that the planner may have chosen the wrong plan."""
    plans = [each.plan for each in statements if each.plan is not None]
    misestimated = set[int]().union(*(misestimated_nodes(each, limits) for each in plans))

    def is_found(node: PlanNode) -> bool:
        is_large = max(node.rows or 0.0, node.rows_expected) >= limits.estimated_rows
        return is_large and (node.elapsed_s or 0.0) >= limits.estimated_s and id(node) in misestimated

    for statement, node, alike in _nodes(statements, is_found):
        yield finding_at(
            "row-estimate error",
            f"{node.title}: {_rows(node)} rows where {units.count(node.rows_expected)} were expected",
            "declare the ROWS of the function, or keep them in a table"
            if node.kind == "Function Scan"
            else "ANALYZE the table; for columns that depend on each other CREATE STATISTICS",
            [statement],
            seconds=sum(each.elapsed_s or 0.0 for each in alike),
        )


def misestimated_nodes(plan: PlanNode, limits: Limits) -> set[int]:
    """Return the ids of the nodes whose rows are not those that were expected, by the factor of *limits* or more."""
    stopped, read_again = _read_otherwise(plan)
    return {
        id(node)
        for _, node in plan.walk()
        if (node.estimate_error or 1.0) >= limits.estimate_error
        and node.kind not in _NOT_COUNTED
        and id(node) not in (read_again if (node.rows or 0.0) > node.rows_expected else stopped)
    }


def _spills(statements: Statements, recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find sorts, hashes and stored results that did not fit into work_mem."""
    return _found(
        "spill",
        statements,
        recording,
        lambda node: (node.spilled_kb or 0) >= limits.spilled_kb,
        lambda node: f"{node.title} wrote {units.size((node.spilled_kb or 0) * 1024)} to disk",
        "raise work_mem for this transaction, or sort and join fewer columns",
    )


def _found(
    kind: Kind,
    statements: Statements,
    recording: RecordingData,
    is_found: Callable[[PlanNode], bool],
    title: Callable[[PlanNode], str],
    advice: str,
    *,
    count: Callable[[PlanNode], float] = lambda _: 1,
    with_nodes_below: bool = False,
) -> Iterator[Finding]:
    """Yield a finding for each node of the most expensive plan that *is_found* accepts.

    count: returns the number of rows that the finding counts. with_nodes_below: whether its seconds are also those of
    the nodes below.
    """
    for statement, node, alike in _nodes(statements, is_found):
        yield finding_at(
            kind,
            f"{title(node)}{in_one_request(len(alike), recording)}",
            advice,
            [statement],
            count=round(count(node)),
            seconds=sum((each.elapsed_s if with_nodes_below else each.self_s) or 0.0 for each in alike),
        )


def _nodes(
    statements: Statements, is_found: Callable[[PlanNode], bool]
) -> Iterator[tuple[Statement, PlanNode, list[PlanNode]]]:
    """Yield the nodes of the most expensive plan that *is_found* accepts, with all such executions of each.

    Nodes of one title and condition are one: the longest.
    """
    planned = [(statement, statement.plan) for statement in statements if statement.plan is not None]
    if not planned:
        return
    statement, plan = max(planned, key=lambda each: each[1].elapsed_s or 0.0)
    alike: dict[tuple[str, str | None], list[PlanNode]] = {}
    for _, node in (each for _, other in planned for each in other.walk()):
        if is_found(node):
            alike.setdefault((node.title, node.condition), []).append(node)
    longest: dict[tuple[str, str | None], PlanNode] = {}
    for _, node in sorted(plan.walk(), key=lambda each: each[1].elapsed_s or 0.0):
        if is_found(node):
            longest[node.title, node.condition] = node
    yield from ((statement, node, alike[key]) for key, node in longest.items())


def _read_otherwise(plan: PlanNode) -> tuple[set[int], set[int]]:
    """Return the ids of nodes that may have stopped before their end, and of those whose rows were read again.

    That is not a wrong estimate: a LIMIT, EXISTS, unique match or merge join needs no more, nor may the reader of a
    cursor, and a merge join goes back over equal rows.
    https://www.postgresql.org/docs/current/using-explain.html#USING-EXPLAIN-CAVEATS
    """
    stopped, read_again = set[int](), set[int]()
    nodes = [(plan, plan.may_stop)]
    while nodes:
        node, may_stop = nodes.pop()
        # A condition on row_number() may end the rows of each window, which is in no estimate.
        has_window = node.kind == "WindowAgg" or any(child.kind == "WindowAgg" for child in node.children)
        if may_stop or has_window:
            stopped.add(id(node))
        inner = node.children[1:2] if len(node.children) == 2 else node.children
        is_merge = node.kind.startswith("Merge") and node.kind.endswith("Join")
        if is_merge:
            read_again.update(id(child) for child in inner)
        is_first_match = node.kind.startswith("Nested Loop") and node.kind.endswith(("Semi Join", "Anti Join"))
        # An empty hash table needs no row of the other side.
        is_empty = node.kind.startswith("Hash") and any(child.kind == "Hash" and not child.rows for child in inner)
        for child in node.children:
            stops = is_merge or is_empty or node.kind == "Limit" or (is_first_match and child in inner)
            stops = stops or child.may_stop
            # A sort and a hash read everything below them, whoever stops above.
            nodes.append((child, stops or (may_stop and node.kind not in ("Sort", "Hash"))))
    return stopped, read_again


def _read(node: PlanNode) -> float:
    """Return the number of rows, or pairs of rows, that a node has examined."""
    return (node.rows or 0.0) + (node.rows_removed or 0.0)


def _rows(node: PlanNode) -> str:
    return "hardly any" if node.rows is None else units.count(node.rows)


FINDERS = (_sequential_scans, _join_filters, _unindexed_foreign_keys, _skipped_rows, _row_estimate_errors, _spills)
