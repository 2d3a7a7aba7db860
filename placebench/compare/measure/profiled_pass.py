"""The profiled passes: a variant under the profiler, apart from timed passes, for its flame graph.

`profile_variants` profiles the variants of a comparison in replicates, request by request, to show where they differ. A
variant of another environment can be profiled if placebench is installed there too, or if a command serves it;
otherwise the pass reports that and the comparison continues. `profile_under_load` profiles a variant under closed-loop
load. A profiled variant is slower, so none of these passes is timed.
"""

import json
import os
import random
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from placebench import units
from placebench.compare.keep.records import (
    FrameTime,
    ProfiledPass,
    ProfiledReplicate,
    append_lines,
    read_profiled,
    rewrite_lines,
)
from placebench.compare.keep.run_folder import FAILURES, RunFolder, error_text
from placebench.compare.load.client_process import Driven
from placebench.compare.load.load_run import LoadSpec, run_load
from placebench.compare.measure.passes import PassSetup
from placebench.compare.measure.prepared_variants import PreparedVariants
from placebench.compare.what.variants import Variant
from placebench.errors import ServerError
from placebench.profiler.analysis.difference import Frame, self_times
from placebench.profiler.analysis.merging import load_session, merge_sessions
from placebench.profiler.capture.options import DEFAULT_FLAME_MODE
from placebench.profiler.live.channel import RecordingReceiver, startup_environment
from placebench.profiler.model.files import flame_graph_beside, write_whole
from placebench.profiler.model.recording_data import notes_of
from placebench.profiler.output.pages import write_flame_page, write_speedscope
from placebench.profiler.recording import Recording
from placebench.runtime.application_servers import serve
from placebench.runtime.mod_wsgi import apache_account_limit
from placebench.runtime.running_server import RunningServer, ServerSpec

_WSGI_ENTRY = "placebench.profiler.integrations.wsgi_entry"
_NEEDED = "placebench.profiler.sql_profiler, placebench.profiler.capture.flame_graph"
_WARM_UP_REQUESTS = 2
_MIN_REQUESTS, _MAX_REQUESTS = 3, 40
_ENOUGH_S = 4.0
"""Time for the requests to one variant, over all replicates."""
_MIN_SHARE = 0.0002
"""Minimum share of a request's time that a frame needs to be kept."""
_MAX_TIMES_MEDIAN = 2.0
"""A request that took longer than this multiple of the median is left out: it waited for something."""
_WRITTEN_WITHIN_S = 10.0


def profile_variants(run: RunFolder, prepared: PreparedVariants, replicates: int) -> None:
    """Profile the variants in *replicates* replicates: fresh processes, which are sent requests in a random order.

    Each replicate is appended to profiled.jsonl, where a later session continues. A variant that fails twice is left
    out. At the end, profiled-<name>.json says how many requests of a variant were profiled, or why none were. The mean
    request is saved as flame graphs: profile-<name>.html, .speedscope.json and .pyisession.
    """
    if not replicates:
        return
    path = prepared.folder / "profiled.jsonl"
    made = read_profiled(path)
    rewrite_lines(path, made)
    reasons = {each.name: reason for each in prepared.variants if (reason := why_not_profiled(each))}
    for number in range(1 + max((each.replicate for each in made), default=-1), replicates):
        names = [name for name in prepared.named if name not in reasons]
        if not names:
            break
        run.begin_step("profile", f"profile {number + 1} of {replicates}: {', '.join(names)}")
        random.Random(f"{run.head.seed} profile {number}").shuffle(names)
        profile = partial(_profile, prepared, number=number, enough_s=_ENOUGH_S / replicates)
        try:
            recorded = profile(names)
        except FAILURES as failure:  # which variant it is shows when each is alone
            run.note(f"a profile failed, now each variant is profiled alone: {error_text(failure)}")
            recorded = []
            for name in names:
                try:
                    recorded += run.try_twice(f"{name} profile", partial(profile, [name]))
                except FAILURES as error:
                    reasons[name] = error_text(error)
        append_lines(path, recorded)
        made += recorded
    for variant in prepared.variants:
        own = [each for each in made if each.variant == variant.name]
        notes = list(dict.fromkeys(note for each in own for note in each.notes))
        whole = ProfiledPass(variant.name, sum(each.requests for each in own), reasons.get(variant.name, ""), notes)
        whole.save(prepared.folder / f"profiled-{variant.name}.json")
        _keep_flame_graph(prepared.folder, variant, whole)


def why_not_profiled(variant: Variant) -> str:
    """Return why this variant cannot be profiled; empty if it can. May start a Python interpreter to find out."""
    if variant.request is not None:
        return "it has a request of its own"
    if variant.server == "mod_wsgi" and (reason := apache_account_limit()):
        return reason
    if variant.ours or variant.command or variant.python is None:
        return ""
    code = f"import sys, importlib.util, {_NEEDED}; sys.exit(importlib.util.find_spec({_WSGI_ENTRY!r}) is None)"
    environment = {**os.environ, **variant.variables}
    ended = subprocess.run([variant.python, "-c", code], env=environment, capture_output=True, check=False)
    if ended.returncode == 0:
        return ""
    return f"placebench is not installed beside {variant.python}: {variant.python} -m pip install placebench"


def _profile(
    prepared: PreparedVariants, names: Sequence[str], *, number: int, enough_s: float
) -> list[ProfiledReplicate]:
    """Serve these variants with the profiler, and send each in turn requests for *enough_s* seconds.

    They start at the same time, because a start takes longer than the requests. The mean request of each is saved
    beside the logs. If the workload writes, only the minimum number of requests is sent, so that all variants get the
    same number.
    """
    workload, made = prepared.workload, list[ProfiledReplicate]()
    folders = {name: fresh_log_folder(prepared.folder / "log" / f"profiled-{name}") for name in names}

    def start(name: str) -> tuple[RunningServer, Callable[[], None]]:
        log = prepared.folder / "log" / f"server-{name}.log"
        spec = prepared.named[name].spec(prepared.databases[name], hash_seed=1 + number, log=log)
        return stack.enter_context(profiled_server(prepared.named[name], spec, folders[name]))

    with ExitStack() as stack:
        client = stack.enter_context(prepared.client())
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            started = dict(zip(names, pool.map(start, names), strict=True))
        for name, (server, check) in started.items():
            warm = client.drive(server.url, workload, times=_WARM_UP_REQUESTS, login=True).check()
            check()
            driven, sent, began = list[Driven](), 0, time.monotonic()
            while sent < _MIN_REQUESTS or (
                not workload.writes and sent < _MAX_REQUESTS and time.monotonic() - began < enough_s
            ):
                driven.append(client.drive(server.url, workload).check())
                sent += len(driven[-1].wall_s)
            requested = set(chain(warm.names, *(each.names for each in driven)))
            labels = [label for each in driven for label in each.calls or workload.cycle_labels]
            recorded = wait_for_recordings(folders[name], requested, len(warm.wall_s) + len(labels))[-len(labels) :]
            flames = [flame for flame, _ in recorded]
            notes = list(notes_of(recording for _, recording in recorded))
            made.append(ProfiledReplicate(number, name, len(labels), _mean_times(flames, labels), notes))
            mean = json.dumps(merge_sessions(flames).to_json())
            write_whole(_mean_request(prepared.folder, name, number), mean)
    for folder in folders.values():
        shutil.rmtree(folder)
    return made


def _mean_times(sessions: Sequence[Path], labels: Sequence[str]) -> list[FrameTime]:
    """Return each frame's self time in the mean request, without requests much slower than their label's median."""
    alike: dict[str, list[Mapping[Frame, float]]] = {}
    for path, label in zip(sessions, labels, strict=True):
        alike.setdefault(label, []).append(self_times(load_session(path)))
    times: defaultdict[Frame, float] = defaultdict(float)
    for requests in alike.values():
        max_s = _MAX_TIMES_MEDIAN * median(sum(request.values()) for request in requests)
        kept = [request for request in requests if sum(request.values()) <= max_s]
        for frame, self_s in chain.from_iterable(request.items() for request in kept):
            times[frame] += self_s / len(kept) * len(requests) / len(sessions)
    min_s = _MIN_SHARE * sum(times.values())
    return [FrameTime(*frame, self_s) for frame, self_s in times.items() if self_s > min_s]


def _mean_request(folder: Path, variant: str, number: int | str) -> Path:
    return folder / "log" / f"mean-request-{variant}-{number}.pyisession"


@contextmanager
def profiled_server(
    variant: Variant, spec: ServerSpec, folder: Path, mode: str = DEFAULT_FLAME_MODE
) -> Iterator[tuple[RunningServer, Callable[[], None]]]:
    """Serve *spec* with the profiler in this mode; its recordings go to *folder*.

    A command records by itself what the Python processes below it serve, as `placebench profile run -- COMMAND` does.
    Yields the server, and a function that raises ServerError if none of its processes records anything.
    """
    if not variant.command:
        with serve(with_profiler(variant, spec, folder, mode)) as server:
            yield server, lambda: None
        return
    numbers = count(1)
    receiver = RecordingReceiver(lambda pid, made: made.save(folder / f"{pid}-{next(numbers)}.recording.json"))

    def check() -> None:
        if not receiver.processes:
            raise ServerError(
                "no process of the command can be recorded: expected CPython 3.11 or later, with a server, framework "
                f"or driver that placebench knows; its log: {spec.log}"
            )

    try:
        python_path = spec.environment.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        startup = startup_environment(mode, python_path=python_path)
        environment = {**spec.environment, **startup, **receiver.environment}
        with serve(replace(spec, environment=environment)) as server:
            yield server, check
    finally:
        receiver.close()


def with_profiler(variant: Variant, spec: ServerSpec, folder: Path, mode: str = DEFAULT_FLAME_MODE) -> ServerSpec:
    """Return *spec* with the profiler in this mode wrapped around the service; its recordings go to *folder*."""
    if variant.ours:
        variables = {"PLACEBENCH_PROFILE": mode, "PLACEBENCH_PROFILE_DIR": str(folder)}
        return replace(spec, environment={**spec.environment, **variables})
    variables = {
        "PLACEBENCH_WATCH_APP": variant.module,
        "PLACEBENCH_WATCH_MODE": mode,
        "PLACEBENCH_WATCH_DIR": str(folder),
    }
    return replace(spec, module=f"{_WSGI_ENTRY}:application", environment={**spec.environment, **variables})


def profile_under_load(setup: PassSetup, variant: str, *, requests: int, application: tuple[str, ...] = ()) -> None:
    """Send *requests* requests in a closed loop with the profiler on, and merge their profiles into one page.

    application: see `Variant.application`. The pass is saved as profile-<variant>.html,
    profile-<variant>.speedscope.json and profiled-<variant>.json.
    """
    sessions = fresh_log_folder(setup.folder / "log" / f"profiled-{variant}")
    names = recording_names(setup.request)
    with setup.serve(variant, PLACEBENCH_PROFILE=DEFAULT_FLAME_MODE, PLACEBENCH_PROFILE_DIR=str(sessions)) as server:
        setup.warm_up(server)
        discard_recordings(sessions, names, setup.warm_up_requests)
        load = LoadSpec(
            url=server.url, request=setup.request, kind="closed", users=setup.users, requests=requests, seed=setup.seed
        )
        run_load(load, folder=setup.folder / "log")
        server.check()
    found = wait_for_recordings(sessions, names)
    session = merge_sessions([flame for flame, _ in found], application=application)
    notes = list(notes_of(recording for _, recording in found))
    page = setup.folder / f"profile-{variant}.html"
    together = f"{setup.users} users sent the requests at the same time, so that each also waited for the others"
    shown = [*notes, together] if setup.users > 1 else notes
    write_flame_page(session, page, title=variant, requests=len(found), notes=shown)
    write_speedscope(session, page.with_suffix(".speedscope.json"))
    ProfiledPass(variant, len(found), notes=notes).save(setup.folder / f"profiled-{variant}.json")
    shutil.rmtree(sessions)


def fresh_log_folder(folder: Path) -> Path:
    """Make *folder*, empty, and return it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def recording_names(request: str) -> list[str]:
    """Return the names that the recordings of a GET request have."""
    return [f"GET {urlsplit(request).path}"]


def wait_for_recordings(folder: Path, names: Collection[str], expected: int = 0) -> list[tuple[Path, Recording]]:
    """Return the flame graph's path and the recording of each request, in order; mode light writes no such file.

    The last recording is written after its response was read, so this function waits for it: raises ServerError if
    fewer than *expected* appear in 10 s. Recordings with other names, such as the readiness check, are left out.
    """

    def counter(path: Path) -> int:  # of <pid>-<counter>.recording.json
        return int(path.name.partition("-")[2].partition(".")[0])

    deadline = time.monotonic() + _WRITTEN_WITHIN_S
    while True:
        paths = sorted(folder.glob("*.recording.json"), key=counter)
        is_late = time.monotonic() > deadline
        if len(paths) >= expected or is_late:
            recorded = [(flame_graph_beside(path), Recording.load(path)) for path in paths]
            found = [(flame, recording) for flame, recording in recorded if recording.name in names]
            if len(found) >= expected:
                return found
        if is_late:
            raise ServerError(
                f"the profiler recorded {len(found)} of {units.numbered(expected, 'request')} in {folder}: it sees "
                "those to a WSGI or ASGI application, in CPython 3.11 or later"
            )
        time.sleep(0.02)


def discard_recordings(folder: Path, names: Collection[str], expected: int) -> None:
    """Delete the recordings of a warm-up, once all *expected* recordings are there."""
    wait_for_recordings(folder, names, expected)
    for path in folder.iterdir():
        path.unlink()


def _keep_flame_graph(folder: Path, variant: Variant, made: ProfiledPass) -> None:
    """Save the mean request of all replicates as flame graphs, and delete the mean requests of the replicates."""
    sessions = sorted(folder.glob(f"log/{_mean_request(folder, variant.name, '*').name}"))
    if not sessions:
        return
    session = merge_sessions(sessions, application=variant.application)
    page = folder / f"profile-{variant.name}.html"
    write_flame_page(session, page, title=variant.name, requests=made.requests, notes=made.notes)
    write_speedscope(session, page.with_suffix(".speedscope.json"))
    write_whole(page.with_suffix(".pyisession"), json.dumps(session.to_json()), private=True)
    for path in sessions:
        path.unlink()
