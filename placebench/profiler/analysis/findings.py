"""Findings in a recording: patterns worth changing, each with its place in the code and advice.

The main function is `find`. A finder is a pure function from the executions of one statement at one place, their
recording and the limits to findings; `_FINDERS` lists most of them.
A finding says that a pattern was there, not that it is the cause of anything: compare before and after.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from placebench import units
from placebench.errors import ProfilerError
from placebench.profiler.model.plan import PlanNode
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.shortened_sql import shortened
from placebench.profiler.model.statement import Caller, Statement, UnkeptStatements

_Statements = Sequence[Statement]
_Unkept = Sequence[UnkeptStatements]
_LIMIT = re.compile(r"\blimit\b|\bfetch\s+(?:first|next)\b", re.IGNORECASE)
# A response has some 40 bytes per column for its name and its type, besides the rows.
_DESCRIPTION_BYTES = 8_000
_ORDER = re.compile(r"\border\s+by\b", re.IGNORECASE)
_OFFSET = re.compile(r"\boffset\b", re.IGNORECASE)
Kind = Literal[
    "n+1",
    "duplicate",
    "redundant fetch",
    "cartesian product",
    "wide rows",
    "statement-cache miss",
    "connection-pool wait",
    "connection-pool timeout",
    "sequential scan",
    "join filter",
    "skipped rows",
    "row-estimate error",
    "spill",
    "idle in transaction",
]
DESCRIPTIONS: Mapping[Kind, str] = {
    "n+1": "One line runs the same statement many times in one request.",
    "duplicate": "A read runs again with the same values in one request.",
    "redundant fetch": "Rows are fetched that another statement of the request had fetched.",
    "cartesian product": "A join pairs each row of one collection with every row of another.",
    "wide rows": "Rows have more bytes than a page of results needs.",
    "statement-cache miss": "SQLAlchemy compiles a statement again and again.",
    "connection-pool wait": "A request waits for a connection of the pool.",
    "connection-pool timeout": "No connection of the pool came in time.",
    "sequential scan": "PostgreSQL reads a whole table for few of its rows.",
    "join filter": "PostgreSQL compares every row of one table with every row of another.",
    "skipped rows": "An OFFSET throws away the rows before a page.",
    "row-estimate error": "PostgreSQL expects far more or fewer rows than there are.",
    "spill": "A sort or a hash is written to disk.",
    "idle in transaction": "A transaction is open while the application does something else.",
}
"""Each kind of finding in one sentence."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One pattern at one place in the code.

    kind: the name of the pattern, such as "n+1". count: the number of occurrences, or of rows.
    seconds: the time of the statements concerned.
    requests: the number of requests over which count and seconds are summed; `str()` shows seconds per request.
    """

    kind: Kind
    title: str
    advice: str
    count: int
    seconds: float
    sql: str | None = None
    caller: Caller | None = None
    fingerprint: str | None = None
    requests: int = 1
    outer_caller: Caller | None = None

    def __str__(self) -> str:
        """Return the finding as three or four lines for a terminal."""
        lines = [f"{self.kind}: {self.title} ({units.duration(self.mean_s)})"]
        lines.extend(f"    {line}" for line in (self.place, self.shortened_sql) if line)
        return "\n".join([*lines, f"    → {self.advice}"])

    @property
    def mean_s(self) -> float:
        """The seconds of the finding per request."""
        return self.seconds / self.requests

    @property
    def place(self) -> str:
        """The call site as text, with the function that called it; empty in mode "light", which has no call sites."""
        callers = [each for each in (self.caller, self.outer_caller) if each is not None]
        if len(callers) < 2 or any(each.function == "<module>" for each in callers):
            return str(self.caller or "")
        return f"{self.caller}, called from {self.outer_caller}"

    @property
    def shortened_sql(self) -> str:
        """The statement on one line."""
        return shortened(self.sql or "", 160)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for json.dump."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds above which a pattern is reported, per request.

    Raises ProfilerError for a limit that is not above 0.
    """

    repeats: int = 5
    batch_size: int = 50
    duplicates: int = 1
    redundant_rows: int = 100
    multiplied_rows: int = 1_000
    bytes_per_row: int = 2_000
    poll_s: float = 0.050
    cache_misses: int = 3
    pool_wait_s: float = 0.010
    scanned_rows: int = 10_000
    kept_share: float = 0.1
    skipped_rows: int = 1_000
    idle_s: float = 0.050
    estimate_error: float = 10.0
    estimated_rows: int = 100
    estimated_s: float = 0.001
    spilled_kb: int = 1

    def __post_init__(self) -> None:
        """Raise ProfilerError for a limit that every recording would reach."""
        for name, limit in asdict(self).items():
            if not limit > 0:
                raise ProfilerError(f"limit {name} is {limit}: expected more than 0; a large one finds nothing")


def find(recording: RecordingData, limits: Limits | None = None) -> tuple[Finding, ...]:
    """Return all findings, those with the most seconds first, in a few passes over the statements."""
    limits = limits or Limits()
    found = [*_idle_in_transaction(recording, limits), *_pool_timeouts(recording)]
    for statements, unkept in _by_place(recording):
        found.extend(_n_plus_one(statements, unkept, recording, limits))
        found.extend(_duplicates(statements, unkept, recording, limits))
        for finder in _FINDERS if statements else ():
            found.extend(finder(statements, recording, limits))
    found = [replace(finding, requests=recording.requests) for finding in found]
    return tuple(sorted(found, key=lambda finding: finding.seconds, reverse=True))


def _n_plus_one(
    statements: _Statements, unkept: _Unkept, recording: RecordingData, limits: Limits
) -> Iterator[Finding]:
    """Find statements that one line runs many times in one request with different values."""
    # The further batches of one INSERT are no loop of the application.
    different = [
        each for each in statements if not each.is_meant_again and each.error is None and each.batch in (None, 1)
    ]
    beyond = [each for each in unkept if each.different]
    most = _most_in_one_request(different, ((each, each.different) for each in beyond))
    if most < limits.repeats:
        return
    first = different[0] if different else beyond[0].first
    if first.kind == "setting" or _are_pages(first, different, beyond):
        return
    count = len(different) + sum(each.different for each in beyond)
    items = sum(each.item_count for each in different) + sum(each.item_count for each in beyond)
    if items >= limits.batch_size * count:
        return
    seconds = sum(each.elapsed_s for each in different) + sum(each.different_s for each in beyond)
    if first.kind != "read":
        yield _write_loop(first, f"{most} times{_where(recording)}", count, seconds)
        return
    is_unknown = any(each.repeated is None for each in different) or any(each.unknown for each in beyond)
    values = "" if is_unknown else ", with different values"
    title = f"{most} times{_where(recording)} from one line{values}"
    advice = "load all at once: a join, an IN list, or an ORM's eager loading (selectinload, prefetch_related)"
    if first.caller is None and first.repeated is None:  # a light recording has neither lines nor values
        title = f"{most} times{_where(recording)}; mode full records from where, and whether with other values"
    elif first.relationship:
        title = f"{title}, loading {first.relationship}"
    if first.relationship:
        advice = f"load it with its parents: .options(selectinload({first.relationship})), or joinedload"
    yield _finding("n+1", title, advice, [first], count=count, seconds=seconds)


def _write_loop(first: Statement, how_often: str, count: int, seconds: float) -> Finding:
    """Return the finding for a loop of writes."""
    advice = {
        "insert": "insert all rows at once: session.add_all, execute(insert(table), rows), or Django's bulk_create",
        "update": "one UPDATE for all rows: with an IN list or a join, or execute(update(Class), rows)",
        "delete": "one DELETE with an IN list, or cascades in the database",
    }.get(first.kind, "one statement for all of them, if there is one")
    title = f"{how_often} from one line, one row after the other"
    return _finding("n+1", title, advice, [first], count=count, seconds=seconds)


def _are_pages(first: Statement, statements: _Statements, beyond: _Unkept) -> bool:
    """Return whether the statements read pages of one query: with LIMIT and ORDER BY, all pages full but the last."""
    if not (_LIMIT.search(first.sql) and _ORDER.search(first.sql)):
        return False
    counts = [each.row_count for each in statements]
    for each in beyond:
        # One page stands for all equal ones, then comes the last one.
        counts += [each.first_row_count, each.last_row_count][2 - min(each.different, 2) :]
        if not each.has_full_pages:
            return False
    full = counts[0] or 0
    return full > 1 and set(counts[:-1]) == {full} and (counts[-1] or 0) <= full


def _duplicates(
    statements: _Statements, unkept: _Unkept, recording: RecordingData, limits: Limits
) -> Iterator[Finding]:
    """Find statements that ran again with the same values in one request."""
    polled = _polled(statements, recording, limits)
    again = [each for each in statements if each.repeated and each.request not in polled]
    beyond = [each for each in unkept if each.repeated]
    count = len(again) + sum(each.repeated for each in beyond)
    if count >= limits.duplicates:
        first = again[0] if again else beyond[0].first
        function = first.facts.unknown_function
        unless = "" if function is None else f", unless the function {function} is volatile"
        most = _most_in_one_request(again, ((each, each.repeated) for each in beyond))
        yield _finding(
            "duplicate",
            f"ran again with the same values {_times(most)}{_where(recording)}",
            f"keep the first result, and pass it on{unless}",
            [first],
            count=count,
            seconds=sum(each.elapsed_s for each in again) + sum(each.repeated_s for each in beyond),
        )


def _polled(statements: _Statements, recording: RecordingData, limits: Limits) -> set[int]:
    """Return the requests in which a line waits for what another process writes.

    It runs its statement three times or more, and each time waits first; meanwhile its connections run nothing else.
    """
    found: set[int] = set()
    for request in {each.request for each in statements if each.repeated}:
        polls = sorted((each for each in statements if each.request == request), key=lambda each: each.started_s)
        pauses = [late.started_s - early.started_s - early.elapsed_s for early, late in itertools.pairwise(polls)]
        if len(pauses) < 2 or min(pauses) < limits.poll_s:
            continue
        connections, first, last = {each.connection for each in polls}, polls[0].started_s, polls[-1].started_s
        between = [
            each
            for each in recording.statements
            if each.request == request and each.connection in connections and first < each.started_s < last
        ]
        if len(between) == len(polls) - 2:
            found.add(request)
    return found


def _redundant_fetches(statements: _Statements, recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find rows, by primary key, that another statement of the request had fetched."""
    redundant = sum(statement.redundant_rows or 0 for statement in statements)
    if redundant >= limits.redundant_rows * recording.requests:
        rows = sum(statement.row_count or 0 for statement in statements) / recording.requests
        yield _finding(
            "redundant fetch",
            f"{units.average(redundant / recording.requests)} entities of {units.average(rows)} rows had already been "
            "fetched by another statement",
            "fetch them once with all the columns that are needed, and pass them on",
            statements,
            count=redundant,
        )


def _cartesian_products(statements: _Statements, recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find joins of several collections, of which each row is paired with every row of the others."""
    known = [each for each in statements if each.entity_count is not None]
    rows = sum(each.row_count or 0 for each in known)
    entities = sum(each.entity_count or 0 for each in known)
    if rows >= limits.multiplied_rows * recording.requests and rows >= 2 * entities:
        yield _finding(
            "cartesian product",
            f"{units.average(rows / recording.requests)} rows for "
            f"{units.average(entities / recording.requests)} entities that are joined",
            "load each collection by a statement of its own: selectinload instead of joinedload",
            known,
            count=rows,
        )


def _wide_rows(statements: _Statements, recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find statements with more bytes per row than a page of results should need."""
    measured = [each for each in statements if each.bytes_received is not None and each.row_count]
    rows = sum(each.row_count or 0 for each in measured)
    received = sum(max(0, (each.bytes_received or 0) - _DESCRIPTION_BYTES) for each in measured)
    # In mode plans most of the bytes are plans.
    if recording.mode != "plans" and rows and received / rows > limits.bytes_per_row:
        yield _finding(
            "wide rows",
            f"{units.size(received / rows)} per row over {units.count(rows)} rows",
            "select only the columns that are used; defer large ones",
            measured,
        )


def _cache_misses(statements: _Statements, _recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find statements that SQLAlchemy had to compile because its statement cache did not have them."""
    # The value of a setting cannot be bound as a parameter.
    missed = [each for each in statements if each.cache_hit is False and each.kind != "setting"]
    # Each engine has its own cache, and must compile a statement once.
    if max(Counter(each.engine for each in missed).values(), default=0) >= limits.cache_misses:
        yield _finding(
            "statement-cache miss",
            f"{len(missed)} of {len(statements)} executions were not in SQLAlchemy's statement cache",
            "bind values as parameters, not into the text; set inherit_cache on constructs of your own; raise "
            "query_cache_size if there are very many statements",
            missed,
            seconds=sum(statement.compile_s or 0.0 for statement in missed),
        )


def _pool_waits(statements: _Statements, _recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find waits for a pooled connection while others hold all connections."""
    waited = [statement for statement in statements if (statement.pool_wait_s or 0.0) >= limits.pool_wait_s]
    if waited:
        waits_s = [statement.pool_wait_s or 0.0 for statement in waited]
        yield _finding(
            "connection-pool wait",
            f"waited for a connection {_times(len(waited))}, up to {units.duration(max(waits_s))}",
            "hold connections for a shorter time (no work between the statements of a transaction), or raise "
            "pool_size to the number of threads",
            waited,
            seconds=sum(waits_s),
        )


def _pool_timeouts(recording: RecordingData) -> Iterator[Finding]:
    """Find requests to a pool that got no connection in time."""
    waits_s = [step.elapsed_s or 0.0 for step in recording.transactions if step.kind == "POOL TIMEOUT"]
    if waits_s:
        yield Finding(
            kind="connection-pool timeout",
            title=f"no connection came {_times(len(waits_s))}, after up to {units.duration(max(waits_s))}",
            advice="hold fewer connections at once and for a shorter time, look for some that are never returned, or "
            "raise pool_size",
            count=len(waits_s),
            seconds=sum(waits_s),
        )


def _sequential_scans(statements: _Statements, recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find sequential scans of whole tables that keep few rows."""
    for statement, node, alike in _nodes(statements):
        scanned = (node.rows or 0.0) + (node.rows_removed or 0.0)
        kept_few = (node.rows or 0.0) <= scanned * limits.kept_share
        if node.kind == "Seq Scan" and node.condition and scanned >= limits.scanned_rows and kept_few:
            yield _finding(
                "sequential scan",
                f"{units.count(scanned)} rows of {node.relation} read for {_rows(node)}: {node.condition}"
                f"{_in_one_request(len(alike), recording)}",
                "create an index on the columns of the condition",
                [statement],
                count=round(scanned),
                seconds=sum(each.self_s or 0.0 for each in alike),
            )


def _join_filters(statements: _Statements, recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find nested loops that compare every row of one side with every row of the other, and keep few pairs."""
    for statement, node, alike in _nodes(statements):
        compared = (node.rows or 0.0) + (node.rows_removed or 0.0)
        kept_few = (node.rows or 0.0) <= compared * limits.kept_share
        if node.kind.startswith("Nested Loop") and node.condition and compared >= limits.scanned_rows and kept_few:
            yield _finding(
                "join filter",
                f"{units.count(compared)} pairs of rows compared for {_rows(node)}: {node.condition}"
                f"{_in_one_request(len(alike), recording)}",
                "create an index on the joined column of the inner table, or join by equality",
                [statement],
                count=round(compared),
                seconds=sum(each.elapsed_s or 0.0 for each in alike),
            )


def _skipped_rows(statements: _Statements, recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find pages that are reached by an OFFSET: the server reads all rows before them and throws them away."""
    for statement, node, alike in _nodes(statements):
        if node.kind != "Limit" or len(node.children) != 1 or not _OFFSET.search(statement.sql):
            continue
        skipped = (node.children[0].rows or 0.0) - (node.rows or 0.0)
        if skipped >= limits.skipped_rows:
            yield _finding(
                "skipped rows",
                f"{units.count(skipped)} rows read and skipped by OFFSET for {_rows(node)}"
                f"{_in_one_request(len(alike), recording)}",
                "page by the last key of the page before: WHERE key > :last ORDER BY key LIMIT n",
                [statement],
                count=round(skipped),
                seconds=sum(each.elapsed_s or 0.0 for each in alike),
            )


def _rows(node: PlanNode) -> str:
    """Return the rows of a node as text."""
    return "hardly any" if node.rows is None else units.count(node.rows)


def _row_estimate_errors(statements: _Statements, _recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find row estimates that are far off, so that the planner may have chosen the wrong plan."""
    for statement, node, alike in _nodes(statements):
        error, rows = node.estimate_error or 1.0, node.rows or 0.0
        most, elapsed_s = max(rows, node.rows_expected), node.elapsed_s or 0.0
        if error < limits.estimate_error or most < limits.estimated_rows or elapsed_s < limits.estimated_s:
            continue
        stopped, read_again = _read_otherwise(statement.plan) if statement.plan is not None else (set(), set())
        if node.kind not in _NOT_COUNTED and id(node) not in (read_again if rows > node.rows_expected else stopped):
            yield _finding(
                "row-estimate error",
                f"{node.title}: {_rows(node)} rows where {units.count(node.rows_expected)} were expected",
                "ANALYZE the table; for columns that depend on each other CREATE STATISTICS",
                [statement],
                seconds=sum(each.elapsed_s or 0.0 for each in alike),
            )


# PostgreSQL does not count the rows of the first two, and guesses those of the others.
_NOT_COUNTED = frozenset({"BitmapAnd", "BitmapOr", "Recursive Union", "WorkTable Scan"})


def _read_otherwise(plan: PlanNode) -> tuple[set[int], set[int]]:
    """Return the ids of nodes that may have stopped before their end, and of those whose rows were read again.

    That is no wrong estimate: a LIMIT, EXISTS or merge join needs no more, and a merge join goes back over equal rows.
    https://www.postgresql.org/docs/current/using-explain.html#USING-EXPLAIN-CAVEATS
    """
    stopped, read_again = set[int](), set[int]()
    nodes = [(plan, False)]
    while nodes:
        node, may_stop = nodes.pop()
        if may_stop:
            stopped.add(id(node))
        inner = node.children[1:2] if len(node.children) == 2 else node.children
        is_merge = node.kind.startswith("Merge") and node.kind.endswith("Join")
        if is_merge:
            read_again.update(id(child) for child in inner)
        is_first_match = node.kind.startswith("Nested Loop") and node.kind.endswith(("Semi Join", "Anti Join"))
        # An empty hash table needs no row of the other side.
        is_empty = node.kind.startswith("Hash") and any(child.kind == "Hash" and not child.rows for child in inner)
        for child in node.children:
            stops = is_merge or is_empty or node.kind == "Limit" or (is_first_match and child in inner)
            # A sort and a hash read everything below them, whoever stops above.
            nodes.append((child, stops or (may_stop and node.kind not in ("Sort", "Hash"))))
    return stopped, read_again


def _spills(statements: _Statements, recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find sorts, hashes and stored results that did not fit into work_mem."""
    for statement, node, alike in _nodes(statements):
        if node.spilled_kb is not None and node.spilled_kb >= limits.spilled_kb:
            yield _finding(
                "spill",
                f"{node.title} wrote {units.size(node.spilled_kb * 1024)} to disk"
                f"{_in_one_request(len(alike), recording)}",
                "raise work_mem for this transaction, or sort and join fewer columns",
                [statement],
                seconds=sum(each.self_s or 0.0 for each in alike),
            )


_FINDERS = (
    _redundant_fetches,
    _cartesian_products,
    _wide_rows,
    _cache_misses,
    _pool_waits,
    _sequential_scans,
    _join_filters,
    _skipped_rows,
    _row_estimate_errors,
    _spills,
)


def _idle_in_transaction(recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find transactions that hold a connection and its locks while the application does something else."""
    places: dict[tuple[str, Caller | None], list[tuple[Statement, float]]] = {}
    for statement, idle_s in _idle(recording):
        if idle_s >= limits.idle_s:
            places.setdefault((statement.fingerprint, statement.caller), []).append((statement, idle_s))
    for found in places.values():
        longest = max(idle_s for _, idle_s in found)
        yield _finding(
            "idle in transaction",
            f"a transaction waited for the application {_times(len(found))}, up to {units.duration(longest)} in all; "
            "the longest part came after this statement",
            "compute before or after the transaction: read what is needed, commit, then work",
            [statement for statement, _ in found],
            seconds=sum(idle_s for _, idle_s in found),
        )


def _idle(recording: RecordingData) -> Iterator[tuple[Statement, float]]:
    """Yield for each transaction the statement before its longest wait, and the seconds in which no statement ran.

    A transaction of SQLite counts from its first write on: before that it holds no lock between its statements.
    """
    ends = {
        (step.request, step.number): step.started_s
        for step in recording.transactions
        if step.kind in ("COMMIT", "ROLLBACK") and step.number is not None
    }
    lasts = {number: each.elapsed_s for number, each in enumerate(recording.timeline, 1)}
    ends |= {key: lasts[key[0]] for key in recording.open_transactions if key[0] in lasts}
    inside: dict[tuple[int, int | None], list[Statement]] = {}
    for statement in recording.statements:
        key = statement.request, statement.transaction
        on_sqlite = statement.database is not None and statement.database.system == "sqlite"
        if key in inside or not on_sqlite or statement.kind not in ("read", "setting"):
            inside.setdefault(key, []).append(statement)
    for key, statements in inside.items():
        if key in ends:
            statements.sort(key=lambda statement: statement.started_s)
            next_starts = [*(each.started_s for each in statements[1:]), ends[key]]
            waits = [
                start - each.started_s - (each.execute_s or 0.0) - (each.fetch_s or 0.0)
                for each, start in zip(statements, next_starts, strict=True)
            ]
            yield statements[waits.index(max(waits))], sum(waits)


def _finding(
    kind: Kind,
    title: str,
    advice: str,
    statements: Sequence[Statement],
    *,
    count: int | None = None,
    seconds: float | None = None,
) -> Finding:
    """Return a finding with the SQL and the call sites of the first of *statements*."""
    first = statements[0]
    return Finding(
        kind=kind,
        title=title,
        advice=advice,
        count=len(statements) if count is None else count,
        seconds=sum(statement.elapsed_s for statement in statements) if seconds is None else seconds,
        sql=first.sql,
        caller=first.caller,
        outer_caller=first.outer_caller,
        fingerprint=first.fingerprint,
    )


def _by_place(recording: RecordingData) -> Iterable[tuple[list[Statement], list[UnkeptStatements]]]:
    """Group statements by fingerprint, call site and outer call site: five lines that call one helper are no loop.

    Each group has its kept statements, and the counts of those that were not kept.
    """
    places: dict[tuple[str, Caller | None, Caller | None], tuple[list[Statement], list[UnkeptStatements]]] = {}
    for statement in recording.statements:
        key = statement.fingerprint, statement.caller, statement.outer_caller
        places.setdefault(key, ([], []))[0].append(statement)
    for unkept in recording.unkept_places:
        key = unkept.first.fingerprint, unkept.first.caller, unkept.first.outer_caller
        places.setdefault(key, ([], []))[1].append(unkept)
    return places.values()


def _most_in_one_request(statements: Iterable[Statement], unkept: Iterable[tuple[UnkeptStatements, int]]) -> int:
    """Return the largest number of these statements in one request on one database: a read per shard is no loop.

    unkept: further statements, each with the number to add.
    """
    counts = Counter((each.request, each.database_number) for each in statements)
    for each, number in unkept:
        counts[each.request, each.first.database_number] += number
    return max(counts.values(), default=0)


def _where(recording: RecordingData) -> str:
    """Return " in one request", or nothing for a single recording, which may be of a script and not of a request."""
    return " in one request" if recording.requests > 1 else ""


def _times(number: int) -> str:
    """Return the number of times, as text."""
    return "once" if number == 1 else f"{number} times"


def _in_one_request(number: int, recording: RecordingData) -> str:
    """Return how often something happened in the mean request, if more than once."""
    mean = number / recording.requests
    return f", {units.average(mean)} times{_where(recording)}" if mean > 1 else ""


def _nodes(statements: _Statements) -> Iterator[tuple[Statement, PlanNode, list[PlanNode]]]:
    """Yield the distinct nodes of the most expensive plan (the longest of equal ones), with all executions of each."""
    planned = [(statement, statement.plan) for statement in statements if statement.plan is not None]
    if not planned:
        return
    statement, plan = max(planned, key=lambda each: each[1].elapsed_s or 0.0)
    alike: dict[tuple[str, str | None], list[PlanNode]] = {}
    for _, node in (each for _, other in planned for each in other.walk()):
        alike.setdefault((node.title, node.condition), []).append(node)
    longest: dict[tuple[str, str | None], PlanNode] = {}
    for _, node in sorted(plan.walk(), key=lambda each: each[1].elapsed_s or 0.0):
        longest[node.title, node.condition] = node
    yield from ((statement, node, alike[key]) for key, node in longest.items())
