"""`tox -e bench`: what seeding, the embedded server and the variants cost, as tables; ratios are within one run.

    python tests/bench/bench.py [SECTION …] (see --help)
                                [--trees N] [--repeats N] [--requests N] [--sizes N,N] [--placement-python PATH]
                                [--data NAME …] [--variants VARIANT …] [--out DIR] [--smoke]

Every figure is the median of the repeats with the lowest and the highest behind it. Nothing here fails for being slow.
--smoke runs every section with as little as it can: whether it works is all that its figures say. Several run at once,
each in a process of its own, whose output is shown when it ends.
"""

import argparse
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from placebench import units
from placebench.errors import PlacebenchError
from placebench.lab.inventory.seeding import find_topology, migrate, seed
from placebench.profiler.capture.sampling_thread import profile_function_defect
from placebench.runtime.postgres import Server, open_server
from placebench.stats import hodges_lehmann
from placebench.stats.hodges_lehmann import MIN_REPLICATES

KEPT = Path("docs") / "results"
AT_ONCE = 3
"""Sections of --smoke: each waits for its servers for a part of its time."""


def main() -> None:
    """Run the sections that were asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="default: all")
    parser.add_argument("--smoke", action="store_true", help="the least of everything, and no figures in docs/results")
    parser.add_argument("--trees", type=int, help="for candidates, http, claims, profiled (default: %(default)s)")
    parser.add_argument("--repeats", type=int, help="of everything; an interval needs six (default: %(default)s)")
    parser.add_argument("--requests", type=int, help="that look for staleness (default: %(default)s)")
    parser.add_argument("--sizes", metavar="N,N", help="trees, for the scale (default: %(default)s)")
    parser.add_argument("--placement-python", metavar="PATH", help="a Python with openstack-placement 16.0.0")
    parser.add_argument("--data", nargs="*", metavar="NAME", help="for the candidates: some of the data only")
    parser.add_argument(
        "--variants", nargs="*", metavar="VARIANT", help="for candidates, http, scale: some variants only"
    )
    parser.add_argument("--runs", type=int, help="for repeats: runs to add to those in the file (default: %(default)s)")
    parser.add_argument("--quick-runs", type=int, help="for waiting: quick runs (default: %(default)s)")
    parser.add_argument("--beside", type=int, default=0, help="for repeats: other variants in each replicate")
    parser.add_argument(
        "--history-claims", type=int, help="for faults: without a fault; 0: none (default: %(default)s)"
    )
    parser.add_argument("--fault-claims", type=int, help="for faults: in each with a fault (default: %(default)s)")
    parser.add_argument("--fault-repeats", type=int, help="for faults: of each fault (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="where figures are kept (default: docs/results; --smoke: nowhere)")
    amounts = _beside("amounts")
    parser.set_defaults(**asdict(amounts.SMOKE if "--smoke" in sys.argv else amounts.FULL))
    arguments = parser.parse_args()
    sections = arguments.sections or [*SECTIONS]
    if arguments.smoke and len(sections) > 1:
        sys.exit(run_at_once(sections))
    with tempfile.TemporaryDirectory() as nowhere:
        arguments.out = arguments.out or Path(nowhere if arguments.smoke else KEPT)
        arguments.out.mkdir(parents=True, exist_ok=True)
        for name in sections:
            began, cpu_s = time.perf_counter(), sum(os.times()[:4])
            try:
                SECTIONS[name](arguments)
            except PlacebenchError as error:
                sys.exit(f"bench {name}: {error}")
            taken_s, cpu_s = time.perf_counter() - began, sum(os.times()[:4]) - cpu_s
            say(f"section {name}", f"{taken_s:.1f} s", f"{cpu_s:.1f} s of CPU")


def run_at_once(sections: Sequence[str]) -> str | None:
    """Run each section with the other arguments of this process; return the names of those that fail."""
    options = [word for word in sys.argv[1:] if word not in SECTIONS]

    def run(name: str) -> bool:
        command = [sys.executable, __file__, name, *options]
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        print(ended.stdout, end="", flush=True)
        return ended.returncode == 0

    with ThreadPoolExecutor(AT_ONCE) as pool:
        failed = [name for name, passed in zip(sections, pool.map(run, sections), strict=True) if not passed]
    return f"failed: {', '.join(failed)}" if failed else None


def say(*cells: object) -> None:
    """A row of a table."""
    print(*(f"{cell!s:<34}" if number == 0 else f"{cell!s:>26}" for number, cell in enumerate(cells)), flush=True)


def spread(values: Sequence[float]) -> str:
    """Median (lowest to highest), three significant digits."""
    if not values:
        return "not measured"
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
    seen: dict[tuple[str, int], list[Seeded]] = {run: [] for run in arguments.seeded}
    repeats = min(arguments.repeats, 3)
    with open_server() as server:
        for _ in range(repeats):
            for loader, trees in arguments.seeded:
                seen[loader, trees].append(_seeded(server, loader, trees))
    (plain,) = (results for (loader, _), results in seen.items() if loader == "sql")
    baseline = statistics.median(each.providers_per_s for each in plain)
    say(f"seeding, n = {repeats}", "providers a second", "over by_sql", "peak memory, MiB")
    for (loader, trees), results in seen.items():
        rates = [each.providers_per_s for each in results]
        memory = [each.peak_bytes / 2**20 for each in results]
        say(f"by_{loader}, {trees} trees", spread(rates), f"{statistics.median(rates) / baseline:.3g}", spread(memory))


@dataclass(frozen=True)
class Seeded:
    """One run of `placebench lab seed`."""

    providers_per_s: float
    peak_bytes: int


def _seeded(server: Server, loader: str, trees: int) -> Seeded:
    name = f"bench_{loader}_{trees}"
    url = server.create_database(name)
    migrate(url)
    command = [sys.executable, "-m", "placebench", "lab", "seed", "--topology", "nested-perfload", "--json"]
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


# --- the profiler


def bench_profiler(arguments: argparse.Namespace) -> None:
    """CPU that each profiler adds to a small statement, on SQLite and PostgreSQL; a replicate is a process."""
    costs: dict[str, list[dict[str, Any]]] = {"sqlite": [], "postgresql": []}
    with open_server() as server:
        url = server.create_database("bench_profiler")
        document = {**_beside("raw_file").measured_here(url), "n": arguments.repeats, "rounds": arguments.blocks}
        for _ in range(arguments.repeats):
            for database, address in (("sqlite", "sqlite://"), ("postgresql", url)):
                costs[database].append(printed_by("statement_cost.py", address, str(arguments.blocks)))
    _beside("raw_file").write_raw(arguments.out / "profiler.json", {**document, "costs": costs})
    for database, processes in costs.items():
        say(f"{database}, n = {arguments.repeats}", "µs of CPU a statement", "and at its end")
        for profiler in processes[0]:
            each = [found[profiler] for found in processes]
            during, end = ([found[when] * 1e6 for found in each] for when in ("during_s", "end_s"))
            say(labelled(profiler), spread(during), spread(end))


def bench_profiled(arguments: argparse.Namespace) -> None:
    """What each mode adds to a whole request of the reference service."""
    topology = find_topology("nested-perfload", trees=arguments.trees, seed=1)
    repeats = max(arguments.repeats * 3, MIN_REPLICATES)
    cpu_s: dict[str, dict[str, list[float]]] = {}
    with open_server() as server:
        url = server.create_database("bench_profiled")
        seed(topology, url)
        document = {**_beside("raw_file").measured_here(url), "n": repeats, "trees": topology.trees, "cpu_s": cpu_s}
        for variant in ("naive", "tuned"):
            found = printed_by("request_cost.py", url, topology.request, variant, str(repeats))
            cpu_s[variant] = found
            say(
                f"{variant}, {arguments.trees} trees, n = {repeats}",
                "ms of CPU a request",
                "over none",
                "95 % interval",
            )
            for mode, seconds in found.items():
                over = hodges_lehmann([math.log(a / b) for a, b in zip(seconds, found[""], strict=True)])
                estimate, low, high = (
                    units.signed_percent(math.exp(each)) for each in (over.estimate, over.low, over.high)
                )
                name, cpu_ms = labelled(mode) or "no profiler", spread([each * 1e3 for each in seconds])
                say(name, cpu_ms, estimate, f"{low} to {high}")
    _beside("raw_file").write_raw(arguments.out / "profiled.json", document)


def bench_shares(arguments: argparse.Namespace) -> None:
    """The share of a request's time that passes in the driver, by variant; a replicate is a process of each."""
    topology = find_topology("nested-perfload", trees=arguments.trees, seed=1)
    seconds: dict[str, list[dict[str, float]]] = {"naive": [], "tuned": [], "dedup": []}
    with open_server() as server:
        url = server.create_database("bench_shares")
        seed(topology, url)
        for replicate in range(arguments.repeats):
            for variant in (*seconds,) if replicate % 2 else reversed(seconds):
                seconds[variant].append(printed_by("sql_share.py", url, topology.request, variant, "5"))
        document = {**_beside("raw_file").measured_here(url), "n": arguments.repeats, "trees": topology.trees}
    _beside("raw_file").write_raw(arguments.out / "sql-share.json", {**document, "mode": "light", "seconds": seconds})
    say(f"n = {arguments.repeats}, {topology.trees} trees", "share in the driver", "in compilation")
    for variant, made in seconds.items():
        shares = ([each[part] / each["elapsed_s"] for each in made] for part in ("driver_s", "compile_s"))
        say(variant, *map(spread, shares))


def bench_flame(arguments: argparse.Namespace) -> None:
    """Ten programs in each mode with a flame graph by turns: CPU, and the shares of the ten largest frames."""
    topology = find_topology("nested-perfload", trees=arguments.trees, seed=1)
    programs: dict[str, Any] = {}
    with open_server() as server:
        url = server.create_database("bench_flame")
        seed(topology, url)
        rounds, runs = arguments.repeats, arguments.recorded_runs
        document = {**_beside("raw_file").measured_here(url), "n": rounds, "trees": topology.trees}
        for name in _beside("flame_agreement").PROGRAMS:
            programs[name] = printed_by("flame_agreement.py", name, str(rounds), str(runs), url, topology.request)
            cpu = {mode: statistics.median(taken) for mode, taken in programs[name]["cpu_s"].items()}
            say(name, *(f"{mode} {units.duration(taken)}" for mode, taken in cpu.items() if mode))
    _beside("raw_file").write_raw(arguments.out / "flame-graphs.json", {**document, "programs": programs})


def bench_memory(arguments: argparse.Namespace) -> None:
    """The memory of many recorded statements."""
    memory = printed_by("statement_memory.py", str(arguments.statements))["rss_bytes"]
    millions = [arguments.statements * (0.5 + tenth / 10) / 1e6 for tenth in range(5)]
    grown = statistics.linear_regression(millions, memory[5:]).slope
    say(f"{units.count(arguments.statements)} statements, full", f"{units.size(memory[0])} to {units.size(memory[-1])}")
    say("slope of the second half", f"{units.size(grown)} a million")


def bench_soak(arguments: argparse.Namespace) -> None:
    """A week of an application in production, in statements: memory of its process, and its folder of recordings."""
    with tempfile.TemporaryDirectory() as folder:
        found = printed_by("soak.py", str(arguments.soaked), folder)
    memory, files, size = found["rss_bytes"], found["files"], found["bytes"]
    half = len(memory) // 2
    millions = [arguments.soaked * part / len(memory) / 1e6 for part in range(half, len(memory))]
    slope, error = slope_of(millions, memory[half:])
    say(f"{units.count(arguments.soaked)} statements", f"{units.size(memory[0])} to {units.size(memory[-1])}")
    margin = 2.306 * error  # of Student's t for 10 points
    interval = f"95 % CI {(slope - margin) / 2**10:+.1f} to {(slope + margin) / 2**10:+.1f}"
    say(f"slope of the second half, n = {len(millions)}", f"{slope / 2**10:+.1f} KiB a million", interval)
    say("blocks allocated by Python", f"{units.count(found['blocks'][0])} to {units.count(found['blocks'][-1])}")
    say("folder of recordings, at most", f"{units.count(files)} files, {units.size(size)}")
    say("text for Prometheus, at most", units.size(found["scraped_bytes"]))


def slope_of(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """The slope of a straight line through the points, by least squares, and its standard error."""
    line = statistics.linear_regression(x, y)
    residuals = sum((b - line.slope * a - line.intercept) ** 2 for a, b in zip(x, y, strict=True))
    spread_of_x = sum((a - statistics.mean(x)) ** 2 for a in x)
    return line.slope, math.sqrt(residuals / (len(x) - 2) / spread_of_x)


def labelled(contender: str) -> str:
    """The name of its row: what is called flame is another sampler where Python dies of a profile function."""
    stand_in = contender.endswith("flame") and profile_function_defect()
    return f"{contender} (sampling thread)" if stand_in else contender


def printed_by(script: str, *arguments: str) -> dict[str, Any]:
    """The JSON that a script beside this one prints, in a process of its own, which finds other scripts beside it."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


# --- what is served


def _beside(name: str) -> ModuleType:
    """The sections in a file beside this one, which PYTHONSAFEPATH hides from it, as it does the clients."""
    here = Path(__file__).parent
    sys.path[:0] = [str(here), str(here.parent / "fakes")]
    return importlib.import_module(name)


SECTIONS: dict[str, Any] = {
    "server": bench_server,
    "seeding": bench_seeding,
    "candidates": lambda arguments: _beside("serving").bench_candidates(arguments, say, spread),
    "repeats": lambda arguments: _beside("repeating").bench_repeats(arguments, say, spread),
    "scale": lambda arguments: _beside("scaling").bench_scale(arguments, say, spread),
    "http": lambda arguments: _beside("over_http").bench_http(arguments, say, spread),
    "claims": lambda arguments: _beside("claiming").bench_claims(arguments, say, spread),
    "losses": lambda arguments: _beside("losing").bench_losses(arguments, say, spread),
    "scaleout": lambda arguments: _beside("scaling_out").bench_scale_out(arguments, say, spread),
    "faults": lambda arguments: _beside("scaling_out").bench_faults(arguments, say, spread),
    "link": lambda arguments: _beside("links").bench_link(arguments, say, spread),
    "staleness": lambda arguments: _beside("staleness").bench_staleness(arguments, say, spread),
    "sequential": lambda arguments: _beside("sequential_simulation").bench_sequential(arguments, say, spread),
    "controls": lambda arguments: _beside("control_trials").bench_controls(arguments, say, spread),
    "controls-real": lambda arguments: _beside("control_trials").bench_controls_real(arguments, say, spread),
    "knees": lambda arguments: _beside("knees").bench_knees(arguments, say, spread),
    "profiler": bench_profiler,
    "profiled": bench_profiled,
    "flame": bench_flame,
    "shares": bench_shares,
    "memory": bench_memory,
    "soak": bench_soak,
    "findings": lambda arguments: _beside("detectors").bench_findings(arguments, say, spread),
    "tools": lambda arguments: _beside("other_tools").bench_tools(arguments, say, spread),
    "telemetry": lambda arguments: _beside("telemetry_cost").bench_telemetry(arguments, say, spread),
    "waiting": lambda arguments: _beside("waiting").bench_waiting(arguments, say, spread),
    "matching": lambda arguments: _beside("matching").bench_matching(arguments, say, spread),
    "spread": lambda arguments: _beside("matching").bench_spread(arguments, say, spread),
    "report": lambda arguments: _beside("reporting").bench_report(arguments, say, spread),
}

if __name__ == "__main__":
    main()
