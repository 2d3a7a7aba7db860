"""Machines that are reached by SSH: `read_hosts` reads a hosts file, `inspect_host` finds out what a host has.

Nothing is installed or changed on a host: `ssh` runs a shell script of some lines, with the options of ~/.ssh/config.
`python_command` runs a program with the host's placebench, or with uvx's; the program first prints its version
(`read_greeting`). `python_process` runs a program that speaks JSON lines.
"""

import json
import re
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal, TypedDict

import msgspec

from placebench import __version__
from placebench.decoding import read_toml
from placebench.errors import HostError, LoadError, ServerError, UsageError
from placebench.runtime.line_process import LineProcess, line_process
from placebench.runtime.supervisor import ChildSpec
from placebench.telemetry.clock import ClockBounds

Role = Literal["load", "service", "database", "balancer"]
_LIMIT_S: Final = 60.0
_CONNECT_LIMIT_S: Final = 10
_OPTIONS: Final = ("BatchMode=yes", "ServerAliveInterval=5", "ServerAliveCountMax=4")
_EXCHANGES: Final = 10
_READY: Final = "ready"
_FIND_PYTHON: Final = r"""
PATH="$PATH:$HOME/.local/bin:$HOME/.cargo/bin:/usr/local/bin:/usr/sbin:/sbin"
if [ -z "$python" ] && program=$(command -v placebench); then
    python=$(sed -n "1s/^#! *//p" "$program")
    case $python in */sh) python=$(sed -n "2s/^'*exec' \(.*\) \"\$0\".*/\1/p" "$program") ;; esac
    case $python in *python*) ;; *) python= ;; esac
fi
"""
"""Sets $python, unless the host names one, to the Python of the command placebench (in line 2 of a sh script)."""
_GREET: Final = 'import json, placebench; print(json.dumps({"placebench": placebench.__version__}), flush=True)'
_RUN_PYTHON: Final = f"""{_FIND_PYTHON}
if [ -z "$python" ]; then
    command -v uvx >/dev/null || {{ echo "there is neither placebench nor uv on it" >&2; exit 2; }}
    python="uvx --quiet --from 'placebench[bench,scaleout]=={__version__}' python"
fi
eval "exec env $python -c \\"\\$code\\""
"""
_SCRIPT: Final = r"""
version='import placebench; print(placebench.__version__)'
[ -n "$python" ] && echo "placebench $(eval "$python -c \"\$version\"" 2>&1 | tail -n 1)"
echo "system $(uname -sr), $(getconf _NPROCESSORS_ONLN) cores"
for each in python3.14 python3.13 python3.12 python3.11 python3; do
    if version=$("$each" -c 'import sys; print(".".join(map(str, sys.version_info[:3])))' 2>/dev/null); then
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
    """Destination of the command ssh: a host, user@host, or a name in ~/.ssh/config."""
    roles: tuple[Role, ...]
    address: str = ""
    """The address at which other machines reach the host; by default the address that ssh connects to."""
    ports: tuple[Annotated[int, msgspec.Meta(ge=1, le=65_535)], ...] = ()
    """Ports that must be free on the host, one per role in the order of `roles`."""
    ssh_options: tuple[str, ...] = ()
    python: str = ""
    """Shell command for a Python on the host that has placebench; by default the command placebench's, or uvx's."""


class _File(TypedDict):
    hosts: dict[str, RemoteHost]


@dataclass(frozen=True)
class HostFacts:
    """The programs, used ports and clock of a host."""

    programs: Mapping[str, str] = field(default_factory=dict)
    """Versions of system, python, uv, postgresql, nginx and placebench, as far as the host has them."""
    listening: frozenset[int] = frozenset()
    """TCP ports that are in use."""
    clock: ClockBounds | None = None
    """The host's clock minus ours; None if it does not show fractions of a second."""


def read_hosts(path: Path) -> dict[str, RemoteHost]:
    """Return the hosts of the TOML file at *path* by name; raises UsageError if the file is not valid."""
    return read_toml(path, _File, error=UsageError)["hosts"]


def find_host(name: str, file: Path | None) -> RemoteHost:
    """Return the host *name* of the hosts file; without a file, of ssh. Raises UsageError for an unknown name."""
    if file is None:
        return RemoteHost(name, ())
    hosts = read_hosts(file)
    if name not in hosts:
        raise UsageError(f"no host {name!r} in {file}: expected one of {', '.join(hosts)}")
    return hosts[name]


def python_command(host: RemoteHost, program: str) -> list[str]:
    """Return the command that runs a Python program on the host, where it may import placebench.

    The program first prints a greeting, for `read_greeting`. Raises ServerError if this machine has no ssh.
    """
    return _ssh_command(host, f"code={shlex.quote(f'{_GREET}; {program}')}\n{_RUN_PYTHON}")


def read_greeting(lines: Iterable[str], name: str) -> bool:
    """Read up to the line with the version of the host's placebench, skipping a shell's own output.

    Returns False if there is no such line. Raises HostError for another version than ours.
    """
    for line in lines:
        if line.startswith('{"placebench": '):
            version = json.loads(line)["placebench"]
            if version != __version__:
                what = f"placebench {version} is on {name}, and {__version__} here"
                raise HostError(f"{what}: install the same one there, or name its Python in the hosts file")
            return True
    return False


@contextmanager
def python_process(
    what: str, name: str, host: RemoteHost, program: str, log: Path, *, child: str, remove: Path | None = None
) -> Iterator[LineProcess]:
    """Run a Python program that speaks JSON lines on the host for the `with` block, after its greeting has arrived.

    what: the host *name*, as messages call it. child: the name under which the CPU of ssh is counted. remove: a folder
    to remove with the process. Raises HostError if the host is not reached, or has no placebench or another version.
    """
    spec = ChildSpec(name=child, argv=python_command(host, program), log=log, pipes=True, remove=remove)
    with line_process(spec, gone=f"the connection to {what} ended") as process:
        try:
            if not read_greeting(process.lines(), name):
                process.read()
        except LoadError as error:
            raise HostError(str(error)) from error
        yield process


def host_address(host: RemoteHost) -> str:
    """Return the address at which other machines reach the host; raises ServerError if ssh does not know it."""
    if host.address:
        return host.address
    command = ["ssh", "-G", *host.ssh_options, "--", host.ssh]
    read = subprocess.run(command, capture_output=True, text=True, check=False)
    if not (found := re.search(r"^hostname (\S+)$", read.stdout, re.MULTILINE)):
        raise ServerError(f"ssh {host.ssh}: {read.stderr.strip() or 'no host name'}")
    return found[1]


def _ssh_command(host: RemoteHost, script: str) -> list[str]:
    """Return the command that runs a shell script on the host without a prompt; raises ServerError without ssh."""
    if shutil.which("ssh") is None:
        raise ServerError("no command ssh on this machine: apt install openssh-client")
    options = [f"ConnectTimeout={_CONNECT_LIMIT_S}", *_OPTIONS]
    given = [*(part for each in options for part in ("-o", each)), *host.ssh_options]
    script = f"python={shlex.quote(host.python)}\n{script}"
    return ["ssh", *given, "--", host.ssh, f"sh -c {shlex.quote(script)}"]


def inspect_host(host: RemoteHost) -> HostFacts:
    """Log in and inspect the host, in a minute at most; raises ServerError with ssh's message if that fails."""
    command = _ssh_command(host, _FIND_PYTHON + _SCRIPT)
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
    """Return the facts that the script prints; None if it ended early."""
    assert process.stdout is not None
    found: dict[str, str] = {}
    for line in process.stdout:
        name, _, value = line.strip().partition(" ")
        if name == _READY:
            break
        # A version is the first number of a text such as 'postgres (PostgreSQL) 18.1 (Debian …)'.
        number = re.search(r"\d+(\.\d+)+", value) if name in ("uv", "postgresql", "nginx") else None
        found[name] = number[0] if number else value
    else:
        return None
    listening = frozenset(int(port, 16) for port in found.pop("listening", "").split())
    return HostFacts(found, listening, _compare_clocks(process))


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
