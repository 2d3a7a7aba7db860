"""What all executions of one statement share, found once and kept where SQLAlchemy keeps the compiled statement.

The key pieces are `of_compiled` and, for text handed to the driver, `of_text`.
"""

from typing import Any, NamedTuple

from sqlalchemy import Column, Table

from placebench.profiler.fingerprint import fingerprint, transaction_step
from placebench.profiler.repetition import KeyColumn


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
