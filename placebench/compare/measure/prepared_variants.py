"""Variants that are ready to be measured, each with its own database: `PreparedVariants`."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from placebench.compare.keep.phase_timer import PhaseTimer
from placebench.compare.keep.records import Block
from placebench.compare.load.client_machine import ClientMachine
from placebench.compare.load.client_process import Client, responses_folder
from placebench.compare.load.clients import HttpClient, http_client
from placebench.compare.what.variants import Variant
from placebench.compare.what.workload import Workload
from placebench.meters.table_contents import TableContents, read_tables


@dataclass
class TimedStatements:
    """Counts the statements on tables that each variant sends between a start's warm-up and its end."""

    read: dict[str, Callable[[], float]] = field(default_factory=dict)
    """Functions that return the number of calls of statements on tables, by variant; empty if nothing is counted."""
    sent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    requests: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def calls(self, owners: Mapping[str, str]) -> dict[str, float]:
        """Return the number of calls so far for each variant, read from the database that it uses: its owner's."""
        return {name: self.read[owner]() for name, owner in owners.items() if owner in self.read}

    def add(
        self, before: Mapping[str, float], after: Mapping[str, float], blocks: Sequence[Block], more: Mapping[str, int]
    ) -> None:
        """Add the statements that the variants sent during these blocks, and the requests of the blocks and *more*."""
        for name, calls in after.items():
            self.sent[name] += calls - before[name]
            self.requests[name] += more.get(name, 0)
            self.requests[name] += sum(block.requests for block in blocks if block.variant == name)

    def per_request(self, name: str) -> float | None:
        """Return the mean number per request; None for a variant without requests or if the server's counts shrank."""
        requests, sent = self.requests.get(name, 0), self.sent.get(name, 0.0)
        return sent / requests if requests and sent >= 0 else None


@dataclass(frozen=True)
class PreparedVariants:
    """Variants ready to be measured: each with its own database, and the requests to send to them."""

    variants: tuple[Variant, ...]
    databases: Mapping[str, str]
    """The URL of each variant's database, by the variant's name."""
    workload: Workload
    """The requests to each variant that has no request of its own."""
    folder: Path
    block_s: float
    """The time in seconds that a block should take."""
    users: int = 1
    """The number of users that send the requests of a block at the same time."""
    rate: float | None = None
    """The number of requests per second that arrive on a schedule, whatever the responses; None for users."""
    machine: ClientMachine | None = None
    """The machine that sends the timed requests; None for this machine."""
    timer: PhaseTimer = field(default_factory=PhaseTimer)
    """Measures where the time of the replicates goes."""
    statements: TimedStatements = field(default_factory=TimedStatements)
    """Counts the statements that the variants send while they are timed."""
    contents: Callable[[str], TableContents] = read_tables
    """Digests the data in the database at a URL."""
    before: Mapping[str, TableContents] = field(default_factory=dict)
    """The contents of each variant's database before any request; empty: to be read before the first replicate."""
    warmup: int = 0
    """The least number of requests before anything is timed."""
    ages_s: float = 0.0
    """For how long each replicate makes a process of each variant older, without timing; 0: not at all."""
    max_ages_s: float = 0.0
    """The longest that it may take instead until the process has served some 500 requests."""
    counted_as: Mapping[str, str] = field(default_factory=dict)
    """Variants that have no counted pass of their own, by name: that of this variant is theirs."""

    @cached_property
    def named(self) -> dict[str, Variant]:
        """The variants by name."""
        return {variant.name: variant for variant in self.variants}

    @contextmanager
    def client(self) -> Iterator[Client | HttpClient]:
        """Yield a client for requests that are not timed: in this process, or for a script in a process of its own."""
        if not self.workload.script:
            yield Client(responses_folder(self.folder))
            return
        with http_client(self.folder) as client:
            yield client

    def alike(self, name: str) -> list[str]:
        """Return the variants, *name* among them, whose databases are unchanged copies of the same database."""

        def kind(each: Variant) -> tuple[object, ...]:
            own = each.name if each.migrate or self.workload.writes else ""
            return own, each.request, each.revisions, sorted(each.postgres.items())

        mine = kind(self.named[name])
        return [each.name for each in self.variants if kind(each) == mine]

    def owner(self, name: str, replicate: int) -> str:
        """Return the variant whose database *name* uses in a replicate: `alike` variants use one another's in turn."""
        alike = self.alike(name)
        return alike[(alike.index(name) + replicate) % len(alike)]

    def workload_of(self, name: str) -> Workload:
        """Return the requests to the variant *name*."""
        variant = self.named[name]
        return self.workload if variant.request is None else variant.api.workload(variant.request)
