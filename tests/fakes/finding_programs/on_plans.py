"""Programs whose findings are in the plans of PostgreSQL; SQLAlchemy with psycopg, on tables that were analysed."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import psycopg
from sqlalchemy import Connection, create_engine, text

from finding_programs import absent as _absent
from finding_programs import found as _found

found, absent = partial(_found, mode="plans"), partial(_absent, mode="plans")
SCHEMA = """
drop schema if exists plans cascade; create schema plans; set search_path to plans;
create table event (id int primary key, kind int, day date, city int, country int, region int, name text);
insert into event select g, g % 100, date '2026-01-01' + g % 365, g % 1000, g % 1000 / 10, g % 1000 / 100,
        'event ' || g
    from generate_series(1, 40000) g;
create index on event (kind);
create index on event (city);
create index on event (country);
create table visit (id int primary key, event_id int, place int);
insert into visit select g, g * 10, g from generate_series(1, 3000) g;
create index on visit (event_id);
create table customer (id int primary key, code int unique);
insert into customer select g, g from generate_series(1, 100) g;
create table purchase (id int primary key, customer_id int references customer on delete cascade);
insert into purchase select g, g % 50 + 1 from generate_series(1, 20000) g;
create table voucher (id int primary key, customer_code int references customer (code));
insert into voucher select g, g + 50 from generate_series(1, 40) g;
create table shop (id int primary key);
insert into shop values (1), (2);
create table sale (id int primary key, shop_id int references shop on delete cascade, day date);
insert into sale select g, 1 from generate_series(1, 20000) g;
create index on sale (shop_id, day);
create table refund (id int primary key, shop_id int references shop);
insert into refund select g from generate_series(1, 20000) g;
create index on refund (shop_id) where shop_id is not null;
create table folder (id int primary key, folder_id int references folder deferrable);
insert into folder select g from generate_series(1, 20000) g;
create table season (name text, first date, last date);
insert into season select 'season ' || g, date '2026-01-01' + g * 10, date '2026-01-10' + g * 10
    from generate_series(0, 35) g;
analyze;
"""
_urls: set[str] = set()


@contextmanager
def place(url: str) -> Iterator[Connection]:
    if url not in _urls:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(SCHEMA)
            connection.execute("vacuum plans.event")
        _urls.add(url)
    options = "-c search_path=plans -c max_parallel_workers_per_gather=0 -c jit=off"
    engine = create_engine(
        url.replace("postgresql:", "postgresql+psycopg:"),
        connect_args={"options": options},
        isolation_level="AUTOCOMMIT",
    )
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def run(connection: Connection, *statements: str, **values: int) -> None:
    """Execute the statements; the values are those of the last one."""
    for statement in statements[:-1]:
        connection.execute(text(statement))
    result = connection.execute(text(statements[-1]), values)
    if result.returns_rows:
        result.all()


@found("sequential scan")
def a_name_without_an_index(connection: Connection) -> None:
    run(connection, "select id from event where name = 'event 77'")


@found("sequential scan")
def an_index_that_a_function_hides(connection: Connection) -> None:
    run(connection, "select name from event where kind::text = '7'")


@found("sequential scan")
def rows_deleted_by_a_column_without_an_index(connection: Connection) -> None:
    run(connection, "delete from event where name = 'event 0'")


@absent("sequential scan")
def a_key_with_its_index(connection: Connection) -> None:
    run(connection, "select name from event where id = 77")


@absent("sequential scan")
def all_rows_of_a_table(connection: Connection) -> None:
    run(connection, "select count(*) from event")


@absent("sequential scan")
def a_condition_that_keeps_most_rows(connection: Connection) -> None:
    run(connection, "select count(*) from event where day <> '2026-05-01'")


@absent("sequential scan")
def a_small_table(connection: Connection) -> None:
    run(connection, "select name from season where name = 'season 7'")


@absent("sequential scan")
def whether_there_is_one(connection: Connection) -> None:
    run(connection, "select exists (select from event where name like 'event 9%')")


@found("sequential scan")
def the_last_rows_in_an_order_without_an_index(connection: Connection) -> None:
    run(connection, "select id from event order by name desc limit 10")


@found("sequential scan")
def the_next_job_in_an_order_without_an_index(connection: Connection) -> None:
    run(connection, "select id from event where kind >= 0 order by day limit 1 for update skip locked")


@absent("sequential scan")
def the_last_rows_by_their_key(connection: Connection) -> None:
    run(connection, "select id from event order by id desc limit 10")


@absent("sequential scan")
def a_random_row(connection: Connection) -> None:
    run(connection, "select id from event order by random() limit 1")


@absent("sequential scan")
def a_fifth_of_a_table_in_order(connection: Connection) -> None:
    run(connection, "select id from event order by name limit 8000")


@absent("sequential scan")
def the_largest_groups(connection: Connection) -> None:
    run(connection, "select day, count(*) from event group by day order by count(*) desc limit 3")


@found("join filter")
def a_join_by_a_range(connection: Connection) -> None:
    run(
        connection,
        "select season.name, visit.id from visit join event on event.id = visit.event_id"
        " join season on event.day between season.first and season.last",
    )


@found("join filter")
def a_join_by_one_column_or_another(connection: Connection) -> None:
    run(
        connection,
        "select count(*) from visit a join visit b on a.place = b.place or a.id = b.place where a.id < 100",
    )


@absent("join filter")
def a_join_by_equality(connection: Connection) -> None:
    run(connection, "select count(*) from visit join event on event.id = visit.event_id")


@absent("join filter")
def a_join_of_everything_with_everything(connection: Connection) -> None:
    run(connection, "select count(*) from visit cross join season")


@absent("join filter")
def a_range_of_few_rows(connection: Connection) -> None:
    run(
        connection,
        "select season.name from event join season on event.day between season.first and season.last"
        " where event.id < 9",
    )


@absent("join filter")
def a_join_that_keeps_half(connection: Connection) -> None:
    run(connection, "select count(*) from visit a join season b on a.id % 36 > extract(day from b.first)")


@found("unindexed foreign key")
def a_parent_of_a_large_table_deleted(connection: Connection) -> None:
    run(connection, "begin", "delete from customer where id = 99")
    run(connection, "rollback")


@found("unindexed foreign key")
def parents_deleted_with_their_rows(connection: Connection) -> None:
    run(connection, "begin", "delete from customer where id = any(array[1, 2])")
    run(connection, "rollback")


@found("unindexed foreign key")
def a_key_changed_that_others_refer_to(connection: Connection) -> None:
    run(connection, "begin", "update customer set id = 1000 where id = 98")
    run(connection, "rollback")


@found("unindexed foreign key")
def a_folder_of_folders_deleted(connection: Connection) -> None:
    run(connection, "begin", "delete from folder where id = 77")
    run(connection, "rollback")


@absent("unindexed foreign key")
def a_parent_changed_without_its_key(connection: Connection) -> None:
    run(connection, "update customer set code = code where id = 97")


@absent("unindexed foreign key")
def a_code_changed_that_few_rows_refer_to(connection: Connection) -> None:
    run(connection, "begin", "update customer set code = 1000 where id = 96")
    run(connection, "rollback")


@absent("unindexed foreign key")
def referring_rows_inserted_and_deleted(connection: Connection) -> None:
    run(connection, "insert into purchase values (100000, 3)")
    run(connection, "delete from purchase where id = 100000")


@absent("unindexed foreign key")
def parents_whose_referring_rows_have_an_index(connection: Connection) -> None:
    run(connection, "begin", "delete from shop where id = 1")
    run(connection, "rollback")


@found("skipped rows")
def a_late_page(connection: Connection) -> None:
    run(connection, "select id from event order by id limit 20 offset 30000")


@found("skipped rows")
def a_late_page_of_a_filtered_list(connection: Connection) -> None:
    run(
        connection,
        "select id from event where kind < 90 order by id limit :rows offset :skipped",
        rows=20,
        skipped=9000,
    )


@found("skipped rows")
def a_late_page_below_another_limit(connection: Connection) -> None:
    run(connection, "select * from (select id from event order by id offset 5000) late limit 10")


@absent("skipped rows")
def the_first_page(connection: Connection) -> None:
    run(connection, "select id from event order by id limit 20 offset 0")


@absent("skipped rows")
def an_early_page(connection: Connection) -> None:
    run(connection, "select id from event order by id limit 20 offset 200")


@absent("skipped rows")
def a_page_by_the_last_key(connection: Connection) -> None:
    run(connection, "select id from event where id > 30000 order by id limit 20")


@absent("skipped rows", "sequential scan")
def a_column_named_offset(connection: Connection) -> None:
    run(connection, 'select id as "offset" from event order by name limit 20')


@found("row-estimate error")
def columns_that_depend_on_each_other(connection: Connection) -> None:
    run(
        connection,
        "select count(name) from event where region = 3 and country between 30 and 39 and city between 300 and 399"
        " and md5(repeat(name, 50)) <> ''",  # so that the scan takes some milliseconds on every machine
    )


@found("row-estimate error")
def columns_compared_by_expressions(connection: Connection) -> None:
    run(connection, "select count(*) from event where kind % 100 >= 0 and city % 1000 >= 0 and country % 100 >= 0")


@found("row-estimate error", "sequential scan")
def few_rows_below_a_sort_and_a_limit(connection: Connection) -> None:
    run(connection, "select id from event where city % 1000 < 0 order by name limit 5")


@absent("row-estimate error", "spill")
def values_that_are_in_no_list(connection: Connection) -> None:
    run(
        connection,
        "set work_mem = '64kB'",
        "select count(*) from visit where id < 300"
        " and case when id % 15 = 0 then -id else id end not in (select id from event)",
    )


@absent("row-estimate error")
def the_first_row_of_each_kind(connection: Connection) -> None:
    numbered = "select id, row_number() over (partition by kind order by id) number from event"
    run(connection, f"select id from ({numbered}) numbered where number = 1")


@absent("row-estimate error")
def a_selective_inner_scan(connection: Connection) -> None:
    run(connection, "set enable_hashjoin = off; set enable_mergejoin = off; set enable_material = off")
    run(connection, "select count(place) from event left join visit on visit.event_id = event.id")


@absent("row-estimate error")
def a_limit_that_stops_early(connection: Connection) -> None:
    run(connection, "select name from event where kind >= 0 limit 20")


@absent("row-estimate error")
def a_merge_join_that_stops_early(connection: Connection) -> None:
    run(connection, "set enable_hashjoin = off; set enable_nestloop = off")
    run(connection, "select count(*) from event join visit on event.id = visit.id")


@absent("row-estimate error")
def a_merge_join_that_reads_rows_again(connection: Connection) -> None:
    run(connection, "set enable_hashjoin = off; set enable_nestloop = off")
    run(connection, "select count(*) from event a join (select kind from event where id <= 3000) b on a.kind = b.kind")


@absent("row-estimate error")
def two_indexes_at_once(connection: Connection) -> None:
    run(connection, "set enable_seqscan = off")
    run(connection, "select count(name) from event where kind = 7 or city = 5")


@absent("row-estimate error")
def whether_each_event_was_visited(connection: Connection) -> None:
    run(connection, "set enable_hashjoin = off; set enable_mergejoin = off")
    run(connection, "select count(*) from visit where exists (select from event where event.kind = visit.place % 100)")


@absent("row-estimate error")
def a_cursor_that_is_closed_early(connection: Connection) -> None:
    streamed = connection.execution_options(isolation_level="READ COMMITTED", stream_results=True)
    with streamed.execute(text("select * from event where kind >= 0")) as rows:
        assert len(rows.fetchmany(500)) == 500


@found("spill")
def a_sort_beyond_the_memory(connection: Connection) -> None:
    run(connection, "set work_mem = '64kB'")
    run(connection, "select name from event order by name")


@found("spill")
def a_hash_beyond_the_memory(connection: Connection) -> None:
    run(connection, "set work_mem = '64kB'; set enable_mergejoin = off; set enable_nestloop = off")
    run(connection, "select count(a.name) from event a join event b on a.name = b.name")


@found("spill")
def a_stored_result_beyond_the_memory(connection: Connection) -> None:
    run(connection, "set work_mem = '64kB'")
    run(
        connection,
        "with all_events as materialized (select * from event) select count(*), (select max(id) from all_events)"
        " from all_events",
    )


@found("spill")
def a_window_beyond_the_memory(connection: Connection) -> None:
    run(connection, "set work_mem = '64kB'")
    run(connection, "select id, count(*) over () from event")


@found("spill")
def a_sort_by_parallel_workers(connection: Connection) -> None:
    run(
        connection,
        "set work_mem = '64kB'; set max_parallel_workers_per_gather = 2; set min_parallel_table_scan_size = 0;"
        " set parallel_setup_cost = 0; set parallel_tuple_cost = 0",
    )
    run(connection, "select name from event order by name")


@found("spill")
def a_sort_below_another_one(connection: Connection) -> None:
    run(connection, "set work_mem = '64kB'")
    run(connection, "select * from (select id, name from event order by name offset 0) named order by id limit 5")


@absent("spill")
def a_sort_in_memory(connection: Connection) -> None:
    run(connection, "set work_mem = '64MB'")
    run(connection, "select name from event order by name")


@absent("spill", "sequential scan")
def a_sorted_page(connection: Connection) -> None:
    run(connection, "set work_mem = '64kB'")
    run(connection, "select name from event order by name limit 20")


@absent("spill")
def an_ordered_index(connection: Connection) -> None:
    run(connection, "set work_mem = '64kB'")
    run(connection, "select id from event order by id")
