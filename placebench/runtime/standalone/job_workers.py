"""Does the same jobs by threads, forked or spawned processes, or the tasks of an event loop, and times them.

    PYTHON -P job_workers.py

Run by path, in any environment from Python 3.11 on; imports nothing of placebench. The first line of input is the order
(`_Order`). The first line of output is written when every worker has done one job for warming up:
`{"pids": [...], "python": "3.13.1", "gil": true, "uncounted": ""}`; `uncounted` is the beginning of what a job returned
in which no result was counted. After a second line of input the jobs are done, and the response is
`{"elapsed_s": 1.2, "job_s": [...], "results": 40}`. The workers stay until input ends, so that their memory can be
read. Instead of any response `{"error": "..."}` is written if a job or a worker fails.
"""

import asyncio
import importlib
import inspect
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from tempfile import TemporaryFile
from typing import IO, Any

_JOB, _END = b"j", b"e"
"""Bytes in the pipe from which processes take their jobs, each byte one."""
_STEP = re.compile(r"\.(?P<key>[\w-]+)|\[(?P<index>\d+)\]|(?P<all>\[\*\]|\.\*)")
_MAX_SHOWN = 120
"""Number of characters that are shown of what a job returned."""


class JobError(Exception):
    """A job has failed, or its results cannot be counted; the text says all."""


@dataclass(frozen=True)
class _Order:
    """What is done, by whom, and how often."""

    way: str
    """threads, forks, spawned, loop or free-threaded, which is threads too."""
    workers: int
    jobs: int
    function: str = ""
    """The work as MODULE:FUNCTION; empty for a command."""
    command: Sequence[str] = ()
    count: str = ""
    """How the results of a job are counted, as `result_counter` takes it; empty if they are not."""


@dataclass(frozen=True)
class _Share:
    """What one worker has done."""

    job_s: list[float]
    results: int
    ended: float
    """Reading of time.perf_counter, which all processes of a machine share on Linux, after the last job."""


def result_counter(pattern: str) -> Callable[[Any], int]:
    """Return a function that counts the results in what a job returned or printed.

    pattern: a JSON path of names, indexes and `*`, such as `$.orders[*]`, or else a regular expression. The matches are
    counted, except that a path without `*` to a whole number, and a group of digits, are numbers of results themselves,
    and a path without `*` to a list has as many as the list. Raises ValueError for a pattern that is neither. The
    function raises JobError for what is no JSON, or no number.
    """
    return _path_counter(pattern) if pattern.startswith("$") else _expression_counter(pattern)


def _expression_counter(pattern: str) -> Callable[[Any], int]:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    if expression.groups > 1:
        raise ValueError(f"{pattern!r} has {expression.groups} groups: one at most, of the digits that count")

    def count_matches(value: Any) -> int:
        found = expression.findall(as_text(value))
        if expression.groups and (strange := [each for each in found if not each.isdecimal()]):
            raise JobError(f"--count {pattern}: the group matched {strange[0]!r}, expected digits")
        return sum(map(int, found)) if expression.groups else len(found)

    return count_matches


def _path_counter(pattern: str) -> Callable[[Any], int]:
    steps = list(_STEP.finditer(pattern, 1))
    if "".join(step[0] for step in steps) != pattern[1:]:
        raise ValueError(f"{pattern!r} is not a JSON path: expected names, indexes and *, as in $.orders[*].lines[0]")

    def count_values(value: Any) -> int:
        try:
            found = [json.loads(value) if isinstance(value, str | bytes) else value]
        except ValueError:
            raise JobError(f"--count {pattern}: expected JSON, saw {begin_of(value)}") from None
        for step in steps:
            below: list[Any] = []
            for each in found:
                if step["all"]:
                    below.extend(each.values() if isinstance(each, dict) else each if _is_list(each) else ())
                elif step["key"] and isinstance(each, dict) and step["key"] in each:
                    below.append(each[step["key"]])
                elif step["index"] and _is_list(each) and int(step["index"]) < len(each):
                    below.append(each[int(step["index"])])
            found = below
        if not found or any(step["all"] for step in steps):
            return len(found)
        if _is_list(found[0]):
            return len(found[0])
        is_number = isinstance(found[0], int | float) and not isinstance(found[0], bool) and found[0] % 1 == 0
        return int(found[0]) if is_number else 1

    return count_values


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def as_text(value: Any) -> str:
    """Return what a job returned as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def begin_of(value: Any) -> str:
    """Return the beginning of what a job returned, quoted."""
    text = as_text(value)
    return repr(text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…")


class _Work:
    """The job of an order, which a thread calls and a task awaits."""

    def __init__(self, order: _Order) -> None:
        self._command = list(order.command)
        self._counter = result_counter(order.count) if order.count else None
        self.uncounted = ""
        """The beginning of what a job returned in which no result was counted."""
        self._function: Any = None
        if order.function:
            module, _, name = order.function.partition(":")
            self._function = importlib.import_module(module)
            for part in name.split("."):
                self._function = getattr(self._function, part)

    def _count(self, returned: Any) -> int:
        found = self._counter(returned) if self._counter else 0
        if self._counter and not found and not self.uncounted:
            self.uncounted = begin_of(returned)
        return found

    def caller(self) -> Callable[[], int]:
        """Return a function for one thread that does a job and returns the number of its results."""
        runner = asyncio.Runner()

        def call() -> int:
            value = self._function()
            if inspect.isawaitable(value):
                value = runner.run(_result(value))
            elif inspect.isgenerator(value) or inspect.isasyncgen(value):
                raise TypeError(f"the job returned a {type(value).__name__}, which does nothing until it is read")
            return self._count(value)

        def run_command() -> int:
            with TemporaryFile() as output, TemporaryFile() as errors:  # a process left behind would keep pipes open
                done = subprocess.run(
                    self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, check=False
                )
                return self._read(done.returncode, output, errors)

        return call if self._function else run_command

    async def wait(self) -> int:
        """Do a job on the event loop; return the number of its results."""
        if self._function:
            value = self._function()
            if not inspect.isawaitable(value):
                needs = "an event loop needs one that does the same work: name it with --async MODULE:FUNCTION"
                raise TypeError(f"the job is not a coroutine function (async def), and {needs}")
            return self._count(await value)
        with TemporaryFile() as output, TemporaryFile() as errors:
            started = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=errors
            )
            return self._read(await started.wait(), output, errors)

    def _read(self, exit_code: int, output: IO[bytes], errors: IO[bytes]) -> int:
        output.seek(0)
        errors.seek(0)
        if exit_code:
            said = errors.read().decode(errors="replace").strip().splitlines()
            raise JobError(f"the command ended with exit code {exit_code}" + (f": {said[-1]}" if said else ""))
        return self._count(output.read())


async def _result(value: Awaitable[Any]) -> Any:
    return await value


def _do(job: Callable[[], int], take: Callable[[], bool]) -> _Share:
    job_s: list[float] = []
    results, began = 0, time.perf_counter()
    while take():
        started = time.perf_counter()
        results += job()
        began = time.perf_counter()
        job_s.append(began - started)
    return _Share(job_s, results, began)


def _error_text(error: BaseException) -> str:
    """Return the error on one line, with the place in the user's code where it was raised."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename != __file__]
    library = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120
    ours = [each for each in frames if not each.filename.startswith((library, "<frozen"))]
    place = f" ({os.path.basename(ours[-1].filename)}:{ours[-1].lineno})" if ours else ""  # noqa: PTH119
    kind = "" if isinstance(error, JobError) else f"{type(error).__name__}: "
    return f"{kind}{' '.join(str(error).split())}{place}"


class _Conversation:
    """The lines to and from placebench, on the standard input and output that the program was started with.

    The work gets an empty input, and its output is the standard error.
    """

    def __init__(self) -> None:
        self._input = os.fdopen(os.dup(sys.stdin.fileno()))
        with open(os.devnull) as empty:  # noqa: PTH123
            os.dup2(empty.fileno(), sys.stdin.fileno())
        self._output = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def send(self, response: dict[str, Any]) -> None:
        self._output.write(json.dumps(response) + "\n")
        self._output.flush()

    def say_ready(self, pids: Sequence[int], failures: Sequence[str], greeting: dict[str, Any]) -> None:
        """Say that every worker is ready, and wait for the signal to begin; ends the program after a failure."""
        if failures:
            self._fail(failures)
        self.send({"pids": list(pids), "python": sys.version.partition(" ")[0], **greeting})
        if not self._input.readline():
            sys.exit()

    def say_done(self, began: float, shares: Sequence[_Share], failures: Sequence[str]) -> None:
        """Send the result, and wait until the workers' memory was read; ends the program after a failure."""
        if failures:
            self._fail(failures)
        elapsed_s = max(each.ended for each in shares) - began
        job_s = [seconds for each in shares for seconds in each.job_s]
        self.send({"elapsed_s": elapsed_s, "job_s": job_s, "results": sum(each.results for each in shares)})
        self._input.readline()

    def _fail(self, failures: Sequence[str]) -> None:
        self.send({"error": failures[0]})
        sys.exit()


def _greeting(work: _Work) -> dict[str, Any]:
    """Return what a worker says after its first job."""
    has_gil = bool(getattr(sys, "_is_gil_enabled", lambda: True)())
    return {"gil": has_gil, "uncounted": work.uncounted}


def _by_threads(order: _Order, talk: _Conversation) -> None:
    work = _Work(order)
    ready, go, end = (threading.Barrier(order.workers + 1) for _ in range(3))
    jobs: queue.SimpleQueue[None] = queue.SimpleQueue()
    for _ in range(order.jobs):
        jobs.put(None)
    shares: list[_Share] = []
    failures: list[str] = []

    def take() -> bool:
        try:
            jobs.get_nowait()
        except queue.Empty:
            return False
        return not failures

    def run() -> None:
        job = None
        try:
            job = work.caller()
            job()
        except BaseException as error:  # noqa: BLE001  SystemExit too, which would end the thread silently
            failures.append(_error_text(error))
        ready.wait()
        go.wait()
        try:
            if job is not None:
                shares.append(_do(job, take))
        except BaseException as error:  # noqa: BLE001
            failures.append(_error_text(error))
        end.wait()
        threading.Event().wait()  # its memory is still to be read; it ends with the program

    for _ in range(order.workers):
        threading.Thread(target=run, daemon=True).start()
    ready.wait()
    talk.say_ready([os.getpid()], failures, _greeting(work))
    began = time.perf_counter()
    go.wait()
    end.wait()
    talk.say_done(began, shares, failures)


def _by_event_loop(order: _Order, talk: _Conversation) -> None:
    work = _Work(order)

    async def run() -> None:
        failures: list[str] = []
        share = _Share([], 0, 0.0)
        jobs = iter(range(order.jobs))
        job_s: list[float] = []
        results = 0

        async def do_jobs() -> None:
            nonlocal results
            for _ in jobs:
                started = time.perf_counter()
                found = await work.wait()
                job_s.append(time.perf_counter() - started)
                results += found  # after the wait, during which the other tasks count too

        try:
            await asyncio.gather(*(work.wait() for _ in range(order.workers)))
        except BaseException as error:  # noqa: BLE001
            failures.append(_error_text(error))
        talk.say_ready([os.getpid()], failures, _greeting(work))
        began = time.perf_counter()
        try:
            await asyncio.gather(*(do_jobs() for _ in range(order.workers)))
            share = _Share(job_s, results, time.perf_counter())
        except BaseException as error:  # noqa: BLE001
            failures.append(_error_text(error))
        talk.say_done(began, [share], failures)

    asyncio.run(run())


def _serve_jobs(order: _Order, work: _Work | None, jobs: int, hold: int, report: IO[str]) -> None:
    """Do the jobs of one process, report to *report*, and stay until *hold* closes."""

    def send(document: dict[str, Any]) -> None:
        report.write(json.dumps(document) + "\n")
        report.flush()

    try:
        work = work or _Work(order)
        job = work.caller()
        job()
        send(_greeting(work))
        send(asdict(_do(job, lambda: os.read(jobs, 1) == _JOB)))
    except BaseException as error:  # noqa: BLE001  SystemExit too: the process is to say why it ends
        send({"error": _error_text(error)})
    os.read(hold, 1)


def _by_processes(order: _Order, talk: _Conversation) -> None:
    forked = _Work(order) if order.way == "forks" else None
    jobs, queue_jobs = os.pipe()
    hold, release = os.pipe()
    pids: list[int] = []
    spawned: list[subprocess.Popen[str]] = []  # kept, as subprocess reaps those that nothing refers to
    reports: list[IO[str]] = []
    for _ in range(order.workers):
        reading, writing = os.pipe()
        if forked is None:
            command = [sys.executable, "-P", __file__, str(jobs), str(hold), str(writing)]
            started = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(jobs, hold, writing), text=True)
            assert started.stdin is not None
            with started.stdin as pipe:
                pipe.write(json.dumps(asdict(order)) + "\n")
            pids.append(started.pid)
            spawned.append(started)
        else:
            pid = os.fork()
            if pid == 0:
                os.close(release)
                _serve_jobs(order, forked, jobs, hold, os.fdopen(writing, "w"))
                os._exit(0)
            pids.append(pid)
        os.close(writing)
        reports.append(os.fdopen(reading))

    def read() -> tuple[list[dict[str, Any]], list[str]]:
        found, failures = [], []
        for pid, report in zip(pids, reports, strict=True):
            line = report.readline()
            if not line:
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                failures.append(f"a worker process ended with {how}")
                break
            document = json.loads(line)
            if "error" in document:
                failures.append(document["error"])
            found.append(document)
        return found, failures

    greetings, failures = read()
    greeting = {} if failures else {name: max(each[name] for each in greetings) for name in greetings[0]}
    talk.say_ready([os.getpid(), *pids], failures, greeting)
    began = time.perf_counter()
    os.write(queue_jobs, _JOB * order.jobs + _END * order.workers)
    shares, failures = read()
    talk.say_done(began, [] if failures else [_Share(**each) for each in shares], failures)
    os.close(release)


def _main() -> None:
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  where the user's modules are
    order = _Order(**json.loads(sys.stdin.readline()))
    if len(sys.argv) > 1:
        jobs, hold, report = map(int, sys.argv[1:])
        _serve_jobs(order, None, jobs, hold, os.fdopen(report, "w"))
        return
    talk = _Conversation()
    ways = {"loop": _by_event_loop, "forks": _by_processes, "spawned": _by_processes}
    try:
        ways.get(order.way, _by_threads)(order, talk)
    except Exception as error:  # noqa: BLE001
        talk.send({"error": _error_text(error)})
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(0)  # threads may still work, and the user's atexit functions are not part of a job


if __name__ == "__main__":
    _main()
