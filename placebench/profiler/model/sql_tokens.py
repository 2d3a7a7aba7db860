"""SQL text as tokens, by the rules of its database (`sql_tokens`), and without its values (`redacted`).

The fingerprint of a text, its kind, and its redacted form in recordings are derived from these tokens. `"…"` is a name
in PostgreSQL, a string in MySQL unless sql_mode has ANSI_QUOTES, and in SQLite a name that becomes a string if there is
no such column. If that cannot be known, its place in the statement decides.
Time and memory grow with the text.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from typing import TypeVar

_T = TypeVar("_T")
# Results for longer texts are not kept with their text: some hundred of them would fill the memory.
MAX_REMEMBERED_LENGTH = 4096
MAX_REMEMBERED = 512

Token = tuple[str, str]
"""A kind ("space", "comment", "word", "name", "value", "placeholder" or "other") and the text."""

# A group that is repeated is possessive: another one keeps a mark per repetition, which is memory by the character.
# A repeated part may fail at its first character only: CPython gh-106052, fixed in 3.11.5.
# An unterminated literal ends with the text: a statement may have been cut.
_PLAIN = r"{0}[^{0}]*+(?:{0}{0}[^{0}]*+)*+(?:{0}|\Z)"
_ESCAPED = r"{0}[^{0}\\]*+(?:(?:\\.|{0}{0})[^{0}\\]*+)*+(?:{0}|\\?\Z)"
# If \' ends the string in one database and not in another, the rest of the text may be inside of it.
_EITHER = r"{0}[^{0}\\]*+(?:(?:\\[^{0}]|{0}{0})[^{0}\\]*+)*+(?:{0}|\\?\Z|\\{0}.*)"
_DOLLAR_QUOTED = r"\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?(?:\$(?P=tag)\$|\Z)"
_Q_QUOTED = (
    r"[nN]?[qQ]'(?:\[.*?(?:\]'|\Z)|\{.*?(?:\}'|\Z)|\(.*?(?:\)'|\Z)|<.*?(?:>'|\Z)|(?P<mark>\S)(?:.*?(?P=mark)'|.*)|\Z)"
)
# A literal may follow at once, such as E'…'.
_DIGITS = r"\d(?:(?![bBeEnNxX]')\w)*+"
_NUMBER = rf"{_DIGITS}(?:\.\w*)?(?:(?<=[eE])[+-]\d+)?|(?<![\w\"`\])])\.{_DIGITS}(?:(?<=[eE])[+-]\d+)?"
_PLACEHOLDER = r"%\(\w+\)s|%s|(?<!:):[A-Za-z_]\w*|__\[POSTCOMPILE_\w+\]|\[POSTCOMPILE_\w+\]"
_BLOCK_COMMENT = r"/\*.*?(?:\*/|\Z)"
# In MySQL a name may begin with a digit, a comment needs a blank after its dashes, and what /*! begins is executed.
_MYSQL_NUMBER = r"0[xXbB]\w+|(?:\d[\d_]*(?:\.\d*)?|(?<![\w\"`\])])\.\d+)(?:[eE][+-]?\d+)?(?![\w$])"
_MYSQL_COMMENT = r"--(?=[\s\x00-\x20]|\Z)[^\n]*|\#[^\n]*|/\*(?!M?!).*?(?:\*/|\Z)"
# A comment for only some databases ends with its line, or with the text if a literal may begin in it.
_EITHER_COMMENT = rf"--[\s\x00-\x20][^\n]*|(?:--|\#)(?:[^\n'\"`$/]*(?=\n|\Z)|.*)|{_BLOCK_COMMENT}"

# Constants whose number is that of the commas, as in long lists; in parts, for each repetition takes memory.
_ITEMS = r"(?:\s*,\s*(?:%\(\w+\)s|%s|[$]\d+|[?]|\d+|'[^',\\]*'(?!'))(?=\s*[,)])){2,500}"

_DIALECTS = frozenset({"postgresql", "sqlite", "mysql", "oracle", "mssql"})
_NESTING = frozenset({"postgresql", "mssql", None})
_UNSURE = frozenset({"sqlite", "mysql", None})
"""Dialects in which a text between double quotes may be a string or a name."""
_BRACKETED = re.compile(r"[^][]*\]")
_NESTED = re.compile(r"/\*|\*/")
_LIMITS = frozenset({"LIMIT", "FIRST", "NEXT"})
"""Words before the number of rows that a statement returns at most; FIRST and NEXT are those of FETCH."""


def sql_tokens(sql: str, dialect: str | None = None) -> Iterator[Token]:
    """Return the tokens of *sql* in order; joined they are the whole text.

    dialect: SQLAlchemy's name. If it is not known, a token that is a value in any dialect is a value.
    """
    return _tokens(sql, dialect, all_tokens=True)


def significant_tokens(sql: str, dialect: str | None = None) -> Iterator[Token]:
    """Return the tokens without blanks and comments; several constants after commas are one token "items"."""
    return _tokens(sql.rstrip(), dialect, all_tokens=False)


def _tokens(sql: str, dialect: str | None, *, all_tokens: bool) -> Iterator[Token]:
    if dialect not in _DIALECTS:
        dialect = "mysql" if dialect == "mariadb" else None
    found = _split(sql, dialect, all_tokens=all_tokens)
    if dialect in _UNSURE and '"' in sql:
        found = _tell_names(found, strict=dialect != "sqlite")
    if _SETTING.search(sql):
        found = _tell_settings(found, dialect)
    if dialect in ("mssql", None) and _CALL.search(sql):
        found = _tell_arguments(found)
    return _tell_passwords(found) if _PASSWORD.search(sql) else found


@functools.lru_cache
def _pattern(dialect: str | None, *, all_tokens: bool) -> re.Pattern[str]:
    """Return the pattern of one token of a dialect, with a group per kind."""
    string = {"mysql": _ESCAPED, None: _EITHER}.get(dialect, _PLAIN)
    values = [_Q_QUOTED] if dialect in ("oracle", None) else []
    values += ["[eE]" + _ESCAPED.format("'"), "(?:[bBxXnN]|[uU]&)?" + string.format("'")]
    values += [_DOLLAR_QUOTED] if dialect in ("postgresql", "mysql", None) else []
    names = [r"`[^`]*(?:`|\Z)"] if dialect in _UNSURE else ["(?:[uU]&)?" + _PLAIN.format('"')]
    if dialect in _UNSURE:
        names += [r"(?<=\.)" + string.format('"'), string.format('"') + r"(?=\s*\.(?!\d))"]
    names += [r"\[[^\]]*(?:\]|\Z)"] if dialect in ("sqlite", "mssql") else []
    placeholders = {"sqlite": r"\?\d*|[$@]\w+", "mssql": r"\?"}  # $12 is money in Transact-SQL
    kinds = {
        **({"space": r"\s+"} if all_tokens else {"items": _ITEMS}),
        "comment": {"mysql": _MYSQL_COMMENT, None: _EITHER_COMMENT}.get(dialect, rf"--[^\n]*|{_BLOCK_COMMENT}"),
        "value": "|".join([*values, _MYSQL_NUMBER if dialect == "mysql" else _NUMBER]),
        "placeholder": f"{_PLACEHOLDER}|{placeholders.get(dialect or '', r'[$][0-9]+|[?]')}",
        "word": r"[\w$]+" if dialect == "mysql" else r"[^\W\d][\w$]*",
        "name": "|".join(names),
        "quoted": string.format('"') if dialect in _UNSURE else "(?!)",
        "other": r"/\*M?!\d{0,6}|." if dialect == "mysql" else ".",
    }
    groups = "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in kinds.items())
    return re.compile(groups if all_tokens else rf"\s*(?:{groups})", re.DOTALL)


def _split(sql: str, dialect: str | None, *, all_tokens: bool) -> Iterator[Token]:
    """Yield the tokens by their form alone; double-quoted text that may be a name or a string has the kind "quoted"."""
    pattern, nests, position = _pattern(dialect, all_tokens=all_tokens), dialect in _NESTING, 0
    is_executed = False  # whether a comment of MySQL that is executed is open
    while position < len(sql):
        for match in pattern.finditer(sql, position):
            kind, text = match.lastgroup or "", match[match.lastindex or 0]
            if kind == "comment":
                start = match.end() - len(text)
                if is_executed and text[0] == "/" and sql[start - 1] == "*":  # its end, as in /*! … */*
                    is_executed, position = False, start + 1
                    yield "other", "/"
                    break
                if nests and text[0] == "/" and text.find("/*", 2) > 0:
                    position = len(sql) if dialect is None else _end_of_comment(sql, start)
                    if all_tokens:
                        yield kind, sql[start:position]
                    break
                if not all_tokens:
                    continue
            elif kind in ("name", "quoted") and (len(text) == 1 or text[-1] not in '"`]'):
                kind = "value"  # it was cut, or was meant for something else
            elif text == "[" and dialect is None and _has_odd_quotes(sql, match.end()):
                yield "value", sql[match.end() - 1 :]
                return
            elif text[:2] == "/*":
                is_executed = True
            elif text == "/" and sql[match.end() - 2 : match.end()] == "*/":
                is_executed = False
            yield kind, text
        else:
            return


def _has_odd_quotes(sql: str, start: int) -> bool:
    """Return whether the brackets that are open at *start* contain an odd number of one kind of quote.

    One database reads such brackets as a name; in another the quote begins a string, which may contain what follows.
    """
    inner = _BRACKETED.match(sql, start)
    return inner is not None and any(inner[0].count(mark) % 2 for mark in "'\"`")


def _end_of_comment(sql: str, start: int) -> int:
    """Return the end of the comment that begins at *start*, including the comments nested in it."""
    depth = 0
    for match in _NESTED.finditer(sql, start):
        depth += 1 if match.group() == "/*" else -1
        if depth == 0:
            return match.end()
    return len(sql)


_BEFORE_NAMES = frozenset({"column", "constraint", "index", "references", "savepoint", "table", "trigger", "view"})
_BEFORE_LISTS = frozenset({"conflict", "key", "unique", "using"})
_BEFORE_TARGETS = frozenset({"into", "references", "table", "with"})
_BEFORE_CONDITIONS = frozenset({"and", "case", "check", "having", "on", "or", "where"})
_ORDERED = frozenset({"group", "order", "partition"})
_BETWEEN = frozenset({"exists", "if", "ignore", "only", "recursive"})
"""Words that may come between a word such as TABLE and the name."""
_STATEMENTS = frozenset({"delete", "insert", "merge", "replace", "select", "update", "with"})
_USERS = frozenset({"grant", "revoke", "user"})
"""Statements whose strings name accounts and hold passwords, after words that lead to a name in others."""


class _Level:
    """The state between two brackets: whether a comma leads to a name, the statement, and an open BETWEEN."""

    __slots__ = ("between", "commas", "verb")

    def __init__(self, *, commas: bool = False) -> None:
        self.commas = commas
        self.verb = ""
        self.between = False


def _tell_names(tokens: Iterable[Token], *, strict: bool) -> Iterator[Token]:
    """Yield *tokens*, in which a text between double quotes is a name by its place, and a value elsewhere.

    It is a name beside a dot, after words such as FROM, INTO, UPDATE, JOIN, TABLE and AS, in lists of columns (INSERT,
    CREATE, ON CONFLICT, USING) and at the left of SET's equals sign. strict: nowhere else, as in MySQL; otherwise also
    in the columns of a SELECT, in ORDER BY and GROUP BY, and at the beginning of a condition.
    """
    level, outer, perhaps = _Level(), list[_Level](), not strict
    statement = before = ""
    expected = target = is_target = False
    for kind, text in tokens:
        if kind == "quoted":
            kind = "name" if expected and statement not in _USERS else "value"
        yield kind, text
        if kind in ("space", "comment") or text == ".":
            before = "." if text == "." else before
            continue
        word = text.lower() if kind == "word" else text if kind == "other" else ""
        if not word:
            is_target, target, expected = target or (is_target and before == "."), False, False
        elif word == "(":
            outer.append(level)
            is_list = is_target or (before in _BEFORE_LISTS and statement != "pragma")
            level, expected = _Level(commas=is_list), is_list or expected
            is_target = target = False
        elif word in (")", ";"):
            level = outer.pop() if outer and word == ")" else _Level()
            if word == ";":
                outer, statement = [], ""
            expected = target = is_target = False
        elif kind == "other":
            expected = word == "," and level.commas
            target, is_target = expected and level.verb == "with", False
        elif word not in _BETWEEN and not (word == "not" and before == "if"):
            statement = "user" if word == "user" and statement in ("alter", "create") else statement or word
            begins = word in _STATEMENTS and (word != "with" or before in ("", "(", ";"))
            level.verb = word if begins else level.verb or ("" if outer else word)
            is_target = target or (is_target and before == ".")
            expected = _leads_to_name(word, before, level, statement, perhaps=perhaps)
            target = word in _BEFORE_TARGETS or (word == "on" and statement == "create")
        before = word or kind


def _leads_to_name(word: str, before: str, level: _Level, statement: str, *, perhaps: bool) -> bool:
    """Return whether a name follows *word*, which comes after *before*; note in *level* what the next comma leads to.

    perhaps: the result if a string may follow as well.
    """
    if word in _BEFORE_NAMES or (word == "on" and statement == "create"):
        return True
    if (
        word in ("from", "join", "into", "update", "with")
        and level.verb not in ("", "prepare")  # PREPARE … FROM has the text of a statement
        and before not in ("distinct", "for")
    ):
        level.commas = word != "into"
        return word != "with" or before in ("", "(", ";")
    if word == "as":
        return level.verb in _STATEMENTS or level.verb == "attach"
    if word == "set":
        level.commas = level.verb == "update"
        return level.commas
    if word == "select" or (word == "by" and before in _ORDERED) or word == "returning":
        level.commas = perhaps
        return perhaps
    if word in ("distinct", "all") and before == "select":
        return perhaps
    if word in ("where", "having", "limit", "values", "on"):
        level.commas = False
    if word == "between":
        level.between = True
    if word == "and" and level.between:
        level.between = False
        return False
    return perhaps and (
        word in _BEFORE_CONDITIONS
        or (word == "not" and before != "is")
        or (word in ("to", "add", "rename", "drop") and statement == "alter")
    )


# Each searches for statements in which a word may be a value: most texts have none of them.
_SETTING = re.compile(r"\b(?:set|pragma|attach)\b", re.IGNORECASE)
_CALL = re.compile(r"\bexec(?:ute)?\b|\A\s*+[sx]p_", re.IGNORECASE)
_PASSWORD = re.compile(r"\bidentified\b", re.IGNORECASE)

_QUERIES = frozenset({"delete", "insert", "merge", "select", "update"})
_HAVE_SETTINGS = frozenset({"database", "function", "procedure", "role", "routine", "session", "system", "user"})
"""Objects to which ALTER, and for functions CREATE, gives a setting with SET."""
_KEY = re.compile(r"(?:hex|text)?(?:re)?key")
_SCOPE = re.compile(r"@@(?:global|local|persist|persist_only|session)\.")
_NAMING_SETTINGS = frozenset(
    {"client_encoding", "current_schema", "datestyle", "default_table_access_method", "default_tablespace", "role"}
    | {"default_text_search_config", "intervalstyle", "search_path", "session_authorization", "temp_tablespaces"}
    | {"time_zone", "timezone"}
)
_SWITCHES = frozenset({"auto", "default", "false", "no", "none", "null", "off", "on", "true", "yes"})


def _tell_settings(tokens: Iterable[Token], dialect: str | None) -> Iterator[Token]:
    """Yield *tokens*, in which words and names that become the value of a setting are values.

    Settings are made by SET, ALTER … SET, PRAGMA key and ATTACH … KEY. Every word is a value if an application chose
    the setting: its name has a dot, or an @ like MySQL's variables. A setting of the database keeps on, off, default
    and the like, and the name of a schema, role, time zone or encoding. Such a name follows SET ROLE, SET NAMES or SET
    TIME ZONE.
    """
    reader = _SettingReader(separates_by_comma=dialect == "mysql")
    for kind, text in tokens:
        yield "value" if kind not in ("space", "comment") and reader.is_value(kind, text) else kind, text


class _SettingReader:
    """Reads tokens in order and decides which words are values of settings."""

    def __init__(self, *, separates_by_comma: bool) -> None:
        self._separates_by_comma = separates_by_comma
        """Whether a comma leads to the next setting, and not to the next value of the same one."""
        self._state = ""
        """"name" while the name of a setting is read; then how secret its value is: "secret", "word" or "named"."""
        self._statement = self._owner = self._name = self._before = ""

    def is_value(self, kind: str, text: str) -> bool:
        """Return whether the next token, which is neither blank nor comment, is a word that stands for a value."""
        word = text.lower() if kind == "word" else ""
        is_value = False
        if text == ";" or word in _QUERIES:
            self._state, self._statement, self._owner = "", word, ""
        elif self._state == "name":
            self._read_name(word or text, is_name=kind in ("word", "name"))
        elif self._state:
            is_value = kind in ("word", "name") and self._read_value(word)
        else:
            self._read_beginning(word)
        if self._state not in ("", "name") and text == "," and self._separates_by_comma and self._statement == "set":
            self._state, self._name = "name", ""
        self._before = "," if kind == "items" else word or text
        return is_value

    def _read_beginning(self, word: str) -> None:
        if word == "set" and (self._statement in ("", "set") or self._owner):
            self._state, self._name, self._statement = "name", "", self._statement or "set"
        elif (self._statement == "pragma" and _KEY.fullmatch(word)) or (self._statement, word) == ("attach", "key"):
            self._state = "secret"
        elif word:
            self._statement = self._statement or word
            if word in _HAVE_SETTINGS and self._statement in ("alter", "create"):
                self._owner = word

    def _read_name(self, text: str, *, is_name: bool) -> None:
        """Read a part of the name of a setting, a word before it such as SESSION, or what ends it."""
        if text == "=" or (text == "to" and self._name):
            name = _SCOPE.sub("", self._name)
            is_own = "." in name or "@" in name
            self._state = "secret" if is_own else "named" if name in _NAMING_SETTINGS else "word"
        elif text in (".", "@") or self._before in (".", "@"):
            self._name += text.lower()
        elif is_name:
            self._name = text.lower()

    def _read_value(self, word: str) -> bool:
        """Return whether a word or name (with an empty *word*) behind the equals sign is a value."""
        if word == "set":
            self._state, self._name = "name", ""
        elif self._statement == "create" and self._before not in ("=", "to", ","):
            self._state = ""  # behind the value of a function's setting its other properties follow
        return self._state == "secret" or (self._state == "word" and word not in _SWITCHES)


_BEGIN_STATEMENTS = frozenset(
    {"alter", "begin", "commit", "create", "declare", "drop", "else", "end", "exec", "execute", "go", "if", "print"}
    | {"return", "rollback", "set", "use", "while", *_QUERIES}
)
_NO_PROCEDURE = frozenset({"as", "function", "immediate", "on", "procedure"})
_NO_ARGUMENT = frozenset({"default", "null", "out", "output", "recompile", "with"})


def _tell_arguments(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield *tokens*, in which arguments of T-SQL's EXEC are values: words and names need no quotes there."""
    state = before = ""
    is_first = True
    for kind, text in tokens:
        if kind in ("space", "comment"):
            yield kind, text
            continue
        word = text.lower() if kind == "word" else ""
        is_name = kind in ("word", "name")
        if word in ("exec", "execute"):
            state = "procedure"
        elif text == ";" or word in _BEGIN_STATEMENTS or (text == "(" and state):
            state = ""  # a text in brackets is executed itself
        elif (state == "procedure" and is_name) or (is_first and word.startswith(("sp_", "xp_"))):
            state = "" if word in _NO_PROCEDURE else "called"
        elif state == "called" and text == "=":
            state = "procedure"  # what stood before it was a variable for the result
        elif state == "called" and ((is_name and before != ".") or text == "@"):
            state = "arguments"
        if state == "arguments" and is_name and before != "@" and word not in _NO_ARGUMENT:
            kind = "value"
        yield kind, text
        before, is_first = word or text, False


def _tell_passwords(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield *tokens* with users' passwords as values: in Oracle's IDENTIFIED BY new REPLACE old they are names."""
    before = ""
    for kind, text in tokens:
        word = text.lower() if kind == "word" else ""
        if kind in ("space", "comment"):
            yield kind, text
        elif before == "identified by" and kind in ("word", "name", "value"):
            yield "value", text
            before = "password"
        else:
            yield kind, text
            follows = (before, word) in (("identified", "by"), ("password", "replace"))
            before = "identified by" if follows else word if word == "identified" else ""


def remembered_for_short_texts(function: Callable[[str, str | None], _T]) -> Callable[[str, str | None], _T]:
    """Return *function* of a text and its dialect, with its results for the last short texts remembered."""
    remembered = functools.lru_cache(MAX_REMEMBERED)(function)

    @functools.wraps(function)
    def call(sql: str, dialect: str | None = None) -> _T:
        return remembered(sql, dialect) if len(sql) <= MAX_REMEMBERED_LENGTH else function(sql, dialect)

    return call


@remembered_for_short_texts
def redacted(sql: str, dialect: str | None = None) -> str:
    """Return *sql* with its literals and the text of its comments as `?`; placeholders, names and hints stay.

    A text between double quotes is a name or a literal by the rules of the dialect and, where these leave it open, by
    its place in the statement. If the dialect is not known, what may be a literal in any of them is one.
    Words that stand for values are left out too: passwords, settings, and arguments of T-SQL's EXEC.
    """
    return "".join(_shown(kind, text) for kind, text in sql_tokens(sql, dialect))


def _shown(kind: str, text: str) -> str:
    """Return one token as a recording keeps it."""
    if kind == "comment" and not text.startswith("/*+"):
        return "/* ? */" if text[0] == "/" else f"{text[0] if text[0] == '#' else '--'} ?"
    return "?" if kind == "value" else text


@remembered_for_short_texts
def literal_values(sql: str, dialect: str | None = None) -> tuple[int | date | str, ...]:
    """Return the literals of a text in order: whole numbers and days as such, others as they are written."""
    values: list[int | date | str] = []
    before = ""
    for kind, text in significant_tokens(sql, dialect):
        if kind == "value":
            try:
                values.append(
                    int(before + text) if text.isascii() and text.isdigit() else date.fromisoformat(text[1:-1])
                )
            except ValueError:
                values.append(text)
        before = "-" if text == "-" else ""
    return tuple(values)


def with_numbered_placeholders(
    sql: str, dialect: str = "postgresql", *, mark: str = "$", row_count: int | None = None
) -> tuple[str, int]:
    """Return a statement with placeholders and redacted literals as $1, $2 and so on, and their number.

    mark: what stands before a number, "?" for SQLite. row_count: rows that the statement returned, which take the place
    of its limit if it has only one: a planner expects a tenth of all rows for a limit that it does not know.
    """
    numbers: dict[str, int] = {}
    unnamed = itertools.count()
    tokens = list(sql_tokens(sql, dialect))
    words = [place for place, (kind, _) in enumerate(tokens) if kind not in ("space", "comment")]
    pairs = itertools.pairwise(words)
    limits = [two for one, two in pairs if tokens[one][1].upper() in _LIMITS and tokens[two][0] != "word"]
    limit = limits[0] if len(limits) == 1 and row_count is not None else None

    def parts() -> Iterator[str]:
        for place, (kind, text) in enumerate(tokens):
            if kind != "placeholder" and text != "?":
                yield text
            elif place == limit:
                yield str(max(1, row_count or 0))
            else:
                name = text if text[:1] in "$:@" or text[:2] == "%(" else f"?{next(unnamed)}"
                yield f"{mark}{numbers.setdefault(name, len(numbers) + 1)}"

    return "".join(parts()), len(numbers)
