"""Comments that say which route and function a statement is from: `comment_text`, `commenting`, `current_comment`.

The form is that of sqlcommenter. PostgreSQL keeps it in pg_stat_activity, pg_stat_statements and its log. The text of a
statement is the same for all requests of a route, so that drivers that prepare statements by their text go on to.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_COMMENT: ContextVar[Callable[[], str] | None] = ContextVar("placebench_comment", default=None)

# Nothing that ends a comment, and nothing that a driver takes for a parameter.
_UNSAFE = re.compile(r"[^\w/.:{}<>\[\]-]", re.ASCII)


def current_comment() -> str:
    """The comment of what runs in this thread or task; an empty text if it has none, or its route is not known yet."""
    comment = _COMMENT.get()
    return "" if comment is None else comment()


def comment_text(route: str | None = None, function: str | None = None) -> str:
    """A comment to put behind a statement: ` /*controller='list_orders',route='/orders/{id}'*/`.

    Other characters than letters, digits and those of routes become underscores. Empty without a route and a function.
    """
    tags = {"controller": function, "route": route}
    text = ",".join(f"{key}='{_UNSAFE.sub('_', value)}'" for key, value in tags.items() if value)
    return f" /*{text}*/" if text else ""


def set_comment(route: str | None = None, function: str | None = None) -> None:
    """Set the comment of what this thread or task runs from now on; none without a route and a function."""
    text = comment_text(route, function)
    _COMMENT.set((lambda: text) if text else None)


@contextmanager
def commenting(comment: Callable[[], str]) -> Iterator[None]:
    """Have *comment*, which must not raise, return the comment of what runs inside."""
    token = _COMMENT.set(comment)
    try:
        yield
    finally:
        _COMMENT.reset(token)
