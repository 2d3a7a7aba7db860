"""Two collections that one joinedload multiplies, beside joins of which the rows are as many as what they load."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Column, ForeignKey, Integer, select
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session, declarative_base, joinedload, relationship, selectinload

from placebench.profiler import Recording, SqlProfiler

Base: Any = declarative_base()


class Order(Base):
    """An order with two collections."""

    __tablename__ = "orders"
    id = Column(Integer, primary_key=True)
    items = relationship("Item")
    notes = relationship("Note")


class Item(Base):
    """One of many items of an order, each with a product."""

    __tablename__ = "items"
    id = Column(Integer, primary_key=True)
    order_id = Column(ForeignKey("orders.id"))
    product_id = Column(ForeignKey("products.id"))
    product = relationship("Product")


class Note(Base):
    """One of many notes of an order."""

    __tablename__ = "notes"
    id = Column(Integer, primary_key=True)
    order_id = Column(ForeignKey("orders.id"))


class Product(Base):
    """A product of many items."""

    __tablename__ = "products"
    id = Column(Integer, primary_key=True)


@pytest.fixture
def recorded(engine: Engine, profiler: SqlProfiler) -> Callable[..., Recording]:
    """A function that loads 20 orders of 10 items and 10 notes each, with these options."""
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Product(id=number) for number in range(1, 4)])
        for number in range(1, 21):
            order = Order(id=number)
            order.items = [Item(product_id=place % 3 + 1) for place in range(10)]
            order.notes = [Note() for _ in range(10)]
            session.add(order)
        session.commit()

    def load(*options: Any) -> Recording:
        with profiler.record("orders") as recording, Session(engine) as session:
            session.execute(select(Order).options(*options)).unique().scalars().all()
        return recording

    return load


def test_two_joined_collections_are_a_cartesian_product(recorded: Callable[..., Recording]) -> None:
    """2000 rows for 200 items and 200 notes of 20 orders."""
    recording = recorded(joinedload(Order.items), joinedload(Order.notes))

    (statement,) = recording.statements
    (finding,) = (each for each in recording.findings() if each.kind == "cartesian product")
    assert (statement.row_count, statement.entity_count) == (2000, 400)
    assert (finding.count, finding.title) == (2000, "2\u202f000 rows for 400 entities that are joined")


@pytest.mark.parametrize(
    "options",
    [
        (joinedload(Order.items), selectinload(Order.notes)),
        (selectinload(Order.items), selectinload(Order.notes)),
        (joinedload(Order.items).joinedload(Item.product),),
    ],
)
def test_one_row_for_each_entity_is_none(recorded: Callable[..., Recording], options: tuple[Any, ...]) -> None:
    """One collection is joined at most, or an item with its product: 200 rows."""
    assert "cartesian product" not in {each.kind for each in recorded(*options).findings()}


def test_rows_without_a_partner_count_no_key(recorded: Callable[..., Recording], engine: Engine) -> None:
    """An outer join has NULL where an order has no note."""
    with Session(engine) as session:
        session.query(Note).delete()
        session.commit()

    (statement,) = recorded(joinedload(Order.items), joinedload(Order.notes)).statements

    assert (statement.row_count, statement.entity_count) == (200, 200)
