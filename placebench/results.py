"""A run folder as data: `load(folder)` returns everything that the run measured.

run = placebench.results.load("profiles/latest")
run.head.variants, run.closed["tuned"].result.latency_s, run.blocks
run.block_frame().query("invalid.isnull()").groupby("variant").cpu_s.median()  # with the extra "bench" or "frames"
run.telemetry.summary()                                # of a run made with --telemetry
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from placebench.compare.keep.control import ControlRecord, control_path
from placebench.compare.keep.documents import RUNS
from placebench.compare.keep.records import (
    Block,
    ChangedPlan,
    CountedPass,
    ExecutedChange,
    LoadPass,
    Measurement,
    ProfiledPass,
    ProfiledReplicate,
    Record,
    RunHead,
    WirePass,
    read_blocks,
    read_changed_plans,
    read_executed,
    read_measurements,
    read_profiled,
)
from placebench.errors import MissingExtraError, RunFolderError

if TYPE_CHECKING:
    import pandas

    from placebench.profiler.model.session import FlameSession
    from placebench.telemetry import Telemetry

__all__ = ["Run", "load"]

_R = TypeVar("_R", bound=Record)

_SAMPLES = ("started_s", "latency_s", "service_s", "body_bytes")
_COUNTS = ("statements", "rows", "round_trips", "bytes_sent", "bytes_received", "body_bytes")


@dataclass(frozen=True)
class Run:
    """The data of one run, complete or not; each mapping is by variant and has the completed parts."""

    folder: Path
    head: RunHead
    closed: dict[str, LoadPass]
    open: dict[str, LoadPass]
    counted: dict[str, CountedPass]
    wire: dict[str, WirePass]
    blocks: list[Block]
    measurements: list[Measurement]
    """Measurements of a study in the order they were made, including invalid ones."""
    invalid: list[LoadPass] = field(default_factory=list)
    """Load passes that were discarded; `head.failed_parts` says which of them were repeated."""
    profiled: dict[str, ProfiledPass] = field(default_factory=dict)
    """How the flame graph of each variant was made, or why there is none, by variant."""
    profiled_replicates: list[ProfiledReplicate] = field(default_factory=list)
    """Self time by frame of each variant, from interleaved replicates under the profiler."""
    executed: list[ExecutedChange] = field(default_factory=list)
    """What of the changes between commits the requests execute; empty if it was not watched."""
    plans: list[ChangedPlan] = field(default_factory=list)
    """The statements whose plan differs between two variants; empty if plans were not compared."""
    control: ControlRecord | None = None
    """What was injected into the control of a comparison; None without --control, or before it was known."""

    def profile(self, variant: str) -> Path | None:
        """Return the path of the variant's flame graph, or None if there is none."""
        path = self.folder / f"profile-{variant}.html"
        return path if path.is_file() else None

    def speedscope(self, variant: str) -> Path | None:
        """Return the path of the variant's profile for speedscope, or None if there is none."""
        path = self.folder / f"profile-{variant}.speedscope.json"
        return path if path.is_file() else None

    def session(self, variant: str) -> "FlameSession | None":
        """Return the variant's flame graph as a session, scaled to one mean request; None if there is none."""
        from placebench.profiler.analysis.merging import load_session

        path = self.folder / f"profile-{variant}.pyisession"
        return load_session(path) if path.is_file() else None

    @cached_property
    def telemetry(self) -> "Telemetry":
        """The durations and values that workers, clients and backends recorded, as pandas frames; read on first use.

        Raises RunFolderError if the run was made without --telemetry, MissingExtraError if pandas is not installed.
        """
        from placebench.telemetry import load as load_telemetry

        return load_telemetry(self.folder / "telemetry")

    def block_frame(self) -> "pandas.DataFrame":
        """Return one row per block of the interleaved comparison: its position, and CPU, wall time and memory.

        cpu_s is per request, wall_s is the median of the block. invalid: why the replicate was discarded; None if it
        was not. All frames raise MissingExtraError if pandas is not installed.
        """
        reasons = {block.replicate: block.invalid for block in self.blocks if block.invalid}
        return _frame(
            {
                **{name: getattr(block, name) for name in ("replicate", "round", "position", "variant", "requests")},
                "cpu_s": None if block.cpu_s is None or not block.requests else block.cpu_s / block.requests,
                "wall_s": median(block.wall_s) if block.wall_s else None,
                "pss_bytes": block.counters.get("pss_bytes"),
                "invalid": reasons.get(block.replicate),
            }
            for block in self.blocks
        )

    def request_frame(self) -> "pandas.DataFrame":
        """Return one row per request of the load passes: variant, load, start, latency, service time, body size."""
        passes = [*self.closed.values(), *self.open.values()]
        return _frame(
            {"variant": each.variant, "load": each.result.kind, **dict(zip(_SAMPLES, values, strict=True))}
            for each in passes
            for values in zip(*(getattr(each.result, name) for name in _SAMPLES), strict=True)
        )

    def measurement_frame(self) -> "pandas.DataFrame":
        """Return one row per measurement of a study: repeat, the point's axes, values, and why it was discarded."""
        return _frame(
            {"repeat": each.repeat, **each.point, **each.values, "invalid": each.invalid} for each in self.measurements
        )

    def wire_frame(self) -> "pandas.DataFrame":
        """Return one row per request of the counted passes of a comparison: statements, rows, round trips and bytes."""
        return _frame(
            {"variant": each.variant, **{name: counts[number] if counts else None for name, counts in columns.items()}}
            for each in self.wire.values()
            for columns in [{name: getattr(each, name) for name in _COUNTS}]
            for number in range(len(each.round_trips))
        )


def load(folder: Path | str) -> Run:
    """Read the run in *folder*; raise RunFolderError if there is none or its format is newer than this version."""
    folder = Path(folder).resolve()
    if not (folder / "run.json").is_file():
        raise RunFolderError(
            f"no run in {folder} (no run.json): name a folder that `placebench compare` or `lab perfload` made"
        )
    head = RunHead.load(folder / "run.json")
    # The variants of a study are measured point by point: no file is called after them.
    kind = RUNS.get(head.command)
    variants = [] if kind and kind.measurement else head.variants
    return Run(
        folder=folder,
        head=head,
        closed=_each(variants, LoadPass, folder, "locust-{}-closed.json"),
        open=_each(variants, LoadPass, folder, "locust-{}-open.json"),
        counted=_each(variants, CountedPass, folder, "counted-{}.json"),
        wire=_each(variants, WirePass, folder, "wire-{}.json"),
        blocks=read_blocks(folder / "blocks.jsonl"),
        measurements=read_measurements(folder / "measurements.jsonl", head.command),
        profiled=_each(variants, ProfiledPass, folder, "profiled-{}.json"),
        profiled_replicates=read_profiled(folder / "profiled.jsonl"),
        executed=read_executed(folder),
        plans=read_changed_plans(folder),
        control=ControlRecord.load(control_path(folder)) if control_path(folder).is_file() else None,
        invalid=[LoadPass.load(path) for path in sorted(folder.glob("locust-*-invalid-*.json"))],
    )


def _each(variants: Iterable[str], kind: type[_R], folder: Path, name: str) -> dict[str, _R]:
    """Return the record of each variant for which a file with this name pattern exists."""
    paths = {variant: folder / name.format(variant) for variant in variants}
    return {variant: kind.load(path) for variant, path in paths.items() if path.is_file()}


def _frame(rows: Iterable[dict[str, Any]]) -> "pandas.DataFrame":
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise MissingExtraError("a frame needs pandas: pip install 'placebench[frames]'") from error
    return pandas.DataFrame(list(rows))
