"""The workers study: the same jobs done by threads, forked or spawned processes, or the tasks of an event loop.

The main class is `OwnWorkersStudy`, the study of `placebench study workers`. A job is a call of the user's function, or
a run of the user's command. Each measurement is a fresh program (`placebench.runtime.standalone.job_workers`), in which
every worker does one job for warming up; then the workers do a fixed number of jobs.
"""

import os
import shlex
import statistics
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from markupsafe import Markup

from placebench import units
from placebench.compare.keep.documents import StudySettings
from placebench.compare.keep.records import Measurement
from placebench.decoding import Amount, AtLeastOne, Count, Positive
from placebench.errors import LoadError, UsageError
from placebench.page.axis_charts import PointSeries, points
from placebench.page.svg import Role
from placebench.report.model import Chart
from placebench.report.study_report import StudyResults, interval_columns, interval_figures, measured, valid_points
from placebench.results import Run
from placebench.stats import median_interval
from placebench.stats.hodges_lehmann import MIN_REPLICATES
from placebench.study.overheads import nothing_counted, paired_ratio
from placebench.study.session import Measure, Point, StudySession, StudySpec, study_kind


class _OwnWorkersPoint(TypedDict):
    way: Literal["threads", "forks", "spawned", "loop", "free-threaded"]
    workers: AtLeastOne


class _OwnWorkersSettings(StudySettings[_OwnWorkersPoint]):
    jobs: AtLeastOne
    count: str
    coroutine: str
    pythons: dict[str, str]


class _OwnWorkersValues(TypedDict):
    elapsed_s: Positive
    jobs: AtLeastOne
    job_s: Positive
    cpu_s: Amount
    start_s: Positive
    results: Count | None
    uncounted: NotRequired[str]
    uss_bytes: Count
    pss_bytes: Count
    rss_bytes: Count


# --- the measurement


_PROGRAM = Path(__file__).parents[1] / "runtime" / "standalone" / "job_workers.py"
_NO_FREE_THREADED = (
    "no Python without a GIL was named: --free-threaded PATH takes one (uv python install 3.14t installs one)"
)


@dataclass(frozen=True)
class Work:
    """The user's work, and where it runs."""

    function: str = ""
    """MODULE:FUNCTION, called without arguments; empty for a command."""
    command: tuple[str, ...] = ()
    coroutine: str = ""
    """MODULE:FUNCTION of a coroutine function that does the same work on an event loop; empty for `function`."""
    count: str = ""
    """How the results of a job are counted, as `job_workers.result_counter` takes it; empty if they are not."""
    python: Path = Path(sys.executable)
    free_threaded: Path | None = None
    """The Python without a GIL for the way free-threaded; None if it is not measured."""
    timeout_s: float = 60.0
    """Seconds after which one measurement, with the start of its workers, is given up."""

    @property
    def title(self) -> str:
        """The function or the command, as it was given."""
        return self.function or shlex.join(self.command)

    def order(self, way: str, workers: int, jobs: int) -> dict[str, Any]:
        """Return the order for the program that does the jobs."""
        function = self.coroutine if way == "loop" and self.coroutine else self.function
        command = list(self.command)
        return {
            "way": way,
            "workers": workers,
            "jobs": jobs,
            "function": function,
            "command": command,
            "count": self.count,
        }


@contextmanager
def _ready(work: Work, order: Mapping[str, Any], log: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Start the workers of *order*; yield a function that has the next line, and the first line.

    Raises LoadError if a job fails, a worker is gone, or the time is over.
    """
    from placebench.runtime.line_process import LineProcess
    from placebench.runtime.supervisor import ChildSpec, start_child

    python = work.free_threaded if order["way"] == "free-threaded" else work.python
    spec = ChildSpec(
        name="the workers",
        argv=[str(python), "-P", str(_PROGRAM)],
        env={"PYTHONHASHSEED": "1", **os.environ},
        cwd=Path.cwd(),
        log=log,
        pipes=True,
        grace_s=1.0,
    )
    over = threading.Event()
    with start_child(spec) as child:
        process = LineProcess(child, gone="the program of the workers ended")

        def stop() -> None:
            over.set()
            child.kill()

        def call(line: Mapping[str, Any]) -> dict[str, Any]:
            try:
                response = process.call(line)
            except LoadError:
                if not over.is_set():
                    raise
                late = f"{units.numbered(order['jobs'], 'job')} did not end in {work.timeout_s:g} s"
                raise LoadError(f"{late}: give more time with --timeout, or fewer with --jobs") from None
            if "error" in response:
                raise LoadError(response["error"])
            return response

        timer = threading.Timer(work.timeout_s, stop)
        timer.start()
        try:
            yield call, call(order)
        finally:
            timer.cancel()


def why_impossible(work: Work, way: str, folder: Path) -> str:
    """Return why no job of *work* can be done in this way; empty if one can. Costs the start of a Python and a job."""
    if way == "free-threaded" and work.free_threaded is None:
        return _NO_FREE_THREADED
    try:
        with _ready(work, work.order(way, 1, 1), folder / "trial.log") as (_, greeting):
            pass
    except LoadError as error:
        return str(error)
    if way == "free-threaded" and greeting["gil"]:
        return f"Python {greeting['python']} at {work.free_threaded} had a GIL when the job was done"
    return ""


@dataclass(frozen=True)
class OwnWorkersStudy:
    """The ways and numbers of workers, and the jobs that each of them does."""

    work: Work
    ways: tuple[str, ...]
    workers: tuple[int, ...]
    """Numbers of threads, processes or tasks."""
    jobs: int
    """Number of jobs of a measurement, the same for every way and number of workers."""

    def spec(self, *, repeats: int, folder: Path) -> StudySpec[Path]:
        """Return the spec of the study, after one job was done in each way.

        folder: for the logs of these jobs. Raises UsageError if no way is possible. A measurement has `elapsed_s`,
        `jobs`, `job_s` (the median), `cpu_s` (including programs that jobs started and that have ended), `start_s`,
        `results`, `uncounted` (the beginning of what a job returned, if no result was counted in it), and `uss_bytes,
        pss_bytes, rss_bytes` of the process tree at its highest PSS.
        """
        reasons = {way: why_impossible(self.work, way, folder) for way in self.ways}
        possible = [way for way in self.ways if not reasons[way]]
        if not possible:
            raise UsageError(f"{self.work.title} cannot be measured: {next(iter(reasons.values()))}")
        pythons = {"python": self.work.python, "free_threaded": self.work.free_threaded}
        return StudySpec(
            command="study-workers",
            points=tuple({"way": way, "workers": number} for way in possible for number in self.workers),
            repeats=repeats,
            prepare=self._prepare,
            request=self.work.title,
            settings={
                "jobs": self.jobs,
                "count": self.work.count,
                "coroutine": self.work.coroutine,
                "pythons": {name: str(path) for name, path in pythons.items() if path},
            },
            impossible=tuple(
                ({"way": way, "workers": number}, reason)
                for way, reason in reasons.items()
                if reason
                for number in self.workers
            ),
        )

    @contextmanager
    def _prepare(self, folder: Path) -> Iterator[Measure]:
        yield lambda point, _: self.measure(point, folder / "log" / f"{point['way']}.log")

    def measure(self, point: Point, log: Path) -> dict[str, Any]:
        """Measure one point with a fresh program; raises LoadError if a job fails or the time is over."""
        from placebench.meters.processes import MemorySampler, read_descendants, read_tree_cpu_s

        started = time.perf_counter()
        with _ready(self.work, self.work.order(point["way"], point["workers"], self.jobs), log) as (call, greeting):
            start_s = time.perf_counter() - started
            main, *others = pids = greeting["pids"]
            if point["way"] == "free-threaded" and greeting["gil"]:
                raise LoadError(
                    "the GIL was enabled again, as an extension module without support for its absence does"
                )
            workers = (lambda: [*pids, *set(read_descendants(main)).difference(pids)]) if self.work.command else others
            before_s = read_tree_cpu_s(pids)
            with MemorySampler(main, workers or [main]) as memory:
                done = call({"begin": True})
                cpu_s = read_tree_cpu_s(pids) - before_s
            return {
                "elapsed_s": done["elapsed_s"],
                "jobs": self.jobs,
                "job_s": statistics.median(done["job_s"]),
                "cpu_s": cpu_s,
                "start_s": start_s,
                "results": done["results"] if self.work.count else None,
                "uncounted": greeting["uncounted"],
                "uss_bytes": memory.peak.uss_bytes,
                "pss_bytes": memory.peak.pss_bytes,
                "rss_bytes": memory.peak.rss_bytes,
            }


class OwnWorkersSession(StudySession[Path]):
    """One session of the study in one folder, without data of placebench."""

    def _set_up(self) -> Path:
        from placebench.compare.keep.environment import manifest

        self._run.begin_step("data", "describe the machine")
        self._run.record_environment(receipt={}, manifest=manifest(""))
        return self._run.path


# --- the report


_MEDIANS = ("job_s", "cpu_s", "start_s", "uss_bytes", "pss_bytes", "rss_bytes")
_ROLES: Mapping[str, Role] = {"threads": "baseline", "forks": "variant", "spawned": "variant"}


def results(run: Run) -> StudyResults:
    """Return one row per kind and number of workers, each compared with the first, and throughput against USS."""
    found = list(valid_points(run))
    rows = [_row(point, made, found[0][1]) for point, made in found]
    return StudyResults(
        headline=_headline(rows),
        rows=rows,
        columns=_COLUMNS if run.head.settings["count"] else [each for each in _COLUMNS if each.name not in _COUNTED],
        charts=[("Throughput against memory", _chart(rows))] if rows else [],
        summary=[*_summary(rows), *nothing_counted(found, run.head.settings["count"])],
        notes=list(_notes(run, rows)),
        limits=_LIMITS,
        axes=lambda point: {"way": point["way"], "workers": point["workers"]},
    )


def _row(point: Mapping[str, Any], made: Sequence[Measurement], base: Sequence[Measurement]) -> dict[str, Any]:
    values = [each.values for each in made]
    elapsed = median_interval([each["elapsed_s"] for each in values])
    medians = {name: statistics.median([each[name] for each in values]) for name in _MEDIANS}
    times_s = {each.repeat: each.values["elapsed_s"] for each in made}
    of_base = {} if made is base else {each.repeat: each.values["elapsed_s"] for each in base}
    jobs, counted = values[0]["jobs"], [each["results"] for each in values if each["results"] is not None]
    counts = statistics.median(counted) if counted else None
    return {
        **point,
        "n": elapsed.n,
        "jobs": jobs,
        **interval_figures("elapsed", "_s", elapsed),
        "confidence": elapsed.confidence,
        **paired_ratio("ratio", times_s, of_base),
        **medians,
        "throughput_per_s": jobs / elapsed.median,
        "cpu_s_per_job": medians["cpu_s"] / jobs,
        "results": counts,
        "cpu_s_per_result": medians["cpu_s"] / counts if counts else None,
    }


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['way']} x {row['workers']}"


def _headline(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how the fastest row compares with the first one."""
    if not rows:
        return "Which workers: nothing was measured."
    compared = [row for row in rows if row["ratio"] is not None]
    if not compared:
        first = rows[0]
        return f"{_name(first)}: {units.rate(first['throughput_per_s'])} in {units.size(first['pss_bytes'])} (PSS)."
    best = min(compared, key=lambda row: float(row["ratio"]))
    memory = f"in {units.size(best['pss_bytes'])} of memory (PSS) instead of {units.size(rows[0]['pss_bytes'])}"
    if best["ratio_low"] is None:
        return (
            f"Inconclusive: {units.numbered(best['n'], 'replicate')}, {MIN_REPLICATES} needed. The fastest of the "
            f"others, {_name(best)}, took {units.ratio(best['ratio'])} of the time of {_name(rows[0])}, {memory}."
        )
    if best["ratio_high"] >= 1:
        return (
            f"Nothing was shown to be faster than {_name(rows[0])}; the fastest of the others were {_name(best)}, "
            f"{memory}."
        )
    interval = f"[95 % CI {units.ratio(best['ratio_low'])}, {units.ratio(best['ratio_high'])}; n = {best['n']}]"
    share = f"{units.ratio(best['ratio'])} {interval} of the time of {_name(rows[0])}"
    return f"{_name(best)} did the jobs in {share}, {memory}."


def _summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    counts = {row["results"] for row in rows if row["results"] is not None}
    if len(counts) > 1:
        each = ", ".join(f"{_name(row)}: {units.average(row['results'])}" for row in rows)
        yield f"The numbers of results differ, so that not all workers did the same: {each}."


_COUNTED = ("results", "cpu_s_per_result")
_COLUMNS = (
    measured("way", "way"),
    measured("workers", "workers", units.count),
    measured("n", "n", units.count),
    *interval_columns("elapsed", "_s", "time", units.duration),
    measured("ratio", "× first", units.ratio),
    measured("ratio_low", "from", units.ratio),
    measured("ratio_high", "to", units.ratio),
    measured("job_s", "median job", units.duration),
    measured("cpu_s_per_job", "CPU per job", units.duration),
    measured("results", "results", units.average),
    measured("cpu_s_per_result", "CPU per result", units.duration),
    measured("uss_bytes", "USS", units.size),
    measured("pss_bytes", "PSS", units.size),
    measured("start_s", "start", units.duration),
)


def _chart(rows: Sequence[Mapping[str, Any]]) -> Chart:
    svg = throughput_by_memory(
        [(_name(row), _ROLES.get(row["way"], "between"), row) for row in rows],
        title="Jobs per second against memory",
        description="A point for each way and number of workers; up is faster, left is smaller.",
        keys=("threads", "forked or spawned processes", "an event loop, or threads without a GIL"),
    )
    return Chart(svg, "Up is faster; left is smaller (peak PSS of all processes together).")


def throughput_by_memory(
    rows: Iterable[tuple[str, Role, Mapping[str, Any]]], *, title: str, description: str, keys: tuple[str, str, str]
) -> Markup:
    """Return a chart of the throughput of rows, each with its name and role, against their PSS.

    keys: what the roles baseline, variant and between stand for.
    """
    return points(
        [
            PointSeries(name, [(row["pss_bytes"] / units.MIB, row["throughput_per_s"])], role)
            for name, role, row in rows
        ],
        title=title,
        description=description,
        show=units.rate,
        show_where=units.mebibytes,
        keys=[(f"disc role-{role}", key) for role, key in zip(("baseline", "variant", "between"), keys, strict=True)],
    )


def _notes(run: Run, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    settings = run.head.settings
    yield (
        f"Each measurement is a fresh program whose workers have done one job each; then they do "
        f"{units.numbered(settings['jobs'], 'job')} as they come. The start of the workers is not in the time."
    )
    if rows:
        yield (
            f"× first: time divided by that of {_name(rows[0])} in the same repeat, as the Hodges-Lehmann estimate "
            "with its exact 95 % interval. The intervals are not adjusted for the number of rows."
        )
    yield (
        "Memory is that of all processes together, at the sample with the highest PSS; samples are 0.1 s apart. PSS is "
        "what they take of the machine. USS is the part that no two processes share; forks share what was loaded "
        "before the fork, until somebody writes to it, and reading a Python object writes its reference count. "
        "With processes, the program that starts them is included."
    )
    if settings["coroutine"]:
        yield f"On the event loop the work is {settings['coroutine']}."


_LIMITS = (
    "Processes that a function itself starts: their CPU is included once they have ended, their memory is not.",
    "More cores than this machine has, and a database or service that the jobs wait for.",
)


KIND = study_kind(__name__, _OwnWorkersSettings, _OwnWorkersPoint, _OwnWorkersValues)
