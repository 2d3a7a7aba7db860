"""The tables and views that a statement reads."""

import pytest

from placebench.profiler.model.statement_facts import StatementFacts, statement_facts


def facts(sql: str) -> StatementFacts:
    """What PostgreSQL's tokens of the text say."""
    return statement_facts(sql, "postgresql")


@pytest.mark.parametrize(
    ("sql", "relations"),
    [
        ('select * from a, "B" b, s.c as c where x in (select y from d) order by 1, 2', "a b c d"),
        ("select * from (a cross join b), lateral (select * from c) d, generate_series(1, 2) g", "a b c"),
        (
            "with t (a, b) as (select 1 from u), v as materialized (table w) select * from t join v using (a), r",
            "u w r",
        ),
        ("with recursive x as (select 1 union all select n + 1 from x) select * from x", ""),
        ("select extract(year from y), trim(both from b) from c where a is distinct from z", "c"),
        ("select (select count(*) from b), e from a union all select 1, 2 from f for update of a", "a b f"),
        ("select 1 from __[SCHEMA__none].item, x where x in (__[POSTCOMPILE_id_1])", "item x"),
        ("delete from a using b where a.i = b.i returning x, y", "a b"),
        ("update a set x = 1, y = 2 from b, c where a.i = b.i", "b c"),
        ("table s.t", "t"),
        ("select 1", ""),
        ("materialized (", ""),
    ],
)
def test_relations_are_read_from_lists_after_from_and_join(sql: str, relations: str) -> None:
    """Neither functions, aliases, columns nor the queries of WITH are among them."""
    assert facts(sql).relations == set(relations.split())


@pytest.mark.parametrize(
    ("sql", "takes"),
    [
        ("select id from job for update skip locked", True),
        ("delete from job where id = (select id from job where state = 'new' limit 1) returning id", True),
        ("with next as (select id from job limit 1) update job set state = 'taken' from next", True),
        ("update job set state = 'taken' where state = 'new' limit 1", True),
        ("update item set price = (select price from item p where p.day < 3 limit 1) where id = 1", False),
        ("update item set state = 1 where id = (select item_id from log where day = 3 limit 1)", False),
        ("select id from job limit 1", False),
        ("delete from job where id = 1 returning id", False),
    ],
)
def test_a_worker_of_a_queue_is_known_by_how_it_chooses_rows(sql: str, takes: bool) -> None:
    """A LIMIT in an assignment, or of another table, chooses no row to write."""
    assert facts(sql).takes_rows is takes


@pytest.mark.parametrize(
    ("sql", "setting"),
    [
        ("set local search_path to a, b", ("search_path", True)),
        ("set session authorization x", ("authorization", False)),
        ("set app.tenant = 5", ("app.tenant", False)),
        ("select set_config('app.tenant', '5', true)", ("set_config", True)),
        ("select set_config('app.tenant', '5', false)", ("set_config", False)),
        ("reset all", ("all", False)),
        ("discard all", ("all", False)),
        ("set statement_timeout = 5", None),
        ("set", None),
        ("select 1", None),
    ],
)
def test_a_setting_may_decide_which_rows_a_name_stands_for(sql: str, setting: tuple[str, bool] | None) -> None:
    """Its name, and whether it ends with its transaction."""
    assert facts(sql).setting == setting
