"""Loops of SQLAlchemy's ORM and Core, and the chunks of one selectinload."""

from typing import Any, ClassVar

from sqlalchemy import Column, ForeignKey, Integer, String, create_engine, select, text
from sqlalchemy.orm import Session, declarative_base, deferred, joinedload, relationship, selectinload

Base: Any = declarative_base()


class Customer(Base):
    """Whoever orders."""

    __tablename__ = "customers"
    id = Column(Integer, primary_key=True)


class Order(Base):
    """An order with items."""

    __tablename__ = "orders"
    id = Column(Integer, primary_key=True)
    customer_id = Column(ForeignKey("customers.id"))
    note = deferred(Column(String, default="n"))
    customer = relationship("Customer")
    items = relationship("Item")


class Stock(Base):
    """What is there of an item."""

    __tablename__ = "stocks"
    id = Column(Integer, primary_key=True)
    item_id = Column(Integer)


class Item(Base):
    """A part of an order."""

    __tablename__ = "items"
    id = Column(Integer, primary_key=True)
    order_id = Column(ForeignKey("orders.id"))


class Payment(Base):
    """A payment of any kind."""

    __tablename__ = "payments"
    id = Column(Integer, primary_key=True)
    kind = Column(String)
    __mapper_args__: ClassVar[Any] = {"polymorphic_on": kind, "polymorphic_identity": "payment"}


class Transfer(Payment):
    """A payment from an account."""

    __tablename__ = "transfers"
    id = Column(ForeignKey("payments.id"), primary_key=True)
    account = Column(String)
    __mapper_args__: ClassVar[Any] = {"polymorphic_identity": "transfer"}


engine: Any = None


def prepare(folder: str) -> None:
    """Make sixty orders of as many customers in the other direction, three items each."""
    global engine
    engine = create_engine(f"sqlite:///{folder}/sqlalchemy.db")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Customer(id=number) for number in range(1, 61)])
        session.add_all([Order(id=number, customer_id=61 - number) for number in range(1, 61)])
        session.add_all([Item(order_id=1 + number % 60) for number in range(180)])
        session.add_all([Transfer(account="a") for _ in range(60)])
        session.commit()


def one() -> None:
    """One object for each of 40 of the orders."""
    with Session(engine) as session:
        for order in session.scalars(select(Order).where(Order.id > 20)):
            assert order.customer.id


def many() -> None:
    """A collection per order, after a list of as many customers with the same keys."""
    with Session(engine) as session:
        assert len(session.scalars(select(Customer)).all()) == 60
        for order in session.scalars(select(Order)):
            assert len(order.items) == 3


def column() -> None:
    """A deferred column per order."""
    with Session(engine) as session:
        for order in session.scalars(select(Order)):
            assert order.note


def expired() -> None:
    """The orders again, one by one after a COMMIT."""
    with Session(engine) as session:
        orders = session.scalars(select(Order)).all()
        session.commit()
        assert all(order.customer_id for order in orders)


def inherited() -> None:
    """The part of each payment that is in another table."""
    with Session(engine) as session:
        assert all(payment.account for payment in session.scalars(select(Payment)))


def by_hand() -> None:
    """One row per row."""
    with engine.connect() as connection:
        for _, key in connection.execute(text("select id, customer_id from orders")).all():
            connection.execute(text("select id from customers where id = :key"), {"key": key}).one()


def from_a_range() -> None:
    """Keys that are counted up beside a list of as many rows, which has the same numbers by chance."""
    with engine.connect() as connection:
        connection.execute(text("select id, customer_id from orders")).all()
        for number in range(1, 61):
            connection.execute(text("select order_id from items where id = :key"), {"key": number}).one()


def nested() -> None:
    """One row for each item of each order."""
    with engine.connect() as connection:
        for (order,) in connection.execute(text("select id from orders")).all():
            items = connection.execute(text("select id, order_id from items where order_id = :key"), {"key": order})
            for item, _ in items.all():
                connection.execute(text("select 1 from stocks where item_id = :key"), {"key": item}).all()


def chunks() -> None:
    """Two rounds of one selectinload, ten orders at a time: no loop of the application."""
    with Session(engine) as session:
        for order in session.scalars(select(Order).options(selectinload(Order.items, chunksize=10))):
            assert len(order.items) == 3


def select_in_a_loop() -> None:
    """A load of one order with its items and customer, per key."""
    with Session(engine) as session:
        for number in range(1, 61):
            options = (selectinload(Order.items), joinedload(Order.customer))
            assert session.get(Order, number, options=options).items


LOOPS = (one, many, column, expired, inherited, by_hand, from_a_range, nested, chunks, select_in_a_loop)
