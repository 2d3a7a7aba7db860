"""Machines that are reached by SSH: `read_hosts` reads a hosts file, `inspect_host` finds out what a host has.

Nothing is installed or changed there: a shell script of some lines is run by `ssh`, with the options of ~/.ssh/config.
"""

import re
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal, TypedDict

import msgspec

from placebench.decoding import read_toml
from placebench.errors import ServerError, UsageError
from placebench.telemetry.clock import ClockBounds

Role = Literal["load", "service", "database", "balancer"]
_LIMIT_S: Final = 60.0
_CONNECT_LIMIT_S: Final = 10
_EXCHANGES: Final = 10
_READY: Final = "ready"
_SCRIPT: Final = r"""
PATH="$PATH:$HOME/.local/bin:$HOME/.cargo/bin:/usr/local/bin:/usr/sbin:/sbin"
echo "system $(uname -sr), $(getconf _NPROCESSORS_ONLN) cores"
for python in python3.14 python3.13 python3.12 python3.11 python3; do
    if version=$("$python" -c 'import sys; print(".".join(map(str, sys.version_info[:3])))' 2>/dev/null); then
        echo "python $version"
        break
    fi
done
command -v uvx >/dev/null && echo "uv $(uvx --version)"
for postgres in postgres /usr/lib/postgresql/*/bin/postgres; do
    command -v "$postgres" >/dev/null && echo "postgresql $("$postgres" --version)"
done
command -v nginx >/dev/null && echo "nginx $(nginx -v 2>&1)"
echo "listening $(awk '$4 == "0A" { sub(/.*:/, "", $2); print $2 }' /proc/net/tcp /proc/net/tcp6 2>/dev/null | xargs)"
echo ready
while read -r _; do date +%s.%N; done
"""


class RemoteHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One machine of a hosts file."""

    ssh: str
    """As the command ssh takes it: host, user@host, or a name of ~/.ssh/config."""
    roles: tuple[Role, ...]
    ports: tuple[Annotated[int, msgspec.Meta(ge=1, le=65_535)], ...] = ()
    """Which have to be free there."""
    ssh_options: tuple[str, ...] = ()


class _File(TypedDict):
    hosts: dict[str, RemoteHost]


@dataclass(frozen=True)
class HostFacts:
    """What a host has."""

    programs: Mapping[str, str] = field(default_factory=dict)
    """Versions of system, python, uv, postgresql and nginx, of those that are there."""
    listening: frozenset[int] = frozenset()
    """TCP ports that are taken."""
    clock: ClockBounds | None = None
    """Its clock minus ours; None where it has no fractions of a second."""


def read_hosts(path: Path) -> dict[str, RemoteHost]:
    """The hosts of the TOML file at *path* by their names; raises UsageError for what is none."""
    return read_toml(path, _File, error=UsageError)["hosts"]


def inspect_host(host: RemoteHost) -> HostFacts:
    """Log in and look; raises ServerError with what ssh said where that fails. Ends after a minute at most."""
    if shutil.which("ssh") is None:
        raise ServerError("no command ssh on this machine: apt install openssh-client")
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_LIMIT_S}", *host.ssh_options]
    command = ["ssh", *options, "--", host.ssh, f"sh -c {shlex.quote(_SCRIPT)}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1) as process:
        end = threading.Timer(_LIMIT_S, process.kill)
        end.start()
        try:
            facts = _read(process)
            process.kill()
        finally:
            end.cancel()
        if facts is None:
            assert process.stderr is not None
            said = process.stderr.read().strip().splitlines()
            raise ServerError(f"ssh {host.ssh}: {said[-1] if said else 'it ended without a word'}")
    return facts


def _read(process: "subprocess.Popen[str]") -> HostFacts | None:
    """What the script prints; None where it ended before its end."""
    assert process.stdout is not None
    found: dict[str, str] = {}
    for line in process.stdout:
        name, _, value = line.strip().partition(" ")
        if name == _READY:
            break
        found[name] = _version(value) if name in ("uv", "postgresql", "nginx") else value
    else:
        return None
    listening = frozenset(int(port, 16) for port in found.pop("listening", "").split())
    return HostFacts(found, listening, _compare_clocks(process))


def _version(text: str) -> str:
    """The first number of 'postgres (PostgreSQL) 18.1 (Debian …)', or all of a text without one."""
    number = re.search(r"\d+(\.\d+)+", text)
    return number[0] if number else text


def _compare_clocks(process: "subprocess.Popen[str]") -> ClockBounds | None:
    assert process.stdin is not None
    assert process.stdout is not None
    exchanges = []
    try:
        for _ in range(_EXCHANGES):
            sent = time.time()
            process.stdin.write("\n")
            stamp = float(process.stdout.readline())
            exchanges.append((sent, stamp, stamp, time.time()))
    except (ValueError, OSError):
        return None
    return ClockBounds.of(exchanges)
