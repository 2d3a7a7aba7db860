"""The published figures of studies: loads, matrices and networks."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from figures import FIGURES, change, effect, figure, interval, is_measured, paired, raw, source, table, where_measured

from placebench import units
from placebench.stats.hodges_lehmann import MIN_REPLICATES, signed_rank_p
from placebench.stats.multiple_testing import benjamini_hochberg

# --- network-*.json


def _protocols(job: str) -> Callable[[], str]:
    """Counts, which have no noise, and the latencies that they wait for; CPU and times of a quiet machine alone."""

    @where_measured(f"network-{job}.json")
    def made() -> str:
        document = raw(f"network-{job}.json")
        is_quiet = not any("busy with other work" in each for each in document["summary"])
        rows, lines = document["rows"], list[list[object]]()
        latencies = list(dict.fromkeys(row["latency_ms"] for row in rows))
        for protocol in dict.fromkeys(row["variant"] for row in rows):
            own = {row["latency_ms"]: row for row in rows if row["variant"] == protocol}
            near, away = own[latencies[0]], own[latencies[-1]]
            trips = away["round_trips"] + away["connections"]
            sizes = (units.size(away[name]) for name in ("bytes_sent", "bytes_received"))
            waits = units.duration(trips * latencies[-1] / 1e3)
            lines.append([f"`{protocol}`", units.average(trips), *sizes, waits])
            if is_quiet:
                lines[-1] += [units.duration(near[name]) for name in ("client_cpu_s", "cpu_s")]
                lines[-1] += [interval(own[each], "elapsed") for each in latencies]
        head = f"| Protocol | Round trips | Sent | Received | Latencies at {latencies[-1]:g} ms |"
        times = " | ".join(f"Time at {each:g} ms" for each in latencies)
        return table(f"{head} Client CPU | Server CPU | {times} |" if is_quiet else head, lines)

    return made


FIGURES |= {f"network-{job}": _protocols(job) for job in ("http", "rows", "walk", "writes")}


def _variants(name: str) -> Callable[[], str]:
    """The time of each variant at each latency, and what it gains beside what its round trips predict."""

    @where_measured(f"network-{name}.json")
    def made() -> str:
        rows = []
        for row in raw(f"network-{name}.json")["rows"]:
            predicted, gain = row["predicted_growth_s"], ""
            if predicted:
                ends = (units.duration(row[f"measured_growth{end}_s"]) for end in ("", "_low", "_high"))
                gain = "{} [{}, {}]".format(*ends).replace("-", "−")
            trips = units.average(row["round_trips"] + row["connections"])
            amounts = (trips, units.size(row["bytes_received"]), interval(row, "elapsed"))
            predicted = units.duration(predicted) if predicted else ""
            rows.append((f"`{row['variant']}`", f"{row['latency_ms']:g} ms", row["n"], *amounts, predicted, gain))
        head = "| Variant | Latency | n | Round trips | Received | Time | Gain over `naive` beyond that at 0 ms"
        return table(f"{head}: predicted | measured |", rows)

    return made


FIGURES |= {f"network-{name}": _variants(name) for name in ("query", "jump", "tiny", "mixed")}


@figure
def network_clients() -> str:
    rows = [
        (
            row["variant"],
            f"{row['latency_ms']:g} ms",
            row["n"],
            units.size(row["bytes_received"]),
            interval(row, "elapsed"),
            *(units.duration(row[name]) for name in ("cpu_s", "client_cpu_s")),
        )
        for row in raw("network-clients.json")["rows"]
    ]
    return table("| Responses | Latency | n | Received | Time | Server CPU | Client CPU |", rows)


def _matrix(name: str, axis: str) -> Callable[[], str]:
    def made() -> str:
        lines = []
        for row in raw(f"matrix-{name}.json")["rows"]:
            value = row["versions"]["python"] if axis == "python" else f"{row[axis]:g} ms"
            line = [f"`{row['service']}`", value, row["requests"], interval(row, "duration"), row["n"]]
            over = [""] * 3
            if row["overhead_s"] is not None:
                each = (row["overhead_per_request_s"], row["overhead_per_result_s"])
                over = [interval(row, "overhead"), *map(units.duration, each)]
            lines.append((*line, *over))
        return table(
            f"| Service | {axis.partition('_')[0].capitalize()} | Requests | Duration | n | Overhead | per request | "
            "per result |",
            lines,
        )

    return made


FIGURES |= {f"matrix-{name}": _matrix(name, axis) for name, axis in (("latency", "latency_ms"), ("pythons", "python"))}


FIRST_PYTHON = "3.11.2"
"""The Python that the others are compared with."""


@figure
def matrix_pythons_paired() -> str:
    """Return the duration on each Python beside that on the first in the same repeat, and which of them differ."""
    taken: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each in sorted(raw("matrix-pythons.json")["measurements"], key=lambda each: each["repeat"]):
        taken[each["point"]["service"], each["point"]["python"]].append(each["values"]["duration_s"])
    pairs = {
        (service, python): (taken[service, FIRST_PYTHON], now)
        for (service, python), now in taken.items()
        if service in ("naive", "tuned") and python != FIRST_PYTHON
    }
    logs = [[math.log(now / then) for then, now in zip(*pair, strict=True)] for pair in pairs.values()]
    said = [f"`{service}` on {python} {effect(*paired(*pair))}" for (service, python), pair in sorted(pairs.items())]
    adjusted = benjamini_hochberg(map(signed_rank_p, logs))
    found = [f"`{service}` on {python}" for (service, python), p in zip(pairs, adjusted, strict=True) if p < 0.05]
    differ = ", ".join(sorted(found)) or "none"
    return f"{', '.join(said)}; with a p, adjusted for the {len(pairs)} pairs, below 0.05: {differ}"


def release_ratios() -> list[float]:
    """The duration with Placement 16.0.0, the installed one, divided by that with 14.0.0, in each repeat."""
    taken: dict[tuple[str, int], float] = {}
    for each in raw("matrix-releases.json")["measurements"]:
        if each["point"]["service"] == "placement" and each["invalid"] is None:
            taken[each["point"]["version"], each["repeat"]] = each["values"]["duration_s"]
    return [taken["installed", repeat] / taken["14.0.0", repeat] for repeat in range(8)]


@figure
def releases_16_14() -> str:
    estimate, low, high = (f"{100 * (ratio - 1):+.1f}" for ratio in paired([1.0] * 8, release_ratios()))
    return f"{estimate} % [{low}, {high}; n = 8]"


def asyncio_ratios(workload: str, value: str, server: str, processes: int) -> list[float]:
    """A value with this server, one process and eight threads, divided by that with uWSGI, in each repeat."""
    found: dict[tuple[str, int, int], float] = {}
    for each in raw("asyncio.json")["measurements"]:
        point = each["point"]
        if point["workload"] == workload and each["invalid"] is None:
            values = each["values"]
            total = values["worker_cpu_s"] + values["backend_cpu_s"] if value == "cpu_s" else values[value]
            found[point.get("server", "uwsgi"), point["processes"], each["repeat"]] = total
    repeats = sorted({repeat for _, _, repeat in found})
    return [found[server, 1, repeat] / found["uwsgi", processes, repeat] for repeat in repeats]


@figure
def matrix_releases() -> str:
    rows = [
        (
            row["versions"]["service"].rpartition(" ")[2],
            row["versions"]["sqlalchemy"],
            interval(row, "duration"),
            row["n"],
            interval(row, "overhead"),
            units.duration(row["overhead_per_request_s"]),
        )
        for row in raw("matrix-releases.json")["rows"]
        if row["overhead_s"] is not None
    ]
    return table("| Placement | SQLAlchemy | Duration | n | Overhead | per request |", rows)


def _beside(ratios: list[float]) -> str:
    """The effect that these ratios of repeats show; without an interval if they are too few."""
    if len(ratios) < MIN_REPLICATES:
        return f"{change(statistics.median(ratios), 0)} % [no interval; n = {len(ratios)}]"
    return effect(*paired([1.0] * len(ratios), ratios), n=f"; n = {len(ratios)}")


@figure
def asyncio_waiting() -> str:
    """The throughput of an event loop beside that of eight processes, where the wait is for PostgreSQL."""
    return _beside(asyncio_ratios("database", "throughput_per_s", "uvicorn", 8))


@figure
def asyncio_waiting_cpu() -> str:
    """The CPU of a request to another service, by threads and by event loops."""
    cpu = {
        (row["server"], row["processes"]): row["cpu_s_per_request"]
        for row in raw("asyncio.json")["rows"]
        if row["workload"] == "network"
    }
    threads = cpu.pop(("uwsgi", 1))
    loops = [each for (server, _), each in cpu.items() if server != "uwsgi"]
    return f"{units.duration(min(loops))} to {units.duration(max(loops))}, where threads take {units.duration(threads)}"


@figure
def asyncio_query_cpu() -> str:
    """The CPU of the service in an event loop beside that in threads."""
    said = (
        f"{_beside(asyncio_ratios('query', 'cpu_s', server, 1))} under {server}" for server in ("uvicorn", "granian")
    )
    return " and ".join(said)


AXES = {
    "servers": ("server", ("service",)),
    "databases": ("database", ("service", "users")),
    "sizes": ("service", ("requests", "trees")),
}
"""The axis whose value the control replaces, and what else a row of the table names."""


def _against_control(name: str) -> Callable[[], str]:
    """The time of each value of an axis, and its ratio to that of the control in the same repeat."""
    axis, others = AXES[name]

    @where_measured(f"matrix-{name}.json")
    def made() -> str:
        document, taken = raw(f"matrix-{name}.json"), dict[tuple[object, ...], dict[int, float]]()
        usual, control = document["settings"]["usual"], document["settings"]["control"]
        for each in document["measurements"]:
            if each["invalid"] is None:
                point = usual | each["point"]
                key = (point[axis], *(point[other] for other in others))
                taken.setdefault(key, {})[each["repeat"]] = each["values"]["duration_s"]
        lines = []
        for row in document["rows"]:
            beside = [row[other] for other in others]
            own, base = taken[row[axis], *beside], taken[control[axis], *beside]
            both, over, against = sorted(own.keys() & base.keys()), "", ""
            if row["overhead_s"] is not None:
                over = interval(row, "overhead")
                if name == "sizes":
                    against = units.duration(row["overhead_per_request_s"])
                elif len(both) >= MIN_REPLICATES:
                    against = effect(*paired([base[each] for each in both], [own[each] for each in both]))
            lines.append((*map(str, beside), row[axis], row["n"], interval(row, "duration"), over, against))
        impossible = "".join(
            f"Not measured: {each['point'][axis]} ({each['reason'].partition(':')[0]}).\n\n"
            for each in document["impossible"][:1]
        )
        last = "per request" if name == "sizes" else "in percent"
        head = " | ".join(each.capitalize() for each in (*others, axis))
        return table(f"| {head} | n | Time | Over {control[axis]} | {last} |", lines) + impossible

    return made


FIGURES |= {f"matrix-{name}": _against_control(name) for name in AXES}


# --- published.json, users-*.json


USERS = (25, 100, 200)


@where_measured("published.json")
def _published() -> str:
    """Each service under the published loads, and its throughput beside two others in the same replicates."""
    document = raw("published.json")
    rates: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for made in sorted(document["measurements"], key=lambda each: each["repeat"]):
        if made["invalid"] is None:
            point = made["point"]
            rates[point["service"], point["topology"], point["clients"]].append(made["values"]["rate_per_s"])

    def against(other: str, row: dict[str, Any]) -> str:
        """Return how many times the throughput of the other service it is; nothing for the service itself."""
        load = row["topology"], row["clients"]
        if row["service"] == other:
            return ""
        return "{}× [{}, {}]".format(*map(units.significant, paired(rates[other, *load], rates[row["service"], *load])))

    lines = []
    for row in document["rows"]:
        rate = "{} [{}, {}]".format(*(units.significant(row[f"rate_{end}per_s"]) for end in ("", "low_", "high_")))
        latencies = ("–" if (each := row[f"latency_s_{p}"]) is None else units.duration(each) for p in PERCENTILES)
        load = f"{row['clients']} × {row['requests']}"
        shape = row["topology"].partition("-")[0]
        service = {"placement": "Placement 16.0.0"}.get(row["service"], f"`{row['service']}`")
        cpu = units.duration(row["cpu_s_per_request"]) if row["cpu_s_per_request"] else "–"
        beside = against("placement", row), against("naive", row)
        lines.append((shape, load, service, row["n"], rate, *beside, *latencies, cpu))
    head = (
        "| Trees | Load | Service | n | Requests per second | Against Placement | Against `naive` | p50 | p95 | p99 "
        "| CPU per request |"
    )
    return table(head, lines)


PERCENTILES = ("median", "p95", "p99")
FIGURES["published-loads"] = _published


UNDER_LOAD = {"elapsed_s": "Time per request", "p95_s": "p95", "p99_s": "p99", "cpu_s": "CPU"}


@figure
def users() -> str:
    """The effect of each variant beside naive, by the number of users."""
    lines = []
    for count in USERS:
        name = f"users-{count}.json"
        if not is_measured(name):
            lines.append([count, "not measured yet", "", *("" for _ in UNDER_LOAD)])
            continue
        found: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        for each in raw(name)["comparisons"]:
            found[each["variant"]][each["metric"]] = each
        for variant, metrics in found.items():
            found_by_metric = (metrics.get(metric) for metric in UNDER_LOAD)
            effects = (
                effect(each["ratio"], each["low"], each["high"]) if each and each["low"] is not None else "–"
                for each in found_by_metric
            )
            lines.append([count, f"`{variant}`", metrics["elapsed_s"]["n"], *effects])
    return table(f"| Users | Variant, beside `naive` | n | {' | '.join(UNDER_LOAD.values())} |", lines)


@figure
@where_measured("users-100.json")
def users_time() -> str:
    """The effect of each variant on the time of a request under a hundred users."""
    timed = (each for each in raw("users-100.json")["comparisons"] if each["metric"] == "elapsed_s")
    return ", ".join(f"`{each['variant']}` {effect(each['ratio'], each['low'], each['high'])}" for each in timed)


@figure
@where_measured("matrix-servers.json")
def servers_that_differ() -> str:
    """The servers whose time differs from that of uWSGI for any service, by the paired interval."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each in sorted(raw("matrix-servers.json")["measurements"], key=lambda each: each["repeat"]):
        times[each["point"]["service"], each["point"]["server"]].append(each["values"]["duration_s"])
    differing = set()
    for (service, server), own in times.items():
        _, low, high = paired(times[service, "uwsgi"], own)
        if not low <= 1 <= high:
            differing.add(server)
    others = sorted({server for _, server in times} - {"uwsgi"})
    return f"{', '.join(sorted(differing)) or 'none'} of {', '.join(others)}"


# --- when, where and how often


def _source(name: str) -> Callable[[], str]:
    return lambda: f"{source(name)}." if is_measured(name) else ""


FIGURES |= {
    f"source-{recipe}": _source(f"{recipe}.json")
    for recipe in (
        "published",
        *(f"users-{users}" for users in USERS),
        *(f"matrix-{name}" for name in AXES),
        *(f"network-{name}" for name in ("jump", "tiny", "writes", "mixed")),
    )
}
