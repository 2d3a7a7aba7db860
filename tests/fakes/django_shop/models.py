"""Orders with items."""

from django.db import models


class Order(models.Model):
    """It has items."""

    name = models.CharField(max_length=20)


class Item(models.Model):
    """Of an order."""

    order = models.ForeignKey(Order, models.CASCADE, related_name="items")
    name = models.CharField(max_length=20)
