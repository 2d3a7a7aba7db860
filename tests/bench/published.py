"""The published figures, from the raw files into the pages: `python tests/bench/published.py [--check]`.

    <!-- NAME -->text<!-- / -->

in README.md, ARTIFACT.md or a page below docs is the text of the function NAME here: a table, or a figure in a
sentence. Without --check, the pages are written anew; with it, the exit code is 1 where one says something else than
its raw file. A figure that only one page has is a function of its own, marked with `figure`; a table is the
`table` of its cells.
"""

import math
import random
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from placebench import units
from placebench.history import History
from placebench.page.axis_charts import Line, lines
from placebench.stats import hodges_lehmann, median_interval
from placebench.stats.hodges_lehmann import pseudo_median
from placebench.stats.multiple_testing import significance_shares
from placebench.stats.sequential import sequential_p

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "fakes")]  # PYTHONSAFEPATH hides what lies beside a program

import search_figures  # noqa: E402, F401 - the figures that it adds
import study_figures  # noqa: E402, F401
import tool_figures  # noqa: E402, F401
from figures import (  # noqa: E402
    FIGURES,
    RESULTS,
    TOP,
    change,
    effect,
    figure,
    interval,
    is_measured,
    middle,
    paired,
    raw,
    table,
    times,
    where_measured,
)

PAGES = [TOP / "README.md", TOP / "tests" / "release" / "ARTIFACT.md", *sorted((TOP / "docs").rglob("*.md"))]
MARKED = re.compile(r"<!-- (?P<name>[a-z][a-z0-9-]*) -->(?P<text>.*?)<!-- / -->", re.DOTALL)


# --- steps.json, leave-one-out.json


def compared(file: str, change_name: str, metric: str = "cpu_s") -> dict[str, Any]:
    """The comparison of one change."""
    found: dict[str, Any]
    (found,) = (each for each in raw(file)["comparisons"] if (each["change"], each["metric"]) == (change_name, metric))
    return found


def effect_of(made: dict[str, Any]) -> str:
    return effect(made["ratio"], made["low"], made["high"])


def changes(file: str, metric: str = "cpu_s") -> list[str]:
    """Names, in their order."""
    return [each["change"] for each in raw(file)["comparisons"] if each["metric"] == metric]


@figure
def steps_cumulative() -> str:
    kept = {each["change"]: each["decision"] for each in raw("steps.json")["results"]}
    rows = []
    for name in changes("steps.json"):
        made = compared("steps.json", name)
        whole, mde = name == "from end to end", units.significant(made["detectable"] * 100, digits=2)
        more = f", {times(made['ratio'])}" if whole or made["ratio"] < 0.7 else ""
        decision = {"kept": "keep", "dropped": "not on this request"}.get(kept.get(name, ""), kept.get(name, ""))
        label = "all, `naive` → `tuned`" if whole else name
        rows.append((label, effect_of(made) + more, made["verdict"], f"{mde} %", decision))
    return table("| Step | Effect on CPU | Verdict | MDE | Decision |", rows)


@figure
def steps_leave_one_out() -> str:
    file, rows = "leave-one-out.json", list[tuple[str, ...]]()
    together = {each["name"]: each for each in raw(file)["interactions"]}

    def cell(name: str) -> str:
        made = compared(file, name)
        return effect_of(made) + (", inconclusive" if made["verdict"] == "inconclusive" else "")

    def interaction(name: str) -> str:
        if name not in together:
            return ""
        ratio, low, high = (math.exp(together[name][each]) for each in ("estimate", "low", "high"))
        return effect(ratio, low, high)

    names = [name.removesuffix(", alone") for name in changes(file) if name.endswith(", alone")]
    for name in sorted(names, key=lambda name: compared(file, f"{name}, leave-one-out")["ratio"]):
        rows.append((name, cell(f"{name}, alone"), cell(f"{name}, leave-one-out"), interaction(name)))
    whole = compared(file, "from end to end")
    rows.append(
        ("all, `naive` → `tuned`", "", f"{effect_of(whole)}, {times(whole['ratio'])}", interaction("all changes"))
    )
    return table("| Change | Added alone | Leave-one-out | Interaction |", rows)


@figure
def steps_where_they_show() -> str:
    rows = []
    for name in ("copies", "pruning"):
        for role in ("alone", "leave-one-out"):
            made = compared(f"{name}.json", f"{name}, {role}")
            rows.append((name, role, *_judged(made)))
    return table("| Change | | Effect on CPU | Verdict | MDE | n |", rows)


@figure
def steps_for_many_devices() -> str:
    """The same of optimizations for requests for several devices, of those that are measured."""
    rows = []
    for name in filter(lambda name: is_measured(f"step-{name}.json"), ("matching", "distinct")):
        for role in ("alone", "leave-one-out"):
            rows.append((name, role, *_judged(compared(f"step-{name}.json", f"{name}, {role}"))))
    if not rows:
        return "not measured yet (`tox -e results -- step-matching step-distinct`)"
    return table("| Change | | Effect on CPU | Verdict | MDE | n |", rows)


def _judged(made: dict[str, Any]) -> tuple[str, ...]:
    mde = units.significant(made["detectable"] * 100, digits=2)
    return effect_of(made), made["verdict"], f"{mde} %", str(made["n"])


@figure
def findings_by_kind() -> str:
    """A line for each finding: programs in which it must come and must not, and what placebench reported."""
    programs = raw("findings.json")["programs"]
    rows, sums = [], [0] * 4
    for kind in dict.fromkeys(each["finding"] for each in programs):
        present = [kind in each["expected"] for each in programs]
        reported = [kind in each["reported"]["placebench"] for each in programs]
        without = sum(each["finding"] == kind and kind not in each["expected"] for each in programs)
        right = sum(map(all, zip(present, reported, strict=True)))
        counts = (sum(present), without, right, sum(reported) - right)
        sums = [a + b for a, b in zip(sums, counts, strict=True)]
        rows.append((kind, *counts, *_rates(right, sum(reported), sum(present))))
    rows.append(("all", *sums, *_rates(sums[2], sums[2] + sums[3], sums[0])))
    head = "| Finding | Programs with it | About it, without | Reported rightly | Wrongly | Precision | Recall |"
    return table(head, rows)


@figure
def findings_by_tool() -> str:
    """A line for each tool and stack that it knows: loops over one statement, with equal values or different ones."""
    document = raw("findings.json")
    rows = []
    for tool, version in document["versions"].items():
        name = "placebench" if tool == "placebench" else f"{tool} {version}"
        for stack in ("sqlalchemy", "django", *(("sqlite3", "postgresql") if tool == "placebench" else ())):
            programs = [each for each in document["programs"] if each["stack"] == stack]
            ran = [each for each in programs if each["reported"][tool] is not None]
            if not ran:
                continue
            present, reported = (
                [bool({"n+1", "duplicate"} & set(found)) for found in each]
                for each in ([each["expected"] for each in ran], [each["reported"][tool] for each in ran])
            )
            right = sum(map(all, zip(present, reported, strict=True)))
            counts = (len(ran), sum(present), right, sum(reported) - right)
            rows.append((name, stack, *counts, *_rates(right, sum(reported), sum(present))))
    return table("| Tool | Stack | Programs | With a loop | Reported rightly | Wrongly | Precision | Recall |", rows)


def _rates(right: int, reported: int, present: int) -> list[str]:
    """Precision and recall in percent."""
    return [f"{100 * right / whole:.0f} %" if whole else "–" for whole in (reported, present)]


@figure
def plans() -> str:
    rows = []
    for path in sorted((TOP / "docs" / "lab" / "plans").glob("*.toml")):
        file = f"{path.stem}.json"
        for name in changes(file, "wall_s") if (RESULTS / file).is_file() and path.stem != CACHE_SERVICE else ():
            is_measured, wall = name in changes(file), compared(file, name, "wall_s")
            cpu = _judged(compared(file, name)) if is_measured else (units.NOT_MEASURED, "–", "–", str(wall["n"]))
            label = f"`{name.removeprefix('tuned+')}`" if wall["variant"] == name else name
            rows.append((f"`{path.stem}`", label, *cpu, effect_of(wall), _counts(file, name)))
    head = "| Plan | Compared with `tuned` | Effect on CPU | Verdict | MDE | n | Effect on time | Counts per request |"
    return table(head, rows)


CACHE_SERVICE = "cache-service"


@figure
def cache_service() -> str:
    """A line for each variant: what it takes, and its effects against the first."""
    file = f"{CACHE_SERVICE}.json"
    names, first = changes(file), raw(file)["variants"][0]
    rows = [(f"`{first}`", *_taken(file, names[0], "baseline_value"), "–", "–")]
    for name in names:
        made = compared(file, name)
        if made["baseline"] == first:
            effects = (f"{effect_of(made)}, {times(made['ratio'])}", effect_of(compared(file, name, "wall_s")))
            rows.append((f"`{made['variant']}`", *_taken(file, name, "variant_value"), *effects))
    return table("| Variant | CPU, ms | Memory, MB | Round trips | Effect on CPU | Effect on time |", rows)


def _taken(file: str, name: str, of: str) -> tuple[str, ...]:
    """CPU, memory and round trips of a side of a comparison."""
    units_of = {"cpu_s": 1e3, "pss_bytes": 1e-6, "round_trips": 1}
    return tuple(units.significant(compared(file, name, metric)[of] * factor) for metric, factor in units_of.items())


@figure
def cached_instead_of_a_service() -> str:
    (made,) = (each for each in raw(f"{CACHE_SERVICE}.json")["comparisons"] if _is_of_both(each))
    count = f"; n = {made['n']}"
    return f"{effect(made['ratio'], made['low'], made['high'], n=count)}, {times(made['ratio'])}"


def _is_of_both(made: dict[str, Any]) -> bool:
    return (made["baseline"], made["variant"], made["metric"]) == ("dedup+responses:redis", "cached", "cpu_s")


COUNTS = {
    "round_trips": "round trips",
    "rows": "rows",
    "bytes_sent": "bytes sent",
    "bytes_received": "bytes received",
}


def _counts(file: str, name: str) -> str:
    """Those that differ from the baseline's by half a percent or more."""
    made = [each for each in raw(file)["comparisons"] if each["change"] == name and abs(each["ratio"] - 1) >= 0.005]
    found = {each["metric"]: each["ratio"] for each in made}
    return ", ".join(f"{label} {change(found[each], 0)} %" for each, label in COUNTS.items() if each in found)


def total(file: str) -> dict[str, Any]:
    return compared(file, "from end to end")


@figure
def steps_total() -> str:
    made = total("steps.json")
    whole = effect(made["ratio"], made["low"], made["high"], ci="95 % CI ", n=f"; n = {made['n']}")
    return f"{whole.replace(' %', ' % CPU', 1)}, {units.significant(1 / made['ratio'], digits=2)}× faster"


def as_times(made: dict[str, Any]) -> str:
    high, low = (units.significant(1 / made[each]) for each in ("low", "high"))
    return f"{times(made['ratio'])} [{low}, {high}]"


@figure
def steps_total_times() -> str:
    return as_times(total("steps.json"))


@figure
def steps_leave_one_out_total_times() -> str:
    return as_times(total("leave-one-out.json"))


@figure
def steps_together() -> str:
    """How much less CPU all changes together need than the product of what each does alone."""
    (made,) = (each for each in raw("leave-one-out.json")["interactions"] if each["name"] == "all changes")
    estimate, low, high = (f"{-math.expm1(made[each]) * 100:.0f}" for each in ("estimate", "high", "low"))
    return f"{estimate} % less CPU [{low}, {high}]"


@figure
def slots_left_out() -> str:
    return effect_of(compared("leave-one-out.json", "slots, leave-one-out"))


@figure
def copies_left_out() -> str:
    made = compared("copies.json", "copies, leave-one-out")
    return effect(made["ratio"], made["low"], made["high"], n=f"; n = {made['n']}").replace(" %", " % CPU", 1)


def _of_step(name: str) -> Callable[[], str]:
    return lambda: effect_of(compared("steps.json", name))


FIGURES |= {f"step-{name}": _of_step(name) for name in changes("steps.json") if name != "from end to end"}


@figure
def steps_statements() -> str:
    """Before the first step that changes their number and after the last one."""
    steps = [each for each in raw("steps.json")["comparisons"] if each["metric"] == "statements"]
    return f"{steps[0]['baseline_value']:.0f} → {steps[-1]['variant_value']:.0f}"


# --- calibration.json


@figure
def calibration() -> str:
    found, rows = raw("calibration.json")["calibration"], []
    for metric, label in (("cpu_s", "server CPU"), ("wall_s", "wall time"), ("pss_bytes", "memory")):
        made, digits = found[metric], 2
        ratios = [change(math.exp(made[each]), digits) for each in ("estimate", "low", "high")]
        shown = [re.sub(r"^[−+](0\.00)$", r"\1", each) for each in ratios]
        allowed = f"allowed ±{made['margin'] * 50:.3g} %"
        passed = f"passed: {allowed}" if made["passed"] else f"**failed**: {allowed}"
        power = [", ".join(f"{share * 100:.0f}" for share in made["power"][n].values()) + " %" for n in ("12", "30")]
        mde = ", ".join(f"{units.significant(made['detectable'][n] * 100, digits=2)} %" for n in ("12", "30"))
        wrong = f"{made['false_positives']} of {made['runs_of_six']}"
        rows.append((label, f"{shown[0]} % [{shown[1]}, {shown[2]}]", passed, wrong, *power, mde))
    head = "| Metric | Difference | A/A check | False positives | Power at 1, 2, 5 %, n = 12 | n = 30 |"
    return table(f"{head} MDE, n = 12, n = 30 |", rows)


# --- restarts.json


def _restarts() -> list[float]:
    (made,) = (each for each in raw("restarts.json")["comparisons"] if each["metric"] == "cpu_s")
    return [math.log(each) for each in made["ratios"]]


@figure
def restarts() -> str:
    made = hodges_lehmann(_restarts())
    ratio, low, high = (math.exp(each) for each in (made.estimate, made.low, made.high))
    return f"{change(ratio, 2)} % CPU [{change(low, 2)}, {change(high, 2)}; n = {len(_restarts())}]"


@figure
def restarts_in_other_orders() -> str:
    ratios, orders, wrong, lot = _restarts(), 100, 0, random.Random(1)
    level = 0.05 * significance_shares("cpu_s")["cpu_s"]
    for _ in range(orders):
        lot.shuffle(ratios)
        wrong += sequential_p([each * lot.choice((1, -1)) for each in ratios]) <= level
    return f"{wrong} of {orders}"


# --- candidates.json, http.json


def candidates(data: str, variant: str) -> tuple[float, float, float]:
    """Estimate and limits of its CPU over Placement's."""
    made = raw("candidates.json")["data"][data]["variants"]
    return paired(made["placement"]["cpu_ms"], made[variant]["cpu_ms"])


@figure
def candidates_costs() -> str:
    about = {
        "mixed": "`mixed`: an inventory in use, one write per ten requests",
        "used": "`used`: 900 consumers, 500 different disks",
        "flat": "`flat`: no trees",
        "uniform": "`uniform`, **the best case**: 1000 equal trees",
        "larger": "`larger`, best case: 3000 equal trees",
        "limit": "`limit`, best case with `limit=10`",
        "again": "`again`: as `used`, the same request each time",
    }
    rows = []
    for data, label in about.items():
        made = raw("candidates.json")["data"][data]
        cells = [label, units.count(made["providers"]) if made["providers"] >= 10_000 else made["providers"]]
        cells.append(middle(made["variants"]["placement"]["cpu_ms"]))
        for name in ("dedup", "cached"):
            found = candidates(data, name)
            cells += [middle(made["variants"][name]["cpu_ms"]), f"{effect(*found)}, {times(found[0])}"]
        rows.append(cells)
    effects = " | ".join(f"`{name}`, ms | `{name}`, effect [95 % CI]" for name in ("dedup", "cached"))
    return table(f"| Data | Providers | Placement, ms | {effects} |", rows)


@figure
@where_measured("ordinary.json")
def ordinary_costs() -> str:
    labels = {
        "ordinary-nested": "1000 nested trees, 900 claims, 500 different disks",
        "ordinary-flat": "1000 flat hosts",
        "ordinary-flat-5000": "5000 flat hosts, used to 40 %",
    }
    names = ("tuned", "dedup", "cached")
    rows = []
    for data, made in raw("ordinary.json")["data"].items():
        placement, *others = (made["variants"][name]["cpu_ms"] for name in ("placement", *names))
        faster = [f"{middle(each)} ms, {_over(each, placement)}" for each in others]
        floors = [f"{middle(made['floors'][name])} ms" for name in ("bytes", "read", "json")]
        rows.append([f"{labels[data]}; n = {made['n']}", f"{middle(placement)} ms", *faster, *floors])
    head = "| Data | Placement | `tuned` | `dedup` | `cached` | the bytes only | the rows only | the JSON only |"
    return table(head, rows)


@figure
def ordinary_range() -> str:
    """The factors of each variant, from the least data set to the best, as `tuned` 6.15 to 6.75×."""
    found = []
    for name in ("tuned", "dedup", "cached"):
        factors = [
            paired(made["variants"][name]["cpu_ms"], made["variants"]["placement"]["cpu_ms"])[0]
            for made in raw("ordinary.json")["data"].values()
        ]
        found.append(f"`{name}` {units.significant(min(factors))} to {units.significant(max(factors))}×")
    return ", ".join(found)


def _of_candidates(data: str, variant: str, is_long: bool) -> Callable[[], str]:
    def made() -> str:
        found, n = candidates(data, variant), raw("candidates.json")["data"][data]["n"]
        if not is_long:
            return times(found[0])
        return f"{effect(*found, n=f'; n = {n}').replace(' %', ' % CPU', 1)}, {times(found[0])}"

    return made


for _variant in ("dedup", "cached"):
    for _data in raw("candidates.json")["data"]:
        FIGURES[f"{_variant}-on-{_data}"] = _of_candidates(_data, _variant, is_long=True)
        FIGURES[f"{_variant}-on-{_data}-times"] = _of_candidates(_data, _variant, is_long=False)


@figure
def http_rates() -> str:
    rows = []
    for clients, made in raw("http.json")["clients"].items():
        placement, dedup, cached, transport = (
            made[name]["rate"] for name in ("placement", "dedup", "cached", "transport")
        )
        faster = (_over(placement, dedup), _over(placement, cached))
        rows.append((clients, *map(ranged, (placement, dedup, cached, transport)), *faster))
    head = "| Clients | Placement | `dedup` | `cached` | `transport` | `dedup`, over Placement [95 % CI] |"
    return table(f"{head} `cached`, over Placement |", rows)


def _over(baseline: Sequence[float], variant: Sequence[float]) -> str:
    estimate, low, high = map(units.significant, paired(baseline, variant))
    return f"{estimate}× [{low}, {high}]"


# --- claims.json


@figure
def claims_costs() -> str:
    labels = {"at_once": "`at_once`", "step_by_step": "`step_by_step`", "placement": "Placement 16.0.0"}
    rows = []
    for case, made in raw("claims.json")["cases"].items():
        for way, label in labels.items():
            faster = _over(made["placement"]["rate"], made[way]["rate"]) if way != "placement" else ""
            cpu = middle(made[way]["cpu_ms"]) if made[way]["cpu_ms"] else "not measured"
            rows.append((case if way == "at_once" else "", label, ranged(made[way]["rate"]), faster, cpu))
    return table("| Claims | | per second | over Placement [95 % CI] | CPU, ms per claim |", rows)


@figure
def claims_n() -> str:
    return f"n = {raw('claims.json')['n']}"


@figure
def http_n() -> str:
    return f"n = {raw('http.json')['n']}"


# --- waiting.json


@figure
def waiting() -> str:
    found = raw("waiting.json")["seconds"]
    page = "the page, to DOMContentLoaded"
    rows = [(f"`{name}`", ranged(values), len(values)) for name, values in found.items() if name != page]
    rows.append(("the page of that run in headless chromium, until parsed", ranged(found[page]), len(found[page])))
    return table("| Command | Seconds, median (min–max) | n |", rows)


# --- saturation.json, saturation-algorithms.json


@figure
def saturation_knees() -> str:
    """The knee of each variant, and what became of instances at twice its rate."""
    rows = [
        (
            f"`{row['variant']}`",
            f"`{raw(file)['settings']['objective']}`",
            row["n"],
            _of_repeats(row, "knee"),
            _of_repeats(row, "max"),
            units.percent(row["overload_failed"]),
            units.percent(row["overload_timeouts"]),
            units.percent(row["refused_share"]),
        )
        for file in SATURATION
        for row in raw(file)["rows"]
    ]
    head = "| Variant | Objective | n | Knee, per second | Claimed at twice the knee, per second | Failed there |"
    return table(f"{head} Without a response | Claimed after a 409 |", rows)


SATURATION = ("saturation.json", "saturation-algorithms.json")


def _of_knee(variant: str) -> Callable[[], str]:
    def made() -> str:
        (row,) = (row for file in SATURATION for row in raw(file)["rows"] if row["variant"] == variant)
        return _of_repeats(row, "knee").replace("]", f"; n = {row['n']}]")

    return made


FIGURES |= {f"saturation-{name}": _of_knee(name) for name in ("placement", "tuned", "dedup", "cached")}


def _of_knees(variant: str) -> Callable[[], str]:
    """The knee of the variant, as a multiple of that of the variant it was measured with."""

    def made() -> str:
        (row,) = (row for file in SATURATION for row in raw(file)["rows"] if row["variant"] == variant)
        low, high = row["ratio_low"], row["ratio_high"]
        return f"{row['ratio']:.2f}× [{low:.2f}, {high:.2f}; n = {row['n']}]"

    return made


FIGURES |= {f"saturation-{name}-times": _of_knees(name) for name in ("tuned", "cached")}


@figure
def saturation_overload() -> str:
    """What was claimed at twice the knee, as a share of the knee of the same repeat; the range over the repeats."""
    shares: dict[str, list[float]] = {}
    for each in chain.from_iterable(raw(file)["measurements"] for file in SATURATION):
        values = each["values"]
        shares.setdefault(each["point"]["variant"], []).append(values["max_per_s"] / values["knee_per_s"])
    return ", ".join(f"`{name}` {min(each):.2f} to {max(each):.2f}" for name, each in shares.items())


def _of_repeats(row: dict[str, Any], name: str) -> str:
    """Estimate and interval of a rate; without one for fewer repeats than it needs."""
    found = [row[f"{name}{end}_per_s"] for end in ("", "_low", "_high")]
    if found[0] is None:
        return units.NOT_MEASURED
    middle, *limits = (units.significant(each) for each in found if each is not None)
    return f"{middle} [{', '.join(limits) or 'no interval'}]"


# --- asyncio.json

WORK = {"compute": "compute", "database": "wait for PostgreSQL", "network": "wait for a service", "query": "`query`"}


@figure
def asyncio_mixes() -> str:
    rows = [
        (
            WORK[row["workload"]],
            f"{row['processes']} × {row['threads']} {row['server']}",
            row["n"],
            "{} [{}, {}]".format(
                *(units.significant(row["requests"] / row[f"elapsed{end}_s"]) for end in ("", "_high", "_low"))
            ),
            units.duration(row["latency_s"]),
            units.duration(row["cpu_s_per_request"]),
            units.size(row["pss_bytes"]),
        )
        for row in raw("asyncio.json")["rows"]
    ]
    head = "| Work | Served by | n | Requests per second | Median latency | CPU per request | Memory (PSS) |"
    return table(head, rows)


# --- breakdown.json


@figure
def breakdown() -> str:
    names = ("python_s", "database_s", "framework_s", "http_s", "unexplained_s")
    document, rows = raw("breakdown.json"), []
    for row in document["rows"]:
        made = [each["values"] for each in document["measurements"] if each["point"]["endpoint"] == row["endpoint"]]
        rate = "{} [{}, {}]".format(
            *(units.significant(row[f"throughput{end}_per_s"]) for end in ("", "_low", "_high"))
        )
        latency = median_interval([values["client_s"] for values in made])
        shown = {"client_s": latency.median, "client_low_s": latency.low, "client_high_s": latency.high}
        parts = [units.percent(row[name] / row["client_s"], digits=2) for name in names]
        rows.append(
            (row["endpoint"], row["n"], units.average(row["statements"]), rate, interval(shown, "client"), *parts)
        )
    head = "| Endpoint | n | Statements | Requests per second | Latency of one user | Python | Database | Framework |"
    return table(f"{head} Connection and HTTP | Unexplained |", rows)


@figure
def breakdown_database() -> str:
    """The database's share of the latency of candidates."""
    measured = [each for each in raw("breakdown.json")["measurements"] if each["point"]["endpoint"] == "candidates"]
    share = median_interval([each["values"]["database_s"] / each["values"]["client_s"] for each in measured])
    ends = (share.median, share.low, share.high)
    median, low, high = ("–" if each is None else f"{each * 100:.0f}" for each in ends)
    return f"{median} % [{low}, {high}; n = {share.n}]"


# --- copy-on-write.json


@figure
def unshared() -> str:
    """Median and range of the replicates."""
    found: dict[tuple[int, int], dict[str, list[float]]] = {}
    for each in raw("copy-on-write.json")["measurements"]:
        if each["invalid"] is None:
            point = each["point"]
            mix = found.setdefault((point["processes"], point["threads"]), {})
            mix.setdefault(point["workload"], []).append(each["values"]["unshared_bytes"])
    rows = [
        (f"{processes} × {threads}", *(_sizes(found[processes, threads][name]) for name in ("state", "state-frozen")))
        for processes, threads in sorted(found)
    ]
    return table("| Processes × threads | Un-shared | After `gc.freeze()` |", rows)


def _sizes(values: Sequence[float]) -> str:
    return f"{units.size(statistics.median(values))} ({units.size(min(values))}–{units.size(max(values))})"


# --- scale.json

SIZES = (98, 7000, 100_002, 1_000_006)
SCALED = {"naive": "`naive`", "placement": "Placement", "tuned": "`tuned`", "dedup": "`dedup`", "cached": "`cached`"}


def scaled(answer: str) -> dict[tuple[str, int], list[float]]:
    """CPU seconds of each request, by variant and providers."""
    points = [each for each in raw("scale.json")["points"] if each["answer"] == answer]
    return {(each["variant"], each["providers"]): each["cpu_s"] for each in points}


def spread(values: Sequence[float] | None) -> str:
    """Median (min–max) in the unit of the median."""
    if not values:
        return units.NOT_MEASURED
    center = statistics.median(values)
    scale, unit = (1, "s") if center >= 1 else (1e3, "ms")
    shown = [units.significant(each * scale) for each in (center, min(values), max(values))]
    return f"{shown[0]} {unit} ({shown[1]}–{shown[2]})"


def growth(variant: str, first: int = 1, last: int | None = None) -> float:
    """The power of the number of providers that CPU grows with, all candidates, from one of `SIZES` to another one.

    first, last: their places; from 7000 to 100 002 by default, and from the first to the next one.
    """
    found, sizes = scaled("all candidates"), (SIZES[first], SIZES[first + 1 if last is None else last])
    below, above = (statistics.median(found[variant, each]) for each in sizes)
    return math.log(above / below) / math.log(sizes[1] / sizes[0])


def _scale_head(answer: str) -> list[str]:
    counts = {size: n for (_, size), values in scaled(answer).items() if (n := len(values))}
    names = ("98 providers", "7000", "100 002", "1 000 006")
    return [f"{name}, n = {counts[size]}" for size, name in zip(SIZES, names, strict=True)]


@figure
def scale_all() -> str:
    found, (*small, million) = scaled("all candidates"), _scale_head("all candidates")
    rows = [
        (
            label,
            *(spread(found.get((name, size))) for size in SIZES[:3]),
            f"n^{growth(name):.2f}",
            spread(found.get((name, SIZES[3]))),
        )
        for name, label in SCALED.items()
    ]
    return table(f"| All candidates | {' | '.join(small)} | Growth from 7000 | {million} |", rows)


@figure
def scale_limit_10() -> str:
    found = scaled("limit=10")
    rows = [(label, *(spread(found.get((name, size))) for size in SIZES)) for name, label in SCALED.items()]
    return table(f"| `limit=10` | {' | '.join(_scale_head('limit=10'))} |", rows)


@figure
def scale_memory() -> str:
    grown = {
        (each["variant"], each["providers"]): each["end_bytes"] - each["start_bytes"]
        for each in raw("scale.json")["workers"]
    }
    rows = [(label, *(units.size(grown.get((name, size))) for size in SIZES)) for name, label in SCALED.items()]
    return table("| | 98 providers | 7000 | 100 002 | 1 000 006 |", rows)


def _at_7000(variant: str, *, is_faster: bool) -> Callable[[], str]:
    def made() -> str:
        found = scaled("all candidates")
        placement, own = (found[name, 7000] for name in ("placement", variant))
        ratios = paired(own, placement) if is_faster else paired(placement, own)
        estimate, low, high = map(units.significant, ratios)
        return f"{estimate}× [{low}, {high}; n = {len(own)}]"

    return made


FIGURES |= {f"scale-{name}-faster": _at_7000(name, is_faster=True) for name in ("tuned", "dedup", "cached")}
FIGURES["scale-naive-cpu"] = _at_7000("naive", is_faster=False)


@figure
def scale_superlinear() -> str:
    powers = sorted(growth(name) for name in ("naive", "tuned", "placement", "dedup"))
    return f"n^{powers[0]:.2f} to n^{powers[-1]:.2f}"


@figure
def scale_dedup_million() -> str:
    return f"n^{growth('dedup', 2):.2f}"


@figure
def scale_cached() -> str:
    return f"n^{growth('cached'):.2f} and n^{growth('cached', 2):.2f}"


def _growth_under_a_limit(variant: str) -> Callable[[], str]:
    def made() -> str:
        found = scaled("limit=10")
        return f"{statistics.median(found[variant, SIZES[3]]) / statistics.median(found[variant, SIZES[1]]):.1f}×"

    return made


FIGURES |= {f"scale-{name}-limit": _growth_under_a_limit(name) for name in ("dedup", "cached")}


# --- operators, herd


def measured_at(name: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """The values of each valid measurement in the order of its repeats, by the values of its point."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for each in sorted(raw(f"{name}.json")["measurements"], key=lambda line: line["repeat"]):
        if each["invalid"] is None:
            found.setdefault(tuple(each["point"].values()), []).append(each["values"])
    return found


def ranged(values: Sequence[float], shown: Callable[[float], str] = units.significant) -> str:
    """Median (min–max)."""
    center, low, high = map(shown, (statistics.median(values), min(values), max(values)))
    return f"{center} ({low}–{high})"


def settings_of(name: str, inventory: str) -> Iterator[tuple[str, ...]]:
    """A row for each setting: CPU and its change in the same repeat, latency, throughput."""
    found = {setting: made for (each, setting), made in measured_at(name).items() if each == inventory}

    def cpu_s(setting: str) -> list[float]:
        return [each["cpu_s"] / each["requests"] for each in found[setting]]

    for setting in filter(found.__contains__, SETTINGS):
        ratios = [now / then for then, now in zip(cpu_s("as installed"), cpu_s(setting), strict=True)]
        cells = [change(each, 0) for each in (statistics.median(ratios), min(ratios), max(ratios))]
        yield (
            SETTINGS[setting],
            ranged([each * 1e3 for each in cpu_s(setting)]),
            "" if setting == "as installed" else f"{cells[0]} % ({cells[1]} to {cells[2]})",
            ranged([each["latency_s"] for each in found[setting]]),
            ranged([each["requests"] / each["elapsed_s"] for each in found[setting]]),
        )


@figure
def operators() -> str:
    return table(f"| Setting {SETTING_HEAD}", settings_of("operators", "cern"))


@figure
def operators_large() -> str:
    inventories = ("cern", "flat-hosts")
    rows = ((f"`{name}`", *row) for name in inventories for row in settings_of("operators-large", name))
    return table(f"| Inventory | Setting {SETTING_HEAD}", rows)


@figure
def operators_gpu() -> str:
    found = {setting: made for (_, setting), made in measured_at("operators-gpu").items()}

    def row(setting: str) -> tuple[str, ...]:
        made = found[setting]
        sent, lost = (sum(each[name] for each in made) for name in ("requests", "unanswered"))
        hosts = {each["hosts"] for each in made} - {None}
        latency = units.NOT_MEASURED if lost else ranged([each["latency_s"] for each in made])
        return SETTINGS[setting], f"{lost} of {sent}", " to ".join(map(str, sorted(hosts))), latency

    head = "| Setting | Requests without a response in 20 s | Hosts with candidates | Latency, s |"
    return table(head, map(row, filter(found.__contains__, SETTINGS)))


SETTING_HEAD = "| CPU per request, ms | Change of CPU | Latency, s | Requests per second |"
SETTINGS = {
    "as installed": "as installed",
    "limit=10": "`limit=10`",
    "max_allocation_candidates=1000": "`max_allocation_candidates=1000`",
    "max_allocation_candidates=1000, breadth-first": "`max_allocation_candidates=1000`, `breadth-first`",
    "randomize_allocation_candidates": "`randomize_allocation_candidates`",
    "optimize_for_wide_provider_trees": "`optimize_for_wide_provider_trees`",
    "wide trees, max 1000, breadth-first": "both, and `breadth-first`",
    "gc.freeze()": "`gc.freeze()`",
    "4 processes": "4 processes",
    "4 threads": "4 threads",
}


@figure
def herd() -> str:
    def interval(values: Sequence[float]) -> str:
        made = median_interval(values)
        limits = f" [{made.low:.2f}, {made.high:.2f}]" if made.low != made.high else ""
        return f"{made.median:.2f}{limits}"

    rows = [
        (
            f"`{topology}`",
            schedulers,
            "yes" if randomized else "no",
            len(made),
            interval([(each["conflicts"] + each["updates"]) / each["claims"] for each in made]),
            f"{statistics.median(each['hosts'] for each in made):g}",
            interval([each["overcommitted"] for each in made]),
        )
        for (topology, schedulers, randomized), made in sorted(measured_at("herd").items())
    ]
    head = "| Inventory | Schedulers | Randomized | n | 409 per claim | Hosts claimed | Hosts over capacity |"
    return table(head, rows)


@figure
def drivers_beyond_arrays() -> str:
    arrays, both = (
        compared("drivers.json", f"tuned+{name}")["ratios"]
        for name in ("binding:any_array", "driver:psycopg3+binding:any_array")
    )
    return effect(*paired(arrays, both), n=f"; n = {len(both)}")


@figure
@where_measured("sql-share.json")
def sql_share() -> str:
    """The share of a request's time in the driver, of each variant."""
    made = raw("sql-share.json")
    shares = {
        variant: median_interval([each["driver_s"] / each["elapsed_s"] for each in seconds])
        for variant, seconds in made["seconds"].items()
    }
    said = [
        f"`{variant}` {each.median * 100:.0f} % [{each.low * 100:.0f}, {each.high * 100:.0f}]"
        for variant, each in shares.items()
        if each.low is not None and each.high is not None
    ]
    return f"{', '.join(said)} of a request on {made['trees']} trees, n = {made['n']}"


# --- losses.json, scaleout.json


def doubt(made: dict[str, Any]) -> str:
    return f"{made['in_doubt']}, {made['in_doubt_and_found']}" if made["in_doubt"] else ""


@figure
def losses() -> str:
    labels = (
        "none",
        "overload: 200 users",
        "a pool of one connection per process",
        "`kill -9` of a worker, three times",
        "`kill -9` of PostgreSQL half-way, restarted on its data a second later",
        "the same, with `synchronous_commit=off`",
    )
    rows = [
        (label, *(made[name] for name in ("sent", "acknowledged", "found")), lost(made), made["doubled"], doubt(made))
        for label, made in zip(labels, loss_cases(), strict=True)
    ]
    return table("| Fault | Sent | Acknowledged | Found | Lost | Doubled | In doubt, of which found |", rows)


@figure
def losses_load() -> str:
    made = raw("losses.json")
    return f"{made['time_s']:g} seconds, {units.numbered(made['n'], 'run')} per case"


def loss_cases() -> list[dict[str, int]]:
    """The counts of each case, over its runs."""
    names = ("sent", "acknowledged", "found", "lost", "doubled", "in_doubt", "in_doubt_and_found")
    cases = raw("losses.json")["cases"].values()
    runs = [made if isinstance(made, list) else [made] for made in cases]
    return [{name: sum(each[name] for each in made) for name in names} for made in runs]


def lost(made: dict[str, Any]) -> str:
    return f"**{made['lost']}**" if made["lost"] else "0"


@figure
def losses_in_words() -> str:
    *safe, unsafe = loss_cases()
    acknowledged, gone = (sum(made[name] for made in safe) for name in ("acknowledged", "lost"))
    many = {5: "five"}[len(safe)]
    killed = f"{unsafe['lost']} of {unsafe['acknowledged']}"
    runs = units.numbered(raw("losses.json")["n"], "run").replace("1 run", "one run")
    return f"{gone or 'None'} of {acknowledged} in {many} cases of {runs} each; {killed}"


def _sum_of(counts: Sequence[int], all_: Sequence[int]) -> str:
    """Of how many in all, with the range over the runs where there are several."""
    total = f"{sum(counts)} of {units.count(sum(all_))}"
    return f"{total} ({min(counts)}–{max(counts)})" if any(counts) and len(counts) > 1 else total


def _longest(values: Sequence[float | None]) -> str:
    seconds = [each for each in values if each is not None]
    if not seconds:
        return "not known"
    one = f"{statistics.median(seconds):.2f}"
    return one if len(seconds) == 1 else f"{one} ({min(seconds):.2f}–{max(seconds):.2f})"


@figure
def scaleout() -> str:
    cases: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for made in chain.from_iterable(part["runs"] for part in raw("scaleout.json")["parts"]):
        what = made["fault"] + ("" if made["with_position"] else ", reads without the position")
        cases.setdefault((what, made["replication"], units.count(made["claims"])), []).append(made)
    rows = []
    for case, runs in sorted(cases.items(), key=lambda each: (not each[0][0].startswith("none"), each[0])):
        histories = [made["history"] for made in runs]
        writes = [history["writes"] for history in histories]
        errors = sum((Counter(made["errors"]) for made in runs), Counter[str]())
        in_doubt, there = (sum(each[name] for each in writes) for name in ("in_doubt", "in_doubt_and_found"))
        row = (
            *case,
            len(runs),
            _sum_of([history["stale"] for history in histories], [history["reads"] for history in histories]),
            _sum_of([each["lost"] for each in writes], [each["acknowledged"] for each in writes]),
            f"{in_doubt}, {there}" if in_doubt else "",
            *(_longest([made[f"longest_without_{kind}_s"] for made in runs]) for kind in ("write", "read")),
            ", ".join(f"{name}: {count}" for name, count in sorted(errors.items())) or "none",
        )
        rows.append(row)
    head = "| Fault | Replication | Claims per run | n | Stale reads | Acknowledged writes that were lost |"
    return table(f"{head} In doubt, of which found | s without write | s without read | Errors |", rows)


@figure
def scaleout_impossible() -> str:
    """What no history may have."""
    histories = [
        made["history"] for made in chain.from_iterable(part["runs"] for part in raw("scaleout.json")["parts"])
    ]
    made = [each["backwards"] + each["unwritten"] + each["writes"]["doubled"] for each in histories]
    return f"{sum(made)} in {len(histories)} runs"


@figure
def scaleout_history() -> str:
    """Of the long histories: all that were made without a fault alone."""
    runs = [part["runs"][0] for part in raw("scaleout.json")["parts"] if len(part["runs"]) == 1]
    found = [made["history"] for made in runs]
    operations = sum(each["reads"] + each["writes"]["acknowledged"] for each in found)
    stale, lost = sum(each["stale"] for each in found), sum(each["writes"]["lost"] for each in found)
    claims = units.count(sum(made["claims"] for made in runs))
    return f"{claims} claims in {len(runs)} histories, {units.count(operations)} operations: {stale} stale, {lost} lost"


# --- scaleout-cost.json


def _ms(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.2f}"


def _more_ms(seconds: Sequence[float]) -> str:
    found = hodges_lehmann([each * 1e3 for each in seconds])
    return f"{found.estimate:+.2f} [{found.low:+.2f}, {found.high:+.2f}; n = {len(seconds)}]".replace("-", "−")


@figure
def scaleout_nginx() -> str:
    costs = raw("scaleout-cost.json")["nginx"].items()
    rows = [
        (
            name,
            *(_ms(each[way]) for way in ("direct_s", "nginx_s")),
            _ms(each["parts_s"]["nginx"]["nginx"]),
            _more_ms(each["more_s"]),
        )
        for name, each in costs
    ]
    return table("| Response | CPU directly, ms | CPU through nginx, ms | of nginx itself | More, ms [95 % CI] |", rows)


@figure
def scaleout_writes() -> str:
    rows = []
    for name, each in raw("scaleout-cost.json")["writes"].items():
        parts = [_ms(each["cpu_s"][part]) if part in each["cpu_s"] else "" for part in ("host1", "node0", "node1")]
        rows.append((name, _ms(each["elapsed_s"]), _more_ms(each["more_s"]) if "more_s" in each else "", *parts))
    head = "| Replication | Time per write, ms | More, ms [95 % CI] | CPU of the host, ms |"
    return table(f"{head} of the primary | of the replica |", rows)


@figure
def scaleout_lag() -> str:
    lags = raw("scaleout-cost.json")["lag_s"]
    parts = statistics.quantiles(lags, n=20, method="inclusive")
    median, p95, most = (f"{seconds * 1e3:.2f} ms" for seconds in (parts[9], parts[18], max(lags)))
    return f"median {median}, 95th percentile {p95}, at most {most} (n = {len(lags)})"


@figure
def scaleout_started() -> str:
    return " s, ".join(f"{seconds:.1f}" for seconds in raw("scaleout-cost.json")["started_s"].values()) + " s"


# --- scaleout-7000.json, scaleout-60000.json, scaleout-1000000.json

SIZES_FILE = "scaleout-7000.json"
OF_CACHED, OF_60000, OF_A_MILLION = "scaleout-cached.json", "scaleout-60000.json", "scaleout-1000000.json"


@figure
def scaleout_sizes() -> str:
    return _size_rows(raw(SIZES_FILE))


@figure
def scaleout_sizes_cached() -> str:
    return _size_rows(raw(OF_CACHED))


@figure
def scaleout_sizes_60000() -> str:
    return _size_rows(raw(OF_60000))


@figure
def scaleout_sizes_million() -> str:
    return _size_rows(raw(OF_A_MILLION))


def _size_rows(document: dict[str, Any]) -> str:
    rows = []
    for row in document["rows"]:
        rates = [
            each["values"]["throughput_per_s"]
            for each in document["measurements"]
            if each["point"] == {part: row[part] for part in ("hosts", "replicas")} and not each["invalid"]
        ]
        parts = [f"{row[f'{part}_cpu_s'] * 1e3:.2f}" for part in ("nginx", "hosts", "primary", "replicas")]
        times = [f"{row[each] * 1e3:.0f}" for each in ("latency_s", "latency_s_p99")]
        rate = f"{row['throughput_per_s']:.1f} ({min(rates):.1f}–{max(rates):.1f})"
        extrapolated = f"{row['separate_per_s']:.0f}, {row['limited_by']}"
        rows.append(
            (row["hosts"], row["replicas"], row["n"], rate, *times, *parts, f"{row['cores_used']:.2f}", extrapolated)
        )
    head = "| Hosts | Replicas | n | Requests/s (range) | Median, ms | p99, ms | CPU per request, ms: nginx |"
    return table(f"{head} hosts | primary | replicas | Cores used | Extrapolated: a core each, limited by |", rows)


def scaleout_chart() -> str:
    """Throughput by hosts beside one replica."""
    from picture_file import picture_file

    document = raw(SIZES_FILE)
    sizes: dict[int, list[float]] = {}
    for each in document["measurements"]:
        if each["point"]["replicas"] == 1 and not each["invalid"]:
            sizes.setdefault(each["point"]["hosts"], []).append(each["values"]["throughput_per_s"])
    seen = [(float(size), statistics.median(sizes[size])) for size in sorted(sizes)]
    chart = lines(
        [Line("measured", seen, "variant")],
        title="Throughput by hosts",
        description="The median measured for each number of hosts.",
        show=units.rate,
        show_where=lambda where: f"{where:g}",
    )
    return picture_file(chart)


# --- repeats.json

REPEATED = ("naive", "tuned")


@dataclass(frozen=True)
class Components:
    """The variance of log ratios in and between runs of as many replicates each (one-way random effects)."""

    runs: int
    replicates: int
    """Of each run."""
    predicted_sd: float
    """Of a run's mean, by its replicates alone."""
    observed_sd: float
    """Of the means of the runs."""
    between_sd: float
    """Of what the runs truly are; 0 where they differ by no more than their replicates say."""

    @property
    def widening(self) -> float:
        """How many times as wide an interval has to be, so that it holds beyond its run."""
        return math.hypot(self.predicted_sd, self.between_sd) / self.predicted_sd


def components(runs: Sequence[Sequence[float]]) -> Components:
    """Analysis of variance by the method of moments. Source: Searle, Casella and McCulloch 1992, ch. 3."""
    (size,) = {len(run) for run in runs}
    predicted = statistics.fmean(statistics.variance(run) for run in runs) / size
    observed = statistics.variance([statistics.fmean(run) for run in runs])
    between = math.sqrt(max(0.0, observed - predicted))
    return Components(len(runs), size, math.sqrt(predicted), math.sqrt(observed), between)


def log_ratios(run: dict[str, Any]) -> list[float]:
    """Of tuned over naive, a value a replicate."""
    before, after = (run["cpu_ms"][name] for name in REPEATED)
    return [math.log(b / a) for a, b in zip(before, after, strict=True)]


def percentiles(of: Callable[[Components], float], runs: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The 95 % interval of what is computed of the runs, by a bootstrap of whole runs, seeded."""
    chance = random.Random(1)
    drawn = sorted(of(components(chance.choices(runs, k=len(runs)))) for _ in range(2000))
    return drawn[49], drawn[1949]


@figure
def repeats_components() -> str:
    runs = [log_ratios(run) for run in raw("repeats.json")["runs"] if not run["beside"]]
    made, (low, high) = components(runs), percentiles(lambda each: each.between_sd, runs)
    whole = hodges_lehmann([pseudo_median(run) for run in runs]).estimate
    intervals = [hodges_lehmann(run) for run in runs]
    held = sum(each.low <= whole <= each.high for each in intervals)
    narrow, wide = percentiles(lambda each: each.widening, runs)
    rows = [
        ("Runs, replicates in each", f"{made.runs}, {made.replicates}"),
        ("Standard deviation of a run's mean, as its replicates predict it", f"{made.predicted_sd * 100:.2f} %"),
        ("The same, as the runs differ", f"{made.observed_sd * 100:.2f} %"),
        (
            "Part between runs, which no interval has",
            f"{made.between_sd * 100:.2f} % [{low * 100:.2f}, {high * 100:.2f}]",
        ),
        ("An interval would have to be wider by", f"{made.widening:.2f}× [{narrow:.2f}, {wide:.2f}]"),
        ("Runs whose interval holds the estimate of all runs", f"{held} of {made.runs}"),
    ]
    return table("| | |", rows)


# --- sequential.json


@figure
def sequential_null() -> str:
    names = {
        "normal": "normal",
        "t, 3 degrees of freedom": "heavy-tailed (t, 3 degrees of freedom)",
        "gamma, skewness 1": "skewed (gamma, skewness 1)",
        "drift": "drift of the machine, random order",
        **{f"autocorrelated {each}": f"autocorrelated, {each}" for each in (0.1, 0.2, 0.4)},
    }
    found = {each["errors"]: each for each in raw("sequential.json")["false_positives"] if each["noise"] == 0.02}
    designs = ("sequential", "interim_12_24_36", "fixed_12")
    rows = [(label, *(f"{found[name][each] * 100:.1f} %" for each in designs)) for name, label in names.items()]
    return table("| Errors | sequential | analyses after 12, 24, 36 (98.66 %) | fixed 12 |", rows)


@figure
def sequential_power() -> str:
    rows = []
    for made in (each for each in raw("sequential.json")["power"] if each["effect"]):
        one, interim, fixed = made["sequential"], made["interim_12_24_36"], made["fixed_12"]
        rows.append(
            (
                f"{made['effect'] * 100:.0f} %, noise {made['noise'] * 100:.0f} %",
                f"{one['different'] * 100:.0f} %, {one['replicates_mean']:.1f} ({one['replicates_p90']})",
                f"{interim['different'] * 100:.0f} %, {interim['replicates_mean']:.1f}",
                f"{fixed['different'] * 100:.0f} %, 12",
            )
        )
    return table("| Effect | sequential | analyses after 12, 24, 36 | fixed 12 |", rows)


# --- controls.json


@figure
def controls() -> str:
    rows = [
        (each["replicates"], *(f"{each[name]} of {each['runs']}" for name in ("false_alarm", "found")))
        for each in raw("controls.json")["simulated"]
    ]
    return table("| Replicates | false alarms | control found |", rows)


# --- controls-real.json

QUIET = 0.1
"""Of the processors: what other programs use at most before a run on a quiet machine."""


@figure
@where_measured("controls-real.json")
def controls_real() -> str:
    runs_by_machine = defaultdict[str, list[dict[str, Any]]](list)
    for run in raw("controls-real.json")["runs"]:
        state = "quiet" if run["busy_before"] < QUIET else "busy"
        runs_by_machine[f"{run['machine']['processor']}, {state}"].append(run)
    rows = []
    for name, runs in runs_by_machine.items():
        minutes = [run["elapsed_s"] / 60 for run in runs]
        false_alarms = sum(bool({"faster", "slower"} & set(run["verdicts"].values())) for run in runs)
        found = sum(bool(run["found"]) for run in runs)
        detectable = statistics.median(run["control"]["detectable"] for run in runs)
        took = f"{statistics.median(minutes):.1f} ({max(minutes):.1f})"
        rows.append((name, len(runs), false_alarms, found, f"{100 * detectable:.1f} %", took))
    return table("| Machine | runs | false alarms | control found | MDE, median | minutes, median (longest) |", rows)


@figure
@where_measured("controls-real.json")
def controls_real_minutes() -> str:
    minutes = [each["elapsed_s"] / 60 for each in raw("controls-real.json")["runs"] if each["busy_before"] < QUIET]
    return f"{statistics.median(minutes):.1f} minutes (median of {len(minutes)} runs, {max(minutes):.1f} at most)"


# --- profiler.json, profiled.json

PROFILERS = {
    "bare": "the statement itself",
    "loop alone": "a loop of Python, by itself",
    "loop": "the same loop, run after each statement",
    "idle": "placebench, installed and idle",
    "statistics": "placebench, statistics of all statements",
    **{mode: f"placebench, `{mode}`" for mode in ("light", "full", "sampled", "external", "flame")},
}
_NO_END = ("bare", "loop alone", "loop", "idle", "external")


def _statement_us(profiler: str, database: str, when: str = "during_s") -> str:
    """Estimate and limits over the processes."""
    made = hodges_lehmann([found[profiler][when] * 1e6 for found in raw("profiler.json")["costs"][database]])
    return f"{made.estimate:.1f} [{made.low:.1f}, {made.high:.1f}]".replace("-", "−")


@figure
def profiler_statements() -> str:
    (first, *_), rows = raw("profiler.json")["costs"]["sqlite"], []
    others = [name for name in first if name not in PROFILERS]
    for name in (*PROFILERS, *others):
        end = (
            ""
            if name in ("bare", "loop", "loop alone", "idle", "external")
            else _statement_us(name, "postgresql", "end_s")
        )
        rows.append((PROFILERS.get(name, name), *(_statement_us(name, each) for each in ("sqlite", "postgresql")), end))
    return table("| | SQLite, µs | PostgreSQL, µs | at the end, µs (PostgreSQL) |", rows)


@figure
def profiler_loop() -> str:
    made = hodges_lehmann(
        [
            found["loop"]["during_s"] / found["loop alone"]["during_s"]
            for found in raw("profiler.json")["costs"]["postgresql"]
        ]
    )
    return f"{made.estimate:.1f} times [{made.low:.1f}, {made.high:.1f}; n = {raw('profiler.json')['n']}]"


@figure
def profiler_requests() -> str:
    variants = raw("profiled.json")["cpu_s"]
    modes = [mode for mode in variants["tuned"] if mode]
    rows = [(f"`{mode}`", *(effect(*paired(made[""], made[mode])) for made in variants.values())) for mode in modes]
    return table("| Mode | `naive`, which fetches row by row | `tuned` |", rows)


def _differences(program: dict[str, Any], one: str, other: str) -> list[tuple[float, float]]:
    """For each of the largest frames, by how much the shares of two modes differ, and the half-width of the interval.

    The intervals are simultaneous: all frames of a program are in theirs in 95 % of the cases (Šidák's correction). The
    variance of a mean share is that of a binomial sample, or that between the runs if it is larger.
    """
    found = []
    confidence = 0.95 ** (1 / max(len(program["shares"]), 1))
    z = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    for shares in program["shares"].values():
        variance = 0.0
        for mode in (one, other):
            mean, samples = statistics.mean(shares[mode]), max(sum(program["samples"][mode]), 1.0)
            likely = (mean * samples + 1) / (samples + 2)  # of a frame without samples too
            between_runs = statistics.variance(shares[mode]) / len(shares[mode])
            variance += max(likely * (1 - likely) / samples, between_runs)
        difference = abs(statistics.mean(shares[one]) - statistics.mean(shares[other]))
        found.append((difference, z * math.sqrt(variance)))
    return found


def _agreeing(program: dict[str, Any], one: str, other: str) -> str:
    """Of how many of the largest frames the shares of two modes agree, and by how many points they differ at most."""
    if one not in program["samples"] or other not in program["samples"]:
        return "not measured"
    found = _differences(program, one, other)
    agreeing = sum(difference <= margin for difference, margin in found)
    return f"{agreeing} of {len(found)}, {max(difference for difference, _ in found) * 100:.0f}"


_COMPARED = (("sampled", "signals"), ("flame", "signals"), ("sampled", "flame"))


@figure
def flame_programs() -> str:
    rows = []
    for name, program in raw("flame-graphs.json")["programs"].items():
        cpu, samples = program["cpu_s"], program["samples"]
        rows.append(
            (
                name,
                *(effect(*paired(cpu[""], cpu[mode])) for mode in ("sampled", "flame")),
                f"{statistics.median(samples['sampled']):.0f}",
                *(_agreeing(program, *modes) for modes in (*_COMPARED, ("sampled", "external"))),
            )
        )
    return table(
        "| Program | CPU: `sampled` | `flame` | Samples per run, `sampled` | `sampled` and the truth "
        "| `flame` and the truth | `sampled` and `flame` | `sampled` and py-spy |",
        rows,
    )


def flame_shift(one: str, other: str) -> tuple[int, int, float] | None:
    """How many frames of all programs agree, of how many, and by how much the worst one differs beyond its interval."""
    programs = raw("flame-graphs.json")["programs"].values()
    found = [each for made in programs if other in made["samples"] for each in _differences(made, one, other)]
    if not found:
        return None
    agreeing = sum(difference <= margin for difference, margin in found)
    return agreeing, len(found), max(0.0, *(difference - margin for difference, margin in found))


def flame_shifts_by_program(one: str, other: str) -> list[float]:
    """By how much the worst frame of each program differs beyond its interval, the smallest first."""
    programs = raw("flame-graphs.json")["programs"].values()
    return sorted(
        max(0.0, *(difference - margin for difference, margin in _differences(made, one, other))) for made in programs
    )


@figure
def flame_shifts() -> str:
    parts = []
    for modes, words in zip(_COMPARED, ("`sampled`", "`flame`", "the two modes"), strict=True):
        made = flame_shift(*modes)
        if made is None:
            return "not measured"
        agreeing, count, beyond = made
        parts.append(
            f"{words}: {agreeing} of {count} frames agree, the worst differs by {beyond * 100:.1f} points more"
        )
    return "; ".join(parts)


# --- history.jsonl


@figure
@where_measured("history.jsonl")
def releases() -> str:
    rows = []
    for entry in History.read(RESULTS / "history.jsonl").entries:
        cells = [f"`{entry.commit[:8]}` {entry.subject}"]
        for metric in ("cpu_s", "wall_s", "bytes_received"):
            made = entry.metrics[metric]
            if made.ratio is None or made.low is None or made.high is None:
                raise ValueError(f"{entry.commit} has no interval of {metric}")
            cells.append(effect(made.ratio, made.low, made.high))
        rows.append([*cells, entry.metrics["cpu_s"].replicates])
    return table("| Commit | CPU | Wall time | Bytes received from PostgreSQL | n |", rows)


# --- the pages


def written(text: str) -> str:
    """The same text with each figure as its raw file has it; raises KeyError for a name that no function has."""
    return MARKED.sub(lambda found: f"<!-- {found['name']} -->{FIGURES[found['name']]()}<!-- / -->", text)


def main() -> None:
    """Write the pages and the picture, or compare the pages; the picture has the style of the reports of its day."""
    wrong = []
    if "--check" not in sys.argv:
        (RESULTS / "scaleout-hosts.svg").write_text(scaleout_chart(), encoding="utf-8")
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (made := written(text)) != text:
            then, now = ([each["text"].strip() for each in MARKED.finditer(each_text)] for each_text in (text, made))
            names = [each["name"] for each in MARKED.finditer(text)]
            differ = [f"{n}: {a!r} is {b!r}" for n, a, b in zip(names, then, now, strict=True) if a != b]
            wrong.append(f"{page.relative_to(TOP)}: {'; '.join(differ)}")
            if "--check" not in sys.argv:
                page.write_text(made, encoding="utf-8")
    print(*wrong, sep="\n")
    if wrong and "--check" in sys.argv:
        sys.exit("these pages differ from the raw files: python tests/bench/published.py writes them")


if __name__ == "__main__":
    main()
