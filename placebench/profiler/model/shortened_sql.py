"""Short forms of a statement for people: one line, a line without most columns, and a summary."""

import re

from placebench.profiler.model.sql_tokens import redacted, remembered_for_short_texts, significant_tokens

_PLACEHOLDER = r"%\(\w+\)s|%s|\$\d+|(?<!:):[A-Za-z_]\w*|\?|(?:__)?\[POSTCOMPILE_\w+\]"
_LONG_LIST = re.compile(
    rf"(\( ?(?:{_PLACEHOLDER}))(?: ?, ?(?:{_PLACEHOLDER})){{3,}}(?P<cut> ?,? ?[%(\[:$?\w]{{0,80}}\Z)?"
)
_MAX_LINE = 10_000


def one_line(sql: str) -> str:
    """Return *sql* on one line, cut after 10,000 characters; of a long list of values only the first stays."""
    line = " ".join((sql if len(sql) <= _MAX_LINE else f"{sql[:_MAX_LINE]}…").split())
    return _LONG_LIST.sub(lambda found: f"{found[1]}, …{'' if found['cut'] is None else ')'}", line)


def shortened(sql: str, width: int) -> str:
    """Return *sql* on one line of at most *width* characters; columns of a SELECT are left out before its tables."""
    line = one_line(sql)
    if len(line) > width and line[:7].lower() == "select ":
        line = _without_columns(line)
    return line if len(line) <= width else f"{line[: width - 1]}…"


_SEPARATOR = re.compile(r"""'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)|[(),]| from """, re.IGNORECASE)


def _without_columns(line: str) -> str:
    """Return a SELECT with its first column alone, or unchanged if the columns are not clear."""
    depth = comma = 0
    for match in _SEPARATOR.finditer(line):
        text = match.group()
        depth += (text == "(") - (text == ")")
        if depth == 0 and text == ",":
            comma = comma or match.start()
        elif depth == 0 and text[0] == " ":
            return f"{line[: comma + 1]} …{line[match.start() :]}" if comma else line
    return line


_OPERATIONS = frozenset(
    {"alter", "call", "copy", "create", "delete", "drop", "explain", "insert", "lock", "merge", "pragma", "refresh"}
    | {"replace", "select", "set", "show", "table", "truncate", "update", "values"}
)
_BEFORE_TARGET = frozenset({"from", "into", "join", "table", "update", "call", "copy"})
# FOR UPDATE, DO UPDATE, ON DELETE, DISTINCT FROM: no operation and no target follows these.
_NO_OPERATION_AFTER = frozenset({"for", "do", "on", "distinct", "or", "no", "key"})
_SKIPPED = frozenset({"only", "lateral", "if", "not", "exists", "into", "from", "table"})
_ENDS_TARGETS = frozenset({"where", "set", "on", "using", "group", "order", "limit", "values", "having", "union"})
_MAX_SUMMARY = 255


@remembered_for_short_texts
def query_summary(sql: str, dialect: str | None = None) -> str:
    """Return the operations of a statement and the tables of each, as in "INSERT shipping SELECT orders customers".

    This is OpenTelemetry's db.query.summary, which has few distinct values and contains no literals. Empty for an empty
    text.
    """
    summary: list[str] = []
    length = 0
    expects = lists = after_dot = False
    before, depth, depths = "", 0, set()
    for kind, text in significant_tokens(sql, dialect):
        if length > _MAX_SUMMARY:
            break
        word = text.lower() if kind == "word" else ""
        if kind == "other":
            depth += (text == "(") - (text == ")")
            after_dot = text == "." and after_dot
            expects = (text == "," and lists and depth in depths) or (expects and text not in "()")
        elif after_dot and before == "." and kind in ("word", "name"):
            summary[-1] += f".{text}"
            length += len(text) + 1
            lists = True
        elif expects and kind in ("word", "name") and word not in _SKIPPED and word not in _OPERATIONS:
            summary.append(text)
            length += len(text) + 1
            expects, after_dot, lists = False, True, True
        elif (
            word in _OPERATIONS
            and before not in _NO_OPERATION_AFTER
            and (not summary or word not in ("set", "table", "values"))
        ):
            summary.append(text)
            length += len(text) + 1
            expects, after_dot, lists = word in _BEFORE_TARGET, False, False
            depths.add(depth)
        else:
            follows = word in _BEFORE_TARGET and before not in _NO_OPERATION_AFTER and depth in depths
            expects = follows or (expects and word in _SKIPPED)
            lists, after_dot = lists and word not in _ENDS_TARGETS, False
        before = word or text
    line = " ".join(summary)
    if len(line) > _MAX_SUMMARY:
        line = line[: _MAX_SUMMARY + 1].rpartition(" ")[0]
    return line or redacted(sql, dialect).strip().partition(" ")[0][:_MAX_SUMMARY]
