"""Drafts of statements from what an event or a cursor tells, whichever way a statement comes.

The key pieces are `describe`, for a statement of SQLAlchemy's, and `raw_draft`, for one that went past it.
"""

import re
import sys
from typing import Any

from sqlalchemy.engine import Connection
from sqlalchemy.engine.interfaces import CacheStats, ExecuteStyle

from placebench.profiler.callsite import caller_of
from placebench.profiler.draft import Draft
from placebench.profiler.fingerprint import fingerprint, transaction_step
from placebench.profiler.kinship import Kinship
from placebench.profiler.tape import Tape

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
