"""Loops of Tortoise, whose sqlite works in a thread."""

from tortoise import Tortoise, fields
from tortoise.models import Model


class Customer(Model):
    """Whoever orders."""

    id = fields.IntField(primary_key=True)
    name = fields.TextField()


class Order(Model):
    """An order of a customer."""

    id = fields.IntField(primary_key=True)
    customer = fields.ForeignKeyField("models.Customer", related_name="orders")


class Item(Model):
    """A part of an order."""

    id = fields.IntField(primary_key=True)
    order = fields.ForeignKeyField("models.Order", related_name="items")


async def prepare(folder: str) -> None:
    """Make ten orders of ten customers in the other direction, three items each."""
    await Tortoise.init(db_url=f"sqlite://{folder}/tortoise.db", modules={"models": ["loops.on_tortoise"]})
    await Tortoise.generate_schemas()
    customers = [await Customer.create(name="c") for _ in range(10)]
    orders = [await Order.create(customer=customer) for customer in reversed(customers)]
    for number in range(30):
        await Item.create(order=orders[number % 10])


async def close() -> None:
    """Close the connections."""
    await Tortoise.close_connections()


async def one() -> None:
    """One object per order."""
    for order in await Order.all():
        assert (await order.customer).id


async def many() -> None:
    """A collection per order."""
    for order in await Order.all():
        assert len(await order.items) == 3


async def fetched() -> None:
    """A prefetch per order, which Tortoise runs in a task of its own."""
    async for order in Order.all():
        await order.fetch_related("items")


async def narrowed() -> None:
    """A part of a collection per order."""
    for order in await Order.all():
        assert len(await order.items.filter(id__gt=0)) == 3


async def count() -> None:
    """The size of a collection per order."""
    for order in await Order.all():
        assert await order.items.all().count() == 3


async def in_bulk() -> None:
    """Chunks of one bulk method."""
    orders = await Order.all()
    await Item.bulk_create([Item(order=order) for order in orders * 2], batch_size=3)
    await Order.bulk_update(orders, ["customer_id"], batch_size=2)


async def in_bulk_for_each_order() -> None:
    """A bulk method per order."""
    for order in await Order.all():
        await Item.bulk_create([Item(order=order) for _ in range(3)], batch_size=2)


LOOPS = (one, many, fetched, narrowed, count, in_bulk, in_bulk_for_each_order)
