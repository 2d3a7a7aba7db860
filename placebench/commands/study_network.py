"""`placebench study network`: an application or a command behind links, from none to a jump box at 370 ms."""

import os
import shutil
from argparse import ArgumentParser, ArgumentTypeError
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from placebench import limits
from placebench.commands import STARTS_SERVERS, Command, options
from placebench.commands.runs import first_given, measure_study, plan_data, refuse_unused_server, run_folder
from placebench.commands.study import OwnStudyOptions
from placebench.errors import CommandNotFoundError, UsageError

if TYPE_CHECKING:
    from placebench.compare.what.trials import Experiment
    from placebench.compare.what.variants import Variant
    from placebench.study.behind_link import Links
    from placebench.study.link_target import LinkTarget

_LATENCIES: Final = ("0", "26", "50", "180", "250", "370", "50+180")
_QUICK_LATENCIES: Final = ("0", "50")
_TIMEOUT_S: Final = 600.0
_VARIABLE: Final = "DATABASE_URL"
_OF_COMMANDS = ("axis", "link", "prepare", "timeout")
_OF_APPLICATIONS = ("variants", "plan", "between", "compress", "operations", "clients", "requests_given", "login")


@dataclass(frozen=True)
class StudyNetworkOptions(OwnStudyOptions):
    """The options of `placebench study network`; work: the words of a command, empty for applications of a plan."""

    requests: options.RequestOptions
    work: tuple[str, ...]
    axis: tuple[str, ...] | None
    link: str | None
    prepare: str | None
    variants: tuple[str, ...] | None
    plan: Path | None
    between: Literal["database", "client"] | None
    compress: bool
    operations: int | None
    clients: int | None
    setup: str | None
    template_db: str | None
    latency_ms: tuple[str, ...] | None
    bandwidth_mbit: float | None
    loss: float


def _links(text: str) -> list[str]:
    """Parse latencies in milliseconds with commas between, of which 50+180 is a jump box."""
    found = []
    for link in text.split(","):
        parts = [options.number(0, limits.LATENCY_MS)(part) for part in link.split("+")]
        if len(parts) > limits.PROXIES:
            raise ArgumentTypeError(f"{link!r}: expected {limits.PROXIES} links in a row at most")
        found.append("+".join(f"{part:g}" for part in parts))
    return list(dict.fromkeys(found))


def _configure(parser: ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [options] [-- COMMAND ...]"
    parser.add_argument(
        "work",
        nargs="*",
        metavar="COMMAND",
        help="a command, in whose words {url}, {address} and {port} are those of the link; variables such as "
        f"${_VARIABLE} that have the same address are changed too (default: the application of the plan)",
    )
    parser.add_argument(
        "--latency-ms",
        type=_links,
        metavar="MS,MS",
        help="round-trip times of the network, 0 to 370 ms; 50+180 is a jump box, two links in a row (default: "
        f"{','.join(_LATENCIES)}; --preset quick: {','.join(_QUICK_LATENCIES)})",
    )
    parser.add_argument(
        "--bandwidth-mbit",
        type=options.number(0, limits.BANDWIDTH_MBIT, above=True),
        metavar="X",
        help="bandwidth in each direction (default: no limit)",
    )
    options.add_loss(parser)
    command = parser.add_argument_group("a command")
    command.add_argument(
        "--link",
        type=options.text,
        metavar="TARGET",
        help=f"what the links lead to: HOST:PORT, or the URL of a database or service (default: ${_VARIABLE}, or the "
        "copy of --setup or --template-db)",
    )
    command.add_argument(
        "--axis",
        type=options.text,
        action="append",
        metavar="NAME=V,V",
        help="values that replace {NAME} in the command, compared with the first; repeatable (default: none)",
    )
    command.add_argument(
        "--prepare",
        type=options.text,
        metavar="COMMAND",
        help="shell command that is run before each measurement, without the link (default: none)",
    )
    command.add_argument(
        "--timeout",
        type=options.seconds,
        metavar="S",
        help=f"seconds after which a measurement is given up (default: {_TIMEOUT_S:g})",
    )
    application = parser.add_argument_group("an application")
    options.add_plan(application)
    application.add_argument(
        "--variants",
        type=options.names,
        metavar="V,V",
        help="variants, the base first: tables of the plan or git revisions (default: all of the plan, or its app)",
    )
    application.add_argument(
        "--between",
        choices=("database", "client"),
        help="which side of the application is far away (default: database)",
    )
    application.add_argument(
        "--compress", action="store_true", help="with --between client: measure responses compressed by gzip too"
    )
    application.add_argument(
        "--operations",
        type=options.whole(1, limits.OPERATIONS),
        metavar="N",
        help="number of times that the requests are sent in a measurement (default: 1)",
    )
    application.add_argument(
        "--clients",
        type=options.whole(1, limits.CLIENTS),
        metavar="N",
        help="number of clients that send the requests at the same time (default: 1)",
    )
    options.add_requests(parser, default="the plan's")
    options.add_login(parser)
    options.add_data_of_own(parser)
    options.add_replicates(parser, options.STUDY_REPLICATES, at_least=1)
    options.add_preset(parser, quick=f"{' and '.join(_QUICK_LATENCIES)} ms", default="all")
    options.add_seed(parser, "seed of the order of the measurements, and of losses", plan="plan")
    options.add_run(parser)
    options.add_output(parser, markdown=True, page=True)


def _run(given: StudyNetworkOptions) -> int:
    """Measure the command or the applications behind every link; those that fail are named."""
    from placebench.study.behind_link import Links

    if given.work:
        options.refuse(given, _OF_APPLICATIONS, "is for an application: leave it or the command out")
    else:
        options.refuse(given, _OF_COMMANDS, "is for a command: put it behind --")
    links = Links(
        links=given.latency_ms or (_QUICK_LATENCIES if given.preset == "quick" else _LATENCIES),
        bytes_per_s=None if given.bandwidth_mbit is None else given.bandwidth_mbit * 1e6 / 8,
        loss=given.loss / 100,
    )
    return _run_command(given, links) if given.work else _run_applications(given, links)


def _run_command(given: StudyNetworkOptions, links: "Links") -> int:
    from placebench.compare.what.data_setup import OwnData, kind_of_template
    from placebench.runtime.postgres import open_server
    from placebench.study.axes import read_axes
    from placebench.study.command_network import CommandNetwork, CommandSession

    axes = read_axes(given.axis or (), given.work)
    if taken := {"url", "address", "port"} & axes.keys():
        raise UsageError(f"--axis {min(taken)}: {{{min(taken)}}} is that of the link; give the axis another name")
    if "{" not in given.work[0] and shutil.which(given.work[0]) is None:
        raise CommandNotFoundError(
            f"the command {given.work[0]!r} was not found: expected a program on PATH or a file; applications are "
            "described by [tool.placebench], and measured without a command"
        )
    target, copied = _target(given), bool(given.setup or given.template_db)
    seed = first_given(given.seed, default=options.SEED)
    data = OwnData(seed=seed, database="none")
    if copied:
        if given.template_db and kind_of_template(given.template_db) == "sqlite":
            raise UsageError("--template-db is SQLite, which has no network: a link needs a database server")
        data = OwnData(seed=seed, command=given.setup or "", template=given.template_db or "")
    study = CommandNetwork(
        command=given.work,
        links=links,
        target=target,
        axes=axes,
        prepare=given.prepare or "",
        timeout_s=given.timeout or _TIMEOUT_S,
    )
    spec = study.spec(repeats=given.replicates or options.STUDY_REPLICATES)
    with ExitStack() as stack:
        folder = stack.enter_context(run_folder(given.run, spec.command))
        server = stack.enter_context(open_server(given.run.server)) if copied else None
        return measure_study(given, CommandSession(spec, data, folder, server), folder)


def _target(given: StudyNetworkOptions) -> "LinkTarget | None":
    """Return what the links of a command lead to; None for a copy of the data."""
    from placebench.study.link_target import LinkTarget

    if given.setup or given.template_db:
        if given.link:
            raise UsageError("--link is the command's own server, and --setup or --template-db make one: leave one out")
        return None
    if given.run.server:
        raise UsageError("--server is for copies of data: add --setup or --template-db, or use --link")
    if text := given.link or os.environ.get(_VARIABLE):
        return LinkTarget.parse(text)
    raise UsageError(
        f"what does the command talk to? give --link HOST:PORT or a URL, or set ${_VARIABLE}; --setup COMMAND makes a "
        "database for it"
    )


def _run_applications(given: StudyNetworkOptions, links: "Links") -> int:
    from placebench.compare.measure.databases import check_settings
    from placebench.compare.what.trials import read_plan
    from placebench.runtime.postgres import open_server
    from placebench.study.network import ApplicationNetwork, ApplicationSession

    plan = read_plan(given.plan)
    plan = replace(plan, setup=given.setup or plan.setup, template_db=given.template_db or plan.template_db)
    variants = _variants(given, plan)
    for key, value in (("users", plan.users), ("rate", plan.rate)):
        if value:
            raise UsageError(f"{plan.source}: {key} is for placebench compare; here --clients says how many send")
    seeded = options.PlanDataOptions(seed=given.seed)
    data, workload = plan_data(seeded, plan, variants, given.requests.requests(), given.requests.logins())
    between = given.between or "database"
    if between == "database" and data.database in ("sqlite", "none"):
        what = "SQLite" if data.database == "sqlite" else "no database of placebench's"
        raise UsageError(
            f"the application uses {what}, so that no link can be before it: add --between client, or name a database "
            "with setup or template_db"
        )
    if given.compress and between != "client":
        raise UsageError("--compress is for responses to the client: add --between client")
    if workload.script and (given.compress or (given.clients or 1) > 1):
        option = "compress" if given.compress else "clients"
        raise UsageError(f"--{option} is for requests, and the workload is the script {workload.script}")
    study = ApplicationNetwork(
        variants=variants,
        workload=workload,
        links=links,
        between=between,
        compress=given.compress,
        operations=given.operations or 1,
        clients=given.clients or 1,
    )
    spec = study.spec(repeats=given.replicates or plan.replicates or options.STUDY_REPLICATES)
    refuse_unused_server(given.run, [data.database])
    with ExitStack() as stack:
        folder = stack.enter_context(run_folder(given.run, spec.command))
        server = stack.enter_context(open_server(given.run.server)) if data.database == "postgresql" else None
        check_settings(variants, server)
        return measure_study(given, ApplicationSession(spec, data, folder, server, variants), folder)


def _variants(given: StudyNetworkOptions, plan: "Experiment") -> "tuple[Variant, ...]":
    """Return the variants that were named, else all of the plan, else its application as it is in the folder."""
    from placebench.compare.what.variants import VariantTable, read_variant, require_servers

    names, tables = given.variants or plan.variants, plan.tables
    if not names:
        if tables.app is None:
            raise UsageError(
                f"what is to be measured? put a command behind --, or describe an application in {plan.source}: "
                "[tool.placebench.app] with app = 'module:callable'"
            )
        names, tables = ("application",), replace(tables, variants={"application": VariantTable()})
    variants = tuple(read_variant(name, tables) for name in names)
    require_servers(variants)
    return variants


COMMANDS: dict[str, Command[Any]] = {
    "study network": Command(_configure, _run, options=StudyNetworkOptions, needs_linux=STARTS_SERVERS)
}
