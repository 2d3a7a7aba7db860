"""The passes of one variant: loaded (timed), counted and profiled, each on a server process of its own.

Timed passes run unprofiled and profiled passes are not timed: pyinstrument's hook costs about half of a request again
(docs/explanation/decisions.md). `Bench` says what all passes of a run share.
"""

import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from placebench.errors import LoadError, ServerError, UndecidedError
from placebench.experiment.http_job import responses_of
from placebench.experiment.http_request import get
from placebench.experiment.load_run import LoadInterrupted, LoadSpec, run_load
from placebench.experiment.records import CountedPass, LoadPass, WatchedPass
from placebench.experiment.validity import LOAD_RULES, LoadRules, why_invalid_load
from placebench.experiment.variants import PLACEMENT, read_variant
from placebench.measure.meters import ServerMeter
from placebench.measure.wait_events import sample_wait_events
from placebench.profiler import Recording
from placebench.profiler.analysis.merging import merge_sessions
from placebench.profiler.model.recording_data import notes_of
from placebench.profiler.output.pages import write_flame_page, write_speedscope
from placebench.runtime.wsgi_servers import RunningServer, ServerSpec, serve

_WRITTEN_WITHIN_S = 10.0

Meet = Callable[[str, str], None]
"""Is given a variant and the URL of its service, before it is loaded; raises where it answers differently."""


@dataclass(frozen=True)
class Bench:
    """What every pass of a run shares."""

    database_url: str
    request: str
    folder: Path
    """The run's folder."""
    processes: int
    threads: int
    users: int
    seed: int
    telemetry: bool = False
    """Whether workers, client and backends write telemetry, below the run's folder."""
    placement_python: str | None = None
    """Of the environment that the variant placement is in."""

    def part(self, name: str) -> Path | None:
        """Where the telemetry of the pass *name* goes; None: there is none.

        What a first attempt, which failed, has left there is moved to <name>-failed.
        """
        if not self.telemetry:
            return None
        part = self.folder / "telemetry" / name
        if part.exists():
            part.rename(part.with_name(f"{name}-failed"))
        return part

    def serve(self, variant: str, part: Path | None = None, **environment: str) -> RunningServer:
        """The variant's service, ready to answer, its telemetry in *part*; use it in a `with` block."""
        log = self.folder / "log" / f"uwsgi-{variant}.log"
        if variant == PLACEMENT:  # it knows nothing of our telemetry, nor of our environment
            placement = read_variant(PLACEMENT, Path(self.placement_python) if self.placement_python else None)
            spec = placement.spec(self.database_url, hash_seed=self.seed, log=log)
        else:
            spec = ServerSpec(self.database_url, variant, environment=environment, log=log, telemetry=part)
        return serve(replace(spec, processes=self.processes, threads=self.threads))

    @property
    def warm_up_requests(self) -> int:
        """Two for each thread of the service."""
        return 2 * self.processes * self.threads

    def warm_up(self, server: RunningServer) -> None:
        """Send the warm-up requests, one a thread at a time, so that every worker has compiled and connected."""
        with responses_of(server), ThreadPoolExecutor(self.processes * self.threads) as pool:
            list(pool.map(lambda _: get(server.url, self.request), range(self.warm_up_requests)))


def closed_pass(bench: Bench, variant: str, *, time_s: float, meet: Meet) -> LoadPass:
    """Users wait for answers for *time_s*; *meet* asks the variant before any load.

    Saved as locust-<variant>-closed.json.
    """
    part = bench.part(f"{variant}-closed")
    with bench.serve(variant, part) as server:
        meet(variant, server.url)
        load = LoadSpec(
            url=server.url,
            request=bench.request,
            kind="closed",
            users=bench.users,
            time_s=time_s,
            seed=bench.seed,
            telemetry=part,
        )
        return _loaded(bench, variant, server, load)


def open_pass(
    bench: Bench,
    variant: str,
    *,
    time_s: float,
    rate_per_s: float,
    rules: LoadRules = LOAD_RULES,
) -> LoadPass:
    """Requests arrive on a seeded schedule, whatever the service does; saved as locust-<variant>-open.json.

    Raises UndecidedError for a pass in which the generator itself was late: it does not count, and is kept beside.
    """
    part = bench.part(f"{variant}-open")
    with bench.serve(variant, part) as server:
        load = LoadSpec(
            url=server.url,
            request=bench.request,
            kind="open",
            rate_per_s=rate_per_s,
            time_s=time_s,
            seed=bench.seed,
            telemetry=part,
        )
        made = _loaded(bench, variant, server, load, rules=rules)
    if made.invalid:
        raise UndecidedError(made.invalid)
    return made


def _loaded(
    bench: Bench, variant: str, server: RunningServer, load: LoadSpec, *, rules: LoadRules | None = None
) -> LoadPass:
    """Load the warmed-up server with its meters read; a pass that is interrupted is saved as far as it got.

    A pass in which a worker died is not saved: its figures are of another server.
    """
    interrupted: LoadInterrupted | None = None
    bench.warm_up(server)
    with (
        sample_wait_events(bench.database_url, load.telemetry),
        ServerMeter(server.worker_pids, bench.database_url) as meter,
    ):
        try:
            result = run_load(load, folder=bench.folder / "log")
        except LoadInterrupted as error:
            if error.result is None:
                raise
            interrupted, result = error, error.result
    server.check()
    invalid = why_invalid_load(result, at_once=load.at_once, rules=rules) if rules else None
    loaded = LoadPass(variant=variant, result=result, meters=meter.read(), invalid=invalid)
    loaded.save(_pass_file(bench.folder, f"locust-{variant}-{load.kind}", invalid))
    if interrupted:
        raise interrupted
    return loaded


def _pass_file(folder: Path, name: str, invalid: str | None) -> Path:
    """Where a pass is kept; each that does not count has a file of its own."""
    if invalid is None:
        return folder / f"{name}.json"
    return folder / f"{name}-invalid-{1 + len(list(folder.glob(f'{name}-invalid-*.json')))}.json"


def counted_pass(bench: Bench, name: str, *, requests: int, variant: str | None = None) -> CountedPass:
    """Count statements, rows and collections of *requests* requests in a row; saved as counted-<name>.json.

    variant: what is served; None: the name is that of a variant.
    """
    recordings = _fresh_folder(bench.folder / "log" / f"counted-{name}")
    profile = {"PLACEBENCH_PROFILE": "light", "PLACEBENCH_PROFILE_DIR": str(recordings)}
    with bench.serve(variant or name, bench.part(f"{name}-counted"), **profile) as server:
        bench.warm_up(server)
        _discard_warm_up(bench, recordings)
        with responses_of(server):
            body_bytes = sum(_body_bytes(server, bench.request) for _ in range(requests))
    counted = _count(name, list(_recorded(bench, recordings).values()), body_bytes)
    counted.save(bench.folder / f"counted-{name}.json")
    shutil.rmtree(recordings)
    return counted


def _body_bytes(server: RunningServer, request: str) -> int:
    reply = get(server.url, request)
    if reply.status != 200:
        raise LoadError(f"{server.url}{request} answered {reply.status} where 200 was expected")
    return len(reply.body)


def _count(variant: str, recordings: list[Recording], body_bytes: int) -> CountedPass:
    return CountedPass(
        variant=variant,
        requests=len(recordings),
        statements=sum(len(each.statements) for each in recordings),
        rows=sum(statement.row_count or 0 for each in recordings for statement in each.statements),
        body_bytes=body_bytes,
        elapsed_s=sum(each.elapsed_s for each in recordings),
        sql_s=sum(each.sql_s or 0.0 for each in recordings),
        gc_s=sum(each.gc_s or 0.0 for each in recordings),
        gc_collections=sum(each.gc_collections or 0 for each in recordings),
        gc_s_each=[each.gc_s or 0.0 for each in recordings],
    )


def profiled_pass(bench: Bench, variant: str, *, requests: int) -> None:
    """*requests* requests under the closed load with the profiler on, merged into one page.

    Saved as profile-<variant>.html, profile-<variant>.speedscope.json and watched-<variant>.json.
    """
    sessions = _fresh_folder(bench.folder / "log" / f"profiled-{variant}")
    with bench.serve(variant, PLACEBENCH_PROFILE="flame", PLACEBENCH_PROFILE_DIR=str(sessions)) as server:
        bench.warm_up(server)
        _discard_warm_up(bench, sessions)
        load = LoadSpec(
            url=server.url, request=bench.request, kind="closed", users=bench.users, requests=requests, seed=bench.seed
        )
        run_load(load, folder=bench.folder / "log")
        server.check()
    found = _recorded(bench, sessions)
    session = merge_sessions(found, application=("placebench/reference",))
    notes = list(notes_of(found.values()))
    page = bench.folder / f"profile-{variant}.html"
    write_flame_page(session, page, title=variant, requests=len(found), notes=notes)
    write_speedscope(session, page.with_suffix(".speedscope.json"))
    WatchedPass(variant, len(found), notes=notes).save(bench.folder / f"watched-{variant}.json")
    shutil.rmtree(sessions)


def _discard_warm_up(bench: Bench, folder: Path) -> None:
    """Delete what the warm-up left, all of it: the last recording is written after its answer was read."""
    deadline = time.monotonic() + _WRITTEN_WITHIN_S
    while len(found := _recorded(bench, folder)) < bench.warm_up_requests:
        if time.monotonic() > deadline:
            raise ServerError(f"the profiler left {len(found)} of {bench.warm_up_requests} recordings in {folder}")
        time.sleep(0.02)
    for path in folder.iterdir():
        path.unlink()


def _recorded(bench: Bench, folder: Path) -> dict[Path, Recording]:
    """The recordings of the request in *folder*, by the file of their flame (in mode light there is none).

    What else the service was asked, such as whether it is ready, is left out.
    """
    name = f"GET {urlsplit(bench.request).path}"
    recordings = {path: Recording.load(path) for path in sorted(folder.glob("*.recording.json"))}
    return {
        path.with_name(path.name.replace(".recording.json", ".pyisession")): recording
        for path, recording in recordings.items()
        if recording.name == name
    }


def _fresh_folder(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
