"""The statements whose plan differs between two variants, on the same copy of the data: `compare_plans`.

Each variant is served once more, and PostgreSQL sends the plans of what its requests run (auto_explain, with psycopg
and psycopg2). For other drivers and databases, and for roles without that right, EXPLAIN estimates the plan
(`estimated_plans`). Where the profiler is not installed beside the application, and in a run without replicates,
nothing is served: EXPLAIN estimates the plans of the statements that PostgreSQL counted. Nothing of this is timed.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from placebench.compare.keep.records import ChangedPlan, WirePass
from placebench.compare.measure.counted_pass import is_on_tables
from placebench.compare.measure.estimated_plans import estimate_plans, logged_statements
from placebench.compare.measure.prepared_variants import PreparedVariants
from placebench.compare.measure.profiled_pass import (
    fresh_log_folder,
    profiled_server,
    wait_for_recordings,
    why_not_profiled,
)
from placebench.compare.what.variants import Variant
from placebench.profiler.model.plan import PlanNode
from placebench.profiler.model.statement import Caller, Statement
from placebench.profiler.model.statement_facts import statement_facts

_REQUESTS = 2
"""Cycles of requests whose plans are compared."""
_WHOLE_SCANS = ("Seq Scan", "Parallel Seq Scan", "SCAN", "ALL")
"""How PostgreSQL, SQLite and MariaDB call a scan of a whole table, or of a whole index if one is named."""


@dataclass
class _PlannedStatement:
    """A statement of one variant, and the plans that it has."""

    statement: Statement
    plans: dict[str, PlanNode] = field(default_factory=dict)
    """By their shape."""


_Planned = dict[str, _PlannedStatement]
"""The statements of a variant by fingerprint."""


def compare_plans(
    prepared: PreparedVariants, pairs: Sequence[tuple[str, str]], *, is_served: bool = True
) -> list[ChangedPlan]:
    """Return the statements of each pair whose plans differ, saved as plans.jsonl.

    is_served: whether the variants are started for it; otherwise PostgreSQL only estimates plans, which takes
    milliseconds. Both variants of a pair use the same copy of the data, unless a migration, a server of its own or
    requests that write tell them apart. A change counts only if the baseline has its plan a second time: statistics
    that autovacuum gathers in between change plans, too. Pairs without a plan of both are left out.
    """
    named, made = prepared.named, list[ChangedPlan]()
    names = [name for name in dict.fromkeys(chain.from_iterable(pairs)) if prepared.databases[name]]
    passes = {name: prepared.folder / f"wire-{name}.json" for name in names}
    counted = {name: WirePass.load(path) for name, path in passes.items() if path.is_file()}
    estimated = {name for name, each in counted.items() if each.by_statement}
    served = {name for name in names if (is_served or name not in estimated) and not why_not_profiled(named[name])}

    def plan(name: str, both: set[str]) -> _Planned:
        return _planned(prepared, named[name]) if both <= served else _estimated(prepared, counted[name])

    planned: dict[tuple[str, bool], _Planned] = {}
    again: dict[tuple[str, bool], _Planned] = {}
    for baseline, variant in pairs:
        both = {baseline, variant}
        if not both <= served and not both <= estimated:
            continue
        first, second = ((name, both <= served) for name in (baseline, variant))
        for key in (first, second):
            if key not in planned:
                planned[key] = plan(key[0], both)
        found = list(_changes(planned[first], planned[second]))
        if found and first not in again:
            again[first] = plan(baseline, both)
        for fingerprint, before, after in found:
            known = planned[first].get(fingerprint)
            if known is not None and _shapes(again[first].get(fingerprint)) != _shapes(known):
                continue
            sent = planned[second][fingerprint].statement
            place = _place(sent.caller, named[variant]) if sent.caller else ""
            made.append(ChangedPlan(baseline, variant, " ".join(sent.sql.split()), place, before, after))
    if planned:
        ChangedPlan.save_all(prepared.folder, made)
    return made


def _estimated(prepared: PreparedVariants, counted: WirePass) -> _Planned:
    """Return the plans that PostgreSQL estimates for the statements on tables that it counted."""
    sent = [
        Statement(each.sql, statement_facts(each.sql).fingerprint, 0.0, row_count=round(each.rows / each.calls))
        for each in counted.by_statement
        if is_on_tables(each.sql)
    ]
    by_fingerprint = {each.fingerprint: each for each in sent}
    url = prepared.databases[prepared.alike(counted.variant)[0]]
    return {
        fingerprint: _PlannedStatement(by_fingerprint[fingerprint], {plan.shape: plan})
        for fingerprint, plan in estimate_plans(url, sent, {})
    }


def _planned(prepared: PreparedVariants, variant: Variant) -> _Planned:
    """Return the plans of the statements that the variant's requests run, on the first copy of its data."""
    url = prepared.databases[prepared.alike(variant.name)[0]]
    folder = fresh_log_folder(prepared.folder / "log" / f"planned-{variant.name}")
    log = prepared.folder / "log" / f"server-{variant.name}.log"
    workload = prepared.workload_of(variant.name)
    with (
        logged_statements(url) as logged,
        prepared.client() as client,
        profiled_server(variant, variant.spec(url, hash_seed=1, log=log), folder, "plans") as (server, check),
    ):
        driven = client.drive(server.url, workload, times=_REQUESTS, login=True).check()
        check()
        recordings = wait_for_recordings(folder, driven.names, len(driven.wall_s))
    found: _Planned = {}
    for statement in chain.from_iterable(recording.statements for _, recording in recordings):
        planned = found.setdefault(statement.fingerprint, _PlannedStatement(statement))
        if statement.plan is not None:
            planned.plans[statement.plan.shape] = statement.plan
    unplanned = [each.statement for each in found.values() if not each.plans]
    for fingerprint, plan in estimate_plans(url, unplanned, logged):
        found[fingerprint].plans[plan.shape] = plan
    return {key: each for key, each in found.items() if each.plans}


def _changes(before: _Planned, after: _Planned) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the fingerprint of each statement with other plans, and the plan nodes that one side alone has.

    A statement that the baseline does not send is yielded only if it scans a table as a whole that the baseline does
    not scan so; the nodes before are empty then.
    """
    scanned = {node.relation for each in before.values() for node in _nodes(each) if _is_whole_scan(node)}
    for key, planned in after.items():
        if key in before:
            if _shapes(before[key]) != _shapes(planned):
                yield key, *_differing(_nodes(before[key]), _nodes(planned))
            continue
        scans = [node for node in _nodes(planned) if _is_whole_scan(node) and node.relation not in scanned]
        if scans:
            yield key, [], list(dict.fromkeys(node.title for node in scans))


def _differing(before: Iterable[PlanNode], after: Iterable[PlanNode]) -> tuple[list[str], list[str]]:
    """Return what only one side has: nodes that read tables, or else any nodes, or else the shapes."""
    sides = list(before), list(after)
    reading = tuple([node for node in side if node.relation or node.index] for side in sides)
    for left, right in (reading, sides):
        counts = Counter(node.title for node in left), Counter(node.title for node in right)
        only = [list(dict.fromkeys((counts[at] - counts[1 - at]).elements())) for at in (0, 1)]
        if all(only):
            return only[0], only[1]
    return [sides[0][0].shape], [sides[1][0].shape]


def _is_whole_scan(node: PlanNode) -> bool:
    return node.kind in _WHOLE_SCANS and node.index is None


def _nodes(planned: _PlannedStatement) -> Iterator[PlanNode]:
    for plan in planned.plans.values():
        yield from (node for _, node in plan.walk())


def _shapes(planned: _PlannedStatement | None) -> Collection[str]:
    return set() if planned is None else set(planned.plans)


def _place(caller: Caller, variant: Variant) -> str:
    """Return the line of the application that ran a statement; its file is relative to the variant's own folders."""
    folders = filter(None, [*variant.variables.get("PYTHONPATH", "").split(os.pathsep), str(variant.folder or "")])
    for folder in folders:
        with suppress(ValueError):
            return str(caller._replace(file=Path(caller.file).relative_to(Path(folder).resolve()).as_posix()))
    return str(caller)
