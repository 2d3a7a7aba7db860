"""Literals and names as another parser reads them, in each dialect."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placebench.profiler.model.sql_tokens import redacted, sql_tokens
from placebench.profiler.model.statement_facts import statement_facts

sqlglot = pytest.importorskip("sqlglot")

READERS = {"postgresql": "postgres", "sqlite": "sqlite", "mysql": "mysql", "oracle": "oracle", "mssql": "tsql"}
NAME = st.from_regex(r"[a-z][a-z_]{2,8}[0-9]", fullmatch=True)
TEXT = st.text(st.sampled_from("ab'\"\\`$#-/*[]() \n%é"), min_size=1, max_size=12)


def _written(tree: Any, dialect: str) -> str:
    return str(tree.sql(dialect=READERS[dialect], identify=True))


@given(st.sampled_from(list(READERS)), NAME, NAME, NAME, st.lists(TEXT, min_size=1, max_size=3))
def test_literals_are_left_out_and_names_stay(
    dialect: str, table: str, column: str, alias: str, texts: list[str]
) -> None:
    """A statement that sqlglot writes shows its names and none of its literals, whatever is in these."""
    exp = sqlglot.exp
    secrets = [f"<s3cret>{text}<s3cret>" for text in texts]
    condition = exp.column(column, table=table).isin(*[exp.Literal.string(secret) for secret in secrets])
    tree = exp.select(exp.column(column, table=table).as_(alias)).from_(table).where(condition).limit(98765)
    sql = _written(tree, dialect)

    shown = redacted(sql, dialect)

    assert "s3cret" not in shown
    assert "98765" not in shown
    assert {table, column, alias} <= {text.strip('"`[]') for kind, text in sql_tokens(shown, dialect) if kind == "name"}


@given(st.sampled_from(list(READERS)), TEXT)
def test_a_literal_ends_where_the_other_parser_ends_it(dialect: str, text: str) -> None:
    """The tokens of a literal and what follows it are those of sqlglot."""
    sql = _written(sqlglot.exp.Literal.string(text), dialect) + " , word"
    kinds = [kind for kind, _ in sql_tokens(sql, dialect) if kind != "space"]

    assert kinds == ["value", "other", "word"]


def _doubled(quote: str, text: str) -> str:
    return quote + text.replace(quote, quote * 2) + quote


def _escaped(quote: str, text: str) -> str:
    return quote + text.replace("\\", "\\\\").replace(quote, f"\\{quote}") + quote


def _commented(text: str) -> str:
    return f"/* {text.replace('*', '').replace('/', '')} */ 1"


def _without(mark: str, text: str) -> str:
    """The text in dollar quotes of this mark, which it must not hold."""
    return mark + text.replace("$", "") + mark


FORMS: dict[str, list[Callable[[str], str]]] = {
    "postgresql": [
        lambda text: _doubled("'", text),
        lambda text: "E" + _escaped("'", text),
        lambda text: "e" + _doubled("'", text.replace("\\", "")),
        lambda text: "U&" + _doubled("'", text.replace("\\", "")),
        lambda text: _without("$$", text),
        lambda text: _without("$tag$", text),
        lambda text: _doubled('"', text.replace("\n", "")),
        lambda text: _commented(text),
        lambda text: f"/* a {_commented(text)} b */ 1",
        lambda text: f"-- {text}".replace("\n", "") + "\n 1",
    ],
    "mysql": [
        lambda text: _doubled("'", text.replace("\\", "")),
        lambda text: _escaped("'", text),
        lambda text: _doubled('"', text.replace("\\", "")),
        lambda text: _escaped('"', text),
        lambda text: "N" + _doubled("'", text.replace("\\", "")),
        lambda text: "_utf8mb4" + _escaped("'", text),
        lambda text: _doubled("`", text.replace("`", "")),
        lambda text: _commented(text),
        lambda text: f"# {text}".replace("\n", "") + "\n 1",
        lambda text: f"-- {text}".replace("\n", "") + "\n 1",
    ],
    "sqlite": [
        lambda text: _doubled("'", text),
        lambda text: _doubled("`", text.replace("`", "")),
        lambda text: f"[{text.replace('[', '').replace(']', '')}]",
        lambda text: _commented(text),
        lambda text: f"-- {text}".replace("\n", "") + "\n 1",
    ],
    "oracle": [
        lambda text: _doubled("'", text),
        lambda text: "N" + _doubled("'", text),
        lambda text: f"q'[{text.replace(']', '')}]'",
        lambda text: f"Q'{{{text.replace('}', '')}}}'",
        lambda text: _doubled('"', text.replace("\n", "")),
        lambda text: _commented(text),
        lambda text: f"-- {text}".replace("\n", "") + "\n 1",
    ],
    "mssql": [
        lambda text: _doubled("'", text),
        lambda text: "N" + _doubled("'", text),
        lambda text: _doubled('"', text.replace("\n", "")),
        lambda text: f"[{text.replace('[', '').replace(']', '')}]",
        lambda text: f"/* a {_commented(text)} b */ 1",
        lambda text: f"-- {text}".replace("\n", "") + "\n 1",
    ],
}
OPERATORS = {
    "postgresql": ["=", "->", "->>", "#>>", "@>", "<@", "?|", "?", "||", "~", "<", "=-"],
    "mysql": ["=", "->", "->>", "<=>", "regexp", "<", "=-"],
    "sqlite": ["=", "->", "->>", "||", "glob", "<", "=-"],
}
NAMES = ("IDENTIFIER", "VAR")


@pytest.mark.parametrize("dialect", FORMS)
@given(data=st.data())
def test_what_the_other_parser_takes_for_a_value_is_left_out(dialect: str, data: st.DataObject) -> None:
    """Strings of every form, comments and names, side by side and beside operators of JSON; names stay.

    Texts with other values have the same fingerprint.
    """
    operators = st.sampled_from(OPERATORS.get(dialect, ["=", "<", "||"]))
    sql = other = "SELECT a FROM t WHERE b"
    count = data.draw(st.integers(1, 5))
    for number in range(count):
        operator, form = data.draw(operators), data.draw(st.sampled_from(FORMS[dialect]))
        sql += f" {operator} {form(f'm{number}x{data.draw(TEXT)}x')} AND b"
        other += f" {operator} {form(f'm{number}x{data.draw(TEXT)}x')} AND b"
    tokens = sqlglot.tokenize(sql, read=READERS[dialect])
    names = [each.text for each in tokens if each.token_type.name in ("IDENTIFIER", "VAR")]

    shown = redacted(sql, dialect)

    for number in range(count):
        assert (f"m{number}x" in shown) == any(f"m{number}x" in name for name in names)
    if not any("m" in name for name in names):
        assert statement_facts(sql, dialect).fingerprint == statement_facts(other, dialect).fingerprint


KINDS = {"Select": "read", "Insert": "insert", "Update": "update", "Delete": "delete", "Merge": "merge"}
STATEMENTS = [
    "SELECT a FROM t FOR UPDATE",
    "WITH c AS (SELECT 1 AS a) SELECT c.a FROM c FOR UPDATE SKIP LOCKED",
    "WITH c AS (SELECT 1 AS a) INSERT INTO t SELECT a FROM c",
    "WITH c AS (SELECT 1 AS a) UPDATE t SET a = 1 FROM c",
    "WITH c AS (SELECT 1 AS a) DELETE FROM t USING c WHERE t.a = c.a",
    "WITH c AS (SELECT 'delete from t' AS a) SELECT c.update FROM c",
    "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 2",
    "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN UPDATE SET a = 1",
    "(SELECT 1) UNION (SELECT 2)",
]


@pytest.mark.parametrize("sql", STATEMENTS)
@pytest.mark.parametrize("before", ["", "\n    ", "/* a */ ", "-- update t\n", ";;"])
def test_a_statement_does_what_the_other_parser_says(sql: str, before: str) -> None:
    """Behind blanks and comments too; a write in WITH counts, one in a string or a lock does not."""
    tree = sqlglot.parse_one(sql, read="postgres")

    assert statement_facts(before + sql, "postgresql").kind == KINDS.get(type(tree).__name__, "read")
