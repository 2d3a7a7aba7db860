"""The load passes of one variant, closed-loop and open-loop, each on its own server process.

The main functions are `load_closed` and `load_open`; `PassSetup` has the settings of all passes of a run. Timed passes
run unprofiled and profiled passes are not timed, because pyinstrument's hook makes a request about half as long again.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from placebench.compare.keep.records import LoadPass
from placebench.compare.load.load_run import WARM_UPS_A_THREAD, LoadInterrupted, LoadSpec, run_load, warm_up
from placebench.compare.measure.same_responses import SameResponses
from placebench.compare.what.validity import LOAD_RULES, LoadRules, load_problem
from placebench.compare.what.variants import read_variant
from placebench.errors import UndecidedError
from placebench.meters.meters import ServerMeter
from placebench.meters.wait_events import sample_wait_events
from placebench.runtime.application_servers import serve
from placebench.runtime.running_server import RunningServer, ServerSpec


@dataclass(frozen=True)
class PassSetup:
    """The settings that every pass of a run shares."""

    database_url: str
    request: str
    folder: Path
    """The run's folder."""
    processes: int
    threads: int
    users: int
    seed: int
    telemetry: bool = False
    """Whether workers, client and backends write telemetry to the run's folder."""
    python: str | None = None
    """The Python of another environment, for a variant that needs one; None: this Python."""

    def part(self, name: str) -> Path | None:
        """Return the folder for the telemetry of the pass *name*, or None without telemetry.

        Files of a failed first attempt are moved to <name>-failed.
        """
        if not self.telemetry:
            return None
        part = self.folder / "telemetry" / name
        if part.exists():
            part.rename(part.with_name(f"{name}-failed"))
        return part

    def serve(self, variant: str, part: Path | None = None, **environment: str) -> RunningServer:
        """Return the variant's service, ready for requests, with its telemetry in *part*; use it in a `with` block."""
        log = self.folder / "log" / f"uwsgi-{variant}.log"
        python = Path(self.python) if self.python else None
        chosen = read_variant(variant, python=python)
        if chosen.ours:
            spec = ServerSpec(
                self.database_url,
                variant,
                environment=environment,
                log=log,
                telemetry=part,
                module=chosen.module,
                interface=chosen.interface,
                server=chosen.server,
                cache_server=chosen.cache_server,
            )
        else:  # the user's application knows neither our telemetry nor our environment
            spec = chosen.spec(self.database_url, hash_seed=self.seed, log=log)
        return serve(replace(spec, processes=self.processes, threads=self.threads))

    @property
    def slots(self) -> int:
        """The number of threads of the service, over all its processes."""
        return self.processes * self.threads

    @property
    def warm_up_requests(self) -> int:
        """The number of requests that `warm_up` sends."""
        return WARM_UPS_A_THREAD * self.slots

    def warm_up(self, server: RunningServer) -> None:
        """Send the warm-up requests, so that every worker has compiled its code and connected."""
        warm_up(server, self.request, self.slots)


def load_closed(setup: PassSetup, variant: str, *, time_s: float, same: SameResponses) -> LoadPass:
    """Compare the variant's response, then load it in a closed loop for *time_s*.

    The pass is saved as locust-<variant>-closed.json.
    """
    part = setup.part(f"{variant}-closed")
    with setup.serve(variant, part) as server:
        same.request(variant, setup.request, server.url)
        load = LoadSpec(
            url=server.url,
            request=setup.request,
            kind="closed",
            users=setup.users,
            time_s=time_s,
            seed=setup.seed,
            telemetry=part,
        )
        return _loaded(setup, variant, server, load)


def load_open(
    setup: PassSetup, variant: str, *, time_s: float, rate_per_s: float, rules: LoadRules = LOAD_RULES
) -> LoadPass:
    """Load the variant in an open loop, on a seeded schedule; the pass is saved as locust-<variant>-open.json.

    Raises UndecidedError if the generator itself was the limit: the pass is discarded, and saved under another name.
    """
    part = setup.part(f"{variant}-open")
    with setup.serve(variant, part) as server:
        load = LoadSpec(
            url=server.url,
            request=setup.request,
            kind="open",
            rate_per_s=rate_per_s,
            time_s=time_s,
            seed=setup.seed,
            telemetry=part,
        )
        made = _loaded(setup, variant, server, load, rules=rules)
    if made.invalid:
        raise UndecidedError(made.invalid)
    return made


def _loaded(
    setup: PassSetup, variant: str, server: RunningServer, load: LoadSpec, *, rules: LoadRules | None = None
) -> LoadPass:
    """Warm up and load the server, and read its meters; an interrupted pass is saved with the results so far.

    A pass in which a worker died is not saved, because its figures mix two servers.
    """
    interrupted: LoadInterrupted | None = None
    setup.warm_up(server)
    with (
        sample_wait_events(setup.database_url, load.telemetry),
        ServerMeter(server.metered_pids, setup.database_url) as meter,
    ):
        try:
            result = run_load(load, folder=setup.folder / "log")
        except LoadInterrupted as error:
            if error.result is None:
                raise
            interrupted, result = error, error.result
    server.check()
    invalid = load_problem(result, at_once=load.at_once, rules=rules) if rules else None
    loaded = LoadPass(variant=variant, result=result, meters=meter.read(), invalid=invalid)
    name = f"locust-{variant}-{load.kind}"
    if invalid is not None:
        name += f"-invalid-{1 + len(list(setup.folder.glob(f'{name}-invalid-*.json')))}"
    loaded.save(setup.folder / f"{name}.json")
    if interrupted:
        raise interrupted
    return loaded
