"""`placebench compare`: versions of a service, measured in interleaved blocks, each with an interval and a verdict."""

from argparse import ArgumentParser
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench import limits
from placebench.commands import STARTS_SERVERS, Command, options
from placebench.commands.runs import compare_plan, first_given
from placebench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placebench.compare.what.data_setup import DatabaseKind
    from placebench.compare.what.workload import WorkloadKeys

_MIN_LOAD_REPLICATES = 10
"""Under load there are five metrics beside CPU: with fewer, none of them alone could have a verdict."""
_REPLICATES = {"quick": 8, "default": 12, "publish": 30}
_STEP_S, _QUICK_STEP_S = 10.0, 3.0
"""The least duration of a step of --slo."""
_NOT_WITH_SLO = (
    *("gate", "sequential", "width", "rounds", "control", "users", "rate", "bound", "warmup", "requests_from"),
    *("routes", "host", "client_host", "topology", "trees", "utilization"),
)
_CONTROLS = {"quick": "3%"}
"""The control of the preset that CI uses, unless another one is named or none."""


@dataclass(frozen=True)
class CompareOptions:
    """The options of `placebench compare`."""

    comparison: options.ComparisonOptions
    requests: options.RequestOptions
    base: str | None
    variants: tuple[str, ...]
    plan: Path | None
    preset: str | None
    setup: str | None
    template_db: str | None
    database: "DatabaseKind | None"
    users: int | None
    rate: float | None
    bound: float | None
    warmup: int | None
    gate: tuple[str, ...]
    requests_from: Path | None
    routes: str | None
    slo: str | None


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "base", nargs="?", metavar="BASE", help="variant that the others are compared with (default: all of the plan)"
    )
    parser.add_argument(
        "variants",
        nargs="*",
        metavar="VARIANT",
        help="variant: a table of the plan, a git revision if the plan has a table app, a variant of the reference "
        "service, noop, or placement",
    )
    options.add_plan(parser)
    options.add_replicates(parser, "the plan's, or 12; with --sequential the most: 100")
    options.add_sequential(parser)
    shown = {name: f" and --control {control.replace('%', '%%')}" for name, control in _CONTROLS.items()}
    options.add_preset(
        parser, **{name: f"{number} replicates{shown.get(name, '')}" for name, number in _REPLICATES.items()}
    )
    options.add_requests(parser, default="the plan's")
    options.add_login(parser)
    parser.add_argument(
        "--requests-from",
        type=options.path,
        metavar="FILE",
        help="access log, HAR file or OpenAPI document, whose requests are sent as a mix, weighted by how often each "
        "route is requested; only those that read (default: the plan's requests)",
    )
    parser.add_argument(
        "--routes",
        choices=("keep-going",),
        help="keep-going: leave out routes that fail or whose responses differ, and name them (default: they end the "
        "run)",
    )
    options.add_comparison(parser, rounds="the plan's, or 24", requests=False)
    options.add_host(parser)
    options.add_own_application(parser)
    parser.add_argument(
        "--users",
        type=options.whole(1, limits.COMPARED_USERS),
        metavar="N",
        help="number of users that send requests at the same time, each the next one after its response (default: the "
        "plan's, or 1), as ab -c N does; more than one measure throughput and percentiles under load, of at least ten "
        "requests of each user in a block: 400 or more for --users 40",
    )
    parser.add_argument(
        "--control",
        type=options.text,
        metavar="AMOUNT",
        help="also measure the base with a change that the run must find: 3%% more CPU per request, wait:1ms, or one "
        "statement more; if it is not found, no gate on such a metric passes, and the exit code is 3 (default: the "
        "plan's, or that of --preset; none leaves it out)",
    )
    parser.add_argument(
        "--rate",
        type=options.number(0, limits.COMPARED_RATE_PER_S, above=True),
        metavar="R",
        help="requests that arrive per second, whatever the responses, at random moments that are the same for all "
        "variants (default: the plan's); latency counts from the moment a request was due",
    )
    parser.add_argument(
        "--bound",
        type=options.duration,
        metavar="TIME",
        help="what a slow request exceeds, such as 200ms, for their share (default: the plan's bound_s, or twice "
        "the base's p98 of each replicate)",
    )
    parser.add_argument(
        "--warmup",
        type=options.warmup_count,
        metavar="N",
        help="requests that each process serves before anything is timed (default: the plan's, or 3)",
    )
    parser.add_argument(
        "--slo",
        metavar="EXPR",
        help="compare the highest arrival rates at which this holds, such as 'p95 <= 500ms', instead of times: one "
        "search, then five rates per variant and replicate, as placebench load --slo does; 6 replicates by default",
    )
    options.add_gates(parser)


def _run(given: CompareOptions) -> int:
    """Compare the variants; measurements are reported even if the run is interrupted or fails."""
    from placebench.compare.what.trials import read_plan
    from placebench.report import parse_gates
    from placebench.stats import METRICS, primary_metric, significance_shares
    from placebench.stats.replicates import LIFETIME

    gates = [] if given.slo else parse_gates(given.gate)
    plan = read_plan(given.plan)
    if given.base is not None:
        plan = replace(plan, variants=(given.base, *given.variants), trials=())
    if len(plan.variants) < 2:
        where = given.plan or "[tool.placebench] of ./pyproject.toml"
        again = "; to resume a run, repeat its command with --resume" if given.comparison.run.resume else ""
        raise UsageError(f"two variants are needed, the base first: name them, or describe them in {where}{again}")
    if given.slo:
        return _compare_capacities(given, plan.variants)
    plan = replace(
        plan,
        setup=given.setup or plan.setup,
        template_db=given.template_db or plan.template_db,
        database=given.database or plan.database,
        users=given.users or plan.users,
        rate=given.rate or plan.rate,
        bound_s=given.bound or plan.bound_s,
        warmup=first_given(given.warmup, plan.warmup, default=0),
    )
    if plan.rate and plan.users:
        raise UsageError(
            f"a rate of {plan.rate:g} per second and {plan.users} users: users wait for responses, and arrivals at a "
            "rate do not; leave one of them out"
        )
    measured = [*significance_shares(primary_metric(users=plan.users or 1, rate=plan.rate)), *LIFETIME]
    for gate in gates:
        if gate.metric in METRICS and gate.metric not in measured:
            load = f"at a rate of {plan.rate:g} per second" if plan.rate else f"with --users {plan.users or 1}"
            expected = ", ".join([*measured, "or a count"])
            raise UsageError(f"gate {gate.text!r}: {gate.metric} is not measured {load}: expected one of {expected}")
    if plan.database == "none" and plan.template_db:
        raise UsageError(
            f'template_db {plan.template_db!r} with database = "none": no database is copied; leave one of them out'
        )
    plan = replace(plan, workload=_workload_keys(given, plan.workload))
    if given.preset and given.comparison.sequential:
        raise UsageError("--preset is a number of replicates, and --sequential decides it: give one of the two")
    if given.preset and given.comparison.replicates is None:
        fewest = _MIN_LOAD_REPLICATES if (plan.users or 1) > 1 or plan.rate else 0
        plan = replace(plan, replicates=max(fewest, _REPLICATES[given.preset]))
    compare_plan(
        given.comparison,
        plan,
        gates=gates,
        requests=given.requests.requests(),
        login=given.requests.logins(),
        default_control=_CONTROLS.get(given.preset or ""),
        decides_unread=all(gate.is_ratio or gate.metric not in METRICS for gate in gates),
    )
    return 0


def _compare_capacities(given: CompareOptions, variants: "Sequence[str]") -> int:
    """Measure the capacity of each variant, and its ratio to that of the base in the same replicate."""
    from placebench.commands.study_application import ApplicationOptions, measure_saturation

    compared = given.comparison
    why = "with --slo: capacities are compared by loads of their own; leave it out"
    options.refuse(given, _NOT_WITH_SLO, why)
    return measure_saturation(
        compared,
        ApplicationOptions(
            given.requests,
            axis=(f"variant={','.join(variants)}",),
            plan=given.plan,
            setup=given.setup,
            template_db=given.template_db,
            database=given.database,
            python=compared.python,
            seed=compared.data.seed,
        ),
        slo=given.slo,
        step_s=_QUICK_STEP_S if given.preset == "quick" else _STEP_S,
        replicates=compared.replicates,
        name="compare-capacity",
    )


def _workload_keys(given: CompareOptions, keys: "WorkloadKeys") -> "WorkloadKeys":
    """Return the plan's keys of the requests, with --requests-from and --routes in place of its own."""
    from msgspec import structs

    if given.routes:
        keys = structs.replace(keys, routes="keep-going")
    if given.requests_from is None:
        return keys
    if given.requests.requests_given:
        raise UsageError("--requests-from and --request: expected one of them")
    if given.comparison.run.host:
        raise UsageError(
            f"--requests-from {given.requests_from} with --host: the file is not copied there; name it in the plan, as "
            "requests_from, in the folder of the plan"
        )
    others: dict[str, Any] = {"request": None, "requests": [], "workload": None, "locustfile": None, "har": None}
    return structs.replace(keys, **others, requests_from=str(given.requests_from.absolute()))


COMMANDS = {"compare": Command(_configure, _run, options=CompareOptions, needs_linux=STARTS_SERVERS)}
