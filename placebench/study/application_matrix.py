"""The matrix study of an application: each combination of variants, servers, users, workers, data and settings.

The main class is `ApplicationMatrix`, which reads the cells from a plan, as `placebench compare` does. A measurement is
one replicate of one cell, as a comparison makes it (`placebench.compare.measure.replicate`).
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from msgspec import structs

from placebench import units
from placebench.compare.keep.documents import MAX_NAME_LENGTH
from placebench.compare.keep.environment import manifest
from placebench.compare.keep.records import Block, WirePass
from placebench.compare.keep.run_folder import FAILURES, error_text
from placebench.compare.load.client_process import body_file
from placebench.compare.measure.counted_pass import Statistics, count_on_the_wire, open_statistics
from placebench.compare.measure.databases import VariantDatabases, check_settings, variant_databases
from placebench.compare.measure.replicate import PreparedVariants, make_replicate, plan_replicate
from placebench.compare.measure.same_responses import SameResponses
from placebench.compare.what.data_setup import OwnData
from placebench.compare.what.trials import Experiment, fill_in, own_data, read_plan, with_python
from placebench.compare.what.variants import Variant, VariantTable, VariantTables, file_name, in_place, read_variant
from placebench.compare.what.workload import Workload, read_workload
from placebench.errors import GateFailedError, LoadError, MissingExtraError, PlacebenchError, UsageError, VariantError
from placebench.http_session import Request
from placebench.masking import mask_document
from placebench.runtime.postgres import Server
from placebench.runtime.standalone.job_workers import result_counter
from placebench.stats import percentile
from placebench.study.matrix import combinations
from placebench.study.overheads import REFUSED
from placebench.study.session import Measure, Point, StudySession, StudySpec, UnmeasurableError

APP = "app"
"""The name of the application of a plan without variants, as it is in its folder."""
WORKER_AXES = ("server", "processes", "threads")
PLAN_AXES = ("users", "rate", "database", "setup", "template_db")
AXES = ("variant", *WORKER_AXES, *PLAN_AXES, "python")
"""The axes that an application has; any other axis fills its name in braces in the plan's texts."""
RESERVED = ("port", "host", "database_url", "database_address", "token")
"""Names that have a meaning of their own in braces."""
_COUNTED_CYCLES, _BLOCK_S, _LOAD_BLOCK_S = 3, 0.1, 1.0
_MAX_READ_S = 2.0
"""Reading time in seconds above which the data is not checked after each measurement."""
_MAX_NAME_LENGTH = MAX_NAME_LENGTH - 10


@dataclass(frozen=True)
class Cell:
    """One combination: what is served, on which data, and what is sent."""

    variant: Variant
    """The variant, under the name of the cell."""
    data: OwnData
    workload: Workload
    users: int = 1
    rate: float | None = None
    rounds: int = 1
    warmup: int = 0
    """The least number of requests before anything is timed."""

    def to_json(self) -> dict[str, Any]:
        """Return what must be equal when a run is resumed."""
        return {
            "variant": self.variant.to_json(),
            "data": self.data.title,
            "workload": self.workload.to_json(),
            "rounds": self.rounds,
            "warmup": self.warmup,
        }


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
            name = file_name(",".join(f"{axis}={value}" for axis, value in point.items()))[:_MAX_NAME_LENGTH]
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
                f"a rate of {plan.rate:g} per second and {plan.users} users: users wait for responses, and arrivals at "
                "a rate do not; leave one of them away"
            )
        if plan.database == "none" and plan.template_db:
            raise UsageError(
                f'template_db {plan.template_db!r} with database = "none": no database is copied; leave one away'
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
            plan.workload,
            source=plan.source,
            folder=plan.folder,
            seed=self.seed,
            requests=requests,
            login=login,
        )
        if workload.script and ((plan.users or 1) > 1 or plan.rate):
            raise PlacebenchError(f"the script {workload.script} is one user's: users or a rate need requests")
        if workload.script and self.count:
            raise UsageError("--count counts in responses to requests, and the plan has a script: leave one away")
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
            prepare=lambda setup: _prepare(setup, cells, self),
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


@dataclass(frozen=True)
class CellSetup:
    """What all measurements of a session share."""

    folder: Path
    """The folder of the run."""
    server: Server | None
    """The PostgreSQL server; None if no cell needs one."""
    note: Callable[[str], object]
    seed: int


class CellSession(StudySession[CellSetup]):
    """One session of the study in one folder."""

    def __init__(self, spec: StudySpec[CellSetup], data: OwnData, folder: Path, server: Server | None) -> None:
        """server: the PostgreSQL server; None if no cell needs one."""
        super().__init__(spec, data, folder)
        self._server = server

    def _set_up(self) -> CellSetup:
        self._run.begin_step("data", "describe the machine")
        if self._server is not None:
            self._run.claim_server(self._server)
        described = manifest(self._server.url if self._server is not None else "")
        self._run.record_environment(receipt={}, manifest=described)
        return CellSetup(self._run.path, self._server, self._run.note, self._seed)


@contextmanager
def _prepare(setup: CellSetup, cells: Mapping[str, Cell], matrix: ApplicationMatrix) -> Iterator[Measure]:
    """Yield the measuring function; databases, work trees and servers are gone after the `with` block."""
    (setup.folder / "data").mkdir(mode=0o700, exist_ok=True)
    with ExitStack() as stack:
        rig = _CellRig(setup, cells, matrix, stack)
        yield rig.measure
        for name in ("responses", "data"):  # what is still needed for --resume stays after an error
            shutil.rmtree(setup.folder / name, ignore_errors=True)
        if rig.refused:
            first, reason = next(iter(rig.refused.items()))
            raise GateFailedError(f"{units.numbered(len(rig.refused), 'combination')} refused, {first}: {reason}")


@dataclass(frozen=True)
class _ReadyCell:
    """A cell that can be measured."""

    prepared: PreparedVariants
    databases: VariantDatabases
    wire: WirePass


class _CellRig:
    """The databases, work trees, reference responses and counts that the measurements of a session share."""

    def __init__(
        self, setup: CellSetup, cells: Mapping[str, Cell], matrix: ApplicationMatrix, stack: ExitStack
    ) -> None:
        self._setup, self._cells, self._matrix, self._stack = setup, cells, matrix, stack
        self._names = {repr(sorted(point.items())): name for name, point in matrix.names.items()}
        self._databases: list[tuple[OwnData, VariantDatabases | Exception]] = []
        self._placed: list[tuple[Variant, Variant | Exception]] = []
        self._statistics: dict[Server, Statistics | None] = {}
        self._ready: dict[str, _ReadyCell] = {}
        self._tried: set[str] = set()
        self._same: dict[str, SameResponses] = {}
        self.refused: dict[str, str] = {}
        """Cells whose responses are not those of their control, or whose reads change data, with the reasons."""

    def measure(self, point: Point, repeat: int) -> Mapping[str, Any]:
        """Return the values of one replicate of the cell.

        Raises UnmeasurableError if no further attempt would help, ServerError or LoadError if one might.
        """
        name, control = self._name(point), self._name({**point, **self._matrix.control})
        if control != name and control in self._cells and control not in self._tried:
            with suppress(*FAILURES):  # its responses are those that others are compared with
                self._make_ready(control, control)
        ready, cell = self._make_ready(name, control), self._cells[name]
        if cell.workload.writes:
            url = ready.databases.renew(ready.prepared.named[name])
            ready = replace(ready, prepared=replace(ready.prepared, databases={name: url}))
        plan = plan_replicate([name], repeat, rounds=cell.rounds, seed=self._setup.seed)
        blocks = make_replicate(ready.prepared, plan)
        if reason := next((block.invalid for block in blocks if block.invalid), None):
            raise LoadError(reason)
        try:
            for block in blocks:
                self._same[control].check_all(name, block.responses, self._setup.folder / "responses")
        except GateFailedError as error:
            raise self._refuse(name, error) from error
        self._check_data(name, ready)
        return {**_values(cell, blocks), **_counts(ready.wire), "results": self._count_results(cell, blocks)}

    def _name(self, point: Point) -> str:
        return self._names[repr(sorted(point.items()))]

    def _refuse(self, name: str, error: Exception) -> UnmeasurableError:
        reason = str(error).removesuffix("; no speed is printed")
        self.refused[name] = reason
        return UnmeasurableError(f"{REFUSED}{reason}")

    def _make_ready(self, name: str, control: str) -> _ReadyCell:
        """Prepare a cell when it is first needed: its data, its server, its counts and its responses."""
        if name in self.refused:
            raise UnmeasurableError(f"{REFUSED}{self.refused[name]}")
        if name in self._ready:
            return self._ready[name]
        self._tried.add(name)
        cell = self._cells[name]
        try:
            check_settings([cell.variant], self._setup.server if cell.data.database == "postgresql" else None)
            variant, databases = self._put_in_place(cell.variant), self._database(cell.data)
            own = variant if cell.workload.writes or variant.migrate or variant.postgres else None
            url = databases.of(own or replace(variant, name="all"))
            variant = variant.with_server(url)
        except FAILURES as error:
            raise UnmeasurableError(error_text(error)) from error
        before = {name: cell.data.contents(url)} if url and not cell.workload.writes else {}
        prepared = PreparedVariants(
            variants=(variant,),
            databases={name: url},
            workload=cell.workload,
            folder=self._setup.folder,
            block_s=_LOAD_BLOCK_S if cell.users > 1 or cell.rate else _BLOCK_S,
            users=cell.users,
            rate=cell.rate,
            warmup=cell.warmup,
            contents=cell.data.contents,
            before=before,
        )
        same = self._same.setdefault(control, SameResponses(rules=cell.workload.rules))
        read = self._statistics_of(databases.server_of(variant))
        try:
            wire = count_on_the_wire(
                prepared, name, requests=_COUNTED_CYCLES, read=read, same=same, note=self._setup.note
            )
        except GateFailedError as error:
            raise self._refuse(name, error) from error
        self._ready[name] = _ReadyCell(prepared, databases, wire)
        self._check_data(name, self._ready[name])
        return self._ready[name]

    def _put_in_place(self, variant: Variant) -> Variant:
        """Return the variant with its revision and packages in place; each is put in place once."""
        for wanted, placed in self._placed:
            if replace(wanted, name="", workers=(1, 1), server="") == replace(
                variant, name="", workers=(1, 1), server=""
            ):
                if isinstance(placed, Exception):
                    raise placed
                return replace(placed, name=variant.name, workers=variant.workers, server=variant.server)
        found: Variant | Exception
        try:
            folder = self._setup.folder / "sources" / str(len(self._placed))
            (found,) = self._stack.enter_context(in_place((variant,), folder))
        except FAILURES as error:
            found = error
        self._placed.append((variant, found))
        return self._put_in_place(variant)

    def _database(self, data: OwnData) -> VariantDatabases:
        """Return the databases with this data, which is filled once."""
        for wanted, found in self._databases:
            if wanted == data:
                if isinstance(found, Exception):
                    raise found
                return found
        folder = self._setup.folder / "data" / f"{self._setup.folder.name}-{len(self._databases)}"
        (folder / "log").mkdir(mode=0o700, parents=True, exist_ok=True)
        made: VariantDatabases | Exception
        try:
            made = self._stack.enter_context(variant_databases(data, folder, self._setup.server))
            made.template()
        except FAILURES as error:
            made = error
        self._databases.append((data, made))
        return self._database(data)

    def _statistics_of(self, server: Server | None) -> Statistics | None:
        if server is not None and server not in self._statistics:
            name = f"{self._setup.folder.name}_statistics".lower().replace("-", "_")
            self._statistics[server] = self._stack.enter_context(open_statistics(server, f"placebench_{name}"))
        return None if server is None else self._statistics[server]

    def _check_data(self, name: str, ready: _ReadyCell) -> None:
        """Refuse a cell whose requests, which only read, have changed data."""
        before = ready.prepared.before.get(name)
        if before is None or before.elapsed_s > _MAX_READ_S:
            return
        if found := before.difference(ready.prepared.contents(ready.prepared.databases[name])):
            ready.databases.renew(replace(ready.prepared.named[name], name="all"))
            for other in [each for each, made in self._ready.items() if made.databases is ready.databases]:
                del self._ready[other]  # the database that they share is another one now
            raise self._refuse(
                name, PlacebenchError(f"requests that read changed {found}; may_change names tables that may change")
            )

    def _count_results(self, cell: Cell, blocks: Sequence[Block]) -> float | None:
        """Return the number of results in a response, on average; None if they are not counted."""
        if not self._matrix.count:
            return None
        count, found = result_counter(self._matrix.count), 0
        bodies = {label: digests[0] for block in blocks for label, digests in block.responses.items()}
        for label in cell.workload.cycle_labels:
            body = body_file(self._setup.folder / "responses", bodies[label]).read_bytes()
            try:
                found += count(body)
            except ValueError as error:
                raise UnmeasurableError(f"--count {self._matrix.count}: the response to {label} is no JSON") from error
        return found / len(cell.workload.cycle)


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
