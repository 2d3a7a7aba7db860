"""The network study of a command: its connections are sent through a link."""

import math
import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench import units
from placebench.errors import LoadError, UsageError
from placebench.study.behind_link import Links, LinkSession, NetworkSetup, seed_of
from placebench.study.link_target import LinkTarget
from placebench.study.network_report import read_link
from placebench.study.session import Measure, Point, StudySpec

if TYPE_CHECKING:
    from placebench.compare.what.data_setup import DataSetup
    from placebench.runtime.postgres import Server


@dataclass(frozen=True)
class CommandNetwork:
    """A command with `{AXIS}` in its words, behind links to the server that it talks to."""

    command: tuple[str, ...]
    links: Links
    target: LinkTarget | None
    """What the links lead to; None: a copy of the data that is made for each measurement."""
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    prepare: str = ""
    """A shell command that is run before each measurement, without the link."""
    timeout_s: float = 600.0

    @property
    def variants(self) -> dict[str, dict[str, str]]:
        """The values of the axes by the name of the variant; one variant without axes."""
        named = (dict(zip(self.axes, values, strict=True)) for values in product(*self.axes.values()))
        return {", ".join(values.values()) or "command": values for values in named}

    def spec(self, *, repeats: int) -> StudySpec[NetworkSetup]:
        """Return the spec of the study; a measurement has `LinkedValues`, of one run of the command."""
        target = self.target.address if self.target else "its database"
        return StudySpec(
            command="study-network",
            points=self.links.points(tuple(self.variants)),
            repeats=repeats,
            prepare=self._prepare,
            request=shlex.join(self.command),
            settings={
                "between": "command",
                "target": target,
                **self.links.settings(),
                "operations": 1,
                "clients": 1,
                "prepare": self.prepare,
            },
        )

    @contextmanager
    def _prepare(self, setup: NetworkSetup) -> Iterator[Measure]:
        """Run every variant once without latency, for warming up; raises UsageError if all of them fail."""
        from placebench.compare.keep.run_folder import FAILURES, error_text

        seen: dict[str, dict[str, Any]] = {}
        broken: dict[str, str] = {}
        for name in self.variants:
            try:
                seen[name] = self._run({"variant": name, "link": "0"}, 0, setup)
            except FAILURES as error:
                broken[name] = error_text(error)
        if not seen:
            raise UsageError(next(iter(broken.values())))
        setup.note(f"without latency {', '.join(_seen_text(name, each) for name, each in seen.items())}")
        points = [(values, link) for values in seen.values() for link in self.links.links]
        whole_s = setup.repeats * sum(_expected_s(values, read_link(link)) for values, link in points)
        minutes = units.numbered(math.ceil(whole_s / 60), "minute")
        setup.note(f"about {minutes} for {units.numbered(setup.repeats, 'repeat')} of all latencies")

        def measure(point: Point, repeat: int) -> dict[str, Any]:
            if point["variant"] in broken:
                raise LoadError(broken[point["variant"]])
            return self._run(point, repeat, setup)

        yield measure

    def _run(self, point: Point, repeat: int, setup: NetworkSetup) -> dict[str, Any]:
        from placebench.compare.what.data_setup import database_variables, run_command

        with ExitStack() as stack:
            target, given = self.target, dict[str, str]()
            if setup.copy is not None:
                database_url = stack.enter_context(setup.copy())
                given = database_variables(database_url, None)
                target = LinkTarget.parse(given["DATABASE_URL"])
            assert target is not None
            if self.prepare:
                log = setup.folder / "log" / "prepare.log"
                run_command("--prepare", self.prepare, given.get("DATABASE_URL", ""), None, log=log)
            return self._measure(point, repeat, target, {**os.environ, **given}, setup.folder / "log")

    def _measure(
        self, point: Point, repeat: int, target: LinkTarget, environment: Mapping[str, str], log: Path
    ) -> dict[str, Any]:
        from placebench.runtime.network.link import open_link
        from placebench.runtime.supervisor import ChildLog, ChildSpec, Supervisor, start_child

        profiles = self.links.profiles(point["link"], seed_of(repeat))
        with open_link(target.host, target.port, proxies=len(profiles)) as link, Supervisor() as supervisor:
            link.set_profiles(profiles)
            address = f"127.0.0.1:{link.port}"
            spec = ChildSpec(
                name="the command",
                argv=target.fill(self.command, address, self.variants[point["variant"]]),
                env={**environment, **target.variables(environment, address)},
                log=log / "command.log",
                grace_s=1.0,
            )
            output, before = ChildLog(log / "command.log"), link.traffic()
            link.trace()
            started = time.perf_counter()
            with start_child(spec, supervisor) as child:
                try:
                    code = child.wait(self.timeout_s)
                except TimeoutError:
                    raise LoadError(
                        f"the command did not end in {self.timeout_s:g} s: give it more time with --timeout, or leave "
                        "long latencies out of --latency-ms"
                    ) from None
                elapsed_s = time.perf_counter() - started
                cpu_s = supervisor.program_cpu_s
            traffic = link.traffic().since(before)
            if code:
                raise LoadError(f"the command ended with exit code {code}; {output.end()}")
            if not traffic.connections:
                raise LoadError(
                    f"the command opened no connection to {target.address} through the link: put {{url}} or "
                    "{address} into its words, or let it read an environment variable that has this address, such as "
                    "DATABASE_URL"
                )
            return {
                "elapsed_s": elapsed_s,
                "cpu_s": cpu_s,
                "starved_s": 0.0,
                **asdict(traffic),
                "in_transit_s": min(traffic.in_transit_s, elapsed_s),
                "trace": link.trace(),
            }


def _expected_s(values: Mapping[str, Any], link: Sequence[float]) -> float:
    """Return how long a command takes behind *link* that took these *values* without latency."""
    waits_s = values["round_trips"] * sum(link) / 1e3 + values["connections"] * link[0] / 1e3
    return float(values["elapsed_s"] + waits_s)


def _seen_text(name: str, values: Mapping[str, Any]) -> str:
    trips = units.numbered(values["round_trips"], "round trip")
    return f"{name} takes {units.duration(values['elapsed_s'])} in {trips}"


class CommandSession(LinkSession):
    """A session of `CommandNetwork`, on the user's own server or on copies of data that placebench made."""

    def __init__(
        self, spec: StudySpec[NetworkSetup], data: "DataSetup", folder: Path, server: "Server | None" = None
    ) -> None:
        """server: the PostgreSQL server of the copies; None if the command has its own database."""
        super().__init__(spec, data, folder)
        self._data, self._server = data, server

    def _title(self) -> str:
        return self._data.title if self._server else "describe the machine"

    def _describe(self) -> NetworkSetup:
        from placebench.compare.keep.environment import manifest
        from placebench.compare.measure.databases import ScratchData, database_name

        server, folder = self._server, self._run.path
        if server is None:
            self._run.record_environment(receipt={}, manifest=manifest(""))
            return NetworkSetup(folder, repeats=self._spec.repeats, note=self._run.note)
        self._run.claim_server(server)
        filled = ScratchData(server, self._data, folder)
        self._run.record_environment(receipt=filled.receipt if filled.url else {}, manifest=manifest(filled.url))
        label = f"{database_name(folder)}_copy"

        @contextmanager
        def copy() -> Iterator[str]:
            owned = server.create_database(label, filled.prefix)
            yield server.admin_url(label) if self._data.superuser else owned
            server.drop_database(label)

        return NetworkSetup(folder, repeats=self._spec.repeats, note=self._run.note, copy=copy)
