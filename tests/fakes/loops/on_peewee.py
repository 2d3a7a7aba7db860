"""Loops of peewee."""

from peewee import ForeignKeyField, Model, SqliteDatabase, TextField

database = SqliteDatabase(None)


class Customer(Model):
    """Whoever orders."""

    name = TextField()

    class Meta:
        """Where the table is."""

        database = database


class Order(Model):
    """An order of a customer."""

    customer = ForeignKeyField(Customer)

    class Meta:
        """Where the table is."""

        database = database


class Item(Model):
    """A part of an order."""

    order = ForeignKeyField(Order, backref="items")

    class Meta:
        """Where the table is."""

        database = database


def prepare(folder: str) -> None:
    """Make ten orders of ten customers in the other direction, three items each."""
    database.init(f"{folder}/peewee.db")
    database.create_tables([Customer, Order, Item])
    Customer.insert_many([{"name": str(number)} for number in range(10)]).execute()
    Order.insert_many([{"customer": 11 - number} for number in range(1, 11)]).execute()
    Item.insert_many([{"order": 1 + number % 10} for number in range(30)]).execute()


def one() -> None:
    """One object per order."""
    for order in Order.select():
        assert order.customer.name


def many() -> None:
    """A collection per order."""
    for order in Order.select():
        assert len(order.items) == 3


def count() -> None:
    """The size of a collection per order."""
    for order in Order.select():
        assert order.items.count() == 3


def in_bulk() -> None:
    """Chunks of one bulk method."""
    orders = list(Order.select())
    Item.bulk_create([Item(order=order) for order in orders * 2], batch_size=3)
    Order.bulk_update(orders, ["customer"], batch_size=2)


def in_bulk_for_each_order() -> None:
    """A bulk method per order."""
    for order in Order.select():
        Item.bulk_create([Item(order=order) for _ in range(3)], batch_size=2)


LOOPS = (one, many, count, in_bulk, in_bulk_for_each_order)
