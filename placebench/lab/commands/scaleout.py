"""`placebench lab scaleout`: nginx, service hosts, a primary and its replicas on this machine, all from packages.

With a hosts file the parts run on its machines, started by SSH. With --write, files for Docker Compose or Kubernetes
are written instead.
"""

import json
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench import units
from placebench.commands import STARTS_SERVERS, Command, options
from placebench.commands.interrupts import EXIT_INTERRUPTED, stop_event
from placebench.commands.load_result import write_check_lines
from placebench.commands.output import emit, print_result, progress, say, steps
from placebench.errors import ServerError

if TYPE_CHECKING:
    from placebench.lab.reference.variants import ReferenceVariant
    from placebench.lab.scaleout.check import ScaleOutCheck
    from placebench.lab.scaleout.cluster import ScaleOut
    from placebench.lab.scaleout.files import Format
    from placebench.lab.scaleout.history_check import HistoryCheck
    from placebench.lab.scaleout.remote import MachineScaleOut
    from placebench.meters.remote_hosts import RemoteHost

_HOSTS, _REPLICAS, _MAX_HOSTS, _LOAD_WORKERS = 2, 1, 16, 3
_CHECK_EVERY_S = 0.5
_STEPS = 5
_FAULTS = {
    "kill-host": "kill -9 of a host",
    "kill-replica": "of a replica",
    "kill-primary": "of the primary, whose replica is promoted",
    "slow-replica": "a replica applies nothing for 3 s",
    "cut-hosts": "3 s without network between hosts and primary",
    "cut-replicas": "between primary and replicas",
    "cut-then-kill": "the same, then kill -9 of the primary",
}


@dataclass(frozen=True)
class ServingOptions:
    """The options of `placebench lab scaleout`."""

    output: options.OutputOptions
    data: options.DataOptions
    hosts: int | Path
    replicas: int | None
    synchronous: bool
    namespaces: bool
    variant: str | None
    port: int
    processes: int | None
    threads: int | None
    check: int | None
    fault: str | None
    history: Path | None
    no_position: bool
    write: "Format | None"
    out: Path | None
    image: str | None
    load_workers: int


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--hosts",
        type=_count_or_file,
        default=_HOSTS,
        metavar="N|FILE.toml",
        help=f"number of service hosts on this machine (default: {_HOSTS}), or a hosts file, whose machines have the "
        "service hosts, databases and nginx that its roles say, by SSH",
    )
    parser.add_argument(
        "--replicas",
        type=options.whole(0, _MAX_HOSTS),
        metavar="N",
        help="number of replicas of the primary, which requests that only read go to "
        f"(default: {_REPLICAS}; with a hosts file all databases but the first)",
    )
    parser.add_argument(
        "--synchronous",
        action="store_true",
        help="respond to a write when all replicas show it (default: when the primary has it)",
    )
    parser.add_argument(
        "--namespaces",
        action="store_true",
        help="give each host a network namespace of its own; needs Linux and root (default: all share this machine's)",
    )
    parser.add_argument("--variant", metavar="V", help="variant (default: dedup; without replicas cached)")
    parser.add_argument(
        "--port",
        type=options.whole(0, 65_535),
        default=8000,
        metavar="P",
        help="port that nginx listens on; 0: a free one (default: 8000)",
    )
    for name in ("processes", "threads"):
        parser.add_argument(
            f"--{name}",
            type=options.worker_count,
            metavar="N",
            help=f"number of {name} of each host (default: the variant's, or 1)",
        )
    options.add_data(parser, requests=False)
    _configure_check(parser)
    _configure_files(parser)
    options.add_output(parser)


def _count_or_file(text: str) -> int | Path:
    """Parse a number, or the path of a hosts file."""
    return options.path(text) if text.endswith(".toml") else options.whole(1, _MAX_HOSTS)(text)


def _configure_check(parser: ArgumentParser) -> None:
    check = parser.add_argument_group("check")
    check.add_argument(
        "--check",
        type=options.request_count,
        metavar="N",
        help="make N claims with a read after each write, find stale reads and lost writes, and end",
    )
    check.add_argument(
        "--fault",
        choices=_FAULTS,
        metavar="FAULT",
        help="with --check: what happens after a third of the claims, and is repaired; "
        + "; ".join(f"{name}: {what}" for name, what in _FAULTS.items()),
    )
    check.add_argument(
        "--history", type=options.path, metavar="FILE", help="with --check: keep the history there, as JSON lines"
    )
    check.add_argument(
        "--no-position",
        action="store_true",
        help="with --check: do not send the position of the last write with a read, as a client that knows none",
    )


def _configure_files(parser: ArgumentParser) -> None:
    files = parser.add_argument_group("other machines")
    files.add_argument(
        "--write",
        choices=["compose", "kubernetes"],
        help="start nothing: write this plan for Docker Compose or Kubernetes into --out",
    )
    options.add_out(parser, "with --write: new folder for the files")
    files.add_argument("--image", metavar="NAME", help="with --write: image of placebench, built by its Dockerfile")
    files.add_argument(
        "--load-workers",
        type=options.whole(0, _MAX_HOSTS),
        default=_LOAD_WORKERS,
        metavar="N",
        help=f"with --write: number of locust workers of the load; 0: no load (default: {_LOAD_WORKERS})",
    )


def _run(given: ServingOptions) -> int:
    """Serve until a signal arrives or nginx ends."""
    machines, replicas = _machines(given), given.replicas
    if replicas is None:
        replicas = sum("database" in each.roles for each in machines.values()) - 1 if machines else _REPLICAS
    chosen = _variant(given, replicas)
    if given.write:
        return _write(given, given.write, chosen, replicas)
    with _stand_up(given, chosen, machines, replicas) as scaled:
        if given.check:
            return _check(given, given.check, scaled)
        stopped = stop_event()
        say(f"{chosen.name} is served at {scaled.url}; Ctrl-C stops it")
        if given.output.json:
            print_result(json.dumps(_document(scaled, chosen.name)))
        _watch(scaled, stopped.wait)
    return 0


def _machines(given: ServingOptions) -> "dict[str, RemoteHost]":
    """Return the machines of the hosts file; an empty dict if everything is on this machine."""
    if not isinstance(given.hosts, Path):
        return {}
    from placebench.lab.scaleout.remote import check_roles
    from placebench.meters.remote_hosts import read_hosts

    options.refuse(
        given,
        ("replicas", "write", "fault", "namespaces"),
        "with a hosts file: leave it out, or give a number of --hosts on this machine",
    )
    return check_roles(read_hosts(given.hosts))


def _variant(given: ServingOptions, replicas: int) -> "ReferenceVariant":
    from placebench.lab.reference.variants import variant
    from placebench.lab.scaleout.check import FAULTS

    chosen = variant(given.variant or ("dedup" if replicas else "cached"))
    if given.synchronous and not replicas:
        raise ServerError("--synchronous with --replicas 0: there is no replica to wait for")
    if bool(given.write) != bool(given.out):
        raise ServerError("--write and --out go together: what to write, and into which folder")
    if given.write and given.check:
        raise ServerError("--check with --write: nothing is started that could be checked")
    if (given.fault or given.no_position or given.history) and not given.check:
        raise ServerError("--fault, --no-position and --history apply to a check: add --check N, its number of claims")
    if given.fault and FAULTS[given.fault].of_database and not replicas:
        raise ServerError(f"--fault {given.fault} with --replicas 0: there is no replica to fail; give --replicas 1")
    if given.namespaces and given.fault and FAULTS[given.fault].of_network:
        raise ServerError(
            f"--namespaces with --fault {given.fault}: the fault needs proxies on this machine's network; leave one out"
        )
    if given.namespaces and given.write:
        raise ServerError("--namespaces with --write: each container has a network namespace already")
    return chosen


def _write(given: ServingOptions, write: "Format", chosen: "ReferenceVariant", replicas: int) -> int:
    """Write the plan, and print how to use it and where its password is."""
    from placebench.lab.inventory.seeding import find_topology
    from placebench.lab.scaleout.files import ScaleOutPlan

    assert given.out is not None  # _variant and _machines have checked both
    assert isinstance(given.hosts, int)
    out, data = given.out, given.data
    find_topology(data.topology, trees=data.trees, utilization=data.utilization)  # said now
    if Path(data.topology).suffix:
        raise ServerError("--write with a data set of a file: the containers do not have it; name one of placebench's")
    processes, threads = _workers(given, chosen)
    plan = ScaleOutPlan(
        variant=chosen.name,
        revisions=chosen.revisions,
        data=[part for name, value in asdict(data).items() if value is not None for part in (f"--{name}", str(value))],
        hosts=given.hosts,
        replicas=replicas,
        processes=processes,
        threads=threads,
        synchronous=given.synchronous,
        port=given.port,
        load_workers=given.load_workers,
        **({"image": given.image} if given.image else {}),
    )
    files = plan.write(write, out)
    secret = ".env" if write == "compose" else "secret.yaml"
    say(f"the password of PostgreSQL was drawn; it is in clear in {out / secret}, which only you can read")
    emit(
        given.output,
        text=lambda: f"{', '.join(path.name for path in files)} in {out}",
        document=lambda: {"files": [str(path) for path in files]},
    )
    return 0


def _workers(given: ServingOptions, chosen: "ReferenceVariant") -> tuple[int, int]:
    processes, threads = chosen.worker.workers
    return given.processes or processes, given.threads or threads


def _check(given: ServingOptions, claims: int, scaled: "ScaleOut | MachineScaleOut") -> int:
    """Check the service; exit code 1 for a stale read, a lost or doubled write, 3 if writes could not be looked up."""
    from placebench.lab.inventory.seeding import find_topology
    from placebench.lab.scaleout.check import FAULTS, INTERRUPTED, check_scale_out
    from placebench.lab.scaleout.cluster import ScaleOut
    from placebench.runtime.supervisor import Supervisor, new_scratch_path

    disturb = None
    if given.fault and isinstance(scaled, ScaleOut):  # on other machines there are none
        disturb = partial(FAULTS[given.fault].inflict, scaled)
    with Supervisor(folder := new_scratch_path("placebench-check-")), progress("claims", claims) as advance:
        made = check_scale_out(
            scaled.url,
            scaled.writer_url,
            find_topology(given.data.topology).request,
            given.history or folder / "history.jsonl",
            claims=claims,
            with_position=not given.no_position,
            disturb=disturb,
            progress=advance,
        )
    passed = made.history.passed
    document = {**asdict(made), "passed": passed, "isolation": scaled.isolation()}
    emit(given.output, text=lambda: "\n".join(_lines(made)), document=lambda: document)
    if made.events and made.events[-1][1] == INTERRUPTED:
        return EXIT_INTERRUPTED
    return 3 if passed is None else int(not passed)


def _lines(made: "ScaleOutCheck") -> Iterator[str]:
    history: HistoryCheck = made.history
    anomalies = {"stale": history.stale, "backwards": history.backwards, "of what nobody wrote": history.unwritten}
    counts = ", ".join(f"{units.count(count)} {name}" for name, count in anomalies.items())
    yield f"reads       {units.count(history.reads)}: {counts}"
    for line in write_check_lines(history.writes):
        yield f"writes      {line}"
    errors = ", ".join(f"{what}: {units.count(count)}" for what, count in sorted(made.errors.items()))
    yield f"errors      {errors or 'none'}"
    yield (
        f"longest     {units.duration(made.longest_without_write_s)} without an acknowledged write,"
        f" {units.duration(made.longest_without_read_s)} without a read, of {units.duration(made.elapsed_s)}"
    )
    for at_s, what in made.events:
        yield f"at {at_s:7.2f} s {what}"


@contextmanager
def _stand_up(
    given: ServingOptions, chosen: "ReferenceVariant", machines: "Mapping[str, RemoteHost]", replicas: int
) -> "Iterator[ScaleOut | MachineScaleOut]":
    from placebench.lab.inventory.seeding import find_topology, migrate_options, seed
    from placebench.lab.scaleout.check import FAULTS
    from placebench.lab.scaleout.cluster import ScaleOut
    from placebench.lab.scaleout.remote import MachineScaleOut
    from placebench.runtime.running_server import ServerSpec

    data = given.data
    topology = find_topology(data.topology, trees=data.trees, seed=data.seed, utilization=data.utilization)

    def fill(url: str) -> None:
        seed(topology, url)
        migrate_options(url, chosen.revisions)

    processes, threads = _workers(given, chosen)
    spec = ServerSpec(
        database_url="", variant=chosen.name, port=given.port, processes=processes, threads=threads, grace_s=5.0
    )
    began_s = time.monotonic()
    with steps("scale-out", _STEPS + bool(machines)) as announce:
        scaled: ScaleOut | MachineScaleOut
        if machines:
            scaled = MachineScaleOut(machines, spec, fill, synchronous=given.synchronous, announce=announce)
        else:
            assert isinstance(given.hosts, int)
            scaled = ScaleOut(
                spec,
                fill,
                hosts=given.hosts,
                replicas=replicas,
                synchronous=given.synchronous,
                cuttable=given.fault is not None and FAULTS[given.fault].of_network,
                namespaces=given.namespaces,
                announce=announce,
            )
    with scaled:
        say(f"the first response came after {units.duration(time.monotonic() - began_s)}")
        yield scaled


def _document(scaled: "ScaleOut | MachineScaleOut", variant_name: str) -> dict[str, Any]:
    return {
        "url": scaled.url,
        "variant": variant_name,
        "pids": scaled.pids(),
        "databases": scaled.databases,
        "isolation": scaled.isolation(),
    }


def _watch(scaled: "ScaleOut | MachineScaleOut", wait: Callable[[float], bool]) -> None:
    """Report each part that ends, until *wait* returns True; raise ServerError if nginx ends."""
    running = scaled.names
    while not wait(_CHECK_EVERY_S):
        now = scaled.pids().keys()
        for name in sorted(running - now - {"nginx"}):
            log = " | ".join(scaled.log_tail(name).splitlines())
            say(f"{name} has ended; the end of its log: {log or '(empty)'}")
        scaled.check()
        running = now


COMMANDS = {"lab scaleout": Command(_configure, _run, options=ServingOptions, needs_linux=STARTS_SERVERS)}
