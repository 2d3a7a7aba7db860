"""Programs with SQLAlchemy on SQLite: a shop of 20 orders with 10 items, 10 notes and 60 tags each."""

import asyncio
import sqlite3
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import (
    Column,
    ForeignKey,
    Table,
    create_engine,
    event,
    func,
    insert,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    joinedload,
    mapped_column,
    relationship,
    selectinload,
    subqueryload,
)
from sqlalchemy.pool import NullPool, QueuePool
from sqlalchemy.sql.expression import ColumnElement

from finding_programs import CLOCK, absent, found


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customer"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer_id: Mapped[int] = mapped_column(ForeignKey("customer.id"))
    remark: Mapped[str] = mapped_column(default="", deferred=True)
    customer: Mapped[Customer] = relationship()
    items: Mapped[list["Item"]] = relationship()
    notes: Mapped[list["Note"]] = relationship()
    tags: Mapped[list["Tag"]] = relationship(secondary="order_tag")
    letters: Mapped[list["Letter"]] = relationship()


class Item(Base):
    __tablename__ = "item"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))
    product_id: Mapped[int] = mapped_column(ForeignKey("product.id"))
    product: Mapped["Product"] = relationship()


class Product(Base):
    __tablename__ = "product"
    id: Mapped[int] = mapped_column(primary_key=True)
    stock: Mapped[int] = mapped_column(default=0)


class Note(Base):
    __tablename__ = "note"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))


class Letter(Base):
    """No order has one."""

    __tablename__ = "letter"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))


class Group(Base):
    __tablename__ = "tag_group"
    id: Mapped[int] = mapped_column(primary_key=True)


class Tag(Base):
    __tablename__ = "tag"
    id: Mapped[int] = mapped_column(primary_key=True)
    group_id: Mapped[int] = mapped_column(ForeignKey("tag_group.id"))
    group: Mapped[Group] = relationship()


Table(
    "order_tag",
    Base.metadata,
    Column("order_id", ForeignKey("orders.id"), primary_key=True),
    Column("tag_id", ForeignKey("tag.id"), primary_key=True),
)


@cache
def _template() -> bytes:
    """The shop as a database file."""
    with TemporaryDirectory() as folder:
        engine = create_engine(f"sqlite:///{folder}/shop.db")
        Base.metadata.create_all(engine)
        with Session(engine) as session:
            session.add_all([*(Product(id=number) for number in range(1, 13)), *(Group(id=n) for n in range(1, 4))])
            session.flush()
            tags = [Tag(id=number, group_id=number % 3 + 1) for number in range(1, 61)]
            for number in range(1, 21):
                order = Order(id=number, customer=Customer(id=number, name=f"customer {number}"), tags=tags)
                order.items = [Item(product_id=place % 12 + 1) for place in range(10)]
                order.notes = [Note() for _ in range(10)]
                session.add(order)
            session.commit()
        engine.dispose()
        return Path(folder, "shop.db").read_bytes()


class Shop:
    """Engines on copies of the shop; all are closed at its end."""

    def __init__(self, folder: Path, resources: ExitStack) -> None:
        self._folder = folder
        self._resources = resources
        self._number = 0
        self.engine = self.another()

    def another(self, file: Path | None = None, **arguments: Any) -> Engine:
        """An engine on a copy of its own, or on *file*."""
        self._number += 1
        if file is None:
            file = self._folder / f"{self._number}.db"
            file.write_bytes(_template())
        engine = create_engine(f"sqlite:///{file}", **arguments)
        self._resources.callback(engine.dispose)
        return engine

    @property
    def file(self) -> Path:
        return Path(self.engine.url.database or "")

    def session(self, engine: Engine | None = None) -> Session:
        return self._resources.enter_context(Session(engine or self.engine))


@contextmanager
def place(_url: str) -> Iterator[Shop]:
    with TemporaryDirectory() as folder, ExitStack() as resources:
        yield Shop(Path(folder), resources)


# --- one statement per row


@found("n+1")
def a_collection_of_each_order(shop: Shop) -> None:
    for order in shop.session().scalars(select(Order)):
        assert len(order.items) == 10


@found("n+1")
def the_parent_of_each_order(shop: Shop) -> None:
    assert len({order.customer.name for order in shop.session().scalars(select(Order)).all()}) == 20


@found("n+1")
def empty_collections_of_each_order(shop: Shop) -> None:
    assert not [order.letters for order in shop.session().scalars(select(Order)) if order.letters]


def _serialised(order: Order) -> dict[str, Any]:
    return {"id": order.id, "notes": [note.id for note in order.notes]}


@found("n+1")
def a_serializer_loads(shop: Shop) -> None:
    assert len([_serialised(order) for order in shop.session().scalars(select(Order)).all()]) == 20


@found("n+1")
def objects_by_their_key(shop: Shop) -> None:
    session = shop.session()
    assert len([session.get(Order, number) for number in range(1, 11)]) == 10


@found("n+1", "statement-cache miss")
def values_in_the_text(shop: Shop) -> None:
    session = shop.session()
    for number in range(1, 11):
        session.execute(text(f"select name from customer where id = {number}")).all()


@found("n+1")
def a_connection_for_each_read(shop: Shop) -> None:
    engine = shop.another(shop.file, poolclass=NullPool)
    for number in range(1, 11):
        with Session(engine) as session:
            session.scalars(select(Customer.name).where(Customer.id == number)).all()


@found("n+1")
def a_ping_before_each_read(shop: Shop) -> None:
    engine = shop.another(shop.file, pool_pre_ping=True)
    for number in range(1, 11):
        with Session(engine) as session:
            session.scalars(select(Customer.name).where(Customer.id == number)).all()


@found("n+1")
def another_statement_before_the_loop(shop: Shop) -> None:
    session = shop.session()
    session.scalars(select(func.count()).select_from(Order)).all()
    for number in range(5):
        session.scalars(select(Note.id).where(Note.order_id == number)).all()


@found("n+1")
def statements_of_100_kb(shop: Shop) -> None:
    session = shop.session()
    query = select(Note.id).where(text(f"'a' <> '{'x' * 100_000}'"))
    for number in range(1, 8):
        session.scalars(query.where(Note.order_id == number)).all()


@found("n+1")
def each_object_again_after_the_commit(shop: Shop) -> None:
    session = shop.session()
    orders = session.scalars(select(Order)).all()
    session.commit()
    assert len([order.customer_id for order in orders]) == 20


@found("n+1")
def a_deferred_column(shop: Shop) -> None:
    assert [order.remark for order in shop.session().scalars(select(Order)).all()] == [""] * 20


@found("n+1")
def counts_in_a_loop(shop: Shop) -> None:
    session = shop.session()
    for number in range(1, 11):
        session.scalar(select(func.count()).select_from(Item).where(Item.order_id == number))


@found("n+1")
def found_or_created(shop: Shop) -> None:
    session = shop.session()
    for name in "abcdefgh":
        if session.scalar(select(Customer).where(Customer.name == name)) is None:
            session.add(Customer(name=name))
            session.flush()


@found("n+1")
def rows_inserted_one_by_one(shop: Shop) -> None:
    session = shop.session()
    for number in range(1, 11):
        session.add(Note(order_id=number))
        session.commit()


@found("n+1")
def rows_updated_one_by_one(shop: Shop) -> None:
    session = shop.session()
    for number in range(1, 11):
        session.execute(update(Product).where(Product.id == number).values(stock=number))
    session.commit()


@found("n+1")
def awaited_attributes(shop: Shop) -> None:
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    async def work() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{shop.file}")
        async with AsyncSession(engine) as session:
            for number in range(1, 11):
                await session.scalars(select(Note.id).where(Note.order_id == number))
        await engine.dispose()

    asyncio.run(work())


# --- as many statements, and no loop over rows


@absent("n+1")
def collections_by_selectin(shop: Shop) -> None:
    for order in shop.session().scalars(select(Order).options(selectinload(Order.items), selectinload(Order.notes))):
        assert len(order.items) == len(order.notes) == 10


@absent("n+1")
def collections_by_a_join(shop: Shop) -> None:
    for order in shop.session().scalars(select(Order).options(joinedload(Order.items))).unique():
        assert len(order.items) == 10


@absent("n+1")
def collections_by_a_subquery(shop: Shop) -> None:
    for order in shop.session().scalars(select(Order).options(subqueryload(Order.items))):
        assert len(order.items) == 10


@absent("n+1")
def empty_relations_by_selectin(shop: Shop) -> None:
    orders = shop.session().scalars(select(Order).options(selectinload(Order.letters))).all()
    assert not [order.letters for order in orders if order.letters]


@absent("n+1")
def selectin_in_chunks_of_500(shop: Shop) -> None:
    session = shop.session()
    session.execute(insert(Order), [{"customer_id": 1} for _ in range(3000)])
    orders = session.scalars(select(Order).options(selectinload(Order.notes))).all()
    assert sum(len(order.notes) for order in orders) == 200


@absent("n+1")
def a_stream_with_selectin(shop: Shop) -> None:
    session = shop.session()
    session.execute(insert(Order), [{"customer_id": 1} for _ in range(700)])
    query = select(Order).options(selectinload(Order.notes)).execution_options(yield_per=100)
    assert sum(len(order.notes) for order in session.scalars(query)) == 200


@absent("n+1")
def a_stream_of_rows(shop: Shop) -> None:
    assert sum(1 for _ in shop.session().scalars(select(Item).execution_options(yield_per=10))) == 200


@absent("n+1")
def one_object_of_the_identity_map(shop: Shop) -> None:
    session = shop.session()
    customer = session.get(Customer, 1)
    assert {session.get(Customer, 1) for _ in range(10)} == {customer}


@absent("n+1")
def a_cache_of_the_application(shop: Shop) -> None:
    session = shop.session()
    name = cache(lambda number: session.scalar(select(Customer.name).where(Customer.id == number)))
    assert len({name(1) for _ in range(10)}) == 1


@absent("n+1")
def one_parent_of_all_rows(shop: Shop) -> None:
    notes = shop.session().scalars(select(Item).where(Item.product_id == 1)).all()
    assert len({note.product.id for note in notes}) == 1


@absent("n+1")
def rows_inserted_at_once(shop: Shop) -> None:
    session = shop.session()
    session.add_all(Customer(name=f"new {number}") for number in range(5000))
    session.commit()


@absent("n+1")
def rows_updated_at_once(shop: Shop) -> None:
    session = shop.session()
    session.execute(update(Product), [{"id": number, "stock": number} for number in range(1, 13)])
    session.commit()


@absent("n+1")
def lists_of_a_hundred_keys(shop: Shop) -> None:
    session = shop.session()
    for start in range(0, 1000, 100):
        session.scalars(select(Note.id).where(Note.id.in_(range(start, start + 100)))).all()


@absent("n+1")
def pages_by_the_last_key(shop: Shop) -> None:
    session, last = shop.session(), 0
    while page := session.scalars(select(Item.id).where(Item.id > last).order_by(Item.id).limit(25)).all():
        last = page[-1]


@absent("n+1")
def a_read_of_each_table(shop: Shop) -> None:
    session = shop.session()
    for name in ("customer", "orders", "item", "product", "note", "tag"):
        session.execute(text(f'select "{name}"."id" from "{name}"')).all()


@absent("n+1")
def a_read_of_each_shard(shop: Shop) -> None:
    for shard in [shop.another() for _ in range(6)]:
        with Session(shard) as session:
            session.scalars(select(Customer.name).where(Customer.id == 1)).all()


@absent("n+1")
def savepoints_in_a_loop(shop: Shop) -> None:
    session = shop.session()
    session.execute(select(Customer.name)).all()
    for _ in range(10):
        with session.begin_nested():
            CLOCK.work(0.001)


@absent("n+1")
def one_helper_of_five_lines(shop: Shop) -> None:
    session = shop.session()

    def name(number: int) -> str | None:
        return session.scalar(select(Customer.name).where(Customer.id == number))

    assert name(1)
    assert name(2)
    assert name(3)
    assert name(4)
    assert name(5)


@absent("n+1")
def settings_of_each_connection(shop: Shop) -> None:
    for size in range(8):
        with shop.engine.connect() as connection:
            connection.exec_driver_sql(f"pragma cache_size = {1000 + size}")


# --- reads of equal values


def _setting(session: Session) -> str | None:
    return session.scalar(select(Customer.name).where(Customer.id == 7))


@found("duplicate")
def a_setting_in_a_loop(shop: Shop) -> None:
    session = shop.session()
    assert {_setting(session) for _ in range(10)} == {"customer 7"}


@found("duplicate")
def a_read_for_each_of_two_sessions(shop: Shop) -> None:
    for _ in range(2):
        with Session(shop.engine) as session:
            assert _setting(session)


@found("duplicate")
def a_read_again_after_another_table_was_written(shop: Shop) -> None:
    session = shop.session()
    for _ in range(2):
        assert _setting(session)
        session.execute(insert(Note), {"order_id": 1})


@absent("duplicate")
def a_read_again_after_its_table_was_written(shop: Shop) -> None:
    session = shop.session()
    for number in range(4):
        assert _setting(session)
        session.execute(update(Customer).where(Customer.id == number).values(name="new"))


@absent("duplicate")
def primary_and_replica(shop: Shop) -> None:
    for engine in (shop.engine, shop.another()):
        with Session(engine) as session:
            assert _setting(session)


@absent("duplicate")
def a_random_choice(shop: Shop) -> None:
    session = shop.session()
    for _ in range(4):
        session.scalars(select(Customer.name).order_by(func.random()).limit(1)).all()


@absent("duplicate")
def a_read_tried_again_while_the_database_is_locked(shop: Shop) -> None:
    engine = shop.another(shop.file, connect_args={"timeout": 0})
    other = sqlite3.connect(shop.file)
    other.execute("begin exclusive")
    for attempt in range(6):
        if attempt == 5:
            other.rollback()
        with Session(engine) as session, suppress(OperationalError):
            _setting(session)
    other.close()


@absent("duplicate")
def polling_until_another_process_has_written(shop: Shop) -> None:
    other = sqlite3.connect(shop.file)
    for attempt in range(8):
        with Session(shop.engine) as session:
            if _setting(session) == "done":
                break
        CLOCK.work(0.5)
        if attempt == 5:
            other.execute("update customer set name = 'done' where id = 7")
            other.commit()
    other.close()


@absent("duplicate")
def a_read_again_after_the_session_rolled_back(shop: Shop) -> None:
    session = shop.session()
    session.execute(update(Customer).where(Customer.id == 7).values(name="new"))
    for expected in ("new", "customer 7"):
        assert _setting(session) == expected
        session.rollback()


@absent("duplicate")
def a_read_again_after_a_nested_transaction_rolled_back(shop: Shop) -> None:
    engine = shop.another(shop.file)
    event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("begin"))
    session = shop.session(engine)
    nested = session.begin_nested()
    session.execute(update(Customer).where(Customer.id == 7).values(name="new"))
    assert _setting(session) == "new"
    nested.rollback()
    assert _setting(session) == "customer 7"


@absent("redundant fetch")
def rows_again_after_a_rollback(shop: Shop) -> None:
    session = _stock(shop, 150)
    session.execute(update(Product).values(stock=Product.stock + 1))
    session.execute(select(Product.id, Product.stock)).all()
    session.rollback()
    session.execute(select(Product.stock, Product.id)).all()


@absent("redundant fetch")
def the_same_keys_of_two_schemas(shop: Shop) -> None:
    with shop.engine.connect() as connection:
        connection.exec_driver_sql("attach ':memory:' as tenant")
        connection.exec_driver_sql("create table tenant.item as select * from main.item")
        for schema in ("main", "tenant"):
            translated = connection.execution_options(schema_translate_map={None: schema})
            assert len(translated.execute(select(Item.id, Item.order_id)).all()) == 200


# --- rows that were there already


def _stock(shop: Shop, rows: int) -> Session:
    session = shop.session()
    session.execute(insert(Product), [{"id": 100 + number} for number in range(rows)])
    session.commit()
    return session


@found("redundant fetch")
def a_list_and_a_part_of_it(shop: Shop) -> None:
    session = _stock(shop, 150)
    session.scalars(select(Product)).all()
    session.scalars(select(Product).where(Product.id > 20)).all()


@found("redundant fetch")
def other_columns_of_the_same_rows(shop: Shop) -> None:
    session = _stock(shop, 150)
    session.execute(select(Product.id)).all()
    session.execute(select(Product.stock, Product.id)).all()


@absent("redundant fetch")
def the_same_keys_of_two_shards(shop: Shop) -> None:
    for engine in (shop.engine, shop.another()):
        with Session(engine) as session:
            assert len(session.execute(select(Item.id, Item.order_id)).all()) == 200


@absent("redundant fetch")
def rows_again_after_an_update(shop: Shop) -> None:
    session = _stock(shop, 150)
    session.execute(select(Product.id, Product.stock)).all()
    session.execute(update(Product).values(stock=Product.stock + 1))
    session.execute(select(Product.stock, Product.id)).all()


@absent("redundant fetch")
def two_halves_of_a_table(shop: Shop) -> None:
    session = _stock(shop, 400)
    session.execute(select(Product.id).where(Product.id < 300)).all()
    session.execute(select(Product.id, Product.stock).where(Product.id >= 300)).all()


# --- rows that a join multiplies


def _loaded(shop: Shop, *options: Any) -> int:
    return len(shop.session().scalars(select(Order).options(*options)).unique().all())


@found("cartesian product")
def two_collections_joined(shop: Shop) -> None:
    assert _loaded(shop, joinedload(Order.items), joinedload(Order.notes)) == 20


@found("cartesian product")
def items_with_products_beside_notes(shop: Shop) -> None:
    assert _loaded(shop, joinedload(Order.items).joinedload(Item.product), joinedload(Order.notes)) == 20


@found("cartesian product")
def a_condition_was_forgotten(shop: Shop) -> None:
    query = select(Order.id, Item.id, Note.id).join(Item).where(Note.id < 60)
    with warnings.catch_warnings(action="ignore"):  # SQLAlchemy warns of it
        shop.session().execute(query).all()


@absent("cartesian product")
def one_collection_joined_and_one_by_selectin(shop: Shop) -> None:
    assert _loaded(shop, joinedload(Order.items), selectinload(Order.notes)) == 20


@absent("cartesian product")
def items_with_their_products(shop: Shop) -> None:
    assert _loaded(shop, joinedload(Order.items).joinedload(Item.product), joinedload(Order.customer)) == 20


@absent("cartesian product")
def tags_of_all_orders_with_their_groups(shop: Shop) -> None:
    """Twelve hundred pairs of 20 orders and 60 tags: as many as there are."""
    assert _loaded(shop, joinedload(Order.tags).joinedload(Tag.group)) == 20


@absent("cartesian product")
def a_joined_collection_beside_an_empty_one(shop: Shop) -> None:
    assert _loaded(shop, joinedload(Order.items), joinedload(Order.letters)) == 20


# --- statements compiled again


class _Upper(ColumnElement[str]):
    inherit_cache = False


@compiles(_Upper)
def _compile_upper(_element: Any, _compiler: Any, **_options: Any) -> str:
    return "upper('x')"


@found("statement-cache miss", "n+1")
def values_in_literal_columns(shop: Shop) -> None:
    session = shop.session()
    for number in range(1, 11):
        session.scalars(select(Customer.name).where(Customer.id == literal_column(str(number)))).all()


@found("statement-cache miss", "n+1")
def a_construct_without_inherit_cache(shop: Shop) -> None:
    session = shop.session()
    for number in range(1, 11):
        session.execute(select(Customer.name, _Upper()).where(Customer.id == number)).all()


@absent("statement-cache miss")
def a_table_created_per_day(shop: Shop) -> None:
    with shop.engine.begin() as connection:
        for day in range(4):
            connection.execute(text(f"create table day_{day} (id integer)"))


@absent("statement-cache miss")
def filters_that_a_user_chooses(shop: Shop) -> None:
    session = shop.session()
    chosen = [Customer.id > 3, Customer.name != "", Customer.id < 9, Customer.id != 5]
    for number in range(len(chosen) + 1):
        session.scalars(select(Customer.id).where(*chosen[:number])).all()


@absent("statement-cache miss")
def the_first_statement_of_three_engines(shop: Shop) -> None:
    for engine in [shop.another() for _ in range(3)]:
        with Session(engine) as session:
            assert _setting(session)


# --- the pool


def _hold(engine: Engine, seconds: float) -> threading.Thread:
    """A thread that holds a connection until another one waits for it, and for so long."""
    held = threading.Event()
    pool: Any = engine.pool

    def hold() -> None:
        with engine.connect():
            held.set()
            while not pool._pool.not_empty._waiters:
                pass
            CLOCK.work(seconds)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    return holder


def _small_pool(shop: Shop, **arguments: Any) -> Engine:
    return shop.another(
        shop.file, **{"poolclass": QueuePool, "pool_size": 1, "max_overflow": 0, "pool_timeout": 60, **arguments}
    )


@found("connection-pool wait")
def a_thread_that_holds_the_connection(shop: Shop) -> None:
    engine = _small_pool(shop)
    holder = _hold(engine, 0.2)
    with Session(engine) as session:
        assert _setting(session)
    holder.join()


@absent("connection-pool wait")
def a_short_wait(shop: Shop) -> None:
    engine = _small_pool(shop)
    holder = _hold(engine, 0.002)
    with Session(engine) as session:
        assert _setting(session)
    holder.join()


@absent("connection-pool wait")
def a_slow_new_connection(shop: Shop) -> None:
    engine = _small_pool(shop)
    event.listen(engine, "connect", lambda *_: CLOCK.work(0.2))
    with Session(engine) as session:
        assert _setting(session)


@absent("connection-pool wait")
def an_overflow(shop: Shop) -> None:
    engine = _small_pool(shop, max_overflow=1)
    with engine.connect(), Session(engine) as session:
        assert _setting(session)


@found("connection-pool timeout")
def a_pool_that_is_empty(shop: Shop) -> None:
    engine = _small_pool(shop, pool_timeout=0.001)
    with engine.connect(), suppress(PoolTimeoutError):
        engine.connect()


@absent("connection-pool timeout")
def a_database_that_does_not_open(shop: Shop) -> None:
    with suppress(OperationalError):
        shop.another(Path("/nowhere/shop.db")).connect()


@absent("connection-pool timeout")
def two_connections_of_two(shop: Shop) -> None:
    engine = _small_pool(shop, pool_size=2)
    with engine.connect(), engine.connect():
        pass


@absent("connection-pool timeout")
def connections_that_come_back(shop: Shop) -> None:
    engine = _small_pool(shop, pool_timeout=0.001)
    for _ in range(4):
        with engine.connect():
            pass


# --- transactions that wait


@found("idle in transaction")
def work_after_a_write(shop: Shop) -> None:
    session = shop.session()
    session.execute(update(Product).where(Product.id == 1).values(stock=1))
    CLOCK.work(0.3)
    session.commit()


@absent("idle in transaction")
def work_after_the_commit(shop: Shop) -> None:
    session = shop.session()
    session.execute(update(Product).where(Product.id == 1).values(stock=1))
    session.commit()
    CLOCK.work(0.3)


@absent("idle in transaction")
def work_after_a_read_of_sqlite(shop: Shop) -> None:
    session = shop.session()
    session.execute(select(Product.id)).all()
    CLOCK.work(0.3)
    session.commit()
