"""One run of `compare`: set up and copy the data, count requests, then measure replicates until there are enough.

The main class is `CompareRun`. Each replicate is on the disk before the next one begins. A session measures only the
replicates that are missing. So a run that was killed can be resumed, and a replicate that a rule discarded is
replaced (`measure.replicate_series`). The rules do not look at the measured values.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from placebench import units
from placebench.compare.keep.control import Control, ControlRecord, control_path
from placebench.compare.keep.documents import Rules, Trial
from placebench.compare.keep.environment import manifest
from placebench.compare.keep.records import ExecutedChange, RunHead
from placebench.compare.keep.run_folder import RunFolder, Say, discard_message
from placebench.compare.load.client_machine import ClientMachine
from placebench.compare.measure.counted_pass import (
    Statistics,
    count_on_the_wire,
    count_requests,
    count_while_timed,
    open_statistics,
)
from placebench.compare.measure.databases import VariantDatabases, database_name, variant_databases
from placebench.compare.measure.executed_lines import execute_changes
from placebench.compare.measure.injected_control import (
    calibrate,
    entered_path,
    keep_if_entered,
    with_injection,
    with_statement,
)
from placebench.compare.measure.passes import PassSetup
from placebench.compare.measure.plan_changes import compare_plans
from placebench.compare.measure.prepared_variants import PreparedVariants
from placebench.compare.measure.profiled_pass import profile_variants
from placebench.compare.measure.replicate_series import ReplicateSeries
from placebench.compare.measure.same_responses import ResponseCheck, SameResponses, can_check, check_responses
from placebench.compare.what.data_setup import DataSetup
from placebench.compare.what.variants import Variant, control_variant, in_place, wrapped
from placebench.compare.what.workload import Workload
from placebench.errors import (
    FailedRequestsError,
    GateFailedError,
    LoadError,
    NoResponseError,
    NoTrafficError,
    PlacebenchError,
    RunFolderError,
    ServerError,
)
from placebench.runtime.postgres import Server
from placebench.stats import PART_REPLICATES, compare_blocks, primary_metric, significance_shares
from placebench.stats.verdict import INCONCLUSIVE

DEFAULT_REPLICATES = 12
ROUNDS = 24
BLOCK_S, LOAD_BLOCK_S = 0.1, 1.0
MAX_SEQUENTIAL_REPLICATES, SEQUENTIAL_ROUNDS, LOAD_ROUNDS = 100, 8, 6
"""Maximum number of replicates, and rounds per replicate, of a sequential run: each starts the servers only once.

Under load a block is longer, since the users need some time until all of them wait, and there are fewer rounds.
"""
_MAX_WATCHED_PAIRS = 4
_MAX_PROFILED_REPLICATES = 8
"""Maximum number of profiled replicates: more hardly narrow the intervals, and each starts every variant once more.

A run with fewer replicates than the default has as few as can show where the variants differ.
"""
_COLLECTED_REQUESTS = 6
_MAX_AGED_VARIANTS = 4
_AGES_S, _MAX_AGES_S, _MAX_AGES_WITH_FEW_S = 1.5, 12.0, 4.0
"""For how long each replicate sends untimed requests to a process of each variant, to see leaks and late changes.

The longest holds until some 500 requests were served: less with fewer replicates than the default.
"""
_FREE = ("decides_unread", "bound_s", "warmup")
"""Settings that are not in the head of a run, or only if they are set."""


@dataclass(frozen=True)
class CompareSettings:
    """The variants to compare, and how much of each is measured."""

    variants: tuple[Variant, ...]
    """The variants, baseline first."""
    workload: Workload
    """The requests that are sent to each variant without a request of its own."""
    replicates: int = DEFAULT_REPLICATES
    sequential: bool = False
    """Whether a pair is measured until it is decided (`placebench.stats.sequential`), *replicates* times at most."""
    width: float | None = None
    """Interval width, as a share of the baseline, that decides a pair of a sequential run instead of the verdict."""
    rounds: int = ROUNDS
    block_s: float = BLOCK_S
    """Length of a block in seconds; short, so that the variants of a round run under the same conditions."""
    users: int = 1
    """Number of users that send requests at the same time, each the next one after its response."""
    rate: float | None = None
    """The number of requests per second that arrive on a schedule, whatever the responses; None for users."""
    counted_requests: int = 12
    """Number of counted requests: enough for a differing count to stay significant among all metrics and variants."""
    trials: tuple[Trial, ...] = ()
    """The pairs to compare; if empty, each variant is compared with the first."""
    machine: ClientMachine | None = None
    """The machine that sends the timed requests; None for this machine."""
    bound_s: float | None = None
    """What a slow request exceeds, in seconds; None: twice the baseline's p98 of each replicate."""
    warmup: int = 0
    """The least number of requests to each process before anything is timed."""
    decides_unread: bool = False
    """Whether a change between commits of which the application reads nothing is not timed."""
    control: Control | None = None
    """The change that the run must find, in a further copy of the baseline; None for none."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    """Keys of a plan file that reproduces the comparison (`placebench.compare.published_plan`); may be empty."""

    def __post_init__(self) -> None:
        """Raise PlacebenchError for too few replicates or rounds, users or a rate of a script, or a wrong control."""
        if self.replicates < 0 or self.rounds < 1:
            raise PlacebenchError(
                f"{self.replicates} replicates of {self.rounds} rounds: expected 0 or more, and 1 or more"
            )
        if self.control and self.control.is_timed and not self.replicates:
            raise PlacebenchError("0 replicates and a control: nothing is timed; expected 1 replicate or more")
        if self.control and self.rate and self.control.metric == "wall_s":
            raise PlacebenchError(
                f"a control of {self.control.label} at a rate of {self.rate:g} per second: it must be found in the "
                "wall time, which several requests at once do not have; expected a share of CPU, such as 3%"
            )
        if self.rate and self.workload.script:
            raise PlacebenchError(
                f"a rate of {self.rate:g} per second of the script {self.workload.script}: its iterations are one "
                "user's; expected requests, or `placebench load --rate`"
            )
        if self.users > 1 and self.workload.script:
            raise PlacebenchError(
                f"{self.users} users of the script {self.workload.script}: its iterations are one user's; expected "
                "requests, or `placebench load --locustfile` for a locustfile with users of its own"
            )

    @property
    def control_copy(self) -> Variant | None:
        """The baseline under another name, into which the change is injected; None without a control."""
        return control_variant(self.variants[0], [each.name for each in self.variants]) if self.control else None

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Names of the baseline and the variant of each comparison."""
        baseline, *others = (variant.name for variant in self.variants)
        return [(each.baseline, each.variant) for each in self.trials] or [(baseline, other) for other in others]

    def to_json(self) -> dict[str, Any]:
        """Return the settings for the head of the run, which must be equal when the run is resumed.

        Settings that may change between sessions, such as the number of replicates of a sequential run, are left out.
        """
        free = ("replicates", "width") if self.sequential else ("sequential", "width")
        left_out = ("variants", "workload", "trials", "plan", "machine", "users", "rate", "control", *_FREE, *free)
        kept = {name: value for name, value in vars(self).items() if name not in left_out}
        variants = [variant.to_json() for variant in self.variants]
        trials = [asdict(each) for each in self.trials]
        return {
            **kept,
            **({"client_host": self.machine.name} if self.machine else {}),
            **({"users": self.users} if self.users > 1 else {}),
            **({"control": self.control.to_json()} if self.control else {}),
            **({"rate": self.rate} if self.rate else {}),
            **({"bound_s": self.bound_s} if self.bound_s else {}),
            **({"warmup": self.warmup} if self.warmup else {}),
            "workload": self.workload.to_json(),
            "variants": variants,
            "trials": trials,
            "rules": asdict(Rules()),
        }


class CompareRun:
    """One session of a comparison in one folder."""

    def __init__(self, data: DataSetup, settings: CompareSettings, folder: Path, server: Server | None) -> None:
        """Raise RunFolderError if *folder* holds a run with other settings.

        server: the PostgreSQL server, for data in PostgreSQL.
        """
        self._data = data
        self._settings = settings
        self._server = server
        self._control = settings.control_copy
        self._variants = settings.variants if self._control is None else (*settings.variants, self._control)
        """The variants and the control: everything that is measured."""
        head = RunHead.begin(
            folder,
            data,
            command="compare",
            request=settings.workload.title,
            variants=[variant.name for variant in settings.variants],
            settings=settings.to_json(),
        )
        self._run = RunFolder.resume(folder, replace(head, plan=dict(settings.plan)))
        self._earlier_left_out = self._run.head.same_responses.get("left_out", {})
        """The routes that an earlier session left out."""
        self._same = SameResponses(self._run.save, settings.workload.rules)
        partial = [self._control.name] if self._control else []
        self.is_decided = False
        """Whether the run ended without times, since the application reads nothing that differs."""
        self.replicates = ReplicateSeries(self._run, self._same, rounds=settings.rounds, partial=partial)

    @property
    def steps(self) -> int:
        """The number of steps that will be announced if every replicate is valid and no failure ends the run."""
        missing = self._settings.replicates - len(self.replicates.valid())
        control = self._settings.control
        prepared = int(control is not None and control.kind in ("cpu", "statement"))
        return 1 + len(self._settings.variants) + prepared + self._profiled + max(0, missing)

    def run(self, say: Say, note: Say = discard_message) -> None:
        """Measure everything, in order; the folder can be read even if an error ends the run.

        say, note: see `RunFolder`. Raises GateFailedError if responses or data differ, UndecidedError if three
        replicates in a row are invalid, and ServerError if a variant does not start.
        """
        self._run.say, self._run.note = say, note
        try:
            with (
                self._run.recorded(),
                variant_databases(self._data, self._run.path, self._server) as databases,
                in_place(self._variants, self._run.path / "sources") as variants,
            ):
                prepared = self._prepare(databases, variants)
                own = replace(
                    prepared, variants=tuple(each for each in prepared.variants if not self._is_control(each))
                )
                with self._statistics(prepared, databases) as read:
                    counted = self._with_control(prepared) if self._counts_control else own
                    counted, repeated = self._counted(counted, databases, read)
                    if self._counts_control:
                        keep_if_entered(counted, ControlRecord.load(control_path(self._run.path)))
                    prepared, own = _requesting_as(prepared, counted), _requesting_as(own, counted)
                    self.replicates.check_data(counted, same_requests=not repeated)
                    self.is_decided = self._executes_nothing(own) and self._settings.decides_unread
                    if not self.is_decided:
                        self._time(prepared, own, read)
                shutil.rmtree(self._run.path / "responses", ignore_errors=True)
        finally:
            self._drop_dump()

    def _time(self, prepared: PreparedVariants, own: PreparedVariants, read: Mapping[str, Statistics | None]) -> None:
        """Measure the replicates, of the control too, and then profile *own*, the variants without the control."""
        self._count_collections(own)
        prepared = self._with_control(prepared) if self._control and not self._counts_control else own
        self._variants = tuple(each for each in self._variants if each.name in prepared.named)
        with count_while_timed(prepared, read):
            self.replicates.measure(prepared, self._settings.replicates, needed=self._undecided)
        # Last, so that a run that is interrupted here already has everything that the verdict needs.
        profile_variants(self._run, own, self._profiled)
        if len(self._settings.pairs) <= _MAX_WATCHED_PAIRS:
            compared = partial(compare_plans, own, self._settings.pairs, is_served=self._profiled > 0)
            self._run.run_optional_part("plans", "", compared)

    def _executes_nothing(self, prepared: PreparedVariants) -> bool:
        """Watch which changes between commits are executed; return whether the application reads none of any pair."""
        settings = self._settings
        if not settings.replicates or self.replicates.blocks:
            return False
        is_watched = settings.users == 1 and not settings.rate and settings.machine is None
        is_watched = is_watched and len(settings.pairs) <= _MAX_WATCHED_PAIRS
        trees = {each.name: self._run.path / "sources" / str(at) / "tree" for at, each in enumerate(settings.variants)}
        made = list[ExecutedChange]()
        number = settings.counted_requests
        watch = partial(execute_changes, prepared, settings.pairs, trees, requests=number, is_watched=is_watched)
        self._run.run_optional_part("executed lines", "", lambda: made.extend(watch()))
        return len(made) == len(settings.pairs) and not any(each.is_read for each in made)

    @property
    def _counts_control(self) -> bool:
        """Whether the control is one more statement, which is counted and not timed."""
        return self._settings.control is not None and not self._settings.control.is_timed

    def _with_control(self, prepared: PreparedVariants) -> PreparedVariants:
        """Return the variants with the change in the control; without the control if its size is unknown."""
        assert self._control
        assert self._settings.control
        control, name = self._settings.control, self._control.name
        if not control.is_timed:
            return with_statement(prepared, control, name)
        return with_injection(prepared, calibrate(self._run, prepared, control, name))

    def _is_control(self, variant: Variant) -> bool:
        return self._control is not None and variant.name == self._control.name

    def _drop_dump(self) -> None:
        """Remove the dump of the data unless --resume needs it: an unfinished run with replicates keeps its data."""
        dump = self._run.path / "data.dump"
        if self._run.head.status == "complete" or not self.replicates.blocks:
            dump.unlink(missing_ok=True)
            if self._run.head.status != "complete":
                self._run.save(receipt={})  # --resume begins on new data
        elif dump.exists():
            self._run.note(f"{dump} is a copy of your data, for --resume: delete it if you do not go on")

    @contextmanager
    def _failing_start(self, variant: Variant) -> Iterator[None]:
        """Name a variant that does not start; raise GateFailedError if it is not the baseline, which does."""
        try:
            yield
        except ServerError as error:
            if variant.name == self._variants[0].name:
                raise ServerError(f"{variant.name}: {error}") from error
            raise self._same.error(f"{variant.name}: {error}; {self._variants[0].name} starts") from error

    def _prepare(self, databases: VariantDatabases, variants: tuple[Variant, ...]) -> PreparedVariants:
        """Fill a database on each server, and make a copy per variant, with the variant's migrations."""
        data = self._data
        self._run.begin_step(
            "data", f"seed {data.title}, {units.numbered(data.trees, 'tree')}" if data.trees else data.title
        )
        if self._server is not None:
            self._run.claim_server(self._server)
        urls = {each.name: databases.of(each) for each in variants}
        url, receipt = databases.template()
        client = {"client": self._settings.machine.to_json()} if self._settings.machine else {}
        environment = {**manifest(url), **client}
        self._run.record_environment(receipt=receipt, manifest=environment)
        if unchecked := receipt.get("unchecked_tables"):
            why = "too many rows to digest, or row-level security that binds their owner"
            self._run.note(f"changes to {', '.join(unchecked)} will not be noticed: {why}")
        if missing := receipt.get("not_restored"):
            self._run.note(f"not in the copies, which no superuser restores: {'; '.join(missing)}")
        # Each imports its application; the control has the first one's.
        own = [each for each in variants if not self._is_control(each)]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            found = [pool.submit(each.with_server, urls[each.name]) for each in own]
        served = []
        for variant, each in zip(own, found, strict=True):
            with self._failing_start(variant):
                served.append(each.result())
        first = served[0]
        served += [replace(each, server=first.server, interface=first.interface) for each in variants[len(own) :]]
        servers = {
            each.name: {"server": each.server, "interface": each.interface}
            for each in served
            if each.module and not self._is_control(each)
        }
        self._run.record_environment(receipt=receipt, manifest={**environment, "servers": servers})
        settings = self._settings
        # Under load processes get old anyway, and many variants take long.
        is_aged = settings.users == 1 and not settings.rate and len(settings.variants) <= _MAX_AGED_VARIANTS
        return PreparedVariants(
            variants=tuple(
                wrapped(each, entered_path(self._run.path)) if self._is_control(each) else each for each in served
            ),
            databases=urls,
            workload=settings.workload,
            folder=self._run.path,
            block_s=settings.block_s,
            users=settings.users,
            rate=settings.rate,
            machine=settings.machine,
            timer=self._run.timer,
            contents=data.contents,
            before={name: data.contents(url) for name, url in urls.items()} if "digest" in receipt else {},
            warmup=settings.warmup,
            ages_s=_AGES_S if is_aged else 0.0,
            max_ages_s=_MAX_AGES_S if settings.replicates >= DEFAULT_REPLICATES else _MAX_AGES_WITH_FEW_S,
            counted_as={self._control.name: variants[0].name} if self._control else {},
        )

    @contextmanager
    def _statistics(
        self, prepared: PreparedVariants, databases: VariantDatabases
    ) -> Iterator[dict[str, Statistics | None]]:
        """Yield the statement statistics of each variant's server, by the variant's name."""
        servers = {each.name: databases.server_of(each) for each in prepared.variants}
        with ExitStack() as stack:
            read = {
                server: stack.enter_context(open_statistics(server, f"{database_name(self._run.path)}_statistics"))
                for server in dict.fromkeys(servers.values())
                if server is not None
            }
            yield {name: read[server] if server else None for name, server in servers.items()}

    def _counted(
        self, prepared: PreparedVariants, databases: VariantDatabases, read: Mapping[str, Statistics | None]
    ) -> tuple[PreparedVariants, list[str]]:
        """Count as `_count` does; if responses differ or requests fail, find out where, and count without that.

        Returns the variants with the requests and rules that are left, on fresh copies of the data, and the reasons for
        repeated counts. Raises as `_count` does, with all routes that differ or fail in one message.
        """
        workload = prepared.workload
        try:
            return prepared, self._count(prepared, read)
        except (NoTrafficError, NoResponseError):
            raise
        except (GateFailedError, LoadError) as error:
            if isinstance(error.__cause__, NoResponseError):  # no other request waits as long
                raise
            routes = {call.route for call in workload.calls}
            is_failure = isinstance(error, LoadError) or isinstance(error.__cause__, FailedRequestsError)
            if not can_check(workload) or (is_failure and len(routes) < 2):
                raise
        self._run.note("responses differ or requests fail: all variants get them on fresh copies, the first one twice")
        own = replace(prepared, variants=tuple(each for each in prepared.variants if not self._is_control(each)))
        found = check_responses(own, databases.of)
        left_out = self._left_out(found, routes)
        for route, places in found.varying_names.items():
            self._run.note(
                f"not compared, because two responses of {own.variants[0].name} differ there: {route}: "
                f"{', '.join(places)}"
            )
        for route, problem in left_out.items():
            self._run.note(f"left out: {route}: {problem}")
        rules = found.rules(workload)
        self._same.begin_again(rules, varying=found.varying_names, left_out=left_out)
        copies = {each.name: databases.of(replace(each, name=f"{each.name} again")) for each in prepared.variants}
        urls = {**prepared.databases, **copies}
        contents = {name: self._data.contents(url) for name, url in urls.items()} if prepared.before else {}
        rest = structs.replace(workload.without(left_out), rules_of_requests=rules)
        prepared = replace(prepared, databases=urls, before=contents, workload=rest)
        return prepared, self._count(prepared, read, again=True)

    def _left_out(self, found: ResponseCheck, routes: set[str]) -> dict[str, str]:
        """Return why routes are left out; raise an error if they must not be, or if no route would be left.

        Raises RunFolderError if a run is resumed whose replicates were measured with other routes.
        """
        problems = found.problems
        if problems and (not self._settings.workload.leaves_out or problems.keys() >= routes):
            each = "; ".join(f"{route}: {problem}" for route, problem in problems.items())
            some = len(problems) < len(routes) and not self._settings.workload.leaves_out
            way = "; --routes keep-going leaves these out" if some else ""
            said = (
                f"{len(problems)} of {units.numbered(len(routes), 'route')}: {each}{way}" if len(routes) > 1 else each
            )
            self._run.save(same_responses={})
            logs = f"; the logs of the variants: {self._run.path / 'log'}"
            is_variant = not (found.failed_alone and found.baseline_failed)
            raise self._same.error(said + logs * found.failed_alone) if is_variant else FailedRequestsError(said + logs)
        earlier = self._earlier_left_out
        if self.replicates.blocks and earlier.keys() != problems.keys():
            raise RunFolderError(
                f"{self._run.path}: its replicates were measured without {', '.join(earlier) or 'no route'}, and now "
                f"{', '.join(problems) or 'no route'} would be left out: begin a new run"
            )
        return problems

    def _count(
        self, prepared: PreparedVariants, read: Mapping[str, Statistics | None], *, again: bool = False
    ) -> list[str]:
        """Count the requests of each variant, and compare its responses with the baseline's.

        again: whether this was announced before. Returns the reasons for repeated counts, which sent further requests.
        Raises ServerError or LoadError for a variant that cannot be counted in two attempts, NoTrafficError for a
        variant that does not use its database, and GateFailedError if requests fail to a variant but the baseline's do
        not.
        """
        number, repeated = self._settings.counted_requests, list[str]()
        for variant in prepared.variants:
            phase = "control" if self._is_control(variant) else "count"
            step = f"{variant.name}: count of {units.numbered(number, 'request')}"
            if again:
                self._run.note(f"{step}, again")
            else:
                self._run.begin_step(phase, step)
            count = partial(
                count_on_the_wire,
                prepared,
                variant.name,
                requests=number,
                read=read[variant.name],
                same=self._same if variant.request is None else None,
                note=self._run.note,
            )
            try:
                with self._failing_start(variant):
                    self._run.try_twice(f"{variant.name} count", count, keep=repeated.append)
            except FailedRequestsError as error:
                if variant is prepared.variants[0]:
                    raise
                raise self._same.error(f"{error}; {prepared.variants[0].name} responds to them") from error
        self._same.save_equal()
        for note in prepared.workload.notes:
            self._run.note(note)
        if not self._settings.replicates and not any(prepared.databases.values()):
            self._run.note("nothing was timed without replicates, and nothing counted without a database")
        for path in self._same.unmatched():
            self._run.note(f"same_responses: no response has anything at {path}")
        return repeated

    def _count_collections(self, prepared: PreparedVariants) -> None:
        """Count the garbage collections of each variant of the reference service."""
        first, *others = prepared.workload.calls or (None,)
        for variant in prepared.variants:
            if variant.ours and variant.request is None and first and first.method == "GET" and not others:
                database = prepared.databases[variant.name]
                setup = PassSetup(database, first.path, self._run.path, 1, 1, 1, self._data.seed)
                served = variant.variables["PLACEBENCH_VARIANT"]
                count = partial(count_requests, setup, variant.name, requests=_COLLECTED_REQUESTS, variant=served)
                self._run.run_optional_part("count", variant.name, count)

    @property
    def _profiled(self) -> int:
        """The number of profiled replicates: enough to show where the variants differ, or one for a flame graph."""
        wanted = self._settings.replicates
        if wanted < PART_REPLICATES:
            return min(wanted, 1)
        return _MAX_PROFILED_REPLICATES if wanted >= DEFAULT_REPLICATES else PART_REPLICATES

    def _undecided(self) -> list[str]:
        """Return the names of the variants to measure next: all, or in a sequential run those of undecided pairs."""
        names, settings = [variant.name for variant in self._variants], self._settings
        if not settings.sequential:
            return names
        needed = set[str]()
        primary = primary_metric(users=settings.users, rate=settings.rate)
        share = significance_shares(primary)[primary]
        pairs = [(*pair, primary, share, settings.width) for pair in settings.pairs]
        if settings.control and settings.control.is_timed and self._control and self._control.name in names:
            pairs.append((settings.variants[0].name, self._control.name, settings.control.metric, 1.0, None))
        for baseline, variant, metric, share, enough in pairs:
            effect = compare_blocks(self.replicates.blocks, baseline, variant, metric, share=share, sequential=True)
            if enough is None:
                is_decided = effect.verdict != INCONCLUSIVE
            else:
                is_decided = effect.low is not None and effect.high is not None and effect.high - effect.low <= enough
            if not is_decided:
                needed |= {baseline, variant}
        return [name for name in names if name in needed]


def _requesting_as(prepared: PreparedVariants, counted: PreparedVariants) -> PreparedVariants:
    """Return the variants with the requests, rules and copies of the data that were counted."""
    databases = {**prepared.databases, **counted.databases}
    return replace(prepared, workload=counted.workload, databases=databases, before=counted.before)
