"""The watched pass of a comparison: each variant under the profiler, apart from the timed blocks, for its flame.

The key piece is `watched_pass`. What is watched is slower, so nothing of it is timed. A variant of another environment
is watched where placebench is installed there too; where it is not, the pass says so and the comparison goes on.
"""

import json
import os
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from placebench.errors import LoadError, ServerError
from placebench.experiment.canonical_response import ask
from placebench.experiment.parts import FAILURES, Say, nobody, try_twice
from placebench.experiment.records import WatchedPass
from placebench.experiment.replicate import PreparedVariants, reason_of
from placebench.experiment.variants import Variant
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


def watched_pass(variants: PreparedVariants, name: str, *, note: Say = nobody) -> WatchedPass:
    """Watch 3 to 40 requests of the variant *name*, some two seconds of them; saved as watched-<name>.json.

    Where it fails it is tried once more, which *note* is told. With a flame come profile-<name>.html, .speedscope.json
    and .pyisession, the mean of the requests.
    """
    variant = variants.named[name]
    made = WatchedPass(variant=name, requests=0, reason=_cannot(variant))
    if not made.reason:
        try:
            made = try_twice(f"{name} profile", lambda: _watch(variants, variant), note)
        except FAILURES as error:
            made = replace(made, reason=reason_of(error))
    made.save(variants.folder / f"watched-{name}.json")
    return made


def _cannot(variant: Variant) -> str:
    """Why this variant cannot be watched; empty where it can."""
    if variant.request is not None:
        return "it is asked something else"
    if variant.ours:
        return ""
    if variant.python is None or _holds_placebench(variant):
        return ""
    return f"placebench is not installed beside {variant.python}: {variant.python} -m pip install placebench"


def _holds_placebench(variant: Variant) -> bool:
    """Whether its environment has the profiler with all that a flame needs; costs the start of a Python."""
    asks = f"import sys, importlib.util, {_NEEDED}; sys.exit(importlib.util.find_spec({_SERVED!r}) is None)"
    environment = {**os.environ, **variant.variables}
    asked = subprocess.run([str(variant.python), "-c", asks], env=environment, capture_output=True, check=False)
    return asked.returncode == 0


def _watch(variants: PreparedVariants, variant: Variant) -> WatchedPass:
    """Serve it once more, watched, and keep its flame."""
    folder = variants.folder / "log" / f"watched-{variant.name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = variants.folder / "log" / f"uwsgi-{variant.name}.log"
    spec = _watched(variant, variant.spec(variants.databases[variant.name], hash_seed=_HASH_SEED, log=log), folder)
    with serve(spec) as server:
        for _ in range(_WARM_UP_REQUESTS):
            ask(server.url, variants.request)
        asked = _ask_for_a_while(server.url, variants.request)
        recorded = _recorded(folder, variants.request, _WARM_UP_REQUESTS + asked)[-asked:]
    watched = WatchedPass(variant.name, len(recorded), notes=list(notes_of(recording for _, recording in recorded)))
    _keep(variants.folder / f"profile-{variant.name}", [session for session, _ in recorded], variant, watched)
    shutil.rmtree(folder)
    return watched


def _watched(variant: Variant, spec: ServerSpec, folder: Path) -> ServerSpec:
    """The same service, with the profiler around it."""
    if variant.ours:
        asked = {"PLACEBENCH_PROFILE": "flame", "PLACEBENCH_PROFILE_DIR": str(folder)}
        return replace(spec, environment={**spec.environment, **asked})
    asked = {
        "PLACEBENCH_WATCH_APP": variant.module,
        "PLACEBENCH_WATCH_MODE": "flame",
        "PLACEBENCH_WATCH_DIR": str(folder),
    }
    return replace(spec, module=f"{_SERVED}:application", environment={**spec.environment, **asked})


def _ask_for_a_while(url: str, request: str) -> int:
    began, asked = time.monotonic(), 0
    while asked < _FEWEST or (asked < _MOST and time.monotonic() - began < _ENOUGH_S):
        ask(url, request)
        asked += 1
    return asked


def _recorded(folder: Path, request: str, expected: int) -> list[tuple[Path, Recording]]:
    """The flame and the recording of each request as they came; the last one is written after its answer was read."""
    name = f"GET {urlsplit(request).path}"
    deadline = time.monotonic() + _WRITTEN_WITHIN_S
    while True:
        paths = sorted(folder.glob("*.recording.json"), key=_number)
        recorded = [(flame_graph_beside(path), Recording.load(path)) for path in paths]
        found = [(flame, recording) for flame, recording in recorded if recording.name == name]
        if len(found) >= expected:
            return found
        if time.monotonic() > deadline:
            raise ServerError(f"the profiler left {len(found)} of {expected} recordings")
        time.sleep(0.05)


def _number(path: Path) -> int:
    """Of `<pid>-<counter>.recording.json`, the counter."""
    return int(path.name.partition("-")[2].partition(".")[0])


def _keep(page: Path, sessions: list[Path], variant: Variant, watched: WatchedPass) -> None:
    if not sessions:
        raise LoadError("not one request was watched")
    session = merge_sessions(sessions, application=("placebench/reference",) if variant.ours else ())
    html = page.with_name(f"{page.name}.html")
    write_flame_page(session, html, title=variant.name, requests=watched.requests, notes=watched.notes)
    write_speedscope(session, page.with_name(f"{page.name}.speedscope.json"))
    write_whole(page.with_name(f"{page.name}.pyisession"), json.dumps(session.to_json()))
