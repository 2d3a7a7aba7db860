"""The service: `uvicorn shop.main:app`."""

import os
from typing import Annotated, Any

from fastapi import FastAPI, Query
from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session, joinedload

from shop.models import Order

PAGE = 50

app = FastAPI()
engine = create_engine(os.environ.get("SQLALCHEMY_DATABASE_URL") or os.environ["DATABASE_URL"])


@app.get("/orders")
def list_orders(page: Annotated[int, Query(ge=1)] = 1) -> list[dict[str, Any]]:
    """One page of orders, the newest first."""
    newest = select(Order).order_by(Order.id.desc()).limit(PAGE).offset((page - 1) * PAGE)
    with Session(engine) as session:
        orders = session.scalars(newest.options(joinedload(Order.customer)))
        return [describe(order) for order in orders]


def describe(order: Order) -> dict[str, Any]:
    """An order as its customer sees it."""
    return {
        "id": order.id,
        "customer": order.customer.name,
        "status": order.status,
        "placed_at": order.placed_at,
        "items": [{"product": item.product.name, "quantity": item.quantity} for item in order.items],
        "total_cents": sum(item.quantity * item.product.price_cents for item in order.items),
    }
