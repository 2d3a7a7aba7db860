"""Comments that say which route and function a statement is from: `comment_text`, `commenting`, `current_comment`.

The format is that of sqlcommenter. PostgreSQL keeps it in pg_stat_activity, pg_stat_statements and its log. All
requests of a route send the same text, so drivers that prepare statements by their text can still do so.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_COMMENT: ContextVar[Callable[[], str] | None] = ContextVar("placebench_comment", default=None)

# Excludes characters that end a comment, and those that a driver takes for a parameter.
_UNSAFE = re.compile(r"[^\w/.:{}<>\[\]-]", re.ASCII)


def current_comment() -> str:
    """Return the comment of this thread or task; empty if it has none, or if its route is not known yet."""
    comment = _COMMENT.get()
    return "" if comment is None else comment()


def comment_text(route: str | None = None, function: str | None = None) -> str:
    """Return a comment to put behind a statement: ` /*controller='list_orders',route='/orders/{id}'*/`.

    Characters other than letters, digits and those of routes become underscores. Empty without route and function.
    """
    tags = {"controller": function, "route": route}
    text = ",".join(f"{key}='{_UNSAFE.sub('_', value)}'" for key, value in tags.items() if value)
    return f" /*{text}*/" if text else ""


def set_comment(route: str | None = None, function: str | None = None) -> None:
    """Set the comment of this thread or task from now on; no comment without a route and a function."""
    text = comment_text(route, function)
    _COMMENT.set((lambda: text) if text else None)


@contextmanager
def commenting(comment: Callable[[], str]) -> Iterator[None]:
    """Use *comment*, which returns the comment and must not raise, for statements inside the block."""
    token = _COMMENT.set(comment)
    try:
        yield
    finally:
        _COMMENT.reset(token)
