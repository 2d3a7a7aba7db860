"""Finds the tables and views that a statement reads: `relation_names`."""

from collections.abc import Sequence

_ENDS_OF_LIST = frozenset(
    {"except", "fetch", "for", "group", "having", "intersect", "limit", "offset", "order", "returning", "select", "set"}
    | {"union", "where", "window"}
)
# FROM separates the arguments of these.
_WITH_FROM = frozenset({"extract", "overlay", "position", "substring", "trim"})
_BEFORE_NAME = frozenset({"lateral", "only", "table"})


def relation_names(tokens: Sequence[str]) -> frozenset[str]:
    """Return the relations after FROM, JOIN, USING and the commas of such lists, in lower case and without schema.

    tokens: as of `normalised_tokens`. Neither functions nor the names that WITH gives to queries are among them.
    """
    found, named = set[str](), set[str]()
    # Of each open bracket where it is, and whether a comma in it leads to a relation; None if FROM leads to none.
    levels: list[tuple[int, bool | None]] = [(0, False)]
    expected = tokens[:1] == ["table"]
    closed = at = 0
    while at < len(tokens):
        token, before = tokens[at], tokens[at - 1] if at else ""
        opened, has_list = levels[-1]
        if token == "(":
            if before in ("as", "materialized"):
                end = next((each for each in range(at - 1, max(0, at - 4), -1) if tokens[each] == "as"), 1) - 1
                named.add(_plain(tokens[closed - 1 if tokens[end] == ")" else end]))
            levels.append((at, None if before in _WITH_FROM else expected))
        elif token == ")":
            closed = opened
            levels = levels[:-1] or [(0, False)]
            expected = False
        elif token == "table" and before == "(":
            expected = True
        elif token in ("from", "join", "using") and has_list is not None and before != "distinct":
            is_condition = token == "using" and tokens[at + 1 : at + 2] == ["("]
            levels[-1], expected = (opened, True), not is_condition
        elif token == ",":
            expected = has_list is True
        elif token in _ENDS_OF_LIST:
            levels[-1], expected = (opened, None if has_list is None else False), False
        elif expected and token not in _BEFORE_NAME:
            if token == "__":  # SQLAlchemy's __[SCHEMA_name] stands for a schema
                at = next((each for each in range(at, len(tokens)) if tokens[each] == "."), at + 1) - 1
            while tokens[at + 1 : at + 2] == ["."]:
                at += 2
            token = tokens[at] if at < len(tokens) else ""
            if tokens[at + 1 : at + 2] != ["("]:
                found.add(_plain(token))
            expected = False
        at += 1
    return frozenset(found - named - {""})


def _plain(name: str) -> str:
    return name.strip('"`[]').lower()
