"""The pages of the shop."""

from django.db import transaction
from django.http import JsonResponse
from django.urls import path

from django_shop.models import Order


def lazy(request):
    """A statement per order."""
    orders = Order.objects.all()
    return JsonResponse({order.name: [item.name for item in order.items.all()] for order in orders})  # line of the loop


def prefetched(request):
    """Two statements."""
    orders = Order.objects.prefetch_related("items")
    return JsonResponse({order.name: [item.name for item in order.items.all()] for order in orders})


def streamed(request):
    """A server-side cursor on PostgreSQL."""
    return JsonResponse({"orders": sum(1 for _ in Order.objects.iterator(chunk_size=4))})


def renamed(request):
    """A transaction with a savepoint."""
    with transaction.atomic():
        order = Order.objects.first()
        order.name = "renamed"
        order.save()
        with transaction.atomic():
            Order.objects.filter(id=0).update(name="nobody")
    return JsonResponse({})


async def awaited(request):
    """A statement per order, each in a thread of asgiref's."""
    counts = {}
    async for order in Order.objects.all():
        counts[order.name] = await order.items.acount()
    return JsonResponse(counts)


urlpatterns = [path(view.__name__, view) for view in (lazy, prefetched, streamed, renamed, awaited)]
