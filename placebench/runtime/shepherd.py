"""The process between placebench and a child: `python -I -S shepherd.py CONTROL REPORT`.

CONTROL and REPORT are numbers of inherited pipes. Orders come in as JSON lines: `{"begin": folder or null}`, which is
the first one, `{"run": {...}}`, `{"stop": seconds}`, `{"kill": true}`; reports go out: `{"ready": true}`, `{"pid": n}`,
`{"ended": pid, "returncode": n, "cpu_s": seconds}`, `{"error": text}`. When CONTROL closes, or on SIGTERM, SIGINT or
SIGHUP, the child is stopped, the folder is removed and the shepherd ends.

The shepherd makes the folder itself, so that none is left when placebench is killed at any moment. The folder's name
comes through the pipe, because every user of the machine can read command lines: nobody else knows the name until the
folder exists and belongs to this user. A folder that already exists is refused.

The shepherd imports only the standard library, and neither pathlib nor shutil, so that it starts in some 30 ms in any
environment: each server has a shepherd. It is the parent of the child, and reaps it only after killing its process
group, so that a signal never hits a process that reuses the id.
PR_SET_PDEATHSIG is tied to the thread that starts a child. It is safe here, because the shepherd has one thread; in
placebench itself it would end a child together with the thread that started it.
"""

import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

_ORPHANED_GRACE_S = 2.5  # placebench is gone: child and folder have to follow within 5 s
_QUIT_GRACE_S = 0.8
_KILL_GRACE_S = 5.0
_POLL_S = 0.01
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_IPC_RMID = 0
_END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _Shepherd:
    """Runs one child at a time, as ordered through the pipe *control*; reports through the pipe *report*."""

    def __init__(self, control: int, report: int) -> None:
        self._control = control
        self._report_pipe = report
        self._pending = b""
        self._abandoned = False
        self._child: subprocess.Popen[bytes] | None = None
        self._stop_signal = int(signal.SIGTERM)
        self._data: str | None = None
        self._adopts = False
        self._folder: str | None = None
        self._signals = _listen_to_signals()

    def work(self) -> None:
        """Obey orders until the control pipe closes or an end signal arrives; neither child nor folder is left then."""
        try:
            for order in self._orders():
                self._obey(order)
            self._end_child(_ORPHANED_GRACE_S)
        finally:
            if self._folder is not None:
                remove_folder(self._folder)

    def _orders(self) -> Iterator[dict[str, Any]]:
        while not self._abandoned:
            readable = wait_readable(self._control, self._signals)
            if self._signals in readable and any(n in _END_SIGNALS for n in os.read(self._signals, 512)):
                return
            self._report_end()
            if self._control in readable:
                self._read_control()
            while b"\n" in self._pending:
                line, _, self._pending = self._pending.partition(b"\n")
                yield json.loads(line)

    def _read_control(self) -> None:
        data = os.read(self._control, 65536)
        self._pending += data
        self._abandoned = not data

    def _obey(self, order: dict[str, Any]) -> None:
        if "begin" in order:
            self._begin(order["begin"])
        elif "run" in order:
            self._run(order["run"])
        elif "stop" in order:
            self._end_child(order["stop"])
        elif "kill" in order:
            self._kill_group()

    def _begin(self, name: str | None) -> None:
        """Make the folder *name*, which must be new: an existing one may belong to somebody who waits for files."""
        if name is not None:
            os.makedirs(name, mode=0o700)
            self._folder = name
        self._report(ready=True)

    def _run(self, program: dict[str, Any]) -> None:
        """Start *program*, which has argv, env, cwd, log, user, stop_signal, pipes, data and adopts of a ChildSpec."""
        self._stop_signal, self._data, self._adopts = program["stop_signal"], program["data"], program["adopts"]
        # The parent of orphaned descendants, including daemons; possible only on Linux
        if self._adopts and (prctl := getattr(ctypes.CDLL(None), "prctl", None)) is not None:
            prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            self._child = _spawn(program)
        except (OSError, subprocess.SubprocessError) as error:
            self._report(error=getattr(error, "strerror", None) or str(error))
        else:
            self._report(pid=self._child.pid)

    def _end_child(self, grace_s: float) -> None:
        """Send the stop signal, then SIGQUIT, on which PostgreSQL and uWSGI kill their children, then SIGKILL."""
        for number, patience_s in ((self._stop_signal, grace_s), (signal.SIGQUIT, _QUIT_GRACE_S)):
            if self._child is not None and not self._has_ended():
                os.kill(self._child.pid, number)
                self._await_end(patience_s)
        self._kill_group()
        self._await_end(_KILL_GRACE_S)
        self._report_end()

    def _await_end(self, patience_s: float) -> None:
        """Wait for the end of the child; at most `_ORPHANED_GRACE_S` once placebench is gone."""
        deadline = time.monotonic() + patience_s
        while not self._has_ended() and time.monotonic() < deadline:
            if self._abandoned:
                time.sleep(_POLL_S)
            elif wait_readable(self._control, timeout_s=_POLL_S):
                self._read_control()
                if self._abandoned:
                    deadline = min(deadline, time.monotonic() + _ORPHANED_GRACE_S)

    def _has_ended(self) -> bool:
        if self._child is None:
            return True
        return os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _report_end(self) -> None:
        """Reap a child that has ended, after killing the other processes of its group."""
        if self._child is not None and self._has_ended():
            self._kill_group()
            before_s = _reaped_cpu_s()
            returncode = self._child.wait()
            free_shared_memory(self._data)
            # /proc/PID/stat has the same in steps of 10 ms
            self._report(ended=self._child.pid, returncode=returncode, cpu_s=_reaped_cpu_s() - before_s)
            self._child = None
            if self._adopts:
                self._kill_adopted()
        elif self._adopts:
            # Reap adopted processes that have ended, so that the kernel adds their CPU time to the shepherd's
            for pid in _children_of(os.getpid()) - {self._child.pid if self._child else 0}:
                os.waitpid(pid, os.WNOHANG)

    def _kill_adopted(self) -> None:
        """Kill processes that left the child's group, repeatedly: children of killed processes are adopted too."""
        give_up_at = time.monotonic() + _QUIT_GRACE_S
        while (pids := _children_of(os.getpid())) and time.monotonic() < give_up_at:
            for pid in pids:
                with suppress(PermissionError):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
            time.sleep(_POLL_S)

    def _kill_group(self) -> None:
        if self._child is None:
            return
        mapped = set()
        if self._data:
            os.killpg(self._child.pid, signal.SIGSTOP)  # so that none maps more memory meanwhile
            mapped = _shared_memory(self._child.pid)
        os.killpg(self._child.pid, signal.SIGKILL)
        for path in mapped:
            with suppress(FileNotFoundError):
                os.unlink(path)

    def _report(self, **report: Any) -> None:
        try:
            os.write(self._report_pipe, json.dumps(report).encode() + b"\n")
        except BrokenPipeError:
            self._abandoned = True


def _spawn(program: dict[str, Any]) -> "subprocess.Popen[bytes]":
    """Start a child in its own session; with pipes, only the child keeps the stdin and stdout of the shepherd."""
    user, pipes = program["user"], program["pipes"]
    identity: dict[str, Any] = {"user": user[0], "group": user[1], "extra_groups": []} if user else {}
    with open(program["log"] or os.devnull, "ab", opener=_open_private) as output:
        child = subprocess.Popen(
            program["argv"],
            env=program["env"],
            cwd=program["cwd"],
            stdin=None if pipes else subprocess.DEVNULL,
            stdout=None if pipes else output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_die_with(os.getpid(), program["stop_signal"]),
            **identity,
        )
    if pipes:
        # Leave stdin and stdout to the child alone, so that each side sees when the other closes its end
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.close(nothing)
    return child


def _open_private(name: str, flags: int) -> int:
    """Open a file; a new one can be read only by this user, whatever the umask is."""
    return os.open(name, flags, 0o600)


def _die_with(parent: int, number: int) -> Callable[[], None]:
    """Return a preexec function by which a child gets signal *number* if *parent*, the shepherd, is killed."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)

    def arrange() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, number)
            if os.getppid() != parent:
                os._exit(1)  # a signal would run the shepherd's handlers, which the child still has

    return arrange


def _reaped_cpu_s() -> float:
    """Return the CPU seconds of all processes that were reaped until now, and of those that they had reaped."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _children_of(parent: int) -> set[int]:
    """Return the children of *parent*, including those that have ended and were not reaped."""
    found = set()
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        # It may have ended meanwhile.
        with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as stat:
            if int(stat.read().rpartition(b")")[2].split()[1]) == parent:
                found.add(int(pid))
    return found


def _listen_to_signals() -> int:
    """Return a pipe that becomes readable when a child ends or the shepherd gets a signal to end.

    A signal that is handled, not ignored, has its default action in every child, even if placebench was started in the
    background by a shell that makes its jobs ignore SIGINT and SIGQUIT.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signals, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup)
    for number in (signal.SIGCHLD, *_END_SIGNALS):
        signal.signal(number, lambda *_: None)
    return signals


def wait_readable(*descriptors: int, timeout_s: float | None = None) -> list[int]:
    """Return those of *descriptors* that can be read or are closed; uses poll, as select ends at descriptor 1023."""
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poller.poll(None if timeout_s is None else timeout_s * 1000)]


def _shared_memory(group: int) -> set[str]:
    """Return the files in /dev/shm that this group's PostgreSQL processes have mapped, and leave when killed."""
    found = set()
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        # It may have ended meanwhile.
        with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as stat, open(f"/proc/{pid}/maps", "rb") as maps:
            if int(stat.read().rpartition(b")")[2].split()[2]) == group:
                mapped = (os.fsdecode(line.rstrip(b"\n")).split(maxsplit=5)[5:] for line in maps)
                found |= {name for (name,) in filter(None, mapped) if name.startswith("/dev/shm/PostgreSQL.")}
    return found


def free_shared_memory(data: str | None) -> None:
    """Remove the System V segment that a killed PostgreSQL left; the seventh line of its postmaster.pid names it.

    The segment must belong to the file's owner, who could write any number there. A segment to which a process is still
    attached is removed when that process ends.
    """
    with suppress(OSError, ValueError, IndexError):
        lock_file = os.path.join(data or os.devnull, "postmaster.pid")
        with open(lock_file) as lines:
            key, number = map(int, lines.read().splitlines()[6].split())
        owner = os.lstat(lock_file).st_uid
        with open("/proc/sysvipc/shm") as segments:
            for line in segments.read().splitlines()[1:]:
                columns = [int(word) for word in line.split()[:8]]  # key, id, …, owner
                if (columns[0] % 2**32, columns[1], columns[7]) == (key % 2**32, number, owner):
                    ctypes.CDLL(None).shmctl(number, _IPC_RMID, None)


def remove_folder(folder: str | os.PathLike[str]) -> None:
    """Remove *folder*, trying again while a dying process still writes into it."""
    import shutil  # its compressors would be a tenth of the shepherd's start

    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(0.1)


def _main(control: str, report: str) -> None:
    try:
        _Shepherd(int(control), int(report)).work()
    except OSError as error:
        with suppress(BrokenPipeError):
            os.write(int(report), json.dumps({"error": str(error)}).encode() + b"\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
