"""Removes from SQL what differs between executions of one statement: values, comments, case, lengths of lists.

In the template of a statement that SQLAlchemy compiled, an expanding IN list is one placeholder; here lists that were
written out become one, too.
"""

from collections.abc import Sequence

from placebench.profiler.model.sql_tokens import significant_tokens


def normalised(sql: str, dialect: str | None = None) -> str:
    """Return *sql* with all values as `?`, lists of constants and repeated VALUES rows as one, and without comments."""
    return " ".join(normalised_tokens(sql, dialect))


# The words that a list of constants may hold beside values, and those that make it a query.
_CONSTANT_WORDS = frozenset({"null", "true", "false", "default", "cast", "array", "row"})
_QUERY_WORDS = frozenset({"select", "values", "table", "with", "case", "not", "distinct"})


class _Bracket:
    """An open bracket: the start of its content, and whether all of that is constant so far.

    role: "list" after IN or ARRAY, "row" of VALUES, or empty. row_before: the row of VALUES before this one.
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
        """Note one more token of the content; only for content that is constant so far."""
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
        """Append the bracket *end* to *tokens*, and make a constant list one value; return a row of VALUES."""
        self.constant = self.constant and not self.needs_literal
        if self.constant and self.role == "list" and len(tokens) > self.start:
            tokens[self.start :] = "?"
        tokens.append(end)
        if self.role != "row":
            return ()
        row = tokens[self.start :]
        if self.constant:  # each of its values becomes `?`, also one with a type or in brackets
            depth, values = 0, ["?"]
            for token in row:
                depth += (token in ("(", "[")) - (token in (")", "]"))
                if token == "," and depth == 0:
                    values += [",", "?"]
            tokens[self.start :] = row = [*values, ")"]
        if row == self.row_before:
            del tokens[self.start - 2 :]  # with the comma and the bracket before it
        return row


def normalised_tokens(sql: str, dialect: str | None) -> list[str]:
    """Return the tokens that tell one statement from another, in lower case except for quoted names.

    A list of constants after IN or ARRAY is `?`; equal rows of VALUES are one.
    """
    tokens: list[str] = []
    brackets: list[_Bracket] = []
    row: Sequence[str] = ()  # the row of VALUES that a comma would continue
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
