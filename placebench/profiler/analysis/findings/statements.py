"""Findings about statements: loops, repetitions, and results that are larger than what is needed.

A finder is a pure function from the executions of one statement at one place, their recording and the limits to
findings. `FINDERS` lists those that need no statements beyond the limit of a recording.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from placebench import units
from placebench.profiler.analysis.findings.kinds import Finding, Limits, Statements, Unkept, finding_at, times, where
from placebench.profiler.analysis.findings.parents import are_chunks, find_parents, load_at_once
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.statement import Caller, Statement, UnkeptStatements

_LIMIT = re.compile(r"\blimit\b|\bfetch\s+(?:first|next)\b", re.IGNORECASE)
# A response has some 40 bytes per column for its name and its type, besides the rows.
_DESCRIPTION_BYTES = 8_000
_RETURNING = re.compile(r"\breturning\b", re.IGNORECASE)
_ONE_TREE = "read all levels at once: a recursive query (WITH RECURSIVE), or a column with the path of each row"
_ORDER = re.compile(r"\border\s+by\b", re.IGNORECASE)


def by_place(recording: RecordingData) -> Iterable[tuple[list[Statement], list[UnkeptStatements]]]:
    """Group statements by fingerprint, call site and outer call site: five lines that call one helper are not a loop.

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


def n_plus_one(statements: Statements, unkept: Unkept, recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find statements that one line runs many times in one request with different values."""
    # The further batches of one INSERT are not a loop of the application.
    different = [
        each for each in statements if not each.is_meant_again and each.error is None and each.batch in (None, 1)
    ]
    beyond = [each for each in unkept if each.different]
    most = most_in_one_request(different, ((each, each.different) for each in beyond))
    if most < limits.repeats:
        return
    first = different[0] if different else beyond[0].first
    if first.kind == "setting" or _are_pages(first, different, beyond):
        return
    count = len(different) + sum(each.different for each in beyond)
    items = sum(each.item_count for each in different) + sum(each.item_count for each in beyond)
    if items >= limits.batch_size * count or (not beyond and are_chunks(different, recording)):
        return
    if most_in_one_request(different, ()) >= limits.repeats and _are_jobs(different, recording):
        return
    seconds = sum(each.elapsed_s for each in different) + sum(each.different_s for each in beyond)
    if first.kind != "read":
        at_once = "one row after the other" if items < 2 * count else f"{units.average(items / count)} rows at a time"
        yield _write_loop(first, f"{most} times{where(recording)} from one line, {at_once}", count, seconds)
        return
    known = next((each for each in different if each.load is not None), first)
    if known.load is not None and known.load.kind == "chunk":
        return
    is_unknown = any(each.repeated is None for each in different) or any(each.unknown for each in beyond)
    values = "" if is_unknown else ", with different values"
    title = f"{most} times{where(recording)} from one line{values}"
    if first.caller is None and first.repeated is None:  # a light recording has neither lines nor values
        title = f"{most} times{where(recording)}; mode full records from where, and whether with other values"
    elif relation := first.relationship or (known.load.relation if known.load is not None else ""):
        title = f"{title}, loading {relation}"
    if _are_levels(different):
        yield finding_at("n+1", title, _ONE_TREE, [first], count=count, seconds=seconds)
        return
    found = finding_at("n+1", title, load_at_once(known), [first], count=count, seconds=seconds)
    yield replace(found, parents=find_parents(different, most, recording))


def _are_jobs(statements: Statements, recording: RecordingData) -> bool:
    """Return whether each execution is for another job of a queue.

    The next job is taken between any two of them: with SKIP LOCKED and the like, or before a write, by a read of its
    table that runs again with the same values.
    """
    table = statements[0].facts.table
    own = {id(each) for each in statements}
    waiting, is_taken = set[int](), False
    for each in recording.statements:
        if each.facts.takes_rows or (table and each.sequel == "again" and table in each.facts.relations):
            is_taken = is_taken or each.request in waiting
            waiting.discard(each.request)
        elif id(each) in own:
            if each.request in waiting:
                return False
            waiting.add(each.request)
    return is_taken


def _are_levels(statements: Statements) -> bool:
    """Return whether each execution searches for the rows of the one before, as one that goes down a tree does."""
    runs = sorted(statements, key=lambda each: (each.request, each.started_s))
    others = {
        (late.value_count or 0) - (early.row_count or 0)
        for early, late in itertools.pairwise(runs)
        if early.request == late.request
    }
    return len(others) == 1 and min(others) >= 0 and len({each.value_count for each in runs}) > 1


def _write_loop(first: Statement, title: str, count: int, seconds: float) -> Finding:
    advice = {
        "insert": "insert all rows at once: session.add_all, execute(insert(table), rows), bulk_create or insert_many",
        "update": "one UPDATE for all rows: with an IN list or a join, execute(update(Class), rows), or bulk_update",
        "delete": "one DELETE with an IN list"
        + ("" if _RETURNING.search(first.sql) else ", or cascades in the database"),
    }.get(first.kind, "one statement for all of them, if there is one")
    return finding_at("n+1", title, advice, [first], count=count, seconds=seconds)


def _are_pages(first: Statement, statements: Statements, beyond: Unkept) -> bool:
    """Return whether the statements read pages of one query: with LIMIT and ORDER BY, all pages full but the last."""
    if not (_LIMIT.search(first.sql) and _ORDER.search(first.sql)):
        return False
    counts = [each.row_count for each in statements]
    for each in beyond:
        # One page stands for all equal ones, then comes the last one.
        counts += [each.first_row_count, each.last_row_count][2 - min(each.different, 2) :]
        if not each.has_full_pages:
            return False
    if len(counts) > 2 and not counts[-1]:  # the loop ended with an empty page
        counts.pop()
    full = counts[0] or 0
    return full > 1 and set(counts[:-1]) == {full} and (counts[-1] or 0) <= full


def duplicates(statements: Statements, unkept: Unkept, recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find statements that ran again with the same values in one request."""
    polled = _polled(statements, recording, limits)
    again = [each for each in statements if each.repeated and each.request not in polled]
    beyond = [each for each in unkept if each.repeated]
    count = len(again) + sum(each.repeated for each in beyond)
    if count >= limits.duplicates:
        first = again[0] if again else beyond[0].first
        function = first.facts.unknown_function
        unless = "" if function is None else f", unless the function {function} is volatile"
        most = most_in_one_request(again, ((each, each.repeated) for each in beyond))
        yield finding_at(
            "duplicate",
            f"ran again with the same values {times(most)}{where(recording)}",
            f"keep the first result, and pass it on{unless}",
            [first],
            count=count,
            seconds=sum(each.elapsed_s for each in again) + sum(each.repeated_s for each in beyond),
        )


def _polled(statements: Statements, recording: RecordingData, limits: Limits) -> set[int]:
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


def most_in_one_request(statements: Iterable[Statement], unkept: Iterable[tuple[UnkeptStatements, int]]) -> int:
    """Return the largest number of these statements in one request on one database: a read per shard is not a loop.

    unkept: further statements, each with the number to add.
    """
    counts = Counter((each.request, each.database_number) for each in statements)
    for each, number in unkept:
        counts[each.request, each.first.database_number] += number
    return max(counts.values(), default=0)


def _redundant_fetches(statements: Statements, recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find rows, by primary key, that another statement of the request had fetched."""
    redundant = sum(statement.redundant_rows or 0 for statement in statements)
    if redundant >= limits.redundant_rows * recording.requests:
        rows = sum(statement.row_count or 0 for statement in statements) / recording.requests
        yield finding_at(
            "redundant fetch",
            f"{units.average(redundant / recording.requests)} entities of {units.average(rows)} rows had already been "
            "fetched by another statement",
            "fetch them once with all the columns that are needed, and pass them on",
            statements,
            count=redundant,
        )


def _cartesian_products(statements: Statements, recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find joins of several collections, of which each row is paired with every row of the others."""
    known = [each for each in statements if each.entity_count is not None]
    rows = sum(each.row_count or 0 for each in known)
    entities = sum(each.entity_count or 0 for each in known)
    if rows >= limits.multiplied_rows * recording.requests and rows >= 2 * entities:
        yield finding_at(
            "cartesian product",
            f"{units.average(rows / recording.requests)} rows for "
            f"{units.average(entities / recording.requests)} entities that are joined",
            "load each collection by a statement of its own: selectinload instead of joinedload",
            known,
            count=rows,
        )


def _wide_rows(statements: Statements, recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find statements with more bytes per row than a page of results should need."""
    measured = [each for each in statements if each.bytes_received is not None and each.row_count]
    rows = sum(each.row_count or 0 for each in measured)
    received = sum(max(0, (each.bytes_received or 0) - _DESCRIPTION_BYTES) for each in measured)
    # In mode plans most of the bytes are plans.
    if recording.mode != "plans" and rows and received / rows > limits.bytes_per_row:
        yield finding_at(
            "wide rows",
            f"{units.size(received / rows)} per row over {units.count(rows)} rows",
            "select only the columns that are used; defer large ones",
            measured,
        )


def _cache_misses(statements: Statements, _recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find statements that SQLAlchemy had to compile because its statement cache did not have them."""
    # The value of a setting cannot be bound as a parameter.
    missed = [each for each in statements if each.cache_hit is False and each.kind != "setting"]
    # Each engine has its own cache, and must compile a statement once.
    if max(Counter(each.engine for each in missed).values(), default=0) >= limits.cache_misses:
        yield finding_at(
            "statement-cache miss",
            f"{len(missed)} of {len(statements)} executions were not in SQLAlchemy's statement cache",
            "bind values as parameters, not into the text; set inherit_cache on constructs of your own; raise "
            "query_cache_size if there are very many statements",
            missed,
            seconds=sum(statement.compile_s or 0.0 for statement in missed),
        )


FINDERS = (_redundant_fetches, _cartesian_products, _wide_rows, _cache_misses)
