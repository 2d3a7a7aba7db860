"""The guard: children run, are stopped, and never outlive their parent, however that ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from placebench.errors import PlacebenchError
from placebench.meters.processes import read_ended_cpu_s
from placebench.runtime import shepherd
from placebench.runtime.supervisor import Child, ChildSpec, Supervisor, start_child, tail_file

Eventually = Callable[[Callable[[], bool]], bool]
Runs = Callable[[int], bool]
STUBBORN = "trap '' TERM QUIT; echo $$; sleep 60 & echo $!; wait; wait"
PARENT = """
import json, os, sys
from contextlib import suppress
from pathlib import Path
from placebench.runtime.supervisor import ChildSpec, start_child

child = start_child(ChildSpec(**{**json.loads(sys.argv[1]), "remove": Path(sys.argv[2])}))
"""


def parent(spec: dict[str, object], folder: Path, then: str) -> subprocess.Popen[str]:
    """A process that starts *spec* with *folder*, prints the child's pid, and then does *then*."""
    script = f"{PARENT}\nprint(child.pid, flush=True)\n{then}"
    return subprocess.Popen(
        [sys.executable, "-c", script, json.dumps(spec), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Child]:
    """A child that would sleep for a minute, with a folder that goes away with it."""
    with start_child(ChildSpec("sleep", ["sleep", "60"], remove=tmp_path / "folder")) as child:
        yield child


def test_the_shepherd_imports_nothing_that_is_slow() -> None:
    """Each server has a shepherd: pathlib and shutil would take a third of its start."""
    script = (
        f"import sys; exec(open({shepherd.__file__!r}).read()); print({{'pathlib', 'shutil'}} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"__name__ = 'shepherd'; {script}"], stdout=subprocess.PIPE, check=True
    )

    assert b"set()\n" == done.stdout


@pytest.mark.parametrize("code", [0, 3])
def test_a_program_that_ends_by_itself_tells_how(code: int) -> None:
    """Its exit code is what `wait`, `poll` and `stop` return."""
    with start_child(ChildSpec("sh", ["sh", "-c", f"exit {code}"])) as child:
        told = (child.wait(60), child.poll(), child.stop())

    assert (code, code, code) == told


def test_a_stopped_program_takes_its_folder_along(sleeper: Child, tmp_path: Path, runs: Runs) -> None:
    """After `stop` neither the process nor the folder is there; a second `stop` returns the same."""
    (tmp_path / "folder" / "deep").mkdir()

    assert sleeper.poll() is None
    assert (sleeper.stop(), sleeper.stop()) == (-signal.SIGTERM, -signal.SIGTERM)
    assert not runs(sleeper.pid)
    assert not (tmp_path / "folder").exists()


def test_a_program_that_nobody_waits_for_any_longer(sleeper: Child) -> None:
    """`wait` with a limit raises TimeoutError, and the program runs on."""
    with pytest.raises(TimeoutError, match=r"still running after 0.05 s"):
        sleeper.wait(0.05)

    assert sleeper.poll() is None


def test_a_killed_program_is_not_asked(sleeper: Child) -> None:
    """`kill` is SIGKILL at once."""
    sleeper.kill()

    assert sleeper.wait(60) == -signal.SIGKILL


def test_a_missing_program_is_one_line(tmp_path: Path) -> None:
    """The line names the program and the reason, and the folder is gone."""
    with pytest.raises(PlacebenchError) as caught:
        start_child(ChildSpec("uwsgi", ["/nowhere/uwsgi"], remove=tmp_path / "folder"))

    assert str(caught.value) == "cannot start uwsgi (/nowhere/uwsgi): No such file or directory"
    assert not (tmp_path / "folder").exists()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    """The system's reason stands in the line."""
    (tmp_path / "file").touch()

    with pytest.raises(PlacebenchError, match="Not a directory"):
        Supervisor(tmp_path / "file" / "folder")


def test_a_stubborn_program_is_killed_with_its_group(tmp_path: Path, runs: Runs) -> None:
    """A program that ignores SIGTERM and SIGQUIT ends by SIGKILL after its grace, and so does what it started."""
    child = start_child(ChildSpec("sh", ["sh", "-c", STUBBORN], pipes=True, grace_s=0.1))
    assert child.stdout is not None
    pids = [int(child.stdout.readline()), int(child.stdout.readline())]

    assert child.stop() == -signal.SIGKILL
    assert [runs(pid) for pid in pids] == [False, False]


def test_what_a_program_leaves_behind_is_swept(tmp_path: Path, eventually: Eventually, runs: Runs) -> None:
    """A program that ends by itself does not leave a process of its group behind."""
    child = start_child(ChildSpec("sh", ["sh", "-c", "sleep 60 & echo $!"], pipes=True))
    assert child.stdout is not None
    left = int(child.stdout.readline())

    with child:
        assert child.wait(60) == 0
        assert eventually(lambda: not runs(left))


def test_a_daemon_stays_below_the_guard_and_ends_with_its_program(eventually: Eventually, runs: Runs) -> None:
    """Its session is its own and its parent is gone: its CPU is counted, also when it has ended, and it is killed."""
    busy = "i=0; while [ $i -lt 99999 ]; do i=$((i+1)); done"
    daemons = f"(setsid sh -c 'echo $$; exec sleep 60' & setsid sh -c '{busy}' &)"
    child = start_child(ChildSpec("sh", ["sh", "-c", f"{daemons}; exec sleep 60"], pipes=True, adopts=True))
    assert child.stdout is not None
    daemon = int(child.stdout.readline())

    assert eventually(lambda: psutil.Process(daemon).ppid() == child.guard_pid)
    assert eventually(lambda: len(psutil.Process(child.guard_pid).children()) == 2)
    assert read_ended_cpu_s(child.guard_pid) > 0.02
    child.stop()
    assert not runs(daemon)


def test_cpu_of_an_ended_program_is_that_which_it_counted_itself() -> None:
    """Two programs one after the other, which burn 33 ms and nothing: not in the kernel's clock ticks of 10 ms."""
    burn = "import time\nwhile time.process_time() < {}: pass\nprint(time.process_time())"
    with Supervisor(pipes=True) as supervisor:
        spec = ChildSpec("python", [sys.executable, "-S", "-E", "-c", burn.format(0.033)], pipes=True)
        with start_child(spec, supervisor) as child:
            assert child.stdout is not None
            counted_s = float(child.stdout.readline())
            child.wait(60)
            burnt_s = supervisor.program_cpu_s
        with start_child(ChildSpec("true", ["true"]), supervisor) as child:
            child.wait(60)

        assert counted_s <= burnt_s < counted_s + 0.02
        assert burnt_s % 0.01 > 1e-9
        assert 0 < supervisor.program_cpu_s < 0.02


@pytest.mark.parametrize("traps", ["", "trap '' TERM QUIT;"], ids=["willing", "stubborn"])
def test_nothing_is_left_after_kill_9_of_the_parent(
    traps: str, tmp_path: Path, eventually: Eventually, runs: Runs
) -> None:
    """5 s after SIGKILL of the parent the child and its folder are gone, even when the child ignores every request."""
    folder, ready = tmp_path / "folder", tmp_path / "ready"
    argv = ["sh", "-c", f"{traps} touch {ready}; while :; do sleep 0.05; done"]
    with parent({"name": "sh", "argv": argv, "grace_s": 60}, folder, "sys.stdin.read()") as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert eventually(lambda: ready.exists() and folder.is_dir())
        process.kill()

    assert eventually(lambda: not runs(pid) and not folder.exists())


def test_kill_9_of_a_parent_that_was_stopping_its_child(tmp_path: Path, eventually: Eventually, runs: Runs) -> None:
    """The grace of a minute that the child was just granted ends with the parent."""
    folder, ready, asked = tmp_path / "folder", tmp_path / "ready", tmp_path / "asked"
    stubborn = f"trap 'touch {asked}' TERM; trap '' QUIT; touch {ready}; while :; do sleep 0.05; done"
    stop = f"while not Path({str(ready)!r}).exists(): pass\nchild.stop()"
    with parent({"name": "sh", "argv": ["sh", "-c", stubborn], "grace_s": 60}, folder, stop) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert eventually(asked.exists)
        process.kill()

    assert eventually(lambda: not runs(pid) and not folder.exists())


def test_a_fork_of_the_parent_neither_keeps_a_child_nor_ends_it(
    tmp_path: Path, eventually: Eventually, runs: Runs
) -> None:
    """The end of a forked process changes nothing; the end of the parent ends the child though a fork lives on."""
    folder = tmp_path / "folder"
    forks = """
if os.fork() == 0:
    sys.exit()
os.wait()
print(child.poll(), flush=True)
if os.fork() == 0:
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    sys.stdin.read()
    sys.exit()
sys.stdin.read()
"""
    with parent({"name": "sleep", "argv": ["sleep", "60"]}, folder, forks) as process:
        assert process.stdout is not None
        pid, after_the_first_fork = int(process.stdout.readline()), process.stdout.readline()
        process.kill()
        process.wait()
        followed = eventually(lambda: not runs(pid) and not folder.exists())

    assert (after_the_first_fork, followed) == ("None\n", True)


def test_a_parent_that_just_ends_takes_its_children_along(tmp_path: Path, runs: Runs) -> None:
    """Without `stop`, the end of the interpreter waits until child and folder are gone."""
    folder = tmp_path / "folder"
    with parent({"name": "sleep", "argv": ["sleep", "60"]}, folder, "") as process:
        pid = int(process.communicate()[0])

    assert (runs(pid), folder.exists(), process.returncode) == (False, False, 0)


def test_kill_9_of_the_shepherd(tmp_path: Path, eventually: Eventually, runs: Runs) -> None:
    """The child follows its shepherd, `poll` notices, and `stop` removes the folder that the shepherd left."""
    child = start_child(ChildSpec("sleep", ["sleep", "60"], remove=tmp_path / "folder"))
    shepherd = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(shepherd, signal.SIGKILL)

    assert eventually(lambda: not runs(child.pid))
    assert (child.poll(), child.stop()) == (-signal.SIGKILL, -signal.SIGKILL)
    assert not (tmp_path / "folder").exists()


def test_sigterm_to_the_shepherd_is_a_clean_end(sleeper: Child, tmp_path: Path, eventually: Eventually) -> None:
    """A service manager that ends every process one by one leaves no folder."""
    shepherd = int(Path(f"/proc/{sleeper.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(shepherd, signal.SIGTERM)

    assert eventually(lambda: not (tmp_path / "folder").exists())
    assert sleeper.stop() == -signal.SIGTERM


def test_a_child_is_in_a_session_of_its_own(sleeper: Child) -> None:
    """Ctrl-C in the terminal, which goes to the foreground group, does not reach it."""
    assert os.getsid(sleeper.pid) == os.getpgid(sleeper.pid) == sleeper.pid


def test_a_child_inherits_no_file_of_ours(tmp_path: Path) -> None:
    """It has stdin, stdout and stderr, and none of the pipes between us and the shepherd (3 is ls reading)."""
    log = tmp_path / "log"
    with start_child(ChildSpec("ls", ["ls", "/proc/self/fd"], log=log)) as child:
        child.wait(60)

    assert log.read_text().split() == ["0", "1", "2", "3"]


def test_a_child_has_its_environment_folder_and_log(tmp_path: Path) -> None:
    """The environment is exactly what was given, the folder too; stdout and stderr are in the log."""
    log = tmp_path / "log"
    argv = ["/bin/sh", "-c", 'echo "$COLOUR in $PWD of $HOME"; echo trouble >&2']
    with start_child(ChildSpec("sh", argv, env={"COLOUR": "red"}, cwd=tmp_path, log=log)) as child:
        child.wait(60)

        assert child.log_tail() == f"red in {tmp_path} of \ntrouble"
        assert child.log_tail(1) == "trouble"


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    """Neither a child without a log nor a file that is missing is an error."""
    with start_child(ChildSpec("true", ["true"])) as child:
        assert child.log_tail() == ""
    assert tail_file(tmp_path / "nothing") == ""


def test_a_child_that_is_talked_to() -> None:
    """JSON lines go in and come out; the end of our side is the end of its input."""
    with start_child(ChildSpec("cat", ["cat"], pipes=True)) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps({"requests": 3}) + "\n")
        answer = json.loads(child.stdout.readline())
        child.stdin.close()

        assert (answer, child.wait(60)) == ({"requests": 3}, 0)


def test_signals_that_a_background_job_ignores_work_in_its_children() -> None:
    """A shell has its background jobs ignore SIGINT; a child that SIGINT stops is stopped by it all the same."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = start_child(ChildSpec("sleep", ["sleep", "60"], stop_signal=signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)

    assert child.stop() == -signal.SIGINT


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a program as somebody else")
def test_a_child_of_root_can_run_as_somebody_else(tmp_path: Path) -> None:
    """Its uid and gid are those that were asked for, and it has no other groups."""
    log = tmp_path / "log"
    with start_child(ChildSpec("id", ["id"], user=(65534, 65534), log=log)) as child:
        child.wait(60)

    assert log.read_text().startswith("uid=65534")
    assert "0(root)" not in log.read_text()


def test_a_keeper_runs_one_program_after_the_other(tmp_path: Path) -> None:
    """The folder is made at the start and stays between two programs; it goes with the supervisor."""
    folder = tmp_path / "folder"
    with Supervisor(folder) as supervisor:
        first = start_child(ChildSpec("touch", ["touch", "made"], cwd=folder), supervisor)
        first.wait(60)
        second = start_child(ChildSpec("test", ["test", "-e", "made"], cwd=folder), supervisor)
        endings = (first.stop(), second.wait(60), folder.stat().st_mode & 0o777)

    assert (endings, folder.exists()) == ((0, 0, 0o700), False)


def test_shared_memory_of_a_killed_postgresql(tmp_path: Path) -> None:
    """A file of PostgreSQL's in /dev/shm goes with the processes that have it mapped; another one stays."""
    names = [f"/dev/shm/PostgreSQL.placebench-{os.getpid()}", f"/dev/shm/placebench-{os.getpid()}"]
    mapping = """
import mmap, signal, sys
maps = []
for name in sys.argv[1:]:
    with open(name, "w+b") as file:
        file.truncate(4096)
        maps.append(mmap.mmap(file.fileno(), 4096))
print("ready", flush=True)
signal.pause()
"""
    spec = ChildSpec("python", [sys.executable, "-c", mapping, *names], data=tmp_path, pipes=True)
    with start_child(spec) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.kill()
        child.wait(60)
        left = [Path(name).exists() for name in names]
    Path(names[1]).unlink()

    assert left == [False, True]


KILLED = """
import os, signal, sys, time
from contextlib import suppress
from pathlib import Path
from placebench.runtime.supervisor import Supervisor

for number in range(20):
    if not (pid := os.fork()):
        Supervisor(Path(sys.argv[1]) / str(number))
        time.sleep(60)
    time.sleep(number * 0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"""


def test_kill_9_of_the_parent_at_any_moment_of_the_start(tmp_path: Path, eventually: Callable[..., bool]) -> None:
    """Wherever the parent is killed from its first system call to the made folder, no process and no folder is left."""
    environment = {**os.environ, "KILLED_IN": str(tmp_path)}
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env=environment, check=True, timeout=300)

    def is_left(process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            return process.environ().get("KILLED_IN") == str(tmp_path)
        return False

    assert eventually(lambda: not any(map(is_left, psutil.process_iter())), limit_s=60)
    assert list(tmp_path.iterdir()) == []
