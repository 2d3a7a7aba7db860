"""The kind and the effects of a statement, by the words of its text.

The main function is `statement_facts`, which reads the text once, by the tokens of its dialect. *dialect* is
SQLAlchemy's name of the database everywhere; None if it is not known.
"""

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from placebench.profiler.model.normalised_sql import normalised_tokens
from placebench.profiler.model.relation_names import relation_names
from placebench.profiler.model.sql_tokens import MAX_REMEMBERED, MAX_REMEMBERED_LENGTH


class StatementFacts(NamedTuple):
    """Facts shared by all executions of one text.

    fingerprint: sixteen hexadecimal digits, the same for texts that differ only in values, comments, case or the length
        of lists of constants.
    step: the kind of a transaction step (SAVEPOINT, COMMIT …); None for a statement, or for several in one text.
    last_step: BEGIN, COMMIT or ROLLBACK, whichever comes last in a text of several statements; None without any.
    kind: "read", "insert", "update", "delete", "merge", "setting", or "other" (DDL, CALL, COPY …), by the words alone:
        the effect of any function in a SELECT is unknown. A read that locks its rows is a read, and one with other
        statements after it, such as the reset of asyncpg's pool, is "other". A setting is one of the session: SET,
        RESET, `PRAGMA x = y`, SELECT set_config(…).
    first_word: the first word in lower case, after comments and brackets; empty if there is none.
    table: the table, without its schema, that a write changes; None if it is unknown or not the only one, empty if no
        row that a read finds is changed. After SET search_path the name may be another table's.
    volatile: the function, view or clause that may make a read find something else each time; None if none is known.
    unknown_function: a called function that may be volatile or not; None without any.
    setting: the name of a setting that decides which rows the name of a table stands for, such as search_path, a role
        or one of the application's own, and whether it ends with its transaction; None for other statements.
    relations: the tables and views that it reads, as in `relation_names`.
    takes_rows: whether it chooses rows as a worker of a queue does: with SKIP LOCKED, or by an UPDATE or DELETE of
        rows that a LIMIT chooses from the same table.
    walks: how it may read or write one part of a table after the other: by a "range" of keys, by pages from the "keys"
        of the last one on, or by pages at an "offset".
    """

    fingerprint: str
    step: str | None
    last_step: str | None
    kind: str
    first_word: str
    table: str | None
    volatile: str | None
    unknown_function: str | None
    relations: frozenset[str]
    setting: tuple[str, bool] | None
    takes_rows: bool
    walks: frozenset[str]


SECOND_STATEMENT = re.compile(r";\s*\w")
"""Matches where a second statement begins in a text, or in a literal of it."""
# These change no row that a read finds; a temporary table may hide one of the same name.
_NO_WRITE = re.compile(
    r"\s*(?:notify|listen|unlisten|lock|analyze|vacuum|checkpoint|prepare|deallocate|declare|fetch|move|close)\b"
    r"|\s*create\s+(?:local\s+|global\s+)?temp(?:orary)?\s+table\s+(?:if\s+not\s+exists\s+)?[\"`]?(\w+)"
    r"|\s*copy\b.*\bto\s+stdout\b",
    re.IGNORECASE | re.DOTALL,
)
_facts_of_long_texts: dict[tuple[int, int, str | None], StatementFacts] = {}


def statement_facts(sql: str, dialect: str | None = None) -> StatementFacts:
    """Return the facts of *sql*; those of the last few hundred texts are remembered, long texts by their hash."""
    if len(sql) <= MAX_REMEMBERED_LENGTH:
        return _facts_of_short_text(sql, dialect)
    key = len(sql), hash(sql), dialect
    facts = _facts_of_long_texts.get(key)
    if facts is None:
        facts = _read_statement(sql, dialect)
        if len(_facts_of_long_texts) >= MAX_REMEMBERED:
            _facts_of_long_texts.clear()
        _facts_of_long_texts[key] = facts
    return facts


def _read_statement(sql: str, dialect: str | None) -> StatementFacts:
    tokens = normalised_tokens(sql, dialect)
    # Brackets, the semicolon before T-SQL's WITH, and MySQL's /*! stand before the first word.
    first = next((at for at, token in enumerate(tokens) if token not in ("(", ";", "{") and token[:2] != "/*"), 0)
    word = tokens[first] if tokens and tokens[first][0].isalpha() else ""
    kind, table = _effect(tokens, first, word)
    if kind == "other" and table is None and (harmless := _NO_WRITE.match(sql)) and not SECOND_STATEMENT.search(sql):
        table = (harmless[1] or "").lower()
    volatile, unknown = _volatile_part(tokens) if kind == "read" else (None, None)
    steps: list[str | None] = []
    if ";" in tokens:
        blocks = ("end",) if word in _DEFINITIONS else ()  # the END of a trigger or a procedure
        begins = [at for at in _beginnings(tokens, first) if tokens[at] not in blocks]
        steps = [_transaction_step(tokens[at : at + 4]) for at in begins]
    is_alone = len(steps) <= 1 and word in _STEPS
    if any(step in ("COMMIT", "ROLLBACK", "ROLLBACK TO") for step in steps):
        table = None  # writes of earlier texts may be undone, or seen by others
    relations = relation_names(tokens)
    return StatementFacts(
        fingerprint=blake2b(" ".join(tokens).encode(errors="surrogatepass"), digest_size=8).hexdigest(),
        step=_transaction_step(tokens[first : first + 4]) if is_alone else None,
        last_step=None if is_alone else next((step for step in reversed(steps) if step in _ENDS_AND_BEGINS), None),
        kind=kind,
        first_word=word,
        table=table,
        volatile=volatile,
        unknown_function=unknown,
        relations=relations,
        setting=_row_setting(tokens[first:]) if kind == "setting" else None,
        takes_rows=_takes_rows(tokens, kind, word, is_alone=relations <= {table}),
        walks=_walks(frozenset(tokens)),
    )


_facts_of_short_text = functools.lru_cache(MAX_REMEMBERED)(_read_statement)


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
# The second words with which these first ones are a transaction step: BEGIN and END also belong to blocks.
_SECOND_WORDS = {
    "begin": frozenset(
        {";", "concurrent", "deferrable", "deferred", "exclusive", "immediate", "isolation", "not", "read", "tran"}
        | {"transaction", "work"}
    ),
    "end": frozenset({";", "and", "tran", "transaction", "work"}),
    "prepare": frozenset({"transaction"}),
    "start": frozenset({"transaction"}),
}


def _transaction_step(words: Sequence[str]) -> str | None:
    """Return the kind of the transaction step that begins with these words; None for another statement."""
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
# PRAGMAs whose argument names what they read or check.
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
    """Return the kind of a statement, and the table that it changes, as in `StatementFacts`."""
    if word == "pragma":
        words = tokens[first + 1 : first + 5]
        name, *behind = words[2:] if words[1:2] == ["."] else words or [""]  # the schema may stand before the name
        sets = behind[:1] in (["="], ["("]) and not name.startswith(_READING_PRAGMAS)
        return "setting" if sets else "read", ""
    writes = [at for at in _beginnings(tokens, first) if tokens[at] in _WRITES]
    tables = {_target(tokens, at) for at in writes}
    table = tables.pop() if len(tables) == 1 and word not in _DEFINITIONS else None
    verb = tokens[writes[0]] if word == "with" and writes else "select" if word == "with" else word
    if verb in _WRITES:
        return {"replace": "insert"}.get(verb, verb), table
    is_followed = ";" in tokens[first:] and any(token != ";" for token in tokens[tokens.index(";", first) :])
    if (verb not in _READS and verb not in _SETTINGS) or is_followed:
        return "other", table
    sets = "set_config" in tokens and "from" not in tokens[: tokens.index("set_config")]
    return "setting" if sets or verb in _SETTINGS else "read", None


def _takes_rows(tokens: Sequence[str], kind: str, word: str, *, is_alone: bool) -> bool:
    """Return whether a statement chooses rows as in `StatementFacts`; is_alone: whether it names one table only."""
    if "readpast" in tokens or ("skip", "locked") in itertools.pairwise(tokens):
        return True
    if kind not in ("update", "delete") or not is_alone:
        return False
    depth, is_condition = 0, word == "with"
    for token in tokens:
        depth += (token == "(") - (token == ")")
        is_condition = is_condition or (token == "where" and depth == 0)
        if token in ("limit", "fetch") and (is_condition or depth == 0):
            return True
    return False


def _walks(tokens: frozenset[str]) -> frozenset[str]:
    """Return how a statement may walk through a table, as in `StatementFacts`."""
    has_pages = "limit" in tokens or "fetch" in tokens
    ways = {
        "range": "between" in tokens or tokens >= {">", "<"},
        "keys": has_pages and (">" in tokens or "<" in tokens),
        "offset": has_pages and "offset" in tokens,
    }
    return frozenset(way for way, is_possible in ways.items() if is_possible)


_ROW_SETTINGS = frozenset(
    {"all", "authorization", "current_schema", "role", "row_security", "schema", "search_path", "set_config"}
)


def _row_setting(tokens: Sequence[str]) -> tuple[str, bool] | None:
    """Return the setting as in `StatementFacts`; the name that set_config is given may be a value."""
    if "set_config" in tokens:
        return "set_config", "false" not in tokens
    verb, *names = tokens
    if verb in ("use", "discard"):
        return "schema" if verb == "use" else "all", False
    is_local = names[:1] == ["local"]
    name, *behind = [each for each in names if each not in ("global", "local", "session", "=")] or [""]
    is_own = name == "@" or behind[:1] == ["."]
    return (f"{name}{''.join(behind[:2])}" if is_own else name, is_local) if is_own or name in _ROW_SETTINGS else None


def _beginnings(tokens: Sequence[str], first: int) -> Iterator[int]:
    """Yield where statements begin: the first one, those after semicolons, and those that WITH names or leads to."""
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


# Words that may stand between the verb and the name of the table.
_BEFORE_TABLE = frozenset(
    {"(", "abort", "delayed", "fail", "from", "high_priority", "ignore", "into", "low_priority", "only", "or", "quick"}
    | {"replace", "rollback"}
)
_AFTER_TABLES = frozenset({"set", "where", "returning", ")", ";"})


def _target(tokens: Sequence[str], verb: int) -> str | None:
    """Return the table that the write at *verb* changes, in lower case and without its schema; None if unclear."""
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


# Built-in functions whose result depends on more than their arguments and the tables: a repeated call is intended.
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
# Rows that are locked again are locked for another transaction.
_VOLATILE_PAIRS = frozenset(
    {("skip", "locked"), (".", "nextval"), ("next", "value"), ("for", "update"), ("for", "share"), ("for", "no")}
    | {("for", "key"), ("in", "share")}
)
# SHOW and PRAGMA also return facts of the server or the session that are not settings.
_VOLATILE_SHOWS = frozenset({"count", "errors", "events", "processlist", "profile", "profiles", "status", "warnings"})
_VOLATILE_PRAGMAS = frozenset(
    {"data_version", "freelist_count", "incremental_vacuum", "optimize", "page_count", "wal_checkpoint"}
)
_VOLATILE_VARIABLES = frozenset(
    {"error_count", "identity", "in_transaction", "last_insert_id", "rowcount", "warning_count"}
)
_TIMES = frozenset({"current_time", "current_timestamp", "localtime", "localtimestamp"})
# Words that may stand before a bracket in other reads: functions of their arguments alone, types and keywords.
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
    """Return the first part of a read that may change the result each time, and a function that may or may not.

    A read of no table but an unknown function is such a part: databases take a function for volatile unless it is
    declared otherwise.
    """
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
        elif token.startswith(_VOLATILE_RELATIONS) or token in ("readpast", "tablesample"):
            return token, None
        elif token in _VOLATILE_VARIABLES and "@" in tokens[max(0, at - 3) : at]:
            return f"@@{token}", None
        elif token in _TIMES:
            unknown = unknown or token
        elif (tokens[at - 1], token) in _VOLATILE_PAIRS:
            return f"{tokens[at - 1]} {token}".strip(". "), None
    reads_table = any(
        token in ("from", "join") and tokens[at + 1 : at + 2] != ["("] and "(" not in tokens[at + 2 : at + 3]
        for at, token in enumerate(tokens)
    )
    return (None, unknown) if reads_table else (unknown, None)
