"""The profiled passes: a variant under the profiler, apart from what is timed, for its flame graph.

`profile_requests` profiles a variant of a comparison, request by request: one of another environment where placebench
is installed there too; where it is not, the pass says so and the comparison goes on. `profile_under_load` profiles a
variant of the reference service under closed-loop load. What is profiled is slower, so nothing of it is timed.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from placebench.errors import LoadError, ServerError
from placebench.experiment.client_process import Client, HttpClient
from placebench.experiment.load_run import LoadSpec, run_load
from placebench.experiment.passes import PassSetup
from placebench.experiment.records import ProfiledPass
from placebench.experiment.replicate import PreparedVariants
from placebench.experiment.run_folder import FAILURES, RunFolder, error_text
from placebench.experiment.variants import Variant
from placebench.experiment.workload import Workload
from placebench.profiler.analysis.merging import merge_sessions
from placebench.profiler.model.files import flame_graph_beside, write_whole
from placebench.profiler.model.recording_data import notes_of
from placebench.profiler.output.pages import write_flame_page, write_speedscope
from placebench.profiler.recording import Recording
from placebench.runtime.wsgi_servers import ServerSpec, serve

_SERVED = "placebench.profiler.integrations.served"
_NEEDED = "placebench.profiler.sql_profiler, placebench.profiler.capture.flame_graph"
_WARM_UP_REQUESTS = 2
_FEWEST, _MOST, _ENOUGH_S = 3, 40, 2.0
_HASH_SEED = 1
_WRITTEN_WITHIN_S = 10.0


def profile_requests(run: RunFolder, prepared: PreparedVariants, name: str) -> ProfiledPass:
    """Profile 3 to 40 requests of the variant *name*, some two seconds of them; saved as profiled-<name>.json.

    Where it fails it is tried once more. With a flame graph come profile-<name>.html, .speedscope.json
    and .pyisession, the mean of the requests.
    """
    variant = prepared.named[name]
    made = ProfiledPass(variant=name, requests=0, reason=why_not_profiled(variant))
    if not made.reason:
        try:
            made = run.try_twice(f"{name} profile", lambda: _profile(prepared, variant))
        except FAILURES as error:
            made = replace(made, reason=error_text(error))
    made.save(prepared.folder / f"profiled-{name}.json")
    return made


def why_not_profiled(variant: Variant) -> str:
    """Return why this variant cannot be profiled; empty where it can."""
    if variant.request is not None:
        return "it has a request of its own"
    if variant.command:
        return "a command of its own serves it"
    if variant.ours:
        return ""
    if variant.python is None or _holds_placebench(variant):
        return ""
    return f"placebench is not installed beside {variant.python}: {variant.python} -m pip install placebench"


def _holds_placebench(variant: Variant) -> bool:
    """Whether its environment has the profiler with all that a flame graph needs; costs the start of a Python."""
    code = f"import sys, importlib.util, {_NEEDED}; sys.exit(importlib.util.find_spec({_SERVED!r}) is None)"
    environment = {**os.environ, **variant.variables}
    ended = subprocess.run([str(variant.python), "-c", code], env=environment, capture_output=True, check=False)
    return ended.returncode == 0


def _profile(prepared: PreparedVariants, variant: Variant) -> ProfiledPass:
    """Serve it once more with the profiler, and keep its flame graph."""
    folder = fresh_log_folder(prepared.folder / "log" / f"profiled-{variant.name}")
    log = prepared.folder / "log" / f"server-{variant.name}.log"
    spec = with_profiler(variant, variant.spec(prepared.databases[variant.name], hash_seed=_HASH_SEED, log=log), folder)
    workload = prepared.workload
    with prepared.client() as client, serve(spec) as server:
        warm = client.drive(server.url, workload, times=_WARM_UP_REQUESTS, login=True).check()
        sent = _send_for_a_while(client, server.url, workload)
        recorded = wait_for_recordings(folder, warm.names, len(warm.wall_s) + sent)[-sent:]
    made = ProfiledPass(variant.name, len(recorded), notes=list(notes_of(recording for _, recording in recorded)))
    _keep(prepared.folder / f"profile-{variant.name}", [session for session, _ in recorded], variant, made)
    shutil.rmtree(folder)
    return made


def with_profiler(variant: Variant, spec: ServerSpec, folder: Path, mode: str = "flame") -> ServerSpec:
    """The same service, with the profiler in this mode around it, whose recordings go into *folder*."""
    if variant.ours:
        variables = {"PLACEBENCH_PROFILE": mode, "PLACEBENCH_PROFILE_DIR": str(folder)}
        return replace(spec, environment={**spec.environment, **variables})
    variables = {
        "PLACEBENCH_WATCH_APP": variant.module,
        "PLACEBENCH_WATCH_MODE": mode,
        "PLACEBENCH_WATCH_DIR": str(folder),
    }
    return replace(spec, module=f"{_SERVED}:application", environment={**spec.environment, **variables})


def _send_for_a_while(client: Client | HttpClient, url: str, workload: Workload) -> int:
    """Send some cycles of requests, and return how many requests; as many to each variant where they write."""
    began, sent = time.monotonic(), 0
    while sent < _FEWEST or (not workload.writes and sent < _MOST and time.monotonic() - began < _ENOUGH_S):
        sent += len(client.drive(url, workload).check().wall_s)
    return sent


def profile_under_load(setup: PassSetup, variant: str, *, requests: int) -> None:
    """*requests* requests under the closed-loop load with the profiler on, merged into one page.

    Saved as profile-<variant>.html, profile-<variant>.speedscope.json and profiled-<variant>.json.
    """
    sessions = fresh_log_folder(setup.folder / "log" / f"profiled-{variant}")
    names = recording_names(setup.request)
    with setup.serve(variant, PLACEBENCH_PROFILE="flame", PLACEBENCH_PROFILE_DIR=str(sessions)) as server:
        setup.warm_up(server)
        discard_recordings(sessions, names, setup.warm_up_requests)
        load = LoadSpec(
            url=server.url, request=setup.request, kind="closed", users=setup.users, requests=requests, seed=setup.seed
        )
        run_load(load, folder=setup.folder / "log")
        server.check()
    found = wait_for_recordings(sessions, names)
    session = merge_sessions([flame for flame, _ in found], application=("placebench/reference",))
    notes = list(notes_of(recording for _, recording in found))
    page = setup.folder / f"profile-{variant}.html"
    write_flame_page(session, page, title=variant, requests=len(found), notes=notes)
    write_speedscope(session, page.with_suffix(".speedscope.json"))
    ProfiledPass(variant, len(found), notes=notes).save(setup.folder / f"profiled-{variant}.json")
    shutil.rmtree(sessions)


def fresh_log_folder(folder: Path) -> Path:
    """Make *folder*, empty, and return it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def recording_names(request: str) -> list[str]:
    """How recordings of the laboratory's request are called."""
    return [f"GET {urlsplit(request).path}"]


def wait_for_recordings(folder: Path, names: Collection[str], expected: int = 0) -> list[tuple[Path, Recording]]:
    """Return the flame graph's file and the recording of each request, as they came; in mode light there is no file.

    The last one is written after its response was read: raises ServerError where fewer than *expected* come in 10 s.
    What else the service was sent, such as whether it is ready, is left out.
    """
    deadline = time.monotonic() + _WRITTEN_WITHIN_S
    while True:
        paths = sorted(folder.glob("*.recording.json"), key=_number)
        recorded = [(flame_graph_beside(path), Recording.load(path)) for path in paths]
        found = [(flame, recording) for flame, recording in recorded if recording.name in names]
        if len(found) >= expected:
            return found
        if time.monotonic() > deadline:
            raise ServerError(f"the profiler left {len(found)} of {expected} recordings in {folder}")
        time.sleep(0.02)


def discard_recordings(folder: Path, names: Collection[str], expected: int) -> None:
    """Delete what the *expected* requests of the warm-up left, once all of it is there."""
    wait_for_recordings(folder, names, expected)
    for path in folder.iterdir():
        path.unlink()


def _number(path: Path) -> int:
    """Of `<pid>-<counter>.recording.json`, the counter."""
    return int(path.name.partition("-")[2].partition(".")[0])


def _keep(page: Path, sessions: list[Path], variant: Variant, made: ProfiledPass) -> None:
    if not sessions:
        raise LoadError("not one request was profiled")
    session = merge_sessions(sessions, application=("placebench/reference",) if variant.ours else ())
    html = page.with_name(f"{page.name}.html")
    write_flame_page(session, html, title=variant.name, requests=made.requests, notes=made.notes)
    write_speedscope(session, page.with_name(f"{page.name}.speedscope.json"))
    write_whole(page.with_name(f"{page.name}.pyisession"), json.dumps(session.to_json()))
