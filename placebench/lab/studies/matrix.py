"""The matrix: a job at each combination, against a server of its own; `matrix_study` is the study of a `Matrix`."""

import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from placebench.compare.load.client_process import HttpClient, app_client, http_client, responses_folder
from placebench.compare.load.load_run import JobResult, http_job
from placebench.compare.measure.same_responses import SameResponses
from placebench.compare.what.variants import Variant, in_place
from placebench.errors import PlacebenchError, ServerError
from placebench.lab.inventory.seeding import seed
from placebench.lab.studies.combinations import Combination
from placebench.lab.studies.matrix_plan import AXES, Matrix, Point
from placebench.lab.studies.study import Measure, Restartable, StudySetup, StudySpec
from placebench.meters.meters import ServerMeter
from placebench.runtime.application_servers import serve
from placebench.runtime.mariadb import MariaDbServer, temporary_mariadb
from placebench.runtime.network.delay_queue import LinkProfile
from placebench.runtime.network.link import open_database_link
from placebench.runtime.running_server import ServerSpec
from placebench.runtime.supervisor import Supervisor, new_scratch_path

_Key = tuple[tuple[str, Any], ...]
_MODES = {"off": "", "light": "light", "full": "flame"}


def matrix_study(
    matrix: Matrix, combinations: list[tuple[Point, Combination]], *, request: str, repeats: int
) -> StudySpec:
    """Return the study that measures what of the matrix can be run.

    Raises PlacebenchError where nothing can, with the first reason.
    """
    wanted = matrix.combinations
    reasons = [(point, each.reason) for point, each in combinations]
    possible = tuple(point for point, reason in reasons if reason is None)
    if not possible:
        raise PlacebenchError(f"nothing in the matrix {matrix.name} can be run: {reasons[0][1]}")
    variants = {_key(point): each for point, each in combinations}

    @contextmanager
    def prepare(setup: StudySetup) -> Iterator[Measure]:
        scratch = new_scratch_path("placebench-matrix-")
        with (
            Supervisor(scratch),
            ExitStack() as servers,
            _put_in_place(variants, scratch / "sources") as placed,
            Restartable(lambda: http_client(setup.folder)) as client,
        ):
            rig = _Rig(setup, request, scratch, client, servers)
            yield lambda point, repeat: rig.measure(placed[_key(point)], repeat)

    return StudySpec(
        "matrix",
        possible,
        repeats,
        prepare,
        request,
        settings={
            "matrix": matrix.name,
            "title": matrix.title,
            "control": dict(matrix.control),
            "columns": matrix.columns,
            "usual": dict(AXES),
            "applications": {
                point["service"]: each.variant.to_json()
                for point, each in combinations
                if each.variant is not None and point.get("service") in matrix.tables.variants
            },
            "versions": [{"point": point, **variants[_key(point)].versions} for point in possible],
        },
        variants=tuple(dict.fromkeys(variants[_key(point)]["service"] for point in possible)),
        impossible=tuple((point, reason) for point, reason in reasons if reason and point in wanted),
    )


def _key(point: Mapping[str, Any]) -> _Key:
    """The point as something to look up by."""
    return tuple(sorted(point.items()))


@contextmanager
def _put_in_place(combinations: Mapping[_Key, Combination], folder: Path) -> Iterator[Mapping[_Key, Combination]]:
    """Those that can be run, their revisions and versions put in place, each once however many points have it.

    One that could not be put in place says so in `missing`.
    """
    runs = {name: each for name, each in combinations.items() if each.reason is None}
    variants = [each.variant for each in runs.values() if each.variant is not None]
    each_once = [variant for number, variant in enumerate(variants) if variant not in variants[:number]]
    with ExitStack() as stack:
        placed = [_placed(variant, folder / str(number), stack) for number, variant in enumerate(each_once)]
        yield {
            name: replace(each, **placed[each_once.index(each.variant)]) for name, each in runs.items() if each.variant
        }


def _placed(variant: Variant, folder: Path, stack: ExitStack) -> dict[str, Any]:
    """What its combinations have then: the variant that can be served, or in `missing` why there is none."""
    try:
        (placed,) = stack.enter_context(in_place((variant,), folder))
    except PlacebenchError as error:
        return {"missing": str(error)}
    return {"variant": placed}


class _Rig:
    """What the measurements of one session share: the data, the client, and the first responses."""

    def __init__(
        self, setup: StudySetup, request: str, scratch: Path, client: Restartable[HttpClient], servers: ExitStack
    ) -> None:
        self._setup, self._request, self._scratch, self._client = setup, request, scratch, client
        self._servers = servers
        self._mariadb: MariaDbServer | None = None
        self._seeded: dict[tuple[str, int], str] = {}
        self._same: dict[int, SameResponses] = {}

    def measure(self, combination: Combination, repeat: int) -> dict[str, Any]:
        """Duration and CPU of the whole job, in seconds, and how many results came.

        Raises GateFailedError for a response that differs, LoadError for a request that failed, ServerError for a
        combination that could not be put in place or does not start.
        """
        if combination.missing:
            raise ServerError(combination.missing)
        assert combination.variant is not None
        url = self._database(combination["database"], combination["trees"], combination.variant.revisions)
        job = self._inside if combination["client"] == "in-process" else self._over_http
        with self._far(combination, url) as far_url:
            done = job(combination, self._spec(combination, combination.variant, far_url, repeat), url)
        shutil.rmtree(self._profiles, ignore_errors=True)
        return {
            "duration_s": done.duration_s,
            "cpu_s": done.cpu_s,
            "client_cpu_s": None if combination["client"] == "in-process" else done.client_cpu_s,
            "body_bytes": done.body_bytes,
            "results": combination["requests"] * self._results(combination),
        }

    @contextmanager
    def _far(self, combination: Combination, url: str) -> Iterator[str]:
        """The URL by which the service reaches its database: over the network of the point, where it has latency."""
        if not combination["latency_ms"]:
            yield url
            return
        log = self._setup.folder / "log" / "link.log"
        with open_database_link(url, proxies=combination["proxies"], log=log) as link:
            link.set_profile(LinkProfile(combination["latency_ms"] / 1e3))
            yield link.url

    def _over_http(self, combination: Combination, spec: ServerSpec, near_url: str) -> JobResult:
        """near_url: of the database without latency, to read the CPU of its backends."""
        request = self._request_of(combination)
        with self._client.in_use() as client, serve(spec, combination["server"]) as server:
            if same := self._same_responses(combination):
                same.request(_name(combination), self._request, server.url)
            done = http_job(
                server,
                request,
                client=client,
                requests=combination["requests"],
                users=combination["users"],
                slots=spec.processes * spec.threads,
                meter=ServerMeter(server.metered_pids, near_url),
                folder=self._setup.folder,
            )
            server.check()
        return self._check(combination, done)

    def _inside(self, combination: Combination, spec: ServerSpec, near_url: str) -> JobResult:
        request, python = self._request_of(combination), str(spec.python or sys.executable)
        with app_client(python, spec.module, spec.variables(), self._setup.folder) as app:
            if same := self._same_responses(combination):
                same.request_by(_name(combination), self._request, app.body)
            app.drive([request] * 2)
            with ServerMeter(lambda: [app.pid], near_url) as meter:
                driven = app.drive([request] * combination["requests"])
        return self._check(combination, JobResult.of_client(driven, meter.read()))

    def _check(self, combination: Combination, done: JobResult) -> JobResult:
        if same := self._same_responses(combination):
            bodies = responses_folder(self._setup.folder)
            same.check_bodies(_name(combination), self._request, done.digests, bodies)
        return done

    def _same_responses(self, combination: Combination) -> SameResponses | None:
        """Of those that get the same request on the same data; None for a variant with a request of its own."""
        if combination.variant is None or combination.variant.request is not None:
            return None
        trees = combination["trees"]
        if trees not in self._same:
            self._same[trees] = self._setup.same_responses()
        return self._same[trees]

    def _request_of(self, combination: Combination) -> str:
        assert combination.variant is not None
        return combination.variant.request or self._request

    def _results(self, combination: Combination) -> int:
        """How many candidates one response holds; 0 for what is no response with candidates."""
        same = self._same_responses(combination)
        return same.candidates(self._request) if same else 0

    def _spec(self, combination: Combination, variant: Variant, url: str, repeat: int) -> ServerSpec:
        log = self._setup.folder / "log" / f"{combination['server']}.log"
        spec = variant.spec(url, hash_seed=repeat, log=log)
        profile = _MODES[combination["profiler"]]
        profiled = {"PLACEBENCH_PROFILE": profile, "PLACEBENCH_PROFILE_DIR": str(self._profiles)} if profile else {}
        return replace(
            spec,
            processes=combination["processes"],
            threads=combination["threads"],
            environment={**spec.environment, **profiled},
        )

    @property
    def _profiles(self) -> Path:
        return self._scratch / "profiles"

    def _database(self, kind: str, trees: int, revisions: tuple[str, ...]) -> str:
        """The URL of the database of this kind with so many trees; a file that is never opened for none."""
        if kind == "none":
            return f"sqlite:///{self._scratch}/none.db"
        if kind == "postgresql":
            return self._setup.data.with_trees(trees, revisions)
        if (kind, trees) not in self._seeded:
            url = self._on_mariadb(trees) if kind == "mariadb" else f"sqlite:///{self._scratch}/{trees}.db"
            seed(replace(self._setup.data.topology, trees=trees), url, loader="sql")
            self._seeded[kind, trees] = url
        return self._seeded[kind, trees]

    def _on_mariadb(self, trees: int) -> str:
        """The URL of a new database on the session's MariaDB, which is started for the first."""
        if self._mariadb is None:
            self._mariadb = self._servers.enter_context(temporary_mariadb())
        return self._mariadb.database(f"trees_{trees}")


def _name(combination: Combination) -> str:
    return f"{combination['service']} ({combination['server']}, {combination['database']})"
