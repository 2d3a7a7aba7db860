"""Sorts the texts that a server has seen into statements and transaction steps."""

import re
from collections.abc import Iterable
from typing import Any

_STEPS = {
    "RESET": r"select pg_advisory_unlock_all\(\);",  # what asyncpg's pool sends when a connection comes back
    "BEGIN": r"begin\b|start transaction",
    "PREPARE": r"prepare transaction",
    "ROLLBACK_TO": r"rollback\s+(?:transaction |work )?to\b",
    "COMMIT": r"commit\b|end\b",
    "ROLLBACK": r"rollback\b|abort\b",
    "SAVEPOINT": r"savepoint\b",
    "RELEASE": r"release\b",
    "AUTOCOMMIT": r"set autocommit\b",
}
_STEP = re.compile("|".join(f"(?P<{kind}>{text})" for kind, text in _STEPS.items()), re.IGNORECASE)
_PART = re.compile(r"(?:fetch|move|close|deallocate|set client_encoding|set names)\b", re.IGNORECASE)
"""Parts of a counted cursor, prepared statement or connect of a driver, and what pgbouncer sends by itself."""


def split(texts: Iterable[str]) -> dict[str, Any]:
    """The number of statements, and the kinds of the transaction steps, among texts in their order."""
    steps, statements = [], 0
    for text in texts:
        if found := _STEP.match(text.strip()):
            steps.append((found.lastgroup or "").replace("_", " "))
        elif not _PART.match(text.strip()):
            statements += 1
    return {"statements": statements, "steps": steps}
