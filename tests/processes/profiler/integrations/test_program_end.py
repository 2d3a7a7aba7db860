"""How a program under `placebench profile run` ends: as it does without, and nothing of its end is lost silently."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

# A signal that comes just before a system call that waits is handled after it, by Python itself: waits are short.
_QUERY = """
import atexit, os, signal, sqlite3, sys, threading, time
def query(number): return sqlite3.connect(":memory:").execute("select ?", (number,)).fetchall()
def wait():
    for _ in range(600): time.sleep(0.1)
"""

_SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return tmp_path


def command(program: str, *options: str, check: bool = False) -> list[str]:
    """`placebench profile run` of a script with this text."""
    Path("program.py").write_text(_QUERY + program)
    words = ["check", "--gate", "statements <= 2"] if check else ["run"]
    return [sys.executable, "-m", "placebench", "profile", *words, "--mode", "full", *options, "program.py"]


def run(program: str, *options: str, check: bool = False) -> tuple[int, dict[str, Any], str]:
    """The exit code, the recording as JSON, and what is on stderr."""
    done = subprocess.run(
        command(program, "--json", *options, check=check), capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@pytest.mark.parametrize("options", [(), ("--mode", "flame")])
def test_an_executor_that_a_module_keeps_ends_with_the_program(folder: Path, options: tuple[str, ...]) -> None:
    """Its workers are not daemons, and wait until Python tells them that it ends; what they ran is recorded."""
    folder.joinpath("keeps.py").write_text("from concurrent.futures import *\nthreads = ThreadPoolExecutor(2)\n")

    code, document, _ = run("import keeps\nkeeps.threads.submit(query, 1).result(); keeps.threads.submit(query, 2)")

    assert (code, document["summary"]["statements"]) == (0, 2)


def test_threads_then_exit_functions_are_recorded_in_the_order_of_python() -> None:
    """First the threads end, then what `atexit` has, the last one first; one that fails is told and keeps no other."""
    program = """
def late(): time.sleep(0.05); print("thread", file=sys.stderr); query(1)
def done(word): print(word, file=sys.stderr); query(2)
def fail(): query(3); raise ZeroDivisionError
atexit.register(done, "first")
atexit.register(fail)
atexit.register(done, word="last")
atexit.register(done, "never")
atexit.unregister(print)
removed = atexit.register(lambda: done("removed"))
atexit.unregister(removed)
threading.Thread(target=late).start()
sys.exit(7)
"""
    plain = subprocess.run([sys.executable, "-c", _QUERY + program], capture_output=True, text=True, check=False)

    code, document, told = run(program)

    words = ["thread", "never", "last", "first"]
    lines = [line for line in told.splitlines() if line in words]
    assert lines == [line for line in plain.stderr.splitlines() if line in words] == words
    assert (code, document["summary"]["statements"]) == (plain.returncode, 5) == (7, 5)
    assert "Exception ignored in atexit callback: <function fail" in told


@pytest.mark.parametrize(
    "where", ["os._exit(3)", "threading.Thread(target=os._exit, args=(3,)).start(); time.sleep(60)"]
)
def test_a_program_that_ends_at_once_has_its_report(where: str) -> None:
    """`os._exit`, in the main thread or another: a note says so, the status is kept, and nothing else of it runs."""
    program = f"""
atexit.register(query, 1)
query(2)
try: {where}
finally: query(3)
"""

    code, document, _ = run(program)

    assert (code, document["exit_code"], document["summary"]["statements"]) == (3, 3, 1)
    assert [note for note in document["notes"] if "os._exit" in note]


def test_a_gate_holds_for_a_program_that_ends_at_once() -> None:
    """Exit code 1 if it does not hold and the status is 0; else the status."""
    program = "for number in range({}): query(number)\nos._exit({})"

    options = ("--drivers", "sqlite3")
    codes = [run(program.format(*each), *options, check=True)[0] for each in ((2, 0), (3, 0), (3, 4))]

    assert codes == [0, 1, 4]


_CHILDREN = {
    **{
        method: f"import multiprocessing\nwith multiprocessing.get_context({method!r}).Pool(2) as pool:\n"
        "  pool.map(query, range(4))"
        for method in ("fork", "spawn", "forkserver")
    },
    "executor": "from concurrent.futures import ProcessPoolExecutor\n"
    "with ProcessPoolExecutor(2, initializer=query, initargs=(1,)) as pool: list(pool.map(query, range(4)))",
    "process": "import multiprocessing\n"
    "for _ in range(2): child = multiprocessing.Process(target=query, args=(1,)); child.start(); child.join()",
    "os.fork": "for _ in range(2):\n  if os.fork() == 0: query(1); sys.exit(0)\n  os.wait()",
    "raises": "for _ in range(2):\n  if os.fork() == 0: query(1); raise ValueError('by the child')\n  os.wait()",
}


@pytest.mark.parametrize("way", _CHILDREN)
def test_child_processes_are_named(way: str) -> None:
    """The recording has the parent's statements alone, and says how many processes it does not have."""
    program = "if __name__ == '__main__':\n  query(0)\n  " + _CHILDREN[way].replace("\n", "\n  ")

    code, document, told = run(program)

    assert (code, document["summary"]["statements"]) == (0, 1), told
    assert document["notes"] == ["2 child processes were started; their statements are not in this recording"]
    assert told.count("ValueError: by the child") == (2 if way == "raises" else 0)


def test_finalizers_are_recorded_in_the_order_of_python() -> None:
    """Those of `weakref.finalize` run among the functions of `atexit`, the newest one first, before the record ends."""
    program = """
import weakref
class Kept: pass
def done(word): print(word, file=sys.stderr); query(1)
def fail(): query(2); raise ZeroDivisionError
kept = [Kept() for _ in range(4)]
atexit.register(done, "last")
weakref.finalize(kept[0], done, "older")
weakref.finalize(kept[1], fail)
weakref.finalize(kept[2], done, "newer")
weakref.finalize(kept[3], done, "never").atexit = False
atexit.register(done, "first")
"""
    Path("plain.py").write_text(_QUERY + program)
    plain = subprocess.run([sys.executable, "plain.py"], capture_output=True, text=True, check=False, timeout=60)

    code, document, told = run(program)

    words = ("first", "newer", "ZeroDivisionError", "older", "last")
    assert [*dict.fromkeys(word for word in plain.stderr.split() if word in words)] == list(words)
    assert [*dict.fromkeys(word for word in told.split() if word in words)] == list(words)
    assert (code, document["summary"]["statements"]) == (0, 5), told


_PROGRAMS = {
    "subprocess": "subprocess.run([sys.executable, '{worker}'])",
    "popen in a shell": "subprocess.run('cd . && LEVEL=1 python {worker} > out', shell=True)",
    "asyncio": "import asyncio; asyncio.run(wait('{worker}'))",
    "os.system": "os.system(sys.executable + ' {worker}')",
    "os.popen": "os.popen('python {worker}').close()",
    "os.spawnv": "os.spawnv(os.P_WAIT, sys.executable, ['python', '{worker}'])",
    "os.spawnlp": "os.spawnlp(os.P_WAIT, 'python', 'python', '{worker}')",
    "os.posix_spawn": "os.waitpid(os.posix_spawn(sys.executable, ['python', '{worker}'], os.environ), 0)",
    "by posix_spawn": "subprocess.run([sys.executable, '{worker}'], close_fds=False)",
    "by others": "subprocess.run(['env', 'A=1', 'timeout', '60', 'sh', '-c', 'true; python {worker}'])",
    "a script": "subprocess.run(['./script'])",
    "by fork": "subprocess.run([sys.executable, '{worker}'], preexec_fn=os.getpid)",
}


# A note shows five names.
@pytest.mark.parametrize("first", range(0, len(_PROGRAMS), 5))
def test_a_python_that_the_program_starts_is_named(first: int, folder: Path) -> None:
    """Its statements are seen by nobody, however it was started: the recording says so, once for each."""
    folder.joinpath("worker.py").write_text("import sqlite3; sqlite3.connect(':memory:').execute('select 1')")
    folder.joinpath("script").write_text("#!/bin/sh\n# no git\nexec python worker.py\n")
    folder.joinpath("script").chmod(0o700)
    program = """
import subprocess
async def wait(worker):
    await (await asyncio.create_subprocess_exec("python", worker)).wait()
query(1)
"""
    names = []
    for number, (way, start) in enumerate([*_PROGRAMS.items()][first : first + 5]):
        worker = f"worker{number}.py"
        folder.joinpath(worker).symlink_to("worker.py")
        program += f"for _ in range(2): {start.replace('{worker}', worker)}\n"
        names.append(f"{'script' if way == 'a script' else f'python {worker}'} (2 times)")

    code, document, told = run(program)

    assert (code, document["summary"]["statements"]) == (0, 1), told
    started = f"{2 * len(names)} programs were started that may use a database; their statements"
    assert document["notes"] == [f"{started} are not in this recording: {', '.join(names)}"]


def test_programs_that_use_no_database_are_not_named() -> None:
    """Neither git nor a shell, whoever starts it, whatever its arguments are; nor one that cannot be started."""
    program = """
import subprocess
subprocess.run(["env", "A=1", *["env"] * 50, "timeout", "5", "git", "log", "--author", "python"], capture_output=True)
subprocess.run(["git", "log", "--author", "python"], capture_output=True)
subprocess.run("git --version; echo 'psql; python'; true python | cat", shell=True, capture_output=True)
subprocess.run(["true"], preexec_fn=os.getpid)
os.system("true psql")
os.spawnlp(os.P_WAIT, "true", "true", "python")
os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
try: subprocess.run(["psql-that-is-not-there"])
except FileNotFoundError: query(1)
"""

    code, document, told = run(program)

    assert (code, document["summary"]["statements"], document["notes"]) == (0, 1, []), told


def test_a_program_that_ends_at_once_names_what_it_started() -> None:
    """An `os._exit` keeps the note of its children."""
    _, document, _ = run("import subprocess; subprocess.run([sys.executable, '-m', 'this']); os._exit(0)")

    name = Path(sys.executable).name
    assert [note for note in document["notes"] if f": {name} -m this" in note]


def test_a_child_calls_the_exit_functions_that_it_inherits() -> None:
    """As without the profiler: a fork that goes on to the end of the program; those of a pool clear them first."""
    program = """
import multiprocessing
atexit.register(print, "called", file=sys.stderr)
if os.fork():
    os.wait()
    child = multiprocessing.get_context("fork").Process(target=query, args=(1,))
    child.start()
    child.join()
"""

    assert run(program)[2].split().count("called") == 2


def take_signals() -> None:
    """Undo what a shell does to a job in its background, which ignores SIGINT and SIGQUIT."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def interrupted(program: str, *signals: signal.Signals) -> "subprocess.Popen[str]":
    """A program that gets a signal after each line that it prints, and has ended.

    SQLAlchemy, whose import is half of the CPU of such a run, has no part in it.
    """
    with subprocess.Popen(
        command(program, "--drivers", "sqlite3"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=take_signals,
    ) as process:
        for number in signals:
            assert "ready\n" == process.stdout.readline()
            process.send_signal(number)
        process.said = process.communicate(timeout=60)[0]
    return process


@pytest.mark.parametrize("first", _SIGNALS)
def test_an_interrupt_ends_the_wait_for_a_thread_that_never_ends(first: signal.Signals) -> None:
    """As it ends Python's, by the same signal, with a report and no second wait at the end of placebench."""
    program = """
def never():
    threading.main_thread().join(0.5); print("ready", flush=True); threading.Event().wait()
threading.Thread(target=never).start()
"""

    process = interrupted(program, first)

    assert (process.returncode, "ended with KeyboardInterrupt" in process.said) == (-first, True)
    assert Path("profile/index.html").is_file()


def test_a_program_that_catches_an_interrupt_gets_the_next_one() -> None:
    """Ctrl-C interrupts each time; whoever catches that of a SIGTERM is ended by the next one."""
    program = """
for _ in range({}):
    try: print("ready", flush=True); wait()
    except KeyboardInterrupt: pass
"""

    caught = interrupted(program.format(3), *[signal.SIGINT] * 3)
    ended = interrupted(program.format(3), *[signal.SIGTERM] * 2)

    assert (caught.returncode, ended.returncode) == (0, -signal.SIGTERM)
    assert "statements 0" in caught.said


def test_asyncio_sees_the_interrupt_that_it_sees_without() -> None:
    """It cancels the main task only where Ctrl-C has Python's own handler."""
    program = """
import asyncio
async def main():
    try:
        print("ready", flush=True)
        for _ in range(600): await asyncio.sleep(0.1)
    except asyncio.CancelledError: print("cancelled", flush=True); raise
asyncio.run(main())
"""

    process = interrupted(program, signal.SIGINT)

    assert (process.returncode, process.said.split()[0]) == (-signal.SIGINT, "cancelled")


@pytest.mark.parametrize(
    "program",
    [
        "print('ready', flush=True); wait()",
        """
import signal
def stop(*_): sys.exit(5)
for number in (1, 2, 3, 15): signal.signal(number, stop)
print('ready', flush=True); wait()
""",
        """
import signal
caught = []
signal.signal(signal.SIGTERM, lambda *_: caught.append(query(1)))
print('ready', flush=True)
while not caught: time.sleep(0.01)
""",
    ],
    ids=["default", "exits", "goes on"],
)
def test_a_signal_ends_the_program_as_without_us(program: str) -> None:
    """By the signal, or as the program's own handler has it; each has its report."""
    for number in _SIGNALS if "lambda" not in program else [signal.SIGTERM]:
        Path("plain.py").write_text(_QUERY + program)
        with subprocess.Popen(
            [sys.executable, "plain.py"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=take_signals,
        ) as plain:
            assert plain.stdout is not None
            plain.stdout.readline()
            plain.send_signal(number)
            plain.communicate(timeout=60)

        process = interrupted(program, number)

        assert process.returncode == plain.returncode
        assert "statements" in process.said


def test_a_program_that_goes_on_after_sigterm_ends_by_it_too() -> None:
    """Without the profiler there is nothing to catch: SIGTERM ends Python at once."""
    program = "try: print('ready', flush=True); wait()\nexcept KeyboardInterrupt: query(1)\nsys.exit(0)"

    process = interrupted(program, signal.SIGTERM)

    assert process.returncode == -signal.SIGTERM
    assert "statements 1" in process.said


@pytest.mark.parametrize("name", ["gevent", "eventlet"])
def test_greenlets_are_recorded_as_threads_are(name: str) -> None:
    """Each begins with an empty context, whoever spawns it: all of the program's statements are in its recording."""
    pytest.importorskip(name)
    spawn = {
        "gevent": "import gevent.pool; spawned = [gevent.spawn(query, n) for n in range(20)]; gevent.joinall(spawned)\n"
        "gevent.pool.Pool(3).map(query, range(25))",
        "eventlet": "[each.wait() for each in [eventlet.spawn(query, n) for n in range(20)]]\n"
        "list(eventlet.GreenPool(3).imap(query, range(25)))",
    }[name]
    patch = {"gevent": "import gevent.monkey; gevent.monkey.patch_all()", "eventlet": "eventlet.monkey_patch()"}[name]
    program = f"""
import warnings; warnings.simplefilter("ignore")
import {name}
{patch}
for number in range(8): query(number)
thread = threading.Thread(target=query, args=(1,)); thread.start(); thread.join()
{spawn}
import _thread
done = threading.Event(); _thread.start_new_thread(lambda: (query(1), done.set()), ()); done.wait()
"""

    code, document, told = run(program)

    assert (code, document["summary"]["statements"], document["notes"]) == (0, 55, []), told


def test_a_process_of_ours_is_no_child_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """py-spy, and what `subprocess` starts, are not counted: nobody expects their statements."""
    monkeypatch.setenv("PYTHONWARNINGS", "default")

    _, document, _ = run("import subprocess; subprocess.run(['true'])", "--mode", "external")

    assert not [note for note in document["notes"] if "child process" in note]
    assert os.environ["PYTHONWARNINGS"] == "default"


def test_a_child_that_is_terminated_at_once_ends() -> None:
    """A signal that comes before the child has Python's own handlers again is not lost."""
    program = """
ends = set()
for _ in range(300):
    if not (child := os.fork()): time.sleep(20); os._exit(0)
    os.kill(child, signal.SIGTERM)
    ends.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(ends, file=sys.stderr)
"""

    code, _, told = run(program)

    assert (code, "{-15}" in told.splitlines()) == (0, True), told
