"""Which statements are the same statement, and what they do.

The main function is `statement_facts`, which reads the text once, by the tokens of its dialect. Compiled
statements bring SQLAlchemy's own template, in which an expanding IN list is one placeholder; here lists that were
written out become the same. *dialect* is SQLAlchemy's name of the database everywhere; None if it is not known.
"""

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from placebench.profiler.model.sql_tokens import (
    LONGEST_REMEMBERED,
    MOST_REMEMBERED,
    redacted,
    remembered_for_short_texts,
    significant_tokens,
)


class StatementFacts(NamedTuple):
    """What all executions of one text have alike.

    fingerprint: sixteen hexadecimal digits, the same for texts that differ only in values, comments, case or the length
        of lists of constants.
    step: the kind of transaction step (SAVEPOINT, COMMIT …) that it is; None of a statement, or of several in one text.
    last_step: BEGIN, COMMIT or ROLLBACK, whichever comes last in a text of several statements; None without any.
    kind: what it does: "read", "insert", "update", "delete", "merge", "setting", or "other" (DDL, CALL, COPY …).
    first_word: in lower case, behind comments and brackets; empty if there is none.
    table: the table, without its schema, that a write changes; None if it is not known or not the only one. Empty of a
        PRAGMA, which changes no row that is read.
    volatile: the function, view or clause because of which it may find something else each time; None if none is known.
    unknown_function: one that it calls and of which that is not known.
    """

    fingerprint: str
    step: str | None
    last_step: str | None
    kind: str
    first_word: str
    table: str | None
    volatile: str | None
    unknown_function: str | None


_facts_of_long_texts: dict[tuple[int, int, str | None], StatementFacts] = {}


def statement_facts(sql: str, dialect: str | None = None) -> StatementFacts:
    """What *sql* is; the last few hundred texts are remembered, long ones by their hash."""
    if len(sql) <= LONGEST_REMEMBERED:
        return _facts_of_short_text(sql, dialect)
    key = len(sql), hash(sql), dialect
    facts = _facts_of_long_texts.get(key)
    if facts is None:
        facts = _read_statement(sql, dialect)
        if len(_facts_of_long_texts) >= MOST_REMEMBERED:
            _facts_of_long_texts.clear()
        _facts_of_long_texts[key] = facts
    return facts


def _read_statement(sql: str, dialect: str | None) -> StatementFacts:
    tokens = _normalised_tokens(sql, dialect)
    # Brackets, the semicolon before T-SQL's WITH, and MySQL's /*! stand before the first word.
    first = next((at for at, token in enumerate(tokens) if token not in ("(", ";", "{") and token[:2] != "/*"), 0)
    word = tokens[first] if tokens and tokens[first][0].isalpha() else ""
    kind, table = _effect(tokens, first, word)
    volatile, unknown = _volatile_part(tokens) if kind == "read" else (None, None)
    steps: list[str | None] = []
    if ";" in tokens:
        blocks = ("end",) if word in _DEFINITIONS else ()  # of a trigger's or a procedure's
        begins = [at for at in _beginnings(tokens, first) if tokens[at] not in blocks]
        steps = [_transaction_step(tokens[at : at + 4]) for at in begins]
    is_alone = len(steps) <= 1 and word in _STEPS
    return StatementFacts(
        fingerprint=blake2b(" ".join(tokens).encode(errors="surrogatepass"), digest_size=8).hexdigest(),
        step=_transaction_step(tokens[first : first + 4]) if is_alone else None,
        last_step=None if is_alone else next((step for step in reversed(steps) if step in _ENDS_AND_BEGINS), None),
        kind=kind,
        first_word=word,
        table=table,
        volatile=volatile,
        unknown_function=unknown,
    )


_facts_of_short_text = functools.lru_cache(MOST_REMEMBERED)(_read_statement)


def fingerprint(sql: str, dialect: str | None = None) -> str:
    """Sixteen hexadecimal digits, the same for texts that differ in values, comments, case or lengths of lists only."""
    return statement_facts(sql, dialect).fingerprint


def statement_kind(sql: str, dialect: str | None = None) -> str:
    """What a statement does: "read", "insert", "update", "delete", "merge", "setting", or "other" (DDL, CALL, COPY …).

    A read that locks its rows is a read, and one with other statements behind it, such as the reset of asyncpg's pool,
    is "other". A setting is of the session: SET, RESET, `PRAGMA x = y`, SELECT set_config(…). Only words are looked at:
    what any other function in a SELECT does is unknown.
    """
    return statement_facts(sql, dialect).kind


def normalised(sql: str, dialect: str | None = None) -> str:
    """*sql* with every value as `?`, lists of constants and repeated VALUES rows as one, no comments, single spaces."""
    return " ".join(_normalised_tokens(sql, dialect))


# What a list of constants may hold beside values, and words that make it a query.
_CONSTANT_WORDS = frozenset({"null", "true", "false", "default", "cast", "array", "row"})
_QUERY_WORDS = frozenset({"select", "values", "table", "with", "case", "not", "distinct"})


class _Bracket:
    """An open bracket: where its content begins, what it is, and whether all of that is constant so far.

    role: "list" behind IN or ARRAY, "row" of VALUES, or empty. row_before: the row of VALUES before this one.
    """

    __slots__ = ("constant", "is_type_name", "needs_literal", "role", "row_before", "start")

    def __init__(self, start: int, role: str, row_before: Sequence[str]) -> None:
        self.start = start
        self.role = role
        self.row_before = row_before
        self.constant = True
        self.is_type_name = False
        """Whether the words that follow name a type, as after `::`."""
        self.needs_literal = False
        """Whether the word before is constant only as the type of a literal, as in DATE '2026-01-01'."""

    def add(self, kind: str, text: str) -> None:
        """Note one token of the content, which is constant so far."""
        if self.needs_literal:
            self.needs_literal = False
            self.constant = kind == "value" and not text[0].isdigit()
        elif kind == "word":
            if text == "as":
                self.is_type_name = True
            elif not self.is_type_name and text not in _CONSTANT_WORDS:
                self.needs_literal, self.constant = True, text not in _QUERY_WORDS
        elif kind == "name" or text == ".":
            self.constant = self.is_type_name
        elif kind == "other":
            self.is_type_name = text == ":"
            self.constant = text in ",:+-"

    def close(self, tokens: list[str], end: str) -> Sequence[str]:
        """Append the bracket *end* to *tokens*, of which a constant list is made one value; returns a row of VALUES."""
        self.constant = self.constant and not self.needs_literal
        if self.constant and self.role == "list" and len(tokens) > self.start:
            tokens[self.start :] = "?"
        tokens.append(end)
        if self.role != "row":
            return ()
        row = tokens[self.start :]
        if self.constant:
            tokens[self.start :] = row = _without_types(row)
        if row == self.row_before:
            del tokens[self.start - 2 :]  # with the comma and the bracket before it
        return row


def _without_types(row: Sequence[str]) -> list[str]:
    """A constant row of VALUES with each of its values as `?`."""
    depth, values = 0, ["?"]
    for token in row:
        depth += (token in ("(", "[")) - (token in (")", "]"))
        if token == "," and depth == 0:
            values += [",", "?"]
    return [*values, ")"]


def _normalised_tokens(sql: str, dialect: str | None) -> list[str]:
    """The tokens that tell one statement from another, in lower case but for quoted names.

    A list of constants behind IN or ARRAY is `?`; rows of VALUES that are alike are one.
    """
    tokens: list[str] = []
    brackets: list[_Bracket] = []
    row: Sequence[str] = ()  # the one that a comma would lead on from
    before = ""
    for kind, text in significant_tokens(sql, dialect):
        if kind == "items":
            if brackets and brackets[-1].constant:
                brackets[-1].add("other", ",")
            if not (brackets and brackets[-1].constant and brackets[-1].role == "list"):
                tokens.extend((",", "?") * text.count(","))
            row, before = (), "?"
            continue
        shown = text.lower() if kind == "word" else "?" if kind in ("value", "placeholder") else text
        if text in ("(", "["):
            is_list = before == "in" or (before == "array" and text == "[")
            role = "list" if is_list else "row" if before == "values" or (row and before == ",") else ""
            tokens.append(text)
            brackets.append(_Bracket(len(tokens), role, row))
            row = ()
        elif text in (")", "]") and brackets:
            closed = brackets.pop()
            row = closed.close(tokens, text)
            if brackets and not closed.constant:
                brackets[-1].constant = False
        else:
            if brackets and brackets[-1].constant:
                brackets[-1].add(kind, text if kind == "value" else shown)
            row = row if text == "," else ()
            tokens.append(shown)
        before = shown
    return tokens


_STEPS = {
    "abort": "ROLLBACK",
    "begin": "BEGIN",
    "commit": "COMMIT",
    "end": "COMMIT",
    "prepare": "PREPARE",
    "release": "RELEASE",
    "rollback": "ROLLBACK",
    "savepoint": "SAVEPOINT",
    "start": "BEGIN",
}
_ENDS_AND_BEGINS = frozenset({"BEGIN", "COMMIT", "ROLLBACK"})
# Of these first words only some second ones, or none, make a transaction step: BEGIN and END are of blocks, too.
_SECOND_WORDS = {
    "begin": frozenset(
        {";", "concurrent", "deferrable", "deferred", "exclusive", "immediate", "isolation", "not", "read", "tran"}
        | {"transaction", "work"}
    ),
    "end": frozenset({";", "and", "tran", "transaction", "work"}),
    "prepare": frozenset({"transaction"}),
    "start": frozenset({"transaction"}),
}


def transaction_step(sql: str, dialect: str | None = None) -> str | None:
    """The kind of transaction step (SAVEPOINT, COMMIT …) that the text is, or None for a statement or for no text."""
    return statement_facts(sql, dialect).step


def _transaction_step(words: Sequence[str]) -> str | None:
    """The kind of the step that begins with these words; None of another statement."""
    first, *others = words
    if first not in _STEPS:
        return None
    second = others[0] if others else ";"
    if second not in _SECOND_WORDS.get(first, (second,)):
        return None
    return "ROLLBACK TO" if first == "rollback" and "to" in others[:2] else _STEPS[first]


_READS = frozenset({"select", "values", "table", "show", "explain", "pragma"})
_WRITES = frozenset({"insert", "update", "delete", "merge", "replace"})
_SETTINGS = frozenset({"set", "reset", "discard", "use"})
_DEFINITIONS = frozenset({"alter", "create", "drop"})
# The argument of these PRAGMAs names what they read or check.
_READING_PRAGMAS = (
    "table_",
    "index_",
    "foreign_key_",
    "integrity_check",
    "quick_check",
    "wal_checkpoint",
    "optimize",
    "incremental_vacuum",
)


def _effect(tokens: Sequence[str], first: int, word: str) -> tuple[str, str | None]:
    """What a statement does and to which table: its kind, and the table of a write as in `StatementFacts`."""
    if word == "pragma":
        return _kind_of_pragma(tokens[first + 1 : first + 5]), ""
    writes = [at for at in _beginnings(tokens, first) if tokens[at] in _WRITES]
    tables = {_target(tokens, at) for at in writes}
    table = tables.pop() if len(tables) == 1 and word not in _DEFINITIONS else None
    verb = tokens[writes[0]] if word == "with" and writes else "select" if word == "with" else word
    if verb in _WRITES:
        return {"replace": "insert"}.get(verb, verb), table
    if (verb not in _READS and verb not in _SETTINGS) or _has_second(tokens, first):
        return "other", table
    sets = "set_config" in tokens and "from" not in tokens[: tokens.index("set_config")]
    return "setting" if sets or verb in _SETTINGS else "read", None


def _kind_of_pragma(words: Sequence[str]) -> str:
    """Whether a PRAGMA sets or reads, by its name, which may have that of a schema before it, and what follows."""
    name, *behind = words[2:] if words[1:2] == ["."] else words or [""]
    return "setting" if behind[:1] in (["="], ["("]) and not name.startswith(_READING_PRAGMAS) else "read"


def _has_second(tokens: Sequence[str], first: int) -> bool:
    """Whether another statement follows the first one."""
    return ";" in tokens[first:] and any(token != ";" for token in tokens[tokens.index(";", first) :])


def _beginnings(tokens: Sequence[str], first: int) -> Iterator[int]:
    """Where statements begin: the first one, those behind semicolons, and those that WITH names or leads to."""
    yield from [first][: len(tokens)]
    if tokens[first : first + 1] != ["with"] and ";" not in tokens:
        return
    depth, is_with, before = 0, tokens[first] == "with", ""
    for at in range(first, len(tokens)):
        token = tokens[at]
        is_named = is_with and before == "(" and tokens[at - 2] in ("as", "materialized")
        if (before == ";" and token != ";") or is_named or (is_with and depth == 0 and before == ")"):
            yield at
        is_with = token == "with" if before == ";" else is_with
        depth += (token == "(") - (token == ")")
        before = token


# What may stand between the verb and the name of the table.
_BEFORE_TABLE = frozenset(
    {"(", "abort", "delayed", "fail", "from", "high_priority", "ignore", "into", "low_priority", "only", "or", "quick"}
    | {"replace", "rollback"}
)


_AFTER_TABLES = frozenset({"set", "where", "returning", ")", ";"})


def written_table(sql: str, dialect: str | None = None) -> str | None:
    """The name of the table, without its schema, that a write changes; None if it is not known or not the only one.

    Empty of a PRAGMA: what it sets changes no row that is read. After SET search_path a name may be another table's.
    """
    return statement_facts(sql, dialect).table


def _target(tokens: Sequence[str], verb: int) -> str | None:
    """The table that the write at *verb* changes, in lower case and without its schema; None if it is not clear."""
    at = verb + 1
    while at < len(tokens) and tokens[at] in _BEFORE_TABLE:
        at += 1
    while tokens[at + 1 : at + 2] == ["."]:
        at += 2
    name = tokens[at].strip('"`[]').lower() if at < len(tokens) else ""
    # MySQL changes several tables at once, and may name them by their aliases.
    behind = list(itertools.takewhile(lambda token: token not in _AFTER_TABLES, tokens[at + 1 : at + 30]))
    is_one_of_several = tokens[verb] in ("update", "delete") and ("," in behind or "join" in behind)
    is_alias = tokens[verb] == "delete" and "from" in behind
    return None if is_one_of_several or is_alias or not (name[:1].isalpha() or name[:1] == "_") else name


# Built-in functions whose result depends on more than their arguments and the tables: a second call is meant.
_VOLATILE_FUNCTIONS = """
    benchmark changes clock_timestamp currval found_rows gen_random_uuid get_lock inet_client_port is_free_lock
    is_used_lock last_insert_id last_insert_rowid lastval newid newsequentialid nextval rand random
    random_normal randomblob release_all_locks release_lock row_count scope_identity setseed setval sleep
    statement_timestamp sysdate timeofday total_changes uuid uuid_short uuidv4 uuidv7
"""
_VOLATILE_PREFIXES = """
    dblink lo_ pg_advisory_ pg_backup_ pg_blocking_pids pg_cancel_backend pg_create_ pg_current_ pg_drop_
    pg_last_ pg_logical_ pg_notif pg_promote pg_reload_conf pg_replication_ pg_sleep pg_stat pg_switch_wal
    pg_terminate_backend pg_try_advisory_ pg_wal_ pg_xact_ txid_ uuid_generate_
"""
_VOLATILE_RELATIONS = (
    "performance_schema",
    "pg_cursors",
    "pg_locks",
    "pg_prepared_",
    "pg_replication_",
    "pg_stat",
    "processlist",
)
_VOLATILE_PAIRS = frozenset({("skip", "locked"), (".", "nextval"), ("next", "value")})
# What SHOW and PRAGMA tell of the server or the session, and not of its settings.
_VOLATILE_SHOWS = frozenset({"count", "errors", "events", "processlist", "profile", "profiles", "status", "warnings"})
_VOLATILE_PRAGMAS = frozenset(
    {"data_version", "freelist_count", "incremental_vacuum", "optimize", "page_count", "wal_checkpoint"}
)
_VOLATILE_VARIABLES = frozenset(
    {"error_count", "identity", "in_transaction", "last_insert_id", "rowcount", "warning_count"}
)
_TIMES = frozenset({"current_time", "current_timestamp", "localtime", "localtimestamp"})
# What else a bracket may follow: functions of nothing but their arguments, types and keywords.
_STABLE_FUNCTIONS = """
    abs array_agg array_append array_cat array_length array_position array_remove array_to_string avg bigint
    binary bit bit_and bit_or bool_and bool_or btrim ceil ceiling char char_length character character_length
    coalesce concat concat_ws convert corr count cume_dist date date_add date_format date_part date_sub
    date_trunc dateadd datediff datepart dayofweek decimal dense_rank exp extract first_value float floor format
    generate_series generate_subscripts glob greatest group_concat grouping hex if ifnull iif instr int integer
    isnull json json_agg json_array json_array_length json_build_array json_build_object json_each json_extract
    json_group_array json_group_object json_object json_object_agg json_set json_value jsonb jsonb_agg
    jsonb_array_elements jsonb_array_length jsonb_build_array jsonb_build_object jsonb_each jsonb_extract_path
    jsonb_extract_path_text jsonb_object_agg jsonb_set lag last_value lead least length listagg ln log
    lower lpad ltrim make_date max md5 median min mod mode month nchar nth_value ntile nullif numeric nvarchar
    nvl octet_length overlay percent_rank percentile_cont percentile_disc plainto_tsquery position power printf
    quote rank regexp_match regexp_matches regexp_replace repeat replace reverse round row_number row_to_json
    rpad rtrim sign split_part sqrt starts_with stddev stddev_pop stddev_samp string_agg strpos substr
    substring sum time timestamp timestamptz to_char to_date to_json to_jsonb to_number to_timestamp to_tsquery
    to_tsvector total translate trim trunc truncate ts_rank typeof unnest upper var_pop var_samp varbinary
    varbit varchar variance varying websearch_to_tsquery year
"""
_KEYWORDS = """
    all and any array as between by case cast check collate cross cube distinct else end except exists filter
    for from full group having ilike in inner intersect interval into is join key lateral left like limit
    materialized natural not null of offset on only or order outer over partition recursive references right
    rollup row rows select set sets similar some table then to union unique update using values when where
    window with within
"""
_volatile_functions = frozenset(_VOLATILE_FUNCTIONS.split())
_volatile_prefixes = tuple(_VOLATILE_PREFIXES.split())
_not_volatile = frozenset(_STABLE_FUNCTIONS.split() + _KEYWORDS.split())


def _volatile_part(tokens: Sequence[str]) -> tuple[str | None, str | None]:
    """The first part because of which a read may find something else each time, and a function that is not known."""
    unknown = None
    word, named = tokens[0], _VOLATILE_SHOWS if tokens[0] == "show" else _VOLATILE_PRAGMAS
    if word in ("show", "pragma"):
        return next((f"{word} {token}" for token in tokens if token in named), None), None
    tokens = [token[1:-1].lower() if token[0] in '"`[' and len(token) > 2 else token for token in tokens]
    for at, token in enumerate(tokens):
        if token == "(":  # a view such as pg_stat_activity has none behind it
            function = tokens[at - 1] if at else ""
            if function in _volatile_functions or function.startswith(_volatile_prefixes):
                return f"{function}()", None
            if function[:1].isalpha() and function not in _not_volatile:
                unknown = unknown or f"{function}()"
        elif token.startswith(_VOLATILE_RELATIONS) or token == "readpast":
            return token, None
        elif token in _VOLATILE_VARIABLES and "@" in tokens[max(0, at - 3) : at]:
            return f"@@{token}", None
        elif token in _TIMES:
            unknown = unknown or token
        elif (tokens[at - 1], token) in _VOLATILE_PAIRS:
            return f"{tokens[at - 1]} {token}".strip(". "), None
    return None, unknown


_PLACEHOLDER = r"%\(\w+\)s|%s|\$\d+|(?<!:):[A-Za-z_]\w*|\?|(?:__)?\[POSTCOMPILE_\w+\]"
_LONG_LIST = re.compile(
    rf"(\( ?(?:{_PLACEHOLDER}))(?: ?, ?(?:{_PLACEHOLDER})){{3,}}(?P<cut> ?,? ?[%(\[:$?\w]{{0,80}}\Z)?"
)
_LONGEST_LINE = 10_000


def one_line(sql: str) -> str:
    """*sql* as people read it: on one line, a list of many values as its first one and an ellipsis.

    What is longer than 10,000 characters is cut.
    """
    line = " ".join((sql if len(sql) <= _LONGEST_LINE else f"{sql[:_LONGEST_LINE]}…").split())
    return _LONG_LIST.sub(lambda found: f"{found[1]}, …{'' if found['cut'] is None else ')'}", line)


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


_OPERATIONS = _READS | _WRITES | {"alter", "call", "copy", "create", "drop", "lock", "refresh", "set", "truncate"}
_BEFORE_TARGET = frozenset({"from", "into", "join", "table", "update", "call", "copy"})
# FOR UPDATE, DO UPDATE, ON DELETE, DISTINCT FROM: what follows these is no operation and no target.
_NO_OPERATION_AFTER = frozenset({"for", "do", "on", "distinct", "or", "no", "key"})
_SKIPPED = frozenset({"only", "lateral", "if", "not", "exists", "into", "from", "table"})
_ENDS_TARGETS = frozenset({"where", "set", "on", "using", "group", "order", "limit", "values", "having", "union"})
_LONGEST_SUMMARY = 255


@remembered_for_short_texts
def query_summary(sql: str, dialect: str | None = None) -> str:
    """The operations of a statement and the tables of each, as in "INSERT shipping SELECT orders customers".

    It is what OpenTelemetry names db.query.summary: few different ones, and no values. Empty for an empty text.
    """
    summary: list[str] = []
    length = 0
    expects = lists = after_dot = False
    before, depth, depths = "", 0, set()
    for kind, text in significant_tokens(sql, dialect):
        if length > _LONGEST_SUMMARY:
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
    return _cut(summary) or redacted(sql, dialect).strip().partition(" ")[0][:_LONGEST_SUMMARY]


def _cut(words: list[str]) -> str:
    """The words in one line, without those that make it too long."""
    text = " ".join(words)
    return text if len(text) <= _LONGEST_SUMMARY else text[: _LONGEST_SUMMARY + 1].rpartition(" ")[0]
