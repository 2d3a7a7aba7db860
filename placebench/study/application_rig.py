"""The cells of a study of an application: what is served, on which data, what is sent, and all that they share.

`CellRig` has the databases, work trees, reference responses and counts of a session; a study brings a function that
measures one cell (`prepare_cells`).
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from placebench import units
from placebench.compare.keep.environment import manifest
from placebench.compare.keep.records import Block, WirePass
from placebench.compare.keep.run_folder import FAILURES, error_text
from placebench.compare.measure.counted_pass import Statistics, count_on_the_wire, open_statistics
from placebench.compare.measure.databases import VariantDatabases, check_settings, variant_databases
from placebench.compare.measure.prepared_variants import PreparedVariants
from placebench.compare.measure.same_responses import SameResponses
from placebench.compare.what.data_setup import OwnData
from placebench.compare.what.variants import Variant, in_place
from placebench.compare.what.workload import Workload
from placebench.errors import GateFailedError, PlacebenchError
from placebench.runtime.postgres import Server
from placebench.study.overheads import REFUSED
from placebench.study.session import Measure, Point, StudySession, StudySpec, UnmeasurableError

_COUNTED_CYCLES, _BLOCK_S, _LOAD_BLOCK_S = 3, 0.1, 1.0
_MAX_READ_S = 2.0
"""Reading time in seconds above which the data is not checked after each measurement."""


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


CellMeasurement = Callable[["CellRig", str, int], Mapping[str, Any]]
"""Measures the cell of this name once for the given repeat, and returns its values."""


@contextmanager
def prepare_cells(
    setup: CellSetup,
    cells: Mapping[str, Cell],
    names: Mapping[str, Point],
    control: Mapping[str, Any],
    measurement: CellMeasurement,
) -> Iterator[Measure]:
    """Yield the measuring function; databases, work trees and servers are gone after the `with` block.

    names: all combinations by the names of their cells. control: the values of a combination's control.
    """
    (setup.folder / "data").mkdir(mode=0o700, exist_ok=True)
    with ExitStack() as stack:
        rig = CellRig(setup, cells, names, control, stack)

        def measure(point: Point, repeat: int) -> Mapping[str, Any]:
            name = rig.name_of(point)
            try:
                return measurement(rig, name, repeat)
            except PlacebenchError as error:  # the session names the combination itself
                error.args = (str(error).removeprefix(f"{name}: "),)
                raise

        yield measure
        for name in ("responses", "data"):  # what is still needed for --resume stays after an error
            shutil.rmtree(setup.folder / name, ignore_errors=True)
        if rig.refused:
            first, reason = next(iter(rig.refused.items()))
            named = reason if reason.startswith(first) else f"{first}: {reason}"
            raise GateFailedError(f"{units.numbered(len(rig.refused), 'combination')} refused, {named}")


@dataclass(frozen=True)
class ReadyCell:
    """A cell that can be measured."""

    prepared: PreparedVariants
    databases: VariantDatabases
    wire: WirePass


class PlacedVariants:
    """Variants with their revisions and packages in place, each put in place once, when it is first needed."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        """folder: for the revisions and packages, which are gone when *stack* is closed."""
        self._folder, self._stack = folder, stack
        self._placed: list[tuple[Variant, Variant | Exception]] = []

    def variant(self, wanted: Variant) -> Variant:
        """Return the variant with its files in place; if the first attempt failed, its error is raised again."""
        origin = replace(wanted, name="", workers=(1, 1), server="")  # what variants in one place have in common
        found = next((placed for other, placed in self._placed if other == origin), None)
        if found is None:
            try:
                (found,) = self._stack.enter_context(in_place((wanted,), self._folder / str(len(self._placed))))
            except FAILURES as error:
                found = error
            self._placed.append((origin, found))
        if isinstance(found, Exception):
            raise found
        return replace(found, name=wanted.name, workers=wanted.workers, server=wanted.server)


class CellRig:
    """The databases, work trees, reference responses and counts that the measurements of a session share."""

    def __init__(
        self,
        setup: CellSetup,
        cells: Mapping[str, Cell],
        names: Mapping[str, Point],
        control: Mapping[str, Any],
        stack: ExitStack,
    ) -> None:
        self.setup, self.cells, self._control, self._stack = setup, cells, control, stack
        self._points = dict(names)
        self._names = {repr(sorted(point.items())): name for name, point in names.items()}
        self._databases: list[tuple[OwnData, VariantDatabases | Exception]] = []
        self._placed = PlacedVariants(setup.folder / "sources", stack)
        self._statistics: dict[Server, Statistics | None] = {}
        self._ready: dict[str, ReadyCell] = {}
        self._tried: set[str] = set()
        self._same: dict[str, SameResponses] = {}
        self.refused: dict[str, str] = {}
        """Cells whose responses are not those of their control, or whose reads change data, with the reasons."""

    def ready(self, name: str) -> ReadyCell:
        """Return the cell, ready to be measured; requests that write get a new copy of the data each time.

        Raises UnmeasurableError if no further attempt would help.
        """
        control = self.control_of(name)
        if control != name and control in self.cells and control not in self._tried:
            with suppress(*FAILURES):  # its responses are those that others are compared with
                self._make_ready(control, control)
        ready = self._make_ready(name, control)
        if not self.cells[name].workload.writes:
            return ready
        url = ready.databases.renew(ready.prepared.named[name])
        return replace(ready, prepared=replace(ready.prepared, databases={name: url}))

    def check(self, name: str, ready: ReadyCell, blocks: Sequence[Block] = ()) -> None:
        """Refuse the cell if the responses in its blocks are not those of its control, or if reading changed data."""
        try:
            for block in blocks:
                self._same[self.control_of(name)].check_all(name, block.responses, self.setup.folder / "responses")
        except GateFailedError as error:
            raise self._refuse(name, error) from error
        self._check_data(name, ready)

    def name_of(self, point: Point) -> str:
        """Return the name of the combination."""
        return self._names[repr(sorted(point.items()))]

    def control_of(self, name: str) -> str:
        """Return the name of the control of the cell *name*, which may be itself."""
        return self.name_of({**self._points[name], **self._control})

    def _refuse(self, name: str, error: Exception) -> UnmeasurableError:
        reason = str(error).removeprefix(f"{name}: ").removesuffix("; no speed is printed")
        self.refused[name] = reason
        return UnmeasurableError(f"{REFUSED}{reason}")

    def _make_ready(self, name: str, control: str) -> ReadyCell:
        """Prepare a cell when it is first needed: its data, its server, its counts and its responses."""
        if name in self.refused:
            raise UnmeasurableError(f"{REFUSED}{self.refused[name]}")
        if name in self._ready:
            return self._ready[name]
        self._tried.add(name)
        cell = self.cells[name]
        try:
            check_settings([cell.variant], self.setup.server if cell.data.database == "postgresql" else None)
            variant, databases = self._placed.variant(cell.variant), self._database(cell.data)
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
            folder=self.setup.folder,
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
                prepared, name, requests=_COUNTED_CYCLES, read=read, same=same, note=self.setup.note
            )
        except GateFailedError as error:
            raise self._refuse(name, error) from error
        self._ready[name] = ReadyCell(prepared, databases, wire)
        self._check_data(name, self._ready[name])
        return self._ready[name]

    def _database(self, data: OwnData) -> VariantDatabases:
        """Return the databases with this data, made on first use; if that failed, its error is raised again."""
        for wanted, found in self._databases:
            if wanted == data:
                if isinstance(found, Exception):
                    raise found
                return found
        folder = self.setup.folder / "data" / f"{self.setup.folder.name}-{len(self._databases)}"
        (folder / "log").mkdir(mode=0o700, parents=True, exist_ok=True)
        made: VariantDatabases | Exception
        try:
            made = self._stack.enter_context(variant_databases(data, folder, self.setup.server))
            made.template()
        except FAILURES as error:
            made = error
        self._databases.append((data, made))
        return self._database(data)

    def _statistics_of(self, server: Server | None) -> Statistics | None:
        if server is not None and server not in self._statistics:
            name = f"{self.setup.folder.name}_statistics".lower().replace("-", "_")
            self._statistics[server] = self._stack.enter_context(open_statistics(server, f"placebench_{name}"))
        return None if server is None else self._statistics[server]

    def _check_data(self, name: str, ready: ReadyCell) -> None:
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
