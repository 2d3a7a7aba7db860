from collections.abc import Iterable

from sqlalchemy import ForeignKey, StaticPool, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, selectinload  # noqa: F401

engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    items: Mapped[list["Item"]] = relationship()


class Item(Base):
    __tablename__ = "item"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))


Base.metadata.create_all(engine)
with Session(engine) as session:
    for number in range(50):
        items = [Item(name=f"item {number}.{count}") for count in range(4)]
        session.add(Order(customer=f"customer {number}", items=items))
    session.commit()


def application(environ: dict, start_response) -> Iterable[bytes]:
    with Session(engine) as session:
        lines = []
        for order in session.scalars(select(Order)).all():
            lines.append(f"{order.customer}: {len(order.items)} items\n")
    start_response("200 OK", [("Content-Type", "text/plain")])
    return ["".join(lines).encode()]
