"""`placebench study …`: questions about the user's own work, measured in fresh processes and a random order."""

import os
import re
import shutil
import tempfile
from argparse import ArgumentParser
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from placebench.commands import STARTS_SERVERS, Command, options
from placebench.commands.runs import first_given, measure_study, run_folder, say_impossible
from placebench.errors import CommandNotFoundError, UsageError

if TYPE_CHECKING:
    from placebench.study.matrix import CommandMatrix
    from placebench.study.workers import OwnWorkersStudy

JOBS, QUICK_JOBS = 40, 10
_MAX_WORKERS, MAX_JOBS = 64, 60_000
TIMEOUT_S: Final = 60.0
_WAYS: Final = ("threads", "forks", "spawned", "loop", "free-threaded")
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True)
class OwnStudyOptions(options.RunCommandOptions):
    """The options of every study of the user's own work (`add_measurement`)."""

    timeout: float | None
    replicates: int | None
    preset: str | None
    seed: int | None


@dataclass(frozen=True)
class StudyWorkersOptions(OwnStudyOptions):
    """The options of `placebench study workers`; work: MODULE:FUNCTION, or the words of a command."""

    work: tuple[str, ...]
    coroutine: str | None
    ways: tuple[str, ...] | None
    workers: tuple[int, ...] | None
    jobs: int | None
    count: str | None
    python: Path | None
    free_threaded: Path | None


def _configure_workers(parser: ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [options] MODULE:FUNCTION | -- COMMAND ..."
    parser.add_argument(
        "work",
        nargs="+",
        metavar="WORK",
        help="the job: MODULE:FUNCTION, called without arguments, with modules of this folder; or after -- a command",
    )
    parser.add_argument(
        "--async",
        dest="coroutine",
        type=options.text,
        metavar="MODULE:FUNCTION",
        help="coroutine function that does the same job, for the way loop (default: the function, if it is async def)",
    )
    parser.add_argument(
        "--ways",
        type=options.names,
        metavar="W,W",
        help=f"ways, of {', '.join(_WAYS)}; the first is compared with (default: all)",
    )
    parser.add_argument(
        "--workers",
        type=options.wholes(1, _MAX_WORKERS),
        metavar="N,N",
        help="numbers of threads, processes or tasks (default: 1, the cores, and twice the cores)",
    )
    parser.add_argument(
        "--jobs",
        type=options.whole(1, MAX_JOBS),
        metavar="N",
        help=f"number of jobs per measurement (default: {JOBS}; --preset quick: {QUICK_JOBS})",
    )
    parser.add_argument(
        "--count",
        type=options.text,
        metavar="PATTERN",
        help="count the results of a job, in what the function returned or the command printed: a JSON path such as "
        "'$.orders', or a regular expression; one number, or a group of digits, is a number of results itself",
    )
    parser.add_argument(
        "--python",
        type=options.path,
        metavar="PATH",
        help="Python of the environment that the function is in, 3.11 or newer (default: this one)",
    )
    parser.add_argument(
        "--free-threaded",
        type=options.path,
        metavar="PATH",
        help="Python without a GIL that has the function too, for the way free-threaded (default: none)",
    )
    add_measurement(parser, quick=f"{QUICK_JOBS} jobs, 1 worker and as many as cores")


def add_measurement(parser: ArgumentParser, *, quick: str, plan: str = "") -> None:
    """Add the options of how a study measures, and of its run.

    quick: what --preset quick changes, for the help. plan: the source of a seed that --seed overrides, for the help.
    """
    parser.add_argument(
        "--timeout",
        type=options.seconds,
        metavar="S",
        help=f"seconds after which a measurement of jobs is given up (default: {TIMEOUT_S:g})",
    )
    options.add_replicates(parser, options.STUDY_REPLICATES, at_least=1)
    options.add_preset(parser, quick=quick, default="all")
    options.add_seed(parser, "seed of the order of the measurements", plan=plan)
    options.add_out(parser, "folder of the run (default: a new one in profiles/)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out, or with the newest one")
    options.add_output(parser, markdown=True, page=True)


def _run_workers(given: StudyWorkersOptions) -> int:
    """Measure every way and number of workers; measurements are reported even if the run is interrupted or fails."""
    from placebench.compare.what.variants import existing_python
    from placebench.study.workers import OwnWorkersStudy, Work

    function, command = read_work(given.work)
    ways = given.ways or _WAYS
    if strange := [way for way in ways if way not in _WAYS]:
        raise UsageError(f"--ways names {strange[0]!r}: expected {', '.join(_WAYS)}")
    for option, value, way in (
        ("--async", given.coroutine, "loop"),
        ("--free-threaded", given.free_threaded, "free-threaded"),
    ):
        if value and way not in ways:
            raise UsageError(
                f"{option} is for the way {way}, which --ways leaves out: add {way}, or leave {option} out"
            )
    if given.coroutine and command:
        raise UsageError("--async is for a function, and a command starts its own event loop: leave one of them out")
    if given.coroutine and not FUNCTION.fullmatch(given.coroutine):
        raise UsageError(f"--async {given.coroutine!r}: expected MODULE:FUNCTION, as in shop:fetch_orders")
    if command and given.python:
        raise UsageError("--python is for a function, and a command names its own program: leave --python out")
    check_count(given.count)
    quick, cores = given.preset == "quick", len(os.sched_getaffinity(0))
    work = Work(function, command, given.coroutine or "", given.count or "", timeout_s=given.timeout or TIMEOUT_S)
    if given.python:
        work = replace(work, python=existing_python(given.python))
    if given.free_threaded:
        work = replace(work, free_threaded=existing_python(given.free_threaded))
    study = OwnWorkersStudy(
        work=work,
        ways=tuple(ways),
        workers=given.workers or tuple(sorted({1, cores} if quick else {1, cores, 2 * cores})),
        jobs=given.jobs or (QUICK_JOBS if quick else JOBS),
    )
    return measure_work(given, study)


def check_count(pattern: str | None) -> None:
    """Raise UsageError for a pattern that counts nothing."""
    from placebench.runtime.standalone.job_workers import result_counter

    if pattern:
        try:
            result_counter(pattern)
        except ValueError as error:
            raise UsageError(f"--count: {error}") from error


def measure_work(given: OwnStudyOptions, study: "OwnWorkersStudy | CommandMatrix") -> int:
    """Try every point once, then measure those that are possible, and print the report."""
    import placebench.compare.keep.environment  # noqa: F401  without the extra bench it ends here, before the trials
    from placebench.compare.what.data_setup import OwnData
    from placebench.study.workers import OwnWorkersSession

    with tempfile.TemporaryDirectory(prefix="placebench-") as scratch:
        spec = study.spec(repeats=given.replicates or options.STUDY_REPLICATES, folder=Path(scratch))
    say_impossible(spec.impossible)
    data = OwnData(seed=first_given(given.seed, default=options.SEED), database="none")
    with run_folder(given.run, spec.command) as folder:
        return measure_study(given, OwnWorkersSession(spec, data, folder), folder)


def read_work(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return a function and no command, or no function and a command."""
    first = words[0]
    if FUNCTION.fullmatch(first):
        if len(words) > 1:
            raise UsageError(
                f"{first} {words[1]}: a function is called without arguments; expected MODULE:FUNCTION alone, or the "
                "words of a command after --"
            )
        return first, ()
    if "://" in first:
        raise UsageError(
            f"{first} is the address of a service, and a function or a command was expected: users of a service are "
            "placebench load --users, versions of one under load placebench compare --users"
        )
    if shutil.which(first) is None:
        raise CommandNotFoundError(
            f"the command {first!r} was not found: expected a program on PATH or a file, or for study workers "
            "MODULE:FUNCTION; workloads of the reference service are those of placebench lab study"
        )
    return "", words


COMMANDS: dict[str, Command[Any]] = {
    "study workers": Command(_configure_workers, _run_workers, options=StudyWorkersOptions, needs_linux=STARTS_SERVERS)
}
