"""Loops of Django's ORM."""

import os
from typing import Any

import django
from django.conf import settings

# The loops run in a coroutine's thread, as those of a script would run in its own.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"


def prepare(folder: str) -> None:
    """Make the tables: ten orders of ten customers in the other direction, three items each."""
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{folder}/django.db"}
    settings.configure(
        INSTALLED_APPS=["loops"], DATABASES={"default": database}, DEFAULT_AUTO_FIELD="django.db.models.AutoField"
    )
    django.setup()
    from django.db import connection

    from loops.models import Customer, Item, Order, Tag

    with connection.schema_editor() as editor:
        for model in (Tag, Customer, Order, Item):
            editor.create_model(model)
    Customer.objects.bulk_create(Customer(name=str(number)) for number in range(10))
    Order.objects.bulk_create(Order(customer_id=11 - number) for number in range(1, 11))
    Item.objects.bulk_create(Item(order_id=1 + number % 10) for number in range(30))


def model(name: str) -> Any:
    """The class of this name, once Django is set up."""
    from django.apps import apps

    return apps.get_model("loops", name)


def one() -> None:
    """One object per order."""
    for order in model("Order").objects.all():
        assert order.customer.name


def many() -> None:
    """A collection per order, after a list of as many customers with the same keys."""
    assert len(model("Customer").objects.all()) == 10
    for order in model("Order").objects.all():
        assert len(order.items.all()) == 3


def many_to_many() -> None:
    """An empty collection per order."""
    for order in model("Order").objects.all():
        assert list(order.tags.all()) == []


def column() -> None:
    """A deferred column per order."""
    for order in model("Order").objects.defer("note"):
        assert order.note


def count() -> None:
    """The size of a collection per order."""
    for order in model("Order").objects.all():
        assert order.items.count() == 3


def exists() -> None:
    """Whether a collection has anything, per order."""
    for order in model("Order").objects.all():
        assert order.items.exists()


def by_hand() -> None:
    """One object per row, by its key."""
    for row in model("Order").objects.values("id", "customer_id"):
        model("Customer").objects.get(id=row["customer_id"])


LOOPS = (one, many, many_to_many, column, count, exists, by_hand)
