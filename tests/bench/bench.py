"""`tox -e bench`: what seeding, the embedded server and the variants cost, as tables; ratios are within one run.

    python tests/bench/bench.py [server] [seeding] [candidates] [profiler] [--trees N] [--repeats N]
        [--placement-python PATH]

Every figure is the median of the repeats with the lowest and the highest behind it. Nothing here fails for being slow.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placebench import units
from placebench.compare import hodges_lehmann
from placebench.experiment.meters import backend_pids, cpu_by_pid, spent
from placebench.experiment.plan import plan_replicates
from placebench.guard import Child, ChildSpec, start
from placebench.postgres import Server, open_server
from placebench.seeding import migrate, seed, topology_named

CHILD = Path(__file__).with_name("wsgi_child.py")
COST = Path(__file__).with_name("statement_cost.py")


def main() -> None:
    """Run the sections that were asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="default: all")
    parser.add_argument(
        "--trees", type=int, default=1000, help="of nested-perfload, for the candidates (default: 1000)"
    )
    parser.add_argument("--repeats", type=int, default=6, help="of everything; an interval needs six (default: 6)")
    parser.add_argument("--placement-python", metavar="PATH", help="a Python with openstack-placement 16.0.0")
    arguments = parser.parse_args()
    for name in arguments.sections or SECTIONS:
        SECTIONS[name](arguments)


def say(*cells: object) -> None:
    """A row of a table."""
    print(*(f"{cell!s:<34}" if number == 0 else f"{cell!s:>26}" for number, cell in enumerate(cells)), flush=True)


def spread(values: Sequence[float]) -> str:
    """Median (lowest to highest), three significant digits."""
    middle, low, high = (units.significant(each) for each in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({low} to {high})"


# --- the embedded server


def bench_server(arguments: argparse.Namespace) -> None:
    """From the call to the first answered query, and the stop."""
    starts, stops = [], []
    for _ in range(arguments.repeats):
        began = time.perf_counter()
        server = open_server()  # it asks the server for its version before it returns
        starts.append(time.perf_counter() - began)
        began = time.perf_counter()
        server.stop()
        stops.append(time.perf_counter() - began)
    say(f"server, n = {arguments.repeats}", "seconds")
    say("start to first query", spread(starts))
    say("stop", spread(stops))


# --- seeding


def bench_seeding(arguments: argparse.Namespace) -> None:
    """Providers a second and peak memory of each loader, each run in a process of its own."""
    runs = [("copy", 1000), ("copy", 10_000), ("copy", 100_000), ("sql", 1000), ("http", 30)]
    seen: dict[tuple[str, int], list[Seeded]] = {run: [] for run in runs}
    repeats = min(arguments.repeats, 3)
    with open_server() as server:
        for _ in range(repeats):
            for loader, trees in runs:
                seen[loader, trees].append(_seeded(server, loader, trees))
    baseline = statistics.median(each.providers_per_s for each in seen["sql", 1000])
    say(f"seeding, n = {repeats}", "providers a second", "over by_sql", "peak memory, MiB")
    for (loader, trees), results in seen.items():
        rates = [each.providers_per_s for each in results]
        memory = [each.peak_bytes / 2**20 for each in results]
        say(f"by_{loader}, {trees} trees", spread(rates), f"{statistics.median(rates) / baseline:.3g}", spread(memory))


@dataclass(frozen=True)
class Seeded:
    """One run of `placebench seed`."""

    providers_per_s: float
    peak_bytes: int


def _seeded(server: Server, loader: str, trees: int) -> Seeded:
    name = f"bench_{loader}_{trees}"
    url = server.create_database(name)
    migrate(url)
    command = [sys.executable, "-m", "placebench", "seed", "--topology", "nested-perfload", "--json"]
    command += ["--trees", str(trees), "--loader", loader, "--db", url]
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen(command, stdout=output)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit(f"{' '.join(command[3:9])} ended with {child.returncode}")
        output.seek(0)
        receipt = json.load(output)
    server.drop_database(name)
    return Seeded(receipt["providers"] / receipt["elapsed_s"], usage.ru_maxrss * 1024)


# --- candidates


def bench_candidates(arguments: argparse.Namespace) -> None:
    """CPU of a request in the program and its PostgreSQL backends, against naive, interleaved in blocks of ABBA."""
    topology = topology_named("nested-perfload", trees=arguments.trees, seed=1)
    python = arguments.placement_python
    others = ["tuned", *(["placement"] if python else [])]
    with open_server() as server:
        server_url = server.create_database("bench_candidates")
        seed(topology, server_url)
        say(f"{topology.trees} trees, n = {arguments.repeats}", "CPU, ms a request", "over naive, CPU", "interval 95 %")
        for other in others:
            _compared(arguments, server, topology.request, other)
    if not python:
        say("placement", "not measured", "--placement-python", "names no environment")


def _compared(arguments: argparse.Namespace, server: Server, request: str, other: str) -> None:
    arms = ("naive", other)
    urls = {arm: server.create_database(f"bench_{arm}_of_{other}", template="bench_candidates") for arm in arms}
    cpu_s: dict[str, list[float]] = {arm: [] for arm in arms}
    log_ratios = []
    for plan in plan_replicates(arms, replicates=arguments.repeats, rounds=1, seed=1):
        taken: dict[str, list[float]] = {arm: [] for arm in arms}
        with ExitStack() as stack:
            programs = {
                arm: stack.enter_context(_program(arguments, arm, urls[arm], request)) for arm in plan.start_order
            }
            for arm in plan.warmup_order:
                programs[arm].ask(3)
            for arm in plan.rounds[0]:
                taken[arm].append(programs[arm].ask(3))
        for arm in arms:
            cpu_s[arm].append(statistics.fmean(taken[arm]))
        log_ratios.append(math.log(cpu_s[other][-1] / cpu_s["naive"][-1]))
    interval = hodges_lehmann(log_ratios)
    bounds = f"{math.exp(interval.low):.3g} to {math.exp(interval.high):.3g}"
    say("naive", spread([1e3 * value for value in cpu_s["naive"]]))
    say(other, spread([1e3 * value for value in cpu_s[other]]), f"{math.exp(interval.estimate):.3g}", bounds)


@dataclass
class Program:
    """A WSGI application in its own process, and the database it asks."""

    child: Child
    url: str

    def ask(self, requests: int) -> float:
        """CPU seconds a request, of the program and of its PostgreSQL backends."""
        before = self._backends()
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(f"{requests}\n")
        line = self.child.stdout.readline()
        if not line:
            sys.exit(f"{self.child.spec.name} ended: {self.child.log_tail()}")
        return float(json.loads(line)["cpu_s"] + spent(before, self._backends())) / requests

    def _backends(self) -> dict[int, float]:
        return cpu_by_pid(backend_pids(self.url) or [])


@contextmanager
def _program(arguments: argparse.Namespace, arm: str, url: str, request: str) -> Iterator[Program]:
    """naive and tuned by this Python, placement by the one that was named."""
    ours = {"PLACEBENCH_DATABASE_URL": url, "PLACEBENCH_VARIANT": arm}
    theirs = {
        "OS_PLACEMENT_DATABASE__CONNECTION": url,
        "OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP": "False",
        "OS_API__AUTH_STRATEGY": "noauth2",
    }
    placement = arm == "placement"
    python = arguments.placement_python if placement else sys.executable
    module = "placement.wsgi.api:application" if placement else "placebench.reference.wsgi:application"
    with tempfile.TemporaryDirectory() as scratch:
        spec = ChildSpec(
            name=arm,
            argv=[python, str(CHILD), module, request],
            env={**os.environ, **(theirs if placement else ours)},
            cwd=Path(scratch),
            log=Path(scratch) / "log",
            pipes=True,
        )
        with start(spec) as child:
            yield Program(child, url)


# --- the profiler


def bench_profiler(arguments: argparse.Namespace) -> None:
    """CPU that each profiler adds to a small statement, each in a process of its own, on SQLite and PostgreSQL."""
    modes = [f"placebench-{mode}" for mode in ("idle", "light", "full", "sampled", "flame")]
    blocks = arguments.repeats * 10
    with open_server() as server:
        for url in ("sqlite://", server.create_database("bench_profiler")):
            base: float | None = None
            for contender in (*modes, "sqltap", "opentelemetry", "queryspy"):
                found = statement_cost(contender, url, blocks)
                if found is None:
                    say(contender, "not installed")
                    continue
                if base is None:
                    base = statistics.median(found["base_s"])
                    say(f"{url.partition(':')[0]}, n = {blocks}", "µs of CPU a statement", "and at its end")
                    say("nobody watches", spread([seconds * 1e6 for seconds in found["base_s"]]))
                before = base if found["whole"] else 0.0
                during = [(seconds - before) * 1e6 for seconds in found["during_s"]]
                say(contender, quartiles(during), quartiles([seconds * 1e6 for seconds in found["end_s"]]))


def statement_cost(contender: str, url: str, blocks: int) -> dict[str, Any] | None:
    """What its process prints; None if it is not installed."""
    command = [sys.executable, str(COST), contender, url, str(blocks)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode and "ModuleNotFoundError" in ended.stderr:
        return None
    ended.check_returncode()
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def quartiles(values: Sequence[float]) -> str:
    """Median (lower to upper quartile): other programs of the machine make the extremes."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:+.1f} ({low:.1f} to {high:.1f})"


SECTIONS: dict[str, Any] = {
    "server": bench_server,
    "seeding": bench_seeding,
    "candidates": bench_candidates,
    "profiler": bench_profiler,
}

if __name__ == "__main__":
    main()
