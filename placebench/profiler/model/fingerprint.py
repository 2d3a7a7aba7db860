"""Which statements are the same statement: texts normalised by a small tokenizer, and literals kept out of recordings.

The main function is `fingerprint`. Compiled statements bring SQLAlchemy's own template, in which an expanding IN list
is one placeholder; the tokenizer makes the same of lists that were written out. No parser is needed: on a 200-character
SELECT a tokenizer takes some 16 µs, sqlglot 1.4 ms and sqlparse 5.6 ms.
"""

import re
from functools import lru_cache
from hashlib import blake2b

_PLACEHOLDER = r"%\(\w+\)s|%s|\$\d+|(?<!:):[A-Za-z_]\w*|\?|(?:__)?\[POSTCOMPILE_\w+\]"
_NUMBER = r"\b\d+(?:\.\d*)?(?:[eE][+-]?\d+)?\b|(?<!\w)\.\d+(?:[eE][+-]?\d+)?"
_STRING = (
    r"(?<!\w)[eE]'(?:[^'\\]|\\.|'')*(?:'|\Z)"
    r"|(?:(?<!\w)[bBxXnN])?'(?:[^']|'')*(?:'|\Z)"
    r"|\$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z)"
)
_COMMENT = r"--[^\n]*|/\*.*?(?:\*/|\Z)"
_NAME = r'"(?:[^"]|"")*(?:"|\Z)|`[^`]*`'
_WORD = r"[^\W\d][\w$]*"

# An unterminated literal ends with the text: a statement may have been cut.
_TOKEN = re.compile(
    rf"(?P<comment>{_COMMENT})|(?P<space>\s+)|(?P<name>{_NAME})|(?P<value>{_STRING}|{_PLACEHOLDER}|{_NUMBER})"
    rf"|(?P<word>{_WORD})|(?P<other>.)",
    re.DOTALL,
)
_LITERAL = re.compile(
    rf"(?P<text>{_STRING})|(?P<comment>{_COMMENT})|(?P<kept>{_NAME}|{_PLACEHOLDER}|{_WORD})|{_NUMBER}", re.DOTALL
)

_ITEM = rf"\s*(?:{_PLACEHOLDER}|-?\d+(?:\.\d+)?)\s*"
_EXPANDED = re.compile(rf"\((\s*(?:{_PLACEHOLDER}))(?:\s*,\s*(?:{_PLACEHOLDER})){{3,}}\s*(?:\)|,?[^)]*\Z)")
_LONG_LIST = re.compile(rf"(?i:\bin)\s*\({_ITEM}(?:,{_ITEM})+\)")
_LIST = re.compile(r"\bin \( (?:- )?\?(?: , (?:- )?\?)* \)")
_ROWS = re.compile(r"(\( \?(?: , \?)* \))(?: , \1)+")

_STEPS = {
    "savepoint": "SAVEPOINT",
    "release": "RELEASE",
    "commit": "COMMIT",
    "end": "COMMIT",
    "abort": "ROLLBACK",
    "begin": "BEGIN",
}
# Three letters tell a SELECT from a SAVEPOINT without a search, which would run for every statement.
_STEP_BEGINNINGS = frozenset({"sav", "rel", "com", "end", "abo", "beg", "rol", "pre", "sta"})
_SECOND = re.compile(r";\s*\w")
_STEPS_OF_TWO_WORDS = {"prepare transaction": "PREPARE", "start transaction": "BEGIN"}


@lru_cache(maxsize=256)
def fingerprint(sql: str) -> str:
    """Sixteen hexadecimal digits, the same for texts that differ only in values, comments, case or IN lists.

    One pass over the text; the last 256 texts are remembered.
    """
    return blake2b(normalised(sql).encode(), digest_size=8).hexdigest()


def normalised(sql: str) -> str:
    """*sql* with every value as `?`, IN lists and repeated VALUES rows as one, no comments, single spaces."""
    # The tokenizer is a Python loop: a list of a thousand values is shortened in C first.
    shortened = _LONG_LIST.sub("IN (?)", sql)
    tokens = [token for match in _TOKEN.finditer(shortened) if (token := _token(match))]
    return _ROWS.sub(r"\1", _LIST.sub("in ( ? )", " ".join(tokens)))


def one_line(sql: str) -> str:
    """*sql* as people read it: on one line, a list of many values as its first one and an ellipsis."""
    return " ".join(_EXPANDED.sub(r"(\1, …)", sql).split())


def shortened(sql: str, width: int) -> str:
    """*sql* on one line of at most *width* characters: the columns of a SELECT are left out before its tables are."""
    line = one_line(sql)
    if len(line) > width and line[:7].lower() == "select ":
        line = _without_columns(line)
    return line if len(line) <= width else f"{line[: width - 1]}…"


_SEPARATOR = re.compile(r"""'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)|[(),]| from """, re.IGNORECASE)


def _without_columns(line: str) -> str:
    """A SELECT with its first column alone; as it is where that cannot be told."""
    depth = comma = 0
    for match in _SEPARATOR.finditer(line):
        text = match.group()
        depth += (text == "(") - (text == ")")
        if depth == 0 and text == ",":
            comma = comma or match.start()
        elif depth == 0 and text[0] == " ":
            return f"{line[: comma + 1]} …{line[match.start() :]}" if comma else line
    return line


def _token(match: re.Match[str]) -> str:
    """One token as the fingerprint sees it; empty for comments and white space."""
    kind = match.lastgroup
    if kind in ("comment", "space"):
        return ""
    if kind == "value":
        return "?"
    return match.group().lower() if kind == "word" else match.group()


@lru_cache(maxsize=256)
def redacted(sql: str) -> str:
    """*sql* with its literals, and what its comments say, as `?`; placeholders, names and hints stay as they are."""
    return _LITERAL.sub(_redacted, sql)


def _redacted(match: re.Match[str]) -> str:
    """One literal, comment or name as a recording keeps it."""
    comment = match["comment"]
    if comment and not comment.startswith("/*+"):
        return "-- ?" if comment.startswith("--") else "/* ? */"
    return match.group() if comment or match["kept"] else "?"


def transaction_step(sql: str) -> str | None:
    """The kind of transaction step (SAVEPOINT, COMMIT …) that the text is, or None for a statement or for no text."""
    if sql[:3].lower() not in _STEP_BEGINNINGS:
        return None
    tokens = sql[:80].lower().replace(";", " ").split(None, 3)
    if tokens[0] == "rollback":
        return "ROLLBACK TO" if "to" in tokens[1:3] else "ROLLBACK"
    return _STEPS.get(tokens[0]) or _STEPS_OF_TWO_WORDS.get(" ".join(tokens[:2]))


_READS = frozenset({"select", "values", "table", "show", "explain", "pragma"})
_WRITES = frozenset({"insert", "update", "delete", "merge", "replace"})
_SETTINGS = frozenset({"set", "reset", "discard", "use"})
# The argument of these PRAGMAs names what they read or check.
_SETTING = re.compile(
    r"pragma\s+(?:\w+\.)?(?!table_|index_|foreign_key_|integrity_check|quick_check|wal_checkpoint|optimize"
    r"|incremental_vacuum)\w+\s*[=(]|select\b(?:(?!\bfrom\b).)*?\bset_config\s*\(",
    re.IGNORECASE | re.DOTALL,
)
_FIRST_WORD = re.compile(rf"(?:\s+|{_COMMENT}|\()*([A-Za-z]+)")
_WRITE = re.compile(r"\b(?:insert\s+into|update|delete\s+from|merge\s+into)\b", re.IGNORECASE)
_TARGET = re.compile(
    r"\b(?:insert\s+(?:or\s+\w+\s+)?into|replace\s+into|update(?:\s+only)?|delete\s+from(?:\s+only)?|merge\s+into)"
    r'\s+(?:[\w"`]+\.)?["`]?(\w+)',
    re.IGNORECASE,
)


@lru_cache(maxsize=256)
def statement_kind(sql: str) -> str:
    """What a statement does: "read", "insert", "update", "delete", "merge", "setting", or "other" (DDL, CALL, COPY …).

    A read that locks its rows is a read, and one with other statements behind it, such as the reset of asyncpg's pool,
    is "other". A setting is of the session: SET, RESET, `PRAGMA x = y`, SELECT set_config(…). Only words are looked at:
    what any other function in a SELECT does is unknown.
    """
    found = _FIRST_WORD.match(sql)
    word = found[1].lower() if found else ""
    if word == "with":
        written = _WRITE.search(redacted(sql))
        return "read" if written is None else written[0].split()[0].lower()
    if found and (word in _READS or word in _SETTINGS):
        if ";" in sql and _SECOND.search(redacted(sql)):
            return "other"
        return "setting" if word in _SETTINGS or _SETTING.match(sql, found.start(1)) else "read"
    return {"replace": "insert"}.get(word, word) if word in _WRITES else "other"


@lru_cache(maxsize=256)
def written_table(sql: str) -> str | None:
    """The name of the table, without its schema, that a write changes; None if it is not known.

    Empty of a PRAGMA: what it sets changes no row that is read. After SET search_path a name may be another table's.
    """
    first = _FIRST_WORD.match(sql)
    if first and first[1].lower() == "pragma":
        return ""
    found = _TARGET.search(redacted(sql))
    return None if found is None else found[1].lower()


_OPERATIONS = _READS | _WRITES | {"alter", "call", "copy", "create", "drop", "lock", "refresh", "set", "truncate"}
_BEFORE_TARGET = frozenset({"from", "into", "join", "table", "update", "call", "copy"})
# FOR UPDATE, DO UPDATE, ON DELETE, DISTINCT FROM: what follows these is no operation and no target.
_NO_OPERATION_AFTER = frozenset({"for", "do", "on", "distinct", "or", "no", "key"})
_SKIPPED = frozenset({"only", "lateral", "if", "not", "exists", "into", "from", "table"})
_ENDS_TARGETS = frozenset({"where", "set", "on", "using", "group", "order", "limit", "values", "having", "union"})
_LONGEST_SUMMARY = 255


@lru_cache(maxsize=1024)
def query_summary(sql: str) -> str:
    """The operations of a statement and the tables of each, as in "INSERT shipping SELECT orders customers".

    It is what OpenTelemetry names db.query.summary: few different ones, and no values. Empty for an empty text.
    """
    summary: list[str] = []
    expects = lists = after_dot = False
    before, depth, depths = "", 0, set()
    for match in _TOKEN.finditer(redacted(sql)):
        kind, text = match.lastgroup, match.group()
        if kind in ("comment", "space"):
            continue
        word = text.lower() if kind == "word" else ""
        if kind == "other":
            depth += (text == "(") - (text == ")")
            after_dot = text == "." and after_dot
            expects = (text == "," and lists and depth in depths) or (expects and text not in "()")
        elif after_dot and before == ".":
            summary[-1] += f".{text}"
            lists = True
        elif expects and kind in ("word", "name") and word not in _SKIPPED and word not in _OPERATIONS:
            summary.append(text)
            expects, after_dot, lists = False, True, True
        elif (
            word in _OPERATIONS
            and before not in _NO_OPERATION_AFTER
            and (not summary or word not in ("set", "table", "values"))
        ):
            summary.append(text)
            expects, after_dot, lists = word in _BEFORE_TARGET, False, False
            depths.add(depth)
        else:
            follows = word in _BEFORE_TARGET and before not in _NO_OPERATION_AFTER and depth in depths
            expects = follows or (expects and word in _SKIPPED)
            lists, after_dot = lists and word not in _ENDS_TARGETS, False
        before = word or text
    return _cut(summary) or redacted(sql).strip().partition(" ")[0][:_LONGEST_SUMMARY]


def _cut(words: list[str]) -> str:
    """The words in one line, without those that make it too long."""
    text = " ".join(words)
    return text if len(text) <= _LONGEST_SUMMARY else text[: _LONGEST_SUMMARY + 1].rpartition(" ")[0]
