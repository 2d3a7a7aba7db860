"""The statement that loaded the parents of an N+1, and how its ORM loads all at once: `find_parents`, `load_at_once`.

The parents are certain if the loop's values were in one column of the rows of an earlier statement, which are enough,
and the names of tables and columns say the same. If one of these is missing, `Parents.doubt` says which.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from placebench import units
from placebench.profiler.model.normalised_sql import normalised_tokens
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.relation_names import relation_names
from placebench.profiler.model.shortened_sql import shortened
from placebench.profiler.model.statement import Caller, OrmLoad, Statement

_Place = tuple[str, Caller | None, Caller | None]
_KEYS = frozenset({"id", "pk", "uuid", "guid", "key", "rowid"})
_FETCH_MODES = (6, 1)
"""The version of Django from which on a query set has `fetch_mode`."""
# A prefetch loads whole collections: a filter or a LIMIT of one sends its own query all the same.
_NARROWED = re.compile(r"\b(?:and|limit)\b", re.IGNORECASE)
# What Django's exists() selects.
_EXISTS = re.compile(r"SELECT (?:%s|\?|1) AS [\"`]a[\"`] ")
UNKNOWN_ORM = "load all at once: a join, an IN list, or an ORM's eager loading (selectinload, prefetch_related)"


@dataclass(frozen=True, slots=True)
class Parents:
    """The rows over which a loop runs one statement each.

    row_count: rows of all executions before the loop's last one. executions: how often the statement ran until then.
    doubt: why it may be another statement; empty if it is certain.
    """

    row_count: int
    executions: int
    sql: str
    fingerprint: str
    caller: Caller | None
    doubt: str = ""

    def __str__(self) -> str:
        """Return one line: the number of rows, the line that loaded them, and the doubt."""
        return self.shown(str)

    def shown(self, place_of: Callable[[Caller], str]) -> str:
        """Return the line with the place as *place_of* writes it."""
        several = f" of {self.executions} executions" if self.executions > 1 else ""
        place = f", {place_of(self.caller)}" if self.caller is not None else ""
        doubt = f" (probably: {self.doubt})" if self.doubt else ""
        return f"{units.numbered(self.row_count, 'row')}{several}{place}{doubt}"

    @property
    def shortened_sql(self) -> str:
        """The statement on one line."""
        return shortened(self.sql, 160)


@dataclass(slots=True)
class _Candidate:
    """The executions of one statement at one place before the end of the loop.

    columns: those of its rows that had the loop's values.
    """

    statements: list[Statement] = field(default_factory=list)
    columns: set[int] = field(default_factory=set)

    @property
    def row_count(self) -> int:
        return sum(each.row_count or 0 for each in self.statements)


def find_parents(loop: Sequence[Statement], executions: int, recording: RecordingData) -> Parents | None:
    """Return the statement whose rows the loop runs over; None if no statement is likely.

    loop: the kept statements of one N+1, of any number of requests. executions: the largest number in one request.
    """
    first = next((each for each in loop if each.origins), None) or (loop[0] if loop else None)
    if first is None:
        return None
    own = _place(first)
    last = max(each.started_s for each in loop if each.request == first.request)
    known: dict[float, set[int]] = {}
    for started_s, column in first.origins:
        known.setdefault(started_s, set()).add(column)
    places: dict[_Place, _Candidate] = {}
    for each in recording.statements:
        is_earlier = each.request == first.request and each.started_s < last and each.kind == "read"
        if not is_earlier or each.error is not None or _place(each) == own:
            continue
        candidate = places.setdefault(_place(each), _Candidate())
        candidate.statements.append(each)
        candidate.columns |= known.get(each.started_s, set())
    enough = [each for each in places.values() if each.row_count >= executions]
    with_values = [each for each in enough if each.columns]
    named = [each for each in with_values or enough if _agree(first, each)]
    if with_values:
        doubt = "" if len(named) == 1 else "its rows have the values, and so have others"
        if len(with_values) == 1 and not named:
            doubt = "its rows have the values, and the names of columns do not tell"
        found = named or with_values
    else:
        doubt = "it has as many rows, and the names of columns fit"
        found = [each for each in named if each.row_count == executions]
    if not found:
        return None
    best = max(found, key=lambda each: (each.row_count == executions, each.statements[-1].started_s))
    load = best.statements[0]
    return Parents(best.row_count, len(best.statements), load.sql, load.fingerprint, load.caller, doubt)


def are_chunks(loads: Sequence[Statement], recording: RecordingData) -> bool:
    """Return whether the statements are the chunks of selectinload, which the ORM sends one after the other.

    Each has an IN list, all but the last are of one length, and only other loads of relationships come between.
    """
    by_request: dict[int, list[Statement]] = {}
    for each in loads:
        if not each.relationship or " in (" not in each.sql.lower():
            return False
        by_request.setdefault(each.request, []).append(each)
    for chunks in by_request.values():
        chunks.sort(key=lambda each: each.started_s)
        lengths = [each.value_count or 0 for each in chunks]
        if lengths[0] < 2 or len(set(lengths[:-1])) > 1 or lengths[-1] > lengths[0]:
            return False
        first, last, request = chunks[0].started_s, chunks[-1].started_s, chunks[0].request
        others = (each for each in recording.statements if each.request == request and not each.relationship)
        if any(first < each.started_s < last for each in others):
            return False
    return bool(by_request)


def _place(statement: Statement) -> _Place:
    return statement.fingerprint, statement.caller, statement.outer_caller


def _agree(loop: Statement, candidate: _Candidate) -> bool:
    """Return whether the names say that the loop's values are keys of the candidate's rows.

    The relation that an ORM loads names the class of the parents. Otherwise a compared column such as order_id belongs
    to a table of orders, and a selected column such as customer_id to a loop over customers.
    """
    parent = candidate.statements[0]
    dialect = None if parent.database is None else parent.database.system
    selected, tables = _names(parent.sql, dialect)[:2]
    owner = loop.load.relation.partition(".")[0].lower() if loop.load is not None else ""
    if owner and any(owner in table.replace("_", "") for table in tables):
        return True
    own_tables, compared = _names(loop.sql, dialect)[1:]
    columns = {selected[at] for at in candidate.columns if at < len(selected)} if candidate.columns else set(selected)
    for own in compared:
        for column in columns - {""}:
            stem, column_stem = _stem(own), _stem(column)
            if own == column and own not in _KEYS and own != "name":
                return True
            if stem and (column in _KEYS or column_stem == stem) and any(stem in table for table in tables):
                return True
            is_named_after = any(column_stem in table for table in own_tables) if column_stem else column in own_tables
            if own in _KEYS and is_named_after:
                return True
    return False


def _stem(column: str) -> str:
    """Return "order" for order_id; empty for a column that is not named after a table."""
    stem, underscore, end = column.rpartition("_")
    return stem if underscore and end in _KEYS else ""


@lru_cache(maxsize=512)
def _names(sql: str, dialect: str | None) -> tuple[list[str], set[str], set[str]]:
    """Return the selected columns (empty for an expression), the tables, and the columns compared with one value."""
    quoted = normalised_tokens(sql, dialect)
    tokens = [each.strip('"`[]').lower() for each in quoted]
    compared = set()
    for at in range(1, len(tokens)):
        if tokens[at : at + 2] == ["=", "?"] or tokens[at : at + 3] == ["in", "(", "?"]:
            compared.add(tokens[at - 1])
        elif tokens[at - 1 : at + 1] == ["?", "="]:
            name = tokens[at + 1 : at + 4]
            compared.update(name[2:] if name[1:2] == ["."] else name[:1])
    return _selected(tokens), set(relation_names(quoted)), compared


def _selected(tokens: Sequence[str]) -> list[str]:
    """Return the name of each column of a SELECT, that before AS; empty for an expression, none after a star."""
    if tokens[:1] != ["select"] or "from" not in tokens:
        return []
    columns: list[list[str]] = [[]]
    depth = 0
    for token in tokens[1:]:
        depth += (token == "(") - (token == ")")
        if depth == 0 and token == "from":
            break
        if depth == 0 and token == ",":
            columns.append([])
        elif token != "distinct":
            columns[-1].append(token)
    names = []
    for column in columns:
        plain = column[: column.index("as")] if "as" in column else column
        if plain[-1:] == ["*"]:
            break
        is_name = len(plain) == 1 or (len(plain) in (3, 5) and plain[-2] == ".")
        names.append(plain[-1] if is_name else "")
    return names


def load_at_once(statement: Statement) -> str:
    """Return the advice for a read that runs once for each parent."""
    load = statement.load
    if load is None:
        return UNKNOWN_ORM if not statement.relationship else _sqlalchemy("many", statement.relationship)
    owner, _, name = load.relation.partition(".")
    if load.orm != "django" and statement.sql[:13].upper() == "SELECT COUNT(":
        return "count all at once: one query with COUNT and GROUP BY"
    match load.orm:
        case "sqlalchemy" | "sqlmodel":
            return _sqlalchemy(load.kind, load.relation, is_sqlmodel=load.orm == "sqlmodel")
        case "django":
            return _django(load, statement.sql)
        case "tortoise":
            return _tortoise(owner, name, is_narrowed=_NARROWED.search(statement.sql) is not None)
        case "piccolo":
            if not name:
                return "load all at once: objects().prefetch(…) on the parents, or where(Table.id.is_in(…))"
            if load.kind == "many":
                return f"load it with its parents: {owner}.select({owner}.all_columns(), {load.relation}(…))"
            return f"load it with its parents: {owner}.objects().prefetch({load.relation})"
        case "peewee":
            if load.kind == "one":
                return f"load it with its parents: {owner}.select({owner}, …).join({load.relation}), or prefetch"
            if load.kind == "many":
                return f"load it with its parents: prefetch({owner}.select(), …) with the query of {load.relation}"
            return "load all at once: a join, prefetch(parents, children), or where(Model.id.in_(…))"
    return UNKNOWN_ORM


def _sqlalchemy(kind: str, relation: str, *, is_sqlmodel: bool = False) -> str:
    if kind == "column":
        return f"load it with its parents: .options(undefer({relation}))"
    if kind == "expired":
        return "objects expire at a COMMIT: Session(expire_on_commit=False), or read all of them again by one query"
    if kind == "inherited":
        owner = relation.partition(".")[0]
        return f"load the columns of {owner} too: with_polymorphic(…, [{owner}]), or .options(selectin_polymorphic(…))"
    if not relation:
        return UNKNOWN_ORM
    loaders = ("joinedload", "selectinload") if kind == "one" else ("selectinload", "joinedload")
    advice = f"load it with its parents: .options({loaders[0]}({relation})), or {loaders[1]}"
    if is_sqlmodel:
        advice += (
            f' of sqlalchemy.orm; for all queries Relationship(sa_relationship_kwargs={{"lazy": "{_LAZY[kind]}"}})'
        )
    return advice


def _tortoise(owner: str, name: str, *, is_narrowed: bool) -> str:
    if not name:
        return "load all at once: select_related or prefetch_related on the parents, or filter(id__in=…)"
    if is_narrowed:
        return f'load it with its parents: {owner}.all().prefetch_related(Prefetch("{name}", queryset=…))'
    return f'load it with its parents: {owner}.all().prefetch_related("{name}"), or fetch_for_list'


_LAZY = {"one": "joined", "many": "selectin"}


def _django(load: OrmLoad, sql: str) -> str:
    owner, _, name = load.relation.partition(".")
    parents = f"{owner}.objects"
    if sql.startswith("SELECT COUNT("):
        return "count all at once: annotate(count=Count(…)) on the parents' query"
    if _EXISTS.match(sql):
        return "look up all at once: annotate(found=Exists(…)) on the parents' query"
    if load.kind == "many" and _NARROWED.search(sql) and "content_type" not in sql:
        narrowed = f'prefetch_related(Prefetch("{name}", queryset=…, to_attr=…))'
        return f"load it with its parents: {parents}.{narrowed}, or annotate(…) with Exists or Subquery"
    advice = {
        "one": f'load it with its parents: {parents}.select_related("{name}"), or prefetch_related',
        "many": f'load it with its parents: {parents}.prefetch_related("{name}")',
        "generic": f'load it with its parents: {parents}.prefetch_related("{name}")',
        "column": f'load it with its parents: without defer("{name}"), or with it in only()',
    }.get(load.kind, "load all at once: filter(pk__in=…), in_bulk, select_related or prefetch_related")
    # A manager of related objects makes a new query each time, which has no peers.
    version = tuple(int(part) if part.isdigit() else 0 for part in load.version.split("."))
    if version >= _FETCH_MODES and load.kind in ("one", "generic", "column"):
        advice += "; or fetch_mode(models.FETCH_PEERS) on their query"
    return advice
