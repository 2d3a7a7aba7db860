"""Models of Django."""

from django.db import models


class Tag(models.Model):
    """A label of orders."""

    name = models.TextField()


class Customer(models.Model):
    """Whoever orders."""

    name = models.TextField()


class Order(models.Model):
    """An order with items and tags."""

    customer = models.ForeignKey(Customer, models.CASCADE)
    note = models.TextField(default="n")
    tags = models.ManyToManyField(Tag)


class Item(models.Model):
    """A part of an order."""

    order = models.ForeignKey(Order, models.CASCADE, related_name="items")
