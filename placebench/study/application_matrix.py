"""The matrix study of an application: each combination of variants, servers, users, workers, data and settings.

The main class is `ApplicationMatrix`, which reads the cells from a plan, as `placebench compare` does. A measurement is
one replicate of one cell, as a comparison makes it (`placebench.compare.measure.replicate`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from msgspec import structs

from placebench import units
from placebench.compare.keep.documents import MAX_NAME_LENGTH
from placebench.compare.keep.records import Block, WirePass
from placebench.compare.keep.run_folder import error_text
from placebench.compare.load.client_process import body_file
from placebench.compare.measure.replicate import make_replicate
from placebench.compare.measure.replicate_plan import plan_replicate
from placebench.compare.what.trials import Experiment, fill_in, own_data, read_plan, with_python
from placebench.compare.what.variants import VariantTable, VariantTables, file_name, read_variant
from placebench.compare.what.workload import read_workload
from placebench.errors import LoadError, MissingExtraError, PlacebenchError, UsageError, VariantError
from placebench.http_session import Request
from placebench.masking import mask, mask_document
from placebench.runtime.standalone.job_workers import JobError, begin_of, result_counter
from placebench.stats import percentile
from placebench.study.application_rig import Cell, CellRig, CellSetup, prepare_cells
from placebench.study.matrix import combinations
from placebench.study.session import Point, StudySpec, UnmeasurableError

APP = "app"
"""The name of the application of a plan without variants, as it is in its folder."""
WORKER_AXES = ("server", "processes", "threads")
PLAN_AXES = ("users", "rate", "database", "setup", "template_db")
AXES = ("variant", *WORKER_AXES, *PLAN_AXES, "python")
"""The axes that an application has; any other axis fills its name in braces in the plan's texts."""
RESERVED = ("port", "host", "database_url", "database_address", "token")
"""Names that have a meaning of their own in braces."""
_MAX_NAME_LENGTH = MAX_NAME_LENGTH - 10


@dataclass(frozen=True)
class ApplicationMatrix:
    """The axes, and where the cells are read from."""

    plan: Path | None
    """The plan's file; None for the nearest pyproject.toml with a table `[tool.placebench]`."""
    axes: Mapping[str, tuple[Any, ...]]
    control: Mapping[str, Any]
    """The values that replace those of a combination in its control."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the plan that the command line overrides."""
    requests: Callable[[Mapping[str, str]], tuple[Sequence[Request], Sequence[Request]]] = lambda _: ((), ())
    """Returns the requests of the command line and of its login, with the values of a combination filled in."""
    python: Path | None = None
    seed: int = 1
    rounds: int | None = None
    """The number of rounds in a measurement; None: the plan's, or fewer than in a comparison."""
    count: str = ""
    """How the results in a response are counted, as `job_workers.result_counter` takes it; empty if they are not."""
    is_quick: bool = False

    @property
    def points(self) -> tuple[dict[str, Any], ...]:
        """All combinations, with their controls."""
        return combinations(self.axes, self.control)

    @property
    def names(self) -> dict[str, Point]:
        """The combinations by names that are valid in a file name."""
        named: dict[str, Point] = {}
        for number, point in enumerate(self.points):
            shown = (mask(f"{axis}={value}") for axis, value in point.items())  # in a file name, a URL is none any more
            name = file_name(",".join(shown))[:_MAX_NAME_LENGTH]
            named[f"{name}~{number}" if name in named else name] = point
        return named

    def read_cells(self) -> tuple[dict[str, Cell], list[tuple[Point, str]]]:
        """Return the cells by name, and the combinations that cannot be measured with the reasons.

        Raises UsageError or VariantError for a mistake in an axis, PlacebenchError if no combination can be measured.
        """
        raw = read_plan(self.plan)
        cells, impossible = dict[str, Cell](), list[tuple[Point, str]]()
        for name, point in self.names.items():
            try:
                cells[name] = self._read_cell(name, point, raw)
            except (UsageError, VariantError):
                raise
            except (PlacebenchError, MissingExtraError) as error:
                impossible.append((point, error_text(error)))
        if not cells:
            raise PlacebenchError(f"no combination can be measured: {impossible[0][1]}")
        return cells, impossible

    def _read_cell(self, cell_name: str, point: Point, raw: Experiment) -> Cell:
        """Return the cell of a combination; *raw* is the plan without values filled in."""
        values = {axis: str(value) for axis, value in point.items()}
        plan = read_plan(self.plan, values)
        plan = replace(plan, **{**fill_in(dict(self.given), values), **_some(point, PLAN_AXES)})
        if plan.users and plan.rate:
            raise UsageError(
                f"a rate of {plan.rate:g} per second and {units.numbered(plan.users, 'user')}: users wait for "
                "responses, and arrivals at a rate do not; leave one of them out"
            )
        if "python" in point:
            plan = with_python(plan, Path(str(point["python"])), replaces=True)
        elif self.python:
            plan = with_python(plan, self.python)
        name = str(point["variant"])
        tables = _with_workers(plan.tables, raw.tables, name, _some(point, WORKER_AXES))
        if name == APP and name not in tables.variants:
            tables = replace(tables, variants={**tables.variants, APP: VariantTable()})
        variant = read_variant(name, tables)
        if variant.data_kind or variant.ours or variant.request is not None:
            raise UsageError(f"{name} is a variant of the reference service: placebench lab study matrix has those")
        requests, login = self.requests(values)
        workload = read_workload(
            plan.workload, source=plan.source, folder=plan.folder, seed=self.seed, requests=requests, login=login
        )
        if workload.script and ((plan.users or 1) > 1 or plan.rate):
            raise PlacebenchError(f"the script {workload.script} is one user's: users or a rate need requests")
        if workload.script and self.count:
            raise UsageError("--count counts in responses to requests, and the plan has a script: leave one out")
        if workload.rules.off and self.count:
            raise UsageError(
                "--count reads the responses, and same_responses.off keeps none: say what may differ in another way"
            )
        is_loaded = (plan.users or 1) > 1 or plan.rate is not None
        rounds = (1 if is_loaded else 4) if self.is_quick else (2 if is_loaded else 8)
        return Cell(
            variant=replace(variant, name=cell_name),
            data=own_data(plan, seed=self.seed),
            workload=workload,
            users=plan.users or 1,
            rate=plan.rate,
            rounds=self.rounds or plan.rounds or rounds,
            warmup=plan.warmup or 0,
        )

    def spec(
        self, cells: Mapping[str, Cell], impossible: Sequence[tuple[Point, str]], *, repeats: int
    ) -> "StudySpec[CellSetup]":
        """Return the spec of the study of these cells."""
        first = next(iter(cells.values()))
        return StudySpec(
            command="study-matrix-app",
            points=tuple(point for name, point in self.names.items() if name in cells),
            repeats=repeats,
            prepare=lambda setup: prepare_cells(
                setup, cells, self.names, self.control, partial(_replicate, self.count)
            ),
            request=first.workload.title,
            settings={
                "control": dict(self.control),
                "count": self.count,
                "cells": mask_document({name: cell.to_json() for name, cell in cells.items()}),
            },
            variants=tuple(dict.fromkeys(str(point["variant"]) for point in self.points)),
            impossible=tuple(impossible),
        )


def _some(point: Point, axes: Sequence[str]) -> dict[str, Any]:
    return {axis: point[axis] for axis in axes if axis in point}


def _with_workers(tables: VariantTables, raw: VariantTables, name: str, given: Mapping[str, Any]) -> VariantTables:
    """Return the tables in which the variant *name* has this server, and these processes and threads.

    A variant that a command serves has their names in braces there instead, as *raw*, the tables before values were
    filled in, shows. Raises PlacebenchError if it has not.
    """

    def served(found: VariantTables) -> VariantTable | None:
        table = found.variants.get(name)
        return table if table and (table.app or table.command or table.variant) else found.app

    changed = served(raw)
    if changed is not None and changed.command:
        if missing := [axis for axis in given if f"{{{axis}}}" not in changed.command]:
            raise PlacebenchError(
                f"{name} is served by a command, which has no {{{missing[0]}}} for the axis {missing[0]}"
            )
        return tables
    app = structs.replace(tables.app, **given) if tables.app else None
    variants = {each: structs.replace(table, **given) for each, table in tables.variants.items()}
    return replace(tables, app=app, variants=variants)


# --- the measurement


def _replicate(pattern: str, rig: CellRig, name: str, repeat: int) -> dict[str, Any]:
    """Return the values of one replicate of the cell; *pattern* counts the results in its responses.

    Raises UnmeasurableError if no further attempt would help, ServerError or LoadError if one might.
    """
    ready, cell = rig.ready(name), rig.cells[name]
    plan = plan_replicate([name], repeat, rounds=cell.rounds, seed=rig.setup.seed)
    blocks = make_replicate(ready.prepared, plan)
    if reason := next((block.invalid for block in blocks if block.invalid), None):
        raise LoadError(reason)
    rig.check(name, ready, blocks)
    counted = _count_results(pattern, cell, blocks, rig.setup.folder)
    return {**_values(cell, blocks), **_counts(ready.wire), **counted}


def _count_results(pattern: str, cell: Cell, blocks: Sequence[Block], folder: Path) -> dict[str, Any]:
    """Return the number of results in a response, on average, and the beginning of one if there are no results."""
    if not pattern:
        return {"results": None}
    count, found = result_counter(pattern), 0
    bodies = {label: digests[0] for block in blocks for label, digests in block.responses.items()}
    for label in cell.workload.cycle_labels:
        body = body_file(folder / "responses", bodies[label]).read_bytes()
        try:
            found += count(body)
        except JobError as error:
            raise UnmeasurableError(f"{error} in the response to {label}") from error
    return {"results": found / len(cell.workload.cycle), "uncounted": "" if found else begin_of(body)}


def _values(cell: Cell, blocks: Sequence[Block]) -> dict[str, Any]:
    """Return the measured values of a cell's blocks, per request."""
    walls = sorted(each for block in blocks for each in block.wall_s)
    elapsed_s = sum(
        block.counters.get("elapsed_s") or block.counters.get("at_rate_s") or sum(block.wall_s) for block in blocks
    )
    cpu = [block.cpu_s for block in blocks if block.cpu_s is not None]
    memory = [block.counters["pss_bytes"] for block in blocks if "pss_bytes" in block.counters]
    return {
        "requests": len(walls),
        "request_s": elapsed_s / len(walls) if cell.users > 1 else fmean(walls),
        "throughput_per_s": len(walls) / elapsed_s,
        **{f"{name}_s": percentile(walls, share) for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))},
        "cpu_s": sum(cpu) / len(walls) if len(cpu) == len(blocks) else None,
        "pss_bytes": max(memory, default=None),
        "client_cpu_share": sum(block.counters["client_cpu_s"] for block in blocks) / elapsed_s,
    }


def _counts(wire: WirePass) -> dict[str, Any]:
    """Return the mean counts per request; None for what is not counted."""
    counted = {name: getattr(wire, name) for name in ("statements", "rows", "round_trips", "bytes_sent", "body_bytes")}
    return {name: fmean(values) if values else None for name, values in counted.items()}
