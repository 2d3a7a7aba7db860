"""Sections of the bench about requests for many devices, and about which hosts a limit names.

`bench_matching`: 4 to 64 groups, each for a device, on hosts of 8 to 64 devices, below the host or below its two NUMA
nodes; some cannot be met. Placement as installed, with its option for wide trees, and with the changes of
tests/oracle/upstream_search.py, beside our variants. `bench_spread`: how many hosts different requests name, and how
many claims are refused. Every program is called by WSGI, without HTTP, and its JSON is read.
"""

import argparse
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from picture_file import picture_file
from raw_file import measured_here, write_raw
from sqlalchemy import create_engine

from placebench import units
from placebench.lab.inventory.seeding import seed
from placebench.lab.inventory.topology import Topology
from placebench.lab.inventory.topology.tree import Inventory, Node, TreeType
from placebench.lab.placement_api import canonical_candidates
from placebench.page.axis_charts import Line, lines
from placebench.page.svg import Role
from placebench.runtime.postgres import Server, open_server

sys.path.append(str(Path(__file__).parents[1] / "oracle"))
from programs import Ours, Placement, Request, placement

OURS = ("tuned", "dedup", "cached")
THEIRS: dict[str, dict[str, str]] = {
    "placement": {},
    "wide": {"workarounds__optimize_for_wide_provider_trees": "True"},
    "changed": {},
}
"""Placement's options, by the name of the program."""
HOSTS = 4
DEVICES, GROUPS = (8, 16, 32, 64), (4, 8, 9, 16, 17, 32, 33, 64)
MOST_CANDIDATES = 10_000
"""A request that has more is not sent without a limit."""
TIMEOUT_S = 10.0
CHARTS = {"matching-devices": False, "matching-nodes": True}
_CHART_DEVICES = 16

Program = Ours | Placement


@dataclass
class Case:
    """One request to one program, and a value a repeat."""

    program: str
    devices: int
    numa: bool
    policy: str
    groups: int
    limit: int | None
    candidates: int
    """All that there are."""
    wall_s: list[float] = field(default_factory=list)
    timed_out: bool = False

    def query(self, number: int) -> str:
        """The request; that of another number has other suffixes, so that no kept response will do."""
        suffixes = [f"_{number}_{group}" for group in range(self.groups)]
        parts = [f"resources{suffix}={device_class(self.devices, self.numa)}:1" for suffix in suffixes]
        if self.numa:
            parts += ["required_N=HW_NUMA_ROOT", f"same_subtree={','.join(['_N', *suffixes])}"]
        return "&".join([*parts, f"group_policy={self.policy}", *([f"limit={self.limit}"] if self.limit else [])])


def device_class(devices: int, numa: bool) -> str:
    """The class of the devices of such hosts only."""
    return f"CUSTOM_{'NODES' if numa else 'DEVICES'}_{devices}"


def host(devices: int, numa: bool) -> TreeType:
    """A host of so many devices."""
    nodes = [Node("host", "host")]
    if numa:
        nodes += [Node(f"node{number}", f"node{number}", 0, traits=("HW_NUMA_ROOT",)) for number in range(2)]
    inventories = (Inventory(device_class(devices, numa), 1),)
    for number in range(devices):
        parent = 1 + number * 2 // devices if numa else 0
        nodes.append(Node(f"device{number}", f"device{number}", parent, inventories))
    return TreeType(tuple(nodes))


def cases(program: str, most_devices: int) -> Iterator[Case]:
    """All requests to a program, those with more groups later; Placement applies a limit last, so 10 stands for all."""
    for devices in (each for each in DEVICES if each <= most_devices):
        for numa in (False, True):
            for policy in ("none", "isolate"):
                for groups in GROUPS:
                    able = devices // 2 if numa else devices
                    count = HOSTS * (2 if numa else 1) * math.perm(able, groups)
                    for limit in (10, 1000, None) if program in OURS else (10, None):
                        if limit or count <= MOST_CANDIDATES:
                            yield Case(program, devices, numa, policy, groups, limit, count)


def bench_matching(arguments: argparse.Namespace, say: Callable[..., None], spread: Callable[..., str]) -> None:
    """The slowest requests of each program; matching.json and two charts."""
    shapes = [(devices, numa) for devices in DEVICES for numa in (False, True)]
    types = tuple(host(*shape) for shape in shapes)
    topology = Topology("devices", HOSTS * len(types), 1, "/allocation_candidates?resources=VCPU:1", types)
    made: list[Case] = []
    expected: dict[str, Any] = {}
    with open_server() as server:
        url = server.create_database("bench_matching")
        seed(topology, url)
        for name in _programs(arguments):
            made += _measured(url, name, arguments, expected)
            for limit in (10, 1000, None):
                mine = [each for each in made if (each.program, each.limit) == (name, limit) and each.wall_s]
                if mine:
                    slowest = max(mine, key=lambda each: statistics.median(each.wall_s))
                    say(f"{name}, limit={limit or 'none'}", f"{len(mine)} requests", spread(slowest.wall_s))
        document = {**measured_here(url), "n": arguments.repeats, "timeout_s": TIMEOUT_S, "hosts": HOSTS}
    write_raw(arguments.out / "matching.json", {**document, "cases": [asdict(each) for each in made]})
    for chart, numa in CHARTS.items():
        (arguments.out / f"{chart}.svg").write_text(_picture(made, numa=numa))


def _programs(arguments: argparse.Namespace) -> tuple[str, ...]:
    return (*OURS, *(THEIRS if arguments.placement_python else ()))


def _measured(url: str, name: str, arguments: argparse.Namespace, expected: dict[str, Any]) -> Iterator[Case]:
    """Every case of a program; after a time-out, requests for more devices of such hosts only if they have too few."""
    slow: dict[tuple[int, bool, str], int] = {}
    with ExitStack() as stack:
        program = stack.enter_context(_opened(url, name, arguments.placement_python))
        program.ask(Request("GET", "/allocation_candidates", "resources=VCPU:1"))
        for case in cases(name, 16 if arguments.smoke else max(DEVICES)):
            kind = case.devices, case.numa, case.policy
            if kind in slow and (case.groups <= case.devices or slow[kind] > case.devices):
                continue
            for number in range(arguments.repeats):
                answer = _timed(program, case, number)
                if answer is None:
                    slow[kind] = case.groups
                    program = stack.enter_context(_opened(url, name, arguments.placement_python))
                    break
                found = canonical_candidates(answer)
                wanted = min(case.limit or case.candidates, case.candidates)
                assert len(found.candidates) == found.candidate_count == wanted, (case, found.candidate_count)
                if number == 0 and not case.limit:
                    same = expected.setdefault(case.query(0), found.candidates)
                    assert same == found.candidates, f"{case} has other candidates than {OURS[0]}"
            yield case


@contextmanager
def _opened(url: str, name: str, python: str) -> Iterator[Program]:
    if name in THEIRS:
        with placement(str(Path(python).absolute()), url, name == "changed", **THEIRS[name]) as program:
            yield program
        return
    engine = create_engine(url)
    yield Ours(engine, name)
    engine.dispose()


def _timed(program: Program, case: Case, number: int) -> Any:
    """The document, its time kept in the case; None after a time-out, which ends the program."""
    request = Request("GET", "/allocation_candidates", case.query(number))
    began = time.perf_counter()
    try:
        answer = program.ask(request, TIMEOUT_S) if isinstance(program, Placement) else program.ask(request)
    except TimeoutError:
        case.timed_out = True
        return None
    case.wall_s.append(time.perf_counter() - began)
    assert answer.status == 200, (case, str(answer)[:300])
    return answer.document


def _picture(made: list[Case], *, numa: bool) -> str:
    series = []
    for name in dict.fromkeys(case.program for case in made):
        key = name, _CHART_DEVICES, numa, "isolate", 10
        mine = [each for each in made if (each.program, each.devices, each.numa, each.policy, each.limit) == key]
        role: Role = "baseline" if name in ("placement", "wide") else "variant" if name in OURS else "between"
        values = [TIMEOUT_S if each.timed_out else statistics.median(each.wall_s) for each in mine]
        series.append(Line(name, [(each.groups, value) for each, value in zip(mine, values, strict=True)], role))
    where = "below two NUMA nodes, all groups below one" if numa else "below the host"
    drawn = lines(
        series,
        title=f"Time of a request with limit=10 against its groups: {_CHART_DEVICES} devices {where}",
        description=f"Both axes are logarithmic. {TIMEOUT_S:g} s stand for no response within that time.",
        show=units.duration,
        show_where=units.count,
        logarithmic=True,
    )
    return picture_file(drawn)


# --- which hosts a limit names

SPREAD_HOSTS, SPREAD_REQUESTS = 200, 60
CLAIM_HOSTS, CLAIMERS, CLAIM_ROUNDS = 100, 8, 32


def bench_spread(arguments: argparse.Namespace, say: Callable[..., None], spread: Callable[..., str]) -> None:
    """Hosts named by different requests with limit=10, claims of the first candidate that are refused, and times."""
    programs: dict[str, dict[str, Any]] = {}
    with open_server() as server:
        for name in _programs(arguments):
            if name in ("wide", "changed"):
                continue
            urls = [_hosts(server, f"{name}_{count}", count) for count in (SPREAD_HOSTS, CLAIM_HOSTS)]
            with _opened(urls[0], name, arguments.placement_python) as program:
                wall_s, named = _named(program)
            with _opened(urls[1], name, arguments.placement_python) as program:
                refused, claims = _refused(program)
            programs[name] = {"hosts": named, "refused": refused, "claims": claims, "wall_s": wall_s}
            say(name, f"{named} of {SPREAD_HOSTS} hosts", f"{refused} of {claims} refused", f"{spread(wall_s)} s")
        document = {**measured_here(urls[0]), "n": SPREAD_REQUESTS, "named_of": SPREAD_HOSTS, "claimed": CLAIM_HOSTS}
    write_raw(arguments.out / "spread.json", {**document, "claimers": CLAIMERS, "programs": programs})


def _hosts(server: Server, name: str, count: int) -> str:
    url = server.create_database(f"bench_spread_{name}")
    equal = TreeType((Node("host", "host", inventories=(Inventory("VCPU", 8), Inventory("MEMORY_MB", 65_536))),))
    seed(Topology("equal-hosts", count, 1, "/allocation_candidates?resources=VCPU:1", (equal,)), url)
    return url


def _named(program: Program) -> tuple[list[float], int]:
    """The time of each request, and how many hosts all of them name."""
    wall_s, named = list[float](), set[str]()
    for number in range(SPREAD_REQUESTS):
        query = f"resources=VCPU:{number % 8 + 1},MEMORY_MB:{512 * (number + 1)}&limit=10"
        began = time.perf_counter()
        answer = program.ask(Request("GET", "/allocation_candidates", query))
        wall_s.append(time.perf_counter() - began)
        named.update(uuid for each in answer.document["allocation_requests"] for uuid in each["allocations"])
    return wall_s, len(named)


def _refused(program: Program) -> tuple[int, int]:
    """Eight claimers ask, each for another amount, and then each claims the first candidate: 409s, and all claims."""
    lot, refused, claims = random.Random(1), 0, 0
    for number in range(CLAIM_ROUNDS):
        amounts = [(lot.randint(1, 4), 256 * lot.randint(1, 16)) for _ in range(CLAIMERS)]
        queries = [f"resources=VCPU:{cores},MEMORY_MB:{size}&limit=10" for cores, size in amounts]
        answers = [program.ask(Request("GET", "/allocation_candidates", query)) for query in queries]
        for claimer, answer in enumerate(answers):
            consumer = f"/allocations/00000000-0000-4000-8000-{number:06}{claimer:06}"
            body = {
                "allocations": answer.document["allocation_requests"][0]["allocations"],
                "project_id": "bench",
                "user_id": "bench",
                "consumer_type": "INSTANCE",
                "consumer_generation": None,
            }
            status = program.ask(Request("PUT", consumer, body=body)).status
            assert status in (204, 409), status
            refused += status == 409
            claims += 1
    return refused, claims
