"""The tables of the shop."""

from datetime import datetime

from sqlalchemy import CHAR, CheckConstraint, DateTime, ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customers"

    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    country: Mapped[str] = mapped_column(CHAR(2))


class Product(Base):
    __tablename__ = "products"

    id: Mapped[int] = mapped_column(primary_key=True)
    sku: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    price_cents: Mapped[int] = mapped_column(CheckConstraint("price_cents > 0"))


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer_id: Mapped[int] = mapped_column(ForeignKey("customers.id"), index=True)
    status: Mapped[str] = mapped_column(CheckConstraint("status IN ('paid', 'sent', 'returned')"))
    placed_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    customer: Mapped[Customer] = relationship()
    items: Mapped[list["OrderItem"]] = relationship(order_by="OrderItem.product_id")


class OrderItem(Base):
    __tablename__ = "order_items"

    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"), primary_key=True)
    product_id: Mapped[int] = mapped_column(ForeignKey("products.id"), primary_key=True, index=True)
    quantity: Mapped[int] = mapped_column(CheckConstraint("quantity > 0"))
    product: Mapped[Product] = relationship(lazy="joined", innerjoin=True)
