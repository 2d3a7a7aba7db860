"""What all executions of a statement share, and drafts made from events or cursors."""

import re
import sys
from typing import Any, NamedTuple

from sqlalchemy import Column, Table
from sqlalchemy.engine import Connection
from sqlalchemy.engine.interfaces import CacheStats, ExecuteStyle

from placebench.profiler.capture.active_recording import Tape
from placebench.profiler.capture.pending_statement import Draft, KeyColumn
from placebench.profiler.capture.stack import caller_of
from placebench.profiler.model.fingerprint import fingerprint, transaction_step


class Kinship(NamedTuple):
    """What all executions have alike.

    step: the kind of transaction step; None of a statement. key: where the primary key stands in its rows.
    relationship: of the ORM, that it loads.
    """

    fingerprint: str
    step: str | None
    key: KeyColumn | None = None
    relationship: str | None = None


def of_compiled(compiled: Any, statement: str) -> Kinship:
    """Of a statement that SQLAlchemy compiled into *compiled*, and sent as *statement*."""
    try:
        known: Kinship = compiled.placebench_kinship
    except AttributeError:
        # The template: its IN lists are not expanded, and no other listener has rewritten it.
        template = compiled.string or statement
        known = Kinship(fingerprint(template), transaction_step(template), _found(compiled), _loaded(compiled))
        compiled.placebench_kinship = known
    return known


def of_text(statement: str) -> Kinship:
    """Of text that SQLAlchemy handed on; the last 256 texts are remembered."""
    return Kinship(fingerprint(statement), transaction_step(statement))


def _found(compiled: Any) -> KeyColumn | None:
    """Look through the columns of the result, which SQLAlchemy keeps to itself, for a table's whole primary key."""
    for position, column in enumerate(getattr(compiled, "_result_columns", ())):
        for item in column.objects:
            # Behind labels and aliases stands the column of the table.
            for base in getattr(item, "base_columns", ()):
                table = base.table if isinstance(base, Column) and base.primary_key else None
                if isinstance(table, Table) and len(table.primary_key) == 1:
                    return KeyColumn(table.fullname, position)
    return None


def _loaded(compiled: Any) -> str | None:
    """The last relationship on the path by which the ORM came to this statement; the path is private to it."""
    options = getattr(compiled.compile_state, "compile_options", None)
    path = getattr(getattr(options, "_current_path", None), "path", ())
    if not path:
        return None
    from sqlalchemy.orm import RelationshipProperty  # an application without the ORM need not load it

    relationships = [str(step) for step in path if isinstance(step, RelationshipProperty)]
    return relationships[-1] if relationships else None


_LONGEST_PARAMETERS = 1000
# psycopg 3 is pinged with an empty statement.
_PING = re.compile(r"\s*(?:select\s+1\s*)?;?\s*\Z", re.IGNORECASE)


def dbapi_of(connection: Connection) -> object | None:
    """The driver's connection behind SQLAlchemy's; None if it has none now, and none is made by asking."""
    return None if connection.closed or connection.invalidated else connection.connection.dbapi_connection


def describe(draft: Draft, known: Kinship, context: Any, statement: str, parameters: object) -> None:
    """Fill in what SQLAlchemy knows of a statement before it runs; *context* is its ExecutionContext."""
    tape, flow = draft.tape, draft.flow
    if draft.step is None:
        draft.pool_wait_s = flow.waited()
    draft.fingerprint = known.fingerprint
    if context.compiled is None:
        draft.compile_s = 0.0
    else:
        draft.compile_s = flow.compiled(draft.started)
        draft.cache_hit = getattr(context, "cache_hit", None) is CacheStats.CACHE_HIT
    if context.execute_style is ExecuteStyle.INSERTMANYVALUES:
        draft.batch = context.placebench_batch = getattr(context, "placebench_batch", 0) + 1
        if draft.batch > 1:
            draft.cache_hit = None
    if tape.options.mode == "light":
        return
    draft.caller = caller_of(sys._getframe(2))
    draft.repeated = tape.repetition.ran(statement, parameters)
    draft.key = known.key
    draft.relationship = known.relationship
    if tape.options.parameters:
        draft.parameters = repr(parameters)[:_LONGEST_PARAMETERS]


def raw_draft(tape: Tape, cursor: Any, sql: object, *, checking_out: bool) -> Draft:
    """The draft of a statement that did not come through SQLAlchemy: the pool's ping, or the application's own."""
    text = sql if isinstance(sql, str) else sql.decode(errors="replace") if isinstance(sql, bytes) else str(sql)
    draft = tape.draft(
        cursor.connection, text, "PING" if checking_out and _PING.match(text) else transaction_step(text)
    )
    draft.running = False
    draft.compile_s = 0.0
    draft.fingerprint = fingerprint(text)
    _locate(draft)
    draft.enter()
    return draft


def unborn(tape: Tape, connection: Connection, sql: str) -> Draft:
    """The draft of a statement that failed before it had a cursor: by a wrong parameter, for example."""
    draft = tape.draft(dbapi_of(connection), sql)
    draft.running = False
    draft.compile_s = draft.flow.compiled(draft.started)
    draft.fingerprint = fingerprint(sql)
    _locate(draft)
    return draft


def _locate(draft: Draft) -> None:
    """Note the application's line, unless the record is a light one."""
    if draft.tape.options.mode != "light":
        draft.caller = caller_of(sys._getframe(2))
