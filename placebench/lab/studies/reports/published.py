"""The throughput of every service beside what was published about Placement."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from placebench import units
from placebench.page.row_charts import Estimate, forest
from placebench.page.svg import Role
from placebench.report.model import Chart
from placebench.report.study_report import (
    StudyResults,
    interval_columns,
    interval_figures,
    measured,
    service_name,
    valid_points,
)
from placebench.results import Run
from placebench.stats import median_interval

_ORIGINAL = "naive"
_BEST = "tuned"


_COLUMNS = (
    measured("topology", "Topology"),
    measured("clients", "Clients", units.count),
    measured("requests", "Requests", units.count),
    *interval_columns("rate", "_per_s", "Throughput", units.rate),
    measured("n", "n", units.count),
    measured("latency_s_median", "Median latency", units.duration),
    measured("cpu_s_per_request", "Server CPU per request", units.duration),
    measured("times_naive", "× naive", units.times),
    measured("published_before_per_s", "Published, before", units.rate),
    measured("published_after_per_s", "Published, after", units.rate),
    measured("ratio", "× published", units.times),
)


def results(run: Run) -> StudyResults:
    """Return a row for each service, topology and number of clients; a chart for each of the last two."""
    settings, rows = run.head.settings, _rows(run)
    same = run.head.trees == settings["published_trees"]
    return StudyResults(
        headline=_headline(rows, same=same),
        rows=rows,
        columns=[measured("service", "Service", partial(service_name, among=_services(rows))), *_COLUMNS],
        charts=[_chart(topology, clients, found, same=same) for (topology, clients), found in _groups(rows)],
        summary=[_about(settings), *([] if same else [_other_data(run.head.trees, settings)])],
        notes=(
            "Throughput: the number of requests over the time from the first start to the last end, as of ab.",
            "× published is the ratio to the published figure after Placement's optimizations of 2019.",
            f"Each measurement is a new uWSGI of {settings['processes']} processes with {settings['threads']} threads.",
            "The load generator is locust; every service gave the same response before it was loaded.",
        ),
        limits=(
            "The published machine, its Python and its PostgreSQL were others: compare services within this run.",
            "Client, service and PostgreSQL share this machine's processors.",
            "10 requests are few: with 1 client see the interval.",
        ),
    )


def _rows(run: Run) -> list[dict[str, Any]]:
    published = {(each["topology"], each["clients"]): each for each in run.head.settings["published"]}
    same = run.head.trees == run.head.settings["published_trees"]
    rates = {
        _key(point): median_interval([each.values["rate_per_s"] for each in made]) for point, made in valid_points(run)
    }
    rows = []
    for point, made in valid_points(run):
        known = published.get((point["topology"], point["clients"]), {})
        rate, after = rates[_key(point)], known.get("after_per_s")
        naive = rates.get((_ORIGINAL, *_key(point)[1:]))
        requests = round(made[0].values["rate_per_s"] * made[0].values["elapsed_s"])
        cpu = [each.values["cpu_s"] for each in made if each.values["cpu_s"] is not None]
        rows.append(
            {
                **point,
                "requests": requests,
                "trees": run.head.trees,
                "elapsed_s": median_interval([each.values["elapsed_s"] for each in made]).median,
                **interval_figures("rate", "_per_s", rate),
                "confidence": rate.confidence,
                "n": rate.n,
                "latency_s_median": median_interval([each.values["latency_s_median"] for each in made]).median,
                "cpu_s_per_request": median_interval(cpu).median / requests if cpu else None,
                "body_bytes": made[0].values["body_bytes"],
                "times_naive": rate.median / naive.median if naive else None,
                "published_before_per_s": known.get("before_per_s"),
                "published_after_per_s": after,
                "ratio": rate.median / after if after and same else None,
            }
        )
    return rows


def _headline(rows: Sequence[Mapping[str, Any]], *, same: bool) -> str:
    """tuned, or the first service, with 40 clients on the nested data set, beside naive and what was published."""
    found = {row["service"]: row for row in rows if row["clients"] == 40 and row["topology"] == "nested-perfload"}
    best = found.get(_BEST) or next(iter(found.values()), None)
    if best is None:
        return "The reference request was not measured with 40 clients."
    said = f"{best['service']} serves {units.rate(best['rate_per_s'])} of the reference request with 40 clients"
    if best["times_naive"] is not None and best["service"] != _ORIGINAL:
        said += f", {units.times(best['times_naive'])} the throughput of {_ORIGINAL}"
    if "placement" in found:
        said += f"; the real Placement {units.rate(found['placement']['rate_per_s'])}"
    if same:
        return f"{said}; published: {units.rate(best['published_after_per_s'])}, on another machine."
    return f"{said}."


def _groups(rows: Sequence[dict[str, Any]]) -> list[tuple[tuple[str, int], list[dict[str, Any]]]]:
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["topology"], row["clients"]), []).append(row)
    return list(groups.items())


def _chart(topology: str, clients: int, rows: Sequence[Mapping[str, Any]], *, same: bool) -> tuple[str, Chart]:
    drawn = [
        Estimate(
            service_name(row["service"], _services(rows)),
            units.rate(row["rate_per_s"]),
            row["rate_per_s"],
            row["rate_low_per_s"],
            row["rate_high_per_s"],
            _role(row["service"]),
        )
        for row in rows
    ]
    first = rows[0]
    if same and first["published_after_per_s"] is not None:
        drawn += [
            _published("before", first["published_before_per_s"]),
            _published("after", first["published_after_per_s"]),
        ]
    users = units.numbered(clients, "client")
    svg = forest(
        drawn,
        title=f"Requests per second, {topology}, {users}",
        description=", ".join(f"{each.label} {each.text}" for each in drawn),
        show=units.rate,
    )
    requests = units.count(first["requests"])
    caption = f"Exactly {requests} requests. Further right is better; equal distances are equal factors."
    return f"{topology}, {users}", Chart(svg, caption)


def _published(when: str, rate_per_s: float) -> Estimate:
    return Estimate(f"published, {when}", units.rate(rate_per_s), rate_per_s)


def _services(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [row["service"] for row in rows]


def _role(service: str) -> Role:
    return "baseline" if service == _ORIGINAL else "variant" if service == _BEST else "between"


def _about(settings: Mapping[str, Any]) -> str:
    return f"Published: {settings['published_source']}; on {settings['published_machine']}."


def _other_data(trees: int, settings: Mapping[str, Any]) -> str:
    of = units.count(settings["published_trees"])
    return f"The published figures are of {of} trees, these of {units.count(trees)}, so there is no ratio of the two."


def _key(point: Mapping[str, Any]) -> tuple[str, str, int]:
    return point["service"], point["topology"], point["clients"]
