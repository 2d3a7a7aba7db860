"""The replicates of an interleaved comparison until enough of them are valid, for `compare` and `perfload`.

The main class is `ReplicateSeries`. Each replicate is on the disk before the next one is made, so that a run that was
killed loses at most one. An invalid replicate is replaced; three invalid ones in a row end the comparison.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from placebench import units
from placebench.compare.keep.records import Block, append_lines
from placebench.compare.keep.run_folder import RunFolder, measure_each
from placebench.compare.measure.prepared_variants import PreparedVariants
from placebench.compare.measure.replicate import REPLICATE_FAILURES, make_replicate
from placebench.compare.measure.replicate_plan import invalidated, keep_whole_replicates, plan_replicate
from placebench.compare.measure.same_responses import SameResponses
from placebench.errors import NoResponseError, UndecidedError
from placebench.meters.table_contents import TableContents
from placebench.stats.error_shares import MORE_ERRORS, compare_errors, error_count

_MAX_READ_S = 2.0
"""Reading time in seconds above which data is read only before the first replicate and after the last one."""


class ReplicateSeries:
    """The replicates in the folder of a run, including those of earlier sessions."""

    def __init__(self, run: RunFolder, same: SameResponses, *, rounds: int, partial: Collection[str] = ()) -> None:
        """rounds: number of rounds per replicate. partial: as in `plan_replicate`."""
        self._run = run
        self._same = same
        self._rounds = rounds
        self._partial = partial
        self._path = run.path / "blocks.jsonl"
        self._changing: Sequence[str] = ()
        """Tables that requests that only read change in all variants alike."""
        self.blocks = keep_whole_replicates(self._path, rounds=rounds, partial=partial)

    def valid(self) -> list[int]:
        """Return the numbers of the valid replicates, from 0."""
        return sorted({block.replicate for block in self.blocks} - set(self.invalid()))

    def invalid(self) -> list[int]:
        """Return the numbers of the invalid replicates."""
        return sorted({block.replicate for block in self.blocks if block.invalid is not None})

    def measure(
        self, prepared: PreparedVariants, wanted: int, *, needed: Callable[[], Sequence[str]] | None = None
    ) -> None:
        """Make replicates until *wanted* of them are valid, or until *needed* returns no variant.

        needed: returns the variants of the next replicate; by default all. Raises GateFailedError if responses or data
        differ, or if a variant failed more requests than the first variant or sent no response; UndecidedError if three
        replicates in a row are invalid.
        """
        before = prepared.before or self._read_data(prepared)
        if prepared.workload.writes:
            before = {}
        is_read_each_time = sum(each.elapsed_s for each in before.values()) < _MAX_READ_S

        def missing() -> Iterator[Sequence[str]]:
            while (valid := len(self.valid())) < wanted:
                names = list(prepared.named) if needed is None else needed()
                if not names:
                    return
                self._run.begin_step("comparison", f"replicate {valid + 1} of {wanted}: {', '.join(names)}")
                yield names

        def give_up(_: Sequence[str], reason: str) -> None:
            if self.blocks[-1].replicate in {block.replicate for block in self.blocks if error_count(block)}:
                self._check_failures(prepared)
            counts = f"{len(self.valid())} of {wanted} replicates count"
            raise UndecidedError(f"{counts}: 3 in a row do not, the last because {reason}")

        kept = before if is_read_each_time else {}
        measure_each(missing(), lambda names: self._make_one(prepared, names, kept), give_up)
        self._check_failures(prepared)
        if not is_read_each_time:
            users = {name: " or ".join(prepared.alike(name)) for name in before}
            self._check_data(before, self._read_data(prepared), users)

    def _check_failures(self, prepared: PreparedVariants) -> None:
        """Raise GateFailedError for a variant that failed more requests than the first variant.

        Replicates with failed requests are discarded, so the others do not show that a variant sometimes fails. Lost
        connections are not counted, since a process may have been killed.
        """
        first, *others = prepared.named
        for name in others:
            made = compare_errors(self.blocks, first, name)
            if made.verdict == MORE_ERRORS:
                failing = (block for block in self.blocks if block.variant == name and error_count(block))
                reason = next(failing).invalid or ""
                raise self._same.error(
                    f"{name} failed {units.count(made.after.failed)} of {units.numbered(made.after.sent, 'request')}, "
                    f"and {first} {units.count(made.before.failed) if made.before.failed else 'none'} of "
                    f"{units.count(made.before.sent)} in the same replicates: {reason.removeprefix(f'{name}: ')}"
                )

    def check_data(self, prepared: PreparedVariants, *, same_requests: bool = True) -> None:
        """Raise GateFailedError for a variant whose requests so far have changed data that they should only read.

        If requests may write, each variant must have changed the number of rows of each table as the first variant did.
        same_requests: whether each variant was sent the same number of requests; otherwise rows are not compared.
        """
        if not prepared.before or (prepared.workload.writes and not same_requests):
            return
        now = self._read_data(prepared)
        if not prepared.workload.writes:
            own = {name: prepared.before[name] for name in prepared.named}  # the control may get no request yet
            self._find_changing(own, now, same_requests=same_requests)
            self._check_data(prepared.before, now)
            return
        grown = {
            name: prepared.before[name].growth(now[name])
            for name, variant in prepared.named.items()
            if variant.request is None
        }
        first = next(iter(grown), "")
        for name in grown:
            for table in sorted({*grown[first], *grown[name]}):
                expected, seen = (grown[each].get(table, 0) for each in (first, name))
                if seen != expected:
                    rows = f"{expected:+d} rows in {first} and by {seen:+d} in {name}"
                    raise self._same.error(
                        f"the same requests change {table} by {rows}; may_change names tables that requests may change"
                    )

    def _find_changing(
        self, before: Mapping[str, TableContents], now: Mapping[str, TableContents], *, same_requests: bool
    ) -> None:
        """Name the tables that the requests change alike in all variants, such as those of logins and sessions.

        Alike: the same tables, and if all were sent the same number of requests, by the same number of rows.
        """
        seen = []
        for name, contents in before.items():
            grown = contents.growth(now[name]) if same_requests else {}
            seen.append({table: grown.get(table, 0) for table in contents.changed(now[name])})
        alike = [table for table in seen[0] if all(each.get(table) == seen[0][table] for each in seen)]
        if len(seen) > 1 and alike:
            self._changing = alike
            self._same.name_changing_tables(alike)
            tables = ", ".join(alike)
            self._run.note(f"not compared, because requests that read change it in all variants alike: {tables}")

    def _make_one(
        self, prepared: PreparedVariants, names: Sequence[str], before: Mapping[str, TableContents]
    ) -> str | None:
        """Make a replicate of these variants, check the data and its responses, and save it; return why it is invalid.

        Data is checked first, because changed data explains different responses. A saved replicate has passed both
        checks, unless its run has failed.
        """
        number = max((block.replicate for block in self.blocks), default=-1) + 1  # a number is never used twice
        plan = plan_replicate(names, number, rounds=self._rounds, seed=self._run.head.seed, partial=self._partial)
        with prepared.timer.measure("replicates"):
            try:
                blocks = make_replicate(prepared, plan)
            except NoResponseError as error:
                first = next(iter(prepared.named))
                if prepared.counted_as.get(error.variant, error.variant) == first:
                    raise
                raise self._same.error(f"{error}; {first} responds") from error
            now: Mapping[str, TableContents] = {}
            try:
                if before:
                    now = self._read_data(prepared)
            except REPLICATE_FAILURES as error:
                blocks = invalidated(blocks, plan, f"the database cannot be read: {error}")
        try:
            self._check_data(before, now, {prepared.owner(name, number): name for name in prepared.named})
            self._learn(prepared, blocks)
            for block in blocks:
                if prepared.named[block.variant].request is None:
                    self._same.check_all(block.variant, block.responses, self._run.path / "responses")
        finally:
            append_lines(self._path, blocks)
            self._run.save()
            self.blocks += blocks
        reason = next((block.invalid for block in blocks if block.invalid), None)
        if reason:
            self._run.note(f"the replicate is discarded: {reason}")
        return reason

    def _learn(self, prepared: PreparedVariants, blocks: Sequence[Block]) -> None:
        """Ignore the places in which the first variant's own responses differ, such as the minute of a time."""
        first, workload = next(iter(prepared.named)), prepared.workload
        if workload.writes or prepared.named[first].request is not None:
            return
        for block in blocks:
            for request, digests in block.responses.items() if block.variant == first else ():
                route = workload.route_of(request)
                for place in self._same.learn(route, request, digests, self._run.path / "responses"):
                    self._run.note(f"not compared, because two responses of {first} differ there: {route}: {place}")

    def _read_data(self, prepared: PreparedVariants) -> dict[str, TableContents]:
        return {name: prepared.contents(url) for name, url in prepared.databases.items()}

    def _check_data(
        self,
        before: Mapping[str, TableContents],
        now: Mapping[str, TableContents],
        users: Mapping[str, str] | None = None,
    ) -> None:
        """Raise GateFailedError for the first database whose data differs from its data before the requests.

        users: the variants that may have used each database; None: only its own variant.
        """
        for name, contents in now.items():
            if found := before[name].difference(contents, without=self._changing):
                user = users[name] if users else name
                raise self._same.error(
                    f"the data of {user} changed, in {found}; may_change names tables that requests may change"
                )
