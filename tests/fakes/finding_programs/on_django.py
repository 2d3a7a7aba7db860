"""Programs with Django on SQLite: a shop of 12 orders with 3 items each."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import django
from django.conf import settings

from finding_programs import absent, found

settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django_shop"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
)
django.setup()

from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation  # noqa: E402
from django.contrib.contenttypes.models import ContentType  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.core.paginator import Paginator  # noqa: E402
from django.db import models, transaction  # noqa: E402
from django_shop.models import Item, Order  # noqa: E402


class Remark(models.Model):
    """A remark on anything."""

    class Meta:
        app_label = "django_shop"

    text = models.CharField(max_length=20)
    kind = models.ForeignKey(ContentType, models.CASCADE)
    number = models.IntegerField()
    about = GenericForeignKey("kind", "number")


GenericRelation(Remark, content_type_field="kind", object_id_field="number").contribute_to_class(Order, "remarks")


@cache
def _prepare() -> None:
    call_command("migrate", run_syncdb=True, verbosity=0)
    for number in range(1, 13):
        order = Order.objects.create(id=number, name=f"order {number}")
        Item.objects.bulk_create(Item(order=order, name=f"item {place}") for place in range(3))
        order.remarks.create(text="urgent")


@contextmanager
def place(_url: str) -> Iterator[None]:
    _prepare()
    yield
    Order.objects.filter(id__gt=12).delete()
    Order.objects.filter(name="new").update(name="order")


@found("n+1", "duplicate")
def the_order_of_each_item(_: Any) -> None:
    assert len([item.order.name for item in Item.objects.all()]) == 36


@found("n+1")
def the_items_of_each_order(_: Any) -> None:
    assert sum(len(order.items.all()) for order in Order.objects.all()) == 36


@found("n+1")
def objects_by_get(_: Any) -> None:
    assert len([Order.objects.get(id=number) for number in range(1, 11)]) == 10


@found("n+1")
def a_prefetch_for_each_object(_: Any) -> None:
    for order in Order.objects.all():
        models.prefetch_related_objects([order], "items")


@found("n+1")
def generic_relations(_: Any) -> None:
    assert [order.remarks.get().text for order in Order.objects.all()] == ["urgent"] * 12


@found("n+1")
def whether_each_order_has_items(_: Any) -> None:
    assert all(order.items.exists() for order in Order.objects.all())


@found("n+1")
def deferred_fields(_: Any) -> None:
    assert len({order.name for order in Order.objects.defer("name")}) == 12


@found("n+1")
def objects_saved_one_by_one(_: Any) -> None:
    for number in range(1, 9):
        Order(id=number, name="new").save(force_update=True)


@absent("n+1")
def orders_of_items_by_a_join(_: Any) -> None:
    assert len([item.order.name for item in Item.objects.select_related("order")]) == 36


@absent("n+1")
def items_prefetched(_: Any) -> None:
    assert sum(len(order.items.all()) for order in Order.objects.prefetch_related("items", "remarks")) == 36


@absent("n+1")
def rows_of_an_iterator_in_pairs(_: Any) -> None:
    assert len(list(Order.objects.iterator(chunk_size=2))) == 12


@absent("n+1")
def objects_by_in_bulk(_: Any) -> None:
    assert len(Order.objects.in_bulk(range(1, 5000))) == 12


@absent("n+1")
def rows_of_bulk_create(_: Any) -> None:
    Order.objects.bulk_create([Order(name="bulk") for _ in range(3000)], batch_size=300)


@absent("n+1")
def rows_of_bulk_update(_: Any) -> None:
    orders = Order.objects.bulk_create([Order(name="bulk") for _ in range(1000)])
    Order.objects.bulk_update(orders, ["name"], batch_size=100)


@absent("n+1")
def savepoints_of_atomic(_: Any) -> None:
    with transaction.atomic():
        for _number in range(8):
            with transaction.atomic():
                pass


@absent("n+1")
def empty_relations_prefetched(_: Any) -> None:
    Order.objects.bulk_create([Order(name="empty") for _ in range(20)])
    assert not [order for order in Order.objects.filter(id__gt=12).prefetch_related("items") if order.items.all()]


@found("duplicate")
def a_queryset_evaluated_twice(_: Any) -> None:
    orders = Order.objects.filter(id__lt=5)
    for _number in range(2):
        assert len(list(orders.all())) == 4


@absent("duplicate")
def a_queryset_with_its_cache(_: Any) -> None:
    orders = Order.objects.filter(id__lt=5)
    for _number in range(2):
        assert len(list(orders)) == 4


@absent("duplicate")
def an_object_refreshed_after_an_update(_: Any) -> None:
    order = Order.objects.get(id=1)
    for _number in range(3):
        Order.objects.filter(id=1).update(name="new")
        order.refresh_from_db()


@absent("duplicate")
def an_object_again_after_a_block_rolled_back(_: Any) -> None:
    for _number in range(2):
        with suppress(ValueError), transaction.atomic():
            Order.objects.filter(id=1).update(name="new")
            assert Order.objects.filter(id=1, name="new").exists()
            raise ValueError
        assert not Order.objects.filter(id=1, name="new").exists()


@found("duplicate")
def an_object_again_after_another_one_was_created(_: Any) -> None:
    for number in range(3):
        Item.objects.get(id=1)
        Order.objects.create(name=f"new {number}")


@absent("n+1")
def an_iterator_that_prefetches(_: Any) -> None:
    orders = Order.objects.prefetch_related("items").iterator(chunk_size=2)
    assert sum(len(order.items.all()) for order in orders) == 36


@absent("n+1")
def a_queue_of_new_orders(_: Any) -> None:
    Order.objects.bulk_create([Order(name="new") for _ in range(8)])
    while order := Order.objects.filter(name="new").order_by("id").first():
        order.name = "done"
        order.save(update_fields=["name"])


@absent("n+1")
def pages_of_a_paginator(_: Any) -> None:
    for page in Paginator(Item.objects.order_by("id"), 7):
        assert list(page.object_list)


@absent("n+1")
def names_written_by_ranges_of_keys(_: Any) -> None:
    for start in range(1, 37, 6):
        Item.objects.filter(id__gte=start, id__lt=start + 6).update(name="item")


@found("n+1")
def found_or_created_one_by_one(_: Any) -> None:
    for number in range(8):
        Order.objects.get_or_create(name=f"order number {number}")


@absent("duplicate")
def a_counter_read_again_after_each_update(_: Any) -> None:
    for _number in range(4):
        Order.objects.filter(id=1).update(name=models.F("name"))
        Order.objects.get(id=1)


@absent("n+1")
def small_batches_of_bulk_create(_: Any) -> None:
    Order.objects.bulk_create([Order(name="bulk") for _ in range(95)], batch_size=10)


@absent("n+1")
def small_batches_of_bulk_update(_: Any) -> None:
    items = list(Item.objects.all())
    Item.objects.bulk_update(items, ["name"], batch_size=5)


@absent("n+1")
def small_batches_of_an_upsert(_: Any) -> None:
    orders = [Order(id=number, name="order") for number in range(1, 13)]
    Order.objects.bulk_create(orders, 2, update_conflicts=True, update_fields=["name"], unique_fields=["id"])


@found("n+1")
def items_created_in_bulk_for_each_order(_: Any) -> None:
    for order in Order.objects.bulk_create([Order(name="new") for _ in range(8)]):
        Item.objects.bulk_create([Item(order=order, name="item") for _ in range(10)], batch_size=10)


@found("n+1")
def items_updated_in_bulk_for_each_order(_: Any) -> None:
    for order in Order.objects.prefetch_related("items"):
        Item.objects.bulk_update(list(order.items.all()), ["name"], batch_size=2)
