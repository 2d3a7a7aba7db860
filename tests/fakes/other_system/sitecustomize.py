"""Takes away from this Python what Windows or macOS does not have: OTHER_SYSTEM is "win32" or "darwin".

A Python that finds this folder on PYTHONPATH runs it first, and so do the Pythons that it starts. Modules of the
standard library that choose their code by the system are imported before that, and work as they do here; all else
meets what the other system has. `os.name` and the form of paths stay: the standard library would fail with those of
another system.
"""
# ruff: noqa: F401

import asyncio
import ctypes
import ctypes.util
import errno
import io
import multiprocessing.connection
import multiprocessing.context
import multiprocessing.popen_fork
import multiprocessing.popen_spawn_posix
import os
import platform
import select
import selectors
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
import uuid
import webbrowser
from functools import partial

_MODULES = {
    "win32": {
        "fcntl",
        "resource",
        "pwd",
        "grp",
        "termios",
        "tty",
        "pty",
        "syslog",
        "readline",
        "curses",
        "crypt",
        "spwd",
    },
    "darwin": {"spwd"},
}
_LINUX_ONLY = {
    "os": {
        *("memfd_create", "sched_getaffinity", "sched_setaffinity", "pipe2", "eventfd", "pidfd_open", "getrandom"),
        *("getxattr", "setxattr", "splice", "copy_file_range", "posix_fadvise", "posix_fallocate", "unshare", "setns"),
        *("O_TMPFILE", "O_DIRECT", "O_PATH", "O_NOATIME", "fdatasync", "sched_setscheduler", "setresuid", "getresuid"),
    },
    "signal": {
        "pidfd_send_signal",
        "sigtimedwait",
        "sigwaitinfo",
        "SIGRTMIN",
        "SIGRTMAX",
        "SIGPWR",
        "SIGCLD",
        "SIGPOLL",
    },
    "time": {"clock_settime", "pthread_getcpuclockid", "CLOCK_BOOTTIME", "CLOCK_TAI", "CLOCK_THREAD_CPUTIME_ID"},
    "socket": {
        *("TCP_INFO", "TCP_QUICKACK", "TCP_USER_TIMEOUT", "SO_PEERCRED", "SO_BINDTODEVICE", "SO_INCOMING_CPU"),
        *("SOCK_CLOEXEC", "SOCK_NONBLOCK", "AF_NETLINK", "AF_PACKET", "AF_VSOCK", "MSG_MORE", "TCP_DEFER_ACCEPT"),
    },
    "select": {"epoll", "EPOLLIN", "EPOLLOUT"},
    "resource": {"RUSAGE_THREAD", "prlimit"},
}
_POSIX_ONLY = {
    "os": {
        *(
            "fork",
            "forkpty",
            "register_at_fork",
            "getuid",
            "geteuid",
            "getgid",
            "getegid",
            "getgroups",
            "setuid",
            "setgid",
        ),
        *(
            "getpgid",
            "getpgrp",
            "getsid",
            "setsid",
            "setpgid",
            "setpgrp",
            "killpg",
            "nice",
            "getpriority",
            "setpriority",
        ),
        *(
            "getloadavg",
            "sysconf",
            "uname",
            "statvfs",
            "fstatvfs",
            "chown",
            "fchown",
            "lchown",
            "mkfifo",
            "mknod",
            "chroot",
        ),
        *("pread", "pwrite", "preadv", "pwritev", "readv", "writev", "sendfile", "posix_spawn", "posix_spawnp", "wait"),
        *("wait3", "wait4", "waitid", "spawnvp", "spawnvpe", "spawnlp", "spawnlpe", "openpty", "ttyname", "ctermid"),
        *("tcgetpgrp", "tcsetpgrp", "lockf", "sync", "fchdir", "seteuid", "setegid", "setgroups", "initgroups"),
        *("O_CLOEXEC", "O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_SYNC", "O_NOCTTY", "WNOHANG", "WIFEXITED"),
        *("WEXITSTATUS", "WIFSIGNALED", "WTERMSIG", "EX_OK", "P_ALL", "P_PID", "F_LOCK"),
        *("sched_yield", "sched_get_priority_max", "fchmod", "get_blocking", "set_blocking", "major", "minor"),
    },
    "signal": {
        *("SIGHUP", "SIGQUIT", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGCHLD", "SIGCONT", "SIGSTOP"),
        *("SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGSYS", "SIGTRAP", "SIGURG"),
        *("SIGBUS", "SIGXCPU", "SIGXFSZ", "SIG_BLOCK", "SIG_UNBLOCK", "SIG_SETMASK", "alarm", "setitimer", "getitimer"),
        *("ITIMER_REAL", "ITIMER_PROF", "ITIMER_VIRTUAL", "pause", "pthread_kill", "pthread_sigmask", "sigpending"),
        *("sigwait", "siginterrupt", "ItimerError"),
    },
    "time": {
        *("clock_gettime", "clock_gettime_ns", "clock_getres", "tzset", "CLOCK_MONOTONIC", "CLOCK_REALTIME"),
        *("CLOCK_PROCESS_CPUTIME_ID", "CLOCK_MONOTONIC_RAW"),
    },
    "socket": {
        "AF_UNIX",
        "SO_REUSEPORT",
        "SCM_RIGHTS",
        "CMSG_LEN",
        "CMSG_SPACE",
        "MSG_DONTWAIT",
        "MSG_NOSIGNAL",
        "sethostname",
    },
    "select": {"poll", "POLLIN", "POLLOUT", "POLLERR", "POLLHUP", "POLLNVAL"},
}
_KEPT = {signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGINT, signal.SIGSEGV, signal.SIGTERM}


def _remove(names: dict[str, set[str]]) -> None:
    for name, attributes in names.items():
        if (module := sys.modules.get(name)) is not None:
            for attribute in attributes & vars(module).keys():
                delattr(module, attribute)


def _hide_proc() -> None:
    """Let the folders that only Linux has be absent."""

    def is_hidden(path: object) -> bool:
        text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        return text in ("/proc", "/sys") or text.startswith(("/proc/", "/sys/"))

    def absent(path: object) -> FileNotFoundError:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def check(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("open", "os.listdir", "os.scandir") and is_hidden(arguments[0]):
            raise absent(arguments[0])

    def hiding(function):  # type: ignore[no-untyped-def]
        def call(path, *args, **kwargs):  # type: ignore[no-untyped-def]
            if is_hidden(path):
                raise absent(path)
            return function(path, *args, **kwargs)

        return call

    sys.addaudithook(check)
    for name in ("stat", "lstat", "readlink", "access"):
        setattr(os, name, hiding(getattr(os, name)))


def _refuse_signals() -> None:
    """Let only the signals of Windows be handled and sent."""
    handle, ask = signal.signal, signal.getsignal

    def set_handler(number, handler):  # type: ignore[no-untyped-def]
        if number not in _KEPT:
            raise ValueError("invalid signal value")
        return handle(number, handler)

    def get_handler(number):  # type: ignore[no-untyped-def]
        if number not in _KEPT:
            raise ValueError("signal number out of range")
        return ask(number)

    signal.signal, signal.getsignal = set_handler, get_handler


system = os.environ["OTHER_SYSTEM"]
_sockets = partial(socket.socketpair, socket.AF_UNIX)  # the one of Windows is made of two TCP sockets
for _name in _MODULES[system]:
    sys.modules[_name] = None  # type: ignore[assignment]
selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[misc]
sysconfig.get_config_vars()  # kept: they are read from a file that is named after the system
tempfile._O_TMPFILE_WORKS = False  # type: ignore[attr-defined]
_remove(_LINUX_ONLY)
_hide_proc()
if system == "win32":
    io._WindowsConsoleIO = type("_WindowsConsoleIO", (), {})  # type: ignore[attr-defined]  # pytest asks for it
    socket.socketpair = _sockets  # type: ignore[assignment]
    _remove(_POSIX_ONLY)
    _refuse_signals()
sys.platform = system
