"""Shared parts of the commands that make a run: its folder, PostgreSQL, progress, page and result.

The main functions are `compare_plan`, for `compare` and `lab steps`, and `run_comparison`, which `calibrate` uses too.
`run_folder` creates or finds the folder of a run, and `reported` writes its page, whether the run succeeds or fails.
"""

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from placebench import units
from placebench.commands import options
from placebench.commands.interrupts import interrupted_once
from placebench.commands.output import emit_report, say, set_verbosity, steps, warn
from placebench.errors import PlacebenchError, RunFolderError, TooFewReplicatesError, UndecidedError, UsageError

if TYPE_CHECKING:
    from placebench.compare.compare_run import CompareSettings
    from placebench.compare.load.client_machine import ClientMachine
    from placebench.compare.what.data_setup import DataSetup
    from placebench.compare.what.trials import Experiment
    from placebench.compare.what.variants import Variant
    from placebench.compare.what.workload import Workload
    from placebench.gates import Gate
    from placebench.http_session import Request
    from placebench.remote.project import Project
    from placebench.report import Report
    from placebench.study.session import StudySession

_T = TypeVar("_T")
_Options = TypeVar("_Options", bound=options.RunCommandOptions)
_NEEDED = 6


def compare_plan(
    given: options.ComparisonOptions,
    plan: "Experiment",
    *,
    postgres: Mapping[str, str] = {},
    gates: "Sequence[Gate]" = (),
    requests: "Sequence[Request]" = (),
    login: "Sequence[Request]" = (),
    default_control: str | None = None,
    decides_unread: bool = False,
    emit: "Callable[[Report], object] | None" = None,
) -> Path:
    """Compare the variants of *plan* and return the run's folder; options override the plan.

    postgres: PostgreSQL settings added to every variant. requests, login: requests of the command line.
    default_control: the control if neither options nor plan name one. decides_unread: as in `CompareSettings`. emit: as
    in `run_comparison`; None: the report is printed.
    """
    from placebench.compare.keep.control import NO_CONTROL, Control
    from placebench.compare.published_plan import plan_document
    from placebench.compare.what.trials import with_python
    from placebench.compare.what.variants import read_variants

    emit = emit or partial(emit_report, given.output)
    named = given.control or plan.control
    control = Control.parse(named) if named and named != NO_CONTROL else None
    if given.run.host:
        more = {
            "postgres": postgres,
            "requests": requests,
            "login": login,
            "default_control": default_control,
            "decides_unread": decides_unread,
        }
        return _compare_on_host(given, plan, more, gates=gates, emit=emit)
    if given.python:
        plan = with_python(plan, given.python)
    variants = read_variants(plan.variants, plan.tables, python=given.placement_python)
    data, workload = plan_data(given.data, plan, variants, requests, login)
    variants = tuple(replace(each, postgres={**each.postgres, **postgres}) for each in variants)
    settings = _settings(given, plan, variants, workload)
    if default_control and not named and settings.replicates:
        control = replace(Control.parse(default_control), is_default=True)
    settings = replace(settings, control=control, decides_unread=decides_unread)
    settings = replace(settings, plan=plan_document(_filled_in(given.data, plan, data), settings))
    return run_comparison(given.run, data, settings, name=plan.name, gates=gates, emit=emit)


def _settings(
    given: options.ComparisonOptions, plan: "Experiment", variants: "tuple[Variant, ...]", workload: "Workload"
) -> "CompareSettings":
    """Return the settings of the comparison, from the options, else from the plan, else from the defaults."""
    from placebench.compare.compare_run import (
        BLOCK_S,
        DEFAULT_REPLICATES,
        LOAD_BLOCK_S,
        LOAD_ROUNDS,
        MAX_SEQUENTIAL_REPLICATES,
        ROUNDS,
        SEQUENTIAL_ROUNDS,
        CompareSettings,
    )

    sequential, width, users = given.sequential, given.width, plan.users or 1
    is_loaded = users > 1 or plan.rate is not None
    if width is not None and not sequential:
        raise UsageError("--width is for --sequential: without it the number of replicates decides")
    names = dict(zip(plan.variants, [each.name for each in variants], strict=True)) if plan.trials else {}
    return CompareSettings(
        variants=variants,
        workload=workload,
        replicates=first_given(
            given.replicates, plan.replicates, default=MAX_SEQUENTIAL_REPLICATES if sequential else DEFAULT_REPLICATES
        ),
        sequential=sequential,
        width=None if width is None else width / 100,
        rounds=first_given(
            given.rounds, plan.rounds, default=LOAD_ROUNDS if is_loaded else SEQUENTIAL_ROUNDS if sequential else ROUNDS
        ),
        block_s=LOAD_BLOCK_S if is_loaded else BLOCK_S,
        users=users,
        rate=plan.rate,
        bound_s=plan.bound_s,
        warmup=plan.warmup or 0,
        trials=tuple(  # by the names that the variants have once they are read
            replace(
                each, name=names.get(each.name, each.name), baseline=names[each.baseline], variant=names[each.variant]
            )
            for each in plan.trials
        ),
        machine=_client(given.run, plan, variants),
    )


def _client(run: options.RunOptions, plan: "Experiment", variants: "Sequence[Variant]") -> "ClientMachine | None":
    """Return the machine of --client-host; None without the option.

    It is looked up from the machine on which the servers run, and described on the one where the command was entered.
    """
    from placebench.compare.load.client_machine import find_client
    from placebench.meters.remote_hosts import find_host

    name = run.client_host
    if not name:
        return None
    if plan.workload.workload or plan.workload.locustfile:
        raise UsageError("a scripted workload is not sent to --client-host: leave one of the two out")
    if hostless := [each.name for each in variants if each.command and "{host}" not in each.command]:
        raise UsageError(
            f"the command of {hostless[0]} has no {{host}}, the address to listen at for --client-host, as in: uvicorn "
            "shop:app --host {host} --port {port}"
        )
    client = find_client(name, run.client or find_host(name, run.hosts))
    say(f"requests come from {name}, {1000 * client.round_trip_s:.2f} ms away, to servers at {client.address}")
    return client


def _compare_on_host(
    given: options.ComparisonOptions,
    plan: "Experiment",
    more: Mapping[str, Any],
    *,
    gates: "Sequence[Gate]",
    emit: "Callable[[Report], object]",
) -> Path:
    """Run `compare_plan` on the machine of --host, and report here; raises the same errors as `run_comparison`."""
    from placebench.remote.project import Project

    project = Project()
    if plan.tables.app or plan.tables.variants or plan.setup:
        project = Project.around(plan.folder, plan.source)
        folder = project.from_here(plan.folder)
        plan = replace(plan, folder=folder, tables=replace(plan.tables, folder=folder))
    compare = partial(compare_plan, plan=plan, **more)
    return run_there(given, plan.name, compare, project, gates=gates, emit=emit)


def run_there(
    given: _Options,
    name: str,
    work: Callable[[_Options], object],
    project: "Project | None" = None,
    *,
    gates: "Sequence[Gate]" = (),
    emit: "Callable[[Report], object] | None" = None,
) -> Path:
    """Run *work* on the machine of --host, copy its run to a folder here named after *name*, and return the folder.

    work: a picklable function that is called there with the options, whose --out is the run's folder there. emit: is
    called with the final report, as in `run_comparison`; None: the report is printed.
    """
    from placebench.meters.remote_hosts import find_host
    from placebench.remote.project import Project
    from placebench.remote.session import run_on_host
    from placebench.report import raise_for_gates

    too_few: TooFewReplicatesError | None = None
    run = given.run
    assert run.host is not None
    host = find_host(run.host, run.hosts)
    emit = emit or partial(emit_report, given.output)
    sent, files = options.take_files(given)
    sent = replace(
        sent,
        run=replace(
            run, host=None, hosts=None, client=find_host(run.client_host, run.hosts) if run.client_host else None
        ),
        output=replace(given.output, open=False, json=False, markdown=False),
    )
    project = replace(project or Project(), given=files)

    with run_folder(run, name) as folder, reported(folder, emit, gates) as reports:
        there = partial(_work_there, work, sent)
        try:
            run_on_host(run.host, host, there, project, folder, say=say, show=warn)
        except TooFewReplicatesError as error:
            too_few = error
    raise_for_gates(reports[-1])
    if too_few is not None:
        raise too_few
    return folder


def _work_there(work: Callable[[_Options], object], given: _Options, folder: Path) -> None:
    """Run *work* with *folder* as --out; called on the machine of --host, where the printed result is discarded."""
    set_verbosity(quiet=given.output.quiet, verbose=given.output.verbose)
    with interrupted_once(), Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        work(replace(given, run=replace(given.run, out=folder)))


def plan_data(
    given: options.PlanDataOptions,
    plan: "Experiment",
    variants: "Sequence[Variant]",
    requests: "Sequence[Request]",
    login: "Sequence[Request]",
) -> "tuple[DataSetup, Workload]":
    """Return the data of a plan, and the requests to its variants; the options and requests given override the plan."""
    from placebench.compare.what.workload import ServiceApi, read_workload

    data, request = _data(given, plan, variants)
    workload = read_workload(
        plan.workload,
        source=plan.source,
        folder=plan.folder,
        seed=data.seed,
        requests=requests,
        login=login,
        api=next((each.api for each in variants if each.data_kind), ServiceApi()),
        default=request if any(each.data_kind for each in variants) else None,
    )
    return data, workload


def _data(given: options.PlanDataOptions, plan: "Experiment", variants: "Sequence[Variant]") -> "tuple[DataSetup, str]":
    """Return the data of a comparison and its default request; raise UsageError if two kinds of data are given.

    It is an inventory data set if an option or the plan names one, or if a variant is of the reference service.
    """
    from placebench.compare.what.data_setup import DatabaseKind, find_data
    from placebench.compare.what.trials import own_data

    topology = first_given(given.topology, plan.topology, default=None)
    seed = first_given(given.seed, plan.seed, default=options.SEED)
    trees = first_given(given.trees, plan.trees, default=None)
    utilization = first_given(given.utilization, plan.utilization, default=None)
    on_mariadb = plan.database == "mariadb"
    own = [name for name in ("setup", "template_db", "may_change", "superuser") if getattr(plan, name)]
    own += ["database"] if plan.database in ("sqlite", "none") else []
    inventory = {"topology": topology, "trees": trees, "utilization": utilization}
    asked = [name for name, value in inventory.items() if value is not None]
    of_reference = [each.name for each in variants if each.data_kind]
    if own and (asked or of_reference):
        other = asked[0] if asked else f"the variant {of_reference[0]}, which needs an inventory data set"
        raise UsageError(f"{own[0]} is for data of your own, and there is {other}: leave one of them out")
    if own or not (asked or of_reference):
        return own_data(plan, seed=seed), ""
    database: DatabaseKind = "mariadb" if on_mariadb else "postgresql"
    found = find_data(topology or options.TOPOLOGY, seed=seed, database=database, trees=trees, utilization=utilization)
    if on_mariadb and (lacking := [each.name for each in variants if not each.portable]):
        raise PlacebenchError(f'the variant {lacking[0]} runs on PostgreSQL alone: leave database = "mariadb" out')
    return found


def _filled_in(given: options.PlanDataOptions, plan: "Experiment", data: "DataSetup") -> "Experiment":
    if not data.trees:
        return replace(plan, topology=None, seed=data.seed)
    return replace(
        plan,
        topology=first_given(given.topology, plan.topology, default=options.TOPOLOGY),
        trees=data.trees,
        utilization=first_given(given.utilization, plan.utilization, default=None),
        seed=data.seed,
    )


def first_given(*values: _T | None, default: _T) -> _T:
    """Return the first value that is not None; *default* if all are."""
    return next((value for value in values if value is not None), default)


_DATABASE_NAMES = {"sqlite": "SQLite", "mariadb": "MariaDB", "none": "no database of placebench's"}


def refuse_unused_server(run: options.RunOptions, databases: Collection[str]) -> None:
    """Raise UsageError if there is a --server although none of the *databases* is PostgreSQL."""
    if run.server and "postgresql" not in databases:
        used = " and ".join(_DATABASE_NAMES[each] for each in dict.fromkeys(databases))
        raise UsageError(
            f"--server is a PostgreSQL server, and the application uses {used}: leave --server out, or name a "
            "PostgreSQL database with database or template_db"
        )


def run_comparison(
    run: options.RunOptions,
    data: "DataSetup",
    settings: "CompareSettings",
    *,
    name: str,
    gates: "Sequence[Gate]" = (),
    emit: "Callable[[Report], object]" = lambda _: None,
) -> Path:
    """Make the replicates of a comparison, in the run to resume or a new folder named after *name*; return the folder.

    emit: is called with the report, whether the run succeeded or not. After a complete run, raises GateFailedError or
    UndecidedError for a gate, or else TooFewReplicatesError if there are too few valid replicates.
    """
    from placebench.compare.compare_run import CompareRun
    from placebench.compare.measure.databases import check_settings
    from placebench.report import raise_for_gates
    from placebench.runtime.postgres import open_server

    refuse_unused_server(run, [data.database])
    with ExitStack() as stack:
        folder = stack.enter_context(run_folder(run, name))
        server = stack.enter_context(open_server(run.server)) if data.database == "postgresql" else None
        check_settings(settings.variants, server)
        comparing = CompareRun(data, settings, folder, server)
        try:
            with steps(run.command, comparing.steps) as announce, reported(folder, emit, gates) as reports:
                comparing.run(announce, note=say)
        except UndecidedError:
            raise_for_gates(reports[-1], failed_only=True)
            raise
    raise_for_gates(reports[-1])
    valid, invalid = len(comparing.replicates.valid()), len(comparing.replicates.invalid())
    if settings.replicates and valid < _NEEDED and not comparing.is_decided:
        discarded = f" ({invalid} discarded: --resume makes others in their place)" if invalid else ""
        raise TooFewReplicatesError(f"inconclusive: {units.numbered(valid, 'replicate')}, {_NEEDED} needed{discarded}")
    return folder


@contextmanager
def run_folder(run: options.RunOptions, name: str) -> Iterator[Path]:
    """Yield a new folder for a run (--out, or one in profiles/ named after *name*), or with --resume the run to resume.

    The folder is locked inside the `with` block. If the run did not begin, the folder is removed afterwards, unless it
    already existed. Raises RunFolderError if there is no run to resume, or if the given folder is not empty.
    """
    from placebench.compare.keep.run_folder import lock
    from placebench.runtime.uwsgi import stand_in

    if run.hosts and not (run.host or run.client_host):
        named = "--host or --client-host" if run.has_client_host else "--host"
        raise UsageError(f"--hosts describes machines, and none is used: name one with {named}")
    is_users = run.out is not None and run.out.exists()
    folder = _claimed(run, name)
    try:
        with lock(folder):
            if line := stand_in():
                say(line)
            yield folder
    finally:
        if not (folder / "run.json").is_file():
            leave_folder(folder, is_users=is_users)


def leave_folder(folder: Path, *, is_users: bool) -> None:
    """Remove the folder of a run that did not begin; if it already existed (*is_users*), remove only the logs."""
    shutil.rmtree(folder / "log", ignore_errors=True)
    if not is_users:
        with suppress(OSError):  # it holds something that is not ours
            folder.rmdir()


def _claimed(run: options.RunOptions, name: str) -> Path:
    from placebench import paths
    from placebench.compare.keep.records import RunHead
    from placebench.compare.keep.run_folder import claim_folder, new_folder

    if not run.resume:
        if run.out is None:
            return new_folder(name, paths.profiles_folder())
        return claim_folder(run.out.resolve(), can_resume=run.resume is not None)
    made = sorted(paths.profiles_folder().glob(f"*-{name}")) if run.out is None else [run.out.resolve()]
    if not made or not (made[-1] / "run.json").is_file():
        where = run.out or paths.profiles_folder()
        raise RunFolderError(f"no run to resume in {where}: name its folder with --out, or leave --resume out")
    RunHead.load(made[-1] / "run.json")  # before anything is started for a run that cannot be read
    return made[-1]


def say_impossible(impossible: "Iterable[tuple[Mapping[str, Any], str]]") -> None:
    """Name the points of a study that cannot be measured, those with the same reason together."""
    from placebench.report.study_report import by_reason

    for line in by_reason(impossible):
        say(f"not measured: {line}")


def measure_study(given: options.RunCommandOptions, session: "StudySession[Any]", folder: Path) -> int:
    """Measure what is missing in a study; what was measured is reported, whether it succeeds or fails."""
    with steps(given.run.command, session.steps) as announce, reported(folder, partial(emit_report, given.output)):
        session.run(announce, note=say)
    return 0


@contextmanager
def reported(
    folder: Path, emit: "Callable[[Report], object]", gates: "Sequence[Gate]" = ()
) -> "Iterator[list[Report]]":
    """Write the report of the run when the `with` block ends, successfully or not, and call *emit* with it.

    gates: kept in run.json, so that the report can be made again with them.
    Yields a list to which the report is added. If the run could not even write its head, as on a full disk, there is
    none.
    """
    from placebench.compare.keep.records import RunHead
    from placebench.report import build_report, write_report

    reports: list[Report] = []
    head = folder / "run.json"
    try:
        yield reports
    finally:
        if head.is_file():
            replace(RunHead.load(head), gates=[gate.text for gate in gates]).save(head)
            report = build_report(folder)
            write_report(report)
            list_run(folder)
            reports.append(report)
            emit(report)


def list_run(folder: Path) -> None:
    """Update the list of runs in profiles/; a run that --out placed elsewhere is not listed."""
    from placebench import paths
    from placebench.report import write_index

    if folder.parent == paths.profiles_folder():
        with suppress(OSError):
            write_index(folder.parent)
